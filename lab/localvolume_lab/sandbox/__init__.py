"""A miniature of the Kubernetes API in memory, for the demo and for faults on demand.

`tests/contract/test_api_*.py` and `test_kubectl.py` hold it and a real server to the same
behaviour. What it leaves out: users and permissions, admission beyond the protection finalizers and
the growth of claims, owners of fields (no `managedFields`; apply only sets), quotas, protobuf
answers, schemas in OpenAPI. Claims that wait are bound as soon as a volume suits them, where the
real controller may take 15 seconds. Each module says what it simplifies.
"""

from localvolume_lab.sandbox.http.faults import Fault, Faults
from localvolume_lab.sandbox.sandbox import Sandbox

__all__ = ["Fault", "Faults", "Sandbox"]
