"""What a pool of volumes can be asked to do, whatever kind of volumes it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from localvolume.backends.model import Blocks, PoolReport, Progress, Record, Source, Usage
from localvolume.volumes.attributes import Attributes

R = TypeVar("R")


class Store(Protocol):
    """One pool of this node: ``pool.pool.PoolStore`` or ``lvm.store.LvmStore``.

    Every method blocks. Methods may run at once for different volumes, and each may be repeated
    after a crash. All but `look` raise BackendFailed (or a subclass), and nothing else for what the
    disk says.
    """

    def know(
        self,
        known_ids: Collection[str],
        known_places: Collection[str] = (),
        missing: Collection[str] = (),
    ) -> None:
        """Set the pool ids that PersistentVolumes name here, the locations of those of older
        provisioners, and the volumes that PersistentVolumes are of and no pool of this node is
        known to have."""
        ...

    def open(self) -> str:
        """Prove and lock the pool; returns its id."""
        ...

    def close(self) -> None:
        """Release the pool to others once everything under way in it has ended."""
        ...

    def look(self) -> PoolReport:
        """See what is there; the report's `problem` says what is wrong."""
        ...

    def unseen(self, problem: str, *, taken: bool = False) -> PoolReport:
        """The report of a pool that cannot be looked at now, for that reason; asks no disk."""
        ...

    def attach_all(self) -> dict[str, str]:
        """Make every volume usable after a reboot; returns what failed, by the volume's name."""
        ...

    def host_path(self, record: Record) -> str:
        """The path that the PersistentVolume names."""
        ...

    def make(self, record: Record) -> Record:
        """Make a volume, or complete what a crash left half made: it is `made`, or `offered` where
        the store need not write it down twice for a call."""
        ...

    def copy(self, record: Record, origin: Record) -> Record:
        """As `make`, with the content of another complete volume or snapshot of this pool."""
        ...

    def blocks(self, record: Record, base: Record | None, start: int) -> Blocks:
        """What a snapshot holds from that byte on, or how it differs from another, the `base`.

        Raises Impossible where nobody can tell, NotThisVolume if either is not there any more.
        """
        ...

    def cut_together(self, members: Sequence[tuple[Record, Record]]) -> Sequence[Record]:
        """Cut the snapshots of a group, each with its origin, at one moment.

        They are `made`, all or none. Raises as `copy`, and BackendFailed while one of them has a
        record already.
        """
        ...

    def offered(
        self,
        record: Record,
        volume_uid: str = "",
        given: str = "",
        generation: int = 0,
        driver: str = "",
    ) -> Record:
        """Record that a PersistentVolume is asked for, before it is; later also record its UID,
        the claim that the volume was `given` to since it was made, with the count of that, and the
        CSI driver that pods use it through from now on."""
        ...

    def modify(self, record: Record, attributes: Attributes) -> Record:
        """Record the attributes of a complete volume, in place of those that it has."""
        ...

    def grow(self, record: Record, size_bytes: int) -> Record:
        """Let a volume have that many bytes; returns one that has them as it is."""
        ...

    def use(self, record: Record, act: Callable[[Source], R]) -> R:
        """Make a complete volume usable, and do `act` with it while nothing else is done with it.

        `act` raises nothing. Raises NotThisVolume for a volume that is not complete or is removed.
        """
        ...

    def usage(self, record: Record) -> Usage | None:
        """What a volume holds now; None if nothing measures it."""
        ...

    def adopt(self, name: str, directory: str, **fields: Any) -> Record:
        """Record a volume that an older provisioner made."""
        ...

    def retire(self, record: Record) -> Record:
        """Take a volume out of everybody's reach, in one step: it is `removed`."""
        ...

    def purge(
        self,
        record: Record,
        *,
        stop: threading.Event,
        files_per_second: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Delete a removed volume for good."""
        ...

    def forget(self, record: Record) -> None:
        """Let go of a volume: its data stays and is listed as an orphan from now on."""
        ...

    def take_away(self, record: Record) -> None:
        """Remove a volume that nobody ever had; raises NotThisVolume for any other."""
        ...
