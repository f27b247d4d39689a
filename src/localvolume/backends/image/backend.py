"""The image backend: each volume is a file of its own, under a loop device with direct I/O.

A Filesystem volume has its own ext4 or xfs, which enforces the size; a Block volume is the loop
device itself. PersistentVolumes name a link below /run/localvolume that leads to the device.
"""

import errno
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

from localvolume.backends.fstools import (
    BLOCK,
    ext_super,
    mounted_usage,
    open_device,
    unmounted_ext4_usage,
)
from localvolume.backends.image import filesystem, offline, store
from localvolume.backends.image.filesystem import content_of, sector_size
from localvolume.backends.image.growing import NO_ROOM, begun_bytes, grow_image
from localvolume.backends.image.links import LINKS, Links, one_name
from localvolume.backends.image.store import (
    IMAGES_PLACE,
    TRASH_PLACE,
    image_name,
    the_volume,
    trash_name,
)
from localvolume.backends.model import (
    Abilities,
    BackendFailed,
    BackendName,
    Busy,
    Impossible,
    NoSpace,
    NotThisVolume,
    Progress,
    Record,
    Source,
    Usage,
)
from localvolume.backends.pool.overwriting import can_overwrite, check_overwriting
from localvolume.host.block.blockdev import InUse, NotABlockDevice, users_of
from localvolume.host.filesystem.allocation import allocate, has_data, overwrite
from localvolume.host.loop import attach as loopattach
from localvolume.host.loop.attach import Loop, NoLoopDevice, StillInUse
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.trees import opened, sync_directory

__all__ = ["ImageBackend", "Run"]

# Held from choosing a loop device until a link leads to it: another thread might choose the same
# device and take the new link for an old one. One lock per process: all pools share the devices.
_attaching = threading.Lock()


class ImageBackend:
    """Images in a pool; see ``model.Backend``.

    ``run`` runs host commands for a worker thread. ``links`` is where the links are made, as this
    process sees it; the host sees that directory as LINKS.
    """

    name: BackendName = "image"

    def __init__(self, run: Run, links: str = LINKS) -> None:
        self._run = run
        self._at = Attachments(Links(links), run)

    def identity(self, fd: int) -> int:
        """The inode number, which identifies an image."""
        return os.fstat(fd).st_ino

    def abilities(self, pool: int, path: str) -> Abilities:
        """What can be done here. An xfs always grows while mounted, an ext4 with CAP_SYS_RESOURCE:
        without it, growing a mounted ext4 fails, with that reason, until no pod uses it.
        """
        if why_not := loopattach.why_none():
            return Abilities(
                enforce=False, why_not=why_not, filesystem=False, overwrite=can_overwrite(pool)
            )
        if shutil.which("mkfs.ext4") is None:
            why_not = "there is no mkfs.ext4: install e2fsprogs"
        return Abilities(
            enforce=True,
            why_not=why_not,
            block=True,
            filesystem=not why_not,
            overwrite=can_overwrite(pool),
        )

    def make(self, pool: int, path: str, record: Record) -> Record:
        """Make the image, formatted and preallocated as the record says."""
        if why_not := loopattach.why_none():
            raise Impossible(why_not)
        filesystem.check(record)
        check_overwriting(pool, record)
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
                self._fill(fd, record)
                sync_directory(images)
                made = replace(record, inode=os.fstat(fd).st_ino)
            except BaseException:
                # A full pool must not stay full until the next attempt.
                with suppress(OSError):
                    os.unlink(image_name(record), dir_fd=images)
                    store.ended(images, record)
                raise
            finally:
                os.close(fd)
        with self._at.attached(pool, made):
            return made

    def _fill(self, fd: int, record: Record) -> None:
        try:
            filesystem.make_content(self._run, fd, record, self._at.borrowed)
            if not record.sparse:
                allocate(fd, 0, os.fstat(fd).st_size)
            os.fsync(fd)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoSpace(f"the pool has no room for {record.size_bytes} bytes") from error
            if error.errno == errno.EOPNOTSUPP:
                raise Impossible("the pool's filesystem reserves no room: use sparse") from error
            raise

    def copy(self, pool: int, path: str, record: Record, origin: Record) -> Record:
        """Always raises, as `abilities` say."""
        raise Impossible(self.abilities(pool, path).no_copies)

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
        """Attach the image to a loop device, unless it is already, and make the link lead there."""
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
        for record in records:
            place, name = _place_of(record)
            # A volume that cannot be measured now is left out; attaching it reports what is wrong.
            with (
                suppress(OSError, BackendFailed),
                store.the_image(pool, place, name, record.inode) as fd,
            ):
                found[record.name] = _usage_of(fd, record, surroundings)
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
                    overwrite(fd, on)
                with opened(pool, IMAGES_PLACE) as images:
                    offline.forget(images, record)
                with opened(pool, TRASH_PLACE) as parent:
                    os.unlink(trash, dir_fd=parent)
                    sync_directory(parent)
        tell(1, max(size, written))

    def is_untouched(self, pool: int, path: str, record: Record) -> bool:
        """Whether a raw image holds no data, or an ext4 was never mounted."""
        place, name = _place_of(record)
        try:
            with store.the_image(pool, place, name, record.inode) as fd:
                return _is_untouched(fd, record)
        except (OSError, BackendFailed):
            return False


def _place_of(record: Record) -> tuple[str, str]:
    if record.state == "removed":
        return TRASH_PLACE, trash_name(record)
    return IMAGES_PLACE, image_name(record)


