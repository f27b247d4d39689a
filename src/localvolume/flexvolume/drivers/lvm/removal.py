"""How a logical volume goes for good: only the very one that was listed, unused, and as noted.

[overwritten or discarded, a piece at each call] -> deactivated -> looked at again -> lvremove
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from localvolume.backends.lvm.wiping import How, wipe
from localvolume.flexvolume.driver import (
    DISCARD,
    MAKING,
    OVERWRITE,
    REMOVING,
    TAG_GONE_SINCE,
    TAG_ON_REMOVAL,
    TAG_POLICY,
    TAG_STATE,
    WAYS,
    DriverFailed,
    Owned,
)
from localvolume.flexvolume.drivers.devicemount import mount_table
from localvolume.flexvolume.drivers.lvm.group import Group, size_in
from localvolume.flexvolume.drivers.lvm.marks import Tags, ours
from localvolume.host.lvm.commands import LogicalVolume

WIPE_SECONDS: Final = 60.0
"""How long one call may overwrite."""

TAG_WIPED: Final = "wiped"
"""How many bytes, from the first, are overwritten or discarded."""

_WIPES: Final[Mapping[str, How]] = {OVERWRITE: "overwrite", DISCARD: "discard"}

Clock = Callable[[], float]


def users_of(volume: LogicalVolume) -> str:
    """Says who uses it; "" if nobody does. Raises DriverFailed if that cannot be told."""
    if volume.device:
        places = [mount.mount_point for mount in mount_table().of_device(volume.device)]
        if places:
            return f"it is mounted at {', '.join(places)}"
    if volume.open:
        return "a process or device has it open"
    return "all of its I/O is held up" if volume.suspended else ""


def remove(group: Group, listed: Owned, clock: Clock = time.monotonic) -> None:
    """Remove it; success if it is not there any more. Raises as `Driver.remove` says."""
    noted: Tags = listed.tags
    found = group.look(listed.name)
    if found is None:
        return
    _check(found, listed, noted)
    how = _WIPES.get(noted.get(TAG_ON_REMOVAL, ""))
    # A volume whose making never ended holds nobody's data. A thin one that its pool was never
    # told of (lvcreate was killed) can be removed, but never activated.
    if how is not None and noted.get(TAG_STATE) != MAKING:
        if noted.get(TAG_STATE) != REMOVING:
            noted = {**noted, TAG_STATE: REMOVING}
            found = group.note(found, noted)
        found = group.engine.active(found)
        noted = _wiped(group, found, noted, how, clock)
    if found.active:
        # LVM refuses this if anybody has it open: the last proof that nobody does.
        group.engine.lvm.deactivate(found)

    def check(now: LogicalVolume, _: Sequence[LogicalVolume]) -> None:
        _check(now, listed, noted)
        if now.active:
            raise DriverFailed(f"{now.full_name} was activated meanwhile: left as it is")

    group.engine.remove(found, check)


def _check(found: LogicalVolume, listed: Owned, noted: Tags) -> None:
    """Raise DriverFailed unless it is as listed, noted as gone, and used by nobody."""
    now = ours(found)
    if found.uuid != listed.id:
        raise DriverFailed(f"{found.full_name} is another volume than the one that was listed")
    if now != dict(noted):
        raise DriverFailed(f"{found.full_name} is noted otherwise than when it was listed")
    if now.get(TAG_POLICY) != "Delete" or not now.get(TAG_GONE_SINCE):
        raise DriverFailed(f"{found.full_name} is not noted as one to be removed")
    if now.get(TAG_ON_REMOVAL, "") not in WAYS:
        raise DriverFailed(f"{found.full_name} is to be removed in a way that is not known")
    if user := users_of(found):
        raise DriverFailed(f"{found.full_name} is in use: {user}")
    if found.has_snapshots:
        raise DriverFailed(f"{found.full_name} has snapshots, which would be removed with it")


def _wiped(group: Group, found: LogicalVolume, noted: Tags, how: How, clock: Clock) -> Tags:
    """Overwrite or discard what is left; returns what is noted then.

    Raises DriverFailed after WIPE_SECONDS: the next call goes on.
    """
    end = clock() + WIPE_SECONDS
    start = size_in(noted, TAG_WIPED)
    done, size = wipe(found, how, lambda _: clock() < end, start=start)
    noted = {**noted, TAG_WIPED: str(done)}
    group.note(found, noted)
    if done < size:
        raise DriverFailed(f"{found.full_name}: {done} of {size} bytes are gone; it goes on")
    return noted
