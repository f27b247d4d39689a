"""Volumes that CSI calls ask for or use: what may be asked, the answers, and why a call is refused.

Calls see the volumes of the driver `csi.localvolume.dev` alone, by the name of their record, which
is their handle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from localvolume.backends.model import Blocks, Fill, Record, Source, Usage
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.volumes.attributes import NONE, Attributes
from localvolume.volumes.manifest import NodeFacts

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One complete volume: its record, the name of its pool, and how full its reserve is; None if
    it is not known, or there is none."""

    record: Record
    pool: str
    fill: Fill | None = None

    @property
    def is_readable(self) -> bool:
        """Whether it is known that its content is there."""
        return not self.record.reserve_bytes or (self.fill is not None and not self.fill.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Snapshots that were cut at one moment, in the order of their names."""

    name: str
    members: Sequence[Volume]

    @property
    def cut_at(self) -> int:
        """When that was, in nanoseconds since 1970."""
        return self.members[0].record.cut_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A volume that a call asks for.

    `size_bytes` is the least that it may have (0: as its source) and `limit_bytes` the most (0: no
    limit). `fs_type` "" is the backend's default. `parameters` are those of the StorageClass.
    """

    name: str
    size_bytes: int
    limit_bytes: int = 0
    volume_mode: Literal["Filesystem", "Block"] = "Filesystem"
    fs_type: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    """The handle of the snapshot or volume whose content it is to have; "": it is empty."""
    from_snapshot: bool = False
    """Whether the source is a snapshot, not a volume."""
    attributes: Attributes = NONE
    """What the mutable parameters say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedInline:
    """A volume of a pod's own, as the pod's spec asks for it.

    `pod` is its `namespace/name`. `pool` "": any that lets pods have such; `fs_type` "": the
    backend's default.
    """

    name: str
    size_bytes: int
    pod: str
    pod_uid: str
    fs_type: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that may still be promised, and the largest volume that fits."""

    available_bytes: int
    largest_bytes: int


class Refused(Exception):
    """The call is not served; the text says why."""


class Wrong(Refused):
    """It can never be served as it is: ask for something else."""


class OutOfRange(Refused):
    """The sizes that it asks for cannot be had: ask for others."""


class Differs(Refused):
    """The name has a volume that another call asked for, in other words."""


class Unknown(Refused):
    """There is no such volume."""


class InUse(Refused):
    """Not while the volume is in use, or while something else needs it."""


class Apart(Refused):
    """Those volumes cannot be cut at one moment: ask for others, or for each alone."""


class NoRoom(Refused):
    """This node has too little room for it: another may have enough."""


class NotNow(Refused):
    """Nothing is wrong with the call: repeat it."""


class NotTold(Refused):
    """Nobody can tell which of its blocks hold data or have changed: read all of it."""


class Volumes(Protocol):
    """What CSI calls can do with the volumes of this node. All methods raise Refused.

    A call that is cancelled does not end what it began: a repeated one waits for that, or gets its
    result.
    """

    def node(self) -> NodeFacts:
        """This node; raises NotNow until it is known."""
        ...

    def all(self) -> Sequence[Volume]:
        """The volumes that are known now, in the order of their names."""
        ...

    async def find(self, name: str) -> Volume | None:
        """The volume, or None if there is none even after another look."""
        ...

    async def create(self, wanted: Wanted) -> Volume:
        """Make the volume, or find it made.

        Raises Wrong, OutOfRange, Differs, NoRoom and NotNow, and Unknown without its source.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove a volume that a call made; does nothing if there is none.

        Raises InUse, and Wrong for a volume that a claim has.
        """
        ...

    async def snapshot(
        self,
        name: str,
        source: str,
        *,
        full_copies: bool = False,
        reserve: Reserve | None = None,
        namespace: str = "",
    ) -> Volume:
        """Cut a snapshot of the volume `source` under that name, or find it cut.

        With a `namespace`, nothing is cut unless a claim of that namespace has the volume. With
        `full_copies`, all data is copied where it cannot be shared; with a `reserve`, a thick
        logical volume's is shared for as long as that has room.
        Raises Unknown if there is no such volume or no such claim has it, Differs if the name has a
        snapshot of another, Wrong where the volume's backend cannot, NoRoom and NotNow.
        """
        ...

    def snapshots(self) -> Sequence[Volume]:
        """The snapshots that are known now, in the order of their names."""
        ...

    def unseen(self) -> str:
        """Where there may be volumes and snapshots that are not known now, "" for nowhere."""
        ...

    async def find_snapshot(self, name: str) -> Volume | None:
        """The snapshot, or None if there is none even after another look."""
        ...

    async def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot; does nothing if there is none. Raises Wrong for one of a group."""
        ...

    async def cut_group(self, name: str, sources: Collection[str], *, namespace: str = "") -> Group:
        """Cut snapshots of those volumes, all at one moment, or find them cut: all or none.

        With a `namespace`, nothing is cut unless claims of that namespace have all the volumes.
        Raises Unknown if none of the volumes is here or no such claim has one, Apart if they cannot
        be cut together, InUse if one cannot be held still, Differs if the name has a group of
        others, NoRoom and NotNow.
        """
        ...

    async def find_group(self, name: str) -> Group | None:
        """The group, or None if there is none even after another look."""
        ...

    async def remove_group(self, name: str, snapshots: Collection[str]) -> None:
        """Remove the group that has just those snapshots; does nothing if there is none.

        Raises Wrong if it has others.
        """
        ...

    async def blocks(self, snapshot: Volume, base: Volume | None, start: int) -> Blocks:
        """What the snapshot holds from that byte on, or how it differs from another, the `base`.

        `base` is a snapshot of the same volume. Raises NotTold, NotNow, and Unknown once either is
        removed.
        """
        ...

    async def create_inline(self, wanted: WantedInline) -> Volume:
        """Make a pod's own volume, or find it made. Raises as `create` does."""
        ...

    async def find_inline(self, name: str) -> Volume | None:
        """The pod's own volume, or None if there is none even after another look."""
        ...

    async def remove_inline(self, name: str) -> None:
        """Remove a pod's own volume, later if its pool is away; does nothing if there is none."""
        ...

    async def grow(self, name: str, size_bytes: int, limit_bytes: int = 0) -> Volume:
        """Let the volume have at least that many bytes, and at most `limit_bytes` if not 0."""
        ...

    async def modify(self, name: str, attributes: Attributes) -> Volume:
        """Give the volume those of the attributes that say something; the others stay.

        Raises Unknown, Wrong for what it cannot have, and NotNow.
        """
        ...

    async def use(self, volume: Volume, act: Callable[[Source], R]) -> R:
        """Make the volume usable and do `act` in a thread, with nothing else done to it meanwhile.

        Raises Unknown, NotNow, and what `act` raises.
        """
        ...

    async def usage(self, volume: Volume) -> Usage | None:
        """What the volume holds now; None if nothing measures it."""
        ...

    def room(
        self,
        parameters: Mapping[str, str],
        volume_mode: Literal["Filesystem", "Block"],
        fs_type: str,
    ) -> Room:
        """What there is for volumes of such a class. Raises Wrong for bad parameters."""
        ...

    def problems(self, name: str) -> Sequence[tuple[str, str]]:
        """What health says is wrong with the volume: reasons (CamelCase) with their sentences."""
        ...

    def storage_problems(self) -> Sequence[tuple[str, str]]:
        """What is wrong with the pools of this node, in the same form."""
        ...
