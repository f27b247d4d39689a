"""`localvolume demo`: the main job, live, on disks and in a cluster made for it."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the main job live: volumes appear, are claimed, written, released, cleaned and "
        "offered anew, and a guard holds; then volumes are made for claims, grow, go, and come "
        "back, and one is restored from its snapshot. Everything it makes is removed at its end, "
        "also when it is interrupted."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--real",
        action="store_true",
        help="a real control plane on this machine (needs Go or KUBEBUILDER_ASSETS) "
        "instead of the sandbox",
    )
    where.add_argument(
        "--kubeconfig",
        metavar="PATH",
        default="",
        help="a cluster of yours, after asking, with names of its own, removed again",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before --kubeconfig")
    parser.add_argument(
        "--hold", action="store_true", help="keep everything up at the end, until Ctrl-C"
    )
    parser.add_argument(
        "--pace",
        metavar="SECONDS",
        type=_seconds,
        default=None,
        help="time to read between two events (default: 1 on a terminal, else 0)",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0 to 60")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    if not sys.platform.startswith("linux"):
        print("localvolume demo: it needs Linux: mounts, loop devices, /proc", file=sys.stderr)
        return 2
    # Here: the other commands need not load what draws on terminals.
    from localvolume_lab.demo.show import Options, show

    return show(
        Options(
            real=arguments.real,
            hold=arguments.hold,
            kubeconfig=arguments.kubeconfig,
            yes=arguments.yes,
            pace=arguments.pace,
        )
    )
