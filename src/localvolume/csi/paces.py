"""How often the CSI role looks after its sockets, and how long it waits before it tries again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiPaces:
    """In seconds."""

    resync: float = 60.0
    """How often the sockets are looked at if nothing changes."""

    again: float = 5.0
    """How soon a socket that cannot be made is tried again."""

    first_wait: float = 5.0
    longest_wait: float = 300.0
    """Bounds of the time until the kubelet, which refused the driver, is asked again."""
