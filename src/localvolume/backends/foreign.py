"""An ext4 that a tenant has written block by block: checked, and made as harmless as one of ours.

The kernel reads nothing of it before: e2fsck replays its journal and mends it. What a superblock
can tell the kernel beyond its data is taken away: other mount options, a panic at the first error,
blocks kept for root.
"""

from __future__ import annotations

import os
from typing import Final

from localvolume.backends.fstools import CHECKING_SECONDS, command
from localvolume.backends.model import BackendFailed, Impossible
from localvolume.host.block.signatures import SignatureUnknown, parse
from localvolume.host.filesystem.extsuper import SUPER_START
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after

# Length and place of s_journal_uuid, and of s_journal_dev behind s_journal_inum (fs/ext4/ext4.h).
_JOURNAL_UUID: Final = (16, SUPER_START + 0xD0)
_JOURNAL_DEVICE: Final = (4, SUPER_START + 0xE4)


def take_over_ext4(run: Run, path: str) -> None:
    """Check the unused ext4, and give it an identity and settings of ours.

    Raises Impossible if there is something else, or more, or one that is broken; OSError.
    """
    try:
        done = command(run, ["wipefs", "--json", path], CHECKING_SECONDS)
        signature = parse(path, done.stdout)
        found = signature.found if signature is not None else ()
        if found != ("ext4",):
            raise Impossible(f"it is {' and '.join(found) or 'nothing that is known'}")
        with closed_after(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
            if any(os.pread(fd, *_JOURNAL_UUID)) or any(os.pread(fd, *_JOURNAL_DEVICE)):
                # e2fsck would look for it among all devices of the node.
                raise Impossible("its journal is on another device")
        settings = ["-e", "continue", "-m", "0", "-E", "mount_opts="]
        # Exit status 1: there were errors, and they are corrected.
        command(run, ["e2fsck", "-f", "-p", path], CHECKING_SECONDS, good=(0, 1))
        command(run, ["tune2fs", "-U", "random", *settings, path], CHECKING_SECONDS)
    except (BackendFailed, SignatureUnknown) as error:
        raise Impossible(
            f"what its Block volume holds cannot be mounted as an ext4: {error}"
        ) from error
