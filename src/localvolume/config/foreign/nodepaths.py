"""local-path's `nodePathMap`: which directories volumes are made in, by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from yaml.nodes import Node, ScalarNode

from localvolume.config.directories import directory
from localvolume.config.pools import overlaps
from localvolume.config.syntax import document, names
from localvolume.config.syntax.readers import (
    Place,
    did_you_mean,
    items,
    keys,
    list_of,
    quoted,
    text,
)

OTHER_NODES: Final = "DEFAULT_PATH_FOR_NON_LISTED_NODES"
PLACES: Final = ("nodePathMap", "sharedFileSystemPath")

_SHARED: Final = (
    "is not served: a filesystem that all nodes share is no local volume, and a PersistentVolume "
    "without a node would be a promise that no node keeps; use a provisioner for shared filesystems"
)

NodePaths = Mapping[str, tuple[str, ...]]


def read_paths(given: Mapping[str, tuple[Node, Place]], place: Place, *, needed: bool) -> NodePaths:
    """What nodePathMap says, cleaned; empty where it is wrong or not there."""
    shared = "sharedFileSystemPath" in given and bool(text(*given["sharedFileSystemPath"]))
    nodes: dict[str, tuple[str, ...]] = {}
    if "nodePathMap" in given:
        for item, where in items(*given["nodePathMap"]):
            entry = keys(item, where, ("node", "paths"))
            name = text(*entry["node"]) if "node" in entry else None
            paths = _list_of_paths(*entry["paths"]) if "paths" in entry else ()
            if not name:
                where.at("node").problem(
                    "is missing: it names a node" if name is None else "is empty"
                )
            elif name in nodes:
                where.at("node").problem(f"names {quoted(name)} a second time")
            elif name != OTHER_NODES and (fault := names.fault_of_object_name(name)):
                hint = did_you_mean(name, (OTHER_NODES,))
                where.at("node").problem(f"{quoted(name)} is no name of a node: it {fault}{hint}")
            else:
                nodes[name] = paths
    if shared:
        where = given["sharedFileSystemPath"][1]
        where.problem(_SHARED)
        if nodes:
            where.problem("and nodePathMap exclude each other")
    elif needed and not nodes and not any(one.file == place.file for one in place.problems):
        place.at("nodePathMap").problem("is missing: it says where volumes are made")
    return nodes


def _list_of_paths(node: Node, place: Place) -> tuple[str, ...]:
    found: dict[str, None] = {}

    def one(item: Node, where: Place) -> str | None:
        if isinstance(item, ScalarNode) and item.tag == document.STRING and not item.value:
            where.problem("is empty: it must be an absolute path")
            return None
        path = directory(item, where)
        if path in found:
            where.problem(f"gives {path} a second time")
        elif path is not None:
            found[path] = None
        return path

    list_of(one)(node, place)
    return tuple(found)


def check_overlaps(by_class: Mapping[str, NodePaths], place: Place) -> None:
    """One directory inside another of the same node would hold, and lose, its volumes."""
    nodes = dict.fromkeys(name for paths in by_class.values() for name in paths)
    told: set[str] = set()
    for node in nodes:
        paths = sorted({path for one in by_class.values() for path in paths_of(one, node) or ()})
        for at, outer in enumerate(paths):
            for inner in paths[at + 1 :]:
                if overlaps(inner, outer):
                    told.add(
                        f"{inner} lies inside {outer} on the same node: they cannot both be paths"
                    )
    for reason in sorted(told):
        place.problem(reason)


def paths_of(nodes: NodePaths, node_name: str) -> tuple[str, ...] | None:
    return nodes.get(node_name, nodes.get(OTHER_NODES))
