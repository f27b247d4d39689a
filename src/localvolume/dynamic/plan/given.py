"""Which claims had a volume, as its pool remembers: against an API server that was set back. Pure.

A volume outlives its claim if the removal is undone, or if somebody empties claimRef. Its record
has all claims that it was given to, in order. An object that names an earlier one comes from a
backup of etcd: the end of that claim says nothing about the data that is there now.
"""

from __future__ import annotations

from typing import Final

from localvolume.backends.model import Record
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.objects import claim_of, is_being_deleted, is_held_by_claim, phase_of

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
    # An API server that was set back has an earlier claim again: it counts once it is seen.
    return uid if uid not in known or world.claim_with(uid) is not None else ""


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


def _known(record: Record) -> tuple[str, ...]:
    """The UIDs in order; empty for a volume that another provisioner made."""
    return (record.claim_uid, *record.given) if record.claim_uid else ()
