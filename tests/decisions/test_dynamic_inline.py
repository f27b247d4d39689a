"""Pods' own volumes: made within the pools' limits, and removed with their pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localvolume.backends.model import Record
from localvolume.config.pools import InlineConfig
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import (
    Differs,
    NoRoom,
    NotNow,
    OutOfRange,
    Refused,
    Unknown,
    WantedInline,
    Wrong,
)
from localvolume.dynamic.model import (
    AnswerCall,
    AskPod,
    Call,
    GrowCall,
    InlineCall,
    Keep,
    MakeCalled,
    Pool,
    Purge,
    RemoveCall,
    RemoveCalled,
    RemoveInline,
    RemoveInlineCall,
    SnapshotCall,
    TakeAway,
)
from localvolume.dynamic.plan.orphans import orphans_of
from localvolume.volumes.capacity import GIB
from tests.decisions.support_dynamic import a, action, lvm_pool, planned, pool, record
from tests.decisions.support_dynamic_calls import called, create

NAME = "csi-" + "a" * 64
UID = "11111111-2222-3333-4444-555555555555"
ASKED = "1 GiB of a pod's own"
LIMITS = InlineConfig(largest_bytes=2 * GIB, total_bytes=3 * GIB)


def open_pool(*records: Record, **changes: Any) -> Pool:
    return pool(*records, **({"inline": LIMITS} | changes))


def ask(size: int = GIB, *, request: str = ASKED, **changes: Any) -> InlineCall:
    told = {"name": NAME, "pod": "ns/web", "pod_uid": UID} | changes
    wanted = WantedInline(size_bytes=size, **told)
    return InlineCall(key=wanted.name, wanted=wanted, request=request)


def own(state: str = "offered", name: str = NAME, **changes: Any) -> Record:
    """A pod's own volume."""
    told = {
        "claim": "",
        "claim_uid": "",
        "volume_uid": "",
        "class_name": "",
        "driver": CSI_DRIVER,
        "request": ASKED,
        "pod": "ns/web",
        "pod_uid": UID,
    }
    return replace(record(1, state, **(told | changes)), name=name, directory=name)


def judged(call: Call, *pools: Pool, **changes: Any) -> Any:
    return action(*pools, name=call.key, calls=[call], **changes)


def refused(kind: type[Refused], call: Call, *pools: Pool, **changes: Any) -> str:
    answer = a(AnswerCall, judged(call, *pools, **changes))
    assert type(answer.refusal) is kind, answer
    return answer.reason


# --- making ------------------------------------------------------------------------------------


def test_it_is_made_in_the_pool_with_the_most_room_of_those_that_let_pods() -> None:
    closed, large = pool(name="closed", room=900 * GIB), open_pool(name="large", room=200 * GIB)
    made = a(MakeCalled, judged(ask(), open_pool(), closed, large))
    assert made.pool.name == "large"
    of = made.record
    assert (of.name, of.driver, of.request) == (NAME, CSI_DRIVER, ASKED)
    assert (of.pod, of.pod_uid, of.claim, of.class_name) == ("ns/web", UID, "", "")


def test_a_pool_may_be_named() -> None:
    pools = [open_pool(), open_pool(name="large", room=200 * GIB)]
    assert a(MakeCalled, judged(ask(pool="fast"), *pools)).pool.name == "fast"
    assert "'none'" in refused(Wrong, ask(pool="none"), *pools).replace('"', "'")


def test_the_classes_of_a_pool_say_nothing_of_pods() -> None:
    assert a(MakeCalled, judged(ask(), open_pool(classes=("gold",)))).pool.name == "fast"


def test_no_pool_does_unless_its_configuration_says_so() -> None:
    assert "`inline`" in refused(Wrong, ask(), pool())
    assert "closed" in refused(Wrong, ask(pool="closed"), pool(name="closed"), open_pool())


def test_it_is_no_larger_than_one_may_be() -> None:
    a(MakeCalled, judged(ask(2 * GIB), open_pool()))
    assert "at most 2Gi" in refused(OutOfRange, ask(2 * GIB + 1), open_pool())
    other = open_pool(
        name="large", inline=replace(LIMITS, largest_bytes=9 * GIB, total_bytes=9 * GIB)
    )
    assert a(MakeCalled, judged(ask(4 * GIB), open_pool(), other)).pool.name == "large"


@pytest.mark.parametrize("state", ["making", "made", "offered", "removed"])
def test_all_of_them_take_no_more_than_the_total(state: str) -> None:
    """What is not deleted yet counts: who makes and ends pods over and over gets no more by it."""
    trash = {"trash": f"{NAME}.00000000"} if state == "removed" else {}
    other = own(state, name="csi-" + "b" * 64, size_bytes=2 * GIB, **trash)
    a(MakeCalled, judged(ask(GIB), open_pool(other)))
    said = refused(NoRoom, ask(GIB + 1), open_pool(other))
    assert "1Gi are left of the 3Gi" in said


def test_those_being_made_and_those_of_this_very_plan_count_as_well() -> None:
    coming = own("making", name="csi-" + "b" * 64, size_bytes=2 * GIB)
    under_way = {"promised": [("fast", coming)], "busy": {coming.name}}
    a(MakeCalled, judged(ask(GIB), open_pool(), **under_way))
    refused(NoRoom, ask(2 * GIB), open_pool(), **under_way)
    a(MakeCalled, judged(ask(GIB), open_pool(coming), **under_way))
    second = ask(2 * GIB, name="csi-" + "b" * 64)
    made = planned(open_pool(), calls=[ask(2 * GIB), second])
    assert sorted(type(one).__name__ for one in made.values()) == ["AnswerCall", "MakeCalled"]


