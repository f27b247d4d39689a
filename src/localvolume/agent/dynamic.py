"""The dynamic role and the informers that feed it: begun once there is a pool, and then kept.

An agent without pools carries none of it, neither the code nor the watches.
"""

from __future__ import annotations

import asyncio

from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.dynamic.capacityrole import CapacityRole
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.role import DynamicRole
from localvolume.dynamic.telemetry import DynamicTelemetry
from localvolume.kube.backoff import Backoff
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, STORAGE_CAPACITIES
from localvolume.volumes import marks


def begin(
    shared: Shared,
    tasks: asyncio.TaskGroup,
    configuration: Configuration,
) -> DynamicRole:
    """Make the role and start its informers.

    The caller runs the role, and wakes it up when volumes, classes, the Node or mounts change.
    """
    role: DynamicRole | None = None
    paces = shared.paces.dynamic or DynamicPaces()

    def changed(*_: object) -> None:
        if role is not None:
            role.changed()

    own = f"{marks.NODE_LABEL}={marks.node_key(shared.node_name)}"
    claims = Informer(shared.client, CLAIMS, label_selector=own, on_change=changed)
    published = Informer(
        shared.client,
        STORAGE_CAPACITIES,
        namespace=shared.namespace,
        label_selector=own,
        on_change=lambda *_: capacities.objects_changed(),
        backoff=Backoff(longest=paces.capacities.unread),
    )
    capacities = CapacityRole(
        shared.client, published, shared.namespace, shared.events, paces.capacities
    )
    role = DynamicRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        telemetry=DynamicTelemetry(shared.registry, claims=shared.claims_in_metrics),
        volumes=shared.volumes,
        claims=claims,
        storage_classes=shared.storage_classes,
        nodes=shared.nodes,
        capacities=capacities,
        own_pod=shared.own_pod,
        node_name=shared.node_name,
        configuration=configuration,
        paces=paces,
        clock=shared.clock,
    )
    tasks.create_task(claims.run())
    tasks.create_task(published.run())
    return role
