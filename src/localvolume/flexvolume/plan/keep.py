"""What is to be done about a PersistentVolume of this node and its volume. Pure.

For one PersistentVolume: what is noted with the volume, told to its claim, grown, or let go. The
volume itself is never removed from here (``collect``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from localvolume.flexvolume.driver import (
    MADE,
    TAG_CLAIM,
    TAG_CLAIM_UID,
    TAG_ENDED,
    TAG_POLICY,
    TAG_PV_UID,
    TAG_STATE,
    Owned,
)
from localvolume.flexvolume.plan.binding import is_served, other_node, tags_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.capacity import bytes_of
from localvolume.volumes.claims import requested_bytes
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import is_being_deleted, is_finalized, phase_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`owned` are the volumes of this node by name, `claims` by `namespace/name`. `drivers` are the
    names that are served here; `grows`: whether sizes mean something to the driver."""

    node: NodeFacts
    drivers: Collection[str]
    grows: bool
    owned: Mapping[str, Owned]
    claims: Mapping[str, PersistentVolumeClaim]


@dataclass(frozen=True, slots=True)
class Leave:
    """Do nothing, and say why."""

    reason: str


@dataclass(frozen=True, slots=True)
class LetGo:
    """Note what is to become of the volume, then take our finalizer away."""


@dataclass(frozen=True, slots=True)
class Note:
    """Note this with the volume (TAG_...)."""

    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TellClaimed:
    """Write on the object that its claim has had the volume: adopted, or mounted by a call that
    ended before it could say so."""


@dataclass(frozen=True, slots=True)
class Grow:
    """Grow the volume to `size_bytes`, and tell its claim."""

    claim: PersistentVolumeClaim
    from_bytes: int
    size_bytes: int


Action = Leave | LetGo | Note | TellClaimed | Grow


def judge(volume: PersistentVolume, facts: Facts) -> list[Action]:
    """Returns what to do about it, in order."""
    if not is_served(volume, facts.drivers):
        return []
    if other := other_node(volume, facts.node):
        return [Leave(f"nothing is done about it: it {other}")]
    if is_being_deleted(volume) and is_finalized(volume):
        return [LetGo()] if phase_of(volume) != "Bound" else []
    owned = facts.owned.get(volume.metadata.name)
    if owned is None:
        return []
    if owned.problem:
        return [Leave(f"nothing is done about it now: {owned.problem}")]
    wanted = tags_of(volume)
    if owned.tags.get(TAG_PV_UID) != wanted[TAG_PV_UID]:
        return []  # never mounted yet, or an earlier object's: the mount decides
    # While somebody else holds a deleted object, its policy may still be set to Retain.
    keys = [TAG_POLICY]
    if wanted[TAG_CLAIM_UID] and not is_being_deleted(volume):
        keys += [TAG_CLAIM, TAG_CLAIM_UID]
    actions: list[Action] = []
    if any(owned.tags.get(key, "") != wanted[key] for key in keys):
        actions.append(Note({key: wanted[key] for key in keys}))
    if is_being_deleted(volume) or phase_of(volume) != "Bound":
        return actions
    if owned.tags.get(TAG_STATE) == MADE:
        actions.append(TellClaimed())
    if facts.grows and (grow := _growth(volume, owned, facts.claims)) is not None:
        actions.append(grow)
    return actions


def _growth(
    volume: PersistentVolume, owned: Owned, claims: Mapping[str, PersistentVolumeClaim]
) -> Grow | None:
    """What the claim asks for beyond what it has.

    The object's capacity does not tell: for FlexVolumes, kube-controller-manager raises it as soon
    as the claim asks, and leaves the rest to the node.
    """
    ref = volume.spec.claim_ref
    if ref is None:
        return None
    claim = claims.get(f"{ref.namespace}/{ref.name}")
    if claim is None or claim.metadata.uid != ref.uid or is_being_deleted(claim):
        return None
    wanted = requested_bytes(claim)
    told = bytes_of(claim.status.capacity.get("storage", ""))
    if wanted is None or told is None or wanted <= min(owned.size_bytes, told):
        return None
    # Also if the volume is large enough: after a crash, its filesystem may not be yet.
    return Grow(claim, owned.size_bytes, wanted)


def may_let_go(live: PersistentVolume, seen: PersistentVolume) -> bool:
    """Whether the object that was seen may be let go of, as it is now."""
    return (
        live.metadata.uid == seen.metadata.uid
        and is_being_deleted(live)
        and is_finalized(live)
        and phase_of(live) != "Bound"
    )


def notes_of_the_end(live: PersistentVolume) -> dict[str, str]:
    """What is noted with the volume of an object that is let go: its policy counts from then on."""
    return {key: value for key, value in tags_of(live).items() if value} | {
        TAG_ENDED: live.metadata.uid
    }


def is_noted_there(live: PersistentVolume, owned: Owned | None) -> bool:
    """Whether its end is noted with the volume: not if that is missing, or another object's."""
    return owned is not None and owned.tags.get(TAG_PV_UID) == live.metadata.uid
