"""The rows of `localvolume plan` for volumes that are made for claims: the role's plan, in words.

Nothing is decided here: see ``dynamic.plan``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from localvolume.backends.model import Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import Action, Facts, Hold, Keep, Make, Plan, Pool
from localvolume.dynamic.plan.orphans import Orphan, place_of
from localvolume.kube.cache import key_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.objects import path_of

VERDICTS: Final = {
    "Make": "make",
    "Publish": "publish",
    "Reject": "refuse",
    "GiveBack": "give back",
    "Ask": "ask",
    "AskPod": "ask",
    "TakeAway": "take away",
    "Remember": "record",
    "TakeOver": "take over",
    "Secure": "mark",
    "MarkReleased": "mark",
    "Grow": "grow",
    "Modify": "modify",
    "TellModify": "tell",
    "TellInfeasible": "tell",
    "TellGrown": "tell",
    "Unprotect": "let go",
    "Delete": "delete",
    "Retire": "remove",
    "RemoveInline": "remove",
    "Purge": "purge",
    "Hold": "hold",
    "Keep": "keep",
    # For the contents of snapshots.
    "MakeCalled": "cut",
    "CutGroup": "cut",
    "RemoveCalled": "remove",
    "RemoveGroup": "remove",
    "AnswerCall": "tell",
}


def volume_rows(facts: Facts, made: Plan, without: Collection[str]) -> list[dict[str, Any]]:
    """One row for each action, but for those of the names in `without`."""
    by_name = {
        claim.spec.volume_name or claims.volume_name(claim.metadata.uid): claim
        for claim in facts.claims.values()
    }
    return [
        _row(facts, action, by_name.get(action.key))
        for action in made.actions
        if action.key not in without
    ]


def kept(made: Plan, orphans: Sequence[Orphan]) -> list[Orphan]:
    """The orphans that nothing will be done about: what was never published may still go."""
    going = {one.key for one in made.actions if not isinstance(one, Hold | Keep)}
    return [one for one in orphans if one.name not in going]


def orphan_rows(pools: Sequence[Pool], orphans: Sequence[Orphan]) -> list[dict[str, Any]]:
    """One row for each orphan, which the agent keeps."""
    hosts = {pool.config.name: pool.config.host_dir for pool in pools}
    return [_orphan_row(one, hosts[one.pool]) for one in orphans]


def _orphan_row(orphan: Orphan, host_dir: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "class": "",
        "path": path_at(host_dir, orphan.place),
        "verdict": "orphan",
        "reason": "it belongs to no PersistentVolume; the agent never removes it",
        "pool": orphan.pool,
        "place": orphan.place,
    }
    if orphan.name:
        row["persistentVolume"] = orphan.name
    if orphan.claim:
        row["claim"] = orphan.claim
    if orphan.size_bytes is not None:
        row["capacityBytes"] = orphan.size_bytes
    return row


def _row(facts: Facts, action: Action, claim: PersistentVolumeClaim | None) -> dict[str, Any]:
    volume: PersistentVolume | None = getattr(action, "volume", None)
    volume = volume or facts.volumes.get(action.key)
    config, record = _place(facts, action)
    if claim is not None:
        class_name = claims.class_of(claim)
    elif volume is not None:
        class_name = volume.spec.storage_class_name
    else:
        class_name = record.class_name if record else ""
    row: dict[str, Any] = {
        "class": class_name,
        "path": _path(config, record, volume),
        "verdict": VERDICTS[type(action).__name__],
        "reason": action.reason,
    }
    if isinstance(action, Make) and action.origin is not None:
        row["verdict"] = "restore" if action.origin.snapshot_of else "clone"
        row["sourceHandle"] = action.origin.name
    if volume is not None or isinstance(action, Make):
        row["persistentVolume"] = action.key
    if claim is not None:
        row["claim"] = key_of(claim)
    if config is not None:
        row["pool"] = config.name
        if record is not None and not row.keys() & {"persistentVolume", "claim"}:
            row["place"] = place_of(record)
    if record is not None:
        size = getattr(action, "size_bytes", record.size_bytes)
        row |= {"capacityBytes": size, "volumeMode": record.volume_mode}
    return row


def _place(facts: Facts, action: Action) -> tuple[PoolConfig | None, Record | None]:
    """The pool, and the record, that the action is about."""
    config: PoolConfig | None = getattr(action, "pool", None)
    record: Record | None = getattr(action, "record", None)
    if record is None or config is None:
        for pool in facts.pools:
            if (found := pool.report.records.get(action.key)) is not None:
                return pool.config, record or found
    return config, record


def _path(config: PoolConfig | None, record: Record | None, volume: PersistentVolume | None) -> str:
    """Where its data is on the host; "" if it is at no path, or at none yet."""
    if config is not None and record is not None and config.host_dir:
        return path_at(config.host_dir, place_of(record))
    return path_of(volume) if volume is not None else ""


def path_at(host_dir: str, place: str) -> str:
    """The path of a place in a pool; "" if the pool has no directory, as a volume group."""
    return f"{host_dir}/{place}" if host_dir else ""
