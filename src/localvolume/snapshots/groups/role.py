"""The role for VolumeGroupSnapshotContents: from facts to a plan, from the plan to acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localvolume.dynamic.calls import NotNow
from localvolume.kube.informer import Informer, unready
from localvolume.kube.kinds import GROUP_CONTENTS
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent
from localvolume.snapshots.contents import ContentsRole
from localvolume.snapshots.groups.act import Acts
from localvolume.snapshots.groups.facts import gather
from localvolume.snapshots.groups.metrics import GroupMetrics
from localvolume.snapshots.groups.plan import Action, own_contents, plan
from localvolume.snapshots.telling import Telling
from localvolume.volumes.snapshots import GROUP_BEING_CREATED, GROUP_FINALIZER, group_in_status


@dataclass(eq=False, kw_only=True)
class GroupRole(ContentsRole[VolumeGroupSnapshotContent, Action]):
    """Snapshots of several volumes at one moment.

    `singles` are the contents of single snapshots, which the role for those reads. Call `changed`
    when they change.
    """

    metrics: GroupMetrics
    singles: Informer[VolumeSnapshotContent]

    def __post_init__(self) -> None:
        self.begin(GROUP_CONTENTS, "group snapshot")
        telling = Telling(
            client=self.client,
            kind=GROUP_CONTENTS,
            contents=self.contents,
            events=self.events,
            count=lambda operation: self.metrics.failures.labels(operation).inc(),
            node_key=self.node_key,
            begun=GROUP_BEING_CREATED,
            finalizer=GROUP_FINALIZER,
            spread=self.paces.spread,
        )
        self._acts = Acts(client=self.client, volumes=self.volumes, telling=telling)

    def handle_told(self, content: VolumeGroupSnapshotContent) -> str:
        """The group's."""
        return group_in_status(content)

    def handle_coming(self, content: VolumeGroupSnapshotContent) -> str:
        """None: of a group that was not completed, all are cut anew."""
        return ""

    def plan(self) -> Sequence[Action]:
        """At most one action for each content."""
        if unread := unready(self.singles):
            raise NotNow("; ".join(unread.values()))
        facts = gather(
            self.node_key,
            self.contents.items,
            self.objects.values(),
            self.volumes,
            self.singles.items.values(),
        )
        self.metrics.tell(own_contents(facts))
        return plan(facts)

    async def act(self, action: Action) -> None:
        """See ``Acts``."""
        await self._acts.act(action)
