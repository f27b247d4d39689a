"""A real Kubernetes control plane on this machine, for tests and the demo."""

from localvolume.controlplane.access import RequestFailed
from localvolume.controlplane.assets import Assets, ComponentsMissing, provide
from localvolume.controlplane.kubectl import KubectlFailed
from localvolume.controlplane.plane import ControlPlane, PlaneFailed

__all__ = [
    "Assets",
    "ComponentsMissing",
    "ControlPlane",
    "KubectlFailed",
    "PlaneFailed",
    "RequestFailed",
    "provide",
]
