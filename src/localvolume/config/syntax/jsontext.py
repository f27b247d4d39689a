"""Reads JSON into the nodes that YAML is read into: strictly, and with duplicate keys kept."""

from __future__ import annotations

import json
from typing import Any

from yaml.nodes import Node, ScalarNode, SequenceNode

from localvolume.config.syntax import document

_DEEPEST = 32


def compose(text: str) -> Node:
    """The one value in `text`. Raises document.Unreadable."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_int=lambda word: ScalarNode(document.INTEGER, word),
            parse_float=lambda word: ScalarNode(document.FLOAT, word),
            parse_constant=_refuse,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise document.Unreadable(f"is not valid JSON in {where}: {error.msg}") from error
    except RecursionError as error:
        raise document.Unreadable(f"is nested more than {_DEEPEST} levels deep") from error
    return _node(value, 0)


class _Pairs(list[tuple[str, Any]]):
    """An object's keys and values in order, as a type of its own to tell it from a list."""


def _refuse(word: str) -> Node:
    raise document.Unreadable(f"is not valid JSON: {word} is no number")


def _node(value: Any, depth: int) -> Node:
    if depth > _DEEPEST:
        raise document.Unreadable(f"is nested more than {_DEEPEST} levels deep")
    if isinstance(value, Node):
        return value
    if isinstance(value, _Pairs):
        return document.mapping([(key, _node(one, depth + 1)) for key, one in value])
    if isinstance(value, list):
        return SequenceNode("tag:yaml.org,2002:seq", [_node(one, depth + 1) for one in value])
    if isinstance(value, bool):
        return ScalarNode(document.BOOLEAN, "true" if value else "false")
    if value is None:
        return document.null()
    return ScalarNode(document.STRING, value)
