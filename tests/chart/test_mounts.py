"""Which directories of the host the agent gets, and how mounts in them are shared."""

import json
import re
from typing import Any

import pytest
import yaml

from tests.chart.support_helm import NAME, agent_of, one, pod_of, render, understood
from tests.chart.support_sets import FULL, REPLACED

pytestmark = pytest.mark.needs("go")

Object = dict[str, Any]


@pytest.fixture(scope="module")
def full() -> list[Object]:
    return render(FULL)


@pytest.fixture(scope="module")
def plain() -> list[Object]:
    return render()


def host_mounts(objects: list[Object]) -> dict[str, tuple[str, str, str]]:
    """What is of the host, by where the agent sees it: the host's path, its type, propagation."""
    volumes = {each["name"]: each for each in pod_of(objects, "DaemonSet")["volumes"]}
    found = {}
    for mount in agent_of(objects)["volumeMounts"]:
        if source := volumes[mount["name"]].get("hostPath"):
            propagation = mount.get("mountPropagation", "")
            found[mount["mountPath"]] = (source["path"], source.get("type", ""), propagation)
    return found


def test_mounts_of_the_plain_chart(plain: list[Object]) -> None:
    assert host_mounts(plain) == {
        "/dev": ("/dev", "", ""),
        "/mnt/fast-disks": ("/mnt/fast-disks", "", "HostToContainer"),
        "/run/localvolume": ("/run/localvolume", "DirectoryOrCreate", ""),
        "/run/udev": ("/run/udev", "", ""),
        "/var/lib/localvolume/records": ("/var/lib/localvolume/records", "DirectoryOrCreate", ""),
        "/var/lib/kubelet": ("/var/lib/kubelet", "", "HostToContainer"),
    }
    assert agent_of(plain)["securityContext"] == {
        "privileged": True, "readOnlyRootFilesystem": True
    }  # fmt: skip


def test_mounts_of_everything(full: list[Object]) -> None:
    """Directories that two classes share are there once; disks are mounted for the host to see."""
    kubelet = "/var/lib/kubelet"
    plugins = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
    made = "DirectoryOrCreate"
    assert host_mounts(full) == {
        "/dev": ("/dev", "", ""),
        "/discovery/fast": ("/mnt/fast/", made, "Bidirectional"),
        "/mnt/pool": ("/mnt/pool", "", "HostToContainer"),
        "/images": ("/mnt/images", "", "HostToContainer"),
        "/run/localvolume": ("/run/localvolume", made, ""),
        "/run/udev": ("/run/udev", "", ""),
        "/var/lib/localvolume/records": ("/var/lib/localvolume/records", made, ""),
        "/run/lvm": ("/run/lvm", made, ""),
        "/run/lock/lvm": ("/run/lock/lvm", made, ""),
        "/etc/lvm/devices": ("/etc/lvm/devices", made, ""),
        plugins: (plugins, made, ""),
        kubelet: (kubelet, "", "Bidirectional"),
        "/mnt/elastic-local-volumes": ("/mnt/elastic-local-volumes", "", "HostToContainer"),
    }


def test_names_of_volumes_are_labels(full: list[Object]) -> None:
    """StorageClasses may have names with dots, volumes of a pod may not."""
    names = [volume["name"] for volume in pod_of(full, "DaemonSet")["volumes"]]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names)
    long = "a" * 70 + ".b"
    values = {"classes": [{"name": long, "hostDir": "/a"}, {"name": long + "c", "hostDir": "/b"}]}
    volumes = pod_of(render(values), "DaemonSet")["volumes"]
    assert all(len(volume["name"]) < 64 for volume in volumes)


def test_what_is_only_read(full: list[Object], plain: list[Object]) -> None:
    def only_read(objects: list[Object]) -> set[str]:
        mounts = agent_of(objects)["volumeMounts"]
        return {mount["mountPath"] for mount in mounts if mount.get("readOnly")}

    ours = {"/etc/provisioner/config", "/run/udev"}
    assert only_read(plain) == {*ours, "/var/lib/kubelet"}
    # FlexVolume mounts in the kubelet's directory.
    assert only_read(full) == {*ours, "/etc/lvm/devices"}


def test_where_pods_have_their_mounts_is_always_seen() -> None:
    """What a pod has mounted still must not be cleaned."""
    objects = render({"kubeletDir": "/data/kubelet"})
    assert host_mounts(objects)["/data/kubelet"] == ("/data/kubelet", "", "HostToContainer")
    env = {each["name"]: each.get("value") for each in agent_of(objects)["env"]}
    assert env["KUBELET_DIR"] == "/data/kubelet"


def test_the_records_outlive_the_pod() -> None:
    objects = render({"recordsDir": "/data/records"})
    assert host_mounts(objects)["/data/records"] == ("/data/records", "DirectoryOrCreate", "")
    env = {each["name"]: each.get("value") for each in agent_of(objects)["env"]}
    assert env["RECORDS_DIR"] == "/data/records"


def test_discovery_is_not_shared_back_without_disks() -> None:
    objects = render({key: value for key, value in FULL.items() if key != "disks"})
    assert host_mounts(objects)["/discovery/fast"] == ("/mnt/fast/", "", "HostToContainer")


