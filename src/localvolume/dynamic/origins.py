"""Finds out at the API server whose content a claim asks for: of a claim, or of a VolumeSnapshot.

Objects of the claim's own namespace alone, and only those that are bound both ways: a name says
nothing about whose data it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.config.syntax.names import fault_of_object_name
from localvolume.config.syntax.readers import quoted
from localvolume.dynamic.asking import Asking, Question
from localvolume.dynamic.model import Origin
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.errors import NotThere, TellTheAdministrator
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES, SNAPSHOT_CONTENTS, SNAPSHOTS
from localvolume.kube.objects import DataSource, PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.marks import NODE_LABEL
from localvolume.volumes.objects import claim_of, is_being_deleted
from localvolume.volumes.snapshots import MODE_CHANGE, owner_of

_READY: Final = "is not ready yet"


class Origins:
    """Asks for each claim until it has its volume; `wake` is called when an answer is news."""

    def __init__(self, client: Client, node_key: str, wake: Callable[[], object]) -> None:
        self._client = client
        self._node_key = node_key
        self._asking = Asking[Origin](wake)

    def look(self, waiting: Iterable[PersistentVolumeClaim]) -> Mapping[str, Origin]:
        """What is known of the claims that wait for a copy, by UID; begins to ask for the rest."""
        return self._asking.look(
            {
                claim.metadata.uid: Question(key_of(claim), partial(self._told, claim))
                for claim in waiting
            }
        )

    async def stop(self) -> None:
        """Ask no more."""
        await self._asking.stop()

    async def _told(self, claim: PersistentVolumeClaim) -> Origin:
        try:
            return await self.ask(claim)
        except TellTheAdministrator as error:
            return Origin(problem=str(error))

    async def ask(self, claim: PersistentVolumeClaim) -> Origin:
        """Whose content the claim asks for, as of now. Raises ApiError."""
        source = claims.source_of(claim)
        if source is None:
            return Origin(problem="it asks for no content")
        if fault := fault_of_object_name(source.name):
            # The API server lets a claim name anything.
            return Origin(problem=f"the name of {source.kind} {quoted(source.name)} {fault}")
        if claims.kind_of_source(source) == "claim":
            return await self._of_claim(source, claim.metadata.namespace)
        return await self._of_snapshot(source, claim.metadata.namespace)

    async def _of_claim(self, source: DataSource, namespace: str) -> Origin:
        what = f"claim {namespace}/{source.name}"
        try:
            found = await self._client.get(CLAIMS, source.name, namespace)
        except NotThere:
            return Origin(problem=f"{what} does not exist")
        name = found.spec.volume_name
        if not name or found.status.phase != "Bound":
            return Origin(claim=found, problem=f"{what} has no volume yet")
        try:
            volume = await self._client.get(PERSISTENT_VOLUMES, name)
        except NotThere:
            return Origin(claim=found, problem=f"{what} has lost its volume {name}")
        csi = volume.spec.csi
        problem = ""
        if claim_of(volume) != found.metadata.uid:
            problem = f"volume {name} does not name {what} as its holder"
        elif csi is None or csi.driver != CSI_DRIVER:
            problem = f"the volume of {what} is none of {CSI_DRIVER}: only those are cloned"
        elif (node := volume.metadata.labels.get(NODE_LABEL, "")) != self._node_key:
            # What lies here by its handle may be somebody else's: another node's agent names any.
            said_by = f"is on node {node}" if node else "is said to be on no node yet"
            problem = f"the volume of {what} {said_by}"
        elif is_being_deleted(found):
            problem = f"{what} is being deleted"
        handle = csi.volume_handle if csi is not None and not problem else ""
        return Origin(handle=handle, claim=found, problem=problem)

    async def _of_snapshot(self, source: DataSource, namespace: str) -> Origin:
        what = f"VolumeSnapshot {namespace}/{source.name}"
        try:
            found = await self._client.get(SNAPSHOTS, source.name, namespace)
        except NotThere:
            return Origin(problem=f"{what} does not exist")
        status = found.status
        name = status.bound_volume_snapshot_content_name if status is not None else None
        if not name or status is None or not status.ready_to_use:
            return Origin(problem=f"{what} {_READY}")
        try:
            content = await self._client.get(SNAPSHOT_CONTENTS, name)
        except NotThere:
            return Origin(problem=f"{what} has lost its content {name}")
        ref, said = content.spec.volume_snapshot_ref, content.status
        if (ref.namespace, ref.name, ref.uid) != (namespace, source.name, found.metadata.uid):
            return Origin(problem=f"content {name} does not name {what} as its holder")
        if content.spec.driver != CSI_DRIVER:
            return Origin(problem=f"{what} is one of {content.spec.driver}, not of {CSI_DRIVER}")
        if owner_of(content) != self._node_key:
            # Another node's agent wrote the status, which may name any snapshot of this one.
            owner = owner_of(content)
            said_by = f"is said to be on node {owner}" if owner else "is said to be on no node yet"
            return Origin(problem=f"content {name} of {what} {said_by}")
        if is_being_deleted(found) or is_being_deleted(content):
            return Origin(problem=f"{what} is being deleted")
        if said is None or not said.snapshot_handle or not said.ready_to_use:
            return Origin(problem=f"content {name} of {what} {_READY}")
        return Origin(
            handle=said.snapshot_handle,
            snapshot=True,
            cut_of=content.spec.source.volume_handle or "",
            other_mode=content.metadata.annotations.get(MODE_CHANGE) == "true",
        )
