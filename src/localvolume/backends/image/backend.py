"""The image backend: each volume is a file of its own, under a loop device with direct I/O.

A Filesystem volume has its own ext4 or xfs, which enforces the size; a Block volume is the loop
device itself. PersistentVolumes name a link below /run/localvolume that leads to the device.
"""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from localvolume.backends.fstools import (
    open_device,
)
from localvolume.backends.image import blocks, copying, filesystem, offline, store
from localvolume.backends.image.attaching import Attachments, translated
from localvolume.backends.image.copying import Copying
from localvolume.backends.image.filesystem import content_of
from localvolume.backends.image.fullcopy import STALL_SECONDS, FullCopies
from localvolume.backends.image.growing import NO_ROOM, grow_image
from localvolume.backends.image.links import LINKS, Links, one_name
from localvolume.backends.image.measuring import Surroundings, is_untouched, usage_of
from localvolume.backends.image.sharing import SECONDS, Sharing
from localvolume.backends.image.store import (
    IMAGES_PLACE,
    TRASH_PLACE,
    image_name,
    the_volume,
    trash_name,
)
from localvolume.backends.image.together import Begun, cut_together
from localvolume.backends.model import (
    Abilities,
    BackendFailed,
    BackendName,
    Blocks,
    Impossible,
    NoSpace,
    NotThisVolume,
    Progress,
    Record,
    Source,
    Usage,
)
from localvolume.backends.pool.overwriting import can_overwrite, check_overwriting
from localvolume.host.filesystem import reflink
from localvolume.host.filesystem.allocation import allocate, overwrite
from localvolume.host.filesystem.freezing import NOTES
from localvolume.host.loop import attach as loopattach
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.trees import opened, sync_directory

__all__ = ["ImageBackend", "Run"]


