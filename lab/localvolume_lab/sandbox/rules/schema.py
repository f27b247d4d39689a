"""Which fields our kinds have, and their types, as far as the sandbox looks.

A real server decodes into typed structs: it drops what it does not know (or answers 400 under
`fieldValidation=Strict`), refuses wrong types with 400, and keeps no nulls. Here that is done for
metadata, for everything of the storage kinds, and for the first level of the rest; deeper parts of
pods, jobs and nodes pass as they are. Field names: k8s.io/api, release 1.34, and the client of
external-snapshotter, v8.7.0. `healthStatus` of claims is release 1.37's, for its gate
CSIVolumeHealth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localvolume_lab.sandbox.rules.quantities import canonical

ANY = "any"
OBJECT = "object"
TEXT = "string"
FLAG = "bool"
NUMBER = "int64"
TEXTS = "[]string"
TEXT_MAP = "map[string]string"
QUANTITIES = "map[string]Quantity"
QUANTITY = "Quantity"
#: a list of whatever; the server keeps no empty ones
ITEMS = "[]any"

Schema = Mapping[str, Any]


def _all(kind: str, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


META: Schema = {
    **_all(TEXT, "creationTimestamp deletionTimestamp generateName name namespace"),
    **_all(TEXT, "resourceVersion selfLink uid"),
    **_all(NUMBER, "deletionGracePeriodSeconds generation"),
    "annotations": TEXT_MAP,
    "labels": TEXT_MAP,
    "finalizers": TEXTS,
    "managedFields": ANY,
    "ownerReferences": [
        {**_all(TEXT, "apiVersion kind name uid"), **_all(FLAG, "controller blockOwnerDeletion")}
    ],
}

_REQUIREMENTS = [{**_all(TEXT, "key operator"), "values": TEXTS}]
_TERMS = [{"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}]
_REFERENCE = _all(TEXT, "apiVersion fieldPath kind name namespace resourceVersion uid")

_VOLUME_SOURCES = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume flocker "
    "gcePersistentDisk glusterfs hostPath iscsi nfs photonPersistentDisk portworxVolume quobyte "
    "rbd scaleIO storageos vsphereVolume"
)

_KINDS: dict[str, Schema] = {
    "PersistentVolume": {
        "spec": {
            **_all(ANY, _VOLUME_SOURCES),
            **_all(TEXT, "persistentVolumeReclaimPolicy storageClassName volumeMode"),
            **_all(TEXT, "volumeAttributesClassName"),
            **_all(TEXTS, "accessModes mountOptions"),
            "capacity": QUANTITIES,
            "claimRef": _REFERENCE,
            "local": _all(TEXT, "fsType path"),
            "nodeAffinity": {"required": {"nodeSelectorTerms": _TERMS}},
        },
        "status": _all(TEXT, "lastPhaseTransitionTime message phase reason"),
    },
    "PersistentVolumeClaim": {
        "spec": {
            **_all(TEXT, "storageClassName volumeAttributesClassName volumeMode volumeName"),
            **_all(ANY, "dataSource dataSourceRef"),
            "accessModes": TEXTS,
            "resources": _all(QUANTITIES, "limits requests"),
            "selector": {
                "matchExpressions": _REQUIREMENTS,
                "matchLabels": TEXT_MAP,
            },
        },
        "status": {
            **_all(ANY, "allocatedResourceStatuses healthStatus modifyVolumeStatus"),
            "conditions": ITEMS,
            **_all(TEXT, "currentVolumeAttributesClassName phase"),
            **_all(QUANTITIES, "allocatedResources capacity"),
            "accessModes": TEXTS,
        },
    },
    "StorageClass": {
        **_all(TEXT, "provisioner reclaimPolicy volumeBindingMode"),
        "allowVolumeExpansion": FLAG,
        "allowedTopologies": ANY,
        "mountOptions": TEXTS,
        "parameters": TEXT_MAP,
    },
    "CSIDriver": {
        "spec": {
            **_all(FLAG, "attachRequired podInfoOnMount requiresRepublish seLinuxMount"),
            **_all(FLAG, "storageCapacity"),
            "fsGroupPolicy": TEXT,
            "nodeAllocatableUpdatePeriodSeconds": NUMBER,
            "tokenRequests": ITEMS,
            "volumeLifecycleModes": TEXTS,
        }
    },
    "CSIStorageCapacity": {
        **_all(QUANTITY, "capacity maximumVolumeSize"),
        "nodeTopology": {"matchExpressions": _REQUIREMENTS, "matchLabels": TEXT_MAP},
        "storageClassName": TEXT,
    },
    "Node": {
        "spec": {
            **_all(TEXT, "externalID podCIDR providerID"),
            "configSource": ANY,
            "podCIDRs": TEXTS,
            "taints": [_all(TEXT, "effect key timeAdded value")],
            "unschedulable": FLAG,
        },
        "status": {
            **_all(QUANTITIES, "allocatable capacity"),
            **_all(ANY, "addresses conditions config daemonEndpoints features images nodeInfo"),
            **_all(ANY, "runtimeHandlers volumesAttached"),
            "phase": TEXT,
            "volumesInUse": TEXTS,
        },
    },
    "Namespace": {
        "spec": {"finalizers": TEXTS},
        "status": {"phase": TEXT, "conditions": ANY},
    },
    "Event": {
        **_all(TEXT, "action eventTime firstTimestamp lastTimestamp message reason"),
        **_all(TEXT, "reportingComponent reportingInstance type"),
        "count": NUMBER,
        "involvedObject": _REFERENCE,
        "related": _REFERENCE,
        "series": {"count": NUMBER, "lastObservedTime": TEXT},
        "source": _all(TEXT, "component host"),
    },
    "Pod": {"spec": OBJECT, "status": OBJECT},
    "Job": {"spec": OBJECT, "status": OBJECT},
    "DaemonSet": {"spec": OBJECT, "status": OBJECT},
    "ReplicaSet": {"spec": OBJECT, "status": OBJECT},
    "CSINode": {"spec": OBJECT},
    "ConfigMap": {"binaryData": TEXT_MAP, "data": TEXT_MAP, "immutable": FLAG},
    "ServiceAccount": {
        "automountServiceAccountToken": FLAG,
        "imagePullSecrets": ANY,
        "secrets": [_REFERENCE],
    },
    "Lease": {
        "spec": {
            **_all(TEXT, "acquireTime holderIdentity preferredHolder renewTime strategy"),
            **_all(NUMBER, "leaseDurationSeconds leaseTransitions"),
        }
    },
    "VolumeSnapshotClass": {**_all(TEXT, "deletionPolicy driver"), "parameters": TEXT_MAP},
    "VolumeSnapshotContent": {
        "spec": {
            **_all(TEXT, "deletionPolicy driver sourceVolumeMode volumeSnapshotClassName"),
            "source": _all(TEXT, "snapshotHandle volumeHandle"),
            "volumeSnapshotRef": _REFERENCE,
        },
        "status": {
            **_all(TEXT, "snapshotHandle volumeGroupSnapshotHandle"),
            **_all(NUMBER, "creationTime restoreSize"),
            "error": _all(TEXT, "message time"),
            "readyToUse": FLAG,
        },
    },
    "VolumeSnapshot": {
        "spec": {
            "source": _all(TEXT, "persistentVolumeClaimName volumeSnapshotContentName"),
            "volumeSnapshotClassName": TEXT,
        },
        "status": {
            **_all(TEXT, "boundVolumeSnapshotContentName creationTime volumeGroupSnapshotName"),
            "error": _all(TEXT, "message time"),
            "readyToUse": FLAG,
            "restoreSize": QUANTITY,
        },
    },
}


class WrongType(Exception):
    """A value of the wrong JSON type, or a malformed quantity; the text is the server's."""


