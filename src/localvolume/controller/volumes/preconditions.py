"""The last look before something is deleted: asks the API server, not a cache.

A watch may be late or silently stuck. So what a decision rests on (the volume, and that none of its
nodes is there) is read once more, and the same rules must still call for the same action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from localvolume.config.syntax.names import fault_of_label_value
from localvolume.controller.caches.trimmed import NODES, VOLUMES, KnownNode, KnownVolume
from localvolume.controller.model import Action
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.volumes import decide
from localvolume.controller.volumes.counting import Counting
from localvolume.kube.client import Client
from localvolume.kube.errors import NotThere
from localvolume.volumes import affinity, marks

Kind = TypeVar("Kind", bound=Action)


class Superseded(Exception):
    """The reason for the action no longer holds: judge again."""


@dataclass(frozen=True, slots=True)
class Look:
    """What an action rests on, as it is now: the volume, and the Nodes that its affinity names."""

    volume: KnownVolume
    nodes: Nodes


async def look(client: Client, action: Action) -> Look | None:
    """Read it all; None if the volume is already gone.

    Raises Superseded if another object has its name, and ApiError if anything cannot be read: that
    must not count as a node that is gone.
    """
    meta = action.volume.metadata
    try:
        volume = await client.get(VOLUMES, meta.name)
    except NotThere:
        return None
    if volume.metadata.uid != meta.uid:
        raise Superseded(f"{meta.name} is another object now")
    return Look(volume, await _nodes(client, volume))


def still(found: Look, action: Kind, counting: Counting) -> Kind:
    """The same kind of action, from what was just read. Raises Superseded if another is due."""
    again = decide(counting.facts(found.nodes, found.volume), found.volume)
    if not isinstance(again, type(action)):
        raise Superseded(f"{action.volume.metadata.name}: {again.reason}")
    return again


async def _nodes(client: Client, volume: KnownVolume) -> Nodes:
    hosts = affinity.hostnames(affinity.required_terms(volume))
    # Our label has the node's name, or a key if no label can hold it: then no Node is found by it.
    own = volume.metadata.labels.get(marks.NODE_LABEL, "")
    names = sorted({*hosts, own} if own else hosts)
    found: list[KnownNode] = []
    for name in names:
        if name in ("", ".", ".."):
            raise Superseded(f"{volume.metadata.name}: {name!r} is no name of a node")
        try:
            found.append(await client.get(NODES, name))
        except NotThere:
            continue
    # A name that is no valid label value is no Node's hostname, and would break the selector.
    values = [name for name in names if fault_of_label_value(name) is None]
    if values:
        selector = f"{marks.HOSTNAME_LABEL} in ({','.join(values)})"
        page = await client.list_page(NODES, label_selector=selector, limit=0)
        found += page.items
    return Nodes(found)
