"""Let an unmounted ext4 grow so that a crash in the midst loses nothing.

The kernel does it within the journal, in a mount that nobody sees, but only for processes with
CAP_SYS_RESOURCE. resize2fs does not: killed half way it leaves what e2fsck does not dare to mend by
itself. There its undo file, beside the image, takes everything back at the next attempt; until then
no link leads to the volume, so that nobody mounts what is half resized.
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
    """Resize the ext4 in a mount that nobody sees; False where that cannot be done."""
    if not may_resize_mounted():
        return False
    try:
        with detached_mount(loop.node, "ext4") as root:
            grow_ext4(root, blocks)
    except OSError:
        # Also what has errors, which the kernel refuses and e2fsck may mend.
        return False
    return True


def resize_by_tool(run: Run, images: int, record: Record, loop: Loop, blocks: int) -> None:
    """Check and resize the unmounted ext4; after a failure it is as it was before.

    ``images`` is the open directory of the image. No link may lead to the device. Raises
    BackendFailed; ``take_back`` is due then, and after a crash.
    """
    _check(run, loop)
    # Our own process's, as the name could lead elsewhere by then.
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
    # An e2fsck or resize2fs that outlived its agent has claimed the device.
    os.close(exclusive_open(loop.node, write=False, device=loop.device))
    began = os.stat(name, dir_fd=images, follow_symlinks=False).st_mtime
    if _mounted_at(loop) > began:
        raise BackendFailed(
            f"{record.name} was mounted after growing it was interrupted: check it with e2fsck and"
            f" remove {name}"
        )
    try:
        # Whatever it answers: e2fsck has the last word. Killed very early, the undo file is not
        # complete, and nothing was overwritten yet.
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
        return 0  # its superblock is what was being written


def _check(run: Run, loop: Loop) -> None:
    # 1: there was something to correct, and it is.
    command(run, ["e2fsck", "-f", "-p", loop.node], CHECKING_SECONDS, good=(0, 1))


def _undo_name(record: Record) -> str:
    return f"{image_name(record)}.undo"
