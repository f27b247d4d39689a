"""The role that formats disks: begun once there are filters, and then kept."""

from __future__ import annotations

from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.disks.act import carry_out
from localvolume.disks.role import DisksRole


def begin(shared: Shared, configuration: Configuration) -> DisksRole:
    """Make the role. The caller runs it."""
    options = shared.options
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
    )
    for wake in (shared.wakes.pod, shared.wakes.devices):
        wake.append(role.changed)
    shared.loops["disks"] = role.loop
    return role
