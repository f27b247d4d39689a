"""Where the image of a volume lies in its pool, and whether it is the one in its record.

While an image is made, an empty file beside it says so. Without that file (or the inode in its
record), an image is never taken for the rest of an interrupted attempt: it may belong to a volume
whose record got lost.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Final

from localvolume.backends.image.links import one_name
from localvolume.backends.model import OURS, BackendFailed, NotThisVolume, Record
from localvolume.backends.pool.directories import move_for_good
from localvolume.backends.pool.layout import IMAGES, TRASH
from localvolume.backends.pool.root import PoolUnusable, read_id
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.beneath import LeadsOutside, open_beneath
from localvolume.host.tree.trees import has_name, opened, sync_directory

IMAGES_PLACE: Final = f"{OURS}/{IMAGES}"
TRASH_PLACE: Final = f"{OURS}/{TRASH}"


def pool_id(pool: int) -> str:
    """The pool's id, as it is written in the pool. Raises BackendFailed if it cannot be read."""
    try:
        found = read_id(pool)
    except (PoolUnusable, OSError) as error:
        raise BackendFailed(f"the pool's id cannot be read: {error}") from error
    if found is None:
        raise BackendFailed("the pool's id cannot be read: it has none")
    return found


def image_name(record: Record) -> str:
    """The name of its image. Raises NotThisVolume if the record's name cannot be one."""
    if not one_name(record.name):
        raise NotThisVolume(f"{record.name!r} is not the name of a volume")
    return f"{record.name}.img"


def trash_name(record: Record) -> str:
    """Its name in the trash. Raises NotThisVolume if the record has no valid one."""
    if not one_name(record.trash):
        raise NotThisVolume(f"{record.trash!r} is not a name in the trash")
    return record.trash


@contextlib.contextmanager
def the_image(pool: int, path: str, name: str, inode: int | None) -> Iterator[int]:
    """Open a file of the pool for reading and writing, if it has that inode (None: any).

    Raises FileNotFoundError, NotThisVolume if something else lies there, OSError.
    """
    with opened(pool, path) as parent:
        # stat() comes first: opening a device or a pipe has effects.
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise NotThisVolume(f"{path}/{name} is not a file")
        try:
            fd = open_beneath(parent, name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except LeadsOutside as error:
            raise NotThisVolume(f"{path}/{name} is not a file of the pool") from error
    with closed_after(fd):
        if inode is not None and os.fstat(fd).st_ino != inode:
            raise NotThisVolume(f"{path}/{name} is another file than was made")
        yield fd


@contextlib.contextmanager
def the_volume(pool: int, path: str, name: str, record: Record) -> Iterator[int]:
    """As ``the_image``, for the record's image; also raises NotThisVolume if nothing is there."""
    with contextlib.ExitStack() as stack:
        try:
            fd = stack.enter_context(the_image(pool, path, name, record.inode))
        except FileNotFoundError as error:
            raise NotThisVolume(f"there is no {path}/{name}") from error
        yield fd


def is_there(pool: int, path: str, name: str, record: Record) -> bool:
    """Whether the record's image lies there; raises NotThisVolume if something else does."""
    try:
        with the_image(pool, path, name, record.inode):
            return True
    except FileNotFoundError:
        return False


def move(pool: int, path: str, name: str, target: str, new: str) -> None:
    """Move to another directory of the pool, on disk when this returns; replaces nothing.

    Raises NotThisVolume if the new name is taken, OSError.
    """
    with opened(pool, path) as source, opened(pool, target) as destination:
        move_for_good(source, name, destination, f"{target}/{new}")


def is_anything(images: int, record: Record) -> bool:
    """Whether anything has the name of its image. Raises OSError."""
    return has_name(images, image_name(record))


def is_ours(images: int, record: Record) -> bool:
    """Whether the image there is the record's own, or left by an attempt to make it."""
    name = image_name(record)
    found = os.stat(name, dir_fd=images, follow_symlinks=False)
    return found.st_ino == record.inode or has_name(images, _begun(name))


def begin(images: int, record: Record) -> None:
    """Note that its image is being made; raises NotThisVolume if there is one already."""
    name = image_name(record)
    if has_name(images, name):
        raise NotThisVolume(f"{name} is there already, and no record explains it")
    os.close(os.open(_begun(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=images))
    sync_directory(images)


def ended(images: int, record: Record) -> None:
    """Remove the note that its image is being made. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_begun(image_name(record)), dir_fd=images)


def _begun(name: str) -> str:
    return f"{name}.making"
