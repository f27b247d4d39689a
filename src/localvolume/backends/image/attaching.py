"""Images in use: attached to loop devices, with links that lead there."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from localvolume.backends.fstools import BLOCK
from localvolume.backends.image import offline, store
from localvolume.backends.image.filesystem import sector_size
from localvolume.backends.image.links import Links
from localvolume.backends.image.store import IMAGES_PLACE, image_name, the_volume
from localvolume.backends.model import BackendFailed, Busy, NotThisVolume, Record
from localvolume.host.block.blockdev import InUse, NotABlockDevice, users_of
from localvolume.host.loop import attach as loopattach
from localvolume.host.loop.attach import Loop, NoLoopDevice, StillInUse
from localvolume.host.process.commandsync import Run
from localvolume.host.tree.trees import opened

# Held from choosing a loop device until a link leads to it: another thread might choose the same
# device and take the new link for an old one. One lock per process: all pools share the devices.
_attaching = threading.Lock()


@dataclass(eq=False)
class Attachments:
    """Images in use: attached to loop devices, with links that lead there."""

    links: Links
    run: Run

    @contextmanager
    def attached(self, pool: int, record: Record) -> Iterator[tuple[int, Loop]]:
        """Yield the record's open image and its loop device, where the link leads from now on.

        Raises NotThisVolume (also for a snapshot), BackendFailed, OSError.
        """
        if record.snapshot_of:
            raise NotThisVolume(f"{record.name} is a snapshot: it is never attached")
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
