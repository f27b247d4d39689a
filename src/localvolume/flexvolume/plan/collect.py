"""What becomes of the volumes that are ours: kept, noted as gone, or removed. Pure.

Only `Remove` deletes data, and every doubt is a reason for `Keep`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from localvolume.flexvolume.driver import (
    MAKING,
    NOTES_OF_THE_END,
    TAG_ENDED,
    TAG_GONE_SINCE,
    TAG_ON_REMOVAL,
    TAG_POLICY,
    TAG_PV_UID,
    TAG_STATE,
    WAYS,
    Owned,
)
from localvolume.volumes.lvtags import PREFIX
from localvolume.volumes.moments import moment, written


@dataclass(frozen=True, slots=True)
class Gone:
    """The API server has just said that there is no such PersistentVolume.

    `watched_seconds`: how long it has said nothing else to this process. `noted_here`: this process
    wrote down since when.
    """

    watched_seconds: float = 0.0
    noted_here: bool = False


@dataclass(frozen=True, slots=True)
class There:
    """There is a PersistentVolume of that name, with this UID.

    `ending`: it is being deleted, so the note of its end may just have been written.
    """

    uid: str
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell."""

    why: str


Answer = Gone | There | Unknown

_UNASKED: Final = Unknown("nobody has asked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`answers` about PersistentVolumes by name, `in_use` the names of volumes that somebody has
    mounted or open, or of which nobody can tell. `now` in seconds since the epoch. What an earlier
    process has noted is believed once this one has known the same for `watched_seconds`."""

    volumes: Sequence[Owned]
    answers: Mapping[str, Answer]
    in_use: Collection[str] = field(default_factory=frozenset)
    now: float
    grace_seconds: float
    watched_seconds: float


@dataclass(frozen=True, slots=True)
class NoteGone:
    """Write down since when its PersistentVolume is gone: TAG_GONE_SINCE becomes `since`."""

    volume: Owned
    since: str
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetGone:
    """Take away these notes, which are some of NOTES_OF_THE_END."""

    volume: Owned
    reason: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove it for good."""

    volume: Owned
    reason: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave it as it is. `waiting`: only until time has passed, or somebody has let go of it."""

    volume: Owned
    reason: str
    waiting: bool = False


Action = NoteGone | ForgetGone | Remove | Keep


def judge(facts: Facts) -> list[Action]:
    """Returns one action for each volume, in the same order."""
    return [_judge(volume, facts) for volume in facts.volumes]


def _judge(volume: Owned, facts: Facts) -> Action:
    answer = facts.answers.get(volume.name, _UNASKED)
    match answer:
        case Unknown(why):
            return Keep(volume, f"whether its PersistentVolume exists is not known: {why}")
        case There():
            return _there(volume, answer)
        case Gone():
            return _gone(volume, answer, facts)


def _there(volume: Owned, answer: There) -> Action:
    same = answer.uid == volume.tags.get(TAG_PV_UID, "")
    text = "its PersistentVolume exists" if same else "another PersistentVolume has its name"
    if notes := stale_notes(volume, answer):
        return ForgetGone(volume, text, notes)
    return Keep(volume, text)


def stale_notes(volume: Owned, answer: Answer) -> tuple[str, ...]:
    """The notes of its end that the answer contradicts.

    If the object is there and is not being deleted, its end was undone: by a restore of the API
    server's data, or of the object under the same name. If it is missing again later, without
    anybody's wish, what tenants wrote since must stay.
    """
    if not isinstance(answer, There):
        return ()
    notes = (TAG_GONE_SINCE,) if answer.ending else NOTES_OF_THE_END
    return tuple(note for note in notes if volume.tags.get(note))


def _gone(volume: Owned, answer: Gone, facts: Facts) -> Action:
    policy = volume.tags.get(TAG_POLICY, "")
    if policy != "Delete":
        return Keep(volume, f"its reclaim policy was {policy or 'never noted'}")
    uid = volume.tags.get(TAG_PV_UID, "")
    if not uid:
        return Keep(volume, "of which PersistentVolume it was has never been noted")
    # A cluster that was set up again, or restored from a backup, does not know its volumes: that
    # is no reason to remove them. A volume whose making never ended was nobody's yet.
    if volume.tags.get(TAG_ENDED) != uid and volume.tags.get(TAG_STATE) != MAKING:
        return Keep(
            volume,
            "its PersistentVolume is gone, and this agent never saw it being deleted: kept for"
            f" people to look at; with the tag {PREFIX}{TAG_ENDED}={uid} it is removed",
        )
    way = volume.tags.get(TAG_ON_REMOVAL, "")
    if way not in WAYS:
        return Keep(volume, f"it is not known how to remove it by {way!r}")
    since = moment(volume.tags.get(TAG_GONE_SINCE, ""))
    if since is None:
        return NoteGone(volume, written(facts.now), "its PersistentVolume is gone")
    if since > facts.now:
        return NoteGone(volume, written(facts.now), "the clock was set back since this was noted")
    left = _left(since, answer, facts)
    if left > 0:
        return Keep(volume, f"its PersistentVolume is gone; {left:.0f} s are left", waiting=True)
    if volume.name in facts.in_use:
        return Keep(volume, "its PersistentVolume is gone, and it is still in use", waiting=True)
    when = volume.tags[TAG_GONE_SINCE]
    return Remove(volume, f"its PersistentVolume ({policy}) is gone since {when}")


def _left(since: float, answer: Gone, facts: Facts) -> float:
    """Seconds until it may be removed, by both clocks: the wall clock may be set forward."""
    grace = facts.grace_seconds
    watched = grace if answer.noted_here else min(grace, facts.watched_seconds)
    return max(grace - (facts.now - since), watched - answer.watched_seconds)
