"""A mapping with fixed keys: each key's reader and what the documentation says about it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from yaml.nodes import Node

from localvolume.config.syntax.readers import Place, keys

Reader = Callable[[Node, Place], Any]


@dataclass(frozen=True, slots=True)
class KeyDoc:
    """One key for the documentation. Inner keys are named `storageClassMap.<class>.<key>`."""

    name: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key's spelling, the model's field that it fills, its reader and its documentation."""

    name: str
    field: str
    read: Reader
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a mapping: good values by the model's field; all fields given, even bad."""

    values: Mapping[str, Any]
    given: frozenset[str]


def read_keys(
    node: Node,
    place: Place,
    table: Iterable[Key],
    elsewhere: Callable[[str], str] = lambda _: "",
) -> Read:
    """Read a mapping of fixed keys, noting every problem at its place."""
    by_name = {key.name: key for key in table}
    found = keys(node, place, by_name, elsewhere)
    good: dict[str, Any] = {}
    for name, (value, where) in found.items():
        result = by_name[name].read(value, where)
        if result is not None:
            good[by_name[name].field] = result
    return Read(good, frozenset(by_name[name].field for name in found))
