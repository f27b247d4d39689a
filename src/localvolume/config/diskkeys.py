"""The key `disks`: the filters that choose raw disks, and the plans that were approved.

A filter names a class, so `resolve` completes it once the classes are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from yaml.nodes import Node

from localvolume.config.disks import TRANSPORTS, DiskFilter, DiskMatch, DisksConfig
from localvolume.config.mkfsoptions import mkfs_options
from localvolume.config.model import ClassConfig
from localvolume.config.syntax import globs
from localvolume.config.syntax.keytable import Key, read_keys
from localvolume.config.syntax.readers import (
    Place,
    boolean,
    did_you_mean,
    items,
    list_of,
    one_of,
    quoted,
    text,
)
from localvolume.config.syntax.resources import whole_bytes

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SIZE: Final = whole_bytes("10Gi", least=1)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The key as it was read: each filter's class is still a name, and its options still text."""

    config: DisksConfig
    given: Mapping[str, frozenset[str]]
    """The fields that each filter gives, by the filter's name."""
    options: Mapping[str, str]


def _pattern(node: Node, place: Place) -> str | None:
    pattern = text(node, place)
    if pattern is None:
        return None
    if not pattern:
        place.problem("must not be empty: leave it out to mean any")
        return None
    try:
        globs.check(pattern)
    except globs.BadPattern as error:
        place.problem(f"is no pattern: {error}")
        return None
    return pattern


def _name(node: Node, place: Place) -> str | None:
    name = text(node, place)
    if name is not None and not _NAME.fullmatch(name):
        place.problem(f"must be lower case letters, digits and -, at most 63, not {quoted(name)}")
        return None
    return name


def _approved(node: Node, place: Place) -> str | None:
    digest = text(node, place)
    if digest is not None and not _DIGEST.fullmatch(digest):
        place.problem(
            f"must be a digest that localvolume plan printed, sha256: and 64 digits, "
            f"not {quoted(digest)}"
        )
        return None
    return digest


MATCH_KEYS: Final = (
    Key("minSize", "min_bytes", _SIZE, "quantity", "1Gi", "disks of at least this size"),
    Key("maxSize", "max_bytes", _SIZE, "quantity", "none", "disks of at most this size"),
    Key("model", "model", _pattern, "pattern", "any",
        "disks of this model, as localvolume plan prints it"),
    Key("vendor", "vendor", _pattern, "pattern", "any", "disks of this vendor"),
    Key("rotational", "rotational", boolean, "true or false", "both",
        "true: disks that rotate; false: those that do not"),
    Key("transport", "transport", one_of(*TRANSPORTS), " or ".join(TRANSPORTS),
        "sata, sas, scsi, nvme, virtio or xen", "how the disk is attached"),
    Key("byId", "by_id", _pattern, "pattern", "any",
        "disks with a link of such a name in /dev/disk/by-id"),
    Key("partitions", "partitions", boolean, "true or false", "false",
        "partitions instead of whole disks"),
)  # fmt: skip


def _match(node: Node, place: Place) -> DiskMatch | None:
    before = len(place.problems)
    read = read_keys(node, place, MATCH_KEYS)
    if len(place.problems) > before:
        return None
    match = DiskMatch(**read.values)
    if not match.given().keys() - {"partitions"}:
        place.problem("means every disk: say which by size, model, vendor, transport or the like")
        return None
    if match.min_bytes and match.max_bytes and match.min_bytes > match.max_bytes:
        place.problem("means no disk: minSize is larger than maxSize")
        return None
    return match


FILTER_KEYS: Final = (
    Key("name", "name", _name, "name", "required", "what the filter is called in plans and Events"),
    Key("class", "class_name", text, "a class of storageClassMap", "required",
        "the class whose volumes the disks become"),
    Key("match", "match", _match, "mapping", "required", "which disks match"),
    Key("fsType", "fs_type", one_of("ext4", "xfs"), "ext4 or xfs", "ext4",
        "the filesystem that is made; none for a class of volumeMode Block"),
    Key("mkfsOptions", "mkfs_options", text, "options of mkfs", '""',
        "further options for mkfs, of those that FlexVolume's classes may have"),
)  # fmt: skip


def _filters(node: Node, place: Place) -> Unresolved | None:
    found: dict[str, DiskFilter] = {}
    given: dict[str, frozenset[str]] = {}
    options: dict[str, str] = {}
    for item, where in items(node, place):
        read = read_keys(item, where, FILTER_KEYS)
        missing = [key for key in FILTER_KEYS[:3] if key.field not in read.given]
        for key in missing:
            where.at(key.name).problem("is missing: a filter needs name, class and match")
        values: dict[str, Any] = dict(read.values)
        if not {"name", "class_name", "match"} <= values.keys():
            continue
        name = values["name"]
        if name in found:
            where.at("name").problem(f"{name} is the name of another filter as well")
            continue
        options[name] = values.pop("mkfs_options", "")
        given[name] = read.given
        found[name] = DiskFilter(host_dir="", mount_dir="", **values)
    return Unresolved(DisksConfig(filters=tuple(found.values())), given, options)


KEYS: Final = (
    Key("filters", "filters", _filters, "list", "[]", "which raw disks may become volumes"),
    Key("approved", "approved", list_of(_approved), "list of digests", "[]",
        "the digests of the plans that may be carried out, one for each node's plan"),
)  # fmt: skip


def disks(node: Node, place: Place) -> Unresolved | None:
    """A reader of `disks`, still to be resolved; None if it cannot be used."""
    before = len(place.problems)
    read = read_keys(node, place, KEYS)
    if len(place.problems) > before:
        return None
    unresolved: Unresolved = read.values.get("filters") or Unresolved(DisksConfig(), {}, {})
    approved = frozenset(read.values.get("approved", ()))
    return replace(unresolved, config=replace(unresolved.config, approved=approved))


def resolve(
    unresolved: Unresolved, classes: Mapping[str, ClassConfig]
) -> tuple[DisksConfig, list[tuple[str, str]]]:
    """The filters with their classes, and what is wrong with them: each a key and a reason."""
    faults: list[tuple[str, str]] = []
    resolved: list[DiskFilter] = []
    for one in unresolved.config.filters:
        before = len(faults)
        note = _noting(faults, f"disks.filters.{one.name}")
        cls = classes.get(one.class_name)
        if cls is None:
            hint = did_you_mean(one.class_name, classes)
            note("class", f"{quoted(one.class_name)} is no class of storageClassMap{hint}")
            continue
        fs_type = "" if cls.volume_mode == "Block" else one.fs_type
        given = unresolved.given[one.name]
        if not fs_type:
            for key, field in (("fsType", "fs_type"), ("mkfsOptions", "mkfs_options")):
                if field in given:
                    note(key, f"is for a class of volumeMode Filesystem: {cls.name} is of Block")
        words: tuple[str, ...] = ()
        if fs_type and unresolved.options[one.name]:
            try:
                words = mkfs_options(fs_type, unresolved.options[one.name])
            except ValueError as error:
                note("mkfsOptions", str(error))
        if len(faults) == before:
            resolved.append(
                replace(
                    one,
                    host_dir=cls.host_dir,
                    mount_dir=cls.mount_dir,
                    fs_type=fs_type,
                    mkfs_options=words,
                )
            )
    return replace(unresolved.config, filters=tuple(resolved)), faults


def _noting(faults: list[tuple[str, str]], key: str) -> Callable[[str, str], None]:
    return lambda inner, reason: faults.append((f"{key}.{inner}", reason))
