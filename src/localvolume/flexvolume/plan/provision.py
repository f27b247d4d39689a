"""What is due for a claim of a FlexVolume class, and the PersistentVolume made for it: pure.

The rules follow the external-provisioner contract, as those of dynamic.plan.claims do; the first
that answers counts. Until its first mount such a PersistentVolume is an object and nothing else, so
the controller makes it, not an agent.

The parameters of a class are read strictly. elastic's classes had none. An unknown one is refused:
a misspelled one would make every volume of the class different from what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from localvolume.config.mkfsoptions import mkfs_options
from localvolume.config.syntax.names import fault_of_label_value
from localvolume.config.syntax.readers import did_you_mean, one_line, quoted
from localvolume.flexvolume.protocol import MKFS_OPTIONS, MOUNT_OPTIONS, ON_REMOVAL, SIZE, WAYS
from localvolume.kube.objects import (
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from localvolume.volumes import claims, marks
from localvolume.volumes.manifest import NodeFacts, node_affinity, node_facts
from localvolume.volumes.mountoptions import faults_of
from localvolume.volumes.objects import claim_of, is_being_deleted

Claim = PersistentVolumeClaim

EVENT_FAILED = "ProvisioningFailed"

FS_TYPE: Final = "fsType"
CSI_FS_TYPE: Final = "csi.storage.k8s.io/fstype"


@dataclass(frozen=True, slots=True)
class Action:
    """What is due, and why (a clause for people)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """Nothing, now."""


@dataclass(frozen=True, slots=True)
class Refuse(Action):
    """Nothing can be made for the claim: say so on it (EVENT_FAILED)."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Provision(Action):
    """Create this PersistentVolume."""

    claim: Claim
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """`served` are our names as a provisioner, `there` the object that has the claim's volume's
    name, `node` the selected node, if it exists and the class allows it."""

    served: Collection[str]
    storage_class: StorageClass | None
    there: PersistentVolume | None
    node: Node | None


def judge_claim(facts: ClaimFacts, claim: Claim) -> Action:
    """The one action that a claim calls for: Keep, Refuse or Provision.

    If only a part of the claim is known, it may still have to be refused: judge the whole again.
    """
    return next(answer for rule in _CLAIM_RULES if (answer := rule(facts, claim)))


def bound(_facts: ClaimFacts, claim: Claim) -> Action | None:
    return Keep(f"it has {claim.spec.volume_name}") if claim.spec.volume_name else None


def not_ours(facts: ClaimFacts, claim: Claim) -> Action | None:
    provisioner = claims.provisioner_of(claim)
    if provisioner in facts.served:
        return None
    return Keep(f"its provisioner is {provisioner or 'nobody'}")


def going(_facts: ClaimFacts, claim: Claim) -> Action | None:
    return Keep("the claim is being deleted") if is_being_deleted(claim) else None


def made(facts: ClaimFacts, claim: Claim) -> Action | None:
    if facts.there is None:
        return None
    if is_made_for(facts.there, claim):
        return Keep("its PersistentVolume exists")
    name = facts.there.metadata.name
    return Refuse(f"another PersistentVolume has the name {name} already", claim)


def without_class(facts: ClaimFacts, claim: Claim) -> Action | None:
    name = claims.class_of(claim)
    if facts.storage_class is None:
        return Refuse(f'storageclass.storage.k8s.io "{name}" not found', claim)
    if facts.storage_class.provisioner != claims.provisioner_of(claim):
        return Keep(f"its class {name} has another provisioner")
    return None


def impossible(_facts: ClaimFacts, claim: Claim) -> Action | None:
    if reason := claims.fault_of(claim):
        return Refuse(reason, claim)
    if claim.spec.volume_mode == "Block":
        return Refuse(
            "volumeMode Block is not possible with FlexVolume: take a class of "
            f"{marks.DYNAMIC_PROVISIONER} and a pool with the backend lvm",
            claim,
        )
    return None


def unplaced(facts: ClaimFacts, claim: Claim) -> Action | None:
    """A node that was selected decides, in either binding mode."""
    storage_class, name = _class(facts), claims.selected_node(claim)
    if name and facts.node is None:
        return Keep(f"the selected node {name} does not exist, or its class does not allow it")
    if name:
        return None
    if storage_class.volume_binding_mode == "WaitForFirstConsumer":
        return Keep("no node is selected for it yet")
    if storage_class.allowed_topologies:
        return Refuse(
            "allowedTopologies need volumeBindingMode WaitForFirstConsumer: otherwise a volume is "
            "bound to whatever node mounts it first",
            claim,
        )
    return None


def to_be_made(facts: ClaimFacts, claim: Claim) -> Action:
    storage_class = _class(facts)
    wish = read_class(storage_class)
    if isinstance(wish, list):
        return Refuse(f"class {storage_class.metadata.name}: {'; '.join(wish)}", claim)
    node = None if facts.node is None else node_facts(facts.node.metadata.name, facts.node)
    if isinstance(node, str):
        return Refuse(node, claim)
    reason = f"its volume is bound to {node.name}" if node else "its first mount binds it to a node"
    return Provision(reason, claim, persistent_volume(claim, storage_class, wish, node))


_CLAIM_RULES: tuple[Callable[[ClaimFacts, Claim], Action | None], ...] = (
    bound,
    not_ours,
    going,
    made,
    without_class,
    impossible,
    unplaced,
    to_be_made,
)


def _class(facts: ClaimFacts) -> StorageClass:
    if facts.storage_class is None:
        raise ValueError("the rule `without_class` must have answered before")
    return facts.storage_class


def is_made_for(volume: PersistentVolume, claim: Claim) -> bool:
    """Whether the claim's provisioner made the volume for this very claim."""
    provisioner = volume.metadata.annotations.get(marks.PROVISIONED_BY_ANNOTATION, "")
    source = volume.spec.flex_volume
    return (
        source is not None
        and source.driver == provisioner == claims.provisioner_of(claim)
        and claim_of(volume) == claim.metadata.uid
    )


