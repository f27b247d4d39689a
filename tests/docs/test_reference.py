"""The reference says what the code knows, and the code takes every example in it."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docsite import events, examples, marks, metrics, parameters, reasons, replaced
from docsite.__main__ import DIRECTORY
from docsite.markdown import Missing
from localvolume.config import loading, schema
from localvolume.config.foreign import localpath, lvmd, openebs
from localvolume.config.loading import Source
from localvolume.config.pools import Flavor
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.classes.parameters import read_class
from localvolume.dynamic.model import Wish
from localvolume.flexvolume.plan import provision as flexvolume
from localvolume.kube.objects import Meta, StorageClass
from localvolume.static.metrics import StaticMetrics

REPOSITORY = Path(__file__).parents[2]


def test_the_pages_are_current() -> None:
    command = [sys.executable, "-m", "docsite", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_page_that_is_not_current_is_named(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, docsite.__main__ as m; m.DIRECTORY = pathlib.Path(sys.argv.pop(1));"
        "sys.exit(m.main())"
    )
    (tmp_path / "marks.md").write_text("# Old\n")
    command = [sys.executable, "-c", program, str(tmp_path), "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "marks.md" in done.stderr
    assert (tmp_path / "marks.md").read_text() == "# Old\n"


# --- the configuration


@pytest.mark.parametrize("name", [key.name for key in schema.describe()])
def test_the_example_of_a_key_is_valid(name: str) -> None:
    sources = [Source(key, key, text) for key, text in examples.configmap(name).items()]
    loading.build(sources, [], host_checks=False, has_image=True)


def test_no_example_is_of_a_key_that_there_is_not() -> None:
    assert examples.EXAMPLES.keys() == {key.name for key in schema.describe()}


def test_a_key_without_an_example_is_named() -> None:
    with pytest.raises(Missing, match=r"pools\.<pool>\.new"):
        examples.example("pools.<pool>.new")


LVMD_CLASS = {"name": "ssd", "volume-group": "data"}


def _lvmd(*, top: str = "", of_class: str = "") -> None:
    entry = {**LVMD_CLASS, **(yaml.safe_load(of_class) or {})}
    if "thin-pool" in entry:
        entry["type"] = "thin"
    if entry.get("type") == "thin":
        entry.setdefault("thin-pool", {"name": "pool0"})
    content = {"device-classes": [entry], **(yaml.safe_load(top) or {})}
    lvmd.read("lvmd.yaml", yaml.safe_dump(content))


@pytest.mark.parametrize("text", replaced.LVMD.values())
def test_the_examples_of_lvmd_are_valid(text: str) -> None:
    _lvmd(top=text)


@pytest.mark.parametrize("text", replaced.DEVICE_CLASS.values())
def test_the_examples_of_device_classes_are_valid(text: str) -> None:
    _lvmd(of_class=text)


@pytest.mark.parametrize("text", replaced.THIN_POOL.values())
def test_the_examples_of_thin_pools_are_valid(text: str) -> None:
    _lvmd(of_class=yaml.safe_dump({"thin-pool": {"name": "pool0", **yaml.safe_load(text)}}))


@pytest.mark.parametrize("text", replaced.OPTION_CLASS.values())
def test_the_examples_of_option_classes_are_valid(text: str) -> None:
    entry = {"name": "near", **yaml.safe_load(text)}
    _lvmd(top=yaml.safe_dump({"lvcreate-option-classes": [entry]}))


@pytest.mark.parametrize("name", replaced.LOCAL_PATH)
def test_the_examples_of_local_path_are_valid(name: str) -> None:
    around = {"nodePathMap": [{"node": "worker-1", "paths": ["/data"]}]}
    around |= json.loads(f"{{{replaced.LOCAL_PATH[name][2]}}}")
    localpath.read([Source("config.json", "config.json", json.dumps(around))], "worker-1")


@pytest.mark.parametrize("name", replaced.OPENEBS)
def test_the_examples_of_openebs_are_valid(name: str) -> None:
    found = openebs.read_class({openebs.CONFIG_ANNOTATION: f"[{replaced.OPENEBS[name][2]}]"})
    assert isinstance(found, openebs.HostpathClass), found


# --- the parameters of StorageClasses

DYNAMIC: list[tuple[Flavor, str, str]] = [
    (flavor, name, one.example)
    for flavor, described in parameters.PARAMETERS.items()
    for name, one in described.items()
]


@pytest.mark.parametrize(("flavor", "name", "value"), DYNAMIC)
def test_the_example_of_a_parameter_is_valid(flavor: Flavor, name: str, value: str) -> None:
    storage_class = StorageClass(
        metadata=Meta(name="local"), provisioner=CSI_DRIVER, parameters={name: value}
    )
    found = read_class(storage_class, flavor=flavor, openebs_base_path="/var/openebs/local")
    assert isinstance(found, Wish), found


@pytest.mark.parametrize("name", parameters.FLEXVOLUME)
def test_the_example_of_a_parameter_of_flexvolume_is_valid(name: str) -> None:
    given = {"fsType": "xfs", name: parameters.FLEXVOLUME[name].example}
    found = flexvolume.read_class(StorageClass(metadata=Meta(name="flex"), parameters=given))
    assert isinstance(found, flexvolume.Wish), found


def test_the_defaults_of_parameters_are_the_codes() -> None:
    native, plain = parameters.PARAMETERS["native"], Wish()
    said = {name: native[name].default.strip("`") for name in ("mode", "uid", "gid")}
    assert said == {"mode": plain.mode, "uid": plain.uid, "gid": plain.gid}
    assert native["nodeAffinityKey"].default.strip("`") in plain.affinity_keys


# --- what is gathered from the code


def test_a_table_of_metrics_that_is_not_shown_is_named() -> None:
    shown = dict(metrics.TABLES)
    del shown[StaticMetrics]
    with pytest.raises(Missing, match=r"not there: StaticMetrics$"):
        metrics.render(shown)


def test_a_table_that_extends_another_is_found() -> None:
    module = """
