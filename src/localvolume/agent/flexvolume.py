"""The FlexVolume role and the informer that feeds it: begun once it is configured, and then kept.

An agent without FlexVolume carries none of it, neither the code nor the watch.
"""

from __future__ import annotations

import asyncio

from localvolume.agent.shared import Shared, Wake
from localvolume.config.model import Configuration
from localvolume.flexvolume.collecting import CollectorMetrics
from localvolume.flexvolume.paces import FlexPaces
from localvolume.flexvolume.role import FlexRole
from localvolume.flexvolume.telemetry import FlexTelemetry
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS


def begin(shared: Shared, tasks: asyncio.TaskGroup, configuration: Configuration) -> FlexRole:
    """Make the role and start its informer. The caller runs it."""
    options, wakes = shared.options, shared.wakes
    wake = Wake()
    claims = Informer(shared.client, CLAIMS, label_selector=shared.own, on_change=wake)
    role = FlexRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        telemetry=FlexTelemetry(shared.registry),
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
