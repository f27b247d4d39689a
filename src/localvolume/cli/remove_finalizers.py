"""`localvolume remove-finalizers`: let PersistentVolumes go on without us, for going back, and
contents of snapshots whose node is lost."""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rich.table import Table
from rich.text import Text

from localvolume.cli.leaving.contents import Freed, look, print_contents
from localvolume.cli.output.console import table_console
from localvolume.cli.output.exits import exit_statuses
from localvolume.cli.output.refusal import say
from localvolume.cli.output.unreached import unreached
from localvolume.config.flags.table import DRY_RUN, KUBECONFIG, add_flags
from localvolume.kube.access.auth import find_access
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, JsonPatch
from localvolume.kube.errors import (
    AccessInvalid,
    ApiError,
    LookAgain,
    NotThere,
    TryAgainLater,
)
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES
from localvolume.kube.listing import listed
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import (
    ever_claimed,
    is_being_deleted,
    is_csi,
    is_finalized,
    is_static,
    phase_of,
)
from localvolume.volumes.patches import without_finalizer

LOOK_AGAIN_SECONDS = 2.0
"""After this time, an agent that still runs has put its finalizers back."""

WRITERS = 16
"""How many PersistentVolumes are written at the same time."""

TRIES = 8
"""How often one write is tried while the object changes or the API server is unavailable."""

Patch = Callable[[PersistentVolume], JsonPatch]

