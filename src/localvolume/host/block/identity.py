"""The identity of a block device: words for it that outlive renumbering and rebooting.

Nothing here can be changed by writing to the device itself, as its tenant does: a partition's UUID
lies in its disk's table, and a disk's own table does not count.
"""

import os
import re
import struct
from uuid import UUID

from localvolume.host.block.sysfs import base_of, disk_of, read, udev_properties, uevent, words
from localvolume.host.loop.users import DELETED, loop_status
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

# The UUID of one partition, read from its disk's partition table if the kernel does not tell it.
#
# GPT: UEFI specification 2.10, section 5.3. MBR: the disk signature at byte 440 and the
# partition's number, written as the kernel, libblkid and udev write it (``6b074af7-01``).

_GPT_HEADER = 92
_GPT_MOST_ENTRIES = 1024  # the specification asks for 128; more is not a table to believe


def partition_uuid(disk_fd: int, sector_bytes: int, number: int, start_bytes: int) -> str | None:
    """Return the UUID of partition ``number`` (from 1), or None when the table does not have it.

    ``start_bytes`` is where the kernel says the partition begins: a table that says otherwise was
    rewritten since and is not what the kernel's partition came from. Raises OSError.
    """
    header = os.pread(disk_fd, _GPT_HEADER, sector_bytes)
    if header[:8] == b"EFI PART":
        return _gpt(disk_fd, header, sector_bytes, number, start_bytes)
    return _mbr(os.pread(disk_fd, 512, 0), sector_bytes, number, start_bytes)


def _gpt(
    disk_fd: int, header: bytes, sector_bytes: int, number: int, start_bytes: int
) -> str | None:
    if len(header) < _GPT_HEADER:
        return None
    first_entry, entries, entry_bytes = struct.unpack_from("<QII", header, 72)
    if not 1 <= number <= min(entries, _GPT_MOST_ENTRIES) or not 128 <= entry_bytes <= 4096:
        return None
    at = first_entry * sector_bytes + (number - 1) * entry_bytes
    entry = os.pread(disk_fd, 128, at)
    if len(entry) < 128 or struct.unpack_from("<Q", entry, 32)[0] * sector_bytes != start_bytes:
        return None
    # The first three fields of a GUID are little-endian on disk.
    return str(UUID(bytes_le=entry[16:32]))


def _mbr(sector: bytes, sector_bytes: int, number: int, start_bytes: int) -> str | None:
    if len(sector) < 512 or sector[510:512] != b"\x55\xaa":
        return None
    signature = struct.unpack_from("<I", sector, 440)[0]
    if signature == 0:
        return None
    # Logical partitions (5 and up) are listed elsewhere; their number and the signature suffice.
    if number <= 4:
        start = struct.unpack_from("<I", sector, 446 + (number - 1) * 16 + 8)[0]
        if start * sector_bytes != start_bytes:
            return None
    return f"{signature:08x}-{number:02x}"


_OF_ONE = ("wwn", "serial", "partUuid", "dmUuid", "mdUuid", "loopInode", "loopOffset")


