"""`localvolume ui`: the cluster's local volumes as a live page, for this machine only."""

from __future__ import annotations

import argparse
import asyncio
from functools import partial

from localvolume.cli.output.exits import exit_statuses
from localvolume.cli.process import run_process
from localvolume.cli.seeing.pace import every
from localvolume.cli.seeing.page.pictures import Pictures
from localvolume.cli.seeing.page.server import ADDRESS, PageServer
from localvolume.cli.seeing.reading import ACCESS_FLAGS, access_of, read, with_consumers
from localvolume.config.flags.table import Flag, add_flags
from localvolume.kube.client import Client


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise ValueError(f"{text} is not a port: a number from 0 to 65535")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "It changes nothing, reads what status and why read, with your own rights, and listens on "
        f"{ADDRESS} only. The address that it prints has a token: whoever has it sees the page. "
        "Ctrl-C ends it. "
        + exit_statuses(
            "ended", "it could not listen there", unreached="the kubeconfig is not valid"
        )
    )
    add_flags(
        parser,
        Flag("--node", "NAME", "what concerns this node only", default=""),
        Flag("--port", "PORT", "where it listens; 0 takes a free one", parse=_port, default="0"),
        every("how often the cluster is read while somebody looks"),
        *ACCESS_FLAGS,
    )


def run(arguments: argparse.Namespace) -> int:
    return run_process("ui", partial(_serve, arguments))


async def _serve(arguments: argparse.Namespace) -> None:
    """Serves until it is cancelled. Raises AccessInvalid, and OSError if it cannot listen."""
    async with Client(access_of(arguments), user_agent="localvolume-ui") as client:
        pictures = Pictures(
            read=partial(read, client, arguments.selector, arguments.release_namespace),
            deepen=partial(with_consumers, client),
            every=arguments.every,
            node=arguments.node,
        )
        server = PageServer(pictures, arguments.every)
        try:
            await server.start(arguments.port)
            print(f"Open {server.url}\nCtrl-C ends it.", flush=True)
            await asyncio.Event().wait()
        finally:
            await server.stop()
