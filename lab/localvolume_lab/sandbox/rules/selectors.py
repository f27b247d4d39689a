"""Label selectors (equality and set based) and field selectors, as the real server reads them.

Grammar: k8s.io/apimachinery/pkg/labels (selector.go) and pkg/fields (selector.go).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from localvolume_lab.sandbox.kinds import Resource
from localvolume_lab.sandbox.refusals import bad_request

Body = Mapping[str, Any]
Match = Callable[[Body], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s=!,()<>]+)")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def key(self) -> str:
        token = self.take()
        if not _KEY.fullmatch(token):
            raise bad_request(
                f"unable to parse requirement: <nil>: Invalid value: {token!r}: "
                "name part must consist of alphanumeric characters, '-', '_' or '.'"
            )
        return token

    def value(self) -> str:
        token = "" if self.peek() in {",", ")", ""} else self.take()
        if not _VALUE.fullmatch(token):
            raise bad_request(
                f"unable to parse requirement: values[0][key]: Invalid value: {token!r}: "
                "a valid label must be an empty string or consist of alphanumeric characters, "
                "'-', '_' or '.'"
            )
        return token

    def values(self) -> frozenset[str]:
        if self.take() != "(":
            raise bad_request("unable to parse requirement: expected: '('")
        found = [self.value()]
        while (sign := self.take()) == ",":
            found.append(self.value())
        if sign != ")":
            raise bad_request(f"unable to parse requirement: found '{sign}', expected: ',' or ')'")
        return frozenset(found)

    def requirement(self) -> Match:
        if self.peek() == "!":
            self.take()
            key = self.key()
            return lambda labels: key not in labels
        key = self.key()
        operator = self.peek()
        if operator in {"", ","}:
            return lambda labels: key in labels
        self.take()
        if operator in {"=", "=="}:
            value = self.value()
            return lambda labels: labels.get(key) == value
        if operator == "!=":
            value = self.value()
            return lambda labels: labels.get(key) != value
        if operator == "in":
            values = self.values()
            return lambda labels: labels.get(key) in values
        if operator == "notin":
            values = self.values()
            return lambda labels: labels.get(key) not in values
        if operator in {"<", ">"}:
            return _compared(key, operator, self.value())
        raise bad_request(
            f"unable to parse requirement: found '{operator}', "
            "expected: in, notin, =, ==, !=, gt, lt"
        )


def _compared(key: str, operator: str, bound: str) -> Match:
    try:
        limit = int(bound)
    except ValueError:
        raise bad_request(
            f"unable to parse requirement: values[0][{key}]: Invalid value: {bound!r}: "
            "for 'Gt', 'Lt' operators, the value must be an integer"
        ) from None

    def match(labels: Body) -> bool:
        try:
            actual = int(labels[key])
        except (KeyError, ValueError):
            return False
        return actual > limit if operator == ">" else actual < limit

    return match


def label_selector(text: str) -> Match | None:
    """A predicate over a label map; None for the empty selector. Raises 400."""
    if not text.strip():
        return None
    parser = _Parser(text)
    requirements = [parser.requirement()]
    while (token := parser.take()) == ",":
        requirements.append(parser.requirement())
    if token:
        raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
    return lambda labels: all(requirement(labels) for requirement in requirements)


def _read(body: Body, path: tuple[str, ...]) -> str:
    value: Any = body
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return "false" if path == ("spec", "unschedulable") else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def field_selector(text: str, resource: Resource) -> Match | None:
    """A predicate over a whole object; None for the empty selector. Raises 400."""
    terms: list[tuple[tuple[str, ...], str, bool]] = []
    for part in filter(None, text.split(",")):
        for operator in ("!=", "==", "="):
            name, found, value = part.partition(operator)
            if found:
                break
        else:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        if name == "metadata.name" or (name == "metadata.namespace" and resource.namespaced):
            path: tuple[str, ...] = ("metadata", name.removeprefix("metadata."))
        elif name in resource.fields:
            path = resource.fields[name]
        else:
            raise bad_request(resource.field_refusal.format(name))
        terms.append((path, value, operator != "!="))
    if not terms:
        return None
    return lambda body: all((_read(body, path) == value) is equal for path, value, equal in terms)


def selector(labels: str, fields: str, resource: Resource) -> Match:
    """Both selectors of a list or watch as one predicate over objects. Raises 400."""
    by_label = label_selector(labels)
    by_field = field_selector(fields, resource)

    def match(body: Body) -> bool:
        return (by_label is None or by_label(body["metadata"].get("labels") or {})) and (
            by_field is None or by_field(body)
        )

    return match
