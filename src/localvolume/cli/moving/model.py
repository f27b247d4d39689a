"""What is known of a volume that is to be moved to our CSI driver, and the steps of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from localvolume.dynamic.manifest import CSI_IDENTITY
from localvolume.kube.objects import Meta, PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import marks
from localvolume.volumes.objects import claim_of

PROTECTION = "kubernetes.io/pv-protection"
"""kube-controller-manager's finalizer. It stays on an object that is bound."""


@dataclass(frozen=True, slots=True)
class Former:
    """The object whose place another one takes: as it was read, and as the API server gave it.
    `note` is the metadata of what that is written in."""

    seen: PersistentVolume
    body: Mapping[str, Any]
    note: Meta = field(default_factory=Meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One look at one volume. `former` is what was kept of it when moving it was begun.

    `claim` is the one whose UID the object names, None if there is no such claim. `pods` are those
    that use it, by name. `serving` are the keys of the nodes whose kubelets know the driver.
    """

    name: str
    volume: PersistentVolume | None = None
    former: Former | None = None
    claim: PersistentVolumeClaim | None = None
    pods: tuple[str, ...] = ()
    serving: frozenset[str] = frozenset()


_TAKEN = (
    *("capacity", "accessModes", "storageClassName", "volumeMode", "mountOptions"),
    "nodeAffinity",
)
"""What of an object's spec stays as it was."""

Kind = Literal[
    "refuse",  # nothing may be done
    "done",  # nothing is left to be done
    "keep",  # write down the object, from which the new one is made, over what was written before
    "retain",  # have Kubernetes and the agent keep the data, whatever happens
    "delete",  # delete the object, which its finalizers still hold
    "let go",  # take the finalizers away: the object is gone
    "create",  # make the object anew, for the driver
    "wait",  # its agent has not taken it over yet
    "forget",  # delete what was written down
]


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done next for a volume, and why. `policy` is the new object's."""

    kind: Kind
    reason: str = ""
    policy: str = ""


def policy_of(volume: PersistentVolume) -> str:
    """The reclaim policy that people gave it."""
    ours = volume.metadata.annotations.get(marks.MOVING_ANNOTATION)
    return ours or volume.spec.persistent_volume_reclaim_policy or "Delete"


def replacement(former: Former, policy: str) -> dict[str, Any]:
    """The object for our CSI driver: the same volume for the same claim on the same node.

    Only what is named here is taken from what was kept. Raises ValueError if no claim had it.
    """
    metadata, spec = former.seen.metadata, former.seen.spec
    if spec.local is None or spec.claim_ref is None:
        raise ValueError(f"{metadata.name} was no local volume of a claim")
    annotations = {
        **metadata.annotations,
        marks.PROVISIONED_BY_ANNOTATION: marks.CSI_DRIVER,
        marks.MOVED_ANNOTATION: metadata.uid,
    }
    annotations.pop(marks.MOVING_ANNOTATION, None)
    fs_type = spec.local.fs_type
    return {
        "metadata": {
            "name": metadata.name,
            "labels": dict(metadata.labels),
            "annotations": annotations,
            "finalizers": [marks.FINALIZER],
        },
        "spec": {
            **{key: former.body["spec"][key] for key in _TAKEN if key in former.body["spec"]},
            "persistentVolumeReclaimPolicy": policy,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": spec.claim_ref.namespace,
                "name": spec.claim_ref.name,
                "uid": spec.claim_ref.uid,
            },
            "csi": {
                "driver": marks.CSI_DRIVER,
                "volumeHandle": metadata.name,
                **({"fsType": fs_type} if fs_type else {}),
                "volumeAttributes": {CSI_IDENTITY: marks.CSI_DRIVER},
            },
        },
    }


def claim_uid_of(facts: Facts) -> str:
    """The UID of the claim that has the volume, "" if none has."""
    found = facts.volume or (facts.former.seen if facts.former else None)
    return claim_of(found) if found else ""