def persistent_volume(
    claim: Claim, storage_class: StorageClass, wish: Wish, node: NodeFacts | None
) -> dict[str, Any]:
    """The object to create (core/v1), pre-bound to the claim.

    Its fields are elastic's, one for one, and our own where elastic had none. Without a node,
    nothing says where it is until its first mount. Mount options go to the driver: the kubelet
    mounts no FlexVolume with `spec.mountOptions`.
    """
    provisioner = storage_class.provisioner
    options = {SIZE: str(claims.requested_bytes(claim) or 0)}
    if wish.mkfs:
        options[MKFS_OPTIONS] = wish.mkfs
    if wish.on_removal is not None:
        options[ON_REMOVAL] = wish.on_removal
    if wish.mount_options:
        options[MOUNT_OPTIONS] = ",".join(wish.mount_options)
    source: dict[str, Any] = {"driver": provisioner, "readOnly": False, "options": options}
    if wish.fs_type:
        source["fsType"] = wish.fs_type
    metadata: dict[str, Any] = {
        "name": claims.volume_name(claim.metadata.uid),
        "annotations": {marks.PROVISIONED_BY_ANNOTATION: provisioner},
    }
    spec: dict[str, Any] = {
        "capacity": {"storage": claim.spec.resources.requests["storage"]},
        "accessModes": list(claim.spec.access_modes),
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or "Delete",
        "storageClassName": claims.class_of(claim),
        "volumeMode": "Filesystem",
        "claimRef": claims.reference(claim),
        "flexVolume": source,
    }
    if node is not None:
        metadata["labels"] = _labels(provisioner, node.name)
        metadata["finalizers"] = [marks.FINALIZER]
        spec["nodeAffinity"] = {"required": node_affinity(node, ())}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _labels(provisioner: str, node_name: str) -> dict[str, str]:
    found = {marks.NODE_LABEL: marks.node_key(node_name)}
    if provisioner == marks.ELASTIC_FLEX_DRIVER and fault_of_label_value(node_name) is None:
        found[marks.ELASTIC_NODE_LABEL] = node_name
    return found


# --- what a class asks for -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a class asks of its volumes; None and () if it leaves that to the agents.

    `mkfs` is the text as it was given; `mkfs_options` makes arguments of it.
    """

    fs_type: str | None = None
    mkfs: str = ""
    on_removal: str | None = None
    mount_options: tuple[str, ...] = ()


def read_class(storage_class: StorageClass) -> Wish | list[str]:
    """Returns what the class asks for, or its problems, one text for each."""
    given, problems = storage_class.parameters, list[str]()
    for name in sorted(given):
        if name not in _CHECKS:
            hint = did_you_mean(name, _CHECKS)
            problems.append(f"parameter {one_line(name)} is not known{hint}")
            continue
        try:
            _CHECKS[name](given[name])
        except ValueError as error:
            problems.append(f"parameter {name}: {error}")
    if problems:
        return problems
    types = {given[name] for name in (FS_TYPE, CSI_FS_TYPE) if name in given}
    if len(types) > 1:
        return [f"parameters {FS_TYPE} and {CSI_FS_TYPE} differ"]
    fs_type = types.pop() if types else None
    text = given.get(MKFS_OPTIONS, "")
    if text.strip() and fs_type is None:
        return [f"parameter {MKFS_OPTIONS} needs {FS_TYPE}: each filesystem has options of its own"]
    try:
        mkfs_options(fs_type or "ext4", text)
    except ValueError as error:
        return [f"parameter {MKFS_OPTIONS}: {error}"]
    if faults := faults_of(storage_class.mount_options):
        return faults
    return Wish(
        fs_type=fs_type,
        mkfs=" ".join(text.split()),
        on_removal=given.get(ON_REMOVAL),
        mount_options=tuple(storage_class.mount_options),
    )


def on_removal(text: str) -> str:
    """What is done with the data of a volume that goes. Raises ValueError."""
    if text not in WAYS:
        hint = did_you_mean(text, WAYS)
        raise ValueError(f"must be {' or '.join(WAYS)}, not {quoted(text)}{hint}")
    return text


def _fs_type(text: str) -> None:
    if text not in ("ext4", "xfs"):
        hint = did_you_mean(text, ("ext4", "xfs"))
        raise ValueError(f"must be ext4 or xfs, not {quoted(text)}{hint}")


_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    FS_TYPE: _fs_type,
    CSI_FS_TYPE: _fs_type,
    MKFS_OPTIONS: str,
    ON_REMOVAL: on_removal,
}
