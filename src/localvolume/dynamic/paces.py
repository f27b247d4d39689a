"""How long the dynamic role waits before it tries again, and between two words on its room."""

from __future__ import annotations

from dataclasses import dataclass, field

from localvolume.backends.lvm.zeroing import Zeroing


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPaces:
    """Of what is published of the node's room, in seconds."""

    between: float = 1.0
    """The least time between two writes of an object of which the later does not promise less."""

    first_wait: float = 0.5
    longest_wait: float = 15.0
    """Bounds of the time between two attempts; a server may ask for more."""

    unread: float = 30.0
    """The longest time between two attempts to read what is published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicPaces:
    """Of what is done about volumes, in seconds."""

    first_wait: float = 1.0
    longest_wait: float = 300.0
    """After a failure: doubled each time, half of it at random."""

    unwanted: float = 3.0
    """How long nobody may have wanted a volume before that is believed."""

    zeroing: Zeroing = field(default_factory=Zeroing)
    """Of raw logical volumes."""

    capacities: CapacityPaces = field(default_factory=CapacityPaces)
