"""Objects of CSI volumes that others make: external-provisioner's, and those of people."""

from __future__ import annotations

from typing import Any

from tests.cluster.support_csi import CsiLab
from tests.suite.api import CLAIMS, VOLUMES
from tests.suite.names import CSI, HOSTNAME, NODE_LABEL, PROVISIONED_BY

SIZE = "32Mi"


def stock_volume(lab: CsiLab, handle: str, name: str = "") -> str:
    """A PersistentVolume of that handle as external-provisioner makes it, once the controller has
    told the node's agent of it; returns its name."""
    term = {"key": HOSTNAME, "operator": "In", "values": [lab.node]}
    body = {
        "metadata": {
            "name": name or handle,
            "labels": {NODE_LABEL: lab.node},
            "annotations": {PROVISIONED_BY: CSI},
        },
        "spec": {
            "capacity": {"storage": SIZE},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": lab.unique,
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": CSI, "volumeHandle": handle},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
    lab.objects.make(VOLUMES, body)
    return name or handle


def named(lab: CsiLab, volume: str, *, cls: str = "", **more: Any) -> str:
    """A claim that names a PersistentVolume; returns its name."""
    name = f"{lab.unique}-names-it"
    spec = {
        "storageClassName": cls or lab.unique,
        "volumeName": volume,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": SIZE}},
    }
    lab.objects.make(CLAIMS, {"metadata": {"name": name}, "spec": {**spec, **more}})
    return name


def bound(lab: CsiLab, volume: str) -> None:
    """Wait until the PersistentVolume is bound, and the agent knows it."""
    lab.until(lambda: lab.phase(volume), lambda phase: phase == "Bound")
    lab.settle()
