"""An image in use: under its loop device, with the link that leads there; and out of use again."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from localvolume.backends.fstools import BLOCK
from localvolume.backends.image import offline, store
from localvolume.backends.image.filesystem import sector_size
from localvolume.backends.image.links import Links
from localvolume.backends.image.store import IMAGES_PLACE, image_name, the_volume
from localvolume.backends.model import BackendFailed, Record
from localvolume.host.block.blockdev import InUse, NotABlockDevice, users_of
from localvolume.host.loop import attach
from localvolume.host.loop.attach import Loop, NoLoopDevice, StillInUse
from localvolume.host.process.commandsync import Run
from localvolume.host.tree.trees import opened

# From choosing a loop device until a link leads to it: another thread may choose the same one, and
# would take the new link for an old one. Of the whole process, as all pools have the same devices.
_attaching = threading.Lock()


class Attachments:
    """Loop devices of images and the links to them."""

    def __init__(self, links: Links, run: Run) -> None:
        self._links = links
        self._run = run

    @contextmanager
    def attached(self, pool: int, record: Record) -> Iterator[tuple[int, Loop]]:
        """The record's image, open, and its loop device, to which the link leads from now on.

        Raises NotThisVolume, BackendFailed, OSError.
        """
        with translated(), the_volume(pool, IMAGES_PLACE, image_name(record), record) as fd:
            pool_id = store.pool_id(pool)
            with _attaching:
                loop = self._linked(pool_id, record, fd)
                if loop is None:
                    if self._is_astray(pool_id, record, os.fstat(fd)):
                        # First of all, as attaching may fail.
                        self._links.remove(pool_id, record.name)
                    block_size = sector_size(record)
                    loop = attach.attach(fd, block_size=block_size, chosen=self._links.disown)
            with opened(pool, IMAGES_PLACE) as images:
                if offline.is_half_done(images, record):
                    self._links.remove(pool_id, record.name)
                    offline.take_back(self._run, images, record, loop)
            self._links.lead(pool_id, record.name, loop.node)
            yield fd, loop

    def resize_hidden(self, pool: int, record: Record, loop: Loop, blocks: int) -> None:
        """Let the unmounted ext4 on the record's loop device have that many blocks, by its tools.

        Raises BackendFailed: no link leads there if it could not be taken back either.
        """
        pool_id = store.pool_id(pool)
        with translated(), opened(pool, IMAGES_PLACE) as images:
            self._links.remove(pool_id, record.name)
            try:
                offline.resize_by_tool(self._run, images, record, loop, blocks)
            finally:
                if not offline.is_half_done(images, record):
                    self._links.lead(pool_id, record.name, loop.node)

    @contextmanager
    def borrowed(self, fd: int) -> Iterator[Loop]:
        """Have an open image under a loop device for a while; no link leads there."""
        with ExitStack() as stack:
            with _attaching:
                borrowing = attach.borrowed(fd, block_size=BLOCK, chosen=self._links.disown)
                loop = stack.enter_context(borrowing)
            yield loop

    def _linked(self, pool_id: str, record: Record, fd: int) -> Loop | None:
        """The loop device that its link leads to, if its image is under it."""
        node = self._links.target(pool_id, record.name)
        if not node.startswith("/dev/loop"):
            return None
        loop = attach.look(node)
        found = os.fstat(fd)
        if loop is None or not loop.ours or loop.behind != (found.st_dev, found.st_ino):
            return None
        return loop

    def astray(self, pool: int, records: Sequence[Record]) -> list[str]:
        """As the backend's; of what cannot be seen nothing is said. Raises OSError."""
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
        node = self._links.target(pool_id, record.name)
        if not node:
            return False
        loop = attach.look(node) if node.startswith("/dev/loop") else None
        return loop is None or loop.behind != (image.st_dev, image.st_ino)

    def let_go(self, pool: int, record: Record, fd: int) -> None:
        """Detach the record's open image, link first. Raises BackendFailed while it is in use."""
        pool_id = store.pool_id(pool)
        with translated():
            loops = attach.on_file(fd)
            for loop in loops:
                if users := users_of(loop.device):
                    raise BackendFailed(f"{record.name} is in use: {', '.join(users)}")
            # First of all: a link must never lead to a device that may be another's by then.
            self._links.remove(pool_id, record.name)
            for loop in loops:
                try:
                    attach.detach(loop)
                except BaseException:
                    if len(loops) == 1:
                        self._links.lead(pool_id, record.name, loop.node)
                    raise


@contextmanager
def translated() -> Iterator[None]:
    """Say as the protocol does what loop devices say."""
    try:
        yield
    except (StillInUse, InUse) as error:
        raise BackendFailed(f"it is in use: {error}") from error
    except (NoLoopDevice, NotABlockDevice) as error:
        raise BackendFailed(str(error)) from error
