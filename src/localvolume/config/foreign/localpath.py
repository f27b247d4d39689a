"""local-path's ConfigMap: `config.json`, and beside it `setup`, `teardown` and `helperPod.yaml`.

Its paths become pools. Scripts that it would run as root on the nodes are refused, unless they do
only what is done here anyway. Unknown keys, which upstream ignores, are problems.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from yaml.nodes import Node, ScalarNode

from localvolume.config import loading
from localvolume.config.directories import directory
from localvolume.config.flags.agent import LOCAL_PATH_PROVISIONER
from localvolume.config.foreign import localscripts
from localvolume.config.loading import Source
from localvolume.config.model import ConfigurationInvalid, Problem
from localvolume.config.pools import PoolConfig, name_of, overlaps
from localvolume.config.syntax import document, jsontext, names
from localvolume.config.syntax.readers import (
    Place,
    did_you_mean,
    entries,
    items,
    keys,
    list_of,
    quoted,
    text,
    whole_number,
)

OTHER_NODES: Final = "DEFAULT_PATH_FOR_NON_LISTED_NODES"
PLACES: Final = ("nodePathMap", "sharedFileSystemPath")

_SHARED: Final = (
    "is not served: a filesystem that all nodes share is no local volume, and a PersistentVolume "
    "without a node would be a promise that no node keeps; use a provisioner for shared filesystems"
)

NodePaths = Mapping[str, tuple[str, ...]]


def read_paths(given: Mapping[str, tuple[Node, Place]], place: Place, *, needed: bool) -> NodePaths:
    """The cleaned paths of nodePathMap by node; empty if it is wrong or missing."""
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
    """Refuse nested directories on the same node: the outer one would hold the inner's volumes."""
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


CONFIG: Final = "config.json"
FILES: Final = (CONFIG, "setup", "teardown", "helperPod.yaml")
KEYS: Final = (
    *PLACES,
    "storageClassConfigs",
    "setupCommand",
    "teardownCommand",
    "cmdTimeoutSeconds",
)
"""The keys that config.json may have."""

