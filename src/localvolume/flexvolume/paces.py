"""How often the FlexVolume role looks, and how long it waits before it acts or tries again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlexPaces:
    """In seconds."""

    resync: float = 60.0
    """How often everything is looked at again if nothing changes."""

    rest: float = 1.0
    longest_rest: float = 10.0
    """Bounds of the rest after a look."""

    again: float = 10.0
    """How soon what failed is tried again: installing, adopting, removing."""

    watched: float = 30.0
    """How long this process itself must have known a PersistentVolume to be gone, by a monotonic
    clock, before it believes what an earlier process noted."""
