"""Records of volumes on real filesystems and devices: where they lie, and what cannot be read."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_record

from localvolume.host.filesystem.volumenotes import NAME
from localvolume.static.model import Entry
from localvolume.static.recording import NotRecorded, Records
from localvolume.volumes.record import Record, Unreadable, encoded, with_identity
from tests.host.support_devices import (
    bind,
    command,
    filesystem,
    formatted,
    loop_device,
    mounted,
    tmpfs,
)
from tests.host.support_entries import entry_at
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")

RECORD = Record("g1", claim="a")


def weak(entry: Entry, **changes: str) -> Entry:
    """A disk without a serial number, as the kernel of another boot has numbered it."""
    identity = {"kind": "block", "sizeBytes": "4194304", "bootId": "another", "diskSeq": "7"}
    return replace(entry, identity={**identity, **changes})


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(str(tmp_path / "records"))


def test_on_the_root_of_a_filesystem(records: Records, tmp_path: Path) -> None:
    for kind in (filesystem("ext4"), tmpfs()):
        with kind as path:
            entry = entry_at(path)
            assert records.read(entry) is None
            assert records.write(entry, RECORD)
            assert records.read(entry) == RECORD
            assert os.getxattr(path, NAME)
            assert records.forget(entry) == RECORD
            assert records.read(entry) is None
    assert not (tmp_path / "records").exists()


def test_a_receipt_without_room_is_left_out(records: Records) -> None:
    """Small blocks, and attributes of others on the root: the rest of the record is kept."""
    receipt = replace_record(RECORD, cleaned=f"2026-11-28T00:00:00Z {'x' * 200}")
    with formatted("ext4", "-b", "1024") as device, mounted(device.path) as path:
        entry = entry_at(path)
        assert records.write(entry, receipt)
        assert records.read(entry) == receipt
        records.forget(entry)
        os.setxattr(path, "trusted.others", bytes(700))
        assert records.write(entry, receipt)
        assert records.read(entry) == RECORD
        os.setxattr(path, "trusted.others", bytes(900))
        with pytest.raises(NotRecorded, match="No space left"):
            records.write(entry, replace_record(RECORD, claim="b" * 300))
        assert records.read(entry) == RECORD


def test_each_directory_that_is_mounted_has_its_own(records: Records, tmp_path: Path) -> None:
    with filesystem("ext4") as path:
        (path / "part").mkdir()
        (tmp_path / "there").mkdir()
        with bind(path / "part", tmp_path / "there") as part:
            assert records.write(entry_at(path), RECORD)
            assert records.read(entry_at(part)) is None


def test_beside_a_filesystem_that_takes_no_writes(records: Records, tmp_path: Path) -> None:
    with formatted("ext4") as disk, mounted(disk, options="ro") as path:
        entry = entry_at(path)
        assert records.write(entry, RECORD)
        assert records.read(entry) == with_identity(RECORD, entry.identity)
        assert not Records(None).write(entry, RECORD)
    assert len(list((tmp_path / "records").iterdir())) == 1


def test_beside_a_device(records: Records, tmp_path: Path) -> None:
    with loop_device(4 * MIB) as one, loop_device(4 * MIB) as two:
        first, second = entry_at(one.path), entry_at(two.path)
        assert Records(None).read(first) == "nowhere"
        assert not Records(None).write(first, RECORD)
        assert records.read(first) is None
        assert records.write(first, RECORD)
        assert records.read(second) is None
        assert records.write(second, Record("g2"))
        assert records.write(first, Record("g1", claim="b"))
        found = records.read(first)
        assert isinstance(found, Record)
        assert (found.generation, found.claim) == ("g1", "b")
        assert len(list((tmp_path / "records").iterdir())) == 2
        assert (tmp_path / "records").stat().st_mode & 0o777 == 0o700
        assert records.forget(first) == found
        assert records.read(first) is None
        assert records.read(second) is not None


def test_what_is_no_record_holds_every_device(records: Records, tmp_path: Path) -> None:
    with loop_device(4 * MIB) as loop:
        entry = entry_at(loop.path)
        assert records.write(entry, RECORD)
        (tmp_path / "records" / "damaged.json").write_bytes(b"{")
        found = records.read(entry)
        assert isinstance(found, Unreadable)
        assert "damaged.json" in found.reason
        with pytest.raises(NotRecorded, match=r"damaged\.json"):
            records.write(entry, RECORD)
        # A file that was never whole is none.
        (tmp_path / "records" / "damaged.json").rename(tmp_path / "records" / ".new-1")
        assert isinstance(records.read(entry), Record)


def test_another_mount_at_the_path_is_not_written_to(records: Records) -> None:
    with filesystem("ext4") as path:
        entry = entry_at(path)
        with tmpfs(path):
            assert isinstance(records.read(entry), Unreadable)
            with pytest.raises(NotRecorded, match="another filesystem is mounted"):
                records.write(entry, RECORD)
        assert records.read(entry) is None


def test_disks_that_nothing_tells_apart(records: Records) -> None:
    """After a reboot any of them may be the one that the record is of."""
    with loop_device(4 * MIB) as loop:
        before = weak(entry_at(loop.path))
        assert records.write(before, RECORD)
        now = weak(before, diskSeq="8")
        found = records.read(now)
        assert isinstance(found, Unreadable)
        assert [one.generation for one in found.may_be] == ["g1"]
        assert records.read(weak(before, sizeBytes="1")) is None
        # Known to be the same by an administrator's word: its record is of what it is now.
        assert records.write(now, RECORD)
        assert isinstance(records.read(now), Record)
        assert isinstance(records.read(before), Unreadable)


def test_what_is_attached_elsewhere_is_another(records: Records) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with loop_device(4 * MIB) as loop, loop_device(4 * MIB) as other:
        name = os.path.basename(loop.path)
        number = Path(f"/sys/block/{name}/diskseq")
        if not number.exists():
            pytest.skip("this kernel does not number attachments (Linux 5.15)")
        attached = number.read_text().strip()
        first = weak(entry_at(loop.path), bootId=boot, diskSeq=attached)
        assert records.write(first, RECORD)
        second = weak(entry_at(other.path), bootId=boot, diskSeq="0")
        assert records.read(second) is None
        loop.detach()
        assert isinstance(records.read(second), Unreadable)


def test_a_disk_of_which_too_little_is_known_has_none(records: Records) -> None:
    """Without the kernel's number two of them would share one record."""
    with loop_device(4 * MIB) as loop:
        entry = replace(entry_at(loop.path), identity={"kind": "block", "sizeBytes": "4194304"})
        assert records.read(entry) == "nowhere"
        assert not records.write(entry, RECORD)


