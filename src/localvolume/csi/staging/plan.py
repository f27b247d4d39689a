"""What is to be mounted at the kubelet's paths, decided from the mount table alone. Pure.

The table is asked each time: what an agent mounted before it was restarted counts like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from localvolume.csi.staging import options
from localvolume.csi.staging.options import Options
from localvolume.csi.wire.errors import AlreadyExists, FailedPrecondition
from localvolume.host.mount.inuse import Held
from localvolume.host.mount.mounts import Mount, MountTable

SHARED_MODE: Final = "SINGLE_NODE_MULTI_WRITER"
"""The one access mode that lets several pods of this node have a volume."""


def to_stage(found: Mount | None, path: str, held: Held, wanted: Options, fs_type: str) -> bool:
    """Whether the volume is to be mounted at its staging path; False if it is there already.

    `found` is what is mounted there. Raises FailedPrecondition if that is something else, and
    AlreadyExists if it has other options.
    """
    if found is None:
        return True
    _check_same(found, path, held)
    if text := options.differences(found, wanted, fs_type):
        raise AlreadyExists(f"the volume is mounted at {path}, but {text}")
    return False


def staged(found: Mount | None, path: str, held: Held) -> Mount:
    """The volume's mount at its staging path. Raises FailedPrecondition if it is not there."""
    if found is None:
        raise FailedPrecondition(f"the volume is not staged at {path}")
    _check_same(found, path, held)
    return found


def to_publish(found: Mount | None, path: str, held: Held, wanted: Options) -> bool:
    """Whether the volume is to be mounted at its target; False if it is there already.

    Raises as `to_stage` does.
    """
    return to_stage(found, path, held, wanted, "")


def check_alone(table: MountTable, held: Held, mode: str, here: Sequence[str], within: str) -> None:
    """Raise FailedPrecondition if the volume has another target, and its access mode allows none.

    `here` are the target and the staging path. Only what lies below the directory `within` counts:
    where a container sees the host's mounts in several places, they are no other targets.
    """
    if mode == SHARED_MODE:
        return
    beneath = f"{within.rstrip('/')}/"
    for mount in table.of_device(held.device):
        place = mount.mount_point
        if mount.root == held.root and place not in here and place.startswith(beneath):
            raise FailedPrecondition(
                f"the volume is mounted at {place} already, and {mode} allows one target"
            )


def is_at(found: Mount | None, held: Held) -> bool:
    """Whether what is mounted somewhere is the volume."""
    return found is not None and (found.device, found.root) == held


def _check_same(found: Mount, path: str, held: Held) -> None:
    if not is_at(found, held):
        raise FailedPrecondition(
            f"something else is mounted at {path}: {found.source} ({found.fs_type}), "
            f"{found.root} in it; unmount that first"
        )
