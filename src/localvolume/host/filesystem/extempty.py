"""Whether the ext filesystem on a device is empty, found out by reading only.

The filesystem is not mounted for this: even a read-only mount without its journal removes orphans
and records errors. The superblock is judged first, because nearly every filesystem that is not
empty says so there. But a former user of the device may have written anything: so e2fsck then
proves the counts, and debugfs lists the root directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from localvolume.host.block.blockdev import InUse, NotABlockDevice, exclusive_open, size_bytes
from localvolume.host.filesystem.extsuper import (
    SUPER_BYTES,
    SUPER_START,
    ExtSuper,
    number,
    parse_super,
    short,
)
from localvolume.host.process.commands import CommandMissing, CommandTimedOut, Finished
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

# The features that mkfs.ext2, .ext3 and .ext4 of any release set unless asked for more. Others add
# locations where something could lie, or change what the counts mean.
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
"""mkfs makes a filesystem of whole pages; this is the largest page size there is, in bytes."""

UNPROVEN: Final = 1 << 30
"""Without checksums all inode tables must be read: at most this many bytes of them."""


# Whether a superblock describes an empty ext filesystem, at rest and as large as its device.
#
# Pure. The superblock is believed only when it says no: a former user of the device may have
# written it. Offsets and bits: the kernel's fs/ext4/ext4.h.


def why_not_at_rest(raw: bytes, device_bytes: int) -> str | None:
    """Why this superblock does not describe an empty filesystem at rest; None if it does.

    The reason is a clause: "with …", "which …".
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
    """Whether its figures are fit to calculate with."""
    return (
        found.blocks_per_group > 0
        and found.inodes_per_group > 0
        and 32 <= found.descriptor_size <= found.block_size
        and 128 <= found.inode_size <= found.block_size
        and found.first_block == (1 if found.block_size == 1024 else 0)
        and found.free <= found.blocks
        and found.inodes_free <= found.inodes
        and number(raw, 0x4C) == 1  # s_rev_level: revision 0 has no features
        and number(raw, 0x54) == _FIRST_INODE
    )


def _why_not_quiet(raw: bytes) -> str | None:
    state = short(raw, 0x3A)
    if state & _ERRORS or number(raw, 0x194):
        return "with errors on record"
    if number(raw, 0x60) & _NEEDS_RECOVERY:
        return "whose journal is to be replayed"
    if number(raw, 0xE8) or number(raw, 0x64) & _ORPHAN_PRESENT:
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
        if unknown := number(raw, offset) & ~known:
            return f"with features that are not looked into ({word} {unknown:#x})"
    if not number(raw, 0x64) & _SPARSE_SUPER:
        return "without the feature sparse_super, which is not looked into"
    journal = _JOURNAL_INODE if number(raw, 0x5C) & _HAS_JOURNAL else 0
    if (number(raw, 0xE0), number(raw, 0xE4)) != (journal, 0):
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
    orphans = bool(number(raw, 0x5C) & _ORPHAN_FILE)
    if orphans and number(raw, 0x280) != _ORPHAN_INODE:
        return "whose list of orphans is elsewhere"
    files = found.inodes - found.inodes_free - _FIRST_INODE - orphans
    if files > 0:
        return f"with {files} files or directories in it"
    more = found.blocks - found.free - found.overhead(found.blocks) - _first_blocks(found, orphans)
    if more > 0:
        return f"with {more} blocks more in use than an empty one has"
    if not number(raw, 0x64) & _CHECKSUMS and found.inodes * found.inode_size > UNPROVEN:
        return "which is too large to be looked into without checksums of its groups"
    return None


