"""What the record in a Lease means to one candidate, and what it writes there: pure functions.

Fields and meaning are those of client-go's leader election. A candidate judges by its own clock,
from when it saw the record change, whether somebody may still lead: clocks of two machines are
never compared. If a record was edited by hand, client-go would trust it. Here the lease is waited
out in full: a leader that has not seen the edit yet may still be at work.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from localvolume.kube.objects import KubeObject
from localvolume.kube.workloads import Lease, LeaseSpec

# A longer duration in a record is cut to this: no Election accepts a longer lease.
LONGEST_LEASE_SECONDS: Final = 3600.0
# The duration that a leader writes, with no holder, when it gives up its lease.
RELEASED_SECONDS: Final = 1
_MOST_TRANSITIONS: Final = 2**31 - 1


def check_times(lease: float, deadline: float, retry: float) -> None:
    """Raise ValueError for times (seconds) with which two could lead, or nobody for a long time."""
    if not RELEASED_SECONDS < lease <= LONGEST_LEASE_SECONDS:
        raise ValueError(f"a lease of {lease:g} s is not between 1 s and an hour")
    if not 0 < retry * 1.2 < deadline < lease:
        raise ValueError(
            f"a lease of {lease:g} s, given up after {deadline:g} s without renewal and renewed "
            f"every {retry:g} s: each must be well shorter than the one before"
        )


@dataclass(frozen=True, slots=True)
class View:
    """The lease as one candidate last saw it; `lease` None: there is none.

    `ours`: we wrote the record. `free_at`: the time by our clock from which nobody else can still
    lead by it. `version` is the resourceVersion at which it was seen.
    """

    lease: Lease | None
    version: int
    ours: bool
    free_at: float

    @property
    def holder(self) -> str:
        """The identity in the record, "" if there is none."""
        return (self.lease.spec.holder_identity or "") if self.lease is not None else ""

    @property
    def transitions(self) -> int:
        """How often the lease has changed hands."""
        return (self.lease.spec.lease_transitions or 0) if self.lease is not None else 0


def look(
    before: View | None,
    lease: Lease | None,
    *,
    version: int,
    now: float,
    identity: str,
    seconds: float,
    written: Collection[str],
) -> View:
    """The view after seeing `lease`; `before` is None at the first sight.

    `seconds` is our own lease duration, `written` the renewTimes that we have sent: if our identity
    comes with another renewTime, somebody else wrote it.
    """
    if before is not None and _same_record(before.lease, lease):
        # Only labels or annotations changed: that is no renewal.
        return View(lease, version, before.ours, before.free_at)
    ours = (
        lease is not None
        and lease.spec.holder_identity == identity
        and lease.spec.renew_time in written
    )
    wait = 0.0 if ours else _busy(before, lease, identity, seconds)
    return View(lease, version, ours, now + wait)


def _busy(before: View | None, lease: Lease | None, identity: str, seconds: float) -> float:
    """For how many seconds from now somebody else may still lead."""
    nobody_led = before is None or before.ours or _is_free(before.lease)
    if lease is None:
        # Deleted by hand while somebody held it: its leader may not know that yet.
        return 0.0 if nobody_led else seconds
    if not lease.spec.holder_identity:
        if _is_free(lease) or (before is not None and before.ours):
            return 0.0
        return seconds
    if before is None and lease.spec.holder_identity == identity:
        # As in client-go: an earlier life of ours.
        return 0.0
    promised = float(lease.spec.lease_duration_seconds or 0)
    return max(seconds, min(promised, LONGEST_LEASE_SECONDS))


def _is_free(lease: Lease | None) -> bool:
    """Whether it is absent or its leader released it, so that nobody can still be at work."""
    if lease is None:
        return True
    spec = lease.spec
    return not spec.holder_identity and spec.lease_duration_seconds == RELEASED_SECONDS


def _same_record(one: Lease | None, other: Lease | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.metadata.uid == other.metadata.uid and one.spec == other.spec


def describe(view: View) -> str:
    """Who holds the lease, in words."""
    if view.lease is None:
        return "not there"
    return f"held by {view.holder}" if view.holder else "held by nobody"


def oddities(lease: Lease | None) -> str:
    """What in a record no leader would have written that way, in words; "" if nothing."""
    if lease is None:
        return ""
    spec = lease.spec
    if not spec.holder_identity:
        return "" if _is_free(lease) else "it was not released by its holder"
    found = []
    seconds = spec.lease_duration_seconds
    if seconds is None or not 0 < seconds <= LONGEST_LEASE_SECONDS:
        found.append(f"leaseDurationSeconds is {'missing' if seconds is None else seconds}")
    times = {"acquireTime": spec.acquire_time, "renewTime": spec.renew_time}
    found += [f"{name} is missing" for name, time in times.items() if not time]
    return ", ".join(found)


def version_of(thing: KubeObject) -> int:
    """An object's resourceVersion as a number, -1 if it is not one."""
    version = thing.metadata.resource_version
    return int(version) if version.isdecimal() else -1


def stamp(time: datetime) -> str:
    """A moment in UTC as a MicroTime."""
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def held(view: View, identity: str, seconds: float, now: str) -> dict[str, Any]:
    """The record that says that we hold the lease as of `now`, a MicroTime."""
    spec = view.lease.spec if view.lease is not None else LeaseSpec()
    record: dict[str, Any] = {
        "holderIdentity": identity,
        # Whole seconds, rounded up: the others must not think that it is over before it is.
        "leaseDurationSeconds": math.ceil(seconds),
        "renewTime": now,
    }
    if view.lease is None:
        return {**record, "acquireTime": now, "leaseTransitions": 0}
    if view.holder == identity:
        acquired = spec.acquire_time or now
        return {**record, "acquireTime": acquired, "leaseTransitions": view.transitions}
    transitions = view.transitions + 1 if view.transitions < _MOST_TRANSITIONS else 0
    return {**record, "acquireTime": now, "leaseTransitions": transitions}


def released(view: View, now: str) -> dict[str, Any]:
    """The record that gives the lease up, as in client-go: another may take it at once."""
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": RELEASED_SECONDS,
        "renewTime": now,
        "acquireTime": now,
        "leaseTransitions": view.transitions,
    }


def locked(lease: Lease, record: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch's body that puts the record there only if nothing changed since."""
    meta = {"uid": lease.metadata.uid, "resourceVersion": lease.metadata.resource_version}
    return {"metadata": meta, "spec": record}
