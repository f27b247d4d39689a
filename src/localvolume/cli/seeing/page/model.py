"""What the page draws: pure, from the shape of `status -o json` to data of printable texts.

Tenants choose names, messages and annotations. Every text is made printable here, so that no
character turns its neighbours round or hides itself, and is cut where it is too long to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from localvolume.cli.rows import printable, shortened
from localvolume.cli.seeing.status.states import BUSY, STATES, WELL

LONGEST: Final = 2000
"""How many characters of one text are shown."""

HEALTHS: Final = ("good", "busy", "bad")


def page_data(status: Mapping[str, Any], whys: Mapping[str, Any]) -> dict[str, Any]:
    """The data of one picture: the shape of the status, with the health of each volume and node.

    `whys` are the explanations that the page has without asking, by what they are about.
    """
    volumes = None if status["volumes"] is None else [_volume(one) for one in status["volumes"]]
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    for volume in volumes or ():
        by_node.setdefault(volume["node"], []).append(volume)
    waiting: dict[str, int] = {}
    for claim in status["claims"] or ():
        waiting[claim["node"]] = waiting.get(claim["node"], 0) + 1
    nodes = [
        {
            **node,
            "health": _health_of_node(node, by_node.get(node["name"], ())),
            "promisedBytes": None if volumes is None else _promised(by_node, node["name"]),
            "claimsWaiting": None if status["claims"] is None else waiting.get(node["name"], 0),
        }
        for node in status["nodes"]
    ]
    found: dict[str, Any] = shown(
        {
            "time": status["time"],
            "unknown": [{"what": what, "reason": why} for what, why in status["unknown"].items()],
            "summary": status["summary"],
            "controller": status["controller"],
            "problems": [{**one, "ask": _asked(one["about"])} for one in status["problems"]],
            "nodes": sorted(nodes, key=lambda one: -HEALTHS.index(one["health"])),
            "volumes": volumes,
            "claims": status["claims"],
            "cleanings": status["cleanings"],
            "states": [{"name": word, "health": health_of(word)} for word in STATES],
        }
    )
    found["whys"] = {printable(about): shown(why) for about, why in whys.items()}
    return found


def health_of(state: str) -> str:
    """One of HEALTHS."""
    if state in WELL:
        return "good"
    return "busy" if state in BUSY else "bad"


def shown(thing: Any) -> Any:
    """The same with every text printable and of bearable length; keys too, as they are words."""
    if isinstance(thing, str):
        cut = shortened(thing, LONGEST)
        return cut if cut.isprintable() else printable(cut)
    if isinstance(thing, Mapping):
        return {shown(key): shown(value) for key, value in thing.items()}
    if isinstance(thing, Sequence):
        return [shown(one) for one in thing]
    return thing


_FIELDS: Final = (
    *("name", "node", "class", "state", "reason", "capacityBytes", "volumeMode", "claim", "pool"),
    *("path", "csi", "created", "deleting"),
)


def _volume(volume: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: volume[key] for key in _FIELDS}, "health": health_of(volume["state"])}


def _promised(by_node: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> int | None:
    """What volumes of the node that a claim has, or had, take; None if a size is not known."""
    sizes = [one["capacityBytes"] for one in by_node.get(name, ()) if one["state"] != "available"]
    return None if None in sizes else sum(sizes)


def _health_of_node(node: Mapping[str, Any], volumes: Sequence[Mapping[str, Any]]) -> str:
    healths = {one["health"] for one in volumes}
    if "bad" in healths or node["exists"] is False or node["agent"]["state"] != "ready":
        return "bad"
    return "busy" if "busy" in healths or not node["ready"] else "good"


def _asked(about: str) -> str:
    """What `why` is asked for this problem, as the page names it; "" if it explains no such."""
    kind, _, name = about.partition("/")
    if kind == "pvc":
        claim, _, namespace = name.partition(" -n ")
        return f"pvc/{namespace}/{claim}"
    return about if kind == "pv" else ""
