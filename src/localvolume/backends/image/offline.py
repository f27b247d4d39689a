"""Grow an unmounted ext4 so that a crash while doing so loses nothing.

The kernel does it through the journal, in a mount that nobody sees, but only for processes with
CAP_SYS_RESOURCE. resize2fs does not: if killed, it leaves what e2fsck does not dare to repair by
itself. The next attempt then takes everything back with resize2fs's undo file, beside the image;
until then no link leads to the volume, so that nobody mounts what is half resized.
"""

import contextlib
import os

from localvolume.backends.fstools import (
    CHECKING_SECONDS,
    command,
    ext_super,
    may_resize_mounted,
)
from localvolume.backends.image.store import image_name
from localvolume.backends.model import BackendFailed, Record
from localvolume.host.block.blockdev import exclusive_open
from localvolume.host.filesystem.growing import grow_ext4
from localvolume.host.loop.attach import Loop
from localvolume.host.mount.detached import detached_mount
from localvolume.host.process.commands import CommandMissing, CommandTimedOut
from localvolume.host.process.commandsync import Run
from localvolume.host.tree.trees import has_name, sync_directory


def resize_by_kernel(loop: Loop, blocks: int) -> bool:
    """Resize the ext4 in a mount that nobody sees; returns False if that is impossible."""
    if not may_resize_mounted():
        return False
    try:
        with detached_mount(loop.node, "ext4") as root:
            grow_ext4(root, blocks)
    except OSError:
        # This includes an ext4 with errors: the kernel refuses it, and e2fsck may repair it.
        return False
    return True


def resize_by_tool(run: Run, images: int, record: Record, loop: Loop, blocks: int) -> None:
    """Check and resize the unmounted ext4; after a failure it is as it was before.

    ``images`` is the open directory of the image. No link may lead to the device. Raises
    BackendFailed; call ``take_back`` then, and after a crash.
    """
    _check(run, loop)
    # By our own descriptor: the path could lead elsewhere by then.
    undo = f"/proc/{os.getpid()}/fd/{images}/{_undo_name(record)}"
    try:
        command(run, ["resize2fs", "-z", undo, loop.node, str(blocks)], CHECKING_SECONDS)
    except BackendFailed:
        take_back(run, images, record, loop)
        raise
    forget(images, record)


def is_half_done(images: int, record: Record) -> bool:
    """Whether resizing was interrupted. Raises OSError."""
    return has_name(images, _undo_name(record))


def take_back(run: Run, images: int, record: Record, loop: Loop) -> None:
    """Undo what an interrupted resizing did, if there was one. Raises BackendFailed, InUse."""
    if not is_half_done(images, record):
        return
    name = _undo_name(record)
    # An e2fsck or resize2fs that outlived its agent still claims the device.
    os.close(exclusive_open(loop.node, write=False, device=loop.device))
    began = os.stat(name, dir_fd=images, follow_symlinks=False).st_mtime
    if _mounted_at(loop) > began:
        raise BackendFailed(
            f"{record.name} was mounted after growing it was interrupted: check it with e2fsck and"
            f" remove {name}"
        )
    try:
        # Its exit status does not matter: e2fsck decides. If resize2fs was killed very early, the
        # undo file is not complete, and nothing was overwritten yet.
        run(
            ["e2undo", "-f", f"/proc/{os.getpid()}/fd/{images}/{name}", loop.node],
            CHECKING_SECONDS,
        )
    except (CommandMissing, CommandTimedOut) as error:
        raise BackendFailed(str(error)) from error
    _check(run, loop)
    forget(images, record)


def forget(images: int, record: Record) -> None:
    """Remove the undo file, if there is one. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_undo_name(record), dir_fd=images)
        sync_directory(images)


def _mounted_at(loop: Loop) -> int:
    try:
        return ext_super(loop.node).mounted_at
    except BackendFailed:
        return 0  # the superblock itself was being written


def _check(run: Run, loop: Loop) -> None:
    # Exit status 1: there were errors, and they are corrected.
    command(run, ["e2fsck", "-f", "-p", loop.node], CHECKING_SECONDS, good=(0, 1))


def _undo_name(record: Record) -> str:
    return f"{image_name(record)}.undo"