@dataclass(eq=False)
class Attachments:
    """Images in use: attached to loop devices, with links that lead there."""

    links: Links
    run: Run

    @contextmanager
    def attached(self, pool: int, record: Record) -> Iterator[tuple[int, Loop]]:
        """Yield the record's open image and its loop device, where the link leads from now on.

        Raises NotThisVolume, BackendFailed, OSError.
        """
        with translated(), the_volume(pool, IMAGES_PLACE, image_name(record), record) as fd:
            pool_id = store.pool_id(pool)
            with _attaching:
                loop = self._linked(pool_id, record, fd)
                if loop is None:
                    if self._is_astray(pool_id, record, os.fstat(fd)):
                        # Before attaching, which may fail.
                        self.links.remove(pool_id, record.name)
                    block_size = sector_size(record)
                    loop = loopattach.attach(fd, block_size=block_size, chosen=self.links.disown)
            with opened(pool, IMAGES_PLACE) as images:
                if offline.is_half_done(images, record):
                    self.links.remove(pool_id, record.name)
                    offline.take_back(self.run, images, record, loop)
            self.links.lead(pool_id, record.name, loop.node)
            yield fd, loop

    def resize_hidden(self, pool: int, record: Record, loop: Loop, blocks: int) -> None:
        """Resize the unmounted ext4 on the record's loop device to that many blocks, by its tools.

        Raises BackendFailed; no link leads there then if the attempt could not be taken back.
        """
        pool_id = store.pool_id(pool)
        with translated(), opened(pool, IMAGES_PLACE) as images:
            self.links.remove(pool_id, record.name)
            try:
                offline.resize_by_tool(self.run, images, record, loop, blocks)
            finally:
                if not offline.is_half_done(images, record):
                    self.links.lead(pool_id, record.name, loop.node)

    @contextmanager
    def borrowed(self, fd: int) -> Iterator[Loop]:
        """Attach an open image to a loop device for a while; no link leads there."""
        with ExitStack() as stack:
            with _attaching:
                borrowing = loopattach.borrowed(fd, block_size=BLOCK, chosen=self.links.disown)
                loop = stack.enter_context(borrowing)
            yield loop

    def _linked(self, pool_id: str, record: Record, fd: int) -> Loop | None:
        """The loop device that its link leads to, if its image is behind that."""
        node = self.links.target(pool_id, record.name)
        if not node.startswith("/dev/loop"):
            return None
        loop = loopattach.look(node)
        found = os.fstat(fd)
        if loop is None or not loop.ours or loop.behind != (found.st_dev, found.st_ino):
            return None
        return loop

    def astray(self, pool: int, records: Sequence[Record]) -> list[str]:
        """As the backend's `astray`; leaves out what cannot be seen. Raises OSError."""
        pool_id = store.pool_id(pool)
        found = []
        with opened(pool, IMAGES_PLACE) as images:
            for record in records:
                with suppress(OSError):
                    image = os.stat(image_name(record), dir_fd=images, follow_symlinks=False)
                    if self._is_astray(pool_id, record, image):
                        found.append(record.name)
        return found

    def _is_astray(self, pool_id: str, record: Record, image: os.stat_result) -> bool:
        node = self.links.target(pool_id, record.name)
        if not node:
            return False
        loop = loopattach.look(node) if node.startswith("/dev/loop") else None
        return loop is None or loop.behind != (image.st_dev, image.st_ino)

    def let_go(self, pool: int, record: Record, fd: int) -> None:
        """Detach the record's open image, link first. Raises Busy while it is in use."""
        pool_id = store.pool_id(pool)
        with translated():
            loops = loopattach.on_file(fd)
            for loop in loops:
                if users := users_of(loop.device):
                    raise Busy(f"{record.name} is in use: {', '.join(users)}")
            # First remove the link: it must never lead to a device that may be another's by then.
            self.links.remove(pool_id, record.name)
            for loop in loops:
                try:
                    loopattach.detach(loop)
                except BaseException:
                    if len(loops) == 1:
                        self.links.lead(pool_id, record.name, loop.node)
                    raise


@contextmanager
def translated() -> Iterator[None]:
    """Translate the errors of loop devices into those of the protocol."""
    try:
        yield
    except (StillInUse, InUse) as error:
        raise Busy(f"it is in use: {error}") from error
    except (NoLoopDevice, NotABlockDevice) as error:
        raise BackendFailed(str(error)) from error


class Surroundings:
    """The machine's loop devices and mounts, each read once for all volumes, on first use."""

    @cached_property
    def loops(self) -> dict[tuple[int, int], Loop]:
        return {loop.behind: loop for loop in loopattach.attached()}

    @cached_property
    def mounts(self) -> MountTable:
        return read_mount_table()


def _usage_of(fd: int, record: Record, surroundings: Surroundings) -> Usage:
    """What the open image holds, as far as known, and what it takes of its pool.

    Raises OSError.
    """
    usage, begun = None, 0
    with suppress(OSError, BackendFailed):
        usage = _held(fd, record, surroundings)
    with suppress(OSError, BackendFailed):
        begun = begun_bytes(fd, record)
    found = os.fstat(fd)
    taken = found.st_blocks * 512
    return replace(
        usage or Usage(),
        begun_bytes=begun,
        taken_bytes=taken,
        # An image in the trash takes nothing more.
        outstanding_bytes=0 if record.state == "removed" else max(0, found.st_size - taken),
    )


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


def _is_untouched(fd: int, record: Record) -> bool:
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
