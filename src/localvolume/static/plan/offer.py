"""The PersistentVolume that a Publish would create: the same for the agent and for `plan`."""

from __future__ import annotations

from typing import Any

from localvolume.static.model import ClassFacts, Entry
from localvolume.volumes.manifest import (
    NodeFacts,
    PublishingOptions,
    VolumeDescription,
    persistent_volume,
)
from localvolume.volumes.record import Record


def offer(
    name: str,
    entry: Entry,
    class_facts: ClassFacts,
    node: NodeFacts,
    options: PublishingOptions,
    record: Record | None = None,
) -> dict[str, Any]:
    """The object for this entry under this name (Kubernetes API, core/v1 PersistentVolume).

    `record` is the volume's. It is written when the volume is offered: a plan has none.
    """
    config = class_facts.config
    volume = VolumeDescription(
        name=name,
        host_path=entry.host_path,
        class_name=entry.class_name,
        volume_mode=config.volume_mode,
        size_bytes=entry.size_bytes,
        identity=entry.identity,
        reclaim_policy=class_facts.reclaim_policy,
        generation=record.generation if record else "",
        cleaned=record.cleaned if record else "",
        access_mode=config.access_mode,
        fs_type=config.fs_type,
        mount_options=class_facts.mount_options,
        selector=config.selector,
    )
    return persistent_volume(volume, node, options)
