"""The rules for VolumeAttributesClasses: when a volume gets other attributes, or why it does not.

Pure. A class says nothing more once its attributes are in the volume's record. What the objects
say of it is set right until all of them agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from localvolume.backends.model import Record
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.model import Action, Hold, Modify, TellModify
from localvolume.dynamic.plan.placing import unlimited
from localvolume.dynamic.plan.world import World, pool_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.attributes import NONE, Attributes, in_place_of
from localvolume.volumes.modifying import class_of, class_of_volume, current_of, is_told
from localvolume.volumes.objects import claim_of

EVENT_FAILED: Final = "VolumeModifyFailed"

_NOT_CSI: Final = f"only volumes of {CSI_DRIVER} have a VolumeAttributesClass"


def classes_to_ask(
    claims: Iterable[PersistentVolumeClaim],
    volumes: Mapping[str, PersistentVolume],
    records: Mapping[str, Record],
) -> frozenset[str]:
    """The classes that claims of this node ask for and that are not in force everywhere yet."""
    return frozenset(
        name
        for claim in claims
        if (name := class_of(claim)) and not _in_force(claim, volumes, records)
    )


def _in_force(
    claim: PersistentVolumeClaim,
    volumes: Mapping[str, PersistentVolume],
    records: Mapping[str, Record],
) -> bool:
    key = claim.spec.volume_name
    volume, record = volumes.get(key), records.get(key)
    return (
        volume is not None and record is not None and _is_settled(claim, volume, record.attributes)
    )


def _is_settled(
    claim: PersistentVolumeClaim, volume: PersistentVolume, attributes: Attributes
) -> bool:
    said = {attributes.class_name, class_of_volume(volume), current_of(claim)}
    return said == {class_of(claim)}


# --- before there is a volume ------------------------------------------------------------------


def asked(world: World, claim: PersistentVolumeClaim) -> Attributes | str | None:
    """The attributes for a volume that is to be made, or why it cannot be made; None while the
    class is being asked for."""
    name = class_of(claim)
    if not name:
        return NONE
    if world.class_of(claim).object.provisioner != CSI_DRIVER:
        return _NOT_CSI
    told = world.facts.attributes.get(name)
    if told is None:
        return None
    if told.missing or told.problem:
        return f"VolumeAttributesClass {name}: {told.missing or told.problem}"
    if told.attributes.is_limited and world.facts.no_limits:
        return f"VolumeAttributesClass {name}: {world.facts.no_limits}"
    return told.attributes


# --- once there is -----------------------------------------------------------------------------


def changed(world: World, claim: PersistentVolumeClaim, volume: PersistentVolume) -> Action | None:
    """What is to be done or said because of the claim's class, None if nothing is."""
    name = class_of(claim)
    if volume.spec.csi is None:
        return _held(claim, volume, _NOT_CSI) if name else None
    found = world.records_of(volume.metadata.name)
    if not found or pool_of(volume) is None or claim_of(volume) != claim.metadata.uid:
        # A volume that a call made is changed by calls.
        return None
    pool, record = found[0]
    if pool.report.problem:
        text = f"pool {pool.config.name}: {pool.report.problem}"
        settled = _is_settled(claim, volume, record.attributes)
        return None if pool.report.taken or settled else _held(claim, volume, text)
    if record.state != "offered":
        return None
    if _is_settled(claim, volume, record.attributes):
        if claim.status.modify_volume_status is None:
            return None
        reason = "the claim asks for no other VolumeAttributesClass any more"
        return TellModify(key=record.name, reason=reason, claim=claim)
    told = world.facts.attributes.get(name) if name else None
    if told is None:
        return None
    if told.missing:
        return _said(
            claim,
            volume,
            TellModify(
                key=record.name, reason=f"{name}: {told.missing}", claim=claim, status="Pending"
            ),
        )
    if why := told.problem or unfit_for(world, record, told.attributes):
        return _said(
            claim,
            volume,
            TellModify(key=record.name, reason=f"{name}: {why}", claim=claim, status="Infeasible"),
        )
    return Modify(
        key=record.name,
        reason=f"the claim asks for VolumeAttributesClass {name}",
        claim=claim,
        volume=volume,
        pool=pool.config,
        record=record,
        attributes=in_place_of(record.attributes, told.attributes),
    )


def unfit_for(world: World, record: Record, attributes: Attributes) -> str:
    """Why the volume cannot have these attributes, "" if it can."""
    if not attributes.is_limited:
        return ""
    return world.facts.no_limits or unlimited(record.backend)


def _said(claim: PersistentVolumeClaim, volume: PersistentVolume, tell: TellModify) -> Action:
    """Say it on the claim's status first, and go on saying it by Events."""
    if tell.status is not None and is_told(claim, class_of(claim), tell.status):
        return _held(claim, volume, tell.reason)
    return tell


def _held(claim: PersistentVolumeClaim, volume: PersistentVolume, why: str) -> Hold:
    return Hold(
        key=volume.metadata.name,
        reason=f"it is not modified: {why}",
        claim=claim,
        event=EVENT_FAILED,
    )