def test_a_partition_is_not_its_disk(records: Records) -> None:
    with loop_device(4 * MIB) as loop:
        disk = replace(entry_at(loop.path), identity={"kind": "block", "serial": "s"})
        part = replace(disk, identity={"kind": "block", "serial": "s", "partUuid": "p"})
        assert records.write(disk, RECORD)
        assert records.read(part) is None
        assert records.write(part, Record("g2"))
        found = records.read(disk)
        assert isinstance(found, Record)
        assert found.generation == "g1"


def test_what_told_a_disk_apart_and_cannot_be_read_now(records: Records) -> None:
    with loop_device(4 * MIB) as loop:
        known = {"kind": "block", "serial": "s", "wwn": "w"}
        disk = replace(entry_at(loop.path), identity=known)
        assert records.write(disk, RECORD)
        found = records.read(replace(disk, identity={"kind": "block", "wwn": "w"}))
        assert isinstance(found, Unreadable)
        # More is known of it than was: it is the same.
        more = replace(disk, identity={**known, "model": "m"})
        assert isinstance(records.read(more), Record)


def test_the_command_forgets(tmp_path: Path) -> None:
    forget = [
        sys.executable,
        "-m",
        "localvolume",
        "forget",
        "--records-dir",
        str(tmp_path / "records"),
    ]
    with filesystem("ext4") as path:
        os.setxattr(path, NAME, encoded(RECORD))
        with loop_device(4 * MIB) as loop:
            assert Records(str(tmp_path / "records")).write(entry_at(loop.path), Record("g2"))
            said = command(*forget, str(path), loop.path)
            assert f"{path}: forgot generation g1, which the claim a held" in said
            assert f"{loop.path}: forgot generation g2, which no claim held" in said
            for nothing in (str(path), loop.path, str(tmp_path / "not-there")):
                with pytest.raises(AssertionError, match="nothing is forgotten"):
                    command(*forget, nothing)
        os.setxattr(path, NAME, b"damaged")
        assert "could not be read" in command(*forget, str(path))
        assert NAME not in os.listxattr(path)


def test_the_command_forgets_nothing_beside_a_damaged_record(tmp_path: Path) -> None:
    """It may be another volume's, and only its administrator can tell."""
    directory = tmp_path / "records"
    forget = [sys.executable, "-m", "localvolume", "forget", "--records-dir", str(directory)]
    with loop_device(4 * MIB) as loop:
        disk = entry_at(loop.path)
        assert Records(str(directory)).write(disk, RECORD)
        (directory / "zz.json").write_text("damaged")
        with pytest.raises(AssertionError, match=r"nothing is forgotten: zz\.json beside it"):
            command(*forget, loop.path)
        (directory / "zz.json").unlink()
        left = Records(str(directory)).read(disk)
        assert isinstance(left, Record)
        assert left.claim == "a"
