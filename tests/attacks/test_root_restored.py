"""S15: what a tenant makes of the volume's root is not the next tenant's: it is as it was first."""

import os
from pathlib import Path

import pytest

from localvolume.host.filesystem.rootstate import RootState, read_root
from tests.attacks.support_records import recorded
from tests.cluster.support_agent import Lab
from tests.host.support_devices import command

pytestmark = [
    pytest.mark.needs("root", "loop", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

CHANGES = {
    "ext4": [["chattr", "+AdSi"]],
    "xfs": [["xfs_io", "-c", "chproj 77", "-c", "chattr +ndAP"]],
}


def state(path: Path) -> RootState:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_root(fd)
    finally:
        os.close(fd)


@pytest.mark.parametrize("fs_type", ["ext4", "xfs"])
def test_the_root_is_as_it_was_at_first(lab: Lab, fs_type: str) -> None:
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(fs_type), fs.path("one"))
    path.chmod(0o2751)
    os.chown(path, 7, 8)
    first = state(path)
    lab.start()
    former = lab.published(fs, "one")
    assert recorded(path).root == first
    claim = lab.bound(former)
    path.chmod(0o777)
    os.chown(path, 4711, 4712)
    (path / "data").write_text("the former tenant's")
    for argv in CHANGES[fs_type]:
        command(*argv, path)
    changed = state(path)
    assert changed.flags != first.flags or changed.xflags != first.xflags
    assert fs_type != "xfs" or changed.project != first.project
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=former["metadata"]["uid"])
    assert state(path) == first
    assert recorded(path).root == first


def test_what_cannot_be_set_up_as_it_was_is_not_offered(lab: Lab) -> None:
    """An owner that this user namespace or filesystem does not take: it is told, and waits."""
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    former = lab.published(fs, "one")
    claim = lab.bound(former)
    record = recorded(path)
    assert record.root
    note = os.getxattr(path, "trusted.localvolume")
    # A flag that ext4 does not have, as if another kind of filesystem had been there.
    flags = f'"flags":{record.root.flags}'.encode()
    assert flags in note
    os.setxattr(path, "trusted.localvolume", note.replace(flags, b'"flags":8388608'))
    lab.stop()
    lab.start()
    lab.delete_claim(claim)
    name = former["metadata"]["name"]
    lab.event(name, "VolumeNotRecorded", "its root cannot be set up as it was")
    assert lab.volume(name)
    os.setxattr(path, "trusted.localvolume", note.replace(b'"claim":""', b'"claim":""'))
    lab.stop()
    lab.start()
    lab.published(fs, "one", unlike=former["metadata"]["uid"])
