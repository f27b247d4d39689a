"""The roles of an agent: each begins with the first configuration that needs it, and then stays.

An agent loads only what it uses: the code of a role, and the informers that only this role reads,
are loaded when the role begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from localvolume.agent.options import AgentOptions
from localvolume.agent.shared import Shared, Wake
from localvolume.config.model import Configuration
from localvolume.kube.backoff import Backoff
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, STORAGE_CAPACITIES
from localvolume.static.jobs.watch import JobWatch
from localvolume.static.metrics import StaticMetrics
from localvolume.static.role import StaticRole
from localvolume.volumes import marks


class Role(Protocol):
    """A part of the agent that runs until the agent ends."""

    def reconfigure(self, configuration: Configuration) -> None:
        """Use this configuration from now on."""

    async def run(self) -> None:
        """Never returns."""


class Roles:
    """The roles other than the static one; they run in `tasks` and are configured together."""

    def __init__(self, shared: Shared, tasks: asyncio.TaskGroup) -> None:
        self._shared: Final = shared
        self._tasks: Final = tasks
        self._begun: Final[dict[str, Role]] = {}

    def configure(self, configuration: Configuration) -> None:
        """Give the configuration to the roles that run, and begin those that it newly needs."""
        for name, (wanted, begin) in _ROLES.items():
            role = self._begun.get(name)
            if role is not None:
                role.reconfigure(configuration)
            elif wanted(self._shared.options, configuration):
                role = begin(self._shared, self._tasks, configuration)
                self._begun[name] = role
                self._tasks.create_task(role.run())


def _taint(shared: Shared, _: asyncio.TaskGroup, configuration: Configuration) -> Role:
    from localvolume.agent.taint import NotReadyTaint

    paces, wakes = shared.options.paces, shared.wakes
    role = NotReadyTaint(
        client=shared.client,
        events=shared.events,
        nodes=shared.nodes.items,
        node_name=shared.options.node_name,
        look_at_volumes=shared.look_at_volumes,
        configuration=configuration,
        first_wait=paces.taint_first_wait,
        longest_wait=paces.taint_longest_wait,
    )
    wakes.node.append(role.loop.wake)
    wakes.offered.append(role.volumes_offered)
    return role


def _dynamic(shared: Shared, tasks: asyncio.TaskGroup, configuration: Configuration) -> Role:
    from localvolume.dynamic.capacityrole import CapacityRole
    from localvolume.dynamic.metrics import DynamicMetrics
    from localvolume.dynamic.model import Told
    from localvolume.dynamic.paces import DynamicPaces
    from localvolume.dynamic.role import DynamicRole
    from localvolume.dynamic.throttling.act import throttle_for

    options, wakes = shared.options, shared.wakes
    paces = options.paces.dynamic or DynamicPaces()
    throttle = shared.throttle = throttle_for(options.cgroup_dir, options.kubelet_directory)
    wake, capacities_changed = Wake(), Wake()
    claims = Informer(shared.client, CLAIMS, label_selector=shared.own, on_change=wake)
    published = Informer(
        shared.client,
        STORAGE_CAPACITIES,
        namespace=options.namespace,
        label_selector=shared.own,
        on_change=capacities_changed,
        backoff=Backoff(longest=paces.capacities.unread),
    )
    capacities = CapacityRole(
        shared.client, published, options.namespace, shared.events, paces.capacities
    )
    capacities_changed.append(capacities.objects_changed)
    role = DynamicRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        metrics=DynamicMetrics(shared.registry, claims=options.claims_in_metrics),
        volumes=shared.volumes,
        claims=claims,
        storage_classes=shared.storage_classes,
        nodes=shared.nodes,
        capacities=capacities,
        own_pod=shared.own_pod,
        node_name=options.node_name,
        configuration=configuration,
        paces=paces,
        clock=options.clock,
        on_known=wakes.known,
        throttle=throttle,
        told=lambda: Told.by_all(told() for told in shared.told),
        driver=options.csi,
    )
    for one in (wake, wakes.volumes, wakes.classes, wakes.node, wakes.pod):
        one.append(role.changed)
    wakes.mounts.append(role.mounts_changed)
    for one in (wakes.snapshots, wakes.groups):
        one.append(role.told_changed)
    shared.loops["dynamic"] = role.loop
    shared.problems.append(lambda: role.problems)
    shared.pools = lambda: role.pools
    shared.calls, shared.check_claim = role.calls, role.check_claim
    tasks.create_task(claims.run())
    tasks.create_task(published.run())
    return role


def _flexvolume(shared: Shared, tasks: asyncio.TaskGroup, configuration: Configuration) -> Role:
    from localvolume.flexvolume.collecting import CollectorMetrics
    from localvolume.flexvolume.metrics import FlexMetrics
    from localvolume.flexvolume.paces import FlexPaces
    from localvolume.flexvolume.role import FlexRole

    options, wakes = shared.options, shared.wakes
    wake = Wake()
    claims = Informer(shared.client, CLAIMS, label_selector=shared.own, on_change=wake)
    role = FlexRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        metrics=FlexMetrics(shared.registry),
        collector_metrics=CollectorMetrics(shared.registry),
        volumes=shared.volumes,
        claims=claims,
        nodes=shared.nodes,
        node_name=options.node_name,
        configuration=configuration,
        paces=options.paces.flexvolume or FlexPaces(),
    )
    for one in (wake, wakes.volumes, wakes.node):
        one.append(role.changed)
    shared.loops["flexvolume"] = role.loop
    shared.problems.append(lambda: role.problems)
    tasks.create_task(claims.run())
    return role


def _disks(shared: Shared, tasks: asyncio.TaskGroup, configuration: Configuration) -> Role:
    from localvolume.disks.act import carry_out
    from localvolume.disks.role import DisksRole
    from localvolume.disks.telling import DisksTelling

    options, told_changed = shared.options, Wake()
    told = Informer(
        shared.client,
        STORAGE_CAPACITIES,
        namespace=options.namespace,
        label_selector=f"{shared.own},{marks.MANAGER_LABEL}={marks.DISKS_MANAGER}",
        on_change=told_changed,
    )
    telling = DisksTelling(
        client=shared.client,
        informer=told,
        namespace=options.namespace,
        nodes=shared.nodes.items,
        own_pod=shared.own_pod,
        node_name=options.node_name,
        between=options.paces.disks_told,
    )
    for one in (told_changed, shared.wakes.node, shared.wakes.pod):
        one.append(telling.changed)
    role = DisksRole(
        events=shared.events,
        workers=shared.workers,
        registry=shared.registry,
        volumes=shared.volumes,
        own_pod=shared.own_pod,
        node_name=options.node_name,
        configuration=configuration,
        recheck_seconds=options.paces.disks_recheck,
        carry_out=options.deeds.carry_out or carry_out,
        tell=telling.tell,
    )
    for wake in (shared.wakes.pod, shared.wakes.devices):
        wake.append(role.changed)
    shared.loops["disks"] = role.loop
    tasks.create_task(told.run())
    tasks.create_task(telling.run())
    return role


def _health(shared: Shared, _: asyncio.TaskGroup, configuration: Configuration) -> Role:
    from localvolume.health.metrics import HealthMetrics
    from localvolume.health.role import HealthRole

    role = HealthRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        metrics=HealthMetrics(shared.registry, claims=shared.options.claims_in_metrics),
        volumes=shared.volumes,
        pools=lambda: shared.pools(),  # noqa: PLW0108 - the role that has them comes later
        own_pod=shared.own_pod,
        configuration=configuration,
        patience=shared.options.patience,
    )
    wakes = shared.wakes
    for wake in (wakes.volumes, wakes.pod, wakes.mounts, wakes.devices):
        wake.append(role.changed)
    shared.loops["health"] = role.loop
    return role


def _csi(shared: Shared, _: asyncio.TaskGroup, __: Configuration) -> Role:
    from localvolume.csi.controller import ControllerService
    from localvolume.csi.groups import GroupControllerService
    from localvolume.csi.metrics import CsiMetrics
    from localvolume.csi.node import NodeService
    from localvolume.csi.paces import CsiPaces
    from localvolume.csi.role import CsiRole
    from localvolume.csi.snapshotmetadata import SnapshotMetadataService

    options, volumes, kubelet = shared.options, shared.calls, shared.options.kubelet_directory
    throttle, check_claim = shared.throttle, shared.check_claim
    if volumes is None or throttle is None or check_claim is None or kubelet is None:
        raise ValueError("the CSI driver needs the role of the pools and the kubelet's directory")
    role = CsiRole(
        volumes=volumes,
        services=(
            ControllerService(volumes),
            GroupControllerService(volumes),
            SnapshotMetadataService(volumes),
            NodeService(
                volumes,
                kubelet,
                shared.workers,
                throttle,
                check_claim,
                most_volumes=options.csi_max_volumes,
            ),
        ),
        events=shared.events,
        workers=shared.workers,
        metrics=CsiMetrics(shared.registry),
        node_name=options.node_name,
        kubelet_directory=kubelet,
        paces=options.paces.csi or CsiPaces(),
    )
    for wake in (shared.wakes.node, shared.wakes.known):
        wake.append(role.changed)
    shared.loops["csi"] = role.loop
    shared.problems.append(lambda: role.problems)
    return role


def _snapshots(shared: Shared, _: asyncio.TaskGroup, __: Configuration) -> Role:
    from localvolume.snapshots.metrics import SnapshotMetrics
    from localvolume.snapshots.paces import SnapshotPaces
    from localvolume.snapshots.role import SnapshotRole

    if shared.calls is None:
        raise ValueError("snapshots need the role of the pools")
    role = SnapshotRole(
        client=shared.client,
        events=shared.events,
        metrics=SnapshotMetrics(shared.registry),
        volumes=shared.calls,
        objects=shared.volumes.items,
        node_name=shared.options.node_name,
        paces=shared.options.paces.snapshots or SnapshotPaces(),
        on_change=shared.wakes.snapshots,
        groups=lambda: shared.groups.items.values() if shared.groups is not None else (),
    )
    shared.snapshots = role.contents
    shared.told.append(role.told)
    shared.wakes.volumes.append(role.changed)
    shared.wakes.groups.append(role.loop.wake)
    shared.loops["snapshots"] = role.loop
    shared.problems.append(lambda: role.problems)
    return role


def _throttling(shared: Shared, _: asyncio.TaskGroup, __: Configuration) -> Role:
    from localvolume.dynamic.throttling.role import ThrottlingRole

    if shared.calls is None or shared.throttle is None:
        raise ValueError("limits need the role of the pools")
    role = ThrottlingRole(
        volumes=shared.calls,
        throttle=shared.throttle,
        events=shared.events,
        workers=shared.workers,
        objects=shared.volumes.items,
    )
    for wake in (shared.wakes.mounts, shared.wakes.known):
        wake.append(role.changed)
    shared.loops["throttling"] = role.loop
    return role


def _groups(shared: Shared, _: asyncio.TaskGroup, __: Configuration) -> Role:
    from localvolume.snapshots.groups.metrics import GroupMetrics
    from localvolume.snapshots.groups.role import GroupRole
    from localvolume.snapshots.paces import SnapshotPaces

    if shared.calls is None or shared.snapshots is None:
        raise ValueError("groups of snapshots need the roles of the pools and of single snapshots")
    role = GroupRole(
        client=shared.client,
        events=shared.events,
        metrics=GroupMetrics(shared.registry),
        volumes=shared.calls,
        objects=shared.volumes.items,
        node_name=shared.options.node_name,
        paces=shared.options.paces.snapshots or SnapshotPaces(),
        on_change=shared.wakes.groups,
        singles=shared.snapshots,
    )
    shared.told.append(role.told)
    shared.groups = role.contents
    for wake in (shared.wakes.volumes, shared.wakes.snapshots):
        wake.append(role.changed)
    shared.loops["groups"] = role.loop
    shared.problems.append(lambda: role.problems)
    return role


Begin = Callable[[Shared, asyncio.TaskGroup, Configuration], Role]

Wanted = Callable[[AgentOptions, Configuration], bool]

_ROLES: Final[dict[str, tuple[Wanted, Begin]]] = {
    "taint": (lambda _, now: now.remove_node_not_ready_taint, _taint),
    "dynamic": (lambda given, now: bool(now.pools or now.served or given.csi), _dynamic),
    "csi": (lambda given, _: given.csi, _csi),
    "snapshots": (lambda given, _: given.csi, _snapshots),
    "groups": (lambda given, _: given.csi, _groups),
    "throttling": (lambda given, _: given.csi, _throttling),
    "flexvolume": (lambda _, now: now.flexvolume is not None, _flexvolume),
    "disks": (lambda _, now: now.disks is not None, _disks),
    "health": (lambda *_: True, _health),
}
"""In the order in which they get a new configuration."""


def begin_static(
    shared: Shared, tasks: asyncio.TaskGroup, configuration: Configuration, metrics: StaticMetrics
) -> StaticRole:
    """Make the role and start its informers. The caller runs it."""
    options, wakes = shared.options, shared.wakes
    paces = options.paces.static
    jobs = JobWatch(
        shared.client, options.namespace, options.node_name, wakes.jobs, paces.jobs_again
    )
    jobs.needed = configuration.use_job_for_cleaning
    role = StaticRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        metrics=metrics,
        volumes=shared.volumes,
        storage_classes=shared.storage_classes,
        nodes=shared.nodes,
        jobs=jobs,
        own_pod=shared.own_pod,
        node_name=options.node_name,
        job_image=options.job_image,
        configuration=configuration,
        kubelet_directory=options.kubelet_directory,
        records_directory=options.records_directory,
        grace_seconds=options.vanished_grace,
        paces=paces,
        clean=options.deeds.clean,
        on_resync=wakes.resync,
        on_offered=wakes.offered,
    )
    wakes.volumes.append(role.volume_changed)
    for wake in (wakes.classes, wakes.node, wakes.jobs, wakes.pod):
        wake.append(role.objects_changed)
    wakes.mounts.append(role.mounts_changed)
    wakes.devices.append(role.device_changed)
    shared.loops["discovery"] = role.loop
    shared.look_at_volumes = role.objects_changed
    shared.problems.append(lambda: role.problems)
    tasks.create_task(jobs.run())
    return role
