"""The patches of claims and PersistentVolumes that the dynamic role sends.

Each carries `uid` and `resourceVersion`, so the API server refuses it if the object is another one
or has changed since (Kubernetes API conventions, "Concurrency control").
"""

from __future__ import annotations

import math

from localvolume.kube.client import MergePatch
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims, marks
from localvolume.volumes.moments import written
from localvolume.volumes.objects import claim_of
from localvolume.volumes.patches import bound_to


def given_back(claim: PersistentVolumeClaim, node_name: str, now: float, why: str) -> MergePatch:
    """Take the node off the claim: the scheduler, or our controller, chooses another one. `why` is
    kept on the claim and is told if no other node can serve it either."""
    told = f"{node_name} {written(now)}"
    return bound_to(
        claim,
        annotations={
            claims.SELECTED_NODE_ANNOTATION: None,
            marks.REFUSED_ANNOTATION: told,
            marks.REFUSED_WHY_ANNOTATION: f"{told} {why[: marks.LONGEST_WHY]}",
        },
        labels={marks.NODE_LABEL: None},
    )


def released(volume: PersistentVolume, now: float | None, period: float = 0.0) -> MergePatch:
    """Write down since when its claim is gone and until when that can be undone, whatever its class
    says by then; both with the claim's UID. `now` None: take both away.
    """
    if now is None:
        return bound_to(volume, annotations=dict.fromkeys(marks.OF_RELEASED))
    # Whole seconds, rounded up: never less than was promised.
    times = {
        marks.RELEASED_ANNOTATION: written(now),
        marks.KEPT_ANNOTATION: written(math.ceil(now + period)),
    }
    uid = claim_of(volume)
    return bound_to(volume, annotations={key: f"{time} {uid}" for key, time in times.items()})


def undone(volume: PersistentVolume) -> MergePatch:
    """Keep a Released volume for the next claim of the same namespace and name."""
    patch = bound_to(volume, annotations=dict.fromkeys(marks.OF_RELEASED))
    forget = {"claimRef": {"uid": None, "resourceVersion": None}}
    return MergePatch({**patch.body, "spec": forget} if volume.spec.claim_ref else patch.body)