def test_only_what_uses_lvm_gets_its_locks() -> None:
    def locks(**values: Any) -> bool:
        return "/run/lock/lvm" in host_mounts(render(values))

    assert not locks(pools={"a": {"hostDir": "/p"}}, flexvolume={"driver": "bindmount"})
    assert locks(pools={"a": {"backend": "lvm", "volumeGroup": "vg"}})
    assert locks(flexvolume={"volumeGroup": "vg"})
    assert locks(lvmd={"device-classes": []})
    assert locks(replaces={"elastic": {"driver": "LVM"}})


def test_the_hosts_devices_file_of_lvm_need_not_be_seen() -> None:
    """A host whose /etc cannot be written to has no directory for it."""
    pools = {"a": {"backend": "lvm", "volumeGroup": "vg"}}
    assert "/etc/lvm/devices" in host_mounts(render({"pools": pools}))
    assert "/etc/lvm/devices" not in host_mounts(render({"pools": pools, "lvmDevicesFile": False}))
    assert "/etc/lvm/devices" not in host_mounts(render())


def test_flexvolume_elsewhere() -> None:
    values = {
        "flexvolume": {
            "volumeGroup": "vg",
            "socket": "/sockets/agent.sock",
            "socketOnHost": "/var/run/flex/agent.sock",
            "pluginDirectory": "/plugins",
            "client": "/opt/client",
        },
        "kubeletDir": "/data/kubelet",
        "volumePluginDir": "/opt/plugins",
    }
    objects = render(values)
    mounts = host_mounts(objects)
    assert mounts["/sockets"] == ("/var/run/flex", "DirectoryOrCreate", "")
    assert mounts["/plugins"] == ("/opt/plugins", "DirectoryOrCreate", "")
    assert mounts["/data/kubelet"] == ("/data/kubelet", "", "Bidirectional")
    data = one(objects, "ConfigMap", f"{NAME}-config")["data"]
    assert yaml.safe_load(data["flexvolume"]) == values["flexvolume"]


@pytest.mark.parametrize("given", [{}, {"flexvolume": {"driver": "bindmount"}}])
def test_what_is_mounted_for_csi_reaches_the_host(given: Object) -> None:
    """One mount of the kubelet's directory, in which pods' mounts and both sockets are. Another one
    inside of it would reach the host as well, and stay there."""
    objects = render({"csi": {"enabled": True}, "kubeletDir": "/data/kubelet", **given})
    found = {at: one for at, one in host_mounts(objects).items() if "kubelet" in one[0]}
    found.pop("/usr/libexec/kubernetes/kubelet-plugins/volume/exec", None)
    assert found == {"/data/kubelet": ("/data/kubelet", "", "Bidirectional")}
    (mount,) = [
        one for one in agent_of(objects)["volumeMounts"] if one["mountPath"] == "/data/kubelet"
    ]
    assert "readOnly" not in mount


def test_control_groups_are_mounted_only_where_limits_are_asked_for() -> None:
    without = render({"csi": {"enabled": True}})
    assert not [host for host, *_ in host_mounts(without).values() if "cgroup" in host]
    assert not understood(agent_of(without)["args"]).cgroup_dir
    objects = render({"csi": {"enabled": True, "ioLimits": True}})
    at = understood(agent_of(objects)["args"]).cgroup_dir
    assert host_mounts(objects)[at] == ("/sys/fs/cgroup", "Directory", "")
    (mount,) = [one for one in agent_of(objects)["volumeMounts"] if one["mountPath"] == at]
    assert "readOnly" not in mount


def test_how_many_volumes_a_node_has_is_said_only_if_it_is_given() -> None:
    csi = {"enabled": True}
    assert not understood(agent_of(render({"csi": csi}))["args"]).csi_max_volumes
    objects = render({"csi": {**csi, "maxVolumesPerNode": 12345678}})
    assert understood(agent_of(objects)["args"]).csi_max_volumes == 12345678


def test_client_of_the_image_is_installed(full: list[Object]) -> None:
    data = one(full, "ConfigMap", f"{NAME}-config")["data"]
    assert yaml.safe_load(data["flexvolume"]) == {
        **FULL["flexvolume"], "client": "/usr/local/bin/localvolume-flexvolume"
    }  # fmt: skip
    for key in ("pools", "disks", "jobResources"):
        assert yaml.safe_load(data[key]) == FULL[key]


def test_mounts_of_those_that_are_replaced() -> None:
    mounts = host_mounts(render(REPLACED))
    for path in ("/kutti/vols", "/opt/local-path-provisioner", "/data", "/var/openebs/local"):
        assert mounts[path] == (path, "DirectoryOrCreate", "HostToContainer")
    assert mounts["/var/lib/kubelet"][2] == "Bidirectional"
    assert "/var/run/elastic-local" in mounts
    assert "/mnt/elastic-local-volumes" in mounts


def test_every_path_of_local_path_is_mounted() -> None:
    """Of each node, and of each class; here as a mapping instead of text."""
    config = {
        "nodePathMap": [{"node": "a", "paths": ["/a", "/both"]}, {"node": "b", "paths": []}],
        "storageClassConfigs": {
            "x": {"nodePathMap": [{"node": "a", "paths": ["/x", "/both"]}]},
            "y": {"sharedFileSystemPath": "/shared"},
        },
    }
    objects = render({"classes": [], "replaces": {"localPath": {"config": config}}})
    mounts = host_mounts(objects)
    ours = {"/dev", "/run/localvolume", "/run/udev", "/var/lib/kubelet"}
    assert mounts.keys() == {*ours, "/var/lib/localvolume/records", "/a", "/both", "/x"}
    data = one(objects, "ConfigMap", f"{NAME}-local-path")["data"]
    assert json.loads(data["config.json"]) == config
