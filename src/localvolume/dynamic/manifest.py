"""The PersistentVolume of a volume that was made for a claim: pure."""

from __future__ import annotations

from typing import Any

from localvolume.backends.model import Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import ClassFacts, SourceType
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import claims, marks
from localvolume.volumes.capacity import quantity
from localvolume.volumes.manifest import NodeFacts, PublishingOptions
from localvolume.volumes.modifying import class_of

KUTTI_BY = "kuttiproject.org/provisionedBy"
OPENEBS_TYPE = "openebs.io/cas-type"

CSI_IDENTITY = "storage.kubernetes.io/csiProvisionerIdentity"
"""The volume attribute in which external-provisioner says who made a volume."""


def persistent_volume(
    record: Record,
    *,
    claim: PersistentVolumeClaim,
    class_facts: ClassFacts,
    pool: PoolConfig,
    pool_id: str,
    host_path: str,
    source: SourceType,
    node: NodeFacts,
    options: PublishingOptions,
) -> dict[str, Any]:
    """Returns the object to create (Kubernetes API, core/v1), pre-bound to the claim.

    A `hostPath` is of type Directory: local-path's `DirectoryOrCreate` would hide that a disk is
    not mounted.
    """
    provisioner = class_facts.object.provisioner
    labels = {key: node.labels[key] for key in options.node_labels if key in node.labels}
    labels |= options.labels
    labels[marks.NODE_LABEL] = marks.node_key(node.name)
    annotations = {
        marks.PROVISIONED_BY_ANNOTATION: provisioner,
        marks.POOL_ANNOTATION: f"{pool.name}/{pool_id}",
    }
    _as_they_did(pool, provisioner, node, labels, annotations)
    spec: dict[str, Any] = {
        "capacity": {"storage": quantity(record.size_bytes)},
        "accessModes": list(claim.spec.access_modes),
        "persistentVolumeReclaimPolicy": class_facts.object.reclaim_policy or "Delete",
        "storageClassName": class_facts.name,
        "volumeMode": record.volume_mode,
        "claimRef": claims.reference(claim),
        "nodeAffinity": {"required": {"nodeSelectorTerms": [_term(class_facts, node)]}},
    }
    if name := class_of(claim):
        # The two are bound only if they name the same one, which the claim cannot change before.
        spec["volumeAttributesClassName"] = name
    if class_facts.object.mount_options:
        spec["mountOptions"] = list(class_facts.object.mount_options)
    fs_type = ""
    if record.backend in ("image", "lvm") and record.volume_mode == "Filesystem":
        fs_type = record.fs_type or "ext4"
    if record.driver:
        spec["csi"] = {
            "driver": record.driver,
            "volumeHandle": record.name,
            **({"fsType": fs_type} if fs_type else {}),
            "volumeAttributes": {CSI_IDENTITY: record.driver},
        }
    elif source == "hostPath":
        spec["hostPath"] = {"path": host_path, "type": "Directory"}
    else:
        spec["local"] = {"path": host_path, **({"fsType": fs_type} if fs_type else {})}
    metadata = {
        "name": record.name,
        "labels": labels,
        "annotations": annotations,
        "finalizers": [marks.FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _term(class_facts: ClassFacts, node: NodeFacts) -> dict[str, Any]:
    return {
        "matchExpressions": [
            {"key": key, "operator": "In", "values": [node.labels[key]]}
            for key in class_facts.wish.affinity_keys
        ]
    }


def _as_they_did(
    pool: PoolConfig,
    provisioner: str,
    node: NodeFacts,
    labels: dict[str, str],
    annotations: dict[str, str],
) -> None:
    """Add what the replaced provisioner must find on a volume if somebody goes back to it."""
    match pool.flavor:
        case "kutti":
            annotations[KUTTI_BY] = provisioner
            annotations[marks.KUTTI_NODE_ANNOTATION] = node.name
        case "local-path":
            annotations[marks.LOCAL_PATH_NODE_ANNOTATION] = node.name
        case "openebs":
            labels[OPENEBS_TYPE] = "local-hostpath"
