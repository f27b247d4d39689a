"""A miniature of the Kubernetes API in memory, for the demo and for faults on demand."""

from localvolume.sandbox.faults import Fault, Faults
from localvolume.sandbox.sandbox import Sandbox

__all__ = ["Fault", "Faults", "Sandbox"]
