"""Which fields of an object go into a support bundle: pure, applied before secrets are removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from localvolume.config.provisioner import CSI_DRIVER

Object = Mapping[str, Any]

_META: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)
_NODE_SPEC: Final = ("taints", "unschedulable", "providerID")
_NODE_STATUS: Final = ("capacity", "allocatable", "conditions", "nodeInfo", "volumesInUse")
_CONTAINER: Final = (
    "name",
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "resources",
    "securityContext",
    "volumeMounts",
    "volumeDevices",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
)


def trimmed(kind: str, thing: Object) -> dict[str, Any]:
    """The object, reduced to the fields that concern volumes; `kind` is its plural."""
    made: dict[str, Any] = {
        key: value for key, value in thing.items() if key not in ("metadata", "managedFields")
    }
    made["metadata"] = _only(thing.get("metadata") or {}, _META)
    if kind == "nodes":
        made["spec"] = _only(thing.get("spec") or {}, _NODE_SPEC)
        made["status"] = _only(thing.get("status") or {}, _NODE_STATUS)
    if kind == "csinodes":
        # What other drivers call the node, and how many volumes they allow, is not ours to show.
        drivers = (thing.get("spec") or {}).get("drivers") or ()
        made["spec"] = {"drivers": [one for one in drivers if one.get("name") == CSI_DRIVER]}
    if kind == "pods":
        made["spec"] = _pod(thing.get("spec") or {})
    if kind in ("daemonsets", "deployments", "jobs"):
        spec = dict(thing.get("spec") or {})
        template = spec.get("template") or {}
        spec["template"] = {
            "metadata": _only(template.get("metadata") or {}, _META),
            "spec": _pod(template.get("spec") or {}),
        }
        made["spec"] = spec
    return made


def _pod(spec: Object) -> dict[str, Any]:
    made = {key: value for key, value in spec.items() if not key.endswith("ontainers")}
    for key in ("initContainers", "containers", "ephemeralContainers"):
        if spec.get(key):
            made[key] = [_only(one, _CONTAINER) for one in spec[key]]
    return made


def _only(thing: Object, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: thing[key] for key in keys if key in thing}
