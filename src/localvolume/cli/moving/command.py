"""`localvolume move-to-csi`: have pods use volumes of the `local` kind through our CSI driver.

The data stays where it is. A PersistentVolume's source never changes, so its object is deleted and
made anew under the same name, for the same claim. What is needed for that is written down first, so
that a call that was killed can be repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from localvolume.cli.moving.act import Cluster, Unreadable
from localvolume.cli.moving.model import Facts, policy_of
from localvolume.cli.moving.plan import next_step
from localvolume.cli.output.console import table_console
from localvolume.cli.output.exits import exit_statuses
from localvolume.cli.output.refusal import say
from localvolume.cli.output.unreached import unreached
from localvolume.config.flags.table import DRY_RUN, KUBECONFIG, Flag, add_flags
from localvolume.kube.access.auth import find_access
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import (
    AccessInvalid,
    AlreadyThere,
    ApiError,
    LookAgain,
    NotThere,
    TryAgainLater,
)
from localvolume.volumes import marks

WAIT_SECONDS = 60.0
"""An agent that runs has taken a volume over within seconds."""

_LOOK_SECONDS = 0.5
_TRIES = 40
"""How many steps and repeated attempts one volume may take, without the wait for its agent."""

_CHANGES = frozenset({"keep", "retain", "delete", "let go", "create", "forget"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Have pods use volumes of the kind local through the CSI driver csi.localvolume.dev. The"
        " data stays where it is. Stop the pods that use them first, and start them again once this"
        " has ended. If it is killed, run it again with the same volumes."
    )
    parser.epilog = exit_statuses(
        "every volume is moved, or would be", "one is not, or nothing was done"
    )
    parser.add_argument(
        "volumes", metavar="PV", nargs="+", help="the names of the PersistentVolumes"
    )
    add_flags(
        parser,
        DRY_RUN,
        Flag("--yes", "", "do it without asking"),
        Flag("--release-namespace", "NAME", "where localvolume is installed: objects are kept there"
             " in ConfigMaps meanwhile", default="local-volume-provisioner"),
        KUBECONFIG,
    )  # fmt: skip
    text = f"how long to wait for the agents, for each volume (default {WAIT_SECONDS:g})"
    parser.add_argument("--wait", metavar="SECONDS", type=float, default=WAIT_SECONDS, help=text)


def run(arguments: argparse.Namespace) -> int:
    try:
        return asyncio.run(_run(arguments))
    except (AccessInvalid, ApiError) as error:
        return unreached("move-to-csi", error)


@dataclass(frozen=True, slots=True)
class _Row:
    """What is said of one volume."""

    facts: Facts
    verdict: str
    reason: str


async def _run(arguments: argparse.Namespace) -> int:
    names = list(dict.fromkeys(arguments.volumes))
    access = find_access(arguments.kubeconfig)
    async with Client(access, user_agent="localvolume-move-to-csi") as client:
        cluster = Cluster(client, arguments.release_namespace)
        if not await cluster.has_namespace():
            text = f"there is no namespace {cluster.namespace}: --release-namespace names it"
            say("move-to-csi", text)
            return 1
        serving = await cluster.serving()
        rows = [await _planned(cluster, name, serving) for name in names]
        if not arguments.dry_run and any(row.verdict == "would move" for row in rows):
            if not arguments.yes:
                _print_table(rows)
                if not _confirmed(rows):
                    say("move-to-csi", "nothing is done")
                    return 1
            for number, row in enumerate(rows):
                if row.verdict == "would move":
                    rows[number] = await _moved(cluster, row.facts, serving, arguments.wait)
    _print_table(rows)
    return int(any(row.verdict not in ("moved", "would move", "is moved") for row in rows))


async def _planned(cluster: Cluster, name: str, serving: frozenset[str]) -> _Row:
    try:
        facts = await cluster.look(name, serving)
    except (Unreadable, ValueError) as error:
        return _Row(Facts(name=name), "refused", str(error))
    step = next_step(facts)
    match step.kind:
        case "refuse":
            return _Row(facts, "refused", step.reason)
        case "done":
            return _Row(facts, "is moved", step.reason)
        case "keep" if facts.former is None:
            return _Row(facts, "would move", "")
        case _:
            return _Row(facts, "would move", f"it was begun before{_policy_again(facts)}")


def _policy_again(facts: Facts) -> str:
    """What becomes of the policy Retain that the command has set: whoever looks takes it for what
    somebody else has set, and setting it once more changes nothing that could be seen."""
    volume = facts.volume
    if volume is None or marks.MOVING_ANNOTATION not in volume.metadata.annotations:
        return ""
    if (policy := policy_of(volume)) == "Retain":
        return ""
    return (
        f"; its reclaim policy is {policy} again afterwards: to have it stay Retain, take away the"
        f" annotation {marks.MOVING_ANNOTATION} first"
    )


def _confirmed(rows: Sequence[_Row]) -> bool:
    count = sum(row.verdict == "would move" for row in rows)
    try:
        return input(f"Move {count}? No pod may use them meanwhile. [y/N] ").strip() in ("y", "yes")
    except EOFError:
        return False


async def _moved(cluster: Cluster, facts: Facts, serving: frozenset[str], wait: float) -> _Row:
    """Does step after step, each after another look."""
    name, backoff, until, left = facts.name, Backoff(), time.monotonic() + wait, _TRIES
    error: ApiError = TryAgainLater("not tried")
    while left:
        left -= 1
        try:
            facts = await cluster.look(name, serving)
            step = next_step(facts)
            if step.kind == "refuse":
                return _Row(facts, "refused", step.reason)
            if step.kind == "done":
                return _Row(facts, "moved", "")
            if step.kind in _CHANGES:
                await cluster.do(facts, step)
                continue
        except (LookAgain, NotThere, AlreadyThere) as changed:
            error = changed
        except TryAgainLater as unwell:
            error = unwell
            await asyncio.sleep(backoff.next(unwell.after))
        except (ApiError, Unreadable) as refused:
            return _Row(facts, "failed", f"{refused}; run it again")
        else:
            if time.monotonic() > until:
                why = f"{step.reason}: localvolume why {name}; then run it again"
                return _Row(facts, "waits", why)
            left += 1
            await asyncio.sleep(_LOOK_SECONDS)
    return _Row(facts, "failed", f"tried {_TRIES} times: {error}; run it again")


def _print_table(rows: Sequence[_Row]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("PV", "CLAIM", "NODE", "VERDICT", "REASON"):
        table.add_column(title, overflow="fold")
    for row in rows:
        facts = row.facts
        seen = facts.volume or (facts.former.seen if facts.former else None)
        ref = seen.spec.claim_ref if seen else None
        claim = f"{ref.namespace}/{ref.name}" if ref else ""
        node = seen.metadata.labels.get(marks.NODE_LABEL, "") if seen else ""
        cells = (facts.name, claim, node, row.verdict, row.reason)
        table.add_row(*(Text(cell) for cell in cells))
    table_console().print(table)
