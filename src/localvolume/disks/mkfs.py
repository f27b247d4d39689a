"""mkfs on a disk that is held open, never with force: it refuses what is in use by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from localvolume.disks.plan.naming import LABEL
from localvolume.host.filesystem.xfsprogs import VERSION_COMMAND, for_older_kernels
from localvolume.host.process.commands import run

MKFS_SECONDS: Final = 1800.0
VERSION_SECONDS: Final = 30.0


class MkfsFailed(Exception):
    """mkfs ended badly; what it left is recognised as ours."""


async def make_filesystem(pin: int, fs_type: str, uuid: str, options: Sequence[str]) -> None:
    """Make it on the device that is open as `pin`. mkfs inherits that, and any lock with it.

    Raises MkfsFailed, CommandMissing, CommandTimedOut.
    """
    version = ""
    if fs_type == "xfs":
        version = (await run(VERSION_COMMAND, timeout=VERSION_SECONDS)).stdout
    argv = mkfs_command(fs_type, uuid, options, f"/proc/self/fd/{pin}", version)
    done = await run(argv, timeout=MKFS_SECONDS, env={"LC_ALL": "C"}, pass_fds=[pin])
    if done.returncode != 0:
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise MkfsFailed(f"{argv[0]}: {said or f'exit status {done.returncode}'}")


def mkfs_command(
    fs_type: str, uuid: str, options: Sequence[str], place: str, version: str = ""
) -> list[str]:
    """The mkfs, without force. Nothing is discarded: the claim must outlive a killed mkfs.

    `version` is what mkfs.xfs says of its own.
    """
    if fs_type == "xfs":
        words = [word for word in options if word != "-K"]
        return [
            *("mkfs.xfs", "-q", "-K", *for_older_kernels(version, options)),
            *("-m", f"uuid={uuid}", "-L", LABEL, *words, place),
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
