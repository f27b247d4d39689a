"""Clusters as facts for `status` and `why`: nodes, agents, volumes, claims, rooms and Events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import SeenContent, SeenEvent, SeenNode
from localvolume.kube.objects import (
    CSIStorageCapacity,
    KubeObject,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent
from localvolume.kube.workloads import Job, Pod
from localvolume.volumes.moments import written
from tests.suite.names import FINALIZER, HOSTNAME, NODE_LABEL

NOW = 1_800_000_000.0
DYNAMIC = "dynamic.localvolume.dev"
CSI = "csi.localvolume.dev"


def ago(seconds: float) -> str:
    return written(NOW - seconds)


def node(name: str = "n1", *, taints: Sequence[str] = ()) -> SeenNode:
    body = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {HOSTNAME: name}},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
    }
    return msgspec.convert(body, SeenNode)


def agent(
    node_name: str = "n1",
    *,
    ready: bool = True,
    waiting: str = "",
    going: bool = False,
    namespace: str = "lvp",
) -> Pod:
    owner = {"kind": "DaemonSet", "name": "lvp", "uid": "d"}
    status: dict[str, Any] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    if waiting:
        status["containerStatuses"] = [{"name": "agent", "state": {"waiting": {"reason": waiting}}}]
    metadata: dict[str, Any] = {
        "name": f"lvp-{node_name}",
        "namespace": namespace,
        "ownerReferences": [owner],
    }
    if going:
        metadata["deletionTimestamp"] = ago(5)
    body = {"metadata": metadata, "spec": {"nodeName": node_name}, "status": status}
    return msgspec.convert(body, Pod)


def controller() -> Pod:
    owner = {"kind": "ReplicaSet", "name": "lvpc", "uid": "r"}
    body = {
        "metadata": {"name": "lvpc-1", "namespace": "lvp", "ownerReferences": [owner]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return msgspec.convert(body, Pod)


def user(claim: str, name: str = "app") -> Pod:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    body = {"metadata": metadata, "spec": {"volumes": volumes}, "status": {"phase": "Pending"}}
    return msgspec.convert(body, Pod)


def klass(
    name: str = "fast", provisioner: str = "kubernetes.io/no-provisioner", **fields: Any
) -> StorageClass:
    body = {"metadata": {"name": name}, "provisioner": provisioner, **fields}
    return msgspec.convert(body, StorageClass)


def volume(
    name: str = "pv-1",
    *,
    phase: str = "Available",
    node_name: str = "n1",
    cls: str = "fast",
    size: str = "10Gi",
    claim: str = "",
    claim_uid: str = "claim-uid",
    policy: str = "Delete",
    deleting: bool = False,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (FINALIZER,),
    labels: Mapping[str, str] | None = None,
    provisioner: str | None = None,
    terms: bool = True,
    **spec: Any,
) -> PersistentVolume:
    made = provisioner or f"local-volume-provisioner-{node_name}"
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": {NODE_LABEL: node_name} if labels is None else dict(labels),
        "annotations": {"pv.kubernetes.io/provisioned-by": made, **(annotations or {})},
        "finalizers": list(finalizers),
        "creationTimestamp": ago(7200),
    }
    if deleting:
        metadata["deletionTimestamp"] = ago(60)
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim, "uid": claim_uid}
    expression = {"key": HOSTNAME, "operator": "In", "values": [node_name]}
    if terms:
        spec["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        }
    if "flexVolume" not in spec:
        spec.setdefault("local", {"path": f"/mnt/{cls}/{name}"})
    body = {
        "metadata": metadata,
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": cls,
            "volumeMode": "Filesystem",
            **spec,
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(body, PersistentVolume)


def claim(
    name: str = "data",
    *,
    cls: str | None = "fast",
    size: str = "1Gi",
    phase: str = "Pending",
    modes: Sequence[str] = ("ReadWriteOnce",),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    deleting: bool = False,
    has: str = "",
    age: float = 600,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PersistentVolumeClaim:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": "claim-uid",
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
        "creationTimestamp": ago(age),
        "finalizers": ["kubernetes.io/pvc-protection"],
    }
    if deleting:
        metadata["deletionTimestamp"] = ago(30)
    body = {
        "metadata": metadata,
        "spec": {
            "storageClassName": cls,
            "accessModes": list(modes),
            "resources": {"requests": {"storage": size}},
            **spec,
        },
        "status": {
            "phase": phase,
            "capacity": {"storage": has} if has else {},
            **(status or {}),
        },
    }
    return msgspec.convert(body, PersistentVolumeClaim)


def routed(to: str = "n1", **more: str) -> dict[str, Any]:
    """Of a claim that the controller has sent to a node."""
    return {
        "labels": {NODE_LABEL: to},
        "annotations": {"volume.kubernetes.io/storage-provisioner": DYNAMIC, **more},
    }


def room(
    cls: str, largest: str, node_name: str = "n1", *, annotations: Mapping[str, str] | None = None
) -> CSIStorageCapacity:
    labels = {NODE_LABEL: node_name, "csi.storage.k8s.io/drivername": DYNAMIC}
    body = {
        "metadata": {
            "name": f"room-{node_name}",
            "namespace": "lvp",
            "labels": labels,
            "annotations": dict(annotations or {}),
        },
        "storageClassName": cls,
        "nodeTopology": {"matchLabels": {HOSTNAME: node_name}},
        "capacity": largest,
        "maximumVolumeSize": largest,
    }
    return msgspec.convert(body, CSIStorageCapacity)


def job(volume_name: str, state: str = "") -> Job:
    uid = f"uid-{volume_name}"
    conditions = [{"type": state, "status": "True"}] if state else []
    body = {
        "metadata": {
            "name": f"cleanup-{uid}",
            "labels": {"pv": volume_name, "pvuuid": uid, NODE_LABEL: "n1"},
        },
        "status": {"conditions": conditions},
    }
    return msgspec.convert(body, Job)


def content(
    name: str = "snapcontent-1",
    *,
    snapshot: str = "before",
    of: str = "pv-1",
    handle: str = "",
    node_name: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    deleting: bool = False,
    age: float = 60,
    **spec: Any,
) -> SeenContent:
    """A VolumeSnapshotContent; `node_name`: the node whose agent has taken it on."""
    owned = {NODE_LABEL: node_name} if node_name else {}
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": dict(labels or {}),
        "annotations": {**owned, **(annotations or {})},
        "creationTimestamp": ago(age),
    }
    if deleting:
        metadata["deletionTimestamp"] = ago(age)
    body = {
        "metadata": metadata,
        "spec": {
            "driver": CSI,
            "deletionPolicy": "Delete",
            "source": {"snapshotHandle": handle} if handle else {"volumeHandle": of},
            "volumeSnapshotRef": {"name": snapshot, "namespace": "default", "uid": "uid-of-it"},
            "volumeSnapshotClassName": "snapshots",
            **spec,
        },
        "status": status,
    }
    return msgspec.convert(body, SeenContent)


def group(
    name: str = "groupsnapcontent-1",
    *,
    snapshot: str = "nightly",
    of: Sequence[str] = ("pv-1", "pv-2"),
    handle: str = "",
    node_name: str = "",
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    deleting: bool = False,
    age: float = 60,
    **spec: Any,
) -> VolumeGroupSnapshotContent:
    """A VolumeGroupSnapshotContent; `node_name`: the node whose agent has taken it on."""
    owned = {NODE_LABEL: node_name} if node_name else {}
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "annotations": {**owned, **(annotations or {})},
        "creationTimestamp": ago(age),
    }
    if deleting:
        metadata["deletionTimestamp"] = ago(age)
    there = {"volumeGroupSnapshotHandle": handle, "volumeSnapshotHandles": [f"{handle}-1"]}
    source = {"groupSnapshotHandles": there} if handle else {"volumeHandles": list(of)}
    ref = {"name": snapshot, "namespace": "default", "uid": "uid-of-it"}
    body = {
        "metadata": metadata,
        "spec": {
            "driver": CSI,
            "deletionPolicy": "Delete",
            "source": source,
            "volumeGroupSnapshotRef": ref,
            "volumeGroupSnapshotClassName": "groups",
            **spec,
        },
        "status": status,
    }
    return msgspec.convert(body, VolumeGroupSnapshotContent)


def event(
    about: str,
    reason: str,
    message: str = "",
    *,
    kind: str = "PersistentVolume",
    type_: str = "Warning",
    age: float = 60,
    by: str = "local-volume-provisioner",
    uid: str | None = None,
    version: int | str = 0,
    host: str = "n1",
) -> SeenEvent:
    default = {"PersistentVolumeClaim": "claim-uid"}.get(kind, f"uid-{about}")
    namespaced = kind in ("PersistentVolumeClaim", "Pod")
    body = {
        "metadata": {
            "name": f"{about}.{reason}",
            "namespace": "default",
            "resourceVersion": str(version),
        },
        "involvedObject": {
            "kind": kind,
            "name": about,
            "namespace": "default" if namespaced else "",
            "uid": default if uid is None else uid,
        },
        "type": type_,
        "reason": reason,
        "message": message or reason,
        "lastTimestamp": ago(age),
        "source": {"component": by, "host": host},
    }
    return msgspec.convert(body, SeenEvent)


def facts(
    *things: Any, without: Mapping[str, str] | None = None, consumers: bool = True, **more: Any
) -> Facts:
    """A cluster of these things; node n1 with a ready agent unless others are given.

    `without` says what could not be read, by the plural, and why.
    """
    nodes = [one for one in things if isinstance(one, SeenNode)] or [node()]
    pods = [one for one in things if isinstance(one, Pod)]
    ours = [one for one in pods if one.metadata.owner_references]
    if not any(one.spec.node_name for one in ours):
        ours.append(agent())
    known: dict[str, Any] = {
        "nodes": {one.metadata.name: one for one in nodes},
        "persistentvolumes": _named(things, PersistentVolume),
        "persistentvolumeclaims": {
            f"default/{name}": one for name, one in _named(things, PersistentVolumeClaim).items()
        },
        "storageclasses": _named(things, StorageClass),
        "csistoragecapacities": [one for one in things if isinstance(one, CSIStorageCapacity)],
        "pods": ours,
        "jobs": [one for one in things if isinstance(one, Job)],
        "volumesnapshotcontents": _named(things, SeenContent),
        "volumegroupsnapshotcontents": _named(things, VolumeGroupSnapshotContent),
        "events": [one for one in things if isinstance(one, SeenEvent)],
    }
    for what in without or {}:
        known[what] = None
    used_by = [one for one in pods if not one.metadata.owner_references]
    fields: dict[str, Any] = {
        "now": NOW,
        "nodes": known["nodes"],
        "volumes": known["persistentvolumes"],
        "claims": known["persistentvolumeclaims"],
        "classes": known["storageclasses"],
        "capacities": known["csistoragecapacities"],
        "pods": known["pods"],
        "daemon_sets": [],
        "jobs": known["jobs"],
        "leases": [],
        "events": known["events"],
        "drivers": frozenset({DYNAMIC, CSI}),
        "contents": known["volumesnapshotcontents"],
        "groups": known["volumegroupsnapshotcontents"],
        "consumers": used_by if consumers else None,
        "selector": "part-of=us",
        "unknown": dict(without or {}),
    }
    return Facts(**{**fields, **more})


def _named(things: Sequence[Any], kind: type[KubeObject]) -> dict[str, Any]:
    return {one.metadata.name: one for one in things if isinstance(one, kind)}
