"""What a driver of FlexVolume volumes can do; the server, the collector and the role use it.

All methods block and run in worker threads, one at a time for each volume (`turns.Turns`). Each is
idempotent and repairs what a crash in the middle of it, or of another one, left half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

TAG_PV_UID: Final = "pv-uid"
TAG_CLAIM: Final = "claim"
TAG_CLAIM_UID: Final = "claim-uid"
TAG_POLICY: Final = "policy"
TAG_STATE: Final = "state"
TAG_SIZE: Final = "size"
TAG_FS: Final = "fs"
TAG_GONE_SINCE: Final = "gone-since"
TAG_ENDED: Final = "ended"
TAG_ON_REMOVAL: Final = "on-removal"
"""What is noted with a volume. TAG_CLAIM is `namespace/name`, TAG_POLICY the reclaim policy as it
was seen last, TAG_STATE one of MAKING, MADE and REMOVING, TAG_GONE_SINCE since when there is no
PersistentVolume (RFC 3339), TAG_ENDED the UID of the PersistentVolume whose deletion, without a
claim, this node's agent saw and agreed to, TAG_ON_REMOVAL one of WAYS."""

NOTES_OF_THE_END: Final = (TAG_GONE_SINCE, TAG_ENDED)
"""Notes that hold only until the volume has a PersistentVolume again, as after a restore of the API
server's data. They are taken away then: they must prove nothing at a later absence."""

MAKING: Final = "making"
MADE: Final = "made"
REMOVING: Final = "removing"
"""Its data is being overwritten or discarded: nobody may have it any more."""

DELETE: Final = "delete"
OVERWRITE: Final = "overwrite"
DISCARD: Final = "discard"
WAYS: Final = ("", DELETE, OVERWRITE, DISCARD)
"""How a volume's data goes; "" is DELETE."""


class DriverFailed(Exception):
    """The call was not done, and nothing is lost; the text is for people, and goes to the kubelet.

    The caller asks again; the kubelet does so by itself.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume as it is to be mounted.

    `name` is the PersistentVolume's, and has been checked: a name of one path component.
    `size_bytes` counts when the volume is made. `fs_type` is ext4 or xfs, `mkfs_options` further
    arguments of its mkfs, `mount_options` those of mount -o. `fs_group`: the group that is to own
    the volume's root directory, None for root's. `must_exist`: its claim has had it on this node,
    so if it is missing now, nothing is made: DriverFailed, its data is elsewhere or lost. `tags`
    (without owner, state and size) are what is to be noted with the volume: TAG_PV_UID, TAG_CLAIM,
    TAG_CLAIM_UID, TAG_POLICY, TAG_ON_REMOVAL.
    """

    name: str
    size_bytes: int
    fs_type: str = "ext4"
    mkfs_options: tuple[str, ...] = ()
    read_only: bool = False
    mount_options: tuple[str, ...] = ()
    fs_group: int | None = None
    must_exist: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A volume here that carries our mark, with what is noted with it (TAG_...).

    `id` identifies the volume itself (a logical volume's UUID), so that no other of its name is
    taken for it. If `problem` says that its notes cannot be read, only the name is known, and
    nothing may be done about the volume.
    """

    name: str
    size_bytes: int
    tags: Mapping[str, str]
    id: str = ""
    problem: str = ""


class Driver(Protocol):
    """All methods raise DriverFailed. `targets` are absolute paths that have been checked."""

    def mount(self, volume: Volume, target: str) -> str:
        """Make the volume if there is none, and mount it; returns the text of the success.

        If it is mounted there already: success. If something else is, or the volume of that name is
        not ours or is another owner's (`same_owner`): DriverFailed, and nothing is touched.
        Takes NOTES_OF_THE_END away: the volume is in use again.
        """

    def unmount(self, name: str, target: str) -> str:
        """Unmount; success also if nothing is mounted. The volume stays."""

    def list_volumes(self) -> list[Owned]:
        """All that carry our mark, and nothing else."""

    def note(self, name: str, tags: Mapping[str, str]) -> None:
        """Change these of a volume's tags, all at once; an empty value takes one away.

        Does nothing if there is no such volume of ours.
        """

    def is_in_use(self, name: str) -> bool:
        """Whether anybody has it mounted or open; True also if that cannot be told."""

    def remove(self, volume: Owned) -> None:
        """Remove it and its data for good, as TAG_ON_REMOVAL says. Success if there is none.

        DriverFailed if it is in use, not ours, or not what was listed: another id, other tags. Also
        while the removal goes on: what takes long is done in pieces, one at each call.
        """

    def grow(self, name: str, size_bytes: int) -> int:
        """Grow it to that many bytes, filesystem included; returns how many it has then.

        The size stays if it has as many already, or if sizes mean nothing to the driver.
        """

    def unmarked(self) -> list[str]:
        """The names of what lies here without any mark of ours, and might be elastic's."""

    def adopt(self, volumes: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Mark as ours what elastic's driver made: the tags by PersistentVolume's name.

        Those PersistentVolumes exist and are this node's. Returns the names of those marked now;
        what has a mark already, or is not there, is left as it is.
        """


def same_owner(noted: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a volume noted like that belongs to the PersistentVolume with these tags.

    It does if that is the very one, or another of the same name for the same claim: the objects
    were restored from a backup. A volume of which nothing is noted is nobody else's.
    """
    uid = noted.get(TAG_PV_UID, "")
    if not uid or uid == now.get(TAG_PV_UID, ""):
        return True
    claim = noted.get(TAG_CLAIM, "")
    return bool(claim) and claim == now.get(TAG_CLAIM, "")
