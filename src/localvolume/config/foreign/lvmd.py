"""TopoLVM's lvmd configuration: its device classes become pools of logical volumes.

The keys and defaults are TopoLVM's (its docs/lvmd.md). A key that TopoLVM ignores is a problem
here, and a key that nothing here needs gets a warning.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from yaml.nodes import Node, ScalarNode

from localvolume.config import loading
from localvolume.config.lvmkeys import (
    MOST_STRIPES,
    check_stripe_size,
    command_prefix,
    group_name,
    options,
)
from localvolume.config.model import ConfigurationInvalid, Problem
from localvolume.config.pools import LvmConfig, PoolConfig
from localvolume.config.provisioner import DYNAMIC_PROVISIONER
from localvolume.config.syntax import document
from localvolume.config.syntax.keytable import Key, read_keys
from localvolume.config.syntax.readers import (
    Place,
    boolean,
    items,
    one_of,
    quoted,
    text,
    whole_number,
)

FILE: Final = "lvmd.yaml"
_GIB: Final = 1 << 30
_SPARE_GIB: Final = 10
_MOST_GIB: Final = 999_999_999
_MOST_RATIO: Final = 1000.0
_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")
_RATIO: Final = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,6})?")
_STRIPE_SIZE: Final = re.compile(r"([0-9]{1,9})([bBsSkKmMgG]?)")
_UNITS: Final = {"b": 1, "s": 512, "": 1 << 10, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Lvmd:
    """The pools, each named after its device class, and the warnings about the file."""

    pools: tuple[PoolConfig, ...]
    warnings: tuple[Problem, ...] = ()


def load(path: str) -> Lvmd:
    """Read the file, or `lvmd.yaml` in the directory `path`. Raises ConfigurationInvalid."""
    if os.path.isdir(path):
        path = os.path.join(path, FILE)
    content = loading.read_file(path)
    if not isinstance(content, str):
        raise ConfigurationInvalid([Problem(path, "", content[0])])
    return read(path, content)


def read(file: str, content: str) -> Lvmd:
    """The same for the file's content. Raises ConfigurationInvalid with every problem."""
    place = Place(file, "")
    try:
        node = document.compose(content)
    except document.Unreadable as error:
        raise ConfigurationInvalid([Problem(file, "", str(error))]) from error
    pools = _pools(document.mapping([]) if node is None else node, place)
    if place.problems:
        raise ConfigurationInvalid(sorted(place.problems), sorted(place.warnings))
    return Lvmd(pools, tuple(sorted(place.warnings)))


def _name(node: Node, place: Place) -> str | None:
    name = text(node, place)
    if name is not None and not _NAME.fullmatch(name):
        place.problem(
            f"{quoted(name)} must be at most 63 letters, digits, '-', '_' and '.', beginning and "
            "ending with a letter or digit"
        )
        return None
    return name


def _stripe_size(node: Node, place: Place) -> int | None:
    given = text(node, place)
    match = _STRIPE_SIZE.fullmatch(given) if given is not None else None
    if given is not None and match is None:
        place.problem(f"must be a size like 64 (in KiB), 64k or 1m, not {quoted(given)}")
    if match is None:
        return None
    return check_stripe_size(int(match[1]) * _UNITS[match[2].lower()], place)


def _ratio(node: Node, place: Place) -> float | None:
    if isinstance(node, ScalarNode) and node.tag in (document.INTEGER, document.FLOAT):
        value = str(node.value)
        if _RATIO.fullmatch(value) and 1 <= float(value) <= _MOST_RATIO:
            return float(value)
    given = quoted(node.value) if isinstance(node, ScalarNode) else "a list or mapping"
    place.problem(f"must be a number from 1 to {_MOST_RATIO:g}, not {given}")
    return None


_THIN_POOL_KEYS: Final = (
    Key("name", "name", group_name, "name", "required", "the thin pool in the volume group"),
    Key("overprovision-ratio", "ratio", _ratio, "number of at least 1", "1",
        "how many times the pool's size may be promised"),
)  # fmt: skip


def _thin_pool(node: Node, place: Place) -> dict[str, Any] | None:
    read = read_keys(node, place, _THIN_POOL_KEYS)
    if "name" not in read.given:
        place.at("name").problem("is missing: which thin pool is meant?")
    return dict(read.values)


_CLASS_KEYS: Final = (
    Key("name", "name", _name, "name", "required", "the device class, and the pool's name"),
    Key("volume-group", "group", group_name, "name", "required", "the volume group"),
    Key("default", "default", boolean, "true or false", "false",
        "whether StorageClasses that name no device class mean this one"),
    Key("spare-gb", "spare", whole_number(0, _MOST_GIB), "whole number", "10",
        "how many GiB are never promised"),
    Key("stripe", "stripes", whole_number(1, MOST_STRIPES), "whole number", "LVM's choice",
        "the number of physical volumes over which a thick volume is striped"),
    Key("stripe-size", "stripe_bytes", _stripe_size, "size as lvcreate has it", "LVM's choice",
        "how much is written to one of them before the next"),
    Key("lvcreate-options", "options", options, "list of words", "[]",
        "further options of lvcreate"),
    Key("type", "type", one_of("thick", "thin"), "thick or thin", "thick", "what volumes are"),
    Key("thin-pool", "thin_pool", _thin_pool, "mapping", "none", "where thin volumes are made"),
)  # fmt: skip

