"""Which claims had a volume, as its pool remembers: against an API server that was set back. Pure.

A volume outlives its claim if the removal is undone, or if somebody empties claimRef. Its record
has all claims that it was given to, in order. An object that names an earlier one comes from a
backup of etcd: the end of that claim says nothing about the data that is there now.

What is there now may be another tenant's. The kubelet mounts a `local` volume, whatever we say; one
of our CSI driver it gets from us. So object and record count how often such a volume was given
away. Where the object says less, whoever it names gets nothing until an administrator says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from localvolume.backends.model import Record
from localvolume.dynamic.calls import NotNow
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import (
    claim_of,
    generation_of,
    is_being_deleted,
    is_held_by_claim,
    phase_of,
    record_name_of,
    volumes_of_claims,
)

NOBODY: Final = "nobody"
"""In place of a claim's UID: the volume is kept for the next claim."""


_DIGITS: Final = 18


def newly_given(world: World, volume: PersistentVolume, record: Record) -> str:
    """The claim's UID, or NOBODY, if the record does not have that as its last one yet; or ""."""
    known, uid = _known(record), claim_of(volume)
    if not known or kept_from(volume, record):
        return ""
    if is_being_deleted(volume) and not is_held_by_claim(volume):
        # What goes needs no such note, and must go even if the disk is too full for one.
        return ""
    if not uid:
        return NOBODY if phase_of(volume) == "Available" and known[-1] != NOBODY else ""
    if not is_held_by_claim(volume) or uid == known[-1]:
        return ""
    # An API server that was set back has an earlier claim again: it counts once it is seen.
    counted = volume.spec.csi is not None
    return uid if counted or uid not in known or world.claim_with(uid) is not None else ""


def set_back(volume: PersistentVolume, record: Record) -> str:
    """Why the claim that the object names is not the last one that had the volume; or ""."""
    known, uid = _known(record), claim_of(volume)
    if uid not in known or uid == known[-1]:
        return ""
    what = "kept for" if known[-1] == NOBODY else "given to"
    return (
        f"its pool remembers that it was {what} another claim since: the API server may have been"
        " set back, and what is in it may be another tenant's. Find out whose it is; then keep it"
        " with localvolume undo, or delete the PersistentVolume to have its volume removed now"
    )


def kept_from(volume: PersistentVolume, record: Record) -> str:
    """Why nobody gets to the data by this object, as others had it since; "" if its claim may, or
    if the kubelet does not ask us."""
    if volume.spec.csi is None or not _known(record):
        return ""
    # A record from before this was counted has the UIDs alone.
    needed = record.generation or int(bool(set_back(volume, record)))
    why = "its pool remembers claims that had it since, or for which it was kept"
    if is_made_anew(volume, record) and claim_of(volume) != _last_claim(record):
        needed = record.generation + 1
        why = "it is another object than its pool has on record, and names another claim"
    if count_of(volume) >= needed:
        return ""
    return (
        f"{why}: the API server may have been set back, and what is in it may be another tenant's."
        " Find out whose it is, set claimRef to the claim that is to have it, and annotate the"
        f" PersistentVolume with {marks.GENERATION_ANNOTATION}={needed}"
    )


def count_of(volume: PersistentVolume) -> int:
    """How often it was given away as far as the object knows."""
    said = generation_of(volume)
    return int(said) if said.isascii() and said.isdigit() and len(said) <= _DIGITS else 0


def is_made_anew(volume: PersistentVolume, record: Record) -> bool:
    """Whether somebody made the object in place of the one that the record is of."""
    return record.volume_uid not in ("", volume.metadata.uid)


def is_taken_up(volume: PersistentVolume, record: Record) -> bool:
    """Whether an administrator says that such an object of our CSI driver stands for the volume."""
    return volume.spec.csi is not None and count_of(volume) > record.generation


def is_to_be_noted(volume: PersistentVolume, record: Record) -> bool:
    """Whether a volume of our CSI driver has another claim than the last one on record."""
    known, uid = _known(record), claim_of(volume)
    has = volume.spec.csi is not None and bool(uid) and is_held_by_claim(volume)
    if is_made_anew(volume, record) and not is_taken_up(volume, record):
        return False
    return has and bool(known) and uid != known[-1]


def check_kept(world: World, name: str) -> None:
    """Raises NotNow if the volume of that name is kept from whoever has it."""
    for volume in world.volumes_of(name):
        for _, record in world.records_of(name):
            if why := kept_from(volume, record):
                raise NotNow(f"volume {name} is kept from its claim: {why}")


def claims_with(volumes: Iterable[PersistentVolume], record: Record) -> frozenset[tuple[str, str]]:
    """The same as ``volumes_of_claims``, without claims that this volume is kept from."""
    return volumes_of_claims(one for one in volumes if not _is_kept(one, record))


def _is_kept(volume: PersistentVolume, record: Record) -> bool:
    return record_name_of(volume) == record.name and bool(kept_from(volume, record))


def _last_claim(record: Record) -> str:
    return [uid for uid in _known(record) if uid != NOBODY][-1]


def _known(record: Record) -> tuple[str, ...]:
    """The UIDs in order; empty for a volume that another provisioner made."""
    return (record.claim_uid, *record.given) if record.claim_uid else ()
