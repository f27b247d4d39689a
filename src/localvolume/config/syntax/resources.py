"""What a cleaning Job may use (`jobResources`): a ResourceRequirements of CPU and memory.

Source: the Kubernetes API reference (core/v1 ResourceRequirements, resource.Quantity), with the API
server's own rules, so that a mistake is named here and not when the first Job is refused.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from yaml.nodes import Node

from localvolume.config.model import Resources
from localvolume.config.syntax.readers import Place, keys, quoted, text

_QUANTITY = re.compile(
    r"\+?([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})"
    r"(Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2}|[numkMGTPE]|)"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: dict[str, int] = {unit: 1024 ** (power + 1) for power, unit in enumerate("KMGTPE")}
_MOST_BYTES = 1 << 60
# The smallest unit: a thousandth of a CPU, a byte of memory.
_FINEST = {"cpu": Fraction(1, 1000), "memory": Fraction(1)}


def amount(quantity: str) -> Fraction | None:
    """The number that a resource.Quantity stands for, or None if it is not one."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        return None
    digits, unit = match.groups()
    if unit.endswith("i"):
        return Fraction(digits) * _BINARY[unit[0]]
    power = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return Fraction(f"{digits}e{power}")


def whole_bytes(like: str, least: int = 0) -> Callable[[Node, Place], int | None]:
    """A reader of a resource.Quantity of whole bytes, `least` or more; `like` is an example."""

    def read(node: Node, place: Place) -> int | None:
        given = text(node, place)
        if given is None:
            return None
        quantity = amount(given)
        if quantity is None or quantity.denominator != 1 or not least <= quantity <= _MOST_BYTES:
            place.problem(f"must be a quantity of bytes like {like}, not {quoted(given)}")
            return None
        return int(quantity)

    return read


def resources(node: Node, place: Place) -> Resources | None:
    """The requirements as the API writes them; what is not given is left out."""
    before = len(place.problems)
    result: dict[str, dict[str, str]] = {}
    for name, (value, where) in keys(node, place, ("requests", "limits")).items():
        result[name] = _quantities(value, where)
    if len(place.problems) > before:
        return None
    limits = result.get("limits", {})
    for name, requested in result.get("requests", {}).items():
        most = amount(limits[name]) if name in limits else None
        least = amount(requested)
        if most is not None and least is not None and least > most:
            place.at("requests").at(name).problem(
                f"{quoted(requested)} is more than the limit, {quoted(limits[name])}"
            )
    return result if len(place.problems) == before else None


def _quantities(node: Node, place: Place) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, (value, where) in keys(node, place, ("cpu", "memory")).items():
        given = text(value, where)
        if given is None:
            continue
        quantity = amount(given)
        if quantity is None:
            example = "100m or 2" if name == "cpu" else "64Mi or 1G"
            where.problem(f"must be a quantity like {example}, not {quoted(given)}")
        elif quantity < _FINEST[name]:
            least = "1m" if name == "cpu" else "1 byte"
            where.problem(f"must be at least {least}, not {quoted(given)}")
        else:
            found[name] = given
    return found
