"""The keys of one entry of `pools`: where volumes are made for claims, and how."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from yaml.nodes import Node, ScalarNode

from localvolume.config.directories import directory
from localvolume.config.lvmkeys import LVM_KEYS, lvm_config
from localvolume.config.model import ClassConfig
from localvolume.config.pools import LEAST_INLINE_BYTES, InlineConfig, PoolConfig, overlaps
from localvolume.config.provisioner import CSI_DRIVER, DYNAMIC_PROVISIONER
from localvolume.config.syntax import document, names
from localvolume.config.syntax.keytable import Key, Read, read_keys
from localvolume.config.syntax.readers import (
    Place,
    boolean,
    duration,
    entries,
    list_of,
    one_of,
    quoted,
    text,
    whole_number,
)
from localvolume.config.syntax.resources import whole_bytes

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_DECIMAL: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,6})?")
_BYTES: Final = whole_bytes("10Gi")
_MOST_PROMISED: Final = 100.0
_MOST_FILES: Final = 10_000_000
_PROVISIONERS: Final = f"{DYNAMIC_PROVISIONER} and {CSI_DRIVER}"


def _class_name(node: Node, place: Place) -> str | None:
    name = text(node, place)
    if name is not None and (fault := names.fault_of_object_name(name)):
        place.problem(f"{quoted(name)} is no name of a StorageClass: it {fault}")
        return None
    return name


def _classes(node: Node, place: Place) -> tuple[str, ...] | None:
    before = len(place.problems)
    found = list_of(_class_name)(node, place)
    if len(place.problems) > before or found is None:
        return None
    if not found:
        place.problem(f"names no class: leave it out for every class of {_PROVISIONERS}")
        return None
    for name in sorted({name for name in found if found.count(name) > 1}):
        place.problem(f"names {name} twice")
    return found


def _overbook(node: Node, place: Place) -> float | None:
    if isinstance(node, ScalarNode) and node.tag in (document.INTEGER, document.FLOAT):
        value = str(node.value)
        if _DECIMAL.fullmatch(value) and 1 <= Fraction(value) <= _MOST_PROMISED:
            return float(value)
    given = quoted(node.value) if isinstance(node, ScalarNode) else "a list or mapping"
    place.problem(f"must be a number from 1 to {_MOST_PROMISED:g}, not {given}")
    return None


INLINE_KEYS: Final = (
    Key("largest", "largest_bytes", whole_bytes("1Gi", 1), "quantity", "required",
        "how large one such volume may be, at least 16Mi"),
    Key("total", "total_bytes", whole_bytes("20Gi", 1), "quantity", "required",
        "how much all of them together may take of the pool on one node"),
)  # fmt: skip


def _inline(node: Node, place: Place) -> InlineConfig | None:
    before = len(place.problems)
    read = read_keys(node, place, INLINE_KEYS)
    if len(place.problems) > before and not read.given:
        return None
    for key in INLINE_KEYS:
        if key.field not in read.given:
            place.at(key.name).problem(
                "is missing: anybody who may create pods takes of the pool what this allows"
            )
    if len(place.problems) > before:
        return None
    found = InlineConfig(**read.values)
    if found.largest_bytes < LEAST_INLINE_BYTES:
        place.at("largest").problem("is less than 16Mi, which the smallest such volume has")
        return None
    if found.largest_bytes > found.total_bytes:
        place.at("largest").problem("is more than total: no volume could have it")
        return None
    return found


KEYS: Final = (
    Key("hostDir", "host_dir", directory, "absolute path", "required, except for backend lvm",
        "the directory on the host in which volumes are made; it belongs to the pool alone"),
    Key("mountDir", "mount_dir", directory, "absolute path", "hostDir",
        "where the agent sees hostDir"),
    Key("classes", "classes", _classes, "list of StorageClass names",
        f"every class of {_PROVISIONERS}", "the StorageClasses whose volumes are made here"),
    Key("backend", "backend", one_of("directory", "btrfs", "image", "lvm"),
        "directory, btrfs, image or lvm", "directory",
        "what a volume is: a directory, a btrfs subvolume, a file with a filesystem of its own, or "
        "a logical volume"),
    Key("enforce", "enforce", one_of("quota", "none"), "quota or none", "quota",
        "whether a volume's size is enforced; only directories can do without"),
    Key("image", "sparse", one_of("preallocated", "sparse"),
        "preallocated or sparse", "preallocated",
        "whether an image takes its whole room at once; a sparse one breaks when the host is full"),
    Key("reserve", "reserve_bytes", _BYTES, "quantity", "0",
        "how much of the filesystem or volume group is never promised to volumes"),
    Key("overbook", "overbook", _overbook, "number of at least 1", "1",
        "how many times the room may be promised"),
    Key("mustBeMounted", "must_be_mounted", boolean, "true or false", "true",
        "whether hostDir must be on a filesystem of its own, not the one of the root directory"),
    Key("undoPeriod", "undo_seconds", duration(0.0), "duration", "0s",
        "how long a removed volume can be brought back, unless its class says otherwise"),
    Key("purgeFilesPerSecond", "purge_files_per_second", whole_number(1, _MOST_FILES),
        "whole number", "as fast as possible",
        "how many files of removed volumes are deleted per second"),
    Key("inline", "inline", _inline, "mapping", "none",
        "lets pods have volumes of their own specs here, of these sizes; without it they may not"),
    *LVM_KEYS,
)  # fmt: skip


def pools(node: Node, place: Place) -> tuple[PoolConfig, ...] | None:
    """A reader of `pools`."""
    found: list[tuple[PoolConfig, Place]] = []
    for name, value, where in entries(node, place):
        if not _NAME.fullmatch(name):
            where.problem(
                f"{quoted(name)} is no name of a pool: it must be at most 63 lower case letters, "
                "digits and '-', beginning and ending with a letter or digit"
            )
        pool = _pool(name, value, where)
        if pool is not None:
            found.append((pool, where))
    for (one, _), (two, where) in itertools.combinations(found, 2):
        for key, ours, theirs in (
            ("hostDir", two.host_dir, one.host_dir),
            ("mountDir", two.mount_dir, one.mount_dir),
        ):
            if how := overlaps(ours, theirs):
                where.at(key).problem(f"{ours} {how} {theirs}, the {key} of pool {one.name}")
        if one.lvm and two.lvm and one.lvm.place and one.lvm.place == two.lvm.place:
            key = "thinPool" if two.lvm.thin_pool else "volumeGroup"
            where.at(key).problem(f"{two.lvm.place} is pool {one.name}'s")
    return tuple(pool for pool, _ in found)


def faults(pools: Iterable[PoolConfig], classes: Mapping[str, ClassConfig]) -> Iterator[str]:
    """Why these pools conflict with these classes."""
    for pool in pools:
        for name, one in classes.items():
            for key, ours, theirs in (
                ("hostDir", pool.host_dir, one.host_dir),
                ("mountDir", pool.mount_dir, one.mount_dir),
            ):
                if how := overlaps(ours, theirs):
                    yield (
                        f"{key} of pool {pool.name}, {ours}, {how} {theirs}, the {key} of class "
                        f"{name}: a class offers, and cleans, what lies in its directory"
                    )


# The keys that only pools with directories have, and those that only pools of logical volumes have.
_OF_DIRECTORIES: Final = {
    "host_dir": "hostDir",
    "mount_dir": "mountDir",
    "enforce": "enforce",
    "sparse": "image",
    "must_be_mounted": "mustBeMounted",
    "purge_files_per_second": "purgeFilesPerSecond",
}
_OF_LVM: Final = {key.field: key.name for key in LVM_KEYS}


def _pool(name: str, node: Node, place: Place) -> PoolConfig | None:
    read = read_keys(node, place, KEYS)
    backend = read.values.get("backend", None if "backend" in read.given else "directory")
    if backend == "lvm":
        return _of_logical_volumes(name, read, place)
    if backend is not None:
        for field in sorted(_OF_LVM.keys() & read.given):
            place.at(_OF_LVM[field]).problem(f"is for backend lvm; this one is {backend}")
    values = {key: value for key, value in read.values.items() if key not in _OF_LVM}
    return _of_directories(name, read, values, backend, place)


def _of_logical_volumes(name: str, read: Read, place: Place) -> PoolConfig | None:
    for field in sorted(_OF_DIRECTORIES.keys() & read.given):
        place.at(_OF_DIRECTORIES[field]).problem("is not for backend lvm: leave it out")
    lvm = lvm_config(read.values, read.given, place)
    if lvm is None:
        return None
    common = {
        field: read.values[field]
        for field in ("classes", "reserve_bytes", "overbook", "undo_seconds", "inline")
        if field in read.values
    }
    return PoolConfig(
        name=name,
        host_dir="",
        mount_dir="",
        provisioner=DYNAMIC_PROVISIONER,
        backend="lvm",
        lvm=lvm,
        **common,
    )


def _of_directories(
    name: str, read: Read, given: Mapping[str, Any], backend: str | None, place: Place
) -> PoolConfig | None:
    values = dict(given)
    if "host_dir" not in read.given:
        place.at("hostDir").problem("is missing: a pool needs the directory to make volumes in")
    enforce = values.pop("enforce", "quota")
    sparse = values.pop("sparse", None)
    if enforce == "none" and backend in ("btrfs", "image"):
        place.at("enforce").problem(f"backend {backend} always enforces sizes; leave it out")
    if enforce == "none" and "inline" in read.given:
        place.at("inline").problem("needs enforce: quota: what pods take here has to be limited")
    if sparse is not None and backend in ("directory", "btrfs"):
        place.at("image").problem(f"is for backend image; there are none in backend {backend}")
    if backend == "image" and sparse != "sparse" and values.get("overbook", 1.0) > 1:
        place.at("overbook").problem(
            "promises room that preallocated images take at once; it needs image: sparse"
        )
    if "host_dir" not in values or ("mount_dir" in read.given and "mount_dir" not in values):
        return None
    values.setdefault("mount_dir", values["host_dir"])
    files = values.pop("purge_files_per_second", None)
    return PoolConfig(
        name=name,
        provisioner=DYNAMIC_PROVISIONER,
        enforce=enforce == "quota",
        sparse=sparse == "sparse",
        purge_files_per_second=None if files is None else float(files),
        **values,
    )
