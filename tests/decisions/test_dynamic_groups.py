"""What calls for groups of snapshots are answered, or what is done for them first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localvolume.backends.handles import member_handle
from localvolume.backends.model import Abilities, PoolReport, Record
from localvolume.dynamic.calls import Apart, Differs, InUse, NoRoom, NotNow, Unknown, Wrong
from localvolume.dynamic.model import (
    AnswerCall,
    CutGroup,
    CutGroupCall,
    Hold,
    Keep,
    MakeCalled,
    Pool,
    Purge,
    RemoveCall,
    RemoveGroup,
    RemoveGroupCall,
    SnapshotCall,
    TakeAway,
    Told,
)
from localvolume.dynamic.plan.calls.groups import group_key
from localvolume.volumes.capacity import GIB, MIB
from tests.decisions.support_dynamic import a, action, planned, pool
from tests.decisions.support_dynamic_calls import called, given_to, judged, refused

GROUP = "group-1"
TOGETHER = Abilities(enforce=True, block=True, no_copies="", no_groups="")
SOURCES = ("pvc-1", "pvc-2")
MEMBERS = tuple(member_handle(GROUP, one) for one in SOURCES)
CUT_NOW = CutGroupCall(key=group_key(GROUP), name=GROUP, sources=SOURCES)
CUT_AT = 1_800_000_000_000_000_000


def remove(*snapshots: str) -> RemoveGroupCall:
    return RemoveGroupCall(key=group_key(GROUP), name=GROUP, snapshots=snapshots or MEMBERS)


def images(*records: Record, **changes: Any) -> Pool:
    """A pool whose volumes can be cut together."""
    fields: dict[str, Any] = {"abilities": TOGETHER, "backend": "image", "room": 100 * GIB}
    return pool(*records, **(fields | changes))


def origin(number: int = 1, **changes: Any) -> Record:
    told = {"name": f"pvc-{number}", "directory": "", "backend": "image"}
    return called(**(told | changes))


def cut(number: int = 1, state: str = "offered", **changes: Any) -> Record:
    """One of the group's snapshots."""
    source = f"pvc-{number}"
    told: dict[str, Any] = {
        "name": member_handle(GROUP, source),
        "request": f"snapshot of {source}",
        "snapshot_of": source,
        "cut_at": CUT_AT if state != "making" else 0,
        "holds_bytes": 100 * MIB,
        "group": GROUP,
        "group_size": 2,
    }
    if state == "removed":
        told["trash"] = f"{told['name']}.12345678"
    return origin(number, state=state, **(told | changes))


def report(found: Pool, **changes: Any) -> Pool:
    return replace(found, report=replace(found.report, **changes))


ORIGINS = origin(1), origin(2)


def test_nothing_is_decided_while_something_is_done_with_its_snapshots() -> None:
    there = images(*ORIGINS, cut(1), cut(2))
    for call in (CUT_NOW, remove()):
        answer = planned(there, calls=[call], busy={MEMBERS[0]})[call.key]
        assert isinstance(a(AnswerCall, answer).refusal, NotNow)


# --- cutting -----------------------------------------------------------------------------------


def test_all_snapshots_are_cut_in_one_action() -> None:
    given = origin(1, size_bytes=3 * GIB, fs_type="xfs", uid=7), origin(2, volume_mode="Block")
    made = a(CutGroup, judged(CUT_NOW, images(*given)))
    assert (made.pool.name, made.origins) == ("fast", given)
    assert [one.name for one in made.records] == list(MEMBERS)
    for one, source in zip(made.records, given, strict=True):
        assert (one.group, one.group_size, one.state) == (GROUP, 2, "making")
        assert one.snapshot_of == source.name
        assert (one.size_bytes, one.fs_type, one.uid, one.volume_mode) == (
            source.size_bytes,
            source.fs_type,
            source.uid,
            source.volume_mode,
        )


def test_a_group_for_a_namespace_is_cut_of_what_claims_of_it_have() -> None:
    call, ready = replace(CUT_NOW, namespace="ns-a"), images(*ORIGINS)
    own = given_to("ns-a", "pvc-1")
    a(CutGroup, judged(call, ready, own, given_to("ns-a", "pvc-2")))
    for other in ([given_to("ns-b", "pvc-2")], [given_to(None, "pvc-2")], []):
        why = refused(Unknown, call, ready, own, *other)
        assert why == "no claim of namespace ns-a has volume pvc-2 any more"
    # A call by the socket names no namespace.
    a(CutGroup, judged(CUT_NOW, ready, given_to("ns-b", "pvc-1")))
    # What was cut before is the group, whoever has the volumes now.
    whole = images(*ORIGINS, cut(1), cut(2))
    assert a(AnswerCall, judged(call, whole, given_to("ns-b", "pvc-1"))).refusal is None


