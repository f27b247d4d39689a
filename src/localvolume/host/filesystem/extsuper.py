"""What the superblock of an ext filesystem says, and how many of its blocks are left for data.

Layout: the kernel's fs/ext4/ext4.h, struct ext4_super_block, at byte 1,024. Counts are in blocks.
"""

import os
import struct
from typing import NamedTuple

from localvolume.host.syscalls import EXT_MAGIC

SUPER_START, SUPER_BYTES = 1024, 1024
_LARGEST_SHIFT = 6  # s_log_block_size: blocks of 64 KiB
_HAS_64BIT, _HAS_EXTENTS, _NEEDS_RECOVERY = 0x80, 0x40, 0x4  # s_feature_incompat
_CLEAN = 1  # s_state
# mke2fs and resize2fs drop a last group with fewer blocks than this beyond what it needs itself.
_LEAST_IN_GROUP = 50
# The groups that hold a copy of the superblock, except the first two (sparse_super).
_POWERS = frozenset(int(base**exponent) for base in (3, 5, 7) for exponent in range(1, 41))
# What our filesystems are made with, and what mke2fs chooses for them.
_BLOCK, _GROUP, _INODE, _DESCRIPTOR = 4096, 32768, 256, 64
#: The most blocks that the root directory, lost+found and the like take when empty.
INITIAL = 8


