"""When a volume grows: only where there is room, only as far as is asked, and told until heard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as altered

from localvolume.backends.model import Usage
from localvolume.dynamic.model import (
    GiveBack,
    Grow,
    Hold,
    Keep,
    Make,
    Pool,
    Remember,
    Secure,
    TellGrown,
    TellInfeasible,
)
from localvolume.kube.objects import Condition, PersistentVolumeClaim
from localvolume.volumes.capacity import GIB
from localvolume.volumes.moments import written
from tests.decisions.support_dynamic import (
    NOW,
    a,
    action,
    adopted,
    bound,
    claim,
    old_pool,
    planned,
    pool,
    record,
    volume,
)
from tests.suite.names import KUTTI

MORE = bound(size="3Gi")


def told(
    why: str,
    size: str = "3Gi",
    asked: str = "3Gi",
    state: str = "ControllerResizeInfeasible",
    when: str | None = None,
) -> PersistentVolumeClaim:
    """A claim that asks for more, and whose status says why it cannot have that size."""
    failed = Condition(
        type="ControllerResizeError", status="True", message=why, last_transition_time=when
    )
    unused = Condition(type="Unused", status="False")
    found = bound(size=asked)
    status = altered(
        found.status,
        allocated_resources={"storage": size} if size else {},
        allocated_resource_statuses={"storage": state} if state else {},
        conditions=(unused, failed),
    )
    return altered(found, status=status)


def test_it_has_what_it_asks_for() -> None:
    a(Keep, action(bound(), volume(), pool(record())))


@pytest.mark.parametrize("room", [2 * GIB, 100 * GIB])
def test_it_grows_where_there_is_room(room: int) -> None:
    grow = a(Grow, action(MORE, volume(), pool(record(), room=room)))
    assert (grow.size_bytes, grow.record.size_bytes, grow.pool.name) == (3 * GIB, GIB, "fast")


@pytest.mark.parametrize("room", [0, 2 * GIB - 1])
def test_it_does_not_grow_where_there_is_not(room: int) -> None:
    said = a(TellInfeasible, action(MORE, volume(), pool(record(), room=room)))
    assert "2Gi needed" in said.reason
    assert (said.claim, said.size_bytes) == (MORE, 3 * GIB)


def test_what_the_claim_says_already_is_told_by_events() -> None:
    short = (volume(), pool(record(), room=0))
    why = a(TellInfeasible, action(MORE, *short)).reason
    there = told(why)
    held = a(Hold, action(there, *short))
    assert (held.reason, held.event, held.claim) == (why, "VolumeResizeFailed", there)
    # An API server that keeps no sizes and states of growing is not told again and again.
    a(Hold, action(told(why, size="", state=""), *short))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"why": "it cannot grow: pool fast: 1 of room left, 2Gi needed"}, id="why"),
        pytest.param({"size": "2Gi"}, id="size"),
        pytest.param({"state": "ControllerResizeInProgress"}, id="state"),
        pytest.param({"state": ""}, id="no-state"),
    ],
)
def test_what_it_says_is_kept_true(changes: dict[str, str]) -> None:
    short = (volume(), pool(record(), room=0))
    why = a(TellInfeasible, action(MORE, *short)).reason
    a(TellInfeasible, action(told(**{"why": why, **changes}), *short))


@pytest.mark.parametrize(("ago", "heeded"), [(0, False), (299, False), (300, True), (-1, True)])
def test_another_reason_is_written_after_a_while(ago: float, heeded: bool) -> None:
    """The room that is left changes with each write to the disk; a clock may have been set back."""
    short = (volume(), pool(record(), room=1))
    there = told("it cannot grow: less than that was left", when=written(NOW - ago))
    a(TellInfeasible if heeded else Hold, action(there, *short))


def test_a_size_is_known_in_the_form_that_the_server_keeps() -> None:
    short = (volume(), pool(record(), room=0))
    more = bound(size="25G")
    why = a(TellInfeasible, action(more, *short)).reason
    a(Hold, action(told(why, size="25G", asked="25G"), *short))


def test_it_grows_once_there_is_room_or_less_is_asked_for() -> None:
    why = a(TellInfeasible, action(MORE, volume(), pool(record(), room=GIB))).reason
    a(Grow, action(told(why), volume(), pool(record(), room=2 * GIB)))
    grow = a(Grow, action(told(why, asked="2Gi"), volume(), pool(record(), room=GIB)))
    assert grow.size_bytes == 2 * GIB


def test_a_pool_that_is_unwell_says_nothing_of_the_size() -> None:
    """It may be well in a moment: only an Event says so."""
    unwell = pool(record(), room=0)
    unwell = Pool(config=unwell.config, report=replace(unwell.report, unwell="quotas are off"))
    held = a(Hold, action(MORE, volume(), unwell))
    assert (held.reason, held.event) == (
        "it cannot grow: pool fast: quotas are off",
        "VolumeResizeFailed",
    )


def test_limits_apart_from_the_size_grow_with_it() -> None:
    graced = pool(record(soft_bytes=GIB, hard_bytes=2 * GIB), room=4 * GIB)
    # Of six that it may hold then, it may hold two now; the books of `pool` know of its size alone.
    assert "4Gi needed" in a(TellInfeasible, action(MORE, volume(), graced)).reason
    wider = pool(record(soft_bytes=GIB, hard_bytes=2 * GIB), room=5 * GIB)
    assert a(Grow, action(MORE, volume(), wider)).size_bytes == 3 * GIB


def test_two_do_not_grow_into_the_same_room() -> None:
    both = (bound(1, size="2Gi"), volume(1), bound(2, size="2Gi"), volume(2))
    actions = planned(*both, pool(record(1), record(2), room=GIB))
    assert sorted(type(one).__name__ for one in actions.values()) == ["Grow", "TellInfeasible"]


def test_nor_into_the_room_of_a_new_one() -> None:
    old = bound(1, size="2Gi", created="2027-01-15T06:00:00Z")
    actions = planned(old, volume(1), claim(2), pool(record(1), room=GIB))
    assert [type(one).__name__ for one in actions.values()] == ["Grow", "GiveBack"]


def test_where_sizes_mean_nothing_room_does_not_either() -> None:
    grow = action(
        bound(size="3Gi", class_name="theirs"),
        volume(provisioner=KUTTI, pool="old/id-of-old", class_name="theirs"),
        old_pool(record(enforced=False), room=0),
    )
    a(Grow, grow)


def begun(size: int, *records: Any, **changes: Any) -> Pool:
    """A pool with so little room because the first volume has taken some to grow by already."""
    found = pool(*records, **changes)
    usage = {**found.report.usage, records[0].name: Usage(begun_bytes=size)}
    return Pool(config=found.config, report=replace(found.report, usage=usage))


@pytest.mark.parametrize(("size", "room"), [(2 * GIB, 0), (3 * GIB, 0), (GIB, GIB)])
def test_what_an_attempt_has_taken_is_not_asked_for_again(size: int, room: int) -> None:
    a(Grow, action(MORE, volume(), begun(size, record(), room=room)))


def test_beyond_that_it_asks_for_what_is_missing() -> None:
    said = a(TellInfeasible, action(MORE, volume(), begun(GIB, record(), room=GIB - 1)))
    assert "1Gi needed" in said.reason


def test_what_an_attempt_has_taken_beyond_need_is_nobody_elses() -> None:
    old = bound(1, size="3Gi", created="2027-01-15T06:00:00Z")
    actions = planned(old, volume(1), claim(2), begun(4 * GIB, record(1), room=GIB - 1))
    assert [type(one) for one in actions.values()] == [Grow, GiveBack]


def test_while_it_grows_others_have_what_it_has_not_taken_yet() -> None:
    """What it has is missing from the room: it is not kept for it a second time."""
    growing = {"promised": [("fast", record(size_bytes=3 * GIB))], "busy": {"pvc-1"}}
    things = (MORE, volume(), claim(2))
    step_2 = action(*things, begun(GIB, record(), room=2 * GIB), name="pvc-2", **growing)
    a(Make, step_2)
    step_2 = action(*things, begun(GIB, record(), room=2 * GIB - 1), name="pvc-2", **growing)
    a(GiveBack, step_2)


def test_an_overbooked_pool_of_images_has_kept_nothing_for_it() -> None:
    """How large an image is counts for nothing there, so it is not missing from the room either."""
    image = record(backend="image", directory="")
    more = {"backend": "image", "room": 0}
    a(Grow, action(MORE, volume(), begun(2 * GIB, image, **more)))
    overbooked = begun(2 * GIB, image, overbook=1.0001, **more)
    a(TellInfeasible, action(MORE, volume(), overbooked))


def test_in_a_full_thin_pool_nothing_goes_on_growing() -> None:
    full = begun(2 * GIB, record())
    full = Pool(config=full.config, report=replace(full.report, data_percent=96.0))
    a(TellInfeasible, action(MORE, volume(), full))


def test_done_and_not_told() -> None:
    """After a crash between growing and telling: what is on record is told, once."""
    tell = a(TellGrown, action(MORE, volume(), pool(record(size_bytes=3 * GIB), room=0)))
    assert tell.size_bytes == 3 * GIB


def test_the_volume_was_told_and_the_claim_was_not() -> None:
    grown = (volume(size="3Gi"), pool(record(size_bytes=3 * GIB)))
    assert a(TellGrown, action(MORE, *grown)).size_bytes == 3 * GIB
    a(Keep, action(bound(size="3Gi", has="3Gi"), *grown))


def test_what_somebody_wrote_into_the_object_is_not_told() -> None:
    """The volume has not grown: its claim must not be told that it has."""
    a(Keep, action(MORE, volume(size="3Gi"), pool(record())))


def test_a_claim_that_is_not_bound_yet_is_told_nothing() -> None:
    pending = bound(phase="Pending", has="")
    a(Keep, action(pending, volume(size="1Gi"), pool(record())))


def test_more_than_was_asked_for_last_time() -> None:
    grow = a(
        Grow, action(bound(size="4Gi"), volume(), pool(record(size_bytes=2 * GIB), room=2 * GIB))
    )
    assert grow.size_bytes == 4 * GIB


@pytest.mark.parametrize("known", [pool(), pool(record(adopted=True))])
def test_an_adopted_volume_does_not_grow(known: Any) -> None:
    """Its size is not enforced: there is nothing that could be grown."""
    there = old_pool(*known.report.records.values())
    said = a(TellInfeasible, action(MORE, adopted(), there))
    assert "older provisioner" in said.reason
    assert a(Hold, action(told(said.reason), adopted(), there)).event == "VolumeResizeFailed"


@pytest.mark.parametrize(
    "nothing",
    [
        pytest.param(bound(size="3Gi", deleted=True), id="claim-being-deleted"),
        pytest.param(bound(2, size="3Gi", volume="pvc-1"), id="another-claims"),
    ],
)
def test_nothing_grows_for(nothing: Any) -> None:
    a(Keep, action(nothing, volume(), pool(record())))


def test_a_volume_that_is_not_known_here() -> None:
    a(Keep, action(MORE))


@pytest.mark.parametrize(
    "why",
    [
        pytest.param(pool(record(), problem="not mounted"), id="problem"),
        pytest.param(pool(record(), pool_id="another"), id="another-pool"),
        pytest.param(pool(unreadable={"pvc-1": "torn"}), id="unreadable"),
        pytest.param(pool(record(volume_uid="earlier")), id="an-earlier-object's"),
        pytest.param(pool(record(state="removed")), id="in-the-trash"),
        pytest.param(pool(record(state="making")), id="not-complete"),
    ],
)
def test_nothing_grows_that_is_not_surely_the_volume(why: Any) -> None:
    a(Hold, action(MORE, volume(), why))


def test_what_is_more_pressing_goes_first() -> None:
    a(Secure, action(MORE, volume(finalizers=()), pool(record())))
    a(Remember, action(MORE, volume(), pool(record(volume_uid=""))))
