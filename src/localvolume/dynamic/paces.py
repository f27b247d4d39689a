"""How long the dynamic role waits before it tries again, and before it publishes again."""

from __future__ import annotations

from dataclasses import dataclass, field

from localvolume.backends.lvm.zeroing import Zeroing


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPaces:
    """Waits in publishing the node's capacity, in seconds."""

    between: float = 1.0
    """The least time between two writes of an object, unless the later one promises less."""

    used: float = 300.0
    """The least time between a write of an object and one that only says how full its pools are."""

    first_wait: float = 0.5
    longest_wait: float = 15.0
    """Bounds of the time between two attempts; a server may ask for more."""

    unread: float = 30.0
    """The longest time between two attempts to read what is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicPaces:
    """Waits in working on volumes, in seconds."""

    first_wait: float = 1.0
    longest_wait: float = 300.0
    """Bounds of the wait after a failure: doubled each time, half of it random."""

    unwanted: float = 3.0
    """How long a volume must have been wanted by nobody before that is believed."""

    zeroing: Zeroing = field(default_factory=Zeroing)
    """Of raw logical volumes."""

    capacities: CapacityPaces = field(default_factory=CapacityPaces)
