"""What a mount of an open directory or file has in the mount table, and which mounts use it."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.syscalls import mount_id


class Held(NamedTuple):
    """What a mount holds, as the mount table has it: the filesystem, and which part of it."""

    device: str
    root: str


def held_by(table: MountTable, fd: int, path: str) -> Held:
    """What mounts of an open directory or file hold; `path` is where this process sees it.

    The path has no links. Raises OSError (ESTALE) if it is not in the mount that `fd` is of.
    """
    number = mount_id(fd)
    own = next((mount for mount in table if mount.mount_id == number), None)
    if own is None or not f"{path}/".startswith(f"{own.mount_point.rstrip('/')}/"):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
    # The path within its filesystem: what a mount of it, or of one below it, has as its root.
    root = own.root.rstrip("/") + path[len(own.mount_point.rstrip("/")) :]
    return Held(own.device, root or "/")


def users_of(fd: int, path: str) -> list[str]:
    """Say which mounts use an open directory; empty if none do, as far as this process can see.

    `path` is where this process sees it, without links. The bind mounts that kubelet makes of a
    volume for its pods are visible if this process shares the host's mounts of kubelet's directory.
    Raises OSError (EAGAIN if the mounts keep changing), ValueError.
    """
    table = read_mount_table()
    if not table.settled:
        raise OSError(errno.EAGAIN, "the mounts keep changing", path)
    held = held_by(table, fd, path)
    inside = f"{path}/"
    found = [
        f"something is mounted at {mount.mount_point}"
        for mount in table
        if mount.mount_point == path or mount.mount_point.startswith(inside)
    ]
    found += [
        f"it is mounted at {mount.mount_point}"
        for mount in table.of_device(held.device)
        if mount.root == held.root or mount.root.startswith(f"{held.root.rstrip('/')}/")
    ]
    return found
