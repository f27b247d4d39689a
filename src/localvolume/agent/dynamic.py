"""The dynamic role and the informers that feed it: begun once there is a pool, and then kept.

An agent without pools carries none of it, neither the code nor the watches.
"""

from __future__ import annotations

import asyncio

from localvolume.agent.shared import Shared, Wake
from localvolume.config.model import Configuration
from localvolume.dynamic.capacityrole import CapacityRole
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.role import DynamicRole
from localvolume.dynamic.telemetry import DynamicTelemetry
from localvolume.kube.backoff import Backoff
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, STORAGE_CAPACITIES


def begin(shared: Shared, tasks: asyncio.TaskGroup, configuration: Configuration) -> DynamicRole:
    """Make the role and start its informers. The caller runs it."""
    options, wakes = shared.options, shared.wakes
    paces = options.paces.dynamic or DynamicPaces()
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
        telemetry=DynamicTelemetry(shared.registry, claims=options.claims_in_metrics),
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
    )
    for one in (wake, wakes.volumes, wakes.classes, wakes.node, wakes.pod):
        one.append(role.changed)
    wakes.mounts.append(role.mounts_changed)
    shared.loops["dynamic"] = role.loop
    shared.problems.append(lambda: role.problems)
    shared.pools = lambda: role.pools
    tasks.create_task(claims.run())
    tasks.create_task(published.run())
    return role
