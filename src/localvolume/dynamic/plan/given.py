"""Which claims had a volume, as its pool remembers: against an API server that was set back. Pure.

A volume outlives its claim if the removal is undone, or if somebody empties claimRef. Its record
has all claims that it was given to, in order. An object that names an earlier one comes from a
backup of etcd: the end of that claim says nothing about the data that is there now, and that data
may be another tenant's. A pod gets a `local` volume from the kubelet, whatever we say; one of our
CSI driver it gets from us.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from localvolume.backends.model import Record
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import (
    claim_of,
    is_being_deleted,
    is_held_by_claim,
    phase_of,
    volumes_of_claims,
)

NOBODY: Final = "nobody"
"""In place of a claim's UID: the volume is kept for the next claim."""


def newly_given(world: World, volume: PersistentVolume, record: Record) -> str:
    """The claim's UID, or NOBODY, if the record does not have that as its last one yet; or ""."""
    known, uid = _known(record), claim_of(volume)
    # A volume that goes needs no such note, and must go even if the disk is too full for one.
    if not known or is_being_deleted(volume):
        return ""
    if not uid:
        return NOBODY if phase_of(volume) == "Available" and known[-1] != NOBODY else ""
    if not is_held_by_claim(volume) or uid == known[-1]:
        return ""
    if uid not in known or _is_given_back(volume):
        return uid
    # An API server that was set back has an earlier claim again: it counts once it is seen, unless
    # we can keep the volume from it.
    return uid if world.claim_with(uid) is not None and not kept_from(volume, record) else ""


def set_back(volume: PersistentVolume, record: Record) -> str:
    """Why the claim that the object names is not the last one that had the volume; or ""."""
    known, uid = _known(record), claim_of(volume)
    if uid not in known or uid == known[-1]:
        return ""
    what = "kept for" if known[-1] == NOBODY else "given to"
    return (
        f"it was {what} another claim since, as its pool remembers: the API server may have"
        " been set back; keep it with localvolume undo, or delete the PersistentVolume to have its"
        " volume removed now"
    )


def kept_from(volume: PersistentVolume, record: Record) -> str:
    """Why the claim that the object names must not get to the data, for another had it since; ""
    if it may, or if the kubelet does not ask us."""
    known, uid = _known(record), claim_of(volume)
    if volume.spec.csi is None or uid not in known or _is_given_back(volume):
        return ""
    since = known[len(known) - known[::-1].index(uid) :]
    if all(other == NOBODY for other in since):
        return ""
    return (
        "it was given to another claim since, as its pool remembers, and what is in it may be"
        " another tenant's: the API server may have been set back. If its claim shall have it,"
        f" annotate the PersistentVolume with {marks.GIVEN_BACK_ANNOTATION}={uid}"
    )


def had_by_several(record: Record) -> bool:
    """Whether more than one claim has had it."""
    return len(set(_known(record)) - {NOBODY}) > 1


def is_noted(volume: PersistentVolume, record: Record) -> bool:
    """Whether the claim that the object names is the last one of those on record."""
    claims = [uid for uid in _known(record) if uid != NOBODY]
    return claims[-1:] == [claim_of(volume)]


def claims_with(
    volumes: Iterable[PersistentVolume], *records: Record
) -> frozenset[tuple[str, str]]:
    """The same as ``volumes_of_claims``, without the claims that these volumes are kept from."""
    return volumes_of_claims(
        one for one in volumes if not any(kept_from(one, record) for record in records)
    )


def _is_given_back(volume: PersistentVolume) -> bool:
    """Whether an administrator says that its claim is to have what is in it."""
    uid = claim_of(volume)
    return bool(uid) and volume.metadata.annotations.get(marks.GIVEN_BACK_ANNOTATION) == uid


def _known(record: Record) -> tuple[str, ...]:
    """The UIDs in order; empty for a volume that another provisioner made."""
    return (record.claim_uid, *record.given) if record.claim_uid else ()
