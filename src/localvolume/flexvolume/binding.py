"""Binds a PersistentVolume to this node when it is mounted first; refuses what is not to be here.

All of it before anything is done on disk: where the API server fails, there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from localvolume.config.syntax.names import fault_of_label_value
from localvolume.flexvolume.driver import (
    TAG_CLAIM,
    TAG_CLAIM_UID,
    TAG_ON_REMOVAL,
    TAG_POLICY,
    TAG_PV_UID,
)
from localvolume.flexvolume.protocol import ON_REMOVAL, Asked, Refused, Target, as_volume_says
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import LookAgain, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES, PODS
from localvolume.kube.objects import FlexVolumeSource, Node, PersistentVolume
from localvolume.kube.workloads import Pod
from localvolume.volumes import affinity, marks
from localvolume.volumes.manifest import NodeFacts, node_affinity
from localvolume.volumes.nodes import node_facts
from localvolume.volumes.objects import claim_of, is_being_deleted, phase_of
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


class Binding:
    """`node` gets this node's object (raising ApiError); `saw` is told what the server returns."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        node: Callable[[], Awaitable[Node]],
        saw: Callable[[PersistentVolume], object],
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._node = node
        self._saw = saw

    async def bind(self, asked: Asked, target: Target, *, fs_type: str) -> Bound:
        """The PersistentVolume, bound to this node from now on, whatever came of an earlier call.

        `fs_type` counts where it names none. Raises Refused where it is not to be mounted here,
        ApiError.
        """
        for _ in range(ATTEMPTS):
            live = await self._client.get(PERSISTENT_VOLUMES, asked.name)
            facts = node_facts(self._node_name, await self._node())
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
                live = await self._client.patch(PERSISTENT_VOLUMES, asked.name, patch)
            except LookAgain:
                continue
            self._saw(live)
            return Bound(live, was_elastics, by_volume)
        raise Refused(f"PersistentVolume {asked.name} keeps changing: ask again")

    async def told(self, live: PersistentVolume) -> PersistentVolume:
        """The object, once it says that its claim has had the volume: from now on it must be there.

        Raises ApiError; LookAgain where it has changed.
        """
        claim = claim_of(live)
        if live.metadata.annotations.get(marks.CLAIMED_ANNOTATION) == claim:
            return live
        patch = MergePatch(
            {
                "metadata": {
                    "uid": live.metadata.uid,
                    "annotations": {marks.CLAIMED_ANNOTATION: claim},
                }
            }
        )
        live = await self._client.patch(PERSISTENT_VOLUMES, live.metadata.name, patch)
        self._saw(live)
        return live

    async def adopt(self, live: PersistentVolume) -> PersistentVolume:
        """Our marks on what elastic's driver has bound to this node. Raises ApiError, Refused."""
        facts = node_facts(self._node_name, await self._node())
        if isinstance(facts, str):
            raise Refused(facts)
        patch = to_bind(live, facts)
        if patch is None or is_being_deleted(live):
            return live
        live = await self._client.patch(PERSISTENT_VOLUMES, live.metadata.name, patch)
        self._saw(live)
        return live

    async def _check_pod(
        self, live: PersistentVolume, named: tuple[str, str], target: Target
    ) -> None:
        """The pod whose directory it is must use the claim: a volume that a pod describes itself
        (`flexVolume` in its spec) may have any name, and any options."""
        namespace, name = named
        try:
            pod = await self._client.get(PODS, name, namespace)
        except NotThere:
            raise Refused(f"there is no pod {namespace}/{name}") from None
        if pod.metadata.uid != target.pod_uid:
            raise Refused(f"the directory is not that of the pod {namespace}/{name}")
        ref = live.spec.claim_ref
        if ref is None or namespace != ref.namespace or ref.name not in claims_of(pod):
            raise Refused(
                f"the pod {namespace}/{name} does not use the claim of {live.metadata.name}"
            )


def claims_of(pod: Pod) -> frozenset[str]:
    """The names of the claims that a pod uses, those of its generic ephemeral volumes included."""
    found = set()
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.add(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.add(f"{pod.metadata.name}-{volume.name}")
    return frozenset(found)


def check(live: PersistentVolume, node: NodeFacts, driver: str) -> FlexVolumeSource:
    """What it is made of; raises Refused unless a pod's mount of it on this node is in order."""
    name = live.metadata.name
    source = live.spec.flex_volume
    if source is None or source.driver != driver:
        what = f"is of the driver {source.driver}" if source else "is no FlexVolume"
        raise Refused(f"PersistentVolume {name} {what}, not of {driver}")
    if is_being_deleted(live):
        raise Refused(f"PersistentVolume {name} is being deleted")
    if phase_of(live) != "Bound" or not claim_of(live):
        raise Refused(f"PersistentVolume {name} is {phase_of(live)}, not Bound to a claim")
    if other := other_node(live, node):
        raise Refused(f"PersistentVolume {name} {other}, not to {node.name}")
    return source


def other_node(live: PersistentVolume, node: NodeFacts) -> str:
    """To which other node it is bound, in words; "" where to none."""
    labels = live.metadata.labels
    for label in (marks.NODE_LABEL, marks.ELASTIC_NODE_LABEL):
        if labels.get(label, marks.node_key(node.name)) not in (
            marks.node_key(node.name),
            node.name,
        ):
            return f"is bound to the node {labels[label]}"
    terms = affinity.required_terms(live)
    if terms and not any(affinity.matches(term, node.name, node.labels) for term in terms):
        names = ", ".join(sorted(affinity.hostnames(terms))) or "other nodes"
        return f"has a node affinity to {names}"
    return ""


def to_bind(live: PersistentVolume, node: NodeFacts) -> MergePatch | None:
    """What is missing of affinity, labels and finalizer, bound to what was seen; None: nothing.

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


def is_elastics(live: PersistentVolume) -> bool:
    """Whether elastic's driver may have made its volume: it binds to a node before that."""
    source = live.spec.flex_volume
    bound = bool(affinity.required_terms(live)) or marks.ELASTIC_NODE_LABEL in live.metadata.labels
    return source is not None and source.driver == marks.ELASTIC_FLEX_DRIVER and bound


def tags_of(live: PersistentVolume) -> dict[str, str]:
    """What is noted with the volume of a PersistentVolume."""
    ref, source = live.spec.claim_ref, live.spec.flex_volume
    return {
        TAG_PV_UID: live.metadata.uid,
        TAG_CLAIM: f"{ref.namespace}/{ref.name}" if ref else "",
        TAG_CLAIM_UID: ref.uid if ref else "",
        TAG_POLICY: live.spec.persistent_volume_reclaim_policy or "Retain",
        TAG_ON_REMOVAL: source.options.get(ON_REMOVAL, "") if source else "",
    }


def is_served(live: PersistentVolume, names: Collection[str]) -> bool:
    """Whether it is of one of these drivers."""
    return live.spec.flex_volume is not None and live.spec.flex_volume.driver in names