class ExtSuper(NamedTuple):
    """The geometry of one ext4 filesystem."""

    block_size: int
    blocks: int
    free: int
    reserved: int
    first_block: int
    blocks_per_group: int
    inodes_per_group: int
    inode_size: int
    descriptor_size: int
    reserved_descriptors: int
    journal_blocks: int
    inodes: int
    inodes_free: int
    mount_count: int
    #: Seconds since the epoch; 0 when it was never mounted for writing.
    mounted_at: int
    #: The counts are right: it was unmounted properly, or never mounted.
    clean: bool
    extents: bool

    def groups(self, blocks: int) -> int:
        return -(-(blocks - self.first_block) // self.blocks_per_group)

    def overhead(self, blocks: int) -> int:
        """What the filesystem's own tables would take if it had that many blocks."""
        groups = self.groups(blocks)
        per_block = self.block_size // self.descriptor_size
        copies = _copies(groups) * (1 + -(-groups // per_block) + self.reserved_descriptors)
        return self.first_block + groups * self._own_of_group() + copies + self.journal_blocks

    def held_back(self, blocks: int) -> int:
        """What the kernel keeps for itself (ext4_set_resv_clusters), and what is kept for root."""
        return (min(blocks // 50, 4096) if self.extents else 0) + self.reserved

    def room(self, blocks: int) -> int:
        """The blocks left for data if it had that many and were empty."""
        return blocks - self.overhead(blocks) - self.held_back(blocks) - INITIAL

    @property
    def available(self) -> int:
        """The blocks that statfs(2) would call available now."""
        return max(0, self.free - self.held_back(self.blocks))

    def blocks_for(self, wanted: int) -> int:
        """How many blocks it must have for that many blocks of data."""
        blocks = wanted
        while (short := wanted - self.room(blocks)) > 0:
            blocks += short
        dropped = self._tail_that_drops(blocks)
        if dropped:
            # A last group this small would be dropped.
            whole = blocks - dropped
            least = self._least_of_last(blocks)
            blocks = whole if self.room(whole) >= wanted else whole + least
        return blocks

    def fitting(self, blocks: int) -> int:
        """How many blocks a filesystem can have on a device of that many."""
        return blocks - self._tail_that_drops(blocks)

    def _tail_that_drops(self, blocks: int) -> int:
        """The blocks of the last group if it is too small to be kept, otherwise 0."""
        tail = (blocks - self.first_block) % self.blocks_per_group
        return tail if tail < self._least_of_last(blocks) else 0

    def _least_of_last(self, blocks: int) -> int:
        """The fewest blocks that the last group may have in a filesystem of that many."""
        tail = (blocks - self.first_block) % self.blocks_per_group
        least = self._own_of_group() + _LEAST_IN_GROUP
        if _holds_copy(self.groups(blocks) - 1):
            least += self.overhead(blocks) - self.overhead(blocks - tail) - self._own_of_group()
        return least

    def _own_of_group(self) -> int:
        """Two bitmaps and the table of inodes."""
        return 2 + -(-self.inodes_per_group * self.inode_size // self.block_size)


def planned(blocks: int, bytes_per_inode: int, journal_blocks: int) -> ExtSuper:
    """What mke2fs makes of that many blocks of 4 KiB, with our inode size and nothing reserved.

    Source: e2fsprogs' lib/ext2fs/initialize.c. Another release may differ by a little.
    """
    groups = -(-blocks // _GROUP)
    inodes = -(-blocks * _BLOCK // bytes_per_inode // groups)
    per_block = _BLOCK // _DESCRIPTOR
    # It may grow to 1,024 times its size, or to 2^32 blocks.
    most_groups = -(-min(blocks * 1024, 0xFFFFFFFF) // _GROUP)
    grows = -(-most_groups // per_block) - -(-groups // per_block)
    return ExtSuper(
        block_size=_BLOCK,
        blocks=blocks,
        free=0,
        reserved=0,
        first_block=0,
        blocks_per_group=_GROUP,
        inodes_per_group=-(-inodes // (_BLOCK // _INODE)) * (_BLOCK // _INODE),
        inode_size=_INODE,
        descriptor_size=_DESCRIPTOR,
        reserved_descriptors=min(grows, _BLOCK // 4),
        journal_blocks=journal_blocks,
        inodes=0,
        inodes_free=0,
        mount_count=0,
        mounted_at=0,
        clean=True,
        extents=True,
    )


class Root(NamedTuple):
    """The root directory's permission bits and owner."""

    mode: int
    uid: int
    gid: int


def read_root(fd: int) -> Root | None:
    """Read the root directory's inode; None if there is none. Raises OSError.

    Layout: struct ext4_group_desc and ext4_inode.
    """
    if (found := read_super(fd)) is None:
        return None
    size = found.block_size
    group = os.pread(fd, found.descriptor_size, (found.first_block + 1) * size)
    table = number(group, 0x8) | (number(group, 0x28) << 32 if len(group) >= 64 else 0)
    raw = os.pread(fd, 128, table * size + found.inode_size)  # the second inode
    if len(raw) < 128 or short(raw, 0) & 0o170000 != 0o040000:
        return None
    uid, gid = short(raw, 0x2) | short(raw, 0x78) << 16, short(raw, 0x18) | short(raw, 0x7A) << 16
    return Root(short(raw, 0) & 0o7777, uid, gid)


def read_super(fd: int) -> ExtSuper | None:
    """Read the superblock of an open image or device; None if there is none. Raises OSError."""
    return parse_super(os.pread(fd, SUPER_BYTES, SUPER_START))


def parse_super(raw: bytes) -> ExtSuper | None:
    """Parse a superblock; None if these bytes are not one. Checks only its magic and block size."""
    if len(raw) < SUPER_BYTES or short(raw, 0x38) != EXT_MAGIC:
        return None
    if (shift := number(raw, 0x18)) > _LARGEST_SHIFT:
        return None
    incompat = number(raw, 0x60)
    wide = bool(incompat & _HAS_64BIT)
    size = 1024 << shift

    def count(low: int, high: int) -> int:
        return number(raw, low) | (number(raw, high) << 32 if wide else 0)

    journal = number(raw, 0x10C + 16 * 4) | number(raw, 0x10C + 15 * 4) << 32
    return ExtSuper(
        block_size=size,
        blocks=count(0x4, 0x150),
        reserved=count(0x8, 0x154),
        free=count(0xC, 0x158),
        first_block=number(raw, 0x14),
        blocks_per_group=number(raw, 0x20),
        inodes_per_group=number(raw, 0x28),
        inode_size=short(raw, 0x58),
        descriptor_size=(short(raw, 0xFE) if wide else 0) or 32,
        reserved_descriptors=short(raw, 0xCE),
        journal_blocks=-(-journal // size),
        inodes=number(raw, 0x0),
        inodes_free=number(raw, 0x10),
        mount_count=short(raw, 0x34),
        mounted_at=number(raw, 0x2C),
        clean=bool(short(raw, 0x3A) & _CLEAN) and not incompat & _NEEDS_RECOVERY,
        extents=bool(incompat & _HAS_EXTENTS),
    )


def number(raw: bytes, offset: int) -> int:
    """A field of 32 bits."""
    return int(struct.unpack_from("<I", raw, offset)[0])


def short(raw: bytes, offset: int) -> int:
    """A field of 16 bits."""
    return int(struct.unpack_from("<H", raw, offset)[0])


def _holds_copy(group: int) -> bool:
    """Whether a group holds a copy of the superblock (sparse_super)."""
    return group <= 1 or group in _POWERS


def _copies(groups: int) -> int:
    """How many of the first groups hold a copy of the superblock."""
    return min(groups, 2) + sum(power < groups for power in _POWERS)
