"""A node in the shape of `status`: its agent, the classes of its volumes, its pools: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from localvolume.cli.seeing.facts import NO_PROVISIONER, Facts
from localvolume.cli.seeing.said import event_shape
from localvolume.cli.seeing.status import pools
from localvolume.cli.seeing.status.disks import disks_of
from localvolume.cli.seeing.status.states import STATES, agent_of, state_of
from localvolume.controller.plan.capacity import SHUT
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.capacity import bytes_of

Shape = dict[str, Any]


def node_shape(facts: Facts, name: str, own: Sequence[PersistentVolume]) -> Shape:
    """One node, as `status` shows it; `own` are its volumes."""
    node = (facts.nodes or {}).get(name)
    agent = agent_of(facts, name)
    events = facts.events_of_node(name)
    told = disks_of(facts, name)
    taints = [] if node is None else [one.key for one in node.spec.taints]
    return {
        "name": name,
        "exists": None if facts.nodes is None else node is not None,
        "ready": None if facts.nodes is None else node is not None and not _is_shut(taints),
        "unschedulable": None if node is None else bool(node.spec.unschedulable),
        "taints": None if facts.nodes is None else taints,
        "agent": {"state": agent.state, "reason": agent.why, "pod": agent.pod},
        "lastEvent": event_shape(events[0]) if events else None,
        "classes": None if facts.volumes is None else _classes(facts, own),
        "rooms": _capacities(facts, name),
        "pools": None if facts.volumes is None else pools.pools_of(facts, name, own),
        "disks": told.disks,
        "disksLeftOut": told.more,
        "lastDiskEvent": event_shape(said) if (said := pools.last_of_disks(facts, name)) else None,
    }


def _is_shut(taints: Sequence[str]) -> bool:
    return any(key in SHUT for key in taints)


def _classes(facts: Facts, volumes: Sequence[PersistentVolume]) -> list[Shape]:
    by_class: dict[str, list[PersistentVolume]] = {}
    for volume in volumes:
        by_class.setdefault(volume.spec.storage_class_name, []).append(volume)
    found = []
    for name, group in sorted(by_class.items()):
        states = Counter(state_of(facts, one).word for one in group)
        class_ = (facts.classes or {}).get(name)
        found.append(
            {
                "name": name,
                "exists": None if facts.classes is None else class_ is not None,
                "prepared": None if class_ is None else class_.provisioner == NO_PROVISIONER,
                "volumes": {word: states[word] for word in STATES if states[word]},
                "capacityBytes": bytes_in(group),
                "availableBytes": bytes_in(
                    [one for one in group if state_of(facts, one).word == "available"]
                ),
            }
        )
    return found


def _capacities(facts: Facts, node: str) -> list[Shape] | None:
    if facts.capacities is None:
        return None
    return [
        {
            "class": thing.storage_class_name,
            "roomBytes": bytes_of(thing.capacity or ""),
            "largestBytes": bytes_of(thing.maximum_volume_size or ""),
        }
        for thing in facts.capacities_by_node.get(marks.node_key(node), ())
    ]


def bytes_in(volumes: Sequence[PersistentVolume]) -> int:
    """What they have in all; those whose size cannot be read count as nothing."""
    return sum(bytes_of(one.spec.capacity.get("storage", "")) or 0 for one in volumes)
