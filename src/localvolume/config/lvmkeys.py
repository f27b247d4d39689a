"""The keys of a pool of logical volumes, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from yaml.nodes import Node

from localvolume.config.lvcreateoptions import fault_of_options
from localvolume.config.pools import GROUP_NAME, LvmConfig
from localvolume.config.syntax.keytable import Key
from localvolume.config.syntax.readers import Place, list_of, quoted, text, whole_number
from localvolume.config.syntax.resources import whole_bytes

MOST_STRIPES: Final = 128
_SMALLEST_STRIPE: Final = 4096
_LARGEST_STRIPE: Final = 1 << 30
_LONGEST_PATTERN: Final = 200
# lvm(8), "Tags".
_TAG: Final = re.compile(r"[A-Za-z0-9_+./=!:&#][A-Za-z0-9_+./=!:&#-]{0,1023}")


def group_name(node: Node, place: Place) -> str | None:
    """A reader of the name of a volume group or logical volume."""
    name = text(node, place)
    if name is not None and not GROUP_NAME.fullmatch(name):
        place.problem(f"{quoted(name)} is no name that LVM takes")
        return None
    return name


def _pattern(node: Node, place: Place) -> str | None:
    pattern = text(node, place)
    if pattern is None:
        return None
    if not 0 < len(pattern) <= _LONGEST_PATTERN:
        place.problem(f"must have 1 to {_LONGEST_PATTERN} characters")
        return None
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        place.problem(f"{quoted(pattern)} is no regular expression: {error}")
        return None
    return pattern


def _tag(node: Node, place: Place) -> str | None:
    tag = text(node, place)
    if tag is not None and not _TAG.fullmatch(tag):
        place.problem(f"{quoted(tag)} is no tag that LVM takes")
        return None
    return tag


def check_stripe_size(size: int, place: Place) -> int | None:
    """The size if stripes can have it, else None."""
    if size & (size - 1) or not _SMALLEST_STRIPE <= size <= _LARGEST_STRIPE:
        place.problem(f"stripes must have 4Ki to 1Gi, and a power of two: {size} bytes cannot be")
        return None
    return size


def _stripe_size(node: Node, place: Place) -> int | None:
    size = whole_bytes("64Ki")(node, place)
    return None if size is None else check_stripe_size(size, place)


def options(node: Node, place: Place) -> tuple[str, ...] | None:
    """A reader of further arguments of lvcreate."""
    before = len(place.problems)
    words = list_of(text)(node, place)
    if words is None or len(place.problems) > before:
        return None
    if fault := fault_of_options(words):
        place.problem(fault)
        return None
    return words


def command_prefix(node: Node, place: Place) -> tuple[str, ...] | None:
    """A reader of the words that go before every LVM command."""
    before = len(place.problems)
    words = list_of(text)(node, place)
    if words is None or len(place.problems) > before:
        return None
    for word in words:
        if not word or not word.isprintable():
            place.problem(f"{quoted(word)} is no word of a command")
            return None
    if words and words[0].startswith("-"):
        place.problem(f"begins with {quoted(words[0])}, which is no program")
        return None
    return words


LVM_KEYS: Final = (
    Key("volumeGroup", "group", group_name, "name", "required, or volumeGroupPattern in a pool",
        "the volume group in which volumes are made"),
    Key("volumeGroupPattern", "pattern", _pattern, "regular expression", "none",
        "every volume group whose whole name matches is a pool, named <pool>.<volume group>"),
    Key("volumeGroupTag", "tag", _tag, "tag of LVM", "none",
        "a volume group that matches is a pool only if it has this tag, or volumes already"),
    Key("thinPool", "thin_pool", group_name, "name", "thick volumes",
        "the thin pool in the volume group from which volumes are made"),
    Key("stripes", "stripes", whole_number(1, MOST_STRIPES), "whole number", "LVM's choice",
        "the number of physical volumes over which a thick volume is striped"),
    Key("stripeSize", "stripe_bytes", _stripe_size, "quantity", "LVM's choice",
        "how much is written to one of them before the next"),
    Key("lvcreateOptions", "options", options, "list of words", "[]",
        "further options of lvcreate; only those that change nothing on which we rely"),
    Key("lvmCommandPrefix", "command_prefix", command_prefix, "list of words", "[]",
        "what goes before every LVM command, like nsenter and its options"),
)  # fmt: skip
_FIELDS: Final = {key.field: key.name for key in LVM_KEYS}


def lvm_config(values: Mapping[str, Any], given: Collection[str], place: Place) -> LvmConfig | None:
    """The LvmConfig that the keys of one pool make; `values` are the good ones, by field."""
    if "group" in given and "pattern" in given:
        place.at("volumeGroupPattern").problem("volumeGroup is given as well: one of them is to be")
    elif "group" not in given and "pattern" not in given:
        place.at("volumeGroup").problem(
            "is missing: a pool with backend lvm needs volumeGroup or volumeGroupPattern"
        )
    if "tag" in given and "pattern" not in given:
        place.at("volumeGroupTag").problem("is for volumeGroupPattern: it chooses among groups")
    if "thin_pool" in given:
        for field in ("stripes", "stripe_bytes"):
            if field in given:
                place.at(_FIELDS[field]).problem("is for thick volumes; the thin pool has its own")
    elif values.get("overbook", 1.0) > 1:
        place.at("overbook").problem("thick volumes take their room at once; it needs thinPool")
    fields = {field: values[field] for field in _FIELDS if field in values}
    if not (fields.get("group") or fields.get("pattern")):
        return None
    if "thin_pool" in given and "thin_pool" not in fields:
        return None
    return LvmConfig(**fields)
