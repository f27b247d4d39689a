"""YAML as upstream reads it: YAML 1.1 as go-yaml resolves it, kept as nodes, never as objects.

Nodes remember how a value was written, which the readers need: a duplicate key is still there, and
`1.10` where text is wanted can be told from `1.1`. Sources: sigs.k8s.io/yaml and go-yaml v2
("y" and "on" are booleans; no base-60 numbers, and dates are text).
"""

import re
from collections.abc import Iterator

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from localvolume import yamlaliases

_TAG = "tag:yaml.org,2002:"
STRING, NULL, BOOLEAN, INTEGER, FLOAT = (
    _TAG + name for name in ("str", "null", "bool", "int", "float")
)
_MERGE = _TAG + "merge"
_DEEPEST = 32
_TRUE = frozenset({"y", "yes", "true", "on"})

# go-yaml v2 reads a word only in these three spellings.
_BOOLEANS = "y|yes|true|on|n|no|false|off"
_WORDS = "|".join(
    form
    for word in _BOOLEANS.split("|")
    for form in dict.fromkeys((word, word.title(), word.upper()))
)


_FLOATS = (
    r"(?:[-+]?(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


class Unreadable(ValueError):
    """The text is not the YAML of a configuration; the message says where and why."""


class _Loader(yaml.CSafeLoader):
    """The C parser with go-yaml's idea of what a plain scalar is."""


_Loader.yaml_implicit_resolvers = {}


for _tag, _pattern, _first in (
    (BOOLEAN, rf"(?:{_WORDS})$", "yYnNtTfFoO"),
    (NULL, r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    (
        INTEGER,
        r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]*|[1-9][0-9_]*)$",
        "-+0123456789",
    ),
    (
        FLOAT,
        _FLOATS,
        "-+0123456789.",
    ),
    (_MERGE, r"<<$", "<"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


def compose(text: str) -> Node | None:
    """The one document in `text`, None if there is none. Raises Unreadable."""
    documents = compose_all(text)
    if len(documents) > 1:
        raise Unreadable('holds more than one YAML document ("---"); one is read')
    return documents[0] if documents else None


def compose_all(text: str) -> list[Node]:
    """Every document in `text`. Raises Unreadable."""
    try:
        _refuse_size(text)
        return list(yaml.compose_all(text, Loader=_Loader))
    except yamlaliases.Excessive as error:
        raise Unreadable(str(error)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = error.problem or error.context or "cannot be parsed"
        if mark and ("tab character" in what or _character(text, mark) == "\t"):
            where, what = f" in line {mark.line + 1}", "a tab where YAML wants spaces"
        raise Unreadable(f"is not valid YAML{where}: {what}") from error
    except yaml.YAMLError as error:
        raise Unreadable(f"is not valid YAML: {' '.join(str(error).split())}") from error


def _character(text: str, mark: yaml.Mark) -> str:
    """What stands at a mark, "" at an end of a line."""
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[mark.column : mark.column + 1]


def _refuse_size(text: str) -> None:
    """Refuse deep nesting: the C composer recurses without a limit, which would end the process.

    Refuse aliases that repeat much, too: the readers go through what an alias stands for each time.
    """
    depth = 0
    repeated = yamlaliases.Repeated()
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise Unreadable(f"is nested more than {_DEEPEST} levels deep")
        repeated.see(event)


def is_null(node: Node | None) -> bool:
    return node is None or node.tag == NULL


def truth(node: ScalarNode) -> bool:
    """The value of a BOOLEAN scalar."""
    return str(node.value).lower() in _TRUE


def pairs(mapping: MappingNode) -> Iterator[tuple[Node, Node]]:
    """Keys and values as written, in order; after them what merge keys (`<<`) add.

    Raises Unreadable if a merge key holds anything but mappings.
    """
    own: set[str] = set()
    merges: list[Node] = []
    for key, value in mapping.value:
        if key.tag == _MERGE:
            merges.append(value)
        else:
            own.add(str(key.value))
            yield key, value
    # A mapping merged again adds nothing, so each is read once, whatever the aliases.
    seen = {id(mapping)}
    while merges:
        merged = merges.pop(0)
        if id(merged) in seen:
            continue
        seen.add(id(merged))
        if isinstance(merged, SequenceNode):
            merges[:0] = merged.value
        elif isinstance(merged, MappingNode):
            merges[:0] = [value for key, value in merged.value if key.tag == _MERGE]
            for key, value in merged.value:
                if key.tag != _MERGE and str(key.value) not in own:
                    own.add(str(key.value))
                    yield key, value
        else:
            raise Unreadable('has a merge key "<<" whose value is not a mapping')


def null() -> Node:
    """A value that was left out."""
    return ScalarNode(NULL, "")


def mapping(values: list[tuple[str, Node]]) -> MappingNode:
    """A mapping with text keys."""
    return MappingNode(_TAG + "map", [(ScalarNode(STRING, key), value) for key, value in values])
