"""Binds a PersistentVolume to this node at its first mount; refuses what does not belong here.

All this happens before anything is done on disk: if the API server fails, nothing is to be undone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from localvolume.config.syntax.names import fault_of_label_value
from localvolume.flexvolume.plan.binding import check, claims_of, is_elastics
from localvolume.flexvolume.protocol import Asked, Refused, Target, as_volume_says
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import LookAgain, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES, PODS
from localvolume.kube.objects import Node, PersistentVolume
from localvolume.volumes import affinity, marks
from localvolume.volumes.manifest import NodeFacts, node_affinity, node_facts
from localvolume.volumes.objects import claim_of, is_being_deleted
from localvolume.volumes.patches import bound_to

ATTEMPTS: Final = 5
"""How often a PersistentVolume that changes meanwhile is read and patched again."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A PersistentVolume that is this node's. `was_elastics`: elastic's driver knows it as such.

    `asked` is what is to be mounted, by what the PersistentVolume says.
    """

    volume: PersistentVolume
    was_elastics: bool
    asked: Asked


@dataclass(eq=False)
class Binding:
    """`node` gets this node's object (raising ApiError); `saw` is told what the server returns."""

    client: Client
    node_name: str
    node: Callable[[], Awaitable[Node]]
    saw: Callable[[PersistentVolume], object]

    async def bind(self, asked: Asked, target: Target, *, fs_type: str) -> Bound:
        """The PersistentVolume, bound to this node from now on, whatever an earlier call did.

        `fs_type` is the default. Raises Refused if it must not be mounted here, ApiError.
        """
        for _ in range(ATTEMPTS):
            live = await self.client.get(PERSISTENT_VOLUMES, asked.name)
            facts = node_facts(self.node_name, await self.node())
            if isinstance(facts, str):
                raise Refused(facts)
            source = check(live, facts, target.driver)
            if asked.pod is not None:
                await self._check_pod(live, asked.pod, target)
            by_volume = as_volume_says(asked, source, fs_type=fs_type)
            was_elastics = is_elastics(live)
            patch = to_bind(live, facts)
            if patch is None:
                return Bound(live, was_elastics, by_volume)
            try:
                live = await self.client.patch(PERSISTENT_VOLUMES, asked.name, patch)
            except LookAgain:
                continue
            self.saw(live)
            return Bound(live, was_elastics, by_volume)
        raise Refused(f"PersistentVolume {asked.name} keeps changing: ask again")

    async def told(self, live: PersistentVolume) -> PersistentVolume:
        """Write on the object that its claim has had the volume, which must exist from now on.

        Raises ApiError; LookAgain if the object has changed.
        """
        claim = claim_of(live)
        if live.metadata.annotations.get(marks.CLAIMED_ANNOTATION) == claim:
            return live
        metadata = {"uid": live.metadata.uid, "annotations": {marks.CLAIMED_ANNOTATION: claim}}
        patch = MergePatch({"metadata": metadata})
        live = await self.client.patch(PERSISTENT_VOLUMES, live.metadata.name, patch)
        self.saw(live)
        return live

    async def adopt(self, live: PersistentVolume) -> PersistentVolume:
        """Put our marks on what elastic's driver bound to this node. Raises ApiError, Refused."""
        facts = node_facts(self.node_name, await self.node())
        if isinstance(facts, str):
            raise Refused(facts)
        patch = to_bind(live, facts)
        if patch is None or is_being_deleted(live):
            return live
        live = await self.client.patch(PERSISTENT_VOLUMES, live.metadata.name, patch)
        self.saw(live)
        return live

    async def _check_pod(
        self, live: PersistentVolume, named: tuple[str, str], target: Target
    ) -> None:
        """The pod whose directory it is must use the claim: a volume that a pod describes itself
        (`flexVolume` in its spec) may have any name, and any options."""
        namespace, name = named
        try:
            pod = await self.client.get(PODS, name, namespace)
        except NotThere:
            raise Refused(f"there is no pod {namespace}/{name}") from None
        if pod.metadata.uid != target.pod_uid:
            raise Refused(f"the directory is not that of the pod {namespace}/{name}")
        ref = live.spec.claim_ref
        if ref is None or namespace != ref.namespace or ref.name not in claims_of(pod):
            raise Refused(
                f"the pod {namespace}/{name} does not use the claim of {live.metadata.name}"
            )


def to_bind(live: PersistentVolume, node: NodeFacts) -> MergePatch | None:
    """The patch for missing affinity, labels and finalizer, bound to what was seen; None: no need.

    The affinity names the Node's hostname label, which need not be its name.
    """
    labels = {marks.NODE_LABEL: marks.node_key(node.name)}
    source = live.spec.flex_volume
    elastics = source is not None and source.driver == marks.ELASTIC_FLEX_DRIVER
    if elastics and fault_of_label_value(node.name) is None:
        labels[marks.ELASTIC_NODE_LABEL] = node.name
    missing = {key: value for key, value in labels.items() if key not in live.metadata.labels}
    metadata: dict[str, Any] = {"labels": missing} if missing else {}
    if marks.FINALIZER not in live.metadata.finalizers:
        metadata["finalizers"] = [*live.metadata.finalizers, marks.FINALIZER]
    spec: dict[str, Any] = {}
    if not affinity.required_terms(live):
        spec["nodeAffinity"] = {"required": node_affinity(node, ())}
    if not metadata and not spec:
        return None
    body = bound_to(live, **metadata).body
    return MergePatch({**body, "spec": spec} if spec else body)
