"""Whether a directory in the agent's pod is the host directory that the configuration names.

PersistentVolumes name hostDir, but the agent looks into mountDir. Only the agent's pod says whether
both are the same directory. The agent cannot follow symlinks of the host from inside the pod, so
the pod and the configuration must use the same path.
"""

from __future__ import annotations

import posixpath

from localvolume.config.variables import MY_POD_NAME
from localvolume.kube.podmounts import Container, PodMounts, VolumeMount
from localvolume.volumes.identity import is_within

_MOUNT = "(volumes and volumeMounts of the DaemonSet)"


def misplaced(pod: PodMounts | None, host_dir: str, mount_dir: str) -> str | None:
    """Why paths below `host_dir` are not those below `mount_dir` in the agent's pod, or None.

    Also returns None if this is not known: without a pod, with several containers that may be
    the agent's, or with a subPathExpr. Pools of logical volumes have no directory, and are not
    misplaced.
    """
    container = _agents(pod) if pod is not None else None
    if pod is None or container is None or not host_dir:
        return None
    host_dir, mount_dir = _plain(host_dir), _plain(mount_dir)
    mount = _mount_at(container, mount_dir)
    if mount is not None and mount.sub_path_expr:
        return None
    named = {one.name: one.host_path for one in pod.spec.volumes}
    source = named.get(mount.name) if mount is not None else None
    if mount is None or source is None:
        return (
            f"hostDir is {host_dir}, but what the agent's pod has at mountDir {mount_dir} is not of"
            f" the host: mount {host_dir} there {_MOUNT}, or edit mountDir"
        )
    rest = posixpath.relpath(mount_dir, _plain(mount.mount_path))
    there = _plain(posixpath.join(source.path, mount.sub_path, rest))
    if there == host_dir:
        return None
    return (
        f"hostDir is {host_dir}, but what the agent's pod has at mountDir {mount_dir} is {there} of"
        f" the host: edit hostDir, or mount {host_dir} there {_MOUNT}"
    )


def _agents(pod: PodMounts) -> Container | None:
    """The agent's container: the only one, or the only one whose environment has the pod's name."""
    containers = pod.spec.containers
    if len(containers) > 1:
        containers = tuple(
            one for one in containers if any(each.name == MY_POD_NAME.name for each in one.env)
        )
    return containers[0] if len(containers) == 1 else None


def _mount_at(container: Container, path: str) -> VolumeMount | None:
    """The innermost mount that contains the path."""
    around = [one for one in container.volume_mounts if is_within(path, _plain(one.mount_path))]
    return max(around, key=lambda one: len(_plain(one.mount_path)), default=None)


def _plain(path: str) -> str:
    """The path without double or trailing slashes and "." parts. normpath would keep two leading
    slashes, as POSIX does."""
    return posixpath.normpath("/" + path.lstrip("/"))
