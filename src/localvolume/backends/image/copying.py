"""Copy an image at one moment: a snapshot, or a volume with an identity of its own.

The copy shares the blocks of its origin until either is written to, so it takes no time and no
room at first (``host.filesystem.reflink``). The kernel lets nobody write to the origin while it is
cut: each write is in the copy, or none that began after it ended. Where blocks cannot be shared,
all is copied (``fullcopy``), if the class of the copy says so.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import time_ns
from typing import Final

from localvolume.backends.capacity import price, worth
from localvolume.backends.fstools import CHECKING_SECONDS, command, mounted_xfs
from localvolume.backends.image import filesystem, offline
from localvolume.backends.image.attaching import Attachments
from localvolume.backends.image.filesystem import Content, content_of, raw_bytes
from localvolume.backends.image.growing import NO_ROOM, grow_image
from localvolume.backends.image.measuring import anew
from localvolume.backends.image.store import IMAGES_PLACE, image_name, the_volume
from localvolume.backends.model import (
    BackendFailed,
    Impossible,
    NoSpace,
    Record,
    has_content_of,
)
from localvolume.backends.modes import no_mode_change
from localvolume.backends.still import written_out
from localvolume.host.block.blockdev import InUse, exclusive_open
from localvolume.host.filesystem import reflink
from localvolume.host.filesystem.allocation import allocate
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after, fstatfs
from localvolume.host.tree.trees import list_names, opened

NO_SHARING: Final = (
    "the pool's filesystem cannot share blocks between files: snapshots and clones of images need"
    " an xfs made with reflink=1, as mkfs.xfs does by default"
)

_READ_ONLY: Final = 0o400
# The UUID of an xfs, in its superblock at the very beginning.
_XFS_UUID: Final = (16, 32)


@dataclass(eq=False)
class Copying:
    """Copies images in pools; remembers which filesystems can.

    `in_full` is ``fullcopy.FullCopies.fill``.
    """

    run: Run
    at: Attachments
    in_full: Callable[[int, int, Record], int]
    _can: dict[tuple[int, int], bool] = field(default_factory=dict)

    def why_none(self, pool: int) -> str:
        """Why no image can be copied in this pool, "" if they can."""
        try:
            return "" if self._can_share(pool) else NO_SHARING
        except OSError as error:
            if error.errno in NO_ROOM:
                return ""  # not for want of room: that may come, and until then a copy says so
            return f"it is not known whether files can share blocks: {error.strerror}"

    def may_share(self, pool: int, records: Sequence[Record]) -> bool:
        """Whether images of these records may share blocks with any file in the pool.

        They may if one was copied, or if there is an image that none of the records is of: it can
        be a copy whose record is gone. Raises OSError.
        """
        if any(has_content_of(record) for record in records):
            return True
        try:
            if not self._can_share(pool):
                return False
        except OSError:
            pass  # full, for example
        known = {image_name(record) for record in records if record.state != "removed"}
        with opened(pool, IMAGES_PLACE) as images:
            return any(name.endswith(".img") and name not in known for name in list_names(images))

    def _can_share(self, pool: int) -> bool:
        with opened(pool, IMAGES_PLACE) as images:
            key = os.fstat(images).st_dev, fstatfs(images).magic
            if key not in self._can:
                self._can[key] = reflink.can_clone(images)
            return self._can[key]

    def fill(self, pool: int, fd: int, record: Record, origin: Record) -> Record:
        """Give the new, empty, open image the content of another; returns the record completed.

        Raises BackendFailed (NoSpace, Impossible, Busy) and OSError.
        """
        if record.full_copies and not self._can_share(pool):
            cut_at = self.in_full(pool, fd, origin)
        else:
            with self._settled(pool, origin) as source:
                # What was on disk by then is in it.
                cut_at = time_ns()
                clone_blocks(fd, source)
        if record.snapshot_of:
            return closed(fd, replace(record, cut_at=cut_at))
        content = content_of(record)
        if content == "ext4":
            self._identify_ext4(fd)
        elif content == "xfs":
            self._identify_xfs(fd)
        if record.size_bytes > origin.size_bytes:
            self._grow(pool, fd, record, content)
        if not record.sparse:
            allocate(fd, 0, os.fstat(fd).st_size)
        os.fsync(fd)
        if content == "raw" and origin.volume_mode != "Block":
            # The image of a filesystem is larger than the room in it, and all of it is shown.
            return replace(record, size_bytes=os.fstat(fd).st_size)
        return record

    @contextmanager
    def _settled(self, pool: int, origin: Record) -> Iterator[int]:
        """Yield the open image of the origin, which holds all that was written to the volume.

        While nobody uses the volume, nobody can begin to.
        """
        if origin.snapshot_of:
            with the_volume(pool, IMAGES_PLACE, image_name(origin), origin) as fd:
                yield fd
            return
        with self.at.attached(pool, origin) as (fd, loop):
            try:
                device = exclusive_open(loop.node, write=False, device=loop.device)
            except InUse:
                if (content := content_of(origin)) != "raw":
                    with written_out(loop.node, content):
                        pass
                device = os.open(loop.node, os.O_RDONLY | os.O_CLOEXEC)
            with closed_after(device):
                os.fsync(device)
                yield fd

    def _identify_ext4(self, fd: int) -> None:
        path = filesystem.path_of(fd)
        # This replays the journal. Exit status 1: there were errors, and they are corrected.
        command(self.run, ["e2fsck", "-f", "-p", path], CHECKING_SECONDS, good=(0, 1))
        command(self.run, ["tune2fs", "-U", "random", path], CHECKING_SECONDS)

    def _identify_xfs(self, fd: int) -> None:
        # Only the kernel replays a log, and by default it mounts no UUID twice.
        with self.at.borrowed(fd) as loop, mounted_xfs(loop.node, ("nouuid",)):
            pass
        before = os.pread(fd, *_XFS_UUID)
        # What xfs_admin does, which is a script for a shell.
        argv = ["xfs_db", "-x", "-f", "-p", "xfs_admin", "-c", "uuid generate"]
        done = command(self.run, [*argv, filesystem.path_of(fd)], CHECKING_SECONDS)
        if os.pread(fd, *_XFS_UUID) == before:
            # Its exit status is always 0.
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise BackendFailed(f"xfs_db: the UUID stays: {said[-1] if said else ''}")

    def _grow(self, pool: int, fd: int, record: Record, content: Content) -> None:
        if content == "raw":
            os.ftruncate(fd, max(raw_bytes(record.size_bytes), os.fstat(fd).st_size))
            return
        with opened(pool, IMAGES_PLACE) as images, self.at.borrowed(fd) as loop:
            resize = partial(offline.resize_by_tool, self.run, images, record, loop)
            grow_image(fd, loop, record, record.size_bytes, resize)


def check(record: Record, origin: Record) -> None:
    """Raise Impossible if no image can ever be made with that content."""
    if why := no_mode_change(origin, record.volume_mode):
        raise Impossible(why)
    if content_of(record) not in ("raw", content_of(origin)):
        raise Impossible(
            f"{origin.name} holds {content_of(origin)}: no volume of {content_of(record)} is made"
            " of it"
        )
    if record.size_bytes < origin.size_bytes:
        raise Impossible(f"{origin.name} has {origin.size_bytes} bytes, which are more")


def clone_blocks(fd: int, source: int) -> None:
    """Give an empty image the content of another. Raises Impossible and OSError."""
    try:
        reflink.clone(fd, source)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise Impossible(NO_SHARING) from error
        raise


def closed(fd: int, record: Record) -> Record:
    """The record of a snapshot whose image is complete. Raises NoSpace if that holds too much."""
    holds = os.fstat(fd).st_blocks * 512
    if anew(holds) > price("image", record.holds_bytes):
        # Otherwise room could be lacking that is promised to others.
        raise NoSpace(
            f"{record.snapshot_of} was written to meanwhile: the snapshot would hold {holds} bytes,"
            " and less room was found for it"
        )
    os.fchmod(fd, _READ_ONLY)
    os.fsync(fd)
    return replace(record, holds_bytes=worth("image", anew(holds)))
