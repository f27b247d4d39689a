"""`localvolume plan`: what the agent would do on this host, and why, changing nothing."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from localvolume.cleaning.jobs import read_job
from localvolume.cli.output.exits import USAGE, WRONG, exit_statuses
from localvolume.cli.output.refusal import say, say_all
from localvolume.cli.output.unreached import unreached
from localvolume.cli.ownpod import own_namespace, own_node, own_pod
from localvolume.cli.plan_disks import disk_plan, disk_rows, print_disks
from localvolume.cli.planning import facts as planned_facts
from localvolume.cli.planning import pools, snapshots
from localvolume.cli.planning.prepared import described
from localvolume.cli.planning.rows import kept, orphan_rows, volume_rows
from localvolume.cli.rows import print_rows
from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.flags.agent import CONFIG, POOL_FLAGS
from localvolume.config.flags.table import KUBECONFIG, Flag, add_flags, output, values
from localvolume.config.model import Configuration, ConfigurationInvalid
from localvolume.config.sources import Others, loader
from localvolume.config.syntax.names import fault_of_label_value
from localvolume.config.variables import KUBELET_DIR, RECORDS_DIR
from localvolume.disks.model import DiskPlan
from localvolume.dynamic.plan.orphans import orphans_of
from localvolume.dynamic.plan.plan import plan as plan_dynamic
from localvolume.dynamic.plan.world import World
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError, NotThere, TellTheAdministrator
from localvolume.kube.kinds import CLAIMS, JOBS, NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES, Kind, T
from localvolume.kube.listing import listed
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.podmounts import PodMounts
from localvolume.kube.workloads import Job
from localvolume.static.facts.known import Changes
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Ask, Facts, Publish
from localvolume.static.plan.plan import plan
from localvolume.static.plan.surroundings import Surroundings, surroundings
from localvolume.static.plan.world import names_of
from localvolume.static.recording import Records
from localvolume.static.strangers import Strangers
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts, node_facts
from localvolume.volumes.objects import is_static, path_of, record_name_of

if TYPE_CHECKING:
    from localvolume.config.pools import LvmConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = exit_statuses("the plan is made", "this host or its Node cannot be looked at")
    add_flags(
        parser,
        CONFIG,
        Flag("--node", "NAME", "this node's name (default: MY_NODE_NAME, or the hostname)"),
        Flag("--offline", "",
             "ask no cluster: no PersistentVolume exists, every class has reclaim policy Delete, "
             "and of pools only they themselves are judged"),
        KUBECONFIG,
        Flag("--namespace", "NAMESPACE",
             "where the agent's cleaning Jobs are (default: MY_NAMESPACE, or default)"),
        *POOL_FLAGS,
        output("table", "json", "yaml"),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    node = arguments.node or own_node()
    try:
        others = Others.read(os.environ, **values(arguments, POOL_FLAGS))
        configuration = loader(others, node)(arguments.config)
    except (ConfigurationInvalid, EnvironmentInvalid) as invalid:
        say_all("plan", invalid.problems)
        return USAGE
    try:
        rows, disks = asyncio.run(_rows(configuration, node, arguments))
    except (AccessInvalid, ApiError) as error:
        return unreached("plan", error)
    except Unknown as error:
        say("plan", error)
        return WRONG
    if arguments.output == "table":
        print_rows(rows, "table")
        print_disks(disks)
    else:
        print_rows(rows + disk_rows(disks), arguments.output)
    return 0


class Unknown(Exception):
    """A plan needs something that neither the cluster nor the host tells."""


async def _rows(
    configuration: Configuration, node_name: str, arguments: argparse.Namespace
) -> tuple[list[dict[str, Any]], DiskPlan | None]:
    if arguments.offline:
        node = NodeFacts(node_name, "", node_name, {marks.HOSTNAME_LABEL: node_name})
        facts = await _look(surroundings(configuration, node, None), {}, configuration.groups)
        rows = described(dataclasses.replace(facts, online=False))
        rows += await _offline_pool_rows(configuration, node)
        return rows, await _disks(configuration, node_name, (), None)
    access = find_access(arguments.kubeconfig)
    async with Client(access, user_agent="localvolume-plan") as client:
        pod = await own_pod(client)
        namespace = arguments.namespace or own_namespace()
        rows = await online_rows(client, configuration, node_name, namespace, pod)
        if configuration.pools or configuration.served:
            rows += await _pool_rows(client, configuration, await _node_of(client, node_name), pod)
        if configuration.disks is None:
            return rows, None
        own = f"{marks.NODE_LABEL}={marks.node_key(node_name)}"
        volumes = await _by_name(client, PERSISTENT_VOLUMES, own)
        return rows, await _disks(configuration, node_name, volumes.values(), pod)


async def _offline_pool_rows(configuration: Configuration, node: NodeFacts) -> list[dict[str, Any]]:
    """One row for each pool: what its claims wait for, only the cluster knows."""
    if not configuration.pools:
        return []
    found, without, _ = await pools.look(configuration, (), None)
    return pools.pool_rows(found, without, World(planned_facts.offline(node, found)), ())


async def _pool_rows(
    client: Client, configuration: Configuration, node: NodeFacts, pod: PodMounts | None
) -> list[dict[str, Any]]:
    """One row for each pool, volume and claim of this node, and content of a snapshot."""
    found = await planned_facts.read(client, configuration, node, pod)
    wanted = await snapshots.due(client, found)
    facts = snapshots.with_calls(found, wanted).facts
    made = plan_dynamic(facts)
    # What a content waits for is told of in the content's row.
    told = {call.key for call in facts.calls}
    # After the pools, and in this order: a volume made meanwhile has its claim or its object.
    claims = await listed(client, CLAIMS)
    volumes = {record_name_of(one): one for one in await listed(client, PERSISTENT_VOLUMES)}
    orphans = kept(made, orphans_of(facts.pools, volumes, claims))
    return [
        *pools.pool_rows(facts.pools, found.without, World(facts), facts.classes.values()),
        *volume_rows(facts, made, told | {one.name for one in orphans}),
        *orphan_rows(facts.pools, orphans),
        *snapshots.content_rows(wanted, made, found.unread),
    ]


async def _node_of(client: Client, node_name: str) -> NodeFacts:
    """Raises Unknown, ApiError."""
    try:
        node = node_facts(node_name, await client.get(NODES, node_name))
    except NotThere:
        node = node_facts(node_name, None)
    if isinstance(node, str):
        raise Unknown(node)
    return node


async def online_rows(
    client: Client,
    configuration: Configuration,
    node_name: str,
    namespace: str,
    pod: PodMounts | None,
) -> list[dict[str, Any]]:
    """The plan's rows for this host; `pod` is the agent's. Raises Unknown and ApiError."""
    node = await _node_of(client, node_name)
    own = f"{marks.NODE_LABEL}={marks.node_key(node_name)}"
    found = await _by_name(client, PERSISTENT_VOLUMES, own)
    volumes = {name: volume for name, volume in found.items() if is_static(volume)}
    classes = await _by_name(client, STORAGE_CLASSES)
    around = surroundings(configuration, node, classes, pod=pod)
    facts = await _look(around, volumes, configuration.groups)
    facts = await _with_jobs(client, facts, namespace, configuration.use_job_for_cleaning)
    # Objects without our label are asked for by name, as the agent does it.
    while questions := [action for action in plan(facts) if isinstance(action, Ask | Publish)]:
        names = {action.name for action in questions} - facts.asked.keys()
        if not names:
            break
        answers = {name: await _maybe(client, name) for name in names}
        facts = dataclasses.replace(facts, asked={**facts.asked, **answers})
    return described(await _with_others(client, facts))


async def _with_others(client: Client, facts: Facts) -> Facts:
    """Adds why a volume to be published may be somebody's; the agent asks right before that."""
    actions = [action for action in plan(facts) if isinstance(action, Publish)]
    if not actions:
        return facts
    workers = Workers()
    try:
        named = await Strangers(client, workers).named(facts.node)
    finally:
        workers.close()
    others = {}
    for action in actions:
        own = names_of(action.entry, facts.node.name)
        if why := named.why_not_offered(action.entry, own):
            others[action.key] = why
    return dataclasses.replace(facts, others=others)


