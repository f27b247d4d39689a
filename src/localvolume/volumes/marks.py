"""The names that mark an object as ours: labels, annotations, the finalizer."""

from __future__ import annotations

import hashlib
import re

NODE_LABEL = "localvolume.dev/node"
"""Whose node the object belongs to. Agents list and watch by this label alone."""

FINALIZER = "localvolume.dev/volume"
"""Keeps a PersistentVolume until its agent has cleaned what a claim left in the volume."""

IDENTITY_ANNOTATION = "localvolume.dev/identity"
"""What the volume is, as JSON: compared before anything is done to the volume."""

CLAIMED_ANNOTATION = "localvolume.dev/claimed"
"""The UID of the last claim that held the volume: from then on it may contain a tenant's data."""

PROVISIONED_BY_ANNOTATION = "pv.kubernetes.io/provisioned-by"
"""Written by upstream too; keeps kube-controller-manager from failing a Released volume."""

BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
ALPHA_AFFINITY_ANNOTATION = "volume.alpha.kubernetes.io/node-affinity"
HOSTNAME_LABEL = "kubernetes.io/hostname"

_PROVISIONER_PREFIX = "local-volume-provisioner-"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def node_key(node_name: str) -> str:
    """The value of NODE_LABEL for a node: its name, or a short hash form where that is no label.

    A node's name may have 253 characters and a label's value 63
    (Kubernetes API conventions, "Labels and selectors").
    """
    if _LABEL_VALUE.fullmatch(node_name):
        return node_name
    digest = hashlib.sha256(node_name.encode()).hexdigest()[:16]
    head = re.sub(r"[^-A-Za-z0-9_.]", "-", node_name)[:40].strip("-_.")
    return f"{head}-{digest}" if head else digest


def provisioned_by(node_name: str, node_uid: str, *, name_only: bool) -> str:
    """Upstream's name of the provisioner of one node."""
    return f"{_PROVISIONER_PREFIX}{node_name}" + ("" if name_only else f"-{node_uid}")


def is_provisioned_by_node(value: str, node_name: str) -> bool:
    """Whether an upstream or own agent of that node wrote this provisioned-by value.

    Both forms count, and any UID: a node that was created anew keeps its volumes. The form is
    ambiguous between the nodes `a` and `a-b`, so whoever relies on it compares the affinity too.
    """
    own = f"{_PROVISIONER_PREFIX}{node_name}"
    return value == own or value.startswith(f"{own}-")
