"""The identity of a block device: words for it that outlive renumbering and rebooting.

Nothing here can be changed by writing to the device itself, as its tenant does: a partition's UUID
lies in its disk's table, a disk's own table does not count.
"""

import os
import re

from localvolume.host.block.partitions import partition_uuid
from localvolume.host.block.sysfs import base_of, disk_of, read, udev_properties, uevent, words
from localvolume.host.loop.users import DELETED, loop_status
from localvolume.host.tree.entries import device_number

_OF_ONE = ("wwn", "serial", "partUuid", "dmUuid", "mdUuid", "loopInode", "loopOffset")


def identity_of(base: str, device: str, path: str, size: int) -> dict[str, str]:
    """Return ``kind`` (block) and, of the following, what the device has and what is in sight.

    ``wwn``, ``serial``, ``model`` (of the disk, also for a partition), ``partUuid``, ``dmUuid``,
    ``mdUuid``, ``loopFile``, ``loopInode``, ``loopOffset``. With none of them that tells devices
    apart, ``partStart`` and ``sizeBytes``: weak, but better than nothing. (Otherwise the size
    is left out: growing a logical volume does not make it another.) Where the disk too has none,
    ``bootId`` and ``diskSeq`` (Linux 5.15): no two attachments of one boot have its number in
    common, and nothing is known of it beyond them. Which keys are there may depend on the kernel
    and on what of the host is in sight, so compare the keys both sides have.
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

    Of what `identity_of` says, that which no place and no weak fact is; with each key's name begun
    by ``device``: ``deviceWwn``, ``deviceSerial``, ``devicePartUuid``, ``deviceDmUuid``,
    ``deviceMdUuid``, ``deviceLoopInode``, ``deviceLoopOffset``. Empty where a filesystem lies on no
    device (of the network, in memory) or on several (btrfs), and for a device without any of them.
    """
    base = base_of(device)
    name = uevent(base).get("DEVNAME")
    if name is None:
        return {}
    found = identity_of(base, device, f"/dev/{name}", 0)
    return {f"device{key[0].upper()}{key[1:]}": found[key] for key in _OF_ONE if key in found}


def is_attached(boot_id: str, disk_seq: str) -> bool:
    """Whether a disk of this boot has that number, which no other attachment of it ever gets."""
    if not disk_seq or boot_id != read("/proc/sys/kernel/random/boot_id"):
        return False
    return any(read(f"/sys/block/{name}/diskseq") == disk_seq for name in os.listdir("/sys/block"))


def _wwn(disk: str, udev: dict[str, str]) -> str | None:
    if known := read(f"{disk}/wwid") or read(f"{disk}/device/wwid"):
        return words(known)
    if known := udev.get("ID_WWN_WITH_EXTENSION") or udev.get("ID_WWN"):
        # udev writes the number where sysfs writes its kind too: the same words from both.
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
    try:
        if device_number(os.fstat(fd).st_rdev) != read(f"{disk}/dev"):
            return None
        return partition_uuid(fd, int(sector), int(number), int(start) * 512)
    finally:
        os.close(fd)
