"""`localvolume agent`: the process that serves one node."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys

from localvolume.agent.agent import Agent, AgentOptions
from localvolume.cli.logs import add_log_arguments, set_up
from localvolume.config.durations import parse_duration
from localvolume.config.environment import (
    AgentEnvironment,
    EnvironmentInvalid,
    add_agent_flags,
)
from localvolume.kube.errors import AccessInvalid

log = logging.getLogger(__name__)

CONFIG_DIRECTORY = "/etc/provisioner/config"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_agent_flags(parser)
    parser.add_argument(
        "--config",
        metavar="DIR",
        default=CONFIG_DIRECTORY,
        help=f"the mounted ConfigMap (default {CONFIG_DIRECTORY})",
    )
    parser.add_argument(
        "--vanished-grace",
        metavar="DURATION",
        type=parse_duration,
        default=60.0,
        help="how long a volume that no claim ever used may be missing before its "
        "PersistentVolume is withdrawn (default 1m)",
    )
    add_log_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    set_up(arguments)
    try:
        environment = AgentEnvironment.read(os.environ)
    except EnvironmentInvalid as invalid:
        for problem in invalid.problems:
            print(f"localvolume agent: {problem}", file=sys.stderr)
        return 2
    options = AgentOptions(
        node_name=environment.node_name,
        config_directory=arguments.config,
        kubeconfig=environment.kubeconfig,
        listen_address=arguments.listen_address,
        metrics_path=arguments.metrics_path,
        discovery_period=arguments.discovery_period,
        config_sync_period=arguments.config_sync_period,
        vanished_grace=arguments.vanished_grace,
    )
    try:
        asyncio.run(_until_told_to_stop(Agent(options)))
    except AccessInvalid as error:
        print(f"localvolume agent: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"localvolume agent: {error}", file=sys.stderr)
        return 1
    return 0


async def _until_told_to_stop(agent: Agent) -> None:
    """Run until SIGTERM or SIGINT; a cleaning under way stops between two steps."""
    running = asyncio.ensure_future(agent.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    log.info("stopped")
