"""What an image holds, what it takes of its pool, and whether anybody ever wrote to it."""

import os
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from localvolume.backends.fstools import ext_super, mounted_usage, unmounted_ext4_usage
from localvolume.backends.image.filesystem import content_of
from localvolume.backends.image.growing import begun_bytes
from localvolume.backends.image.sharing import Look
from localvolume.backends.model import BackendFailed, Record, Usage
from localvolume.host.filesystem.allocation import has_data
from localvolume.host.loop import attach as loopattach
from localvolume.host.loop.attach import Loop
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.syscalls import closed_after


class Surroundings:
    """The machine's loop devices and mounts, each read once for all volumes, on first use."""

    @cached_property
    def loops(self) -> dict[tuple[int, int], Loop]:
        return {loop.behind: loop for loop in loopattach.attached()}

    @cached_property
    def mounts(self) -> MountTable:
        return read_mount_table()


def usage_of(fd: int, record: Record, surroundings: Surroundings, look: Look | None) -> Usage:
    """What the open image holds, as far as known, and what it takes of its pool.

    `look` tells what it shares with other files; None: it can share nothing. Raises OSError.
    """
    if record.snapshot_of:
        taken = os.fstat(fd).st_blocks * 512
        return Usage(used_bytes=taken, taken_bytes=taken, outstanding_bytes=0)
    usage, begun = None, 0
    with suppress(OSError, BackendFailed):
        usage = _held(fd, record, surroundings)
    with suppress(OSError, BackendFailed):
        begun = begun_bytes(fd, record)
    found = os.fstat(fd)
    taken = found.st_blocks * 512
    outstanding = 0
    if record.state != "removed":  # an image in the trash takes nothing more
        outstanding = max(0, found.st_size + maps_of(found.st_size) - taken)
        outstanding += anew(look.shared_bytes(fd)) if look is not None else 0
    return replace(
        usage or Usage(), begun_bytes=begun, taken_bytes=taken, outstanding_bytes=outstanding
    )


def maps_of(size_bytes: int) -> int:
    """What the pool's filesystem takes at most to tell where so many bytes of a file lie.

    A tenant decides in which order blocks are written, and so in how many pieces a file comes to
    lie. In pieces of one block each, ext4 has taken 0.3 % for that, and xfs 0.5 %.
    """
    return size_bytes // 100


def anew(shared: int) -> int:
    """What writing so many shared bytes takes of the pool: they get a new place, and maps."""
    return shared + maps_of(shared)


def _held(fd: int, record: Record, surroundings: Surroundings) -> Usage | None:
    found = os.fstat(fd)
    content = content_of(record)
    if content == "raw":
        return Usage(used_bytes=found.st_blocks * 512)
    loop = surroundings.loops.get((found.st_dev, found.st_ino))
    if loop is not None:
        usage = mounted_usage(surroundings.mounts, loop.device)
        if usage is not None:
            return usage
    # The superblock of an unmounted xfs may be out of date, and so may that of an ext4 that is
    # mounted where we do not see it.
    return unmounted_ext4_usage(fd if loop is None else loop.node) if content == "ext4" else None


def is_untouched(fd: int, record: Record) -> bool:
    """Whether nobody ever wrote to the volume in the open image; False if unknown.

    Raises OSError, BackendFailed.
    """
    content = content_of(record)
    loops = loopattach.on_file(fd)
    for loop in loops:
        # What was written to the device may not have reached the file yet.
        with closed_after(os.open(loop.node, os.O_RDONLY | os.O_CLOEXEC)) as device:
            os.fsync(device)
    if content == "raw":
        return not has_data(fd)
    if content == "xfs":
        return False
    places: list[int | str] = [fd, *(loop.node for loop in loops)]
    return all(not found.mounted_at and not found.mount_count for found in map(ext_super, places))
