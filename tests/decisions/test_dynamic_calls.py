"""What a CSI call is answered, or what is done for it first: never a volume that is somebody's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import (
    Differs,
    InUse,
    NoRoom,
    NotNow,
    OutOfRange,
    Room,
    Unknown,
    Wrong,
)
from localvolume.dynamic.model import (
    AnswerCall,
    Call,
    CutGroupCall,
    GrowCall,
    GrowCalled,
    Hold,
    Keep,
    Make,
    MakeCalled,
    ModifyCall,
    Publish,
    Purge,
    RemoveCall,
    RemoveCalled,
    Retire,
    SnapshotCall,
    TakeAway,
)
from localvolume.dynamic.plan.calls.groups import group_key
from localvolume.dynamic.plan.calls.volumes import room_of
from localvolume.dynamic.plan.orphans import orphans_of
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import CSISource, PersistentVolume
from localvolume.volumes.attributes import Attributes
from localvolume.volumes.capacity import GIB, MIB
from tests.decisions.support_dynamic import (
    a,
    action,
    claim,
    facts,
    lvm_pool,
    planned,
    pool,
    record,
    storage_class,
    volume,
)
from tests.decisions.support_dynamic_calls import (
    ASKED,
    NAME,
    called,
    claimed,
    create,
    judged,
    refused,
)


def grow(size: int, limit: int = 0) -> GrowCall:
    return GrowCall(key=NAME, size_bytes=size, limit_bytes=limit)


REMOVE = RemoveCall(key=NAME)


# --- making ------------------------------------------------------------------------------------


def test_a_volume_is_made_in_the_pool_with_the_most_room() -> None:
    made = a(MakeCalled, judged(create(), pool(), pool(name="large", room=200 * GIB)))
    assert made.pool.name == "large"
    assert (made.record.name, made.record.directory, made.record.size_bytes) == (NAME, NAME, GIB)
    assert (made.record.driver, made.record.request) == (CSI_DRIVER, ASKED)
    assert (made.record.claim, made.record.claim_uid) == ("", "")


def test_what_is_made_for_a_call_is_missing_to_others() -> None:
    names = [create(60 * GIB, name=name) for name in ("pvc-1", "pvc-2")]
    found = planned(pool(), calls=names)
    assert isinstance(found["pvc-1"], MakeCalled)
    assert isinstance(a(AnswerCall, found["pvc-2"]).refusal, NoRoom)


def test_claims_are_served_before_calls() -> None:
    found = planned(pool(), claim(2, size="60Gi"), calls=[create(60 * GIB)])
    assert isinstance(found["pvc-2"], Make)
    assert isinstance(a(AnswerCall, found["pvc-1"]).refusal, NoRoom)


def test_no_room_says_which_pool_lacks_it() -> None:
    assert "pool fast: 100Gi of room left" in refused(NoRoom, create(101 * GIB), pool())


def test_a_size_that_would_be_too_large_is_out_of_range() -> None:
    asked, unit = create(GIB + 1, limit=GIB + MIB), lvm_pool()
    assert "may have" in refused(OutOfRange, asked, unit)
    fits = create(GIB + 1, limit=GIB + 4 * MIB)
    assert isinstance(judged(fits, unit), MakeCalled)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"problem": "parameter x is not known"}, "parameter x is not known"),
        ({"directory": "{{ .PVC.Namespace }}"}, "pathPattern needs a claim"),
        ({"affinity_keys": ("zone",)}, "nodeAffinityKey"),
        ({"undo_seconds": 60.0}, "undoPeriod"),
        ({"uid": "{{ .PVC.Annotations.owner }}"}, "owner"),
    ],
)
def test_what_only_a_claim_can_have_is_refused(wish: dict[str, Any], why: str) -> None:
    assert why in refused(Wrong, create(**wish), pool())


def test_no_undo_is_asked_for_by_zero() -> None:
    assert isinstance(judged(create(undo_seconds=0.0), pool()), MakeCalled)


def test_a_repeated_call_gets_its_volume() -> None:
    answer = a(AnswerCall, judged(create(), pool(called())))
    assert answer.refusal is None
    assert (answer.record, answer.pool and answer.pool.name) == (called(), "fast")


@pytest.mark.parametrize("state", ["making", "made"])
def test_what_a_call_began_is_completed_as_it_was_begun(state: str) -> None:
    made = a(MakeCalled, judged(create(), pool(called(state))))
    assert made.record == called(state)


@pytest.mark.parametrize("state", ["making", "made", "offered"])
def test_another_request_by_that_name_differs(state: str) -> None:
    begun = pool(called(state))
    assert ASKED in refused(Differs, create(request="something else"), begun)


def test_a_volume_that_is_not_the_drivers_is_never_found() -> None:
    assert "not the CSI driver's" in refused(Differs, create(), pool(record()))
    assert "not the CSI driver's" in refused(Wrong, REMOVE, pool(record()))
    refused(Unknown, grow(GIB), pool(record()))


def test_a_claims_volume_is_found_if_it_has_what_is_asked_for() -> None:
    assert a(AnswerCall, judged(create(), pool(claimed()))).record == claimed()
    refused(Differs, create(2 * GIB), pool(claimed()))
    refused(Differs, create(mode="Block"), pool(claimed()))


def test_one_that_is_made_for_its_claim_is_waited_for() -> None:
    refused(NotNow, create(), pool(claimed("making")))


def test_one_that_is_being_removed_is_waited_for() -> None:
    gone = called("removed", trash="pvc-1.00000000")
    refused(NotNow, create(), pool(gone))


def test_a_name_that_a_persistentvolume_has_is_not_taken() -> None:
    assert "no pool of this node has it" in refused(NotNow, create(), volume(), pool())
    # Its pods would get an empty volume in place of the one that is away.
    other = csi_volume(NAME, number="mine", pool=None)
    assert "PersistentVolume pvc-mine" in refused(NotNow, create(), other, pool())


@pytest.mark.parametrize("call", [create(), REMOVE, grow(GIB)])
def test_nothing_is_promised_while_it_may_lie_in_a_pool_that_is_away(call: Call) -> None:
    away = pool(name="away", problem="it is not mounted")
    assert "it is not mounted" in refused(NotNow, call, pool(), away)


@pytest.mark.parametrize("call", [create(), REMOVE, grow(GIB)])
def test_a_record_that_cannot_be_read_is_left_alone(call: Call) -> None:
    damaged = pool(unreadable={NAME: "it is no JSON"})
    assert "it is no JSON" in refused(NotNow, call, damaged)


@pytest.mark.parametrize("call", [create(), REMOVE, grow(GIB)])
def test_two_records_are_for_people(call: Call) -> None:
    refused(NotNow, call, pool(called()), pool(called(), name="other"))


@pytest.mark.parametrize("call", [create(), REMOVE, grow(GIB)])
def test_nothing_is_done_with_what_is_known_of_a_pool_that_is_away(call: Call) -> None:
    assert "not mounted" in refused(NotNow, call, pool(called(), problem="it is not mounted"))


def test_a_directory_that_another_volume_has_is_not_taken() -> None:
    taken = replace(record(2), directory=NAME)
    assert "is another volume's" in refused(Wrong, create(), pool(taken))


def test_a_pool_that_another_agent_has_is_waited_for() -> None:
    taken = pool(name="taken", problem="another agent has it", taken=True)
    assert "another agent has it" in refused(NotNow, create(), pool(), taken)


def test_what_is_under_way_is_answered_later() -> None:
    assert not planned(pool(), calls=[create()], busy={NAME})


# --- growing -----------------------------------------------------------------------------------


def test_it_grows_where_there_is_room() -> None:
    grown = a(GrowCalled, judged(grow(3 * GIB), pool(called())))
    assert (grown.size_bytes, grown.record, grown.pool.name) == (3 * GIB, called(), "fast")


def test_it_does_not_grow_where_there_is_not() -> None:
    assert "2Gi needed" in refused(NoRoom, grow(3 * GIB), pool(called(), room=2 * GIB - 1))


@pytest.mark.parametrize("size", [1, GIB])
def test_one_that_is_large_enough_is_answered(size: int) -> None:
    assert a(AnswerCall, judged(grow(size), pool(called()))).record == called()


def test_a_claims_volume_grows_as_its_claim_asks() -> None:
    assert a(AnswerCall, judged(grow(GIB), pool(claimed()))).record == claimed()
    assert "as its claim asks" in refused(NotNow, grow(2 * GIB), pool(claimed()))


@pytest.mark.parametrize(("size", "limit"), [(1, GIB - 1), (3 * GIB, 3 * GIB - 1)])
def test_a_limit_that_cannot_be_kept_is_out_of_range(size: int, limit: int) -> None:
    refused(OutOfRange, grow(size, limit), pool(called()))


def test_what_grew_is_missing_to_others() -> None:
    other = replace(called(), name="pvc-2", directory="pvc-2")
    calls = [grow(60 * GIB), GrowCall(key="pvc-2", size_bytes=60 * GIB, limit_bytes=0)]
    found = planned(pool(called(), other), calls=calls)
    assert isinstance(found["pvc-1"], GrowCalled)
    assert isinstance(a(AnswerCall, found["pvc-2"]).refusal, NoRoom)


@pytest.mark.parametrize("state", ["making", "made", "removed"])
def test_an_incomplete_volume_does_not_grow(state: str) -> None:
    gone = called(state, trash="pvc-1.00000000" if state == "removed" else "")
    refused(Unknown, grow(3 * GIB), pool(gone))


# --- removing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["making", "made", "offered"])
def test_what_a_call_made_a_call_removes(state: str) -> None:
    removed = a(RemoveCalled, judged(REMOVE, pool(called(state))))
    assert (removed.record, removed.pool.name) == (called(state), "fast")


def test_one_that_is_not_there_is_gone() -> None:
    gone = called("removed", trash="pvc-1.00000000")
    for things in ([pool()], [pool(gone)]):
        answer = a(AnswerCall, judged(REMOVE, *things))
        assert (answer.record, answer.refusal) == (None, None)


def test_one_whose_pool_was_taken_out_of_the_configuration_is_not_said_to_be_gone() -> None:
    for object_of_it in (
        volume(pool=None, provisioner=CSI_DRIVER, phase="Released"),
        csi_volume(NAME, number="mine", pool=None, phase="Released"),
    ):
        why = refused(NotNow, REMOVE, object_of_it, pool())
        assert f"PersistentVolume {object_of_it.metadata.name} is of it" in why
        assert "no pool that is configured" in why
    # One of another handle says nothing of it.
    a(AnswerCall, judged(REMOVE, csi_volume("pvc-2", number="mine", pool=None), pool()))


@pytest.mark.parametrize(
    "call",
    [
        grow(2 * GIB),
        ModifyCall(key=NAME, attributes=Attributes(read_ops=2)),
        SnapshotCall(key="cut-1", source=NAME),
        create(name="pvc-2", source=NAME),
        CutGroupCall(key=group_key("group-1"), name="group-1", sources=(NAME,)),
    ],
)
def test_nor_is_it_said_of_such_a_one_that_there_is_none(call: Call) -> None:
    held = csi_volume(NAME, number="mine", pool=None)
    why = refused(NotNow, call, held, pool())
    assert why == (
        f"no pool that is configured here has it, and PersistentVolume {held.metadata.name} is of"
        " it: bring its pool back"
    )
    refused(Unknown, call, csi_volume("pvc-3", number="mine", pool=None), pool())
    # What is on record as removed is gone, whatever is still of it.
    refused(Unknown, call, held, pool(called("removed", trash="pvc-1.00000000")))


def test_what_a_call_removed_stays_on_record_as_long_as_an_object_is_of_it() -> None:
    """By that a repeated call knows that it is gone, and not in a pool that is not configured."""
    gone = called("removed", trash="pvc-1.00000000")
    other = csi_volume(NAME, number="mine", pool=None, phase="Released")
    for there in (other, volume(pool=None, provisioner=CSI_DRIVER, phase="Released")):
        a(Keep, action(there, pool(gone), **SERVED))
        assert a(AnswerCall, judged(REMOVE, there, pool(gone))).refusal is None
    a(Purge, action(csi_volume("pvc-2", number="mine", pool=None), pool(gone), **SERVED))


def test_what_an_answer_takes_the_place_of_is_looked_for_again() -> None:
    """Else nothing would be done until something else happens, as no look was called for."""
    gone = called("removed", trash="pvc-1.00000000")
    assert isinstance(action(pool(gone)), Purge)
    assert a(AnswerCall, judged(REMOVE, pool(gone))).look_again
    # Here nothing was to be done, or what is done for the call calls for a look itself.
    assert not a(AnswerCall, judged(create(), pool(called()))).look_again
    assert not a(AnswerCall, judged(REMOVE, pool())).look_again


@pytest.mark.parametrize("state", ["making", "made", "offered"])
def test_a_claims_volume_is_not_removed_by_a_call(state: str) -> None:
    assert "made for a claim" in refused(InUse, REMOVE, pool(claimed(state)))


def test_one_that_a_claim_has_is_not_removed() -> None:
    stock = volume(pool=None, provisioner=CSI_DRIVER)
    assert "a claim has it" in refused(InUse, REMOVE, stock, pool(called()))
    released = volume(pool=None, provisioner=CSI_DRIVER, phase="Released")
    assert isinstance(judged(REMOVE, released, pool(called())), RemoveCalled)


def test_one_that_a_claim_has_by_an_object_of_another_name_is_not_removed() -> None:
    other = csi_volume(NAME, number="mine", pool=None)
    assert "PersistentVolume pvc-mine" in refused(InUse, REMOVE, other, pool(called()))
    released = csi_volume(NAME, number="mine", pool=None, phase="Released")
    removed = a(RemoveCalled, judged(REMOVE, released, pool(called())))
    # Which is asked for again before anything goes.
    assert removed.volumes == ("pvc-mine",)


# --- beside claims -----------------------------------------------------------------------------

SERVED: dict[str, Any] = {"provisioners": {CSI_DRIVER}}


def test_what_no_call_was_told_of_is_taken_away() -> None:
    for state in ("making", "made"):
        taken = a(TakeAway, action(pool(called(state))))
        assert taken.spare
        assert taken.record == called(state)
    # While it is made, its name is busy; and who asks again gets it.
    assert not planned(pool(called("making")), busy={NAME})
    assert isinstance(judged(create(), pool(called("making"))), MakeCalled)
    # A complete copy is not empty: what is not empty is nobody's to take away.
    a(Keep, action(pool(called("made", made_from="pvc-9"))))
    a(TakeAway, action(pool(called("making", made_from="pvc-9"))))


def test_no_judgement_of_claims_touches_what_a_call_made() -> None:
    a(Keep, action(pool(called()), gone={""}, absent={NAME}))
    csi = storage_class(provisioner=CSI_DRIVER)
    waiting = claim(provisioner=CSI_DRIVER)
    assert "CSI call" in a(Keep, action(waiting, csi, pool(called()), **SERVED)).reason
    # Nobody is to wait for what a call only began.
    a(TakeAway, action(waiting, csi, pool(called("making")), **SERVED))


def test_what_a_call_removed_is_purged() -> None:
    gone = called("removed", trash="pvc-1.00000000")
    assert a(Purge, action(pool(gone))).record == gone


@pytest.mark.parametrize("phase", ["Bound", "Released"])
def test_the_volume_of_a_stock_provisioner_is_left_to_it(phase: str) -> None:
    stock = volume(pool=None, provisioner=CSI_DRIVER, phase=phase, finalizers=())
    kept = a(Keep, action(stock, pool(called()), **SERVED))
    assert "external-provisioner" in kept.reason


def test_a_claim_of_the_driver_gets_the_same_volume_under_its_name() -> None:
    csi, waiting = storage_class(provisioner=CSI_DRIVER), claim(provisioner=CSI_DRIVER)
    made = a(Make, action(waiting, csi, pool(), **SERVED))
    assert (made.record.driver, made.record.request) == (CSI_DRIVER, "")
    complete = pool(replace(made.record, state="made"))
    a(Publish, action(waiting, csi, complete, **SERVED))


def test_without_the_driver_such_a_claim_is_left_alone() -> None:
    csi, waiting = storage_class(provisioner=CSI_DRIVER), claim(provisioner=CSI_DRIVER)
    a(Keep, action(waiting, csi, pool()))


# --- room --------------------------------------------------------------------------------------


def room(*pools: Any, mode: Any = "Filesystem", **wish: Any) -> Room:
    return room_of(World(facts(*pools)), storage_class("", CSI_DRIVER, **wish), mode)


def test_room_is_that_of_the_pools_that_fit() -> None:
    both = pool(), pool(name="two", room=50 * GIB)
    assert room(*both) == Room(150 * GIB, 100 * GIB)
    assert room(*both, pools=frozenset({"two"})) == Room(50 * GIB, 50 * GIB)
    assert room(*both, mode="Block") == Room(0, 0)
    assert room(pool(problem="away")) == Room(0, 0)


def test_pools_on_one_filesystem_share_their_room() -> None:
    shared = pool(filesystem="8:1"), pool(name="two", filesystem="8:1")
    assert room(*shared).available_bytes == 100 * GIB


# --- its object --------------------------------------------------------------------------------


def csi_volume(handle: str, **changes: Any) -> PersistentVolume:
    made = volume(provisioner=CSI_DRIVER, **changes)
    source = CSISource(driver=CSI_DRIVER, volume_handle=handle)
    return structs.replace(made, spec=structs.replace(made.spec, local=None, csi=source))


def test_an_object_whose_handle_is_not_its_name_is_left_alone() -> None:
    """Its deletion would remove the volume of its name, and its pods use another's."""
    there = pool(claimed(), replace(claimed(), name="pvc-2", directory="pvc-2"))
    gone = csi_volume("pvc-2", deleted=True, phase="Released")
    held = a(Hold, action(gone, there, **SERVED))
    assert "'pvc-2' is not its name" in held.reason
    a(Retire, action(csi_volume(NAME, deleted=True, phase="Released"), there, **SERVED))


def test_a_stock_provisioners_volume_is_known_by_its_handle() -> None:
    named = replace(called(), name="csi-1", directory="csi-1")
    stock = csi_volume("csi-1", pool=None, phase="Released", finalizers=())
    assert "external-provisioner" in a(Keep, action(stock, pool(named), **SERVED)).reason


def test_a_snapshot_is_no_orphan() -> None:
    cut = called(snapshot_of="pvc-9")
    assert not orphans_of([pool(cut)], {}, [])
    assert [one.name for one in orphans_of([pool(called())], {}, [])] == [NAME]
