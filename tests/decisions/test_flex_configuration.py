"""The key `flexvolume` of our ConfigMap, and elastic's environment in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localvolume.config import loading
from localvolume.config.environment import AgentEnvironment, EnvironmentInvalid
from localvolume.config.flexvolume import (
    BIND_ROOT,
    NAMES,
    PLUGIN_DIRECTORY,
    SOCKET,
    FlexVolumeConfig,
)
from localvolume.config.foreign import elastic
from localvolume.config.live import LiveConfiguration
from localvolume.config.model import ConfigurationInvalid
from localvolume.config.pools import LvmConfig
from localvolume.config.sources import Others, loader
from localvolume.volumes import marks


def load(section: Any, **others: Any) -> FlexVolumeConfig | None:
    sources = [
        loading.Source(key, key, json.dumps(value))
        for key, value in {"flexvolume": section, **others}.items()
    ]
    return loading.build(sources, host_checks=False).flexvolume


def faults(section: Any, **others: Any) -> dict[str, str]:
    with pytest.raises(ConfigurationInvalid) as invalid:
        load(section, **others)
    return {problem.key: problem.reason for problem in invalid.value.problems}


def test_the_shortest_one_has_defaults_for_all_the_rest() -> None:
    config = load({"volumeGroup": "disks"})
    assert config == FlexVolumeConfig(driver="lvm", lvm=LvmConfig(group="disks"))
    assert config is not None
    assert (config.socket, config.socket_on_host) == (SOCKET, SOCKET)
    assert (config.plugin_directory, config.client) == (PLUGIN_DIRECTORY, "")
    assert (config.fs_type, config.default_bytes, config.grace_seconds) == ("ext4", 10**9, 600.0)
    assert set(config.names) == marks.FLEX_DRIVERS == set(NAMES)


def test_every_key_is_heeded() -> None:
    """W-22: TopoLVM: options are read and have no effect."""
    config = load(
        {
            "driver": "lvm",
            "volumeGroup": "disks",
            "stripes": 2,
            "stripeSize": "64Ki",
            "lvcreateOptions": ["--alloc", "cling"],
            "lvmCommandPrefix": ["nsenter", "-m", "-t", "1"],
            "socket": "/run/other/flex.sock",
            "socketOnHost": "/var/run/flex.sock",
            "pluginDirectory": "/home/kubernetes/flexvolume/",
            "client": "/usr/bin/localvolume-flexvolume",
            "names": ["example.com/disk"],
            "fsType": "xfs",
            "defaultSize": "10Gi",
            "gracePeriod": "1h",
        }
    )
    assert config == FlexVolumeConfig(
        driver="lvm",
        lvm=LvmConfig(
            group="disks",
            stripes=2,
            stripe_bytes=64 << 10,
            options=("--alloc", "cling"),
            command_prefix=("nsenter", "-m", "-t", "1"),
        ),
        socket="/run/other/flex.sock",
        socket_on_host="/var/run/flex.sock",
        plugin_directory="/home/kubernetes/flexvolume",
        client="/usr/bin/localvolume-flexvolume",
        names=("example.com/disk",),
        fs_type="xfs",
        default_bytes=10 << 30,
        grace_seconds=3600.0,
    )


def test_the_socket_on_the_host_is_the_socket_unless_said_otherwise() -> None:
    config = load({"volumeGroup": "disks", "socket": "/run/a.sock"})
    assert config is not None
    assert config.socket_on_host == "/run/a.sock"


def test_directories_need_no_group() -> None:
    assert load({"driver": "bindmount"}) == FlexVolumeConfig(driver="bindmount")
    config = load({"driver": "bindmount", "bindRoot": "/mnt/volumes"})
    assert config is not None
    assert (config.bind_root, config.lvm) == ("/mnt/volumes", None)


def test_without_the_key_nothing_is_served() -> None:
    assert loading.build([]).flexvolume is None
    assert loading.build([loading.Source("flexvolume", "flexvolume", "")]).flexvolume is None


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({}, "volumeGroup"),
        ({"driver": "lvm"}, "volumeGroup"),
        ({"volumeGroup": "-x"}, "volumeGroup"),
        ({"volumeGroup": ".."}, "volumeGroup"),
        ({"volumeGroup": "a", "thinPool": "a b"}, "thinPool"),
        ({"volumeGroup": "a", "driver": "EMPTY"}, "driver"),
        ({"volumeGroup": "a", "driver": "empty"}, "driver"),
        ({"volumeGroup": "a", "thinPool": "t", "stripes": 2}, "stripes"),
        ({"volumeGroup": "a", "thinPool": "t", "stripeSize": "64Ki"}, "stripeSize"),
        ({"volumeGroup": "a", "stripes": 0}, "stripes"),
        ({"volumeGroup": "a", "stripeSize": "0"}, "stripeSize"),
        ({"volumeGroup": "a", "lvcreateOptions": [""]}, "lvcreateOptions"),
        ({"volumeGroup": "a", "lvcreateOptions": ["--addtag", "x"]}, "lvcreateOptions"),
        ({"volumeGroup": "a", "volumeGroupPattern": "a.*"}, "volumeGroupPattern"),
        ({"volumeGroup": "a", "volumeGroupTag": "a"}, "volumeGroupTag"),
        ({"volumeGroup": "a", "bindRoot": "/mnt"}, "bindRoot"),
        ({"driver": "bindmount", "volumeGroup": "a"}, "volumeGroup"),
        ({"driver": "bindmount", "lvmCommandPrefix": ["x"]}, "lvmCommandPrefix"),
        ({"driver": "bindmount", "bindRoot": "relative"}, "bindRoot"),
        ({"driver": "bindmount", "bindRoot": "/"}, "bindRoot"),
        ({"volumeGroup": "a", "socket": "/run/" + "x" * 103}, "socket"),
        ({"volumeGroup": "a", "socketOnHost": "x"}, "socketOnHost"),
        ({"volumeGroup": "a", "names": []}, "names"),
        ({"volumeGroup": "a", "names": ["driver"]}, "names[0]"),
        ({"volumeGroup": "a", "names": ["a/b/c"]}, "names[0]"),
        ({"volumeGroup": "a", "names": ["a~b/c"]}, "names[0]"),
        ({"volumeGroup": "a", "names": ["a/b", "a/b"]}, "names"),
        ({"volumeGroup": "a", "names": ["a/.."]}, "names[0]"),
        ({"volumeGroup": "a", "fsType": "btrfs"}, "fsType"),
        ({"volumeGroup": "a", "defaultSize": "0"}, "defaultSize"),
        ({"volumeGroup": "a", "gracePeriod": 5}, "gracePeriod"),
        ({"volumeGroup": "a", "gracePeriod": "-1s"}, "gracePeriod"),
        ({"volumeGroup": "a", "volumegroups": "x"}, "volumegroups"),
    ],
)
def test_what_is_wrong_is_named_at_its_key(section: dict[str, Any], key: str) -> None:
    found = faults(section)
    assert f"flexvolume.{key}" in found, found
    assert all(found.values())


def test_directories_must_not_be_those_of_classes_and_pools() -> None:
    pool = {"fast": {"hostDir": "/mnt/disk"}}
    section = {"driver": "bindmount", "bindRoot": "/mnt/disk/volumes"}
    assert "pool fast" in faults(section, pools=pool)["flexvolume"]
    classes = {"slow": {"hostDir": "/mnt/slow", "mountDir": "/mnt/slow"}}
    section = {"driver": "bindmount", "bindRoot": "/mnt"}
    assert "class slow" in faults(section, storageClassMap=classes)["flexvolume"]


# --- elastic's environment -----------------------------------------------------------------------


def test_elastics_defaults() -> None:
    assert elastic.flexvolume({}) is None
    assert elastic.flexvolume({"DRIVER_KIND": ""}) is None
    config = elastic.flexvolume({"DRIVER_KIND": "LVM"})
    assert config is not None
    assert config.lvm == LvmConfig(group="elastic-local-vg")
    assert (config.driver, config.fs_type, config.default_bytes) == ("lvm", "ext4", 10**9)
    assert config.socket == config.socket_on_host == "/var/run/elastic-local/socket"


def test_elastics_variables() -> None:
    environ = {
        "DRIVER_KIND": "LVM",
        "LVM_VOLUME_GROUP": "disks",
        "LVM_USE_THIN_VOLUMES": "true",
        "LVM_THIN_POOL": "thin",
    }
    config = elastic.flexvolume(environ)
    assert config is not None
    assert config.lvm == LvmConfig(group="disks", thin_pool="thin")
    del environ["LVM_THIN_POOL"]
    config = elastic.flexvolume(environ)
    assert config is not None
    assert config.lvm is not None
    assert config.lvm.thin_pool == "elastic-local-thinpool"
    directories = elastic.flexvolume({"DRIVER_KIND": "BINDMOUNT"})
    assert directories is not None
    assert (directories.driver, directories.bind_root) == ("bindmount", BIND_ROOT)


def test_the_flag_counts_before_the_variable() -> None:
    config = elastic.flexvolume({"DRIVER_KIND": "LVM"}, "bindmount")
    assert config is not None
    assert config.driver == "bindmount"


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"DRIVER_KIND": "EMPTY"}, "DRIVER_KIND"),
        ({"DRIVER_KIND": "lvm"}, "DRIVER_KIND"),
        ({"DRIVER_KIND": "LVM", "LVM_VOLUME_GROUP": "-x"}, "LVM_VOLUME_GROUP"),
        ({"DRIVER_KIND": "LVM", "LVM_USE_THIN_VOLUMES": "yes"}, "LVM_USE_THIN_VOLUMES"),
        ({"DRIVER_KIND": "LVM", "LVM_THIN_POOL": "a/b"}, "LVM_THIN_POOL"),
    ],
)
def test_a_wrong_variable_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(EnvironmentInvalid, match=named):
        elastic.flexvolume(environ)


def test_the_nodes_name_as_elastic_has_it() -> None:
    environ = {"NODE_NAME": "n1", "DRIVER_KIND": "LVM"}
    assert AgentEnvironment.read(environ).node_name == "n1"
    with pytest.raises(EnvironmentInvalid, match="MY_NODE_NAME"):
        AgentEnvironment.read({"NODE_NAME": "n1"})
    with pytest.raises(EnvironmentInvalid, match="NODE_NAME"):
        AgentEnvironment.read({**environ, "MY_NODE_NAME": "n2"})
    with pytest.raises(EnvironmentInvalid, match="no name of a node"):
        AgentEnvironment.read({**environ, "NODE_NAME": "N 1"})


def read_others(environ: dict[str, str], driver: str | None = None) -> Others:
    return Others.read(environ, flexvolume_driver=driver)


def test_in_elastics_place_an_agent_needs_no_configmap(tmp_path: Path) -> None:
    load_all = loader(read_others({"DRIVER_KIND": "BINDMOUNT"}), "n1")
    config = load_all(str(tmp_path / "nothing")).flexvolume
    assert config is not None
    assert config.driver == "bindmount"
    assert loader(read_others({}, "lvm"), "n1")(str(tmp_path / "nothing")).flexvolume is not None


def test_a_configmap_that_was_there_is_missed(tmp_path: Path) -> None:
    """The last valid configuration stays in force: no directory is not one without classes."""
    directory = tmp_path / "config"
    load_all = loader(read_others({"DRIVER_KIND": "BINDMOUNT"}), "n1")
    assert not load_all(str(directory)).pools
    directory.mkdir()
    (directory / "pools").write_text(json.dumps({"fast": {"hostDir": "/mnt/fast"}}))
    live = LiveConfiguration(str(directory), load_all)
    assert [pool.name for pool in live.current.pools] == ["fast"]
    directory.rename(tmp_path / "gone")
    for _ in range(2):
        outcome = live.reread()
        assert outcome.result == "invalid"
        assert "cannot be read" in str(outcome.problems[0])
        assert [pool.name for pool in live.current.pools] == ["fast"]
    (tmp_path / "gone").rename(directory)
    assert live.reread().result == "unchanged"
    # Who begins without it needs none, however often it is looked for.
    without = LiveConfiguration(str(tmp_path / "nothing"), loader(read_others({}, "lvm"), "n1"))
    assert without.reread().result == "unchanged"


def test_both_at_once_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "flexvolume").write_text(json.dumps({"volumeGroup": "disks"}))
    with pytest.raises(ConfigurationInvalid, match="DRIVER_KIND"):
        loader(read_others({"DRIVER_KIND": "LVM"}), "n1")(str(tmp_path))
    assert loader(read_others({}), "n1")(str(tmp_path)).flexvolume is not None


def test_elastics_directory_must_not_be_that_of_a_pool(tmp_path: Path) -> None:
    (tmp_path / "pools").write_text(json.dumps({"fast": {"hostDir": BIND_ROOT}}))
    with pytest.raises(ConfigurationInvalid, match="pool fast"):
        loader(read_others({"DRIVER_KIND": "BINDMOUNT"}), "n1")(str(tmp_path))