_TRIES: Final = 5
_ROOT: Final = "is not run: nothing that a configuration brings is run as root on the nodes. "
_NATIVE: Final = {
    "setup": "Volumes are made without it; mode and owner are class parameters (permPattern, "
    "userPattern, groupPattern), and a size is enforced with enforce: quota",
    "teardown": "Volumes are removed without it; a class has them overwritten first with "
    "onRemoval: overwrite",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPath:
    """The pools of one node (of all nodes, if none is named), with refusals and warnings.

    `refusals` say why classes have no pool here, by the class's name; "" stands for every class
    that is not named.
    """

    pools: tuple[PoolConfig, ...] = ()
    refusals: Mapping[str, str]
    warnings: tuple[Problem, ...] = ()

    def refusal(self, class_name: str) -> str:
        """Why no volume of that class is made on this node, "" if some may be."""
        if class_name in self.refusals:
            return self.refusals[class_name]
        if any(not pool.classes or class_name in pool.classes for pool in self.pools):
            return ""
        return self.refusals.get("", "")


def load(
    path: str, node_name: str | None, provisioner_name: str = LOCAL_PATH_PROVISIONER
) -> LocalPath:
    """Read a mounted ConfigMap, or only its config.json if `path` is a file.

    Raises ConfigurationInvalid with every problem.
    """
    for _ in range(_TRIES):
        if not os.path.isdir(path):
            content = loading.read_file(path)
            if isinstance(content, str):
                return read([Source(path, CONFIG, content)], node_name, provisioner_name)
            raise ConfigurationInvalid([Problem(path, "", content[0])])
        before = loading.generation(path)
        sources, problems = loading.read_directory(path)
        if before == loading.generation(path):
            return read(sources, node_name, provisioner_name, problems)
    raise ConfigurationInvalid([Problem(path, "", "changes faster than it can be read")])


def read(
    sources: Sequence[Source],
    node_name: str | None,
    provisioner_name: str = LOCAL_PATH_PROVISIONER,
    problems: Iterable[Problem] = (),
) -> LocalPath:
    """The same for files that were read already; `problems` are those found while reading them."""
    found, warnings = list(problems), list[Problem]()
    by_class: dict[str, NodePaths] = {}
    seen = False
    for source in sources:
        place = Place(source.file, "", found, warnings)
        if source.key == CONFIG:
            seen = True
            try:
                node = jsontext.compose(source.text)
            except document.Unreadable as error:
                place.problem(str(error))
            else:
                by_class = _config(node, place)
        elif source.key in ("setup", "teardown"):
            _script(source, place)
        elif source.key == "helperPod.yaml":
            place.warning("is not used: volumes are made and removed without helper pods")
        else:
            place.problem(f"is none of local-path's files{did_you_mean(source.key, FILES)}")
    if not seen:
        found.append(Problem("", CONFIG, "is missing: it says where volumes are made"))
    if found:
        raise ConfigurationInvalid(sorted(found), sorted(warnings))
    return _for_node(by_class, node_name, provisioner_name, tuple(sorted(warnings)))


def _config(node: Node, place: Place) -> dict[str, NodePaths]:
    """The paths by class and node; the class "" stands for every class."""
    given = keys(node, place, KEYS)
    for key, script in (("setupCommand", "setup"), ("teardownCommand", "teardown")):
        if key in given and text(*given[key]):
            given[key][1].problem(_ROOT + _NATIVE[script])
    if "cmdTimeoutSeconds" in given:
        value, where = given["cmdTimeoutSeconds"]
        if whole_number(0, 10**8)(value, where) is not None:
            where.warning("means nothing: there are no helper pods to wait for")
    by_class: dict[str, NodePaths] = {}
    if "storageClassConfigs" in given:
        for name, value, where in entries(*given["storageClassConfigs"]):
            if fault := names.fault_of_object_name(name):
                where.problem(f"{quoted(name)} is no name of a StorageClass: it {fault}")
            by_class[name] = read_paths(keys(value, where, PLACES), where, needed=True)
    top = read_paths(given, place, needed=not by_class)
    if by_class and top:
        place.at("nodePathMap").warning("is not used, since storageClassConfigs is given")
    by_class = by_class or {"": top}
    check_overlaps(by_class, place)
    return by_class


def _for_node(
    by_class: Mapping[str, NodePaths],
    node_name: str | None,
    provisioner: str,
    warnings: tuple[Problem, ...],
) -> LocalPath:
    classes_at: dict[str, list[str]] = {}
    refusals: dict[str, str] = {}
    for class_name, nodes in by_class.items():
        if node_name is None:
            paths: Collection[str] | None = {path: None for one in nodes.values() for path in one}
        else:
            paths = paths_of(nodes, node_name)
        for path in paths or ():
            classes_at.setdefault(path, []).append(class_name)
        if paths is None:
            refusals[class_name] = (
                f"local-path's configuration names neither node {node_name} nor {OTHER_NODES}"
            )
        elif not paths:
            refusals[class_name] = (
                f"local-path's configuration has no path for node {node_name or OTHER_NODES}"
            )
    if "" not in by_class:
        refusals[""] = "local-path's storageClassConfigs does not name the class"
    pools = tuple(
        PoolConfig(
            name=name_of("local-path", path),
            host_dir=path,
            mount_dir=path,
            provisioner=provisioner,
            flavor="local-path",
            classes=() if "" in classes else tuple(classes),
            enforce=False,
            must_be_mounted=False,
        )
        for path, classes in classes_at.items()
    )
    return LocalPath(pools=pools, refusals=refusals, warnings=warnings)


def _script(source: Source, place: Place) -> None:
    key = "setup" if source.key == "setup" else "teardown"
    match localscripts.judge(source.text, key):  # type: ignore[arg-type]
        case "closes parent":
            place.warning(
                "closes the directory above each volume to all but root, which is not done here: "
                "chmod 700 it once on the hosts"
            )
        case "other":
            place.problem(_ROOT + _NATIVE[key])