def test_volumes_of_others_are_not_counted_but_leave_no_room() -> None:
    a(MakeCalled, judged(ask(), open_pool(called(size_bytes=50 * GIB))))
    said = refused(NoRoom, ask(), open_pool(room=GIB // 2))
    assert "of room left" in said


def test_a_filesystem_is_one_that_can_be_made_there() -> None:
    assert "ext4 or xfs" in refused(Wrong, ask(fs_type="ntfs"), open_pool())
    assert "needs the backend" in refused(NoRoom, ask(fs_type="xfs"), open_pool())
    of_lvm = lvm_pool(inline=LIMITS)
    assert a(MakeCalled, judged(ask(fs_type="xfs"), of_lvm)).record.fs_type == "xfs"


def test_nothing_is_made_where_a_claims_volume_lies() -> None:
    """A class' pathPattern names directories as it likes."""
    there = replace(called(), directory=NAME)
    assert NAME in refused(Wrong, ask(), open_pool(there))


def test_a_repeated_call_gets_what_the_first_has_made() -> None:
    answer = a(AnswerCall, judged(ask(), open_pool(own())))
    assert answer.refusal is None
    assert answer.record == own()
    assert a(MakeCalled, judged(ask(), open_pool(own("making")))).record == own("making")
    # Also where the configuration lets pods have none any more.
    assert a(AnswerCall, judged(ask(), pool(own()))).record == own()


def test_what_another_has_is_never_given() -> None:
    named = replace(called(), name=NAME, directory=NAME)
    assert "no pod's own" in refused(Differs, ask(), open_pool(named))
    refused(Differs, ask(pod_uid="22222222"), open_pool(own()))
    refused(Differs, ask(request="2 GiB"), open_pool(own()))
    trashed = own("removed", trash=f"{NAME}.00000000")
    refused(NotNow, ask(), open_pool(trashed))
    unread = open_pool(unreadable={NAME: "it is torn"})
    refused(NotNow, ask(), unread)


# --- for all other calls it is not there -------------------------------------------------------


def test_no_other_call_knows_it() -> None:
    there = open_pool(own())
    grow = GrowCall(key=NAME, size_bytes=2 * GIB, limit_bytes=0)
    refused(Unknown, grow, there)
    assert a(AnswerCall, judged(RemoveCall(key=NAME), there)).record is None
    assert a(AnswerCall, judged(RemoveCall(key=NAME, snapshot=True), there)).record is None
    refused(Unknown, SnapshotCall(key="cut", source=NAME), there)
    refused(Unknown, create(source=NAME, name="copy"), there)
    refused(Differs, create(name=NAME), there)


def test_it_is_no_orphan() -> None:
    assert not orphans_of([open_pool(own())], {}, [])


# --- its end -----------------------------------------------------------------------------------


def test_the_kubelet_ends_it() -> None:
    removed = a(RemoveCalled, judged(RemoveInlineCall(key=NAME), open_pool(own())))
    assert (removed.record, removed.refusal) == (own(), None)
    # Where the configuration lets pods have none any more, too.
    a(RemoveCalled, judged(RemoveInlineCall(key=NAME), pool(own())))


@pytest.mark.parametrize(
    "there",
    [
        open_pool(),
        open_pool(replace(called(), name=NAME, directory=NAME)),
        open_pool(own("removed", trash=f"{NAME}.00000000")),
        open_pool(problem="the disk is gone"),
        open_pool(unreadable={NAME: "it is torn"}),
    ],
)
def test_the_kubelets_call_never_waits_for_a_pool_nor_touches_others(there: Pool) -> None:
    """What a pool that is away has of it goes once that is back."""
    answer = a(AnswerCall, judged(RemoveInlineCall(key=NAME), there))
    assert (answer.refusal, answer.record) == (None, None)


def test_what_was_removed_is_purged_at_once() -> None:
    a(Purge, action(open_pool(own("removed", trash=f"{NAME}.00000000")), name=NAME))


@pytest.mark.parametrize("state", ["making", "made"])
def test_what_no_pod_was_given_is_taken_away(state: str) -> None:
    assert a(TakeAway, action(open_pool(own(state)), name=NAME)).spare


def idle(**changes: Any) -> Any:
    return action(open_pool(own()), name=NAME, **changes)


def test_nothing_is_asked_of_a_pod_that_has_something_mounted() -> None:
    a(Keep, idle(pods_with_mounts={UID}))
    a(Keep, idle(pods_with_mounts={UID}, pods_over={UID: True}))


def test_it_goes_only_once_the_api_server_says_that_the_pod_is_over() -> None:
    assert a(AskPod, idle()).record == own()
    a(AskPod, idle(pods_over={"another": True}))
    a(Keep, idle(pods_over={UID: False}))
    assert a(RemoveInline, idle(pods_over={UID: True})).record == own()


def test_it_stays_while_its_pool_cannot_be_seen() -> None:
    broken = open_pool(own(), problem="the disk is gone")
    a(Keep, action(broken, name=NAME, pods_over={UID: True}))
