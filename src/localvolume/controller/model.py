"""What the controller knows and may decide about one PersistentVolume: plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks


@dataclass(frozen=True, slots=True)
class Policy:
    """What may be done about a lost node, and when; times in seconds since the node was missed.

    `delete_classes` are the StorageClasses whose claims and PersistentVolumes may be removed; for
    all others it is only said what would be. `claim_delay` is upstream's --pvc-deletion-delay.
    `return_period` is how long a node may be away and come back with its disks: that long, a
    volume that a tenant used and nobody cleaned is kept on record. `provisioners` are those whose
    claims are routed and whose PersistentVolumes are adopted; `flex_drivers` those whose claims get
    a FlexVolume PersistentVolume.
    """

    delete_classes: frozenset[str] = frozenset()
    claim_delay: float = 60.0
    return_period: float = 86400.0
    provisioners: frozenset[str] = frozenset({marks.DYNAMIC_PROVISIONER})
    flex_drivers: frozenset[str] = frozenset({marks.FLEX_DRIVER})

    @property
    def makers(self) -> frozenset[str]:
        """All whose PersistentVolumes were made for claims."""
        return self.provisioners | self.flex_drivers


@dataclass(frozen=True, slots=True)
class Action:
    """What should happen about one PersistentVolume, and why (a clause for people)."""

    volume: PersistentVolume
    reason: str


@dataclass(frozen=True, slots=True)
class Adopt(Action):
    """Add the label of the node whose agent is to serve it, and change nothing else."""

    node_name: str


@dataclass(frozen=True, slots=True)
class MarkLost(Action):
    """Write down since when its node is missing, and tell people; `then` is what follows."""

    then: str


@dataclass(frozen=True, slots=True)
class MarkReturned(Action):
    """A node that can serve it is there again: forget since when none was, and tell people."""


@dataclass(frozen=True, slots=True)
class Report(Action):
    """Do nothing about a volume whose node is lost; `would` says what deleting would do.

    Empty where nothing would be done in any case.
    """

    would: str = ""


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Not yet: look again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DeleteClaim(Action):
    """Delete the claim that holds it, so that its pod can be given a volume elsewhere."""


@dataclass(frozen=True, slots=True)
class DeleteVolume(Action):
    """Delete the PersistentVolume and let the object go, uncleaned.

    `abandons` says that a tenant's data may be on the disk still, wherever that is now.
    """

    abandons: bool


@dataclass(frozen=True, slots=True)
class LetGo(Action):
    """It is being deleted already: take our finalizer away, as no agent can."""

    abandons: bool


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """All is as it should be, or it is none of our business."""