def conform(kind: str, body: Mapping[str, Any], unknown: list[str]) -> dict[str, Any]:
    """A copy with known fields only; the paths of dropped ones are appended to `unknown`.

    Raises WrongType.
    """
    schema = {"kind": TEXT, "apiVersion": TEXT, "metadata": META, **_KINDS[kind]}
    result: dict[str, Any] = _conform(body, schema, "", kind, unknown)
    return result


def _conform(value: Any, schema: Any, path: str, kind: str, unknown: list[str]) -> Any:
    if schema == OBJECT:
        _expect(value, dict, path, kind, "object")
    elif schema == ITEMS:
        _expect(value, list, path, kind, "slice")
    if schema in (ANY, ITEMS, OBJECT):
        return _without_nulls(value)
    if isinstance(schema, Mapping):
        _expect(value, dict, path, kind, "object")
        result: dict[str, Any] = {}
        for key, item in value.items():
            below = f"{path}.{key}" if path else key
            if key not in schema:
                unknown.append(below)
            elif item is not None and (item != [] or schema[key] != ITEMS):
                result[key] = _conform(item, schema[key], below, kind, unknown)
        return result
    if isinstance(schema, list):
        _expect(value, list, path, kind, "slice")
        return [
            _conform(item, schema[0], f"{path}[{i}]", kind, unknown) for i, item in enumerate(value)
        ]
    return _scalar(value, schema, path, kind)


def _scalar(value: Any, schema: str, path: str, kind: str) -> Any:
    if schema == TEXT:
        _expect(value, str, path, kind, "string")
    elif schema == FLAG:
        _expect(value, bool, path, kind, "bool")
    elif schema == NUMBER:
        _expect(value, int, path, kind, "int64")
    elif schema == TEXTS:
        _expect(value, list, path, kind, "[]string")
        for item in value:
            _expect(item, str, path, kind, "string")
        return list(value)
    elif schema == TEXT_MAP:
        _expect(value, dict, path, kind, "map[string]string")
        for item in value.values():
            if item is not None:
                _expect(item, str, path, kind, "string")
        return {key: item or "" for key, item in value.items()}
    elif schema == QUANTITIES:
        _expect(value, dict, path, kind, "ResourceList")
        try:
            return {key: canonical(item) for key, item in value.items()}
        except ValueError as error:
            raise WrongType(str(error)) from None
    elif schema == QUANTITY:
        try:
            return canonical(value)
        except ValueError as error:
            raise WrongType(str(error)) from None
    return value


def _expect(value: Any, kind_of: type, path: str, kind: str, go_type: str) -> None:
    if isinstance(value, kind_of) and not (kind_of is int and isinstance(value, bool)):
        return
    found = {str: "string", bool: "bool", dict: "object", list: "array"}.get(type(value), "number")
    raise WrongType(
        f"json: cannot unmarshal {found} into Go struct field {kind}.{path} of type {go_type}"
    )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
