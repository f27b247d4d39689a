"""The role for VolumeSnapshotContents: from facts to a plan, from the plan to acts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from localvolume.kube.kinds import SNAPSHOT_CONTENTS
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent
from localvolume.snapshots.act import Acts
from localvolume.snapshots.contents import ContentsRole
from localvolume.snapshots.facts import gather
from localvolume.snapshots.metrics import SnapshotMetrics
from localvolume.snapshots.plan import Action, handle_coming, own_contents, plan
from localvolume.snapshots.telling import Telling
from localvolume.volumes.snapshots import BEING_CREATED, FINALIZER, handle_in_status


@dataclass(eq=False, kw_only=True)
class SnapshotRole(ContentsRole[VolumeSnapshotContent, Action]):
    """Snapshots of single volumes. `groups` gives the contents of groups, which the role for those
    reads; wake the loop when they change."""

    metrics: SnapshotMetrics
    groups: Callable[[], Iterable[VolumeGroupSnapshotContent]]

    def __post_init__(self) -> None:
        self.begin(SNAPSHOT_CONTENTS, "snapshot")
        telling = Telling(
            client=self.client,
            kind=SNAPSHOT_CONTENTS,
            contents=self.contents,
            events=self.events,
            count=lambda operation: self.metrics.failures.labels(operation).inc(),
            node_key=self.node_key,
            begun=BEING_CREATED,
            finalizer=FINALIZER,
            spread=self.paces.spread,
        )
        self._acts = Acts(
            client=self.client, volumes=self.volumes, telling=telling, cut_seconds=self.paces.cut
        )

    def handle_told(self, content: VolumeSnapshotContent) -> str:
        """The snapshot's."""
        return handle_in_status(content)

    def handle_coming(self, content: VolumeSnapshotContent) -> str:
        """The snapshot's."""
        return handle_coming(content)

    def plan(self) -> Sequence[Action]:
        """At most one action for each content."""
        objects = self.objects.values()
        facts = gather(self.node_key, self.contents.items, objects, self.volumes, self.groups())
        self.metrics.tell(own_contents(facts))
        self.metrics.tell_reserves(facts.fills.values(), len(facts.lost))
        return plan(facts)

    async def run(self) -> NoReturn:
        """Never returns; on cancellation stops what is under way, and the next agent goes on."""
        try:
            await super().run()
        finally:
            await self._acts.end()

    async def act(self, action: Action) -> None:
        """See ``Acts``."""
        await self._acts.act(action)
