"""Contents of snapshots and groups that no agent will let go: their node is lost, or they are to be
kept. They are being deleted, and a finalizer holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localvolume.cli.output.refusal import say
from localvolume.cli.rows import print_columns
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere, TellTheAdministrator
from localvolume.kube.kinds import GROUP_CONTENTS, NODES, SNAPSHOT_CONTENTS, Kind, T
from localvolume.kube.listing import listed
from localvolume.kube.snapshotobjects import VolumeSnapshotContent
from localvolume.snapshots.groups.plan import is_to_go as is_group_to_go
from localvolume.snapshots.plan import is_to_go
from localvolume.volumes import marks
from localvolume.volumes.objects import is_being_deleted
from localvolume.volumes.patches import without_finalizer
from localvolume.volumes.snapshots import FINALIZER, GROUP_FINALIZER, AnyContent, owner_of


@dataclass(frozen=True, slots=True)
class Freed:
    """The result for one content."""

    content: AnyContent
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents that are being deleted and have their finalizer. `nodes` are the keys of the
    nodes that are there; None: nobody can tell."""

    found: Sequence[AnyContent]
    nodes: frozenset[str] | None

    def of(self, node: str) -> bool:
        """Whether any is that node's."""
        return any(owner_of(one) == marks.node_key(node) for one in self.found)

    def planned(self, content: AnyContent) -> Freed:
        """What would be done, and why."""
        if why := self._reason_to_keep(content):
            return Freed(content, "kept", why)
        return Freed(content, "would remove", self._note(content))

    async def free(self, client: Client, content: AnyContent) -> Freed:
        """Removes the finalizer from exactly the object that was seen."""
        if (planned := self.planned(content)).verdict == "kept":
            return planned
        patch = without_finalizer(content, _finalizer_of(content))
        name = content.metadata.name
        try:
            if isinstance(content, VolumeSnapshotContent):
                await client.patch(SNAPSHOT_CONTENTS, name, patch)
            else:
                await client.patch(GROUP_CONTENTS, name, patch)
        except NotThere:
            return Freed(content, "gone", "it was deleted meanwhile")
        except ApiError as error:
            return Freed(content, "failed", f"{error}: run this again")
        return Freed(content, "removed", planned.reason)

    def _is_lost(self, content: AnyContent) -> bool:
        """Whether the node that has, or had, what was cut is not there any more."""
        owner = owner_of(content)
        return self.nodes is not None and owner != "" and owner not in self.nodes

    def _reason_to_keep(self, content: AnyContent) -> str:
        """Why its finalizer must stay, "" if it may go: nobody else would remove the snapshot."""
        if not _is_to_go(content):
            return "the snapshot-controller has not let it go: its VolumeSnapshot may have it"
        if content.spec.deletion_policy == "Retain" or self._is_lost(content):
            return ""
        if self.nodes is None:
            return "whether its node is there is not known: the Nodes cannot be listed"
        return (
            "what was cut for it is not removed yet: let the agent run until it is gone, or give"
            " it the deletion policy Retain"
        )

    def _note(self, content: AnyContent) -> str:
        if self._is_lost(content):
            return f"its node {owner_of(content)} is gone: what may be on its disks stays there"
        return "its deletion policy is Retain: the snapshot stays"


async def look(client: Client, nodes: Sequence[str] | None) -> Contents:
    """Those of these nodes, or of all if None. Raises ApiError."""
    keys = None if nodes is None else {marks.node_key(name) for name in nodes}
    found: list[AnyContent] = [
        *await _listed(client, SNAPSHOT_CONTENTS),
        *await _listed(client, GROUP_CONTENTS),
    ]
    held = [
        one
        for one in found
        if one.spec.driver == marks.CSI_DRIVER
        and is_being_deleted(one)
        and _finalizer_of(one) in one.metadata.finalizers
        and (keys is None or owner_of(one) in keys)
    ]
    there = None
    if held:
        try:
            known = await listed(client, NODES)
            there = frozenset(marks.node_key(one.metadata.name) for one in known)
        except TellTheAdministrator:
            there = None  # then none counts as lost
    return Contents(sorted(held, key=lambda one: one.metadata.name), there)


async def _listed(client: Client, kind: Kind[T]) -> list[T]:
    try:
        return await listed(client, kind)
    except NotThere:
        return []  # the cluster does not have the kind
    except TellTheAdministrator as error:
        text = f"{kind.plural} are left alone: {error}"
        say("remove-finalizers", text)
        return []


def print_contents(rows: Sequence[Freed]) -> None:
    """Those of which anything is to be said."""
    if rows:
        print()
        print_columns(
            ("CONTENT", "NODE", "VERDICT", "REASON"),
            [
                (row.content.metadata.name, owner_of(row.content), row.verdict, row.reason)
                for row in rows
            ],
            none="",
        )


def _is_to_go(content: AnyContent) -> bool:
    if isinstance(content, VolumeSnapshotContent):
        return is_to_go(content)
    return is_group_to_go(content)


def _finalizer_of(content: AnyContent) -> str:
    return FINALIZER if isinstance(content, VolumeSnapshotContent) else GROUP_FINALIZER
