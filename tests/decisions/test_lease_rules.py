"""What the record in a Lease means: when another may take it, and what is written then."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.kube.election import record as leading
from localvolume.kube.election.record import View
from localvolume.kube.objects import Meta
from localvolume.kube.workloads import Lease, LeaseSpec

ME = "me"
SECONDS = 15.0
MINE = "2026-01-01T00:00:00.000001Z"
OTHERS = "2026-01-01T00:00:00.000002Z"


def lease(holder: str | None = "other", *, uid: str = "u", **spec: Any) -> Lease:
    fields: dict[str, Any] = {
        "holder_identity": holder,
        "lease_duration_seconds": 15,
        "acquire_time": OTHERS,
        "renew_time": OTHERS,
        "lease_transitions": 3,
        **spec,
    }
    meta = Meta(name="seat", uid=uid, resource_version="7")
    return Lease(metadata=meta, spec=LeaseSpec(**fields))


def look(before: View | None, seen: Lease | None, now: float = 100.0) -> View:
    return leading.look(
        before, seen, version=7, now=now, identity=ME, seconds=SECONDS, written=[MINE]
    )


OURS = look(None, lease(ME, renew_time=MINE))
HELD = look(None, lease())
RELEASED = look(None, lease("", lease_duration_seconds=1))
ABSENT = look(None, None)
FREE, WAIT = 200.0, 200.0 + SECONDS


@pytest.mark.parametrize(
    ("before", "seen", "free_at"),
    [
        # Nobody can be at work.
        (None, None, FREE),
        (None, lease("", lease_duration_seconds=1), FREE),
        (HELD, lease("", lease_duration_seconds=1), FREE),
        (RELEASED, None, FREE),
        (OURS, None, FREE),
        (OURS, lease(""), FREE),
        # An earlier life of ours, as in client-go.
        (None, lease(ME), FREE),
        # Somebody leads, or may not have heard yet that he does not.
        (None, lease(), WAIT),
        (ABSENT, lease(), WAIT),
        (OURS, lease(), WAIT),
        (HELD, lease(renew_time=MINE), WAIT),
        (HELD, lease("third"), WAIT),
        (HELD, None, WAIT),
        (HELD, lease(""), WAIT),
        (HELD, lease(None), WAIT),
        (None, lease(None, lease_duration_seconds=None), WAIT),
        # Our name, but not our hand.
        (HELD, lease(ME), WAIT),
        (OURS, lease(ME), WAIT),
        (ABSENT, lease(ME), WAIT),
        # Never shorter than our own, nor longer than any of ours can be.
        (None, lease(lease_duration_seconds=1), WAIT),
        (None, lease(lease_duration_seconds=None), WAIT),
        (None, lease(lease_duration_seconds=-5), WAIT),
        (None, lease(lease_duration_seconds=60), FREE + 60),
        (None, lease(lease_duration_seconds=2**31 - 1), FREE + 3600),
    ],
)
def test_when_it_may_be_taken(before: View | None, seen: Lease | None, free_at: float) -> None:
    assert look(before, seen, now=200.0).free_at == free_at


def test_what_we_wrote_is_ours_and_nothing_else() -> None:
    assert OURS.ours
    assert not look(None, lease(ME)).ours
    assert not look(None, lease("other", renew_time=MINE)).ours
    assert not look(OURS, None).ours
    assert not look(OURS, lease("")).ours


def test_a_change_of_labels_renews_nothing() -> None:
    labelled = msgspec.structs.replace(
        lease(), metadata=Meta(name="seat", uid="u", resource_version="8", labels={"a": "b"})
    )
    again = look(HELD, labelled, now=110.0)
    assert again.free_at == HELD.free_at == 100.0 + SECONDS
    assert again.lease is labelled
    # The same record in another object is news.
    assert look(HELD, lease(uid="v"), now=110.0).free_at == 110.0 + SECONDS


def test_a_lease_that_stays_away_is_not_deleted_again() -> None:
    gone = look(HELD, None, now=110.0)
    assert look(gone, None, now=120.0).free_at == gone.free_at == 110.0 + SECONDS


NOW = "2026-01-01T00:00:09.000000Z"


def test_the_first_record() -> None:
    assert leading.held(ABSENT, ME, 1.5, NOW) == {
        "holderIdentity": ME,
        # Rounded up: in whole seconds, and never before it is over for us.
        "leaseDurationSeconds": 2,
        "acquireTime": NOW,
        "renewTime": NOW,
        "leaseTransitions": 0,
    }


def test_taking_counts_and_renewing_does_not() -> None:
    taken = leading.held(HELD, ME, 15, NOW)
    assert (taken["acquireTime"], taken["leaseTransitions"]) == (NOW, 4)
    renewed = leading.held(OURS, ME, 15, NOW)
    assert (renewed["acquireTime"], renewed["leaseTransitions"]) == (OTHERS, 3)
    assert renewed["renewTime"] == NOW


@pytest.mark.parametrize(
    ("transitions", "after"), [(None, 1), (0, 1), (2**31 - 2, 2**31 - 1), (2**31 - 1, 0)]
)
def test_transitions_stay_what_the_server_takes(transitions: int | None, after: int) -> None:
    view = look(None, lease(lease_transitions=transitions))
    assert leading.held(view, ME, 15, NOW)["leaseTransitions"] == after


def test_a_released_record_says_that_it_was_released() -> None:
    record = leading.released(OURS, NOW)
    assert record == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": NOW,
        "renewTime": NOW,
        "leaseTransitions": 3,
    }
    seen = msgspec.convert({"metadata": {"uid": "u"}, "spec": record}, Lease)
    assert look(HELD, seen, now=200.0).free_at == 200.0


def test_every_write_is_bound_to_what_was_seen() -> None:
    assert leading.locked(lease(), {"a": 1}) == {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {"a": 1},
    }


@pytest.mark.parametrize(
    ("seen", "odd"),
    [
        (None, ""),
        (lease(), ""),
        (lease("", lease_duration_seconds=1), ""),
        (lease(""), "it was not released by its holder"),
        (lease(renew_time=None), "renewTime is missing"),
        (lease(acquire_time=None, renew_time=""), "acquireTime is missing, renewTime is missing"),
        (lease(lease_duration_seconds=None), "leaseDurationSeconds is missing"),
        (lease(lease_duration_seconds=3601), "leaseDurationSeconds is 3601"),
        (lease(lease_duration_seconds=0), "leaseDurationSeconds is 0"),
    ],
)
def test_oddities(seen: Lease | None, odd: str) -> None:
    assert leading.oddities(seen) == odd


def test_a_stamp_is_a_micro_time() -> None:
    assert leading.stamp(datetime(2026, 1, 2, 3, 4, 5, 6, UTC)) == "2026-01-02T03:04:05.000006Z"


LEASES = st.none() | st.builds(
    lease,
    st.none() | st.sampled_from(["", ME, "other", "third"]),
    uid=st.sampled_from("uv"),
    lease_duration_seconds=st.none() | st.integers(-(2**31), 2**31 - 1),
    renew_time=st.none() | st.sampled_from([MINE, OTHERS]),
    lease_transitions=st.none() | st.integers(0, 2**31 - 1),
)


@given(st.lists(LEASES, min_size=1, max_size=6))
def test_whoever_led_has_his_time(history: list[Lease | None]) -> None:
    """From the last sight of another's name until he is released, his whole lease must pass."""
    view: View | None = None
    busy_until = 0.0
    for now, seen in enumerate(history):
        before, view = view, look(view, seen, now=float(now))
        changed = before is None or seen is None or before.lease is None or seen != before.lease
        if seen is not None and seen.spec.holder_identity not in (None, "", ME) and changed:
            busy_until = now + SECONDS
        released = (
            seen is not None
            and not seen.spec.holder_identity
            and seen.spec.lease_duration_seconds == 1
        )
        if released or view.ours:
            busy_until = 0.0
        assert view.ours or view.free_at >= busy_until
        record = leading.held(view, ME, SECONDS, NOW)
        assert 0 <= record["leaseTransitions"] < 2**31
        assert record["leaseDurationSeconds"] >= SECONDS
