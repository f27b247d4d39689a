"""What an object says it is may be forged or mistyped: no path leads beyond one volume."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_agent import Class, Lab, Volume
from tests.host.support_devices import bind, command, mounted, tmpfs
from tests.suite.api import VOLUMES
from tests.suite.names import FINALIZER, NODE_LABEL

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def forge(lab: Lab, cls: Class, path: str, size: str = "1Mi", **spec: Any) -> Volume:
    """A PersistentVolume that carries all our marks, Released, and to be deleted: by hand."""
    hostname = spec.pop("hostname", lab.node)
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [hostname]}
    name = f"{lab.unique}-forged-{uuid.uuid4().hex[:8]}"
    lab.objects.make(
        VOLUMES,
        {
            "metadata": {
                "name": name,
                "labels": {NODE_LABEL: lab.node},
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": f"local-volume-provisioner-{lab.node}"
                },
                "finalizers": [FINALIZER],
            },
            "spec": {
                "storageClassName": cls.name,
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "volumeMode": "Filesystem",
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
                # A claim that is gone: the controller makes the volume Released.
                "claimRef": {
                    "kind": "PersistentVolumeClaim",
                    "apiVersion": "v1",
                    "namespace": "default",
                    "name": f"{name}-gone",
                    "uid": str(uuid.uuid4()),
                },
                **spec,
            },
        },
    )
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    found = lab.volume(name)
    assert found is not None
    return found


def test_forged_and_mistyped_volumes_reach_nothing(lab: Lab) -> None:
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    # Upstream's prefix check takes this for a part of the directory beside it.
    neighbour = lab.directory / "fs-2"
    neighbour.mkdir()
    other = lab.mount(lab.disk(), neighbour / "one")
    lab.start()
    real = lab.published(fs, "one")
    lab.bound(real)
    lab.stop()
    (where / "inner").mkdir()
    precious = [where / "precious", where / "inner/precious", other / "precious"]
    for path in precious:
        path.write_text("somebody's")

    size = real["spec"]["capacity"]["storage"]
    elsewhere = "is not an entry of the class's directory"
    forged = {
        forge(lab, fs, path)["metadata"]["name"]: elsewhere
        for path in (
            fs.host_dir,
            f"{fs.host_dir}/",
            f"{fs.host_dir}/.",
            f"{fs.host_dir}-2/one",
            fs.host_path("one/inner"),
            str(where),
            "/",
        )
    }
    stranger = forge(lab, fs, fs.host_path("one"), size, hostname="another-node")
    forged[stranger["metadata"]["name"]] = "does not name this node"
    twin = forge(lab, fs, fs.host_path("one"), size)
    forged[twin["metadata"]["name"]] = "offers the same data under another path"
    unknown = Class(f"{fs.name}-unknown", fs.directory, fs.host_dir)
    homeless = forge(lab, unknown, fs.host_path("one"), size)
    forged[homeless["metadata"]["name"]] = "is not in the configuration"

    lab.start()
    for name, reason in forged.items():
        lab.event(name, "VolumeFailedDelete", reason)
    for name in forged:
        # Now deleted by hand as well: the same holds.
        lab.plane.request("DELETE", f"{VOLUMES}/{name}")
    lab.settle()
    for path in precious:
        assert path.exists(), path
    for name in forged:
        assert lab.volume(name) is not None
    assert lab.stays(real)["status"]["phase"] == "Bound"
    for name in forged:
        lab.patch(name, {"metadata": {"finalizers": None}})


def test_a_mount_inside_a_volume_is_never_crossed(lab: Lab) -> None:
    """Another filesystem, and a directory of the same one: nothing at all is deleted."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "a/inner").mkdir(parents=True)
    (where / "secret").write_text("tenant")
    elsewhere = lab.directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("somebody's")
    name = volume["metadata"]["name"]
    with tmpfs(where / "a/inner"):
        (where / "a/inner/precious").write_text("somebody's")
        lab.delete_claim(claim)
        lab.event(name, "VolumeFailedDelete", "a/inner")
        lab.settle()
        assert (where / "a/inner/precious").exists()
        assert (where / "secret").exists()
        assert lab.volumes_at(fs, "one")[0]["metadata"]["uid"] == volume["metadata"]["uid"]
        with bind(elsewhere, where / "a"):
            lab.settle()
            assert (elsewhere / "precious").exists()
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "secret").exists()
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("own_command", [False, True])
def test_a_device_in_use_is_not_cleaned(lab: Lab, own_command: bool) -> None:
    """Mounted, or under a loop device: somebody works with it, whatever its claim says."""
    keys: dict[str, Any] = {}
    if own_command:
        wipe = 'dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M count=64 conv=fsync'
        keys["blockCleanerCommand"] = ["/bin/sh", "-c", wipe]
    block = lab.add_class("block", volumeMode="Block", **keys)
    device = lab.raw_disk(64 << 20)
    lab.link(device, block.path("one"))
    lab.start()
    volume = lab.published(block, "one")
    name = volume["metadata"]["name"]
    lab.stop()
    volume = lab.released(volume)
    device.format("ext4")
    before = Path(device.path).read_bytes()
    above = command("losetup", "--find", "--show", device.path).strip()
    try:
        lab.start()
        lab.event(name, "VolumeFailedDelete", above)
        assert Path(above).read_bytes() == before
        lab.stop()
    finally:
        command("losetup", "--detach", above)
    with mounted(device) as where:
        (where / "precious").write_text("somebody works with this")
        lab.start()
        lab.event(name, "VolumeFailedDelete", "mounted at")
        lab.stop()
        command("umount", where)
        command("mount", device.path, where)
        assert (where / "precious").exists()
    lab.start()
    lab.published(block, "one", unlike=volume["metadata"]["uid"])
    assert not any(Path(device.path).read_bytes())