class ImageBackend:
    """Images in a pool; see ``model.Backend``.

    ``run`` runs host commands for a worker thread. ``links`` is where the links are made, as this
    process sees it; the host sees that directory as LINKS. ``counting`` is of ``Sharing``, and the
    others are of ``FullCopies``.
    """

    name: BackendName = "image"

    def __init__(
        self,
        run: Run,
        links: str = LINKS,
        stall: float = STALL_SECONDS,
        notes: str = NOTES,
        counting: float = SECONDS,
    ) -> None:
        self._run = run
        self._at = Attachments(Links(links), run)
        in_full = FullCopies(self._at, stall, notes)
        self._copying = Copying(run, self._at, in_full.fill)
        self._sharing = Sharing(counting)

    def identity(self, fd: int) -> int:
        """The inode number, which identifies an image."""
        return os.fstat(fd).st_ino

    def abilities(self, pool: int, path: str) -> Abilities:
        """What can be done here. An xfs always grows while mounted, an ext4 with CAP_SYS_RESOURCE:
        without it, growing a mounted ext4 fails, with that reason, until no pod uses it.
        """
        if why_not := loopattach.why_none():
            return Abilities(
                enforce=False,
                why_not=why_not,
                filesystem=False,
                overwrite=can_overwrite(pool),
                no_copies=why_not,
            )
        if shutil.which("mkfs.ext4") is None:
            why_not = "there is no mkfs.ext4: install e2fsprogs"
        return Abilities(
            enforce=True,
            why_not=why_not,
            block=True,
            filesystem=not why_not,
            overwrite=can_overwrite(pool),
            no_copies=(no_copies := self._copying.why_none(pool)),
            no_groups=no_copies,
            full_copies=True,
        )

    def make(self, pool: int, path: str, record: Record) -> Record:
        """Make the image, formatted and preallocated as the record says."""
        if why_not := loopattach.why_none():
            raise Impossible(why_not)
        filesystem.check(record)
        check_overwriting(pool, record)
        made = self._made(pool, path, record, lambda fd: self._filled(fd, record))
        with self._at.attached(pool, made):
            return made

    def copy(self, pool: int, path: str, record: Record, origin: Record) -> Record:
        """Make an image that shares its blocks with the origin's, or has copies of them; a snapshot
        stays detached.
        """
        why_not = loopattach.why_none()
        if not why_not and not record.full_copies:
            why_not = self._copying.why_none(pool)
        if why_not:
            raise Impossible(why_not)
        copying.check(record, origin)
        check_overwriting(pool, record)
        fill = partial(self._copying.fill, pool, record=record, origin=origin)
        try:
            made = self._made(pool, path, record, fill)
        finally:
            self._sharing.cut(pool, origin.inode)
        self._sharing.cut(pool, made.inode)
        if made.snapshot_of:
            return made
        with self._at.attached(pool, made):
            return made

    def blocks(
        self, pool: int, path: str, record: Record, base: Record | None, start: int
    ) -> Blocks:
        """From where the extents of the images lie; neither is read or attached."""
        with ExitStack() as images, translated():
            fd = images.enter_context(the_volume(pool, IMAGES_PLACE, image_name(record), record))
            other = None
            if base is not None:
                other = images.enter_context(the_volume(pool, IMAGES_PLACE, image_name(base), base))
            return blocks.blocks(fd, other, start)

    def cut_together(
        self, pool: int, path: str, members: Sequence[tuple[Record, Record]]
    ) -> Sequence[Record]:
        """Cut images of which the filesystems all keep still meanwhile."""
        if why_not := loopattach.why_none() or self._copying.why_none(pool):
            raise Impossible(why_not)
        for record, origin in members:
            copying.check(record, origin)
            check_overwriting(pool, record)
        try:
            with ExitStack() as images:
                begun = [
                    Begun(images.enter_context(self._new_image(pool, path, record)), record, origin)
                    for record, origin in members
                ]
                return cut_together(self._at, pool, begun)
        finally:
            self._sharing.cut(pool, *(origin.inode for _, origin in members))

    def _made(self, pool: int, path: str, record: Record, fill: Callable[[int], Record]) -> Record:
        """Make a new image, filled as said, and return the record with its inode."""
        with self._new_image(pool, path, record) as fd:
            return replace(fill(fd), inode=os.fstat(fd).st_ino)

    @contextmanager
    def _new_image(self, pool: int, path: str, record: Record) -> Iterator[int]:
        """Yield a new, open image, which is on disk afterwards; it goes if anything is raised."""
        self.unmake(pool, path, record)
        with translated(), opened(pool, IMAGES_PLACE) as images:
            store.begin(images, record)
            fd = os.open(
                image_name(record),
                os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=images,
            )
            try:
                with _no_room_told(record):
                    yield fd
                sync_directory(images)
            except BaseException:
                # A full pool must not stay full until the next attempt.
                with suppress(OSError):
                    os.unlink(image_name(record), dir_fd=images)
                    offline.forget(images, record)
                    store.ended(images, record)
                raise
            finally:
                os.close(fd)

    def _filled(self, fd: int, record: Record) -> Record:
        filesystem.make_content(self._run, fd, record, self._at.borrowed)
        if not record.sparse:
            allocate(fd, 0, os.fstat(fd).st_size)
        os.fsync(fd)
        return record

    def unmake(self, pool: int, path: str, record: Record) -> None:
        """Take away the image, its loop device and its link, as far as they are there."""
        name = image_name(record)
        with translated(), opened(pool, IMAGES_PLACE) as images:
            if store.is_anything(images, record):
                if not store.is_ours(images, record):
                    raise NotThisVolume(f"{name} is there already, and no record explains it")
                with store.the_image(pool, IMAGES_PLACE, name, None) as fd:
                    self._at.let_go(pool, record, fd)
                    os.unlink(name, dir_fd=images)
                    sync_directory(images)
            offline.forget(images, record)
            store.ended(images, record)

    def attach(self, pool: int, path: str, record: Record) -> None:
        """Attach the image to a loop device, unless it is already, and make the link lead there.

        A snapshot stays detached.
        """
        if record.snapshot_of:
            with opened(pool, IMAGES_PLACE) as images:
                store.ended(images, record)
            return
        with self._at.attached(pool, record), opened(pool, IMAGES_PLACE) as images:
            # Its record has its inode by now.
            store.ended(images, record)

    @contextmanager
    def ready(self, pool: int, path: str, record: Record) -> Iterator[Source]:
        """Its loop device."""
        content = content_of(record)
        with (
            self._at.attached(pool, record) as (_, loop),
            closed_after(open_device(loop.node, loop.device)) as fd,
        ):
            fs_type = "" if content == "raw" else content
            yield Source(record=record, fd=fd, device=loop.node, fs_type=fs_type)

    def astray(self, pool: int, path: str, records: Sequence[Record]) -> list[str]:
        """Those whose link leads to a loop device that has another file, or none, behind it."""
        return self._at.astray(pool, records)

    def host_path(self, host_dir: str, pool_id: str, record: Record) -> str:
        """The link that the PersistentVolume names."""
        if not one_name(pool_id) or not one_name(record.name):
            raise NotThisVolume(f"not a name: {pool_id!r}, {record.name!r}")
        return f"{LINKS}/{pool_id}/{record.name}"

    def grow(self, pool: int, path: str, record: Record, size_bytes: int) -> Record:
        """Grow the image, the loop device and the filesystem; online if the kernel lets us."""
        if size_bytes < record.size_bytes:
            raise Impossible(f"volumes do not shrink (from {record.size_bytes} to {size_bytes})")
        if size_bytes > record.size_bytes:
            with self._at.attached(pool, record) as (fd, loop):
                resize = partial(self._at.resize_hidden, pool, record, loop)
                grow_image(fd, loop, record, size_bytes, resize)
        return replace(record, size_bytes=size_bytes)

    def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
        """From the mounted filesystem, an unmounted ext4's superblock or the image's blocks."""
        found = {}
        surroundings = Surroundings()
        look = self._sharing.look(pool) if self._copying.may_share(pool, records) else None
        for record in records if look is None else look.in_turn(records):
            place, name = _place_of(record)
            # A volume that cannot be measured now is left out; attaching it reports what is wrong.
            with (
                suppress(OSError, BackendFailed),
                store.the_image(pool, place, name, record.inode) as fd,
            ):
                found[record.name] = usage_of(fd, record, surroundings, look)
        return found

    def retire(self, pool: int, path: str, record: Record) -> None:
        """Detach the image and move it into the trash."""
        name, trash = image_name(record), trash_name(record)
        with translated():
            place, here = IMAGES_PLACE, name
            if not store.is_there(pool, place, name, record):
                place, here = TRASH_PLACE, trash
            with the_volume(pool, place, here, record) as fd:
                self._at.let_go(pool, record, fd)
            if place == IMAGES_PLACE:
                store.move(pool, place, name, TRASH_PLACE, trash)
            with opened(pool, IMAGES_PLACE) as images:
                store.ended(images, record)

    def purge(
        self,
        pool: int,
        path: str,
        record: Record,
        *,
        stop: threading.Event,
        files_per_second: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Delete the image in the trash; overwrite it first if the record demands it."""
        trash = trash_name(record)
        tell = progress or (lambda files, count: None)
        written = 0

        def on(count: int) -> None:
            nonlocal written
            if stop.is_set():
                raise BackendFailed("stopped while it was overwritten")
            written += count
            tell(0, written)

        with translated():
            if not store.is_there(pool, TRASH_PLACE, trash, record):
                return
            with the_volume(pool, TRASH_PLACE, trash, record) as fd:
                self._at.let_go(pool, record, fd)
                size = os.fstat(fd).st_blocks * 512
                if stop.is_set():
                    raise BackendFailed("stopped before it was deleted")
                if record.overwrite:
                    # Until the end, what others have as well would be there twice.
                    overwrite(fd, on, free=reflink.shared_bytes(fd) > 0)
                with opened(pool, IMAGES_PLACE) as images:
                    offline.forget(images, record)
                with opened(pool, TRASH_PLACE) as parent:
                    os.unlink(trash, dir_fd=parent)
                    sync_directory(parent)
        self._sharing.cut(pool, record.inode)
        tell(1, max(size, written))

    def is_untouched(self, pool: int, path: str, record: Record) -> bool:
        """Whether a raw image holds no data, or an ext4 was never mounted."""
        place, name = _place_of(record)
        try:
            with store.the_image(pool, place, name, record.inode) as fd:
                return is_untouched(fd, record)
        except (OSError, BackendFailed):
            return False


def _place_of(record: Record) -> tuple[str, str]:
    if record.state == "removed":
        return TRASH_PLACE, trash_name(record)
    return IMAGES_PLACE, image_name(record)


@contextmanager
def _no_room_told(record: Record) -> Iterator[None]:
    """Translate what the pool's filesystem says when a file is filled."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NoSpace(f"the pool has no room for {record.size_bytes} bytes") from error
        if error.errno == errno.EOPNOTSUPP:
            raise Impossible("the pool's filesystem reserves no room: use sparse") from error
        raise