def identity_of(base: str, device: str, path: str, size: int) -> dict[str, str]:
    """Return ``kind`` (block) and those of the following that the device has and that are visible.

    ``wwn``, ``serial``, ``model`` (of the disk, also for a partition), ``partUuid``, ``dmUuid``,
    ``mdUuid``, ``loopFile``, ``loopInode``, ``loopOffset``. If none of them tells devices apart:
    ``partStart`` and ``sizeBytes``, which are weak, but better than nothing. (Otherwise the size is
    left out: growing a logical volume does not make it another.) If nothing identifies the disk
    either: ``bootId`` and ``diskSeq`` (Linux 5.15). No two attachments of one boot share a number,
    and nothing else is known of such a disk. Which keys are there may depend on the kernel and on
    how much of the host is visible, so compare the keys that both sides have.
    """
    disk = disk_of(base)
    disk_number = read(f"{disk}/dev") or device
    udev = udev_properties(disk_number)
    facts: dict[str, str | None] = {
        "wwn": _wwn(disk, udev),
        "serial": _serial(disk) or udev.get("ID_SERIAL_SHORT"),
        "dmUuid": read(f"{disk}/dm/uuid"),
        "mdUuid": read(f"{disk}/md/uuid") or udev.get("MD_UUID"),
    }
    if backing := read(f"{disk}/loop/backing_file"):
        facts["loopFile"] = backing.removesuffix(DELETED)
        node = path if disk == base else f"/dev/{os.path.basename(disk)}"
        status = loop_status(node)
        facts["loopInode"] = str(status.inode) if status else None
        offset = read(f"{disk}/loop/offset")
        facts["loopOffset"] = offset if offset != "0" else None
    if disk != base:
        facts["partUuid"] = (
            uevent(base).get("PARTUUID")
            or _from_table(base, disk)
            or udev_properties(device).get("ID_PART_ENTRY_UUID")
        )
    tells_apart = any(facts.values()) if disk == base else facts["partUuid"] is not None
    if not tells_apart:
        facts["sizeBytes"] = str(size)
        facts["partStart"] = read(f"{base}/start")
        if not any(facts[key] for key in ("wwn", "serial", "dmUuid", "mdUuid")) and not backing:
            facts["bootId"] = read("/proc/sys/kernel/random/boot_id")
            facts["diskSeq"] = read(f"{disk}/diskseq")
    model = read(f"{disk}/device/model")
    facts["model"] = words(model) if model else None
    return {"kind": "block", **{key: value for key, value in facts.items() if value}}


def identity_below(device: str) -> dict[str, str]:
    """What tells the device below a mounted filesystem ("major:minor") from every other one.

    These are the keys of `identity_of` that are neither a location nor a weak fact, with the prefix
    ``device``: ``deviceWwn``, ``deviceSerial``, ``devicePartUuid``, ``deviceDmUuid``,
    ``deviceMdUuid``, ``deviceLoopInode``, ``deviceLoopOffset``. Empty if a filesystem lies on no
    device (network, memory) or on several (btrfs), and for a device without any of them.
    """
    base = base_of(device)
    name = uevent(base).get("DEVNAME")
    if name is None:
        return {}
    found = identity_of(base, device, f"/dev/{name}", 0)
    return {f"device{key[0].upper()}{key[1:]}": found[key] for key in _OF_ONE if key in found}


def is_attached(boot_id: str, disk_seq: str) -> bool:
    """Whether a disk has that number in this boot, where no other attachment ever gets it."""
    if not disk_seq or boot_id != read("/proc/sys/kernel/random/boot_id"):
        return False
    return any(read(f"/sys/block/{name}/diskseq") == disk_seq for name in os.listdir("/sys/block"))


def _wwn(disk: str, udev: dict[str, str]) -> str | None:
    if known := read(f"{disk}/wwid") or read(f"{disk}/device/wwid"):
        return words(known)
    if known := udev.get("ID_WWN_WITH_EXTENSION") or udev.get("ID_WWN"):
        # udev writes only the number, sysfs its kind, too: give the same words for both.
        return re.sub(r"\A0x", "naa.", known)
    return None


def _serial(disk: str) -> str | None:
    for name in ("serial", "device/serial"):
        if known := read(f"{disk}/{name}"):
            return words(known)
    # SCSI's page 0x80: four bytes of header, then the serial number.
    try:
        with open(f"{disk}/device/vpd_pg80", "rb") as page:
            return words(page.read()[4:].decode("ascii", "replace").strip("\0 ")) or None
    except OSError:
        return None


def _from_table(base: str, disk: str) -> str | None:
    """Read the partition's UUID from the disk itself; None when that cannot be done here."""
    number, start = read(f"{base}/partition"), read(f"{base}/start")
    name, sector = uevent(disk).get("DEVNAME"), read(f"{disk}/queue/logical_block_size")
    if not (number and start and name and sector):
        return None
    try:
        fd = os.open(f"/dev/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, PermissionError):
        return None
    with closed_after(fd):
        if device_number(os.fstat(fd).st_rdev) != read(f"{disk}/dev"):
            return None
        return partition_uuid(fd, int(sector), int(number), int(start) * 512)
