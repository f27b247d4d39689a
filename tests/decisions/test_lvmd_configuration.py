"""TopoLVM's lvmd.yaml: what becomes of its device classes, and what in it is wrong."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.cli import check_config
from localvolume.config.flags.agent import POOL_FLAGS
from localvolume.config.flags.table import add_flags
from localvolume.config.foreign import lvmd
from localvolume.config.model import ConfigurationInvalid
from localvolume.config.pools import DYNAMIC_PROVISIONER, LvmConfig, PoolConfig
from localvolume.config.sources import Others, loader
from tests.suite.units import GIB

# The example of TopoLVM's documentation, with what is refused of it left out.
EXAMPLE = """
socket-name: /run/topolvm/lvmd.sock
lvm-command-prefix: ["/usr/bin/nsenter", "-m", "-u", "-i", "-n", "-p", "-t", "1"]
device-classes:
  - name: ssd
    volume-group: ssd-vg
    default: true
    spare-gb: 5
    stripe: 2
    stripe-size: "64"
    lvcreate-options: ["--alloc=cling"]
  - name: hdd
    volume-group: hdd-vg
  - name: Thin_1.x
    volume-group: ssd-vg
    type: thin
    thin-pool:
      name: pool0
      overprovision-ratio: 5.0
lvcreate-option-classes:
  - name: near
    options: ["--contiguous", "y"]