async def _disks(
    configuration: Configuration,
    node_name: str,
    volumes: Collection[PersistentVolume],
    pod: PodMounts | None,
) -> DiskPlan | None:
    try:
        return await disk_plan(configuration, node_name, volumes, pod)
    except (OSError, ValueError, Hung) as error:
        raise Unknown(f"the disks cannot be looked at: {error}") from error


async def _maybe(client: Client, name: str) -> PersistentVolume | None:
    try:
        return await client.get(PERSISTENT_VOLUMES, name)
    except NotThere:
        return None


async def _with_jobs(client: Client, facts: Facts, namespace: str, use_jobs: bool) -> Facts:
    """Adds the cleaning Jobs, as far as we may see them; the agent judges them the same way."""
    node = facts.node.name
    selectors = [f"{marks.NODE_LABEL}={marks.node_key(node)}"]
    if not fault_of_label_value(node):
        selectors.append(f"{marks.HOSTNAME_LABEL}={node},!{marks.NODE_LABEL}")
    jobs: list[Job] = []
    unknown = None
    try:
        for selector in selectors:
            jobs += await listed(client, JOBS, namespace, label_selector=selector)
    except (TellTheAdministrator, NotThere) as error:
        unknown = f"the Jobs in {namespace} cannot be seen: {error}" if use_jobs else None
    known = [known for job in jobs if (known := read_job(job))]
    return dataclasses.replace(facts, jobs=known, use_jobs=use_jobs, jobs_unknown=unknown)


async def _by_name(client: Client, kind: Kind[T], label_selector: str = "") -> dict[str, T]:
    found = await listed(client, kind, label_selector=label_selector)
    return {one.metadata.name: one for one in found}


async def _look(
    around: Surroundings, volumes: Mapping[str, PersistentVolume], groups: Sequence[LvmConfig]
) -> Facts:
    try:
        kubelet, records = KUBELET_DIR.read(os.environ), RECORDS_DIR.read(os.environ)
    except ValueError as error:
        raise Unknown(str(error)) from error
    workers = Workers()
    try:
        survey = Survey(workers, kubelet_directory=kubelet, records=Records(records))
        found = await survey.look(
            around.to_look_at(),
            {path_of(volume) for volume in volumes.values()},
            Changes(),
            groups,
        )
    except (Hung, OSError) as error:
        raise Unknown(f"this host cannot be looked at: {error}") from error
    finally:
        workers.close()
    classes = {
        name: dataclasses.replace(facts, problem=found.problems.get(name, facts.problem))
        for name, facts in around.classes.items()
    }
    return Facts(
        around.node,
        around.options,
        classes,
        found.entries,
        volumes,
        pods_unseen=found.pods_unseen,
        salt=secrets.token_hex(16),
    )
