"""The metrics of the CSI driver: its calls, by the sidecars' name and labels, and its registration.

csi-lib-utils counts the same in a sidecar, and the kubelet in its own calls.
"""

from __future__ import annotations

from localvolume.process.metrics import Metrics, gauge, histogram


class CsiMetrics(Metrics):
    """All of them, on one registry."""

    # fmt: off
    operations = histogram("csi_operations_seconds",
        "Seconds a CSI call took, by gRPC status; an equal call that joined it is not counted",
        "driver_name", "method_name", "grpc_status_code")
    registered = gauge("localvolume_csi_registered",
        "1 while the kubelet has the driver, as far as it has reported")
    # fmt: on