_OPTION_CLASS_KEYS: Final = (
    Key("name", "name", _name, "name", "required", "what StorageClasses call it"),
    Key("options", "options", options, "list of words", "[]", "the options of lvcreate"),
)


def _device_classes(node: Node, place: Place) -> list[tuple[PoolConfig, bool]]:
    """The pool of each device class, and whether it is the default."""
    found: list[tuple[PoolConfig, bool, Place]] = []
    for item, where in items(node, place):
        made = _device_class(item, where)
        if made is not None:
            found.append((*made, where))
    for (one, first, _), (two, second, where) in itertools.combinations(found, 2):
        if one.name == two.name:
            where.at("name").problem(f"there are two device classes {one.name}")
        if one.lvm and two.lvm and one.lvm.place == two.lvm.place:
            where.at("volume-group").problem(f"{two.lvm.place} is device class {one.name}'s")
        if first and second:
            where.at("default").problem(f"device class {one.name} is the default already")
    return [(pool, default) for pool, default, _ in found]


def _device_class(node: Node, place: Place) -> tuple[PoolConfig, bool] | None:
    read = read_keys(node, place, _CLASS_KEYS)
    values = dict(read.values)
    for key, field in (("name", "name"), ("volume-group", "group")):
        if field not in read.given:
            place.at(key).problem("is missing: a device class needs name and volume-group")
    thin = values.get("type") == "thin"
    pool = values.get("thin_pool", {})
    if thin and "thin_pool" not in read.given:
        place.at("thin-pool").problem("is missing: type thin needs it")
    elif "thin_pool" in read.given and not thin and values.get("type", "thick") == "thick":
        place.at("thin-pool").problem("is for thin volumes: it needs type: thin")
    for key, field in (("stripe", "stripes"), ("stripe-size", "stripe_bytes")):
        if thin and values.pop(field, None) is not None:
            place.at(key).warning("is not used: a thin pool has its own stripes")
    if not {"name", "group"} <= values.keys() or (thin and "name" not in pool):
        return None
    lvm = LvmConfig(
        group=values["group"],
        thin_pool=pool.get("name", "") if thin else "",
        stripes=values.get("stripes", 0),
        stripe_bytes=values.get("stripe_bytes", 0),
        options=values.get("options", ()),
    )
    made = PoolConfig(
        name=values["name"],
        host_dir="",
        mount_dir="",
        provisioner=DYNAMIC_PROVISIONER,
        backend="lvm",
        lvm=lvm,
        # A thin pool promises more than its size: nothing is reserved unless spare-gb is given.
        reserve_bytes=values.get("spare", 0 if thin else _SPARE_GIB) * _GIB,
        overbook=pool.get("ratio", 1.0) if thin else 1.0,
    )
    return made, bool(values.get("default"))


def _option_classes(node: Node, place: Place) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, tuple[str, ...]] = {}
    for item, where in items(node, place):
        read = read_keys(item, where, _OPTION_CLASS_KEYS)
        name = read.values.get("name", "")
        if "name" not in read.given:
            where.at("name").problem("is missing: StorageClasses ask for it by name")
        elif name in found:
            where.at("name").problem(f"there are two option classes {name}")
        found[name] = read.values.get("options", ())
    return tuple(found.items())


_KEYS: Final = (
    Key("socket-name", "socket", text, "path", "none", "where TopoLVM's lvmd would listen"),
    Key("lvm-command-prefix", "prefix", command_prefix, "list of words", "[]",
        "what goes before every LVM command"),
    Key("device-classes", "classes", _device_classes, "list of mappings", "required",
        "the volume groups and thin pools"),
    Key("lvcreate-option-classes", "options", _option_classes, "list of mappings", "[]",
        "options of lvcreate that a StorageClass may choose"),
)  # fmt: skip


def _pools(node: Node, place: Place) -> tuple[PoolConfig, ...]:
    read = read_keys(node, place, _KEYS)
    if "socket" in read.given:
        place.at("socket-name").warning("is not used: nothing of TopoLVM is asked or served")
    classes: list[tuple[PoolConfig, bool]] = read.values.get("classes", [])
    if not classes and not place.problems:
        place.at("device-classes").problem("names no device class: there is to be one at least")
    has_default = any(default for _, default in classes)
    made = []
    for pool, default in classes:
        assert pool.lvm is not None  # noqa: S101 - they are all made above
        lvm = replace(
            pool.lvm,
            command_prefix=read.values.get("prefix", ()),
            option_classes=read.values.get("options", ()),
            by_name_only=has_default and not default,
        )
        made.append(replace(pool, lvm=lvm))
    return tuple(made)


__all__ = ["FILE", "Lvmd", "load", "read"]
