"""What an agent writes down of how large its pools are, and how full: pure.

It is for people to read. A pool fills with every write of a tenant, so it is called as full as the
next whole percent, and what is written stays while it is close enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

_SLACK_PERCENT: Final = 2
"""By how much of a pool what is written may be more than what is used. It is never less."""


class PoolSize(NamedTuple):
    """How large a pool is, and what of it is used; None if nobody can tell, or another class's
    object tells it."""

    total_bytes: int
    used_bytes: int | None = None


def note_of(pools: Iterable[tuple[str, PoolSize]], before: str = "") -> str:
    """The annotation about these pools; "" for none. `before` is what is written now."""
    known = pools_in(before)
    made = {name: _said(size, known.get(name)) for name, size in pools}
    return json.dumps(made, separators=(",", ":")) if made else ""


def totals_in(note: str) -> dict[str, int]:
    """The sizes alone, also as an agent of an earlier build wrote them."""
    return {name: size.total_bytes for name, size in pools_in(note).items()}


def pools_in(note: str) -> dict[str, PoolSize]:
    """What an annotation says. Leaves out what is not in its form: anybody may have written it.

    An agent of an earlier build wrote the size alone.
    """
    try:
        told = json.loads(note or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    return {name: size for name, one in told.items() if (size := _read(one)) is not None}


def _said(size: PoolSize, before: PoolSize | None) -> Mapping[str, int]:
    total, used = size
    if used is None or total <= 0:
        return {"totalBytes": total}
    used = min(used, total)
    said = before.used_bytes if before is not None and before.total_bytes == total else None
    if said is None or not 0 <= said - used <= total * _SLACK_PERCENT // 100:
        said = total * -(-used * 100 // total) // 100
    return {"totalBytes": total, "usedBytes": said}


def _read(told: Any) -> PoolSize | None:
    if isinstance(told, dict):
        total, used = _size(told.get("totalBytes")), _size(told.get("usedBytes"))
    else:
        total, used = _size(told), None
    if not total:
        return None
    return PoolSize(total, used if used is None or used <= total else None)


def _size(value: Any) -> int | None:
    """Sizes beyond a resource.Quantity's are nonsense, and may be too large to be shown."""
    return value if type(value) is int and 0 <= value < 1 << 63 else None
