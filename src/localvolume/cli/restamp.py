"""`localvolume restamp`: make a pool's records match its volumes again after a copy.

A pool that was restored by copying its files has the original's names but other inodes. Only a
person can know that what lies under each name is that volume's. No data is changed or removed.
"""

from __future__ import annotations

import argparse
from collections import Counter

from localvolume.backends.pool.restamp import Found, Refused, restamp, survey
from localvolume.backends.pool.root import PoolUnusable
from localvolume.cli.output.exits import exit_statuses
from localvolume.cli.output.refusal import say
from localvolume.config.flags.table import DRY_RUN, Flag, add_flags

WAIT_SECONDS = 180.0
"""An agent looks at least every two minutes, and then lets go of the pool."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Let agents use a pool again whose files were copied to another disk: its records tell of"
        " what lies under their names from then on. No data is changed or removed. Once it has"
        " begun, no agent uses the pool until it has ended. If it is killed, run it again."
    )
    parser.epilog = exit_statuses(
        "every volume is there", "one is not, or nothing was done", unreached=""
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="a pool's directory, as seen from here"
    )
    text = (
        "what lies under each name is that volume's, also where the record of another tells of it"
    )
    add_flags(parser, DRY_RUN, Flag("--by-name", "", text))
    text = f"how long to wait for an agent that works in it (default {WAIT_SECONDS:g})"
    parser.add_argument("--wait", metavar="SECONDS", type=float, default=WAIT_SECONDS, help=text)


def run(arguments: argparse.Namespace) -> int:
    well = [_restamp(path, arguments) for path in arguments.paths]
    return 0 if all(well) else 1


def _restamp(path: str, arguments: argparse.Namespace) -> bool:
    by_name = arguments.by_name
    try:
        if arguments.dry_run:
            found = survey(path, by_name=by_name)
        else:
            found = restamp(path, by_name=by_name, wait_seconds=arguments.wait)
    except (Refused, PoolUnusable, OSError) as error:
        say("restamp", f"{path}: nothing is done: {error}")
        return False
    return _told(path, found, "would be stamped" if arguments.dry_run else "stamped")


def _told(path: str, found: Found, stamped: str) -> bool:
    """Prints the result. Returns whether every volume is there."""
    for name, answer in sorted(found.answers.items()):
        who = f"{name} of {answer.record.claim}" if answer.record.claim else name
        match answer.verdict:
            case "stamp":
                print(f"{path}: {who}: {stamped}")
            case "missing" | "left":
                print(f"{path}: {who}: left as it is: {answer.reason}")
    for name, reason in sorted(found.unreadable.items()):
        print(f"{path}: {name}: left as it is: its record cannot be read: {reason}")
    counted = Counter(answer.verdict for answer in found.answers.values())
    left = counted["missing"] + counted["left"] + len(found.unreadable)
    print(
        f"{path}: pool {found.id}: {counted['stamp']} {stamped}, {counted['fits']} as recorded,"
        f" {left} left"
    )
    return not left
