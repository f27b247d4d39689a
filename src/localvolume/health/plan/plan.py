"""What to report about the health of a node's volumes, and why: pure, from facts to actions.

What was reported last is on the object, so an agent that restarts neither repeats nor forgets it.
No action of this plan touches a volume: health is reported, not repaired.

A filesystem's error count is judged as it is, without a baseline. The counts of ext4 and btrfs last
until somebody repairs the filesystem and resets them (e2fsck, `btrfs device stats --reset`), and
until then it is not known to be healthy.
"""

from __future__ import annotations

from typing import Final

from localvolume.health.model import (
    REASONS,
    Action,
    Facts,
    Keep,
    Location,
    Memory,
    Over,
    Patience,
    Plan,
    Say,
    Seen,
    Space,
    Thin,
    Trouble,
    Wait,
)
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import ever_claimed, is_being_deleted, is_static, phase_of

FILLING_PERCENT: Final = 80.0
"""From here on a thin pool is nearly full; pools warn from here too (backends/lvm/view.py)."""

FULL_PERCENT: Final = 99.9
_SLACK_PERCENT: Final = 2.0
"""A report is over only when usage is this far below its bound: usage goes up and down."""

_FULL_BYTES: Final = 1 << 20
_FULL_SHARE: Final = 1000
"""A filesystem is full if less than a MiB, or less than a thousandth of it, is available."""

_WORDLESS: Final = frozenset({"", "unknown", "refresh needed", "mismatches exist"})
_FULL_HEALTH: Final = frozenset({"out_of_data", "metadata_read_only", "failed"})


def plan(facts: Facts) -> Plan:
    """An action for each volume, in the order of their names."""
    made = Plan(actions=[], memory={}, unhealthy={}, unknown={})
    for uid, volume in sorted(facts.volumes.items(), key=lambda item: item[1].metadata.name):
        location, seen = facts.locations.get(uid), facts.seen.get(uid)
        if is_being_deleted(volume):
            continue
        memory = facts.memory.get(uid, Memory(since=facts.now))
        unknown = _unknown(volume, location, seen)
        if location is None or seen is None or unknown:
            action: Action = Keep(volume, "nobody can tell")
            made.unknown[uid] = unknown
        else:
            trouble = judge(location, seen, said_reason(volume))
            reason = trouble.reason if trouble else ""
            if reason != memory.reason or uid not in facts.memory:
                memory = Memory(reason=reason, since=facts.now, written=memory.written)
            action = _action(volume, trouble, memory, facts)
        if isinstance(action, Say | Over):
            memory = Memory(reason=memory.reason, since=memory.since, written=facts.now)
        made.memory[uid] = memory
        made.actions.append(action)
        now = action.trouble.reason if isinstance(action, Say) else said_reason(volume)
        if now and not isinstance(action, Over):
            made.unhealthy[uid] = now
    return made


def said(volume: PersistentVolume) -> str:
    """What the object says about its health, "" for nothing."""
    return volume.metadata.annotations.get(marks.HEALTH_ANNOTATION, "")


def said_reason(volume: PersistentVolume) -> str:
    """The reason that was reported last, "" for none; "Unknown" for one that we do not know."""
    if marks.HEALTH_ANNOTATION not in volume.metadata.annotations:
        return ""
    reason = said(volume).partition(":")[0]
    return reason if reason in REASONS else "Unknown"


def _unknown(volume: PersistentVolume, location: Location | None, seen: Seen | None) -> str:
    """Why its health is unknown, "" if it is known."""
    if location is None or seen is None:
        return "it is not known where it should be"
    if seen.gone and location.may_be_absent and said_reason(volume):
        # It may just not be mounted now, but that does not repair what was wrong with it.
        return f"what was reported about it stays: {seen.gone}"
    return seen.unknown


