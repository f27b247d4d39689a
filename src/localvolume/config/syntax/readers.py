"""Reading one value of the configuration: text, yes or no, number, list, mapping, duration.

Every reader notes what is wrong under the value's own key and goes on, so that one reading reports
all problems. msgspec stops at the first one and leaves the key out of its path; hence these.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from localvolume.config.model import Problem
from localvolume.config.syntax import document
from localvolume.config.syntax.durations import BadDuration, parse_duration

T = TypeVar("T")

_WHOLE = re.compile(r"0|[1-9][0-9]{0,8}")
_KINDS = {MappingNode: "a mapping", SequenceNode: "a list", ScalarNode: "a single value"}

# Scalars that YAML does not read as text, but that upstream turns back into the text written.
_SAME_AS_WRITTEN = {
    document.INTEGER: re.compile(r"0|-?[1-9][0-9]{0,17}"),
    document.FLOAT: re.compile(r"-?(0|[1-9][0-9]?)\.[0-9]{0,3}[1-9]"),
    document.BOOLEAN: re.compile(r"true|false"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands, and where to note what is wrong with it."""

    file: str
    key: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def at(self, key: str | int) -> "Place":
        """The place of a key or list index below this one."""
        if isinstance(key, int):
            return replace(self, key=f"{self.key}[{key}]")
        key = one_line(key)
        return replace(self, key=f"{self.key}.{key}" if self.key else key)

    def problem(self, reason: str) -> None:
        self.problems.append(Problem(self.file, self.key, reason))

    def warning(self, reason: str) -> None:
        self.warnings.append(Problem(self.file, self.key, reason))


def one_line(name: str) -> str:
    """A name to show: as it is if that is one printable line, else quoted."""
    return name if name and name.isprintable() else repr(name)


def quoted(value: object) -> str:
    """A value as it may stand in a reason: on one line, and not too long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"


def text(node: Node, place: Place) -> str | None:
    """A string. Bare numbers and true/false pass if upstream reads exactly what is written."""
    if not isinstance(node, ScalarNode):
        place.problem(f"must be text, not {_KINDS[type(node)]}")
        return None
    value = str(node.value)
    if node.tag == document.STRING:
        return value
    same = _SAME_AS_WRITTEN.get(node.tag)
    if same is not None and same.fullmatch(value):
        return value
    if node.tag == document.NULL:
        place.problem("must be text; it has no value")
    else:
        place.problem(
            f'must be text; YAML reads {quoted(value)} as something else: put it in "quotes"'
        )
    return None


GO_TRUTH: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""As Go's strconv.ParseBool reads a text."""


def boolean(node: Node, place: Place) -> bool | None:
    """true or false, or YAML 1.1's yes, no, on, off, y, n; never a quoted word."""
    if isinstance(node, ScalarNode):
        if node.tag == document.BOOLEAN:
            truth = document.truth(node)
            plain = "true" if truth else "false"
            if str(node.value).lower() != plain:
                place.warning(
                    f"{quoted(node.value)} is read as {plain}, as YAML 1.1 has it: write {plain}"
                )
            return truth
        place.problem(f"must be true or false (without quotes), not {quoted(node.value)}")
    else:
        place.problem(f"must be true or false, not {_KINDS[type(node)]}")
    return None


def whole_number(least: int, most: int) -> Callable[[Node, Place], int | None]:
    """A reader of whole numbers from `least` to `most`."""

    def read(node: Node, place: Place) -> int | None:
        if isinstance(node, ScalarNode) and node.tag == document.INTEGER:
            value = str(node.value)
            if _WHOLE.fullmatch(value) and least <= int(value) <= most:
                return int(value)
        given = quoted(node.value) if isinstance(node, ScalarNode) else _KINDS[type(node)]
        place.problem(f"must be a whole number from {least} to {most}, not {given}")
        return None

    return read


def duration(least: float) -> Callable[[Node, Place], float | None]:
    """A reader of Go durations of at least `least` seconds; its result is in seconds."""

    def read(node: Node, place: Place) -> float | None:
        if not isinstance(node, ScalarNode) or node.tag != document.STRING:
            given = node.value if isinstance(node, ScalarNode) else _KINDS[type(node)]
            place.problem(f'must be a duration with its unit, like "5m", not {quoted(given)}')
            return None
        try:
            seconds = parse_duration(str(node.value))
        except BadDuration as error:
            place.problem(str(error))
            return None
        if seconds < least:
            place.problem(f"must be at least {least:g}s, not {quoted(node.value)}")
            return None
        return seconds

    return read


def one_of(*choices: str) -> Callable[[Node, Place], str | None]:
    """A reader of one of the given words."""

    def read(node: Node, place: Place) -> str | None:
        value = text(node, place)
        if value is None or value in choices:
            return value
        place.problem(f"must be {_or(choices)}, not {quoted(value)}{did_you_mean(value, choices)}")
        return None

    return read


def items(node: Node, place: Place) -> Iterator[tuple[Node, Place]]:
    """The elements of a list with their places; none if the node is not a list."""
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield item, place.at(index)
    else:
        place.problem(f"must be a list, not {_KINDS[type(node)]}")


def list_of(
    read: Callable[[Node, Place], T | None],
) -> Callable[[Node, Place], tuple[T, ...] | None]:
    """A reader of lists; wrong elements are noted and left out."""

    def read_list(node: Node, place: Place) -> tuple[T, ...] | None:
        return tuple(
            value for item, where in items(node, place) if (value := read(item, where)) is not None
        )

    return read_list


def entries(node: Node, place: Place) -> Iterator[tuple[str, Node, Place]]:
    """The entries of a mapping, none if it is null. A duplicate is noted and left out."""
    if document.is_null(node):
        return
    if not isinstance(node, MappingNode):
        place.problem(f"must be a mapping, not {_KINDS[type(node)]}")
        return
    seen: set[str] = set()
    try:
        for key_node, value in document.pairs(node):
            key = text(key_node, place)
            if key is None:
                continue
            if key in seen:
                place.at(key).problem("is given twice")
                continue
            seen.add(key)
            yield key, value, place.at(key)
    except document.Unreadable as error:
        place.problem(str(error))


def keys(
    node: Node, place: Place, known: Collection[str], elsewhere: Callable[[str], str] = lambda _: ""
) -> dict[str, tuple[Node, Place]]:
    """The entries of a mapping with fixed keys, under the keys' proper names, without nulls.

    Keys match regardless of case, as in Go's JSON; the same key in two cases is a problem.
    `elsewhere` may add a hint to an unknown key.
    """
    proper = {name.casefold(): name for name in known}
    written: dict[str, str] = {}
    found: dict[str, tuple[Node, Place]] = {}
    for key, value, where in entries(node, place):
        name = proper.get(key.casefold())
        if name is None:
            where.problem("unknown key" + (elsewhere(key) or did_you_mean(key, known)))
            continue
        if name in written:
            where.problem(f"is given twice: as {quoted(written[name])} and as {quoted(key)}")
            continue
        written[name] = key
        if not document.is_null(value):
            found[name] = (value, place.at(name))
    return found


def did_you_mean(given: str, known: Collection[str]) -> str:
    """A hint to append to a reason: the nearest known word, or nothing."""
    import difflib  # here: an agent with a valid configuration never needs it

    by_fold = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(given.casefold(), by_fold, n=1, cutoff=0.6)
    return f"; did you mean {by_fold[near[0]]}?" if near else ""


def _or(choices: tuple[str, ...]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
