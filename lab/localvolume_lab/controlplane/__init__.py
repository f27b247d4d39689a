"""A real Kubernetes control plane on this machine, for tests and the demo."""

from localvolume_lab.controlplane.access import RequestFailed
from localvolume_lab.controlplane.assets import Assets, ComponentsMissing
from localvolume_lab.controlplane.build import provide
from localvolume_lab.controlplane.kubectl import KubectlFailed
from localvolume_lab.controlplane.plane import ControlPlane, PlaneFailed

__all__ = [
    "Assets",
    "ComponentsMissing",
    "ControlPlane",
    "KubectlFailed",
    "PlaneFailed",
    "RequestFailed",
    "provide",
]
