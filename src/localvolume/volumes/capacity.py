"""Converts sizes in bytes to the capacity of a PersistentVolume, and back."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SCALE = {suffix: 1 << (10 * power) for power, suffix in enumerate(_BINARY)} | {
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+)(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|[eE][+-]?[0-9]{1,2})?")


def published_bytes(size_bytes: int) -> int:
    """The size to promise: never more than is there, rounded down as upstream does.

    Rounds to whole GiB from 10 GiB on, to whole MiB from 10 MiB on, and not at all below that.
    """
    for unit in (GIB, MIB):
        if size_bytes >= 10 * unit:
            return size_bytes - size_bytes % unit
    return size_bytes


def quantity(size_bytes: int) -> str:
    """A Kubernetes resource.Quantity in canonical binary form: the largest unit that divides it."""
    power = 0
    while size_bytes and size_bytes % 1024 == 0 and power < len(_BINARY) - 1:
        size_bytes //= 1024
        power += 1
    return f"{size_bytes}{_BINARY[power]}"


def bytes_of(value: str) -> int | None:
    """The bytes that a resource.Quantity stands for, rounded down; None if it is not valid."""
    match = _QUANTITY.fullmatch(value.strip())
    if match is None:
        return None
    number, suffix = match.group(1), match.group(2) or ""
    try:
        scale = _SCALE[suffix] if suffix in _SCALE else Decimal(10) ** int(suffix[1:])
        return int(Decimal(number) * scale)
    except (InvalidOperation, ValueError):
        return None
