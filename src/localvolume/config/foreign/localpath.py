"""local-path's ConfigMap: `config.json`, and beside it `setup`, `teardown` and `helperPod.yaml`.

Its paths become pools. What it would run as root on the nodes is refused, unless it is just what is
done here anyway. Unknown keys, which upstream passes over, are problems.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from yaml.nodes import Node

from localvolume.config import loading
from localvolume.config.environment import LOCAL_PATH_PROVISIONER
from localvolume.config.foreign import localscripts
from localvolume.config.foreign.nodepaths import (
    OTHER_NODES,
    PLACES,
    NodePaths,
    check_overlaps,
    paths_of,
    read_paths,
)
from localvolume.config.loading import Source
from localvolume.config.model import ConfigurationInvalid, Problem
from localvolume.config.pools import PoolConfig, name_of
from localvolume.config.syntax import document, jsontext, names
from localvolume.config.syntax.readers import (
    Place,
    did_you_mean,
    entries,
    keys,
    quoted,
    text,
    whole_number,
)

CONFIG: Final = "config.json"
FILES: Final = (CONFIG, "setup", "teardown", "helperPod.yaml")
KEYS: Final = (
    *PLACES,
    "storageClassConfigs",
    "setupCommand",
    "teardownCommand",
    "cmdTimeoutSeconds",
)
"""What config.json may say."""

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
    """The pools of one node (of all nodes, where none is named) and what must be said of it.

    `refusals` say why classes have no pool here, by the class's name; under "" for every class that
    is not named.
    """

    pools: tuple[PoolConfig, ...] = ()
    refusals: Mapping[str, str]
    warnings: tuple[Problem, ...] = ()

    def refusal(self, class_name: str) -> str:
        """Why no volume of that class is made on this node, "" where some may be."""
        if class_name in self.refusals:
            return self.refusals[class_name]
        if any(not pool.classes or class_name in pool.classes for pool in self.pools):
            return ""
        return self.refusals.get("", "")


def load(
    path: str, node_name: str | None, provisioner_name: str = LOCAL_PATH_PROVISIONER
) -> LocalPath:
    """Read a mounted ConfigMap, or only its config.json where `path` is a file.

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
    """The same of files that were read already; `problems` are those met thereby."""
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
    """The paths by class and node; under the class "" those of every class."""
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
