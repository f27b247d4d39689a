"""The two shapes taken over from Kubernetes: NodeSelectorTerm (`selector`), Toleration.

Source: the Kubernetes API reference (core/v1), with the API server's own rules for the values, so
that a mistake is named here and not when the first PersistentVolume is refused.
"""

import re
from typing import Any

from yaml.nodes import Node

from localvolume.config.syntax import names
from localvolume.config.syntax.readers import (
    Place,
    items,
    keys,
    list_of,
    one_of,
    quoted,
    text,
    whole_number,
)

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def selector_terms(node: Node, place: Place) -> tuple[dict[str, Any], ...] | None:
    """The terms as the API writes them, keys in their proper case."""
    return tuple(_term(item, where) for item, where in items(node, place))


def _term(node: Node, place: Place) -> dict[str, Any]:
    found = keys(node, place, ("matchExpressions", "matchFields"))
    term: dict[str, Any] = {}
    for name, (value, where) in found.items():
        fields = name == "matchFields"
        term[name] = [_requirement(item, at, fields=fields) for item, at in items(value, where)]
    if not any(term.values()):
        place.warning("is an empty term, which matches no node")
    return term


def _requirement(node: Node, place: Place, *, fields: bool) -> dict[str, Any]:
    found = keys(node, place, ("key", "operator", "values"))
    requirement: dict[str, Any] = {}
    key = _required(found, place, "key")
    if key is not None and (name := text(*key)) is not None:
        if fields and name != "metadata.name":
            key[1].problem(f"must be metadata.name, the only field of a node, not {quoted(name)}")
        elif not fields and (fault := names.fault_of_label_key(name)):
            key[1].problem(f"{quoted(name)} is no label key: it {fault}")
        requirement["key"] = name
    values: tuple[str, ...] = ()
    if "values" in found:
        values = list_of(text)(*found["values"]) or ()
        requirement["values"] = list(values)
    operator = _required(found, place, "operator")
    if operator is not None:
        word = one_of("In", "NotIn")(*operator) if fields else one_of(*_OPERATORS)(*operator)
        if word is not None:
            requirement["operator"] = word
            _check_values(word, values, place.at("values"), fields=fields)
    return requirement


def _check_values(operator: str, values: tuple[str, ...], place: Place, *, fields: bool) -> None:
    if fields and len(values) != 1:
        place.problem(f"must hold exactly one value with matchFields, not {len(values)}")
    elif operator in ("In", "NotIn") and not values:
        place.problem(f"must hold at least one value with operator {operator}")
    elif operator in ("Exists", "DoesNotExist") and values:
        place.problem(f"must be empty with operator {operator}")
    elif operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        place.problem(f"must hold exactly one whole number with operator {operator}")
    elif operator in ("In", "NotIn") and not fields:
        for index, value in enumerate(values):
            if fault := names.fault_of_label_value(value):
                place.at(index).problem(f"{quoted(value)} is no label value: it {fault}")


def toleration(node: Node, place: Place) -> dict[str, Any] | None:
    """One toleration as the API writes it, keys in their proper case."""
    found = keys(node, place, ("key", "operator", "value", "effect", "tolerationSeconds"))
    result: dict[str, Any] = {}
    for name, read in (
        ("key", text),
        ("operator", one_of("Exists", "Equal", "")),
        ("value", text),
        ("effect", one_of(*_EFFECTS, "")),
        ("tolerationSeconds", whole_number(0, 10**9 - 1)),
    ):
        if name in found and (value := read(*found[name])) is not None:
            result[name] = value
    key, operator = result.get("key", ""), result.get("operator", "") or "Equal"
    if key and (fault := names.fault_of_label_key(key)):
        place.at("key").problem(f"{quoted(key)} is no taint key: it {fault}")
    if not key and operator != "Exists":
        place.at("operator").problem("must be Exists where no key is given")
    if operator == "Exists" and result.get("value"):
        place.at("value").problem("must be empty with operator Exists")
    elif fault := names.fault_of_label_value(result.get("value", "")):
        place.at("value").problem(f"{quoted(result['value'])} is no taint value: it {fault}")
    if "tolerationSeconds" in result and result.get("effect") != "NoExecute":
        place.at("effect").problem("must be NoExecute where tolerationSeconds is given")
    return result


def _required(
    found: dict[str, tuple[Node, Place]], place: Place, name: str
) -> tuple[Node, Place] | None:
    if name not in found:
        place.at(name).problem("is missing")
        return None
    return found[name]
