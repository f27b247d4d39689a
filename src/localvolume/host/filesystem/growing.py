"""Let a mounted filesystem grow to the size of its device, by the ioctls its own tools use.

Those tools insist on finding the mount in a table, by the name of the device. The kernel only needs
a descriptor of any directory in it, even of a mount that nobody else sees.
"""

import fcntl
import os
import struct
from typing import NamedTuple

from localvolume.host.syscalls import ioc

# fs/ext4/ext4.h: the new number of blocks
_EXT4_RESIZE = ioc(1, ord("f"), 16, 8)
# libxfs/xfs_fs.h: struct xfs_growfs_data, the new number of blocks and the share for inodes
_XFS_GROW = ioc(1, ord("X"), 110, 16)
_XFS_GEOMETRY = ioc(2, ord("X"), 100, 112)
_XFS_BLOCK = 4096
# What the kernel keeps for itself once mounted: a part of every allocation group for reference
# counts and free inodes (measured: 0.697 %), and a part of the whole, to be able to free anything
# when full (xfs_default_resblks).
_XFS_OF_GROUPS = 0.00698
_XFS_RESERVE, _XFS_RESERVE_MOST = 20, 8192


class XfsGeometry(NamedTuple):
    """The sizes of an xfs filesystem, in blocks of ``block_size`` bytes."""

    block_size: int
    blocks: int
    log_blocks: int
    groups: int
    #: Percent of the room that inodes may take.
    inode_share: int

    def room(self, blocks: int) -> int:
        """The blocks left for data if it had that many and were empty; within 0.1 %."""
        kept = min(blocks // _XFS_RESERVE, _XFS_RESERVE_MOST) + int(blocks * _XFS_OF_GROUPS)
        return blocks - self.log_blocks - kept

    def blocks_for(self, wanted: int) -> int:
        """How many blocks it must have for that many blocks of data."""
        blocks = wanted
        while (short := wanted - self.room(blocks)) > 0:
            blocks += short
        return blocks


def xfs_geometry(fd: int) -> XfsGeometry:
    """Ask the filesystem that an open directory lies in. Raises OSError."""
    answer = fcntl.ioctl(fd, _XFS_GEOMETRY, bytes(112))
    block_size, _, _, groups, log_blocks, _, _, share, blocks = struct.unpack_from("=8IQ", answer)
    return XfsGeometry(block_size, blocks, log_blocks, groups, share)


def xfs_on_disk(fd: int) -> XfsGeometry | None:
    """Read the superblock of an open image; while it is mounted, the size may be a moment old.
    Returns None if there is none that we made. Raises OSError.

    Layout: fs/xfs/libxfs/xfs_format.h, struct xfs_dsb.
    """
    raw = os.pread(fd, 128, 0)
    if len(raw) < 128 or raw[:4] != b"XFSB":
        return None
    block_size, blocks = struct.unpack_from(">IQ", raw, 4)
    if block_size != _XFS_BLOCK:
        return None
    groups, log_blocks = struct.unpack_from(">I4xI", raw, 88)
    return XfsGeometry(block_size, blocks, log_blocks, groups, raw[127])


def grow_xfs(fd: int, geometry: XfsGeometry, blocks: int) -> None:
    """Grow the filesystem to that many blocks; fewer than it has are refused. Raises OSError."""
    fcntl.ioctl(fd, _XFS_GROW, struct.pack("=QIi", blocks, geometry.inode_share, 0))


def grow_ext4(fd: int, blocks: int) -> None:
    """Grow the filesystem to that many blocks. Raises OSError: EPERM without CAP_SYS_RESOURCE."""
    fcntl.ioctl(fd, _EXT4_RESIZE, struct.pack("=Q", blocks))
