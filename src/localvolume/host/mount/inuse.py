"""Which mounts use a directory: those inside it, and those of it elsewhere."""

from __future__ import annotations

import errno
import os

from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import mount_id


def users_of(fd: int, path: str) -> list[str]:
    """Say which mounts use an open directory; empty if none do, as far as this process can see.

    `path` is where this process sees it, without links. The bind mounts that kubelet makes of a
    volume for its pods are visible if this process shares the host's mounts of kubelet's directory.
    Raises OSError (EAGAIN if the mounts keep changing), ValueError.
    """
    table = read_mount_table()
    if not table.settled:
        raise OSError(errno.EAGAIN, "the mounts keep changing", path)
    number = mount_id(fd)
    own = next((mount for mount in table if mount.mount_id == number), None)
    if own is None or not f"{path}/".startswith(f"{own.mount_point.rstrip('/')}/"):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
    inside = f"{path}/"
    found = [
        f"something is mounted at {mount.mount_point}"
        for mount in table
        if mount.mount_point == path or mount.mount_point.startswith(inside)
    ]
    # The directory within its filesystem: what a mount of it, or of one below it, has as its root.
    root = own.root.rstrip("/") + path[len(own.mount_point.rstrip("/")) :]
    found += [
        f"it is mounted at {mount.mount_point}"
        for mount in table.of_device(own.device)
        if mount.root == root or mount.root.startswith(f"{root}/")
    ]
    return found
