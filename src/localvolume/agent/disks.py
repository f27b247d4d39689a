"""The role that formats disks: begun once there are filters, and then kept."""

from __future__ import annotations

from localvolume.agent.deeds import Deeds
from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.disks.act import carry_out
from localvolume.disks.role import DisksRole


def begin(shared: Shared, configuration: Configuration, deeds: Deeds) -> DisksRole:
    """Make the role. The caller runs it, and wakes it up when block devices change."""
    return DisksRole(
        events=shared.events,
        workers=shared.workers,
        registry=shared.registry,
        volumes=shared.volumes,
        own_pod=shared.own_pod,
        node_name=shared.node_name,
        configuration=configuration,
        recheck_seconds=shared.paces.disks_recheck,
        carry_out=deeds.carry_out or carry_out,
    )
