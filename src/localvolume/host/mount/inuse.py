"""Who has a directory mounted: what is mounted in it, and where it is mounted besides."""

from __future__ import annotations

import errno
import os

from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import mount_id


def users_of(fd: int, path: str) -> list[str]:
    """Why an open directory is in use by mounts, in words; empty: it is not, as far as we see.

    `path` is where this process sees it, without links. The bind mounts kubelet makes of a volume
    for its pods are seen where this process shares the host's mounts of kubelet's directory.
    Raises OSError (EAGAIN where the mounts would not hold still), ValueError.
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
