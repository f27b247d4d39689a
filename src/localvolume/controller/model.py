"""What the controller knows and may decide about one PersistentVolume: plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be done about a lost node, and when; times in seconds since it was found missing.

    `delete_classes` are the StorageClasses whose claims and PersistentVolumes may be removed; for
    all others, Events only say what would be done. `claim_delay` is upstream's
    --pvc-deletion-delay. `return_period` is how long a node may be away and come back with its
    disks: the PersistentVolume of a volume that a tenant used and nobody cleaned is kept that long.
    The claims of `provisioners` are routed and their PersistentVolumes adopted; the claims of
    `flex_drivers` get a FlexVolume PersistentVolume.
    """

    delete_classes: frozenset[str] = frozenset()
    claim_delay: float = 60.0
    return_period: float = 86400.0
    provisioners: frozenset[str] = marks.OURS
    flex_drivers: frozenset[str] = frozenset({marks.FLEX_DRIVER})

    @property
    def makers(self) -> frozenset[str]:
        """All provisioners and drivers whose PersistentVolumes are made for claims."""
        return self.provisioners | self.flex_drivers


@dataclass(frozen=True, slots=True)
class Action:
    """What should happen to one PersistentVolume, and why (a clause for people)."""

    volume: PersistentVolume
    reason: str


@dataclass(frozen=True, slots=True)
class Adopt(Action):
    """Add the label of the node whose agent is to serve it, and change nothing else."""

    node_name: str


@dataclass(frozen=True, slots=True)
class MarkLost(Action):
    """Mark since when its node is missing, and report that; `then` is what follows."""

    then: str


@dataclass(frozen=True, slots=True)
class MarkReturned(Action):
    """A node that can serve it is there again: remove the mark, and report that."""


@dataclass(frozen=True, slots=True)
class Report(Action):
    """Do nothing about a volume whose node is lost; `would` says what deleting would do.

    It is empty if nothing would be done in any case.
    """

    would: str = ""


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Not yet: judge again after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DeleteClaim(Action):
    """Delete the claim that holds it, so that its pod can get a volume elsewhere."""


@dataclass(frozen=True, slots=True)
class DeleteVolume(Action):
    """Delete the PersistentVolume and let the object go, uncleaned.

    `abandons` says that a tenant's data may still be on the disk, wherever that is now.
    """

    abandons: bool


@dataclass(frozen=True, slots=True)
class LetGo(Action):
    """It is already being deleted: remove our finalizer, because no agent can."""

    abandons: bool


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """All is as it should be, or it is none of our business."""
