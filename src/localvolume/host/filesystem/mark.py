"""The kind, UUID and label of an ext4 or xfs on an open device, read through its descriptor.

This is what libblkid would say, but of the very device that is open. Use it for nothing else: never
conclude from it that a device holds nothing.
"""

import os
import struct
import uuid
from typing import Final, NamedTuple

_XFS_MAGIC: Final = b"XFSB"
_EXT_SUPER: Final = 1024
_EXT_MAGIC: Final = 0xEF53


class Mark(NamedTuple):
    """What a superblock says of itself."""

    fs_type: str
    uuid: str
    label: str
    #: Whether it was ever mounted for writing, as far as it tells: xfs does once it was unmounted.
    was_mounted: bool = False


def read_mark(fd: int) -> Mark | None:
    """Read the superblock of ext4 (2, 3) or xfs; None if there is neither. Raises OSError."""
    head = os.pread(fd, 4096, 0)
    if len(head) < 4096:
        return None
    if head[:4] == _XFS_MAGIC:
        # sb_lsn, of version 5: set by the first write of the superblock through the log.
        was_mounted = head[240:248] != bytes(8)
        return Mark("xfs", str(uuid.UUID(bytes=head[32:48])), _text(head[108:120]), was_mounted)
    if struct.unpack_from("<H", head, _EXT_SUPER + 56)[0] == _EXT_MAGIC:
        at = _EXT_SUPER + 104
        found, label = str(uuid.UUID(bytes=head[at : at + 16])), _text(head[at + 16 : at + 32])
        was_mounted = struct.unpack_from("<H", head, _EXT_SUPER + 52)[0] != 0
        return Mark("ext4", found, label, was_mounted)
    return None


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("ascii", "backslashreplace")
