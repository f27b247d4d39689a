"""`localvolume orphans`: what lies in this node's pools and belongs to no PersistentVolume.

It is listed for somebody to decide about; localvolume never removes it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from localvolume.backends.pool.survey import survey
from localvolume.cli.output.exits import UNREACHED, USAGE, exit_statuses
from localvolume.cli.output.refusal import say, say_all
from localvolume.cli.output.unreached import unreached
from localvolume.cli.ownpod import own_node
from localvolume.cli.planning.rows import path_at
from localvolume.cli.rows import print_columns, print_value
from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.flags.agent import CONFIG, POOL_FLAGS
from localvolume.config.flags.table import KUBECONFIG, Flag, add_flags, output, values
from localvolume.config.model import ConfigurationInvalid
from localvolume.config.pools import PoolConfig
from localvolume.config.sources import Others, loader
from localvolume.dynamic.model import Pool
from localvolume.dynamic.patterns import Patterns
from localvolume.dynamic.plan.orphans import Orphan, orphans_of
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES, Kind, T
from localvolume.kube.listing import listed
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.capacity import quantity
from localvolume.volumes.objects import record_name_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = exit_statuses(
        "none", "some", unreached="the cluster could not be asked, or a pool not looked into"
    )
    node = Flag("--node", "NAME", "this node's name (default: MY_NODE_NAME)")
    add_flags(parser, CONFIG, node, *POOL_FLAGS, KUBECONFIG, output("table", "json", "yaml"))


def run(arguments: argparse.Namespace) -> int:
    node = arguments.node or own_node()
    try:
        others = Others.read(os.environ, **values(arguments, POOL_FLAGS))
        configuration = loader(others, node)(arguments.config)
        volumes = _volumes(arguments.kubeconfig)
        configs, unexpanded = asyncio.run(_expanded(configuration.pools, volumes, node))
        pools = [Pool(config=one, report=survey(one)) for one in configs]
        # After the pools, and in this order: a volume made meanwhile has its claim or its object.
        claims = asyncio.run(_listed(arguments.kubeconfig, CLAIMS))
        volumes = _volumes(arguments.kubeconfig)
    except (ConfigurationInvalid, EnvironmentInvalid) as invalid:
        say_all("orphans", invalid.problems)
        return USAGE
    except (AccessInvalid, ApiError) as error:
        return unreached("orphans", error)
    found = orphans_of(pools, volumes, claims)
    if arguments.output != "table":
        print_value(shapes(pools, found), arguments.output)
    else:
        _print(found)
    problems = {one.config.name: one.report.problem for one in pools if one.report.problem}
    problems |= unexpanded
    for name, text in problems.items():
        say("orphans", f"pool {name}: {text}")
    return UNREACHED if problems else int(bool(found))


async def _expanded(
    configs: Sequence[PoolConfig], volumes: Mapping[str, PersistentVolume], node: str
) -> tuple[tuple[PoolConfig, ...], Mapping[str, str]]:
    """The pools, patterns expanded as the agent does it, and why some could not be."""
    key = marks.node_key(node)
    own = [one for one in volumes.values() if one.metadata.labels.get(marks.NODE_LABEL) == key]
    workers = Workers(1)
    patterns = Patterns(workers)
    try:
        return await patterns.expand(configs, own), patterns.problems
    finally:
        workers.close()


async def _listed(kubeconfig: str | None, kind: Kind[T]) -> list[T]:
    async with Client(find_access(kubeconfig), user_agent="localvolume-orphans") as client:
        return await listed(client, kind)


def _volumes(kubeconfig: str | None) -> dict[str, PersistentVolume]:
    """All PersistentVolumes, by their records' names, labelled or not: one of ours may have lost
    its label."""
    found = asyncio.run(_listed(kubeconfig, PERSISTENT_VOLUMES))
    return {record_name_of(volume): volume for volume in found}


def shapes(pools: Sequence[Pool], found: Sequence[Orphan]) -> list[dict[str, Any]]:
    """One for each orphan of these pools."""
    hosts = {pool.config.name: pool.config.host_dir for pool in pools}
    return [_shape(orphan, hosts[orphan.pool]) for orphan in found]


def _shape(orphan: Orphan, host_dir: str) -> dict[str, Any]:
    """For programs, by the names that `plan` and `status` have for the same."""
    return {
        "pool": orphan.pool,
        "place": orphan.place,
        "path": path_at(host_dir, orphan.place),
        "persistentVolume": orphan.name,
        "claim": orphan.claim,
        "capacityBytes": orphan.size_bytes,
    }


def _print(found: list[Orphan]) -> None:
    print_columns(
        ("POOL", "PLACE", "PV", "CLAIM", "SIZE"),
        [
            (
                one.pool,
                one.place,
                one.name,
                one.claim,
                "" if one.size_bytes is None else quantity(one.size_bytes),
            )
            for one in found
        ],
        none="nothing: every volume in the pools has its PersistentVolume",
    )
