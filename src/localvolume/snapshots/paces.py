"""How often the snapshots' role looks, and how long it waits before it tries again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPaces:
    """In seconds."""

    resync: float = 60.0
    """How often contents are looked at if none changes: whose volume it is may be known by now."""

    absent: float = 60.0
    """How often a cluster without the kinds of snapshots is asked whether it has them."""

    first_wait: float = 1.0
    longest_wait: float = 300.0
    """Bounds of the time between two attempts, as csi-snapshotter has them."""

    cut: float = 60.0
    """How long one attempt waits for a snapshot: a full copy takes hours, and goes on meanwhile."""

    spread: float = 30.0
    """Within which time the agents of all nodes let a content go that is no node's."""
