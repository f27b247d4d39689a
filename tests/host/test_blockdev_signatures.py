"""What a device holds: made by the real tools, and what must never pass for empty."""

import os
from pathlib import Path

import pytest

from localvolume.host.block.blockdev import (
    NotABlockDevice,
    Signature,
    SignatureUnknown,
    read_signature,
)
from localvolume.host.block.signatures import parse
from tests.host.support_devices import SIZES, command, formatted, loop_device
from tests.suite.units import MIB

loop = pytest.mark.needs("root", "loop")


@loop
@pytest.mark.parametrize(
    "fstype",
    [
        "ext2",
        pytest.param("ext4", marks=pytest.mark.needs("ext4")),
        pytest.param("xfs", marks=pytest.mark.needs("xfs")),
        pytest.param("btrfs", marks=pytest.mark.needs("btrfs")),
    ],
)
async def test_filesystems(fstype: str) -> None:
    with formatted(fstype, "-L", "tenant data") as device:
        found = await read_signature(device.path)
        uuid = command("blkid", "--probe", "-o", "value", "-s", "UUID", device.path).strip()
        assert found == Signature(fstype, "tenant data", uuid, (fstype,))
        command("wipefs", "--all", device.path)
        assert await read_signature(device.path) is None


@loop
@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        (("mkswap",), "swap"),
        (("pvcreate", "--yes", "--zero", "y", "--devices"), "LVM2_member"),
        (("mkfs.vfat",), "vfat"),
    ],
    ids=["mkswap", "pvcreate", "mkfs.vfat"],
)
async def test_others(argv: tuple[str, ...], kind: str) -> None:
    with loop_device() as device:
        words = [*argv, device.path] if "--devices" in argv else argv
        command(*words, device.path)
        found = await read_signature(device.path)
        assert found is not None
        assert found.type == kind
        assert found.uuid
        command("wipefs", "--all", device.path)
        assert await read_signature(device.path) is None


@loop
@pytest.mark.parametrize("label", ["gpt", "dos"])
async def test_partition_tables(label: str) -> None:
    with loop_device() as device:
        device.write_table(f"label: {label}\n,8M,L\n")
        found = await read_signature(device.path)
        assert found is not None
        assert found.type == label


@loop
async def test_only_the_second_copy_of_a_partition_table() -> None:
    """It lies at the very end: a device wiped at its start alone is not empty."""
    with loop_device() as device:
        device.write_table("label: gpt\n,8M,L\n")
        with open(device.path, "r+b") as disk:
            disk.write(bytes(4 * MIB))
        found = await read_signature(device.path)
        assert found is not None
        assert found.type == "gpt"


@loop
async def test_a_partition_without_anything_in_it() -> None:
    """``blkid`` answers 0 here, for the table's entry; there is still no signature."""
    with loop_device() as device:
        (part,) = device.partition("32M")
        try:
            assert await read_signature(part) is None
        finally:
            device.forget_partitions()


@loop
async def test_two_that_disagree() -> None:
    with formatted("btrfs", size=SIZES["btrfs"]) as device:
        with open(device.path, "r+b") as disk:
            disk.seek(4086)
            disk.write(b"SWAPSPACE2")
            disk.seek(1024)
            disk.write((1).to_bytes(4, "little") + (1000).to_bytes(4, "little"))
        found = await read_signature(device.path)
        assert found is not None
        assert found.type == "ambivalent"
        assert set(found.found) == {"btrfs", "swap"}


@loop
@pytest.mark.parametrize("readable", [0, 3 * MIB])
async def test_a_device_that_cannot_be_read_is_not_empty(readable: int) -> None:
    """A loop device gives read errors beyond the end of its file; libblkid overlooks them."""
    with loop_device(64 * MIB) as device:
        os.truncate(device.backing, readable)
        with pytest.raises(SignatureUnknown, match="cannot be read"):
            await read_signature(device.path)


@loop
async def test_devices_smaller_than_what_is_read() -> None:
    with loop_device(64 * 1024) as device:
        assert await read_signature(device.path) is None


async def test_other_things_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NotABlockDevice):
        await read_signature(str(tmp_path / "fifo"))
    with pytest.raises(FileNotFoundError):
        await read_signature(str(tmp_path / "nothing"))


def test_answers_not_understood_are_not_empty() -> None:
    for text in ("{", "[]", '{"signatures": [{}]}', '{"signatures": null}'):
        with pytest.raises(SignatureUnknown):
            parse("/dev/x", text)
    assert parse("/dev/x", "") is None
    assert parse("/dev/x", '{"signatures": []}') is None
