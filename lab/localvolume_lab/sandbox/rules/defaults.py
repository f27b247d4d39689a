"""What the server fills in by itself: defaults, and what each kind's creation resets."""

from __future__ import annotations

from typing import Any

from localvolume_lab.sandbox.clock import timestamp
from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    CSI_DRIVERS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
    STORAGE_CLASSES,
    Resource,
)

Body = dict[str, Any]

PV_PROTECTION = "kubernetes.io/pv-protection"
PVC_PROTECTION = "kubernetes.io/pvc-protection"

_DRIVER: Body = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "volumeLifecycleModes": ["Persistent"],
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}


def apply_defaults(resource: Resource, body: Body) -> None:
    """Defaults that hold on every write. Changes `body`."""
    if resource is PERSISTENT_VOLUMES:
        spec = body.setdefault("spec", {})
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        body.setdefault("status", {})
    elif resource is CLAIMS:
        spec = body.setdefault("spec", {})
        spec.setdefault("resources", {})
        spec.setdefault("volumeMode", "Filesystem")
        body.setdefault("status", {})
    elif resource is STORAGE_CLASSES:
        body.setdefault("reclaimPolicy", "Delete")
        body.setdefault("volumeBindingMode", "Immediate")
    elif resource is CSI_DRIVERS:
        body["spec"] = {**_DRIVER, **body.get("spec", {})}
    elif resource is NODES:
        body.setdefault("spec", {})
        status = body.setdefault("status", {})
        if "capacity" in status:
            status.setdefault("allocatable", status["capacity"])
    elif resource is NAMESPACES:
        labels = body["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = body["metadata"].get("name", "")
    elif resource is EVENTS:
        for key in ("firstTimestamp", "lastTimestamp", "eventTime"):
            body.setdefault(key, None)
        for key in ("reportingComponent", "reportingInstance"):
            body.setdefault(key, "")
        body.setdefault("source", {})
    elif resource is PODS:
        _default_pod_spec(body.setdefault("spec", {}))
    elif resource is JOBS:
        spec = body.setdefault("spec", {})
        for key, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6)):
            spec.setdefault(key, value)
        for key, text in (
            ("completionMode", "NonIndexed"),
            ("podReplacementPolicy", "TerminatingOrFailed"),
        ):
            spec.setdefault(key, text)
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
    elif resource in {SNAPSHOTS, SNAPSHOT_CONTENTS}:
        body.setdefault("spec", {})


def reset_on_create(resource: Resource, body: Body) -> None:
    """What a create decides whatever the body says: first status, protection. Changes `body`."""
    meta = body["metadata"]
    if resource is PERSISTENT_VOLUMES:
        body["status"] = {"phase": "Pending", "lastPhaseTransitionTime": timestamp()}
        _add_finalizer(meta, PV_PROTECTION)
    elif resource is CLAIMS:
        body["status"] = {"phase": "Pending"}
        _add_finalizer(meta, PVC_PROTECTION)
    elif resource is PODS:
        body["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        meta["generation"] = 1
    elif resource is NAMESPACES:
        finalizers = body.get("spec", {}).get("finalizers") or []
        body["spec"] = {"finalizers": list(dict.fromkeys([*finalizers, "kubernetes"]))}
        body["status"] = {"phase": "Active"}
    elif resource is NODES:
        taints = body["spec"].setdefault("taints", [])
        if not any(taint.get("key") == "node.kubernetes.io/not-ready" for taint in taints):
            taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    elif resource in {SNAPSHOTS, SNAPSHOT_CONTENTS}:
        body.pop("status", None)
    elif resource is JOBS:
        body["status"] = {}
        meta["generation"] = 1
        _label_job(body)


def _add_finalizer(meta: Body, finalizer: str) -> None:
    finalizers = meta.setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _default_pod_spec(spec: Body) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("securityContext", {})
    spec.setdefault("enableServiceLinks", True)


def _label_job(body: Body) -> None:
    """The labels by which a job finds its pods, in their new and their old names."""
    meta, spec = body["metadata"], body["spec"]
    if spec.get("manualSelector"):
        return
    labels = {
        "batch.kubernetes.io/controller-uid": meta["uid"],
        "batch.kubernetes.io/job-name": meta["name"],
        "controller-uid": meta["uid"],
        "job-name": meta["name"],
    }
    meta["labels"] = {**labels, **meta.get("labels", {})}
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}
    template = spec.get("template") or {}
    template_meta = dict(template.get("metadata") or {})
    template_meta["labels"] = {**labels, **(template_meta.get("labels") or {})}
    spec["template"] = {**template, "metadata": template_meta}
