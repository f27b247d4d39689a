"""mkfs on a disk that is held open, never with force: it refuses what is in use by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from localvolume.disks.naming import LABEL
from localvolume.host.commands import run

MKFS_SECONDS: Final = 1800.0


class MkfsFailed(Exception):
    """mkfs ended badly; what it left is recognised as ours."""


async def make_filesystem(pin: int, fs_type: str, uuid: str, options: Sequence[str]) -> None:
    """Make it on the device that is open as `pin`. mkfs inherits that, and any lock with it.

    Raises MkfsFailed, CommandMissing, CommandTimedOut.
    """
    argv = mkfs_command(fs_type, uuid, options, f"/proc/self/fd/{pin}")
    done = await run(argv, timeout=MKFS_SECONDS, env={"LC_ALL": "C"}, pass_fds=[pin])
    if done.returncode != 0:
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise MkfsFailed(f"{argv[0]}: {said or f'exit status {done.returncode}'}")


def mkfs_command(fs_type: str, uuid: str, options: Sequence[str], place: str) -> list[str]:
    """The mkfs, without force. Nothing is discarded: the claim must outlive a killed mkfs."""
    if fs_type == "xfs":
        # -m may be given once only, with all that belongs to it.
        words, metadata = _taken_out("-m", options)
        words = [word for word in words if word != "-K"]
        # Older kernels than this mkfs do not know everything that it would choose.
        metadata = metadata or ["reflink=1", "rmapbt=0"]
        return [
            *("mkfs.xfs", "-q", "-K", "-m", ",".join([f"uuid={uuid}", *metadata])),
            *("-L", LABEL, *words, place),
        ]
    words, extended = _taken_out("-E", options)
    # Of "discard" and "nodiscard" the last one counts.
    return [
        *("mkfs.ext4", "-q", "-U", uuid, "-L", LABEL),
        *("-E", ",".join([*extended, "nodiscard"]), *words, place),
    ]


def _taken_out(flag: str, options: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options without that flag, and the values it had."""
    words, values = list(options), []
    while flag in words:
        at = words.index(flag)
        values.append(words[at + 1])
        del words[at : at + 2]
    return words, values
