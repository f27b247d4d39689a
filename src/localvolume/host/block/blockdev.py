"""What a block device is and who uses it, from sysfs, ioctls and udev's records if there are any.

Looking never opens the device where sysfs can answer: an open can hang on a dead disk, and makes
somebody else's removal of a logical volume fail as busy. (Loop devices and partition tables need a
short read-only open.)
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from localvolume.host.block.identity import identity_of
from localvolume.host.block.operations import (
    discard,
    discard_limits,
    flush_buffers,
    read_only,
    set_direct,
    size_bytes,
    zero_out,
)
from localvolume.host.block.signatures import (
    NotABlockDevice,
    Signature,
    SignatureUnknown,
    read_signature,
)
from localvolume.host.block.sysfs import (
    base_of,
    block_number,
    disk_of,
    listing,
    partitions_of,
    read,
)
from localvolume.host.loop.users import loops_on
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

# The one module to import for work on block devices.
__all__ = [
    "BlockDevice",
    "InUse",
    "NotABlockDevice",
    "Signature",
    "SignatureUnknown",
    "discard",
    "discard_limits",
    "exclusive_open",
    "flush_buffers",
    "loops_on",
    "probe_block_device",
    "read_signature",
    "set_direct",
    "size_bytes",
    "users_of",
    "zero_out",
]


class InUse(Exception):
    """Somebody holds the device: leave it alone until they let go. ``by`` says who, if known."""

    def __init__(self, path: str, by: tuple[str, ...]) -> None:
        super().__init__(f"{path} is in use" + (f" by {', '.join(by)}" if by else ""))
        self.by = by


class BlockDevice(NamedTuple):
    """One block device as the kernel describes it at one moment."""

    #: ``major:minor``: good for comparing now, never as an identity.
    device: str
    size_bytes: int
    read_only: bool
    #: See ``identity.identity_of``.
    identity: dict[str, str]
    #: Kernel names of devices made from this one or its partitions (``dm-0``, ``md127``).
    holders: tuple[str, ...]
    #: Kernel names of its partitions.
    partitions: tuple[str, ...]
    #: Counts attachments since boot (Linux 5.15): when it differs, a name was given to another
    #: disk, or another file or size was put under a loop device. None if unknown.
    sequence: int | None


def probe_block_device(path: str) -> BlockDevice:
    """Describe the block device ``path`` leads to, through symbolic links.

    Raises ``NotABlockDevice``, and OSError: FileNotFoundError also when the node is there but the
    kernel has no such device (any more).
    """
    found = os.stat(path)
    if not stat.S_ISBLK(found.st_mode):
        raise NotABlockDevice(f"{path} is not a block device")
    device = device_number(found.st_rdev)
    base = base_of(device)
    sectors = read(f"{base}/size")
    if sectors is None:
        raise FileNotFoundError(errno.ENOENT, f"the kernel has no block device {device}", path)
    partitions = tuple(partitions_of(base))
    holders = {name for part in ("", *partitions) for name in listing(f"{base}/{part}/holders")}
    size = int(sectors) * 512
    sequence = read(f"{disk_of(base)}/diskseq")
    return BlockDevice(
        device=device,
        size_bytes=size,
        read_only=read(f"{base}/ro") == "1",
        identity=identity_of(base, device, os.path.realpath(path), size),
        holders=tuple(sorted(holders)),
        partitions=partitions,
        sequence=int(sequence) if sequence else None,
    )


def exclusive_open(path: str, write: bool = True, *, device: str | None = None) -> int:
    """Open a block device so that nobody else can claim it meanwhile; returns the descriptor.

    While it is open, mounting it, putting it in a volume group or another exclusive open fails. A
    plain open by others, or a loop device over it, does not fail: see ``loops_on``.
    ``device`` (``major:minor``) is what it must be. Raises ``InUse``, ``NotABlockDevice`` (also
    when it is another device), OSError (EROFS: the device is read-only). Nothing but a block
    device is ever opened.
    """
    with closed_after(os.open(path, os.O_PATH | os.O_CLOEXEC)) as place:
        found = os.fstat(place)
        if not stat.S_ISBLK(found.st_mode):
            raise NotABlockDevice(f"{path} is not a block device")
        number = device_number(found.st_rdev)
        if device is not None and number != device:
            raise NotABlockDevice(f"{path} is now the device {number}, not {device}")
        mode = os.O_RDWR if write else os.O_RDONLY
        try:
            # Through the descriptor: the name may lead elsewhere by now.
            fd = os.open(f"/proc/self/fd/{place}", mode | os.O_EXCL | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise InUse(path, tuple(users_of(number))) from error
            raise OSError(error.errno, error.strerror, path) from error
        # The kernel lets one open a read-only device for writing, and fails the writes.
        if write and read_only(fd):
            os.close(fd)
            raise OSError(errno.EROFS, "the device is read-only", path)
        return fd


def users_of(device: str) -> list[str]:
    """Say in words who uses ``major:minor`` or a partition of it; empty when nobody is found."""
    base = base_of(device)
    found = []
    for directory in (base, *(f"{base}/{name}" for name in partitions_of(base))):
        name = os.path.basename(directory)
        number = read(f"{directory}/dev") or device
        found += [
            f"{name}: mounted at {mount.mount_point}"
            for mount in read_mount_table()
            # btrfs shows a device number of its own in the table; its source column is real.
            if number == mount.device
            or (mount.fs_type == "btrfs" and block_number(mount.source) == number)
        ]
        found += [f"{name}: held by {holder}" for holder in listing(f"{directory}/holders")]
        found += [f"{name}: loop device {loop}" for loop in loops_on(number)]
        found += [f"{name}: swap" for swap in _swaps() if block_number(swap) == number]
    return found


def _swaps() -> Iterator[str]:
    for line in (read("/proc/swaps") or "").splitlines()[1:]:
        yield line.split(maxsplit=1)[0]