def test_a_group_has_room_for_all_or_is_refused() -> None:
    def with_room(room: int) -> Pool:
        # What volumes hold is not known: each may hold all of its 1 GiB.
        return report(images(*ORIGINS, room=room), usage={})

    # One of them would fit, and both do not.
    little = with_room(3 * GIB // 2)
    assert "and the snapshots may come to hold 2Gi" in refused(NoRoom, CUT_NOW, little)
    a(MakeCalled, judged(SnapshotCall(key="alone", source="pvc-1"), little))
    a(CutGroup, judged(CUT_NOW, with_room(3 * GIB)))
    # What one call has taken, the next one has not.
    other = CutGroupCall(key=group_key("group-2"), name="group-2", sources=SOURCES)
    found = planned(with_room(3 * GIB), calls=[CUT_NOW, other])
    assert isinstance(a(AnswerCall, found[other.key]).refusal, NoRoom)


@pytest.mark.parametrize(
    ("there", "kind", "text"),
    [
        ([images()], Unknown, "there is no volume pvc-1, pvc-2 here"),
        (
            [images(origin(1))],
            Apart,
            "node node-1 has pvc-1, and not pvc-2: the volumes of a group",
        ),
        (
            [images(origin(1)), images(origin(2), name="slow")],
            Apart,
            "they are in the pools fast, slow of node node-1",
        ),
        (
            [images(*ORIGINS, abilities=replace(TOGETHER, no_groups="it cannot"))],
            Apart,
            "it cannot",
        ),
        ([images(*ORIGINS, abilities=replace(TOGETHER, no_copies="nor copy"))], Apart, "nor copy"),
        ([report(images(*ORIGINS), unwell="it fails")], NotNow, "it fails"),
        ([images(origin(1), origin(2, state="removed", trash="t"))], Apart, "and not pvc-2"),
        ([images(origin(1), cut(2, name="pvc-2", group=""))], Apart, "and not pvc-2"),
        ([images(origin(1), origin(2, driver=""))], Apart, "and not pvc-2"),
        ([images(origin(1)), images(name="slow", problem="away")], NotNow, "pool slow: away"),
        (
            [report(images(*ORIGINS), unreadable={MEMBERS[1]: "torn"})],
            NotNow,
            "a record of it that cannot be read: torn",
        ),
    ],
)
def test_what_cannot_be_cut_together_is_refused_with_the_reason(
    there: list[Pool], kind: Any, text: str
) -> None:
    assert text in refused(kind, CUT_NOW, *there)


def test_a_group_that_is_cut_is_found() -> None:
    answer = a(AnswerCall, judged(CUT_NOW, images(*ORIGINS, cut(1), cut(2))))
    assert answer.refusal is None
    # Also once its volumes are gone.
    assert a(AnswerCall, judged(CUT_NOW, images(cut(1), cut(2)))).refusal is None


@pytest.mark.parametrize("states", [("made", "made"), ("offered", "made"), ("made", "offered")])
def test_a_whole_group_that_nobody_was_told_of_is_offered_and_not_cut_again(
    states: tuple[str, str],
) -> None:
    there = cut(1, states[0]), cut(2, states[1])
    found = a(CutGroup, judged(CUT_NOW, images(*ORIGINS, *there)))
    assert (found.records, found.origins) == (there, ())


@pytest.mark.parametrize(
    "left",
    [
        [cut(1, "making")],
        [cut(1, "made")],
        [cut(1, "made"), cut(2, "making")],
        [cut(1, "making"), cut(2, "making")],
    ],
)
def test_what_is_left_of_an_attempt_is_taken_away_before_the_next(left: list[Record]) -> None:
    there = images(*ORIGINS, *left)
    assert "is taken away first" in refused(NotNow, CUT_NOW, there)
    found = planned(there, calls=[CUT_NOW])
    assert {one.name for one in left} == {
        name for name, one in found.items() if isinstance(one, TakeAway) and one.spare
    }


def test_snapshots_of_a_whole_group_stay_without_a_call() -> None:
    for states in (("made", "made"), ("offered", "made"), ("offered", "offered")):
        found = planned(images(*ORIGINS, cut(1, states[0]), cut(2, states[1])))
        assert all(isinstance(found[name], Keep) for name in MEMBERS)


def test_what_was_told_of_is_not_taken_away_even_if_another_is_missing() -> None:
    found = planned(images(*ORIGINS, cut(1)))
    assert isinstance(found[MEMBERS[0]], Keep)
    away = report(images(*ORIGINS, cut(1, "made")), problem="it is away")
    assert isinstance(planned(away)[MEMBERS[0]], Keep | Hold)


@pytest.mark.parametrize(
    ("there", "kind", "text"),
    [
        ([cut(1), cut(3)], Differs, "of pvc-1, pvc-3"),
        ([cut(1, group_size=3), cut(2, group_size=3), cut(3, group_size=3)], Differs, "of others"),
        ([cut(1, "removed"), cut(2)], NotNow, "is being removed"),
        ([cut(1)], InUse, "removed in part"),
    ],
)
def test_a_name_that_has_another_group(there: list[Record], kind: Any, text: str) -> None:
    assert text in refused(kind, CUT_NOW, images(*ORIGINS, *there))


def test_nothing_is_done_while_something_is_done_with_its_snapshots() -> None:
    there = images(*ORIGINS, cut(1, "making"))
    found = planned(there, calls=[CUT_NOW], busy=[MEMBERS[0]])
    assert a(AnswerCall, found[CUT_NOW.key]).refusal
    assert MEMBERS[0] not in found
    # And while something of an earlier attempt goes, of which no record tells any more.
    found = planned(images(*ORIGINS), calls=[CUT_NOW], busy=[MEMBERS[1]])
    assert a(AnswerCall, found[CUT_NOW.key]).refusal
    assert CUT_NOW.key not in planned(images(*ORIGINS), calls=[CUT_NOW], busy=[CUT_NOW.key])


def test_a_group_in_two_pools_is_touched_by_nobody() -> None:
    twice = images(*ORIGINS, cut(1), cut(2)), images(cut(1), cut(2), name="copied")
    for call in (CUT_NOW, remove()):
        assert "two pools" in refused(NotNow, call, *twice)


# --- one of a group ----------------------------------------------------------------------------


def test_one_of_a_group_is_neither_removed_nor_cut_alone() -> None:
    there = images(*ORIGINS, cut(1), cut(2))
    alone = RemoveCall(key=MEMBERS[0], snapshot=True)
    assert "removed as a whole" in refused(Wrong, alone, there)
    for state in ("making", "made", "offered"):
        again = SnapshotCall(key=MEMBERS[0], source="pvc-1")
        there = images(*ORIGINS, cut(1, state), cut(2))
        assert f"a snapshot of group {GROUP}" in refused(Differs, again, there)


# --- removing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("states", [("offered", "offered"), ("made", "offered")])
def test_a_group_is_removed_as_a_whole(states: tuple[str, str]) -> None:
    there = cut(1, states[0]), cut(2, states[1])
    found = a(RemoveGroup, judged(remove(), images(*ORIGINS, *there)))
    assert (found.pool.name, found.records) == ("fast", there)


def test_a_group_that_may_be_in_a_pool_that_is_not_configured_is_not_said_to_be_gone() -> None:
    told = Told(handles={GROUP: "group snapshot content mine"})
    answer = a(AnswerCall, action(images(), name=remove().key, calls=[remove()], told=told))
    assert isinstance(answer.refusal, NotNow)
    assert "group snapshot content mine is of it" in answer.reason
    gone = images(cut(1, "removed"), cut(2, "removed"))
    answer = a(AnswerCall, action(gone, name=remove().key, calls=[remove()], told=told))
    assert answer.refusal is None
    for name in MEMBERS:
        a(Keep, action(gone, name=name, told=told))
        a(Purge, action(gone, name=name))


def test_a_removal_that_was_not_completed_goes_on() -> None:
    left = cut(2)
    for there in ([cut(1, "removed"), left], [left]):
        assert a(RemoveGroup, judged(remove(), images(*there))).records == (left,)
    found = planned(images(cut(1, "removed"), left), calls=[remove()])
    assert isinstance(found[MEMBERS[0]], Purge)


@pytest.mark.parametrize("asked", [("other",), (MEMBERS[0],), (*MEMBERS, "other")])
def test_a_list_that_is_another_groups_is_refused(asked: tuple[str, ...]) -> None:
    there = images(*ORIGINS, cut(1), cut(2))
    assert "and snapshot_ids names" in refused(Wrong, remove(*asked), there)


def test_no_list_matches_no_group() -> None:
    call = replace(remove(), snapshots=())
    assert "names none" in refused(Wrong, call, images(cut(1), cut(2)))


def test_a_group_that_is_not_there_is_removed_once_that_is_sure() -> None:
    for there in ([], [cut(1, "removed"), cut(2, "removed")]):
        assert a(AnswerCall, judged(remove(), images(*there))).refusal is None
    away = images(name="slow", problem="it is away")
    assert "pool slow: it is away" in refused(NotNow, remove(), images(), away)
    torn: PoolReport = replace(images().report, unreadable={"x": "torn"})
    assert "torn" in refused(NotNow, remove(), replace(images(), report=torn))
