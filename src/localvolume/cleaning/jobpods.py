"""What the pods of a cleaning Job say: the receipt, the last lines of a failure, why they wait.

Whatever comes from a pod is text for people: it is shortened, made printable, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from localvolume.cleaning.jobs import CONTAINER
from localvolume.kube.workloads import ContainerStatus, ContainerTerminated, Pod

_LONGEST: Final = 600
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


class Waiting(NamedTuple):
    """Why a Job's container does not run: a word, to tell each reason once, and a sentence."""

    reason: str
    text: str


class Said(NamedTuple):
    """A receipt as the Job wrote it: a line for an Event, and all of it for the log."""

    summary: str
    receipt: dict[str, Any]


def receipt_of(pods: Iterable[Pod]) -> Said | None:
    """The receipt that the successful container wrote last; None if there is none."""
    for ended in _ended(pods):
        if ended.exit_code:
            continue
        try:
            receipt = msgspec.json.decode(ended.message, type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
        summary = receipt.pop("summary", None)
        if isinstance(summary, str) and summary:
            return Said(_shown(summary), receipt)
    return None


def last_words(pods: Iterable[Pod]) -> str:
    """Why the container failed, as far as its pod tells; "" if it tells nothing."""
    pods = list(pods)
    for ended in _ended(pods):
        if ended.exit_code:
            return _how(ended)
    for pod in pods:
        words = [text for text in (pod.status.reason, pod.status.message) if text]
        if words:
            return _shown(": ".join(words))
    waiting = why_waiting(pods)
    return waiting.text if waiting and pods else ""


def why_waiting(pods: Iterable[Pod]) -> Waiting | None:
    """Why nothing runs although the Job is not finished; None if something runs or is starting."""
    pods = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    if not pods:
        text = "it has no pod: its own Events say why (admission, quota)"
        return Waiting("NoPod", text)
    for pod in pods:
        for condition in pod.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                reason = condition.reason or "Unscheduled"
                return Waiting(reason, _shown(f"{reason}: {condition.message}"))
        for status in _cleaners(pod):
            waiting = status.state.waiting
            if waiting is not None and waiting.reason not in _STARTING:
                return Waiting(waiting.reason, _shown(f"{waiting.reason}: {waiting.message}"))
    return None


def not_ended(pods: Iterable[Pod]) -> list[str]:
    """The names of the pods that run or may still start."""
    return [pod.metadata.name for pod in pods if pod.status.phase not in ("Succeeded", "Failed")]


def _ended(pods: Iterable[Pod]) -> Iterator[ContainerTerminated]:
    for pod in pods:
        for status in _cleaners(pod):
            if status.state.terminated is not None:
                yield status.state.terminated


def _how(ended: ContainerTerminated) -> str:
    how = f"ended with {ended.exit_code}"
    if ended.reason not in ("", "Error"):
        how += f" ({ended.reason})"
    return f"{how}: {_shown(ended.message)}" if ended.message else how


def _cleaners(pod: Pod) -> Iterator[ContainerStatus]:
    return (status for status in pod.status.container_statuses if status.name == CONTAINER)


def _shown(text: str) -> str:
    """One printable line; a long one is cut to its end, where programs say why they failed."""
    words = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    line = "".join(c if c.isprintable() else " " for c in words)
    return line if len(line) <= _LONGEST else f"…{line[1 - _LONGEST :]}"