class First(process.metrics.Metrics): ...
class Second(First, ABC): ...
class Third(Second): ...
class Other(Measures): ...
"""
    assert metrics.declaring([ast.parse(module)]) == {"First", "Second", "Third"}


@pytest.mark.parametrize(
    ("module", "makes"),
    [
        ("from prometheus_client import Gauge\nGauge('name', 'text')", True),
        ("from prometheus_client import Counter as C\ndef f(): return C('name', 'text')", True),
        ("from prometheus_client import Gauge\nheld: dict[Gauge, int] = {}", False),
        ("from collections import Counter\nCounter('abc')", False),
    ],
)
def test_a_metric_without_a_table_is_found(module: str, makes: bool) -> None:
    assert metrics.makes(ast.parse(module)) is makes


def test_an_event_that_is_not_explained_is_named() -> None:
    explained = dict(events.EVENTS)
    del explained["VolumeVanished"]
    with pytest.raises(Missing, match="VolumeVanished"):
        events.render(explained)


def test_reasons_of_one_word_are_found_as_well() -> None:
    assert {"Provisioning", "Resizing", "VolumeCleaned", "PoolWarning"} <= reasons.found()


def test_reasons_that_are_put_together_are_found_by_their_pattern() -> None:
    call = 'say("Warning", f"Disk{verb}Failed", text)'
    assert list(reasons._of(ast.parse(call))) == ["Disk*Failed"]


def test_a_mark_that_is_not_explained_is_named() -> None:
    explained = dict(marks.OWN)
    del explained["FINALIZER"]
    with pytest.raises(Missing, match="FINALIZER"):
        marks.render(explained)


def test_the_metrics_page_has_every_name() -> None:
    page = (DIRECTORY / "metrics.md").read_text()
    assert not {name for name in metrics.names() if f"`{name}`" not in page}
