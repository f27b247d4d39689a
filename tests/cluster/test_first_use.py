"""`firstUse: clean`: what no PersistentVolume of ours names is erased, and only then.

Nothing but the volume itself remembers that its cleaning has failed.
"""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.block import blockdev
from tests.cluster.support_agent import Lab, Volume
from tests.host.support_devices import command
from tests.suite.api import VOLUMES
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

SECRET = b"the former tenant's secret"


def test_what_cannot_be_cleaned_is_not_published(lab: Lab) -> None:
    block = lab.add_class("block", firstUse="clean", volumeMode="Block")
    device = lab.disk("ext4")
    size = os.stat(device.backing).st_size
    well = threading.Event()

    def leave_some(fd: int, start: int, length: int) -> None:
        blockdev.zero_out(fd, start, length)
        if start + length == size and not well.is_set():
            os.pwrite(fd, SECRET, size - 4096)

    lab.link(device, block.path("raw"))
    lab.ask_kernel(zero_out=leave_some)
    lab.start()
    failed = "does not read as the zeros written there"
    lab.until(lambda: sum(failed in line for line in lab.log()), lambda times: times >= 2)
    assert lab.volumes() == []
    well.set()
    lab.published(block, "raw")
    assert not any(Path(device.path).read_bytes())


def test_a_command_of_another_is_not_trusted_with_it(lab: Lab) -> None:
    """One that erases what is recognised and then fails would leave what looks clean."""
    script = 'dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M count=1; exit 1'
    keys: dict[str, Any] = {"blockCleanerCommand": ["/bin/sh", "-c", script]}
    block = lab.add_class("block", firstUse="clean", volumeMode="Block", **keys)
    device = lab.disk("ext4")
    lab.link(device, block.path("raw"))
    lab.start()
    lab.until(lambda: lab.logged("blockCleanerCommand must be a method of ours"), bool)
    lab.until(lambda: lab.held(block), lambda held: held == {"not-empty": 1})
    lab.settle()
    assert lab.volumes() == []
    assert any(Path(device.path).read_bytes()[:MIB])
    lab.settings["storageClassMap"][block.name]["blockCleanerCommand"] = ["localvolume", "zero"]
    lab.configure()
    lab.published(block, "raw")


def test_what_waits_for_its_turn_is_spared_once_the_word_is_taken_back(lab: Lab) -> None:
    block = lab.add_class("block", firstUse="clean", volumeMode="Block")
    disk = lab.raw_disk(32 * MIB)
    parts = disk.partition("8MiB", "8MiB")
    lab.stack.callback(disk.forget_partitions)
    for number, part in enumerate(parts):
        command("mkswap", part)
        lab.unlink_later(block.path(f"part-{number}")).symlink_to(part)
    writing, may_go_on = threading.Event(), threading.Event()
    lab.stack.callback(may_go_on.set)  # before the partitions are to go

    def wait(fd: int, start: int, length: int) -> None:
        writing.set()
        assert may_go_on.wait(120)
        blockdev.zero_out(fd, start, length)

    lab.ask_kernel(zero_out=wait)
    lab.start()
    begun = "cleaning before first use"
    lab.until(lambda: sum(begun in line for line in lab.log()), lambda times: times == 2)
    # The log's "cleaning with zero" comes before the last look at what is wanted.
    lab.until(writing.is_set, bool)
    lab.settings["storageClassMap"][block.name]["firstUse"] = "require-empty"
    lab.configure()
    in_force = "configuration in force"
    lab.until(lambda: sum(in_force in line for line in lab.log()), lambda times: times == 2)
    lab.settle()
    may_go_on.set()
    lab.until(
        lambda: lab.logged("is not what it was any more") or len(lab.volumes()) == len(parts), bool
    )
    lab.until(lambda: lab.held(block), lambda held: held == {"not-empty": 1})
    lab.until(lab.volumes, lambda found: len(found) == 1)
    left = [b"SWAPSPACE2" in Path(part).read_bytes()[:4096] for part in parts]
    assert sorted(left) == [False, True]


def by_hand(lab: Lab, kind: str, path: str, *, host_path: bool = False) -> Volume:
    """A PersistentVolume as an administrator makes it: no label, no name of ours."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [lab.node]}
    spec: dict[str, Any] = {
        "storageClassName": f"{lab.unique}-by-hand",
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if host_path:
        spec["hostPath"] = {"path": path}
    else:
        spec["local"] = {"path": path}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    metadata = {"name": f"{lab.unique}-{kind}"}
    return lab.objects.make(VOLUMES, {"metadata": metadata, "spec": spec})


def test_what_anybodys_object_names_is_not_erased(lab: Lab) -> None:
    fs = lab.add_class("fs", firstUse="clean")
    block = lab.add_class("block", firstUse="clean", volumeMode="Block")
    files = {}
    for name in ("exact", "within", "unbound", "free"):
        where = lab.mount(lab.disk(), fs.path(name))
        files[name] = where / "data"
        files[name].write_text("somebody's")
    device = lab.disk("ext4")
    lab.link(device, block.path("raw"))
    made = {
        "exact": by_hand(lab, "exact", fs.host_path("exact") + "/"),
        "within": by_hand(lab, "within", fs.host_path("within") + "/some/where"),
        "unbound": by_hand(lab, "unbound", fs.host_path("unbound"), host_path=True),
        "raw": by_hand(lab, "raw", device.path),
    }
    lab.start()
    lab.published(fs, "free")
    for volume in made.values():
        name = volume["metadata"]["name"]
        lab.until(lambda name=name: lab.logged(f"the PersistentVolume {name} names"), bool)  # type: ignore[misc]
    lab.settle()
    assert len(lab.volumes()) == 1
    assert [name for name, file in files.items() if file.exists()] == ["exact", "within", "unbound"]
    assert any(Path(device.path).read_bytes()[:MIB])
    for volume in made.values():
        lab.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
    for name in ("exact", "within", "unbound"):
        lab.published(fs, name)
    lab.published(block, "raw")


def test_a_device_stays_as_it_is_while_nobody_can_tell_what_an_object_names(lab: Lab) -> None:
    block = lab.add_class("block", firstUse="clean", volumeMode="Block")
    device = lab.disk("ext4")
    lab.link(device, block.path("raw"))
    nowhere = lab.unlink_later(Path("/dev", f"{lab.unique}-loop"))
    nowhere.symlink_to(nowhere.name)
    volume = by_hand(lab, "nowhere", str(nowhere))
    lab.start()
    lab.until(lambda: lab.logged(f"names {nowhere}, which cannot be looked at"), bool)
    assert any(Path(device.path).read_bytes()[:MIB])
    assert not lab.logged("unexpected")
    lab.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
    lab.published(block, "raw")


def test_a_cleaner_that_is_none_for_a_device_is_told(lab: Lab) -> None:
    """Known only when a device is to be cleaned: the class may be one of directories."""
    fs = lab.add_class("fs", fsType="ext4", blockCleanerCommand=["/scripts/fsclean.sh"])
    device = lab.raw_disk(64 * MIB)
    lab.link(device, fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    device.format("ext4")
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "fsclean.sh deletes files")
    failed = "local_volume_provisioner_persistentvolume_delete_failed_total"
    lab.until(
        lambda: lab.metric(failed, mode="Filesystem", type="process") or 0, lambda times: times > 0
    )
    assert not lab.logged("unexpected")
    del lab.settings["storageClassMap"][fs.name]["blockCleanerCommand"]
    lab.configure()
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
