"""Tables: the columns and cells `kubectl get` prints, as the real server's printers make them.

Source of columns and wording: k8s.io/kubernetes/pkg/printers/internalversion/printers.go, and the
definitions of external-snapshotter for its kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from localvolume_lab.sandbox.clock import age
from localvolume_lab.sandbox.http.events_view import to_new
from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    CONFIG_MAPS,
    CSI_DRIVERS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NEW_EVENTS,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICE_ACCOUNTS,
    SNAPSHOT_CLASSES,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Resource,
)

Body = Mapping[str, Any]
Columns = list[dict[str, Any]]
Cells = Callable[[Body], list[Any]]

_NONE, _UNSET, _UNKNOWN = "<none>", "<unset>", "<unknown>"
_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(modes: Any) -> str:
    return ",".join(_SHORT_MODES[mode] for mode in _SHORT_MODES if mode in (modes or []))


def _age(body: Body) -> str:
    return age(body["metadata"].get("creationTimestamp"))


def _volume(body: Body) -> list[Any]:
    meta, spec, status = body["metadata"], body["spec"], body["status"]
    claim = spec.get("claimRef")
    phase = status.get("phase", "")
    return [
        meta["name"],
        spec.get("capacity", {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec["persistentVolumeReclaimPolicy"],
        "Terminating" if "deletionTimestamp" in meta else phase,
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", _UNSET),
        status.get("reason", ""),
        _age(body),
        spec.get("volumeMode", _UNSET),
    ]


def _claim(body: Body) -> list[Any]:
    meta, spec, status = body["metadata"], body["spec"], body["status"]
    bound = bool(spec.get("volumeName"))
    return [
        meta["name"],
        "Terminating" if "deletionTimestamp" in meta else status.get("phase", ""),
        spec.get("volumeName", ""),
        status.get("capacity", {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", _UNSET),
        _age(body),
        spec.get("volumeMode", _UNSET),
    ]


def _class(body: Body) -> list[Any]:
    name = body["metadata"]["name"]
    annotations = body["metadata"].get("annotations", {})
    if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    return [
        name,
        body["provisioner"],
        body["reclaimPolicy"],
        body["volumeBindingMode"],
        bool(body.get("allowVolumeExpansion")),
        _age(body),
    ]


def _driver(body: Body) -> list[Any]:
    spec = body["spec"]
    requests = spec.get("tokenRequests") or []
    return [
        body["metadata"]["name"],
        spec["attachRequired"],
        spec["podInfoOnMount"],
        spec["storageCapacity"],
        ",".join(item.get("audience", "") for item in requests) or _UNSET,
        spec["requiresRepublish"],
        ",".join(spec.get("volumeLifecycleModes", [])) or _NONE,
        _age(body),
    ]


def _capacity(body: Body) -> list[Any]:
    """The server has no printer for them: this is what every kind without one shows."""
    return [body["metadata"]["name"], body["metadata"]["creationTimestamp"]]


def _node(body: Body) -> list[Any]:
    meta, status = body["metadata"], body.get("status", {})
    words = [
        "Ready" if condition.get("status") == "True" else "NotReady"
        for condition in status.get("conditions", [])
        if condition.get("type") == "Ready"
    ] or ["Unknown"]
    if body.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(
        key.removeprefix(prefix) for key in meta.get("labels", {}) if key.startswith(prefix)
    )
    addresses = {item.get("type"): item.get("address") for item in status.get("addresses", [])}
    info = status.get("nodeInfo", {})
    return [
        meta["name"],
        ",".join(words),
        ",".join(roles) or _NONE,
        _age(body),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event(body: Body) -> list[Any]:
    about, source = body.get("involvedObject", {}), body.get("source", {})
    first = body.get("firstTimestamp") or body.get("eventTime")
    series = body.get("series") or {}
    last = series.get("lastObservedTime") or body.get("lastTimestamp") or first
    count = series.get("count") or body.get("count") or 1
    seen = age(last)
    if count > 1:
        seen = f"{seen} (x{count} over {age(first)})"
    component = source.get("component") or body.get("reportingComponent", "")
    kind, name = about.get("kind", "").lower(), about.get("name", "")
    return [
        seen,
        body.get("type", ""),
        body.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        ", ".join(filter(None, (component, source.get("host", "")))),
        body.get("message", "").strip(),
        age(first),
        count,
        body["metadata"]["name"],
    ]


def _namespace(body: Body) -> list[Any]:
    return [body["metadata"]["name"], body.get("status", {}).get("phase", ""), _age(body)]


def _pod(body: Body) -> list[Any]:
    meta, spec, status = body["metadata"], body["spec"], body["status"]
    containers = status.get("containerStatuses", [])
    ready = sum(1 for item in containers if item.get("ready"))
    word = status.get("reason") or status.get("phase", "")
    for item in containers:
        state = item.get("state", {})
        word = (state.get("waiting") or state.get("terminated") or {}).get("reason", word)
    if "deletionTimestamp" in meta:
        word = "Terminating"
    return [
        meta["name"],
        f"{ready}/{len(spec.get('containers', []))}",
        "Completed" if word == "Succeeded" else word,
        str(sum(item.get("restartCount", 0) for item in containers)),
        _age(body),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _NONE,
    ]


def _config_map(body: Body) -> list[Any]:
    return [
        body["metadata"]["name"],
        len(body.get("data", {})) + len(body.get("binaryData", {})),
        _age(body),
    ]


def _service_account(body: Body) -> list[Any]:
    return [body["metadata"]["name"], len(body.get("secrets", [])), _age(body)]


def _job(body: Body) -> list[Any]:
    meta, spec, status = body["metadata"], body["spec"], body.get("status", {})
    true = {c["type"] for c in status.get("conditions", []) if c.get("status") == "True"}
    word = "Running"
    if "deletionTimestamp" in meta:
        word = "Terminating"
    elif "Complete" in true:
        word = "Complete"
    elif "Failed" in true:
        word = "Failed"
    containers = spec.get("template", {}).get("spec", {}).get("containers", [])
    labels = spec.get("selector", {}).get("matchLabels", {})
    return [
        meta["name"],
        word,
        f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}",
        age(status["startTime"]) if "startTime" in status else "",
        _age(body),
        ",".join(item.get("name", "") for item in containers),
        ",".join(item.get("image", "") for item in containers),
        ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE,
    ]


def _lease(body: Body) -> list[Any]:
    holder = body.get("spec", {}).get("holderIdentity", "")
    return [body["metadata"]["name"], holder, _age(body)]


def _snapshot(body: Body) -> list[Any]:
    spec, status = body["spec"], body.get("status", {})
    source = spec.get("source", {})
    return [
        body["metadata"]["name"],
        status.get("readyToUse"),
        source.get("persistentVolumeClaimName"),
        source.get("volumeSnapshotContentName"),
        status.get("restoreSize"),
        spec.get("volumeSnapshotClassName"),
        status.get("boundVolumeSnapshotContentName"),
        age(status["creationTime"]) if "creationTime" in status else None,
        _age(body),
    ]


def _snapshot_content(body: Body) -> list[Any]:
    spec, status = body["spec"], body.get("status", {})
    reference = spec.get("volumeSnapshotRef", {})
    return [
        body["metadata"]["name"],
        status.get("readyToUse"),
        status.get("restoreSize"),
        spec.get("deletionPolicy"),
        spec.get("driver"),
        spec.get("volumeSnapshotClassName"),
        reference.get("name"),
        reference.get("namespace"),
        _age(body),
    ]


def _snapshot_class(body: Body) -> list[Any]:
    return [body["metadata"]["name"], body.get("driver"), body.get("deletionPolicy"), _age(body)]


# Column names, each with ":type" where that is no string; those after "|" are printed by `-o wide`
# only.
_PRINTERS: dict[Resource, tuple[str, Cells]] = {
    PERSISTENT_VOLUMES: (
        (
            "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,"
            "VolumeAttributesClass,Reason,Age|VolumeMode"
        ),
        _volume,
    ),
    CLAIMS: (
        (
            "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age"
            "|VolumeMode"
        ),
        _claim,
    ),
    STORAGE_CLASSES: (
        "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
        _class,
    ),
    CSI_DRIVERS: (
        (
            "Name,AttachRequired:boolean,PodInfoOnMount:boolean,StorageCapacity:boolean,"
            "TokenRequests,RequiresRepublish:boolean,Modes,Age"
        ),
        _driver,
    ),
    STORAGE_CAPACITIES: ("Name,Created At:date", _capacity),
    NODES: (
        (
            "Name,Status,Roles,Age,Version|Internal-IP,External-IP,OS-Image,Kernel-Version,"
            "Container-Runtime"
        ),
        _node,
    ),
    EVENTS: (
        "Last Seen,Type,Reason,Object,*Subobject,*Source,Message,*First Seen,*Count,*Name",
        _event,
    ),
    NAMESPACES: ("Name,Status,Age", _namespace),
    PODS: (
        "Name,Ready,Status,Restarts,Age|IP,Node,Nominated Node,Readiness Gates",
        _pod,
    ),
    CONFIG_MAPS: ("Name,Data,Age", _config_map),
    SERVICE_ACCOUNTS: ("Name,Secrets,Age", _service_account),
    JOBS: ("Name,Status,Completions,Duration,Age|Containers,Images,Selector", _job),
    LEASES: ("Name,Holder,Age", _lease),
    SNAPSHOTS: (
        (
            "Name,ReadyToUse:boolean,SourcePVC,SourceSnapshotContent,RestoreSize,SnapshotClass,"
            "SnapshotContent,CreationTime:date,Age:date"
        ),
        _snapshot,
    ),
    SNAPSHOT_CONTENTS: (
        (
            "Name,ReadyToUse:boolean,RestoreSize:integer,DeletionPolicy,Driver,VolumeSnapshotClass,"
            "VolumeSnapshot,VolumeSnapshotNamespace,Age:date"
        ),
        _snapshot_content,
    ),
    SNAPSHOT_CLASSES: ("Name,Driver,DeletionPolicy,Age:date", _snapshot_class),
}
_PRINTERS[NEW_EVENTS] = _PRINTERS[EVENTS]


def columns_of(resource: Resource) -> Columns:
    """The columnDefinitions of a kind's table (meta/v1 TableColumnDefinition)."""
    usual, _, wide = _PRINTERS[resource][0].partition("|")
    columns = [*usual.split(","), *(f"*{name}" for name in wide.split(",") if wide)]
    return [
        {
            "name": name.removeprefix("*"),
            "type": kind or "string",
            "format": "name" if name.removeprefix("*") == "Name" else "",
            "description": "",
            "priority": 1 if name.startswith("*") else 0,
        }
        for name, _, kind in (column.partition(":") for column in columns)
    ]


def row(resource: Resource, body: Body, include: str) -> dict[str, Any]:
    """One row; `include` says how much of the object comes along: None, Metadata or Object."""
    made: dict[str, Any] = {"cells": _PRINTERS[resource][1](body)}
    if include == "Metadata":
        made["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": body["metadata"],
        }
    elif include == "Object":
        made["object"] = to_new(body) if resource is NEW_EVENTS else body
    return made
