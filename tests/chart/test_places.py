"""What the chart configures lies where its agent has it mounted: nothing of it is misplaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from localvolume.config.model import ClassConfig, Configuration
from localvolume.config.pools import PoolConfig
from localvolume.config.sources import Others, loader
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes.hostdirs import misplaced
from tests.chart.support_helm import agent_of, pod_of, render, understood
from tests.chart.support_manifests import INSTALL, installed
from tests.chart.support_sets import FULL, PLAIN, REPLACED

pytestmark = pytest.mark.needs("go")

Object = dict[str, Any]

EXAMPLES: Final = Path(__file__).parent / "examples"
NODE: Final = "worker-1"
GIVEN: Final = {
    "plain": PLAIN,
    "full": FULL,
    "below one mount": {
        "classes": [{"name": "a", "hostDir": "/srv/a/", "mountDir": "//seen/a"}],
        "pools": {"b": {"hostDir": "/srv/b", "mountDir": "/seen/b/c"}},
    },
    **{path.stem: yaml.safe_load(path.read_text("utf-8")) for path in EXAMPLES.iterdir()},
}


def configuration_of(objects: list[Object], directory: Path) -> Configuration:
    """What the rendered agent is told, as it reads it itself."""
    mounted = {
        mount["name"]: mount["mountPath"]
        for mount in agent_of(objects)["volumeMounts"]
        if mount.get("readOnly")
    }
    data = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    for volume in pod_of(objects, "DaemonSet")["volumes"]:
        if "configMap" in volume and volume["name"] in mounted:
            place = directory / mounted[volume["name"]].lstrip("/")
            place.mkdir(parents=True)
            for key, text in data[volume["configMap"]["name"]].items():
                (place / key).write_text(text)
    args = understood(agent_of(objects)["args"])

    def here(path: str | None) -> str | None:
        return f"{directory}{path}" if path else None

    others = Others.read(
        {one["name"]: one.get("value", NODE) for one in agent_of(objects)["env"]},
        local_path_config=here(args.local_path_config),
        local_path_provisioner_name=args.local_path_provisioner_name,
        openebs_base_path=args.openebs_base_path,
        lvmd_config=here(args.lvmd_config),
    )
    return loader(others, NODE)(f"{directory}{args.config}")


def judged(objects: list[Object], directory: Path) -> dict[str, str | None]:
    """What there is to say of each class and pool with a directory."""
    configuration = configuration_of(objects, directory)
    pod = msgspec.convert({"spec": pod_of(objects, "DaemonSet")}, PodMounts)
    places: list[ClassConfig | PoolConfig] = [*configuration.storage_classes.values()]
    places += configuration.pools
    return {one.name: misplaced(pod, one.host_dir, one.mount_dir) for one in places if one.host_dir}


@pytest.mark.parametrize("name", GIVEN)
def test_nothing_that_the_chart_renders_is_misplaced(name: str, tmp_path: Path) -> None:
    found = judged(render(GIVEN[name]), tmp_path)
    assert found
    assert {name: why for name, why in found.items() if why} == {}


def test_nothing_that_is_replaced_is_misplaced(tmp_path: Path) -> None:
    """kutti, whose directory must be there, two paths of local-path, OpenEBS."""
    replaces = {**REPLACED["replaces"], "kutti": {"rootPath": str(tmp_path)}}
    found = judged(render({**REPLACED, "replaces": replaces}), tmp_path)
    assert list(found.values()) == [None] * 4


def test_the_plain_manifests(tmp_path: Path) -> None:
    """And a pool below the directory that they mount for pools, where the ConfigMap alone is
    edited."""
    objects = [one for one in yaml.safe_load_all(INSTALL.read_text()) if one]
    assert judged(objects, tmp_path / "plain") == {"fast-disks": None}
    config = next(one for one in installed() if one["kind"] == "ConfigMap")["metadata"]["name"]
    for one in objects:
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == config:
            one["data"]["pools"] = "{fast: {hostDir: /mnt/pools/fast}, other: {hostDir: /srv/a}}"
    found = judged(objects, tmp_path / "pools")
    assert found["fast"] is None
    assert "is not of the host" in (found["other"] or "")


def test_a_manifest_of_which_one_half_is_edited_is_told_of(tmp_path: Path) -> None:
    objects = render()
    for volume in pod_of(objects, "DaemonSet")["volumes"]:
        if volume["name"] == "fast-disks":
            volume["hostPath"]["path"] = "/mnt/slow-disks"
    assert "is /mnt/slow-disks of the host" in (judged(objects, tmp_path)["fast-disks"] or "")
