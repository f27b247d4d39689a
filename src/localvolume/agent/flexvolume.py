"""The FlexVolume role and the informer that feeds it: begun once it is configured, and then kept.

An agent without FlexVolume carries none of it, neither the code nor the watch.
"""

from __future__ import annotations

import asyncio

from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.flexvolume.collecting import CollectorMetrics
from localvolume.flexvolume.paces import FlexPaces
from localvolume.flexvolume.role import FlexRole
from localvolume.flexvolume.telemetry import FlexTelemetry
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS
from localvolume.volumes import marks


def begin(
    shared: Shared,
    tasks: asyncio.TaskGroup,
    configuration: Configuration,
) -> FlexRole:
    """Make the role and start its informer.

    The caller runs the role, and wakes it up when volumes, the Node or mounts change.
    """
    role: FlexRole | None = None

    def changed(*_: object) -> None:
        if role is not None:
            role.changed()

    own = f"{marks.NODE_LABEL}={marks.node_key(shared.node_name)}"
    claims = Informer(shared.client, CLAIMS, label_selector=own, on_change=changed)
    role = FlexRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        telemetry=FlexTelemetry(shared.registry),
        collector_metrics=CollectorMetrics(shared.registry),
        volumes=shared.volumes,
        claims=claims,
        nodes=shared.nodes,
        node_name=shared.node_name,
        configuration=configuration,
        paces=shared.paces.flexvolume or FlexPaces(),
    )
    tasks.create_task(claims.run())
    return role
