"""Kubernetes quantities: their value, and the canonical spelling the server stores.

Rules of k8s.io/apimachinery/pkg/api/resource (quantity.go): the number is kept in the largest unit
of its own family that leaves it whole, so `1024Mi` reads back as `1Gi` and `1.5Gi` as `1536Mi`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

_SYNTAX = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?\d+|[numkMGTPE]|)")
_BINARY = {unit: 1024**power for power, unit in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)
def _split(text: str) -> tuple[Fraction, str]:
    found = _SYNTAX.fullmatch(text)
    if found is None:
        raise ValueError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    sign, digits, suffix = found.groups()
    number = Fraction(digits) * (-1 if sign == "-" else 1)
    if suffix in _BINARY and suffix:
        return number * _BINARY[suffix], "binary"
    if suffix in _DECIMAL:
        return number * Fraction(10) ** _DECIMAL[suffix], "decimal"
    return number * Fraction(10) ** int(suffix[1:]), "exponent"


def value(quantity: Any) -> Fraction:
    """The number a quantity stands for (bytes, for storage). Raises ValueError."""
    return _split(str(quantity))[0]


def canonical(quantity: Any) -> str:
    """The spelling the server stores. Raises ValueError."""
    number, family = _split(str(quantity))
    if number == 0:
        return "0"
    if family == "binary" and number.denominator == 1 and abs(number) >= 1024:
        for unit, size in reversed(_BINARY.items()):
            if number % size == 0:
                return f"{number // size}{unit}"
    for unit, power in reversed(_DECIMAL.items()):
        scaled = number / Fraction(10) ** power
        if scaled.denominator == 1:
            if family == "exponent":
                return f"{scaled}e{power}" if power else str(scaled)
            return f"{scaled}{unit}"
    raise ValueError("quantities finer than a nano unit are not kept")
