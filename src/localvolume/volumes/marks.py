"""The names that mark an object as ours: labels, annotations, the finalizer."""

from __future__ import annotations

import hashlib
import re

from localvolume.config.provisioner import CSI_DRIVER as CSI_DRIVER
from localvolume.config.provisioner import DYNAMIC_PROVISIONER as DYNAMIC_PROVISIONER
from localvolume.config.provisioner import OURS as OURS

NODE_LABEL = "localvolume.dev/node"
"""The node that the object belongs to. Agents list and watch by this label only."""

FINALIZER = "localvolume.dev/volume"
"""Keeps a PersistentVolume until its agent has cleaned what a claim left in the volume."""

IDENTITY_ANNOTATION = "localvolume.dev/identity"
"""The volume's identity as JSON: compared before anything is done to the volume."""

GENERATION_ANNOTATION = "localvolume.dev/generation"
"""Which hand-over of the volume the object stands for, as in the volume's own record. On one of
our CSI driver: how often it was given to a further claim."""

CLAIMED_ANNOTATION = "localvolume.dev/claimed"
"""The UID of the last claim that held the volume: from then on it may contain a tenant's data."""

CLEANED_ANNOTATION = "localvolume.dev/cleaned"
"""On a prepared volume: when it was last cleaned before it was offered, and the receipt
(`<RFC 3339> <sentence>`). The Event that says the same is gone after an hour."""

LOST_ANNOTATION = "localvolume.dev/node-lost-since"
"""Since when no node could serve the volume (RFC 3339, set by the controller)."""

POOL_ANNOTATION = "localvolume.dev/pool"
"""The pool of its node in which a dynamic volume was made: `<pool's name>/<pool's id>`."""

REFUSED_ANNOTATION = "localvolume.dev/not-here"
"""On a claim that was given back: which node could not serve it, and when (`<node> <RFC 3339>`)."""

REFUSED_WHY_ANNOTATION = "localvolume.dev/not-here-why"
"""On such a claim: the same, and why (`<node> <RFC 3339> <why>`). It only counts if both
agree: an older agent that gives the claim back does not update this one."""

LONGEST_WHY = 1000
"""How many characters of such a reason count."""

PROBLEM_ANNOTATION = "localvolume.dev/problem"
"""On a CSIStorageCapacity: why pools of the node that are for the class cannot serve it. Absent
if all can."""

POOLS_ANNOTATION = "localvolume.dev/pools"
"""On a CSIStorageCapacity: how large the pools for the class are on the node, and how full, as JSON
by name. It is for people to read: a pool that has a problem is not in it."""

DISKS_ANNOTATION = "localvolume.dev/disks"
"""On the CSIStorageCapacity that stands for a node's raw disks: which they are and what the plan
says of each, as JSON. It is for people to read."""

DISKS_CLASS = "localvolume-disks"
"""What such an object names in place of a StorageClass: it promises no room to anybody."""

RELEASED_ANNOTATION = "localvolume.dev/released-since"
"""On a volume that is removed only after a grace period: since when its claim has been gone, and
the UID of that claim (`<RFC 3339> <UID>`)."""

KEPT_ANNOTATION = "localvolume.dev/kept-until"
"""On such a volume: until when it is kept at least, as promised when it was marked, and the UID of
that claim (`<RFC 3339> <UID>`)."""

OF_RELEASED = frozenset({RELEASED_ANNOTATION, KEPT_ANNOTATION})
"""These are written and removed together."""

MOVING_ANNOTATION = "localvolume.dev/moving"
"""On a volume that `move-to-csi` has begun to move: the reclaim policy that people gave it, before
the command set Retain."""
MOVED_ANNOTATION = "localvolume.dev/moved-from"
"""On a volume whose object was made anew for our CSI driver: the UID of the object whose place it
took. Absent once the pool's record says the same."""

HEALTH_ANNOTATION = "localvolume.dev/health"
"""On an unhealthy volume: why (`<Reason>: <sentence>`). Absent on a healthy one."""

ELASTIC_FLEX_DRIVER = "volumes.k8s.elastic.co/elastic-local"
"""The provisioner and FlexVolume driver of elastic's local-volume, which we serve as it did."""

FLEX_DRIVER = "localvolume.dev/flexvolume"
"""Our own name for the provisioner and the FlexVolume driver."""

FLEX_DRIVERS = frozenset({ELASTIC_FLEX_DRIVER, FLEX_DRIVER})

ELASTIC_NODE_LABEL = "volumes.k8s.elastic.co/node-affinity"
"""The name of the node that a FlexVolume volume is on, as elastic's driver wrote it."""

KUTTI_NODE_ANNOTATION = "kuttiproject.org/provisionedOn"
LOCAL_PATH_NODE_ANNOTATION = "local.path.provisioner/selected-node"
"""Where kutti and local-path write the name of the node that one of their volumes is on."""

PROVISIONED_BY_ANNOTATION = "pv.kubernetes.io/provisioned-by"
"""Upstream writes it too. It keeps kube-controller-manager from failing a Released volume."""

BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
ALPHA_AFFINITY_ANNOTATION = "volume.alpha.kubernetes.io/node-affinity"
HOSTNAME_LABEL = "kubernetes.io/hostname"

DRIVER_LABEL = "csi.storage.k8s.io/drivername"
"""On a CSIStorageCapacity: the provisioner whose room it tells, as `driver_label` writes it."""

MANAGER_LABEL = "csi.storage.k8s.io/managed-by"
"""On a CSIStorageCapacity: which program, or part of one, keeps it."""

MANAGER = "localvolume"
DISKS_MANAGER = "localvolume-disks"

_PROVISIONER_PREFIX = "local-volume-provisioner-"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def node_key(node_name: str) -> str:
    """The value of NODE_LABEL for a node: its name, or a short hash if that is not a label value.

    A node's name may have 253 characters and a label's value 63
    (Kubernetes API conventions, "Labels and selectors").
    """
    if _LABEL_VALUE.fullmatch(node_name):
        return node_name
    digest = hashlib.sha256(node_name.encode()).hexdigest()[:16]
    head = re.sub(r"[^-A-Za-z0-9_.]", "-", node_name)[:40].strip("-_.")
    return f"{head}-{digest}" if head else digest


def driver_label(provisioner: str) -> str:
    """The provisioner as a label's value, which must not have a "/"; shortened as a node's name."""
    return node_key(provisioner.replace("/", "_"))


def provisioned_by(node_name: str, node_uid: str, *, name_only: bool) -> str:
    """Upstream's name for the provisioner of one node."""
    return f"{_PROVISIONER_PREFIX}{node_name}" + ("" if name_only else f"-{node_uid}")


def is_provisioned_by_node(value: str, node_name: str) -> bool:
    """Whether an agent of that node, upstream's or ours, wrote this provisioned-by value.

    Accepts both forms, and any UID: a node that was recreated keeps its volumes. The form is
    ambiguous between the nodes `a` and `a-b`, so callers must compare the affinity too.
    """
    own = f"{_PROVISIONER_PREFIX}{node_name}"
    return value == own or value.startswith(f"{own}-")


def is_of_static_provisioner(value: str) -> bool:
    """Whether an agent of any node, upstream's or ours, wrote this provisioned-by value."""
    return value.startswith(_PROVISIONER_PREFIX)
