"""Whether an ext filesystem's superblock tells of an empty one, at rest and as large as its device.

Pure. Nothing of it is believed beyond that it says no: whoever had the device may have written it.
Offsets and bits: the kernel's fs/ext4/ext4.h.
"""

from __future__ import annotations

import struct
from typing import Final

from localvolume.host.filesystem.extsuper import ExtSuper, parse_super

# What mkfs.ext2, .ext3 and .ext4 give a filesystem unless they are asked for more, of any release.
# Others add places where something could lie, or change what the counts mean.
_HAS_JOURNAL, _ORPHAN_FILE = 0x4, 0x1000
_COMPAT: Final = (
    _HAS_JOURNAL | _ORPHAN_FILE | 0x8 | 0x10 | 0x20
)  # ext_attr, resize_inode, dir_index
_NEEDS_RECOVERY = 0x4
_INCOMPAT: Final = (
    0x2 | 0x40 | 0x80 | 0x200 | 0x2000
)  # filetype, extents, 64bit, flex_bg, csum_seed
_SPARSE_SUPER, _CHECKSUMS, _ORPHAN_PRESENT = 0x1, 0x10 | 0x400, 0x10000
# large_file, huge_file, dir_nlink, extra_isize
_RO_COMPAT: Final = _SPARSE_SUPER | _CHECKSUMS | 0x2 | 0x8 | 0x20 | 0x40

_VALID, _ERRORS = 1, 2  # s_state
_FIRST_INODE, _JOURNAL_INODE, _ORPHAN_INODE = 11, 8, 12

ROUNDING: Final = 64 << 10
"""mkfs makes a filesystem of whole pages, in bytes of the largest there are."""

UNPROVEN: Final = 1 << 30
"""Without checksums all tables of inodes must be read: so many bytes of them at most."""


def why_not_at_rest(raw: bytes, device_bytes: int) -> str | None:
    """Why what this superblock tells of is not an empty filesystem at rest, or None.

    The words are a clause: "with …", "which …".
    """
    found = parse_super(raw)
    if found is None or not _is_sane(found, raw):
        return "whose superblock makes no sense"
    return (
        _why_not_quiet(raw)
        or _why_unknown(raw)
        or _why_not_whole(found, device_bytes)
        or _why_not_unused(found, raw)
    )


def _is_sane(found: ExtSuper, raw: bytes) -> bool:
    """Whether one can reckon with it."""
    return (
        found.blocks_per_group > 0
        and found.inodes_per_group > 0
        and 32 <= found.descriptor_size <= found.block_size
        and 128 <= found.inode_size <= found.block_size
        and found.first_block == (1 if found.block_size == 1024 else 0)
        and found.free <= found.blocks
        and found.inodes_free <= found.inodes
        and _number(raw, 0x4C) == 1  # s_rev_level: the first one knows no features
        and _number(raw, 0x54) == _FIRST_INODE
    )


def _why_not_quiet(raw: bytes) -> str | None:
    state = _short(raw, 0x3A)
    if state & _ERRORS or _number(raw, 0x194):
        return "with errors on record"
    if _number(raw, 0x60) & _NEEDS_RECOVERY:
        return "whose journal is to be replayed"
    if _number(raw, 0xE8) or _number(raw, 0x64) & _ORPHAN_PRESENT:
        return "with files that were deleted while they were open"
    if state != _VALID:
        return "which was not unmounted"
    return None


def _why_unknown(raw: bytes) -> str | None:
    words = {
        "compat": (0x5C, _COMPAT),
        "incompat": (0x60, _INCOMPAT),
        "ro_compat": (0x64, _RO_COMPAT),
    }
    for word, (offset, known) in words.items():
        if unknown := _number(raw, offset) & ~known:
            return f"with features that are not looked into ({word} {unknown:#x})"
    if not _number(raw, 0x64) & _SPARSE_SUPER:
        return "without the feature sparse_super, which is not looked into"
    journal = _JOURNAL_INODE if _number(raw, 0x5C) & _HAS_JOURNAL else 0
    if (_number(raw, 0xE0), _number(raw, 0xE4)) != (journal, 0):
        return "whose journal is elsewhere"
    return None


def _why_not_whole(found: ExtSuper, device_bytes: int) -> str | None:
    size, own = found.block_size, found.blocks * found.block_size
    if own > device_bytes:
        return f"which is larger than its device: {own} of {device_bytes} bytes"
    if found.blocks < found.fitting(device_bytes // ROUNDING * ROUNDING // size):
        return f"which is smaller than its device: {own} of {device_bytes} bytes"
    return None


def _why_not_unused(found: ExtSuper, raw: bytes) -> str | None:
    orphans = bool(_number(raw, 0x5C) & _ORPHAN_FILE)
    if orphans and _number(raw, 0x280) != _ORPHAN_INODE:
        return "whose list of orphans is elsewhere"
    files = found.inodes - found.inodes_free - _FIRST_INODE - orphans
    if files > 0:
        return f"with {files} files or directories in it"
    more = found.blocks - found.free - found.overhead(found.blocks) - _first_blocks(found, orphans)
    if more > 0:
        return f"with {more} blocks more in use than an empty one has"
    if not _number(raw, 0x64) & _CHECKSUMS and found.inodes * found.inode_size > UNPROVEN:
        return "which is too large to be looked into without checksums of its groups"
    return None


def _first_blocks(found: ExtSuper, orphans: bool) -> int:
    """The blocks that mkfs uses beside tables and journal, at most."""
    numbers = found.block_size // 4
    directories = 1 + min(12, max(2, (16 << 10) // found.block_size))
    # What says where the journal lies: extents, or lists of blocks and lists of such lists.
    maps = 4 if found.extents else 3 + found.journal_blocks // numbers
    room_to_resize = 1
    return directories + maps + room_to_resize + (512 if orphans else 0)


def _number(raw: bytes, offset: int) -> int:
    return int(struct.unpack_from("<I", raw, offset)[0])


def _short(raw: bytes, offset: int) -> int:
    return int(struct.unpack_from("<H", raw, offset)[0])
