"""`localvolume undo`: bring back a volume whose claim is gone, while its class still allows it.

The PersistentVolume is Released and kept for its class's undoPeriod. Undoing removes from it what
names the old claim, except namespace and name: only a claim with that name gets the volume.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from localvolume.cli.output.unreached import unreached
from localvolume.config.flags.table import KUBECONFIG, add_flags
from localvolume.dynamic.patches import undone
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError, LookAgain, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import is_being_deleted, is_dynamic, phase_of

_TRIES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("volume", metavar="PV", help="the PersistentVolume's name")
    add_flags(parser, KUBECONFIG)


def run(arguments: argparse.Namespace) -> int:
    try:
        print(asyncio.run(_undo(arguments.volume, arguments.kubeconfig)))
    except (AccessInvalid, ApiError) as error:
        return unreached("undo", error)
    except _TooLate as error:
        print(f"localvolume undo: {error}", file=sys.stderr)
        return 1
    return 0


class _TooLate(Exception):
    """The volume cannot be brought back, or need not be; the message says why."""


async def _undo(name: str, kubeconfig: str | None) -> str:
    async with Client(find_access(kubeconfig), user_agent="localvolume-undo") as client:
        for left in reversed(range(_TRIES)):
            try:
                volume = await client.get(PERSISTENT_VOLUMES, name)
            except NotThere:
                raise _TooLate(f"there is no PersistentVolume {name}: it is removed") from None
            _check(volume)
            try:
                await client.patch(PERSISTENT_VOLUMES, name, undone(volume))
            except LookAgain:
                if not left:
                    raise
            else:
                break
    ref = volume.spec.claim_ref
    who = f"{ref.namespace}/{ref.name}" if ref else "any claim"
    text = f"{name} is kept, and waits for {who}: create that claim again"
    if volume.spec.csi is None:
        return text
    return f"{text}. If it has an Event VolumeKeptFromClaim, do first what that says"


def _check(volume: PersistentVolume) -> None:
    name = volume.metadata.name
    if not is_dynamic(volume) or marks.NODE_LABEL not in volume.metadata.labels:
        raise _TooLate(f"{name} was not made for a claim by localvolume")
    if is_being_deleted(volume):
        raise _TooLate(f"{name} is being deleted already")
    if phase_of(volume) != "Released":
        raise _TooLate(f"{name} is {phase_of(volume)}: there is nothing to undo")