def _first_blocks(found: ExtSuper, orphans: bool) -> int:
    """The most blocks that mkfs uses besides tables and journal."""
    numbers = found.block_size // 4
    directories = 1 + min(12, max(2, (16 << 10) // found.block_size))
    # The map of the journal's blocks: extents, or lists of blocks and lists of such lists.
    maps = 4 if found.extents else 3 + found.journal_blocks // numbers
    room_to_resize = 1
    return directories + maps + room_to_resize + (512 if orphans else 0)


CHECK_SECONDS: Final = 20.0
LIST_SECONDS: Final = 5.0
LOOK_SECONDS: Final = CHECK_SECONDS + 3 * LIST_SECONDS + 5.0
"""How long all of it may take."""

_ENVIRONMENT = {"LC_ALL": "C", "DEBUGFS_PAGER": "__none__"}
_CORRECTABLE = 4  # e2fsck: errors are left uncorrected
_ROOT, _LOST_AND_FOUND = "<2>", "lost+found"


class CannotTell(Exception):
    """It is not known whether it is empty; the text says why. It must not pass for empty."""


def why_not_empty(path: str, device: str, run: Run) -> str | None:
    """Why the ext filesystem on an unused device ("major:minor") is not empty, at rest and as large
    as the device; None if it is all that. The reason is a clause: "with …", "which …".

    Blocks. Raises CannotTell, NotABlockDevice and OSError.
    """
    with _opened(path, device) as fd:
        # Uses the descriptor: the path may lead to another device by now.
        through = f"/proc/{os.getpid()}/fd/{fd}"
        before = os.pread(fd, SUPER_BYTES, SUPER_START)
        why = (
            why_not_at_rest(before, size_bytes(fd))
            or _why_not_sound(through, run)
            or _why_not_bare(through, run)
        )
        if os.pread(fd, SUPER_BYTES, SUPER_START) != before:
            raise CannotTell("it changed while it was looked into")
        try:
            os.close(exclusive_open(through, write=False, device=device))
        except InUse as error:
            raise CannotTell("it came to be used while it was looked into") from error
        return why


@contextmanager
def _opened(path: str, device: str) -> Iterator[int]:
    """Open the device for reading, and nothing but that very device."""
    with closed_after(os.open(path, os.O_PATH | os.O_CLOEXEC)) as place:
        found = os.fstat(place)
        if not stat.S_ISBLK(found.st_mode) or device_number(found.st_rdev) != device:
            raise NotABlockDevice(f"{path} is not the device {device} any more")
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    with closed_after(fd):
        yield fd


def _why_not_sound(through: str, run: Run) -> str | None:
    """Check that everything agrees: the maps of what is free, the counts, every inode in use.

    With -n, e2fsck opens the device read-only and answers "no" to its own questions.
    """
    done = _run(run, ["e2fsck", "-fn", through], CHECK_SECONDS)
    if done.returncode == _CORRECTABLE:
        return "in which e2fsck finds something to mend"
    if done.returncode != 0:
        raise CannotTell(f"e2fsck: {_last_words(done)}")
    return None


def _why_not_bare(through: str, run: Run) -> str | None:
    """Look for anything in the root besides lost+found, and for attributes of both directories.

    If there is nothing, lost+found is empty, too: it is the only inode in use that has a name.
    """
    found = _listed(_debugfs(f"ls -l -p {_ROOT}", through, run))
    directories = [_ROOT]
    for name, inode, mode in found:
        if name != _LOST_AND_FOUND or not stat.S_ISDIR(mode):
            return f"with {name!r} in it"
        directories.append(f"<{inode}>")
    for directory in directories:
        if _debugfs(f"ea_list {directory}", through, run).strip():
            return "with extended attributes on its directories"
    return None


def _listed(listing: str) -> list[tuple[str, int, int]]:
    """A directory's names, inodes and modes, from lines of "/inode/mode/uid/gid/name/size/".

    Raises CannotTell for a line of another form, such as a name with a newline in it makes.
    """
    found = []
    for line in filter(None, listing.split("\n")):
        try:
            _, inode, mode, _, _, name, _, _ = line.split("/")
            found.append((name, int(inode), int(mode, 8)))
        except ValueError:
            raise CannotTell(f"debugfs lists what cannot be read: {line[:80]!r}") from None
    if not any(name == "." for name, _, _ in found):
        raise CannotTell("debugfs lists no directory")
    # An entry of inode 0 is unused.
    return [one for one in found if one[0] not in (".", "..") and one[1]]


def _debugfs(request: str, through: str, run: Run) -> str:
    """What debugfs answers; it opens the device read-only unless told -w.

    It exits with 0 whatever happens, so anything on stderr besides its version is an error.
    """
    done = _run(run, ["debugfs", "-R", request, through], LIST_SECONDS)
    said = [line for line in done.stderr.split("\n") if line and not line.startswith("debugfs ")]
    if done.returncode != 0 or said:
        raise CannotTell(f"debugfs: {said[0] if said else _last_words(done)}")
    return done.stdout


def _run(run: Run, argv: list[str], seconds: float) -> Finished:
    try:
        done = run(argv, seconds, env=_ENVIRONMENT)
    except CommandMissing as error:
        raise CannotTell(f"this agent's image lacks {error}") from error
    except CommandTimedOut as error:
        raise CannotTell(str(error)) from error
    if done.truncated:
        raise CannotTell(f"{argv[0]} says more than is read")
    return done


def _last_words(done: Finished) -> str:
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[-1] if said else f"exit status {done.returncode}"
