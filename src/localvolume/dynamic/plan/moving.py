"""The rule for a volume whose PersistentVolume was made anew for our CSI driver. Pure.

The source of a PersistentVolume never changes. So `localvolume move-to-csi` deletes the object and
makes one of the same name with another source, which says whose place it took. No two objects have
a name at the same time: once the new one is there, the old one is gone.
"""

from __future__ import annotations

from localvolume.backends.model import Record, filesystem_of
from localvolume.dynamic.model import Action, Hold, TakeOver
from localvolume.dynamic.plan.world import World, pool_of
from localvolume.kube.objects import CSISource, PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import claim_of, is_csi

EVENT_NOT_MOVED = "VolumeNotMoved"


def moved(world: World, volume: PersistentVolume) -> Action | None:
    """The volume's record must be the very one that the former object was of."""
    was = volume.metadata.annotations.get(marks.MOVED_ANNOTATION)
    if was is None or volume.spec.csi is None or not is_csi(volume):
        return None
    name = volume.metadata.name
    pool_name, _ = pool_of(volume) or ("", "")
    found = [one for one in world.records_of(name) if one.pool.config.name == pool_name]
    if not found:
        return _hold(volume, "its pool has no record of it")
    pool, record = found[0]
    if record.volume_uid != volume.metadata.uid and (
        why := _unlike(record, volume, volume.spec.csi, was)
    ):
        return _hold(volume, why)
    return TakeOver(
        key=name,
        reason=f"it was made anew for {marks.CSI_DRIVER}",
        pool=pool.config,
        record=record,
        volume=volume,
    )


def _unlike(record: Record, volume: PersistentVolume, csi: CSISource, was: str) -> str:
    """Why the volume is not the one on record, "" if it is."""
    last = (record.given or (record.claim_uid,))[-1]
    if record.state != "offered":
        return f"the record of its volume says {record.state}"
    if record.driver or record.snapshot_of or record.adopted:
        return "its pool has a record of another kind of volume by its name"
    # An agent that was killed after it had made the object had no time to write the UID down. The
    # name, the pool and the claim are what such a record is known by then, as ever.
    if not was or record.volume_uid not in ("", was):
        return f"the pool's record is not of the object {was!r} whose place it took"
    if not last or claim_of(volume) != last:
        return "the pool's record is of another claim's volume"
    if (volume.spec.volume_mode or "Filesystem") != record.volume_mode:
        return f"the volume on record is of volumeMode {record.volume_mode}"
    if (csi.fs_type or "") != filesystem_of(record):
        return f"the volume on record has the filesystem {filesystem_of(record) or 'of its pool'}"
    return ""


def _hold(volume: PersistentVolume, reason: str) -> Hold:
    text = f"it is not taken over for {marks.CSI_DRIVER}: {reason}"
    return Hold(key=volume.metadata.name, reason=text, volume=volume, event=EVENT_NOT_MOVED)
