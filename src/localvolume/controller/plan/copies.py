"""On which node the content lies that a claim asks for: pure.

Content is a claim's or a VolumeSnapshot's, of the claim's own namespace, and of our CSI driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from localvolume.controller.plan.nodes import Nodes
from localvolume.kube.objects import DataSource, PersistentVolume, PersistentVolumeClaim
from localvolume.kube.snapshotobjects import VolumeSnapshot, VolumeSnapshotContent
from localvolume.volumes import claims, marks
from localvolume.volumes.objects import claim_of, is_csi

MANAGED_BY_LABEL = "snapshot.storage.kubernetes.io/managed-by"
"""The node's name, where the cluster's snapshot-controller runs for distributed snapshotting."""


class Home(NamedTuple):
    """The key of the node that has the content, and whose it is."""

    key: str
    what: str


def _none(_handle: str) -> PersistentVolume | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where content may come from: claims and VolumeSnapshots by `namespace/name`, and contents by
    name. `volume_of` finds a PersistentVolume of our CSI driver by its handle. `unread` says why
    nothing is known of VolumeSnapshots, "" if they are known.
    """

    claims: Mapping[str, PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    volume_of: Callable[[str], PersistentVolume | None] = _none
    snapshots: Mapping[str, VolumeSnapshot]
    contents: Mapping[str, VolumeSnapshotContent]
    unread: str = ""


NO_SOURCES = Sources(claims={}, volumes={}, snapshots={}, contents={})


def source_key(claim: PersistentVolumeClaim) -> str:
    """Names the object whose content the claim asks for; "" if it asks for none that we know."""
    source = claims.source_of(claim)
    if source is None or not claims.is_copy(claim):
        return ""
    return f"{source.kind} {claim.metadata.namespace}/{source.name}"


def home_of(sources: Sources, nodes: Nodes, claim: PersistentVolumeClaim) -> Home | str:
    """The node that has the content that the claim asks for; or why none is known."""
    source = claims.source_of(claim)
    if source is None:
        return "it asks for no content"
    namespace = claim.metadata.namespace
    if source.namespace not in (None, "", namespace):
        return f"content is taken from its own namespace alone, not from {source.namespace}"
    if claims.kind_of_source(source) == "claim":
        return _of_claim(sources, namespace, source)
    return _of_snapshot(sources, nodes, namespace, source)


def _of_claim(sources: Sources, namespace: str, source: DataSource) -> Home | str:
    what = f"claim {namespace}/{source.name}"
    found = sources.claims.get(f"{namespace}/{source.name}")
    if found is None:
        return f"{what}, whose content it asks for, does not exist"
    volume = sources.volumes.get(found.spec.volume_name)
    if volume is None or claim_of(volume) != found.metadata.uid:
        return f"{what}, whose content it asks for, has no volume yet"
    if not is_csi(volume):
        return f"the volume of {what} is none of {marks.CSI_DRIVER}: only those are cloned"
    key = volume.metadata.labels.get(marks.NODE_LABEL, "")
    return Home(key, what) if key else f"no agent is known to have the volume of {what}"


def _of_snapshot(sources: Sources, nodes: Nodes, namespace: str, source: DataSource) -> Home | str:
    what = f"VolumeSnapshot {namespace}/{source.name}"
    if sources.unread:
        return f"{what}, whose content it asks for, is not known: {sources.unread}"
    found = sources.snapshots.get(f"{namespace}/{source.name}")
    if found is None:
        return f"{what}, whose content it asks for, does not exist"
    status = found.status
    name = status.bound_volume_snapshot_content_name if status is not None else None
    if not name or status is None or not status.ready_to_use:
        return f"{what}, whose content it asks for, is not ready yet"
    content = sources.contents.get(name)
    if content is None:
        return f"{what} has lost its content {name}"
    ref = content.spec.volume_snapshot_ref
    if (ref.namespace, ref.name, ref.uid) != (namespace, source.name, found.metadata.uid):
        return f"content {name} does not name {what} as its holder"
    if content.spec.driver != marks.CSI_DRIVER:
        return f"{what} is one of {content.spec.driver}, not of {marks.CSI_DRIVER}"
    key = _node_of(sources, nodes, content)
    return Home(key, what) if key else f"no agent is known to have {what}"


def _node_of(sources: Sources, nodes: Nodes, content: VolumeSnapshotContent) -> str:
    """The key of the content's node, by its volume, our annotation, or upstream's label; or ""."""
    volume = sources.volume_of(content.spec.source.volume_handle or "")
    if volume is not None and (key := volume.metadata.labels.get(marks.NODE_LABEL)):
        return key
    # Its volume may be gone long since.
    if key := content.metadata.annotations.get(marks.NODE_LABEL):
        return key
    node = nodes.by_name(content.metadata.labels.get(MANAGED_BY_LABEL, ""))
    return "" if node is None else marks.node_key(node.metadata.name)
