"""S18: a device on which an administrator has made a filesystem, for a class of that type.

Upstream offers it, and the kubelet mounts what it finds. What does not prove to be empty is held.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_agent import Class, Lab
from tests.host.support_devices import LoopDevice, command, mounted
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def offered(lab: Lab, device: LoopDevice, **keys: Any) -> Class:
    """A class with the device in its directory, and an agent that has looked at it."""
    cls = lab.add_class("fs", **keys)
    lab.link(device, cls.path("one"))
    lab.start()
    return cls


@contextlib.contextmanager
def in_use(lab: Lab, device: LoopDevice) -> Iterator[Path]:
    place = lab.directory / "in-use"
    place.mkdir()
    with mounted(device, place) as where:
        yield where


def stays_held(lab: Lab, cls: Class, said: str, reason: str = "not-empty") -> None:
    lab.until(lambda: lab.held(cls), lambda held: held == {reason: 1})
    lab.until(lambda: lab.logged(said), bool)
    lab.settle()
    assert lab.volumes() == []


@pytest.mark.parametrize("kind", ["ext2", "ext4"])
def test_an_empty_filesystem_of_the_classs_type_is_offered_as_it_is(lab: Lab, kind: str) -> None:
    device = lab.disk(kind)
    before = Path(device.path).read_bytes()
    cls = offered(lab, device, fsType=kind)
    volume = lab.published(cls, "one")
    assert volume["spec"]["volumeMode"] == "Filesystem"
    assert volume["spec"]["local"]["fsType"] == kind
    assert Path(device.path).read_bytes() == before, "looking has written"


def test_once_a_claim_has_used_it_it_is_cleaned_as_any_device(lab: Lab) -> None:
    device = lab.disk()
    cls = offered(lab, device, fsType="ext4")
    volume = lab.published(cls, "one")
    claim = lab.bound(volume)
    with in_use(lab, device) as where:
        (where / "data").write_text("the tenant's")
    lab.delete_claim(claim)
    lab.published(cls, "one", unlike=volume["metadata"]["uid"])
    assert command("wipefs", "--noheadings", device.path) == ""


def _write(where: Path) -> None:
    (where / "data").write_text("somebody's")


def _lost(where: Path) -> None:
    (where / "lost+found/#12").write_text("somebody's")


@pytest.mark.parametrize("use", [_write, _lost])
def test_one_with_a_file_is_held(lab: Lab, use: Callable[[Path], None]) -> None:
    device = lab.disk()
    with in_use(lab, device) as where:
        use(where)
    cls = offered(lab, device, fsType="ext4")
    stays_held(lab, cls, "it holds a signature: ext4, with 1 files or directories in it")


def test_one_whose_journal_is_to_be_replayed_is_held(lab: Lab) -> None:
    """What a crash has left: the files are in the journal alone."""
    device, left = lab.disk(), lab.raw_disk(64 * MIB)
    with in_use(lab, device) as where:
        (where / "data").write_text("somebody's")
        command("sync", "-f", where)
        Path(left.path).write_bytes(Path(device.path).read_bytes())
    cls = offered(lab, left, fsType="ext4")
    stays_held(lab, cls, "whose journal is to be replayed")


def test_one_that_is_smaller_than_its_device_is_held(lab: Lab) -> None:
    """The PersistentVolume would promise the device's bytes."""
    device = lab.raw_disk(128 * MIB)
    command("mkfs.ext4", "-q", "-F", device.path, "64M")
    cls = offered(lab, device, fsType="ext4")
    stays_held(lab, cls, "which is smaller than its device")


@pytest.mark.parametrize("wanted", ["ext2", "xfs", ""])
def test_one_of_another_type_is_held(lab: Lab, wanted: str) -> None:
    keys = {"fsType": wanted} if wanted else {}
    cls = offered(lab, lab.disk(), **keys)
    words = f"its class says {f'fsType {wanted}' if wanted else 'no fsType'}"
    stays_held(lab, cls, f"it holds a signature: ext4, and {words}")


def test_offered_raw_its_bytes_would_be_read(lab: Lab) -> None:
    cls = offered(lab, lab.disk(), volumeMode="Block")
    stays_held(lab, cls, "it holds a signature: ext4: empty it")


def test_one_whose_counts_are_forged_is_held(lab: Lab, tmp_path: Path) -> None:
    """A former tenant who had the device raw may have written anything, checksums included."""
    (file := tmp_path / "data").write_bytes(os.urandom(20_000))
    device = lab.disk()
    counts = dict(
        line.split(": ", 1)
        for line in command("debugfs", "-R", "stats -h", device.path).splitlines()
        if ": " in line
    )
    free = {name: counts[f"Free {name}"].strip() for name in ("inodes", "blocks")}
    for request in (
        f"write {file} data",
        "unlink data",
        f"ssv free_inodes_count {free['inodes']}",
        f"ssv free_blocks_count {free['blocks']}",
    ):
        command("debugfs", "-w", "-R", request, device.path)
    cls = offered(lab, device, fsType="ext4")
    stays_held(lab, cls, "in which e2fsck finds something to mend")


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A PATH with all but debugfs."""
    for directory in os.environ["PATH"].split(os.pathsep):
        for program in Path(directory).glob("*") if os.path.isdir(directory) else ():
            if program.name != "debugfs" and not (tmp_path / program.name).exists():
                (tmp_path / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("lacking")
def test_where_it_cannot_be_looked_into_it_is_held(lab: Lab) -> None:
    cls = offered(lab, lab.disk(), fsType="ext4")
    stays_held(lab, cls, "this agent's image lacks debugfs", "unknown")


@pytest.mark.usefixtures("lacking")
def test_where_its_class_trusts_what_is_there_it_need_not_be_looked_into(lab: Lab) -> None:
    lab.published(offered(lab, lab.disk(), fsType="ext4", firstUse="trust"), "one")
