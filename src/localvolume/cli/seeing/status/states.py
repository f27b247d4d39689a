"""The one state that a PersistentVolume, an agent or a cleaning is in, and why: pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from localvolume.cleaning.jobs import CleaningJob, read_job
from localvolume.cli.seeing.facts import Facts, moment
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.cli.seeing.unread import in_short
from localvolume.kube.cache import key_of
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.workloads import Pod
from localvolume.volumes import marks
from localvolume.volumes.objects import (
    is_being_deleted,
    is_finalized,
    is_held_by_claim,
    phase_of,
)

STATES: Final = (
    "available",
    "bound",
    "released",
    "cleaning",
    "held",
    "vanished",
    "lost",
    "unhealthy",
    "failed",
    "pending",
)
"""Each volume is in exactly one: the counts add up to the number of volumes."""

WELL: Final = frozenset({"available", "bound"})
BUSY: Final = frozenset({"released", "cleaning", "pending"})
"""In every other state, somebody should look at the volume."""

VANISHED: Final = "VolumeVanished"
HOLDING: Final = frozenset(
    {
        "VolumeFailedDelete",
        "VolumeUnsupportedReclaimPolicy",
        "VolumeUnknownReclaimPolicy",
        "VolumeReplaced",
        "VolumeNotItsOwn",
        "VolumeSizeDiffers",
        "VolumeDuplicate",
        "VolumeCleaningWaits",
        "VolumeKeptFromClaim",
        "VolumeNotMoved",
    }
)
"""The Events with which an agent says that it leaves a volume alone."""

_BESIDE: Final = frozenset(
    {
        "VolumeUnhealthy",
        "VolumeHealthy",
        "VolumeLimitEscaped",
        "VolumeLimitsNotKept",
        "VolumeNamesTaken",
        "ReferencedNodeDeleted",
        "ReferencedNodeReturned",
    }
)
"""The Events that tell of something else: what was said before them still counts."""

_STALE_SECONDS: Final = 3600.0
"""Agents repeat every hour what is still so: anything older no longer counts."""


@dataclass(frozen=True, slots=True)
class State:
    """`word` is one of STATES; `why` is a clause for people, "" if the word says all.

    `said` is the time of the Event that it rests on, which may be over since; "" if on none.
    """

    word: str
    why: str = ""
    said: str = ""


def state_of(facts: Facts, volume: PersistentVolume) -> State:
    """The worst state that applies to it."""
    key = volume.metadata.uid or volume.metadata.name
    known: State | None = facts.memory.get(key)
    if known is None:
        known = facts.memory[key] = _judged(facts, volume)
    return known


def _judged(facts: Facts, volume: PersistentVolume) -> State:
    if facts.is_lost(volume):
        return State("lost", "no node is there that could serve it")
    if health := volume.metadata.annotations.get(marks.HEALTH_ANNOTATION):
        return State("unhealthy", health)
    said = last_word(facts, volume)
    if said is not None and said.reason == VANISHED:
        return State("vanished", said.message, said.seen)
    going = is_being_deleted(volume) and not is_held_by_claim(volume)
    if said is not None and said.reason in HOLDING:
        return State("held", said.message, said.seen)
    if going and is_finalized(volume):
        return State("cleaning", "what its claim left is being removed")
    phase = phase_of(volume)
    if going:
        return State("released", "it is being deleted, and something else keeps the object")
    word = phase.lower() if phase.lower() in STATES else "failed"
    return State(word, volume.status.message or "")


def last_word(facts: Facts, volume: PersistentVolume) -> SeenEvent | None:
    """The last Event of ours that tells whether it is left alone, if not too old to count."""
    words = facts.words_about(volume)
    event = next((one for one in words if one.reason not in _BESIDE), None)
    seen = moment(event.seen) if event else None
    return event if seen is not None and facts.now - seen <= _STALE_SECONDS * 1.1 else None


ENDS: Final = {
    "CSIRegistrationFailedOver": "CSIRegistrationFailed",
    "CapacityNotPublishedOver": "CapacityNotPublished",
    "ConfigurationChanged": "ConfigurationInvalid",
    "DiskFormatted": "DiskFormatFailed",
    "DiskMounted": "DiskMountFailed",
    "NodeTaintRemoved": "NodeTaintNotRemoved",
    "PoolProblemOver": "PoolProblem",
    "PoolWarningOver": "PoolWarning",
}
"""The Events on a Node that say that what another one said is over."""

_AT_ONCE: Final = frozenset({"PoolWarning"})
"""Several of these may be so of one pool. Of the others above, only the newest is."""

_ABOUT: Final = re.compile(r"pool \S+: |\S+ \(\{.*?\}, \S+\)")
"""How a message names a pool or a disk."""


def current_warnings(events: Sequence[SeenEvent]) -> Iterator[SeenEvent]:
    """Of our Events about a Node, newest first, the warnings of which nothing newer says that they
    are over, or takes their place. The same words count once."""
    newest_only = frozenset(ENDS.values()) - _AT_ONCE
    ended, said = set(), set()
    for event in events:
        named = _ABOUT.match(event.message)
        about = named[0] if named else ""
        ended.add((ENDS.get(event.reason), about))
        what = (event.reason, about if event.reason in newest_only else event.message)
        if event.type == "Warning" and what not in said and (event.reason, about) not in ended:
            said.add(what)
            yield event


@dataclass(frozen=True, slots=True)
class Agent:
    """`state`: ready, not ready, missing, or unknown; `pod` is `namespace/name`."""

    state: str
    why: str = ""
    pod: str = ""


def agent_of(facts: Facts, node: str) -> Agent:
    """Whether the node's agent runs and is ready, as far as its pod says."""
    if facts.pods is None:
        why = in_short(facts.unknown.get("pods", ""))
        return Agent("unknown", f"pods could not be read: {why}")
    if not facts.agents:
        where = f"in the namespace {facts.namespace}" if facts.namespace else "anywhere"
        text = f"no agent's pod with the label {facts.selector} is {where}; --selector says another"
        return Agent("unknown", text)
    pods = facts.agents.get(node, ())
    if not pods:
        return Agent("missing", "no pod of the DaemonSet is on this node")
    # Anybody can set a label: a ready pod in another namespace does not make up for ours.
    found = [_best(pods, namespace) for namespace in sorted({p.metadata.namespace for p in pods})]
    pod = next((one for one in found if not is_ready(one)), found[0])
    name = key_of(pod)
    return Agent("ready", "", name) if is_ready(pod) else Agent("not ready", _why_not(pod), name)


def _best(pods: Sequence[Pod], namespace: str) -> Pod:
    there = [pod for pod in pods if pod.metadata.namespace == namespace]
    return next((pod for pod in there if is_ready(pod)), there[0])


def is_ready(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is not None:
        return False
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def _why_not(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "its pod is being deleted"
    for container in pod.status.container_statuses:
        waiting, ended = container.state.waiting, container.state.terminated
        if waiting is not None:
            return ": ".join(text for text in (waiting.reason, waiting.message) if text)
        if ended is not None:
            return f"{container.name} ended with {ended.exit_code}: {ended.message}".rstrip(": ")
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.message:
            return condition.message
    return f"its pod is {pod.status.phase or 'Pending'}"


def jobs_of(facts: Facts, volume: PersistentVolume) -> Sequence[CleaningJob]:
    """The cleaning Jobs of exactly this object."""
    known = [read for job in facts.jobs or () if (read := read_job(job))]
    return [job for job in known if job.volume_uid == volume.metadata.uid]
