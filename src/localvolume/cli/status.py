"""`localvolume status`: volumes, capacity, claims, cleanings and problems, all from the API."""

from __future__ import annotations

import argparse
import asyncio
import sys

from localvolume.cli.output.exits import exit_statuses
from localvolume.cli.output.refusal import say
from localvolume.cli.output.unreached import unreached
from localvolume.cli.rows import print_value
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.pace import every
from localvolume.cli.seeing.reading import ACCESS_FLAGS, access_of, read
from localvolume.cli.seeing.status.overview import overview
from localvolume.config.flags.table import Flag, add_flags, output
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "With --check, something that could not be read counts as a problem. --watch ends by "
        "Ctrl-C, with the exit status of what it drew last. "
        + exit_statuses(
            "also where there are problems",
            "with --check where there are problems",
            unreached="nothing could be read",
        )
    )
    add_flags(
        parser,
        Flag("--node", "NAME", "what concerns this node only", default=""),
        output("table", "wide", "json", "yaml", "html"),
        Flag("--check", "", "exit with 1 where somebody should look"),
        Flag("--watch", "", "draw the tables again and again, until Ctrl-C"),
        every("how often --watch reads the cluster"),
        *ACCESS_FLAGS,
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.watch and arguments.output not in ("table", "wide"):
        text = f"--watch draws tables: leave out -o {arguments.output}"
        say("status", text)
        return 2
    try:
        if arguments.watch:
            return _watched(arguments)
        facts = asyncio.run(_facts(arguments))
    except (AccessInvalid, ApiError) as error:
        return unreached("status", error)
    return _said(facts, arguments)


def _said(facts: Facts, arguments: argparse.Namespace) -> int:
    """Prints the status, and returns the exit status."""
    status = overview(facts, arguments.node)
    if arguments.output in ("json", "yaml"):
        print_value(status, arguments.output)
    elif arguments.output == "html":
        from localvolume.cli.seeing.page.document import document
        from localvolume.cli.seeing.page.explaining import explanations
        from localvolume.cli.seeing.page.model import page_data

        data = page_data(status, explanations(facts, arguments.node))
        # Written as bytes: the document says that it is UTF-8, whatever the terminal's encoding is.
        sys.stdout.buffer.write(document(data).encode())
    else:
        from localvolume.cli.seeing.status.tables import print_status

        print_status(status, facts.now, wide=arguments.output == "wide")
    return int(arguments.check and bool(status["problems"] or status["unknown"]))


async def _facts(arguments: argparse.Namespace) -> Facts:
    async with Client(access_of(arguments), user_agent="localvolume-status") as client:
        return await read(client, arguments.selector, arguments.release_namespace)


def _watched(arguments: argparse.Namespace) -> int:
    """Draws until Ctrl-C; returns the exit status of what was drawn last."""
    from localvolume.cli.seeing.status.watching import watch

    last = 0

    def draw(facts: Facts) -> None:
        nonlocal last
        last = _said(facts, arguments)
        sys.stdout.flush()

    try:
        asyncio.run(watch(lambda: _facts(arguments), draw, arguments.every))
    except KeyboardInterrupt:
        print()
    return last