def judge(location: Location, seen: Seen, before: str = "") -> Trouble | None:
    """The worst trouble, None if there is none; `before` is the reason that was reported last."""
    if seen.gone:
        return None if location.may_be_absent else Trouble("DeviceGone", seen.gone)
    if seen.stopped:
        text = f"{seen.stopped}: {seen.errors}" if seen.errors else seen.stopped
        return Trouble("ReadOnly", text)
    if seen.errors:
        return Trouble("IOErrors", seen.errors)
    if location.takes_space and seen.space and (full := _full(seen.space, before == "PoolFull")):
        return Trouble(
            "PoolFull", f"its pool {location.pool} has no {full} left: it takes no writes"
        )
    return _thin(seen.thin, before) if seen.thin else None


def _full(space: Space, before: bool) -> str:
    """What the pool's filesystem has run out of, "" if there is enough of all.

    A filesystem that was full stays so until twice as much is free.
    """
    least = max(_FULL_BYTES, space.total_bytes // _FULL_SHARE) * (2 if before else 1)
    if space.available_bytes < least:
        return "room"
    return "inodes" if space.inodes == 0 else ""


def _thin(thin: Thin, before: str) -> Trouble | None:
    for what, percent in (("data", thin.data_percent), ("metadata", thin.metadata_percent)):
        bound = FULL_PERCENT - (_SLACK_PERCENT if before == "PoolFull" else 0)
        if percent is not None and percent >= bound:
            return Trouble("PoolFull", f"the {what} of the thin pool {thin.name} is full")
    if thin.health in _FULL_HEALTH:
        return Trouble("PoolFull", f"LVM says of the thin pool {thin.name}: {thin.health}")
    if thin.health not in _WORDLESS:
        return Trouble("IOErrors", f"LVM says of the thin pool {thin.name}: {thin.health}")
    for what, percent in (("data", thin.data_percent), ("metadata", thin.metadata_percent)):
        bound = FILLING_PERCENT - (_SLACK_PERCENT if before in ("PoolFilling", "PoolFull") else 0)
        if percent is not None and percent >= bound:
            text = (
                f"the {what} of the thin pool {thin.name} is more than {FILLING_PERCENT:.0f}% full"
            )
            return Trouble("PoolFilling", f"{text}; when it is full, every volume in it fails")
    return None


def _action(
    volume: PersistentVolume, trouble: Trouble | None, memory: Memory, facts: Facts
) -> Action:
    """What to do about what was seen, at once or after it has lasted."""
    before, patience = said_reason(volume), facts.patience
    lasted = facts.now - memory.since
    if trouble is None:
        if not before:
            return Keep(volume, "it is well")
        left = max(patience.over - lasted, _unwritten(memory, facts.now, patience))
        if left > 0:
            return Wait(volume, "it is well again; reported if it stays so", left)
        return Over(volume, "it is well again")
    if trouble.reason == before:
        if said(volume) == str(trouble):
            return Keep(volume, "it is said")
        left = _unwritten(memory, facts.now, patience)
        if left > 0:
            return Wait(volume, "its health has changed", left)
        return Say(volume, str(trouble), trouble, aloud=False)
    if trouble.reason == "DeviceGone":
        if is_static(volume) and phase_of(volume) == "Available" and not ever_claimed(volume):
            # It is withdrawn, and offered again when it is back: there is nobody to tell.
            return Keep(volume, "it is gone, and no claim ever held it")
        if lasted < patience.gone:
            return Wait(volume, "it is gone; reported if it stays so", patience.gone - lasted)
    left = _unwritten(memory, facts.now, patience)
    if left > 0:
        return Wait(volume, "its health was reported a moment ago", left)
    # The static role reports a missing volume on its object itself: VolumeVanished.
    vanished = trouble.reason == "DeviceGone" and is_static(volume)
    return Say(volume, str(trouble), trouble, to_claim_only=vanished)


def _unwritten(memory: Memory, now: float, patience: Patience) -> float:
    """For how many seconds the object must not be written; 0 or less: it may be written now."""
    return 0.0 if memory.written is None else memory.written + patience.again - now