EPILOG = """\
Stop the agents first: an agent that runs puts its finalizer back on every PersistentVolume with
its label. Labels and annotations stay; other provisioners ignore them.

A PersistentVolume that is being deleted after a claim held it is kept, with exit status 1: without
the finalizer its object would go, and the next provisioner would offer the volume with what the
claim left in it. Let the agent run until it is gone.

A VolumeSnapshotContent or VolumeGroupSnapshotContent of the CSI driver is let go if it is being
deleted and no agent will let it go, because its node is not there any more or its deletion policy
is Retain. What is on a disk stays there.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    done = exit_statuses("let go, or would be", "one was kept, refused, or put back by an agent")
    parser.epilog = f"{EPILOG}\n{done}\n"
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--node",
        metavar="NAME",
        action="append",
        help="the PersistentVolumes of this node; may be given several times",
    )
    which.add_argument("--all", action="store_true", help="those of the whole cluster")
    add_flags(parser, DRY_RUN, KUBECONFIG)


def run(
    arguments: argparse.Namespace,
    look_again: float = LOOK_AGAIN_SECONDS,
    patch: Patch = without_finalizer,
) -> int:
    """`patch` makes the patch for a PersistentVolume, once it is decided to write it."""
    try:
        rows, contents = asyncio.run(_rows(arguments, look_again, patch))
    except (AccessInvalid, ApiError) as error:
        return unreached("remove-finalizers", error)
    except _NoSuchNode as error:
        say("remove-finalizers", error)
        return 1
    _print_table(rows)
    print_contents(contents)
    if any(row.verdict == "put back" for row in rows):
        text = "an agent is still running: stop the agents, then run this again"
        say("remove-finalizers", text)
    verdicts = {row.verdict for row in rows} | {row.verdict for row in contents}
    return int(not verdicts.isdisjoint(("kept", "failed", "put back")))


class _NoSuchNode(Exception):
    """The named node does not exist. It is probably mistyped, so nothing is done."""


@dataclass(frozen=True, slots=True)
class _Row:
    """The result for one PersistentVolume."""

    volume: PersistentVolume
    verdict: str
    reason: str = ""


def reason_to_keep(volume: PersistentVolume) -> str | None:
    """Why its finalizer must stay, or None.

    A provisioner that does not check a volume before offering it would hand on a claim's data.
    """
    # A volume made for a claim was claimed, even if somebody has cleared claimRef.
    claimed = ever_claimed(volume) or not is_static(volume)
    if not is_being_deleted(volume) or not claimed:
        return None
    if volume.spec.persistent_volume_reclaim_policy == "Delete":
        return (
            "it is being deleted and what its claim left is not cleaned yet: "
            "let the agent run until it is gone"
        )
    return (
        "it is being deleted and its data stays: the next provisioner would offer the volume "
        "with it, where it finds it"
    )


async def _rows(
    arguments: argparse.Namespace, look_again: float, patch: Patch
) -> tuple[list[_Row], list[Freed]]:
    async with Client(
        find_access(arguments.kubeconfig), user_agent="localvolume-remove-finalizers"
    ) as client:
        found, without_any = await _find(client, arguments.node)
        contents = await look(client, arguments.node)
        for name in without_any:
            if not contents.of(name):
                await _must_exist(client, name)
        if arguments.dry_run:
            return [
                _decided(volume) or _Row(volume, "would remove", _note(volume)) for volume in found
            ], [contents.planned(one) for one in contents.found]
        rows: dict[int, _Row] = {}
        remaining = iter(enumerate(found))

        async def writer() -> None:
            for number, volume in remaining:
                rows[number] = await _free(client, volume, patch)

        await asyncio.gather(*(writer() for _ in range(min(WRITERS, len(found)))))
        done = [rows[number] for number in range(len(found))]
        freed = [await contents.free(client, one) for one in contents.found]
        if not any(row.verdict == "removed" for row in done):
            return done, freed
        await asyncio.sleep(look_again)
        try:
            finalized, _ = await _find(client, arguments.node)
        except ApiError as error:
            return [_unknown(row, error) for row in done], freed
        again = {volume.metadata.uid for volume in finalized}
        return [_looked_at_again(row, again) for row in done], freed


async def _find(
    client: Client, nodes: Sequence[str] | None
) -> tuple[list[PersistentVolume], list[str]]:
    """The PersistentVolumes with our finalizer, sorted by name: of these nodes, or of all if None.

    Also returns those of the nodes that have no PersistentVolume at all.
    """
    found: list[PersistentVolume] = []
    without_any = []
    if nodes is None:
        await _collect(client, "", found)
    for name in dict.fromkeys(nodes or ()):
        own = f"{marks.NODE_LABEL}={marks.node_key(name)}"
        if not await _collect(client, own, found):
            without_any.append(name)
    return sorted(found, key=lambda volume: volume.metadata.name), without_any


async def _collect(client: Client, label_selector: str, found: list[PersistentVolume]) -> int:
    """Adds those that have our finalizer. Returns how many there are with and without it."""
    seen = await listed(client, PERSISTENT_VOLUMES, label_selector=label_selector)
    found += filter(is_finalized, seen)
    return len(seen)


async def _must_exist(client: Client, name: str) -> None:
    try:
        await client.get(NODES, name)
    except (NotThere, ValueError):
        text = f"there is no Node {name!r} and none of its PersistentVolumes; nothing was changed"
        raise _NoSuchNode(text) from None


def _decided(volume: PersistentVolume) -> _Row | None:
    """The result that needs no write, or None if the finalizer is to be removed."""
    if not is_finalized(volume):
        return _Row(volume, "free", "its finalizer is gone already")
    if reason := reason_to_keep(volume):
        return _Row(volume, "kept", reason)
    return None


def _note(volume: PersistentVolume) -> str:
    """What going back means for the volume, if it goes on in another way than it did."""
    return "no pod can start with it unless agents with --csi run" if is_csi(volume) else ""


async def _free(client: Client, volume: PersistentVolume, patch: Patch) -> _Row:
    """Removes the finalizer from exactly the object that was seen; looks again if it changed."""
    backoff, error = Backoff(), ApiError("not tried")
    for _ in range(TRIES):
        try:
            if row := _decided(volume):
                return row
            free = patch(volume)
            volume = await client.patch(PERSISTENT_VOLUMES, volume.metadata.name, free)
            return _Row(volume, "removed", _note(volume))
        except NotThere:
            return _Row(volume, "gone", "it was deleted meanwhile")
        except LookAgain as conflict:
            error = conflict
        except TryAgainLater as unwell:
            error = unwell
            await asyncio.sleep(backoff.next(unwell.after))
        except ApiError as refused:
            return _Row(volume, "failed", str(refused))
        try:
            live = await client.get(PERSISTENT_VOLUMES, volume.metadata.name)
        except NotThere:
            return _Row(volume, "gone", "it was deleted meanwhile")
        except TryAgainLater as unwell:
            error = unwell
        except ApiError as refused:
            return _Row(volume, "failed", str(refused))
        else:
            if live.metadata.uid != volume.metadata.uid:
                return _Row(volume, "gone", "another object has its name now")
            volume = live
    return _Row(volume, "failed", f"tried {TRIES} times: {error}")


def _looked_at_again(row: _Row, finalized: set[str]) -> _Row:
    if row.verdict != "removed" or row.volume.metadata.uid not in finalized:
        return row
    return replace(row, verdict="put back", reason="the node's agent is still running")


def _unknown(row: _Row, error: ApiError) -> _Row:
    if row.verdict != "removed":
        return row
    text = f"removed, but nobody can tell whether an agent has put it back: {error}"
    return replace(row, verdict="failed", reason=text)


def _print_table(rows: Sequence[_Row]) -> None:
    if not rows:
        print(f"no PersistentVolume has the finalizer {marks.FINALIZER}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("PV", "NODE", "PHASE", "VERDICT", "REASON"):
        table.add_column(title, overflow="fold")
    for row in rows:
        volume = row.volume
        metadata = volume.metadata
        node = metadata.labels.get(marks.NODE_LABEL, "")
        phase = "Terminating" if is_being_deleted(volume) else phase_of(volume)
        cells = (metadata.name, node, phase, row.verdict, row.reason)
        table.add_row(*(Text(cell) for cell in cells))
    table_console().print(table)
    counts = Counter(row.verdict for row in rows)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
