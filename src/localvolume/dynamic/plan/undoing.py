"""Until when a volume whose claim is gone can be had again: one rule, for the agent and for `why`.

`volumes.periods` says whether that time is over.

What was promised when the volume was marked is written on the object and holds whatever becomes of
its class: people recreate a class to change it, or it goes with its Helm release.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from localvolume.config.syntax.readers import one_line, quoted
from localvolume.dynamic.model import ClassFacts
from localvolume.dynamic.plan.world import pool_of
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.moments import moment
from localvolume.volumes.objects import claim_of, phase_of

_AT_ONCE = "delete the PersistentVolume to have its volume removed now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """`since`: when its claim was first missed, None if that is not written down. `until`: it is
    not removed before that, None if nothing says a time yet; both in seconds since the epoch.
    `period`: the seconds that are in force now, None if they are the pool's and that is not known.
    `problem`: why it is not removed afterwards either, and what to do about it; "" if it is.
    """

    since: float | None
    until: float | None = None
    period: float | None = 0.0
    problem: str = ""

    @property
    def marked(self) -> bool:
        """Whether it is written down since when its claim is gone."""
        return self.since is not None


def undo_of(
    volume: PersistentVolume,
    class_facts: ClassFacts | None,
    pool_seconds: float | None,
    own_seconds: float | None = None,
) -> Undo:
    """What holds for a Released volume. `class_facts` None: its class is gone, or is served by
    somebody else now; `pool_seconds` None: what its pool says is not known; `own_seconds` is what
    its VolumeAttributesClass said, whatever its class says, None if that said nothing.

    The longer counts of what was promised and what is in force. If nobody can tell, it stays.
    """
    since, promised = released_since(volume), _promised_until(volume)
    name = one_line(volume.spec.storage_class_name)
    if isinstance(promised, str):
        return Undo(since=since, problem=promised)
    if own_seconds is not None:
        own = None if since is None else since + own_seconds
        return Undo(since=since, until=_later(promised, own), period=own_seconds)
    if class_facts is None and promised is not None:
        return Undo(since=since, until=promised)
    # A class may go before the claims of its volumes do. An older provisioner made its volumes
    # without such a promise: they go as the pool says, unless a time was written down.
    if class_facts is None and (since is not None or pool_of(volume) is not None):
        problem = f"its class {name} is gone, which said how long its removal can be undone"
        return Undo(since=since, problem=f"{problem}: create the class again, or {_AT_ONCE}")
    if class_facts is not None and class_facts.problem:
        problem = f"its class {name} is not valid ({class_facts.problem})"
        problem = f"{problem}, so it is not known how long its removal can be undone"
        text = f"{problem}: correct the class, or {_AT_ONCE}"
        return Undo(since=since, until=promised, problem=text)
    period = None if class_facts is None else class_facts.wish.undo_seconds
    period = pool_seconds if period is None else period
    until = None if since is None or period is None else since + period
    return Undo(since=since, until=_later(promised, until), period=period)


def _later(*times: float | None) -> float | None:
    return max((time for time in times if time is not None), default=None)


def released_since(volume: PersistentVolume) -> float | None:
    """When its claim was first missed, in seconds since the epoch; None if that is not known.

    What was written down for an earlier claim says nothing about this one.
    """
    since, _, uid = volume.metadata.annotations.get(marks.RELEASED_ANNOTATION, "").partition(" ")
    return moment(since) if uid == claim_of(volume) else None


def _promised_until(volume: PersistentVolume) -> float | str | None:
    """The end that was written down; None if none was for this claim, a text if it is wrong."""
    text = volume.metadata.annotations.get(marks.KEPT_ANNOTATION)
    if text is None:
        return None
    until, _, uid = text.partition(" ")
    end = moment(until)
    if end is None or not uid:
        said = f"its annotation {marks.KEPT_ANNOTATION} says {quoted(text)}, which is not a time"
        return f"{said} and the UID of a claim: correct it, remove it, or {_AT_ONCE}"
    return end if uid == claim_of(volume) else None


def marks_of(volumes: Iterable[PersistentVolume]) -> dict[str, str]:
    """Since when claims are gone, as written down, by the volume's UID. A process remembers when it
    first saw each."""
    return {
        volume.metadata.uid: volume.metadata.annotations[marks.RELEASED_ANNOTATION]
        for volume in volumes
        if phase_of(volume) == "Released" and released_since(volume) is not None
    }
