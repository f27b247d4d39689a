"""Readers of the values that have a syntax of their own: patterns, labels, words."""

from typing import Final

from yaml.nodes import Node

from localvolume.config.syntax import globs, names
from localvolume.config.syntax.readers import Place, entries, list_of, one_line, quoted, text

RESERVED_PREFIX: Final = "localvolume.dev/"
"""Labels with this prefix say whose a volume is; only the agent sets them."""


def volume_mode(node: Node, place: Place) -> str | None:
    """Filesystem or Block; a problem with any other value is worded as in upstream."""
    value = text(node, place)
    if value == "":
        return "Filesystem"
    if value is not None and value not in ("Filesystem", "Block"):
        place.problem(f"unsupported volume mode {one_line(value)}; it is Filesystem or Block")
        return None
    return value


def fs_type(node: Node, place: Place) -> str | None:
    """The name of a filesystem, as mount(8) takes it."""
    value = text(node, place)
    if value and not all(char.isascii() and (char.isalnum() or char in "._-") for char in value):
        place.problem(f"must be one word like ext4 or xfs, not {quoted(value)}")
    return value


def name_pattern(node: Node, place: Place) -> str | None:
    """The comma separated patterns; an empty text means the default, as in upstream."""
    value = text(node, place)
    if not value:
        return "*" if value == "" else None
    before = len(place.problems)
    for token in value.split(","):
        try:
            globs.check(token)
        except globs.BadPattern as error:
            place.problem(f"{quoted(token)} is no pattern: {error}")
        if token != token.strip():
            place.warning(f"{quoted(token)} is matched with its spaces; patterns are not trimmed")
        elif not token:
            place.warning("holds an empty pattern between commas, which matches nothing")
        elif "/" in token:
            place.warning(f'{quoted(token)} holds a "/" and so matches no entry')
    return value if len(place.problems) == before else None


def label_keys(node: Node, place: Place) -> tuple[str, ...] | None:
    """The keys of the node labels to copy."""

    def one(item: Node, where: Place) -> str | None:
        value = text(item, where)
        if value is not None:
            _check_label_key(value, where)
        return value

    return list_of(one)(node, place)


def labels(node: Node, place: Place) -> dict[str, str] | None:
    """Labels for every PersistentVolume."""
    result: dict[str, str] = {}
    for key, value_node, where in entries(node, place):
        _check_label_key(key, where)
        value = text(value_node, where)
        if value is not None:
            if fault := names.fault_of_label_value(value):
                where.problem(f"{quoted(value)} is no label value: it {fault}")
            result[key] = value
    return result


def taint_key(node: Node, place: Place) -> str | None:
    """The key of a taint, or nothing."""
    value = text(node, place)
    if value and (fault := names.fault_of_label_key(value)):
        place.problem(f"{quoted(value)} is no taint key: it {fault}")
    return value


def _check_label_key(key: str, place: Place) -> None:
    if key.startswith(RESERVED_PREFIX):
        place.problem(f"{quoted(key)} is one of our own labels, which the agent sets itself")
    elif fault := names.fault_of_label_key(key):
        place.problem(f"{quoted(key)} is no label key: it {fault}")
