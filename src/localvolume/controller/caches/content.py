"""What the controller knows of content that claims ask for, and which claims a change concerns.

VolumeSnapshots are read once the first claim asks for one: most clusters have none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from localvolume.controller.caches.cluster import Cluster
from localvolume.controller.caches.trimmedclaims import KnownClaim
from localvolume.controller.caches.trimmedsnapshots import (
    CONTENTS,
    SNAPSHOTS,
    KnownContent,
    KnownSnapshot,
)
from localvolume.controller.plan.copies import Sources, source_key
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer

ABSENT_SECONDS: Final = 60.0
"""How often a cluster without VolumeSnapshots is asked whether it has them now."""

_CLAIM: Final = "PersistentVolumeClaim"
_SNAPSHOT: Final = "VolumeSnapshot"


class Contents:
    """`tell(names)` is called with the claims that are to be judged again."""

    def __init__(
        self, client: Client, cluster: Cluster, tell: Callable[[Sequence[str]], None]
    ) -> None:
        self._cluster = cluster
        self._tell = tell
        self.snapshots = Informer(
            client, SNAPSHOTS, on_change=self._snapshot_changed, absent_seconds=ABSENT_SECONDS
        )
        self.contents = Informer(
            client, CONTENTS, on_change=self._content_changed, absent_seconds=ABSENT_SECONDS
        )
        self._asking: dict[str, set[str]] = {}
        self._asked = asyncio.Event()

    async def run(self) -> None:
        """Never returns."""
        await self._asked.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.snapshots.run())
            tasks.create_task(self.contents.run())

    def sources(self, claims: Mapping[str, KnownClaim]) -> Sources:
        """What is known now."""
        return Sources(
            claims=claims,
            volumes=self._cluster.volumes.items,
            volume_of=self._cluster.volume_of,
            snapshots=self.snapshots.items,
            contents=self.contents.items,
            unread=_unread(self.snapshots) or _unread(self.contents),
        )

    # --- what changes --------------------------------------------------------------------------

    def claim_changed(self, old: KnownClaim | None, new: KnownClaim | None) -> None:
        """Know what it asks for, and tell those that ask for what it has."""
        before = source_key(old) if old is not None else ""
        after = source_key(new) if new is not None else ""
        name = key_of(new or old)  # type: ignore[arg-type]  # one of them is there
        if before and before != after:
            those = self._asking.get(before, set())
            those.discard(name)
            if not those:
                self._asking.pop(before, None)
        if after:
            self._asking.setdefault(after, set()).add(name)
            if after.startswith(_SNAPSHOT):
                self._asked.set()
        self.holder_changed(name)

    def holder_changed(self, claim: str) -> None:
        """Tell those that ask for the content of that claim, of which the volume changed."""
        self._tell_askers(f"{_CLAIM} {claim}")

    def _snapshot_changed(self, old: KnownSnapshot | None, new: KnownSnapshot | None) -> None:
        # One of them is there.
        self._tell_askers(f"{_SNAPSHOT} {key_of(new or old)}")  # type: ignore[arg-type]

    def _content_changed(self, old: KnownContent | None, new: KnownContent | None) -> None:
        ref = (new or old).spec.volume_snapshot_ref  # type: ignore[union-attr]  # one is there
        self._tell_askers(f"{_SNAPSHOT} {ref.namespace}/{ref.name}")

    def _tell_askers(self, key: str) -> None:
        if names := self._asking.get(key):
            self._tell(sorted(names))


def _unread(informer: Informer[KnownSnapshot] | Informer[KnownContent]) -> str:
    if informer.synced.is_set() and not informer.absent:
        return ""
    plural = informer.kind.plural
    if informer.absent:
        return f"this cluster has no {plural}: it needs the CRDs and a snapshot-controller"
    return f"{plural}: {informer.refused or 'not all have been read yet'}"
