"""The role that tells how all volumes are, whichever other role they belong to."""

from __future__ import annotations

from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.health.role import HealthRole
from localvolume.health.telemetry import HealthTelemetry


def begin(shared: Shared, configuration: Configuration) -> HealthRole:
    """Make the role. The caller runs it."""
    role = HealthRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        telemetry=HealthTelemetry(shared.registry, claims=shared.options.claims_in_metrics),
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