"""
PREFIX = ("/usr/bin/nsenter", "-m", "-u", "-i", "-n", "-p", "-t", "1")


def classes(*given: dict[str, Any], **keys: Any) -> tuple[PoolConfig, ...]:
    return lvmd.read("f", yaml.safe_dump({"device-classes": list(given), **keys})).pools


def refused(text: str) -> dict[str, str]:
    with pytest.raises(ConfigurationInvalid) as caught:
        lvmd.read("f", text)
    return {problem.key: problem.reason for problem in caught.value.problems}


def refused_class(*others: dict[str, Any], **keys: Any) -> dict[str, str]:
    one = {"name": "ssd", "volume-group": "vg", **keys}
    found = refused(yaml.safe_dump({"device-classes": [*others, one]}))
    return {key.removeprefix(f"device-classes[{len(others)}]."): why for key, why in found.items()}


def test_device_classes_become_pools_of_their_names() -> None:
    read = lvmd.read("f", EXAMPLE)
    common: dict[str, Any] = {
        "host_dir": "",
        "mount_dir": "",
        "provisioner": DYNAMIC_PROVISIONER,
        "backend": "lvm",
    }
    everywhere: dict[str, Any] = {
        "command_prefix": PREFIX,
        "option_classes": (("near", ("--contiguous", "y")),),
    }
    ssd = LvmConfig(
        group="ssd-vg", stripes=2, stripe_bytes=65536, options=("--alloc=cling",), **everywhere
    )
    hdd = LvmConfig(group="hdd-vg", by_name_only=True, **everywhere)
    thin = LvmConfig(group="ssd-vg", thin_pool="pool0", by_name_only=True, **everywhere)
    assert read.pools == (
        PoolConfig(name="ssd", lvm=ssd, reserve_bytes=5 * GIB, **common),
        PoolConfig(name="hdd", lvm=hdd, reserve_bytes=10 * GIB, **common),
        PoolConfig(name="Thin_1.x", lvm=thin, overbook=5.0, **common),
    )
    assert [warning.key for warning in read.warnings] == ["socket-name"]
    assert ssd.layout() == (2, 65536, ("--alloc=cling",))
    assert ssd.layout("near") == (0, 0, ("--contiguous", "y"))
    with pytest.raises(KeyError):
        ssd.layout("far")


def test_without_a_default_every_class_may_be_meant() -> None:
    one, two = classes({"name": "a", "volume-group": "a"}, {"name": "b", "volume-group": "b"})
    assert one.lvm
    assert two.lvm
    assert (one.lvm.by_name_only, two.lvm.by_name_only) == (False, False)


@pytest.mark.parametrize(
    ("given", "size"),
    [("64", 65536), ("4k", 4096), ("8192b", 8192), ("16s", 8192), ("1M", 1 << 20)],
)
def test_stripe_sizes_are_as_lvcreate_reads_them(given: str, size: int) -> None:
    (pool,) = classes({"name": "a", "volume-group": "a", "stripe-size": given})
    assert pool.lvm
    assert pool.lvm.stripe_bytes == size


def test_what_is_spared_of_a_thin_pool() -> None:
    thin = {"type": "thin", "thin-pool": {"name": "t"}}
    (usual,) = classes({"name": "a", "volume-group": "a", **thin})
    (said,) = classes({"name": "a", "volume-group": "a", "spare-gb": 1, **thin})
    assert (usual.reserve_bytes, usual.overbook, said.reserve_bytes) == (0, 1.0, GIB)


def test_stripes_of_a_thin_class_are_warned_of() -> None:
    thin = {"type": "thin", "thin-pool": {"name": "t"}, "stripe": 2, "stripe-size": "64"}
    one = {"name": "a", "volume-group": "a", **thin}
    read = lvmd.read("f", yaml.safe_dump({"device-classes": [one]}))
    assert [warning.key for warning in read.warnings] == [
        "device-classes[0].stripe", "device-classes[0].stripe-size",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "where", "reason"),
    [
        ({"name": ""}, "name", "'' must be at most 63 letters"),
        ({"name": "x" * 64}, "name", f"'{'x' * 64}' must be at most 63 letters"),
        ({"name": "-x"}, "name", "'-x' must be at most 63 letters"),
        ({"volume-group": "a/b"}, "volume-group", "'a/b' is no name that LVM takes"),
        ({"spare-gb": -1}, "spare-gb", "must be a whole number"),
        ({"spare-gb": "10"}, "spare-gb", "must be a whole number"),
        ({"stripe-size": "12x"}, "stripe-size", "must be a size like 64"),
        ({"stripe-size": "96"}, "stripe-size", "stripes must have 4Ki to 1Gi"),
        ({"type": "thinn"}, "type", "must be thick or thin, not 'thinn'; did you mean thin?"),
        ({"type": "thin"}, "thin-pool", "is missing: type thin needs it"),
        ({"thin-pool": {"name": "t"}}, "thin-pool", "is for thin volumes: it needs type: thin"),
        ({"type": "thin", "thin-pool": {}}, "thin-pool.name", "is missing"),
        (
            {"type": "thin", "thin-pool": {"name": "t", "overprovision-ratio": 0.5}},
            "thin-pool.overprovision-ratio",
            "must be a number from 1 to 1000",
        ),
        (
            {"type": "thin", "thin-pool": {"name": "t", "overprovison-ratio": 2}},
            "thin-pool.overprovison-ratio",
            "unknown key; did you mean overprovision-ratio?",
        ),
        ({"lvcreate-options": ["--type=raid1"]}, "lvcreate-options", "'--type=raid1' would decide"),
        ({"volume_group": "x"}, "volume_group", "unknown key; did you mean volume-group?"),
        ({"default": "yes please"}, "default", "must be true or false"),
    ],
)
def test_what_is_wrong_is_named_at_its_key(keys: dict[str, Any], where: str, reason: str) -> None:
    assert refused_class(**keys)[where].startswith(reason)


def test_names_places_and_the_default_are_one_classs() -> None:
    other = {"name": "hdd", "volume-group": "vg"}
    assert refused_class(other) == {"volume-group": "vg is device class hdd's"}
    assert refused_class({"name": "ssd", "volume-group": "x"}) == {
        "name": "there are two device classes ssd"
    }
    two = {"name": "hdd", "volume-group": "x", "default": True}
    assert refused_class(two, default=True) == {
        "default": "device class hdd is the default already"
    }
    thin = {"type": "thin", "thin-pool": {"name": "t"}}
    assert refused_class({**other, **thin}, **thin) == {
        "volume-group": "vg/t is device class hdd's"
    }
    assert len(classes(other, {"name": "ssd", "volume-group": "vg", **thin})) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ("device-classes", "names no device class: there is to be one at least")),
        ("device-classes: []", ("device-classes", "names no device class")),
        ("device-clases: []", ("device-clases", "unknown key; did you mean device-classes?")),
        ("device-classes: [{}]", ("device-classes[0].name", "is missing")),
        ("a: [", ("", "is not valid YAML")),
        ("- a", ("", "must be a mapping, not a list")),
    ],
)
def test_what_is_wrong_in_the_whole(text: str, problem: tuple[str, str]) -> None:
    assert refused(text)[problem[0]].startswith(problem[1])


def test_option_classes_are_read_strictly() -> None:
    found = refused(
        yaml.safe_dump(
            {
                "device-classes": [{"name": "a", "volume-group": "a"}],
                "lvcreate-option-classes": [
                    {"name": "x", "options": ["--type=raid1"]},
                    {"options": []},
                    {"name": "x"},
                ],
            }
        )
    )
    at = "lvcreate-option-classes"
    assert found.keys() == {f"{at}[0].options", f"{at}[1].name", f"{at}[2].name"}


# --- among all sources -------------------------------------------------------------------------


def load(tmp_path: Path, text: str, **keys: str) -> Any:
    path = tmp_path / "lvmd"
    path.mkdir(exist_ok=True)
    (path / "lvmd.yaml").write_text(text)
    own = tmp_path / "config"
    for name, value in keys.items():
        own.mkdir(exist_ok=True)
        (own / name).write_text(value)
    others = Others.read({}, lvmd_config=str(path))
    assert others.any
    assert others.directories == (str(path),)
    return loader(others, "node-1")(str(own))


def test_it_is_read_beside_our_configmap_and_without_one(tmp_path: Path) -> None:
    alone = load(tmp_path, EXAMPLE)
    assert [pool.name for pool in alone.pools] == ["ssd", "hdd", "Thin_1.x"]
    assert [warning.key for warning in alone.warnings] == ["socket-name"]
    both = load(tmp_path, EXAMPLE, pools="dirs: {hostDir: /mnt/dirs}")
    assert [pool.name for pool in both.pools] == ["dirs", "ssd", "hdd", "Thin_1.x"]


def test_what_is_wrong_with_it_makes_the_whole_invalid(tmp_path: Path) -> None:
    for text, keys, reason in (
        ("device-classes: 1", {}, "must be a list"),
        (
            EXAMPLE,
            {"pools": "x: {backend: lvm, volumeGroup: hdd-vg}"},
            "hdd-vg of pool hdd is that",
        ),
        (EXAMPLE, {"pools": "ssd: {backend: lvm, volumeGroup: z}"}, "has the name of one at z"),
    ):
        with pytest.raises(ConfigurationInvalid) as caught:
            load(tmp_path, text, **keys)
        assert reason in str(caught.value)


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match="cannot be read"):
        lvmd.load(str(tmp_path / "x.yaml"))
    with pytest.raises(ConfigurationInvalid, match="cannot be read"):
        lvmd.load(str(tmp_path))


def test_the_flag() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, *POOL_FLAGS)
    assert parser.parse_args([]).lvmd_config is None
    assert parser.parse_args(["--lvmd-config", "/etc/lvmd.yaml"]).lvmd_config == "/etc/lvmd.yaml"


def test_check_config_knows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    check_config.add_arguments(parser)
    path = tmp_path / "lvmd.yaml"
    path.write_text(EXAMPLE)
    assert check_config.run(parser.parse_args([str(path)])) == 0
    said = capsys.readouterr().out
    assert "good: 3 pools" in said
    assert "socket-name: is not used" in said
    path.write_text(EXAMPLE.replace("spare-gb", "spare-gib"))
    assert check_config.run(parser.parse_args([str(path)])) == 1
    assert "did you mean spare-gb?" in capsys.readouterr().out
