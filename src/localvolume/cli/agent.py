"""`localvolume agent`: the process that serves one node."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from localvolume.agent.agent import Agent
from localvolume.agent.deeds import Deeds
from localvolume.agent.options import AgentOptions
from localvolume.agent.paces import Paces
from localvolume.cli.logs import add_log_arguments, set_up
from localvolume.cli.output.refusal import say, say_all
from localvolume.cli.process import run_process
from localvolume.config.environment import AgentEnvironment, EnvironmentInvalid
from localvolume.config.flags.agent import (
    AGENT_FLAGS,
    CGROUP_DIR,
    CSI,
    CSI_MAX_VOLUMES,
    FLEXVOLUME_DRIVER,
    POOL_FLAGS,
)
from localvolume.config.flags.table import add_flags, values
from localvolume.config.sources import Others
from localvolume.config.variables import KUBELET_DIR


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, *AGENT_FLAGS)
    add_log_arguments(parser)


def run(
    arguments: argparse.Namespace, paces: Paces | None = None, deeds: Deeds | None = None
) -> int:
    """`paces` is for callers that cannot wait as long as a node, `deeds` for those that join in."""
    set_up(arguments)
    try:
        environment = AgentEnvironment.read(os.environ)
        others = Others.read(os.environ, **values(arguments, (FLEXVOLUME_DRIVER, *POOL_FLAGS)))
    except EnvironmentInvalid as invalid:
        say_all("agent", invalid.problems)
        return 2
    if arguments.csi and environment.kubelet_directory is None:
        text = f"needs the kubelet's directory, and {KUBELET_DIR} says that there is none"
        say("agent", f"{CSI.name} {text}")
        return 2
    if arguments.cgroup_dir and not arguments.csi:
        say("agent", f"{CGROUP_DIR.name} is for {CSI.name} alone")
        return 2
    if arguments.csi_max_volumes and not arguments.csi:
        say("agent", f"{CSI_MAX_VOLUMES.name} is for {CSI.name} alone")
        return 2
    options = AgentOptions(
        **asdict(environment),
        config_directory=arguments.config,
        listen_address=arguments.listen_address,
        metrics_path=arguments.metrics_path,
        metrics_certificate=arguments.metrics_certificate,
        claims_in_metrics=arguments.claims_in_metrics,
        csi=arguments.csi,
        cgroup_dir=arguments.cgroup_dir or "",
        csi_max_volumes=arguments.csi_max_volumes or 0,
        discovery_period=arguments.discovery_period,
        config_sync_period=arguments.config_sync_period,
        vanished_grace=arguments.vanished_grace,
        others=others,
        paces=paces or Paces(),
        deeds=deeds or Deeds(),
    )
    return run_process("agent", Agent(options).run)
