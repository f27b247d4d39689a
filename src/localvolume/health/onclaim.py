"""What a claim's status says about the health of its CSI volume: `status.healthStatus`.

Kubernetes 1.37 has the field behind the gate CSIVolumeHealth. An API server that has not drops it
from the patch, and nothing is changed.
"""

from __future__ import annotations

from typing import Any, Final

from localvolume.health.model import Reason, Trouble
from localvolume.kube.client import MergePatch
from localvolume.kube.objects import ClaimRef
from localvolume.volumes.moments import written

_INACCESSIBLE: Final[Reason] = "DeviceGone"
"""DataLoss is never said: whoever hears it may restore an older state, and no reason proves it."""

_LONGEST: Final = 1000
"""How many characters of a text are kept on the claim."""


def health_status(claim: ClaimRef, trouble: Trouble | None, now: float) -> MergePatch:
    """Sets on exactly that claim what is wrong with its volume; None: nothing is."""
    said: list[dict[str, Any]] = []
    if trouble is not None:
        said.append(
            {
                "status": "Inaccessible" if trouble.reason == _INACCESSIBLE else "Degraded",
                "reason": trouble.reason,
                "message": trouble.text[:_LONGEST],
                "lastTransitionTime": written(now),
            }
        )
    status = {"conditions": said, "lastProbeTime": written(now)}
    return MergePatch({"metadata": {"uid": claim.uid}, "status": {"healthStatus": status}})
