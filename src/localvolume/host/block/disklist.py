"""Every disk and partition the kernel knows, from sysfs and the links of /dev/disk/by-id only.

This opens only the nodes of loop devices, and disks whose partitions' UUIDs the kernel does not
tell: looking wakes up no disk.
"""

import errno
import os
import re
from typing import Final, NamedTuple

from localvolume.host.block.identity import identity_of
from localvolume.host.block.sysfs import (
    SYS,
    base_of,
    block_number,
    disk_of,
    listing,
    partitions_of,
    read,
    uevent,
    words,
)

BY_ID: Final = "/dev/disk/by-id"

# Parts of a disk's path in sysfs; the first that is there counts.
_TRANSPORTS: Final = (
    (r"/nvme[^/]*/", "nvme"),
    (r"/usb\d+/", "usb"),
    (r"/mmc\d+/", "mmc"),
    (r"/session\d+/", "iscsi"),
    (r"/rport-", "fc"),
    (r"/end_device-", "sas"),
    (r"/ata\d+/", "sata"),
    (r"/xen[^/]*/|/vbd-", "xen"),
    (r"/host\d+/", "scsi"),
    (r"/virtio\d+/", "virtio"),
)


class RawDisk(NamedTuple):
    """One disk or partition at one moment; two that are equal are the same disk, unchanged."""

    #: The kernel's name (``sda1``) and its device node.
    name: str
    node: str
    #: ``major:minor``.
    device: str
    size_bytes: int
    #: The kernel's name of the disk that a partition is on; "" for a whole disk.
    parent: str
    #: See ``blockdev.BlockDevice.sequence``.
    sequence: str | None
    model: str
    vendor: str
    #: None if the kernel does not tell.
    rotational: bool | None
    #: ``nvme``, ``nvme-of`` (over a network, or not known), ``usb``, ``mmc``, ``iscsi``, ``fc``,
    #: ``sas``, ``sata``, ``xen``, ``scsi``, ``virtio``, ``loop``; "" where it is none of these.
    transport: str
    #: The kernel makes it from something else (device mapper, RAID, memory, network).
    virtual: bool
    removable: bool
    read_only: bool
    #: See ``identity.identity_of``, as sorted pairs.
    identity: tuple[tuple[str, str], ...]
    partitions: tuple[str, ...]
    #: Devices made from it; ``parent_holders`` those made from the whole disk of a partition.
    holders: tuple[str, ...]
    parent_holders: tuple[str, ...]
    #: The name that a partition has in its table (GPT), "" where it has none.
    part_name: str
    #: Names of the links to it in /dev/disk/by-id.
    links: tuple[str, ...]


def list_disks(by_id: str = BY_ID) -> list[RawDisk]:
    """Describe all disks and partitions, sorted by name; leave out those that go meanwhile."""
    links = _links(by_id)
    found: list[RawDisk] = []
    for name in listing(f"{SYS}/class/block"):
        device = read(f"{SYS}/class/block/{name}/dev")
        if device is None:
            continue
        try:
            disk = _describe(device, links.get(device, ()))
        except OSError:
            continue
        # Hidden ones are the paths below a multipath NVMe device and cannot be used.
        if read(f"{base_of(device)}/hidden") != "1":
            found.append(disk)
    return found


def describe_disk(device: str, by_id: str = BY_ID) -> RawDisk:
    """Describe ``major:minor`` again. Raises OSError: FileNotFoundError if it is gone."""
    return _describe(device, _links(by_id).get(device, ()))


def _describe(device: str, links: tuple[str, ...]) -> RawDisk:
    base = base_of(device)
    sectors, devname = read(f"{base}/size"), uevent(base).get("DEVNAME")
    if sectors is None or devname is None:
        raise FileNotFoundError(errno.ENOENT, f"the kernel has no block device {device}")
    disk = disk_of(base)
    node, size = f"/dev/{devname}", int(sectors) * 512
    rotational = read(f"{disk}/queue/rotational")
    transport = transport_of(disk)
    return RawDisk(
        name=os.path.basename(base),
        node=node,
        device=device,
        size_bytes=size,
        parent="" if disk == base else os.path.basename(disk),
        sequence=read(f"{disk}/diskseq"),
        model=words(read(f"{disk}/device/model") or ""),
        vendor=words(read(f"{disk}/device/vendor") or ""),
        rotational=None if rotational is None else rotational == "1",
        transport=transport,
        virtual=not transport,
        removable=read(f"{disk}/removable") == "1",
        read_only="1" in (read(f"{base}/ro"), read(f"{disk}/ro")),
        identity=tuple(sorted(identity_of(base, device, node, size).items())),
        partitions=tuple(partitions_of(base)),
        holders=tuple(listing(f"{base}/holders")),
        parent_holders=() if disk == base else tuple(listing(f"{disk}/holders")),
        part_name=uevent(base).get("PARTNAME", ""),
        links=links,
    )


def transport_of(disk: str) -> str:
    """Tell the transport from the disk's directory in sysfs (links resolved)."""
    if re.fullmatch(r"loop\d+", os.path.basename(disk)):
        return "loop"
    found = next((word for part, word in _TRANSPORTS if re.search(part, f"{disk}/")), "")
    return _nvme(disk) if found == "nvme" else found


def _nvme(disk: str) -> str:
    """Ask the controller that the disk is attached to, or all controllers of a multipath disk."""
    above = f"{disk}/device"
    ways = {read(f"{above}/transport")}
    ways |= {read(f"{above}/{name}/transport") for name in listing(above) if name[:4] == "nvme"}
    return "nvme" if ways - {None} == {"pcie"} else "nvme-of"


def _links(by_id: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in listing(by_id):
        if device := block_number(f"{by_id}/{name}"):
            found.setdefault(device, []).append(name)
    return {device: tuple(names) for device, names in found.items()}
