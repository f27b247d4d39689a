"""What is done about a FlexVolume PersistentVolume of this node: noted, told, grown, let go."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.flexvolume.driver import Owned
from localvolume.flexvolume.plan.binding import tags_of
from localvolume.flexvolume.plan.keep import (
    Action,
    Facts,
    Grow,
    Leave,
    LetGo,
    Note,
    TellClaimed,
    is_noted_there,
    judge,
    may_let_go,
    notes_of_the_end,
)
from localvolume.kube.objects import (
    ClaimRef,
    FlexVolumeSource,
    Meta,
    PersistentVolume,
    PersistentVolumeClaim,
    PVCSpec,
    PVCStatus,
    PVSpec,
    PVStatus,
    Requests,
)
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from tests.suite.units import GIB

NODE = NodeFacts("node-1", "n-uid", "node-1", {marks.HOSTNAME_LABEL: "node-1"})
DELETED = "2026-01-01T00:00:00Z"


def volume(phase: str = "Bound", **meta: Any) -> PersistentVolume:
    return PersistentVolume(
        metadata=Meta(
            **{"name": "pvc-1", "uid": "uid-1", "finalizers": (marks.FINALIZER,), **meta}
        ),
        spec=PVSpec(
            flex_volume=FlexVolumeSource(driver=marks.FLEX_DRIVER),
            persistent_volume_reclaim_policy="Delete",
            claim_ref=ClaimRef(namespace="ns", name="claim", uid="c-1"),
        ),
        status=PVStatus(phase=phase),
    )


def owned(**changed: str) -> Owned:
    tags = {**tags_of(volume()), "state": "made", **changed}
    kept = {key: value for key, value in tags.items() if value}
    return Owned(name="pvc-1", size_bytes=GIB, tags=kept, id="lv-1")


def claim(asks: str = "1Gi", has: str = "1Gi", **meta: Any) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=Meta(**{"namespace": "ns", "name": "claim", "uid": "c-1", **meta}),
        spec=PVCSpec(resources=Requests(requests={"storage": asks})),
        status=PVCStatus(capacity={"storage": has}),
    )


def judged(
    live: PersistentVolume,
    there: Owned | None = None,
    its: PersistentVolumeClaim | None = None,
    *,
    grows: bool = True,
) -> list[Action]:
    facts = Facts(
        node=NODE,
        drivers=marks.FLEX_DRIVERS,
        grows=grows,
        owned={"pvc-1": there} if there else {},
        claims={"ns/claim": its} if its else {},
    )
    return judge(live, facts)


@pytest.mark.parametrize("source", [None, FlexVolumeSource(driver="other/driver")])
def test_one_of_another_driver_is_none_of_ours(source: FlexVolumeSource | None) -> None:
    """Also where it has our finalizer and the name of a volume of ours."""
    foreign = replace(volume(), spec=replace(volume().spec, flex_volume=source))
    assert judged(foreign, owned(policy="Retain"), claim("2Gi")) == []
    going = replace(foreign, metadata=volume(deletion_timestamp=DELETED).metadata)
    assert judged(replace(going, status=PVStatus(phase="Released")), owned()) == []


def test_one_of_another_node_is_left_and_that_is_said() -> None:
    other = volume(labels={marks.NODE_LABEL: "node-2"}, deletion_timestamp=DELETED)
    assert judged(other, owned()) == [
        Leave("nothing is done about it: it is bound to the node node-2")
    ]


def test_what_cannot_be_read_is_left_and_that_is_said() -> None:
    unreadable = dataclasses.replace(owned(), problem="its note is no JSON")
    assert judged(volume(), unreadable) == [
        Leave("nothing is done about it now: its note is no JSON")
    ]


def test_what_was_never_mounted_and_what_is_an_earlier_objects_is_the_mounts_to_decide() -> None:
    assert judged(volume()) == []
    for uid in ("", "uid-0"):
        assert judged(volume(), owned(**{"pv-uid": uid, "policy": "Retain"})) == []


@pytest.mark.parametrize("phase", ["Bound", "Released", "Available"])
def test_another_policy_is_noted_whatever_the_phase(phase: str) -> None:
    actions = judged(volume(phase), owned(policy="Retain", state=""))
    note = Note({"policy": "Delete", "claim": "ns/claim", "claim-uid": "c-1"})
    assert actions == [note]
    assert judged(volume(phase), owned(policy="", state="")) == [note], "none was noted yet"
    assert judged(volume(phase), owned(state="")) == []


@pytest.mark.parametrize("before", [{"claim": "ns/other"}, {"claim-uid": "c-0"}, {"claim-uid": ""}])
def test_another_claim_is_noted_and_one_that_the_object_has_lost_is_kept(
    before: dict[str, str],
) -> None:
    """Somebody empties claimRef, for another claim to get the volume: until one has, whose data it
    is stays noted."""
    note = Note({"policy": "Delete", "claim": "ns/claim", "claim-uid": "c-1"})
    assert judged(volume("Released"), owned(**before)) == [note]
    reserved = ClaimRef(namespace="ns", name="next")
    for ref in (None, reserved):
        free = replace(volume("Available"), spec=replace(volume().spec, claim_ref=ref))
        assert judged(free, owned(**before)) == []
        assert judged(free, owned(**before, policy="Retain")) == [Note({"policy": "Delete"})]


def test_a_claim_that_has_had_the_volume_is_told() -> None:
    assert judged(volume(), owned()) == [TellClaimed()]
    assert judged(volume("Released"), owned()) == []


# --- its end -------------------------------------------------------------------------------------


def test_one_that_is_deleted_is_let_go_once_it_is_not_bound() -> None:
    for there in (owned(), None):
        for phase in ("Released", "Failed", "Available", "Pending", ""):
            assert judged(volume(phase, deletion_timestamp=DELETED), there) == [LetGo()]
        assert judged(volume("Bound", deletion_timestamp=DELETED), there) == []


def test_where_somebody_else_holds_a_deleted_one_its_policy_still_counts() -> None:
    held = volume("Released", deletion_timestamp=DELETED, finalizers=("example.com/held",))
    assert judged(held, owned(policy="Retain", claim="ns/other")) == [Note({"policy": "Delete"})]
    assert judged(held, owned(claim="ns/other")) == []
    # Nothing else is done about it, though it is bound still.
    bound = replace(held, status=PVStatus(phase="Bound"))
    assert judged(bound, owned(), claim("2Gi")) == []


def test_only_the_very_object_is_let_go_as_it_is_now() -> None:
    seen = volume("Released", deletion_timestamp=DELETED)
    assert may_let_go(seen, seen)
    assert not may_let_go(volume("Released", uid="uid-2", deletion_timestamp=DELETED), seen)
    assert not may_let_go(volume("Bound", deletion_timestamp=DELETED), seen)
    assert not may_let_go(volume("Released"), seen)
    assert not may_let_go(volume("Released", deletion_timestamp=DELETED, finalizers=()), seen)


def test_its_end_is_noted_with_its_own_volume_alone() -> None:
    assert notes_of_the_end(volume()) == {
        "pv-uid": "uid-1",
        "claim": "ns/claim",
        "claim-uid": "c-1",
        "policy": "Delete",
        "ended": "uid-1",
    }
    assert is_noted_there(volume(), owned())
    for uid in ("", "uid-0"):
        assert not is_noted_there(volume(), owned(**{"pv-uid": uid}))
    assert not is_noted_there(volume(), None)


# --- growing -------------------------------------------------------------------------------------


def test_what_the_claim_asks_for_beyond_what_it_has_or_was_told_is_grown() -> None:
    more = claim("2Gi")
    assert judged(volume(), owned(), more) == [TellClaimed(), Grow(more, GIB, 2 * GIB)]
    # It has grown, and nobody was told: its filesystem may not have.
    large = dataclasses.replace(owned(), size_bytes=2 * GIB)
    assert judged(volume(), large, more) == [TellClaimed(), Grow(more, 2 * GIB, 2 * GIB)]
    assert judged(volume(), large, claim("2Gi", "2Gi")) == [TellClaimed()]
    # It was told of more than there is.
    told = claim("2Gi", "2Gi")
    assert judged(volume(), owned(), told) == [TellClaimed(), Grow(told, GIB, 2 * GIB)]


@pytest.mark.parametrize(
    "its",
    [
        None,
        claim(),
        claim("2Gi", uid="c-2"),
        claim("2Gi", deletion_timestamp=DELETED),
        claim("much"),
        claim("2Gi", "little"),
        replace(claim("2Gi"), status=PVCStatus()),
    ],
    ids=["none", "no more", "another", "deleted", "no quantity", "no size", "not told of any"],
)
def test_nothing_grows_for_any_other_claim(its: PersistentVolumeClaim | None) -> None:
    assert judged(volume(), owned(), its) == [TellClaimed()]


def test_nothing_grows_where_sizes_mean_nothing_or_the_object_is_not_bound() -> None:
    assert judged(volume(), owned(), claim("2Gi"), grows=False) == [TellClaimed()]
    assert judged(volume("Released"), owned(), claim("2Gi")) == []


def test_nothing_grows_where_the_object_names_no_claim() -> None:
    """As where somebody has emptied claimRef, and the phase has yet to follow."""
    nobodys = replace(volume(), spec=replace(volume().spec, claim_ref=None))
    assert judged(nobodys, owned(), claim("2Gi")) == [TellClaimed()]
