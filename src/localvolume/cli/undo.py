"""`localvolume undo`: bring back a volume whose claim is gone, while its class still allows it.

The PersistentVolume is Released and kept for its class's undoPeriod. Undoing removes from it what
names the old claim, except namespace and name: only a claim with that name gets the volume.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from localvolume.cli.output.exits import WELL, WRONG, exit_statuses
from localvolume.cli.output.refusal import say
from localvolume.cli.output.unreached import unreached
from localvolume.config.flags.table import KUBECONFIG, add_flags
from localvolume.config.syntax.readers import did_you_mean
from localvolume.dynamic.patches import undone
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError, LookAgain, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.listing import listed
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import is_being_deleted, is_dynamic, phase_of

_TRIES = 5
_NONE = "no volume can be brought back: none waits to be removed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = exit_statuses("done, or listed", "there is nothing to undo, or no such volume")
    text = "the PersistentVolume's name; without one, those that can be brought back are listed"
    parser.add_argument("volume", metavar="PV", nargs="?", help=text)
    add_flags(parser, KUBECONFIG)


def run(arguments: argparse.Namespace) -> int:
    try:
        answer = asyncio.run(_answer(arguments.volume, arguments.kubeconfig))
    except (AccessInvalid, ApiError) as error:
        return unreached("undo", error)
    except _NotUndone as error:
        say("undo", error)
        return WRONG
    if answer.text and answer.done:
        print(answer.text)
    elif answer.text:
        say("undo", answer.text)
    if answer.candidates is not None:
        _print(answer.candidates, stderr=not answer.done)
    return WELL if answer.done else WRONG


class _NotUndone(Exception):
    """The volume cannot be brought back, or need not be; the message says why."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """`candidates`: the volumes that can be brought back, if they are to be shown."""

    done: bool
    text: str = ""
    candidates: Sequence[PersistentVolume] | None = None


async def _answer(name: str | None, kubeconfig: str | None) -> _Answer:
    async with Client(find_access(kubeconfig), user_agent="localvolume-undo") as client:
        if name is None:
            return _Answer(True, candidates=await _candidates(client))
        try:
            return _Answer(True, await _undo(client, name))
        except NotThere:
            text = f"there is no PersistentVolume {name}: it was removed, or never existed"
        try:
            found = await _candidates(client)
        except ApiError as error:
            unknown = f"what can be brought back is not known: {error.message}"
            return _Answer(False, f"{text}; {unknown}")
        hint = did_you_mean(name, {one.metadata.name for one in found})
        return _Answer(False, f"{text}{hint}", found)


async def _candidates(client: Client) -> list[PersistentVolume]:
    """The volumes that can be brought back, those that go first before the others."""
    found = [one for one in await listed(client, PERSISTENT_VOLUMES) if not _fault(one)]
    return sorted(found, key=lambda one: (_until(one), one.metadata.name))


async def _undo(client: Client, name: str) -> str:
    """Raises NotThere if it is not there."""
    for left in reversed(range(_TRIES)):
        volume = await client.get(PERSISTENT_VOLUMES, name)
        if fault := _fault(volume):
            raise _NotUndone(f"{name} {fault}")
        try:
            await client.patch(PERSISTENT_VOLUMES, name, undone(volume))
        except LookAgain:
            if not left:
                raise
        else:
            break
    text = f"{name} is kept, and waits for {_claim(volume) or 'any claim'}: create that claim again"
    if volume.spec.csi is None:
        return text
    return f"{text}. If it has an Event VolumeKeptFromClaim, do first what that says"


def _fault(volume: PersistentVolume) -> str:
    """Why it cannot be brought back, "" if it can."""
    if not is_dynamic(volume) or marks.NODE_LABEL not in volume.metadata.labels:
        return "was not made for a claim by localvolume"
    if is_being_deleted(volume):
        return "is being deleted already"
    if phase_of(volume) != "Released":
        return f"is {phase_of(volume)}: there is nothing to undo"
    return ""


def _claim(volume: PersistentVolume) -> str:
    ref = volume.spec.claim_ref
    return f"{ref.namespace}/{ref.name}" if ref else ""


def _until(volume: PersistentVolume) -> str:
    """Until when it is kept at least, as far as the object says."""
    if kept := volume.metadata.annotations.get(marks.KEPT_ANNOTATION, "").partition(" ")[0]:
        return kept
    policy = volume.spec.persistent_volume_reclaim_policy
    return f"you delete it (policy {policy})" if policy == "Retain" else "not known"


def _print(volumes: Sequence[PersistentVolume], *, stderr: bool) -> None:
    from localvolume.cli.rows import print_columns

    print_columns(
        ("PV", "CLASS", "CLAIM", "KEPT UNTIL"),
        [
            (one.metadata.name, one.spec.storage_class_name, _claim(one), _until(one))
            for one in volumes
        ],
        none=_NONE,
        stderr=stderr,
    )
