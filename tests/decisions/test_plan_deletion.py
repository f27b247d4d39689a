"""Deletion: which volumes are reclaimed and cleaned, and which are never touched."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.kube.objects import ClaimRef
from localvolume.static.model import Action, Clean, CleanFirst, Keep, LetGo, Reclaim, Withdraw
from localvolume.static.plan.plan import (
    EVENT_FAILED_DELETE,
    EVENT_UNKNOWN_POLICY,
    EVENT_UNSUPPORTED_POLICY,
)
from localvolume.volumes import marks
from tests.decisions.support_plan import (
    a,
    block,
    bound_to,
    class_facts,
    filesystem,
    held,
    only_step,
    released_from,
    steps_of,
    volume_of,
)

DISK = filesystem()
PHASES = ("", "Pending", "Available", "Bound", "Released", "Failed", "Lost")
POLICIES = ("Delete", "Retain", "Recycle", "Shred", None)
EVERY = list(product(PHASES, POLICIES))
TOUCHES_DATA = Clean | Reclaim | CleanFirst


# --- of all volumes only Released ones with reclaim policy Delete go -----------------------------


@pytest.mark.parametrize(("phase", "policy"), EVERY)
def test_only_a_released_volume_with_policy_delete_is_reclaimed(
    phase: str, policy: str | None
) -> None:
    volume = released_from(DISK, phase=phase, policy=policy)
    reclaimed = [
        action for action in steps_of([DISK], [volume]) if isinstance(action, TOUCHES_DATA)
    ]
    assert [type(action) for action in reclaimed] == (
        [Reclaim] if (phase, policy) == ("Released", "Delete") else []
    )


@pytest.mark.parametrize(("phase", "policy"), EVERY)
def test_without_a_deletion_no_claimed_volume_is_withdrawn_or_let_go(
    phase: str, policy: str | None
) -> None:
    volume = released_from(DISK, phase=phase, policy=policy)
    for entries in ([DISK], []):
        for action in steps_of(entries, [volume], missing={volume.metadata.uid: 1e9}):
            assert not isinstance(action, Withdraw | LetGo), action


def test_a_reclaim_names_the_object_and_the_volume_it_is_about() -> None:
    volume = released_from(DISK)
    action = a(Reclaim, only_step([DISK], [volume]))
    assert action.volume is volume
    assert action.entry is DISK
    assert action.key == "/mnt/disks/disk"


def test_a_released_block_device_is_reclaimed_too() -> None:
    entry = block()
    for mode in ("Block", "Filesystem"):
        a(Reclaim, only_step([entry], [released_from(entry, mode=mode)]))


def test_retain_means_nothing_is_done_ever() -> None:
    action = only_step([DISK], [released_from(DISK, policy="Retain")])
    assert "Retain" in a(Keep, action).reason


def test_the_policy_on_the_object_counts_and_not_the_one_of_the_class() -> None:
    a(Keep, only_step([DISK], [released_from(DISK, policy="Retain")]))
    volume = released_from(DISK, policy="Delete")
    a(Reclaim, only_step([DISK], [volume], classes=[class_facts(policy="Retain")]))


def test_a_storage_class_that_is_gone_does_not_keep_a_volume_from_being_reclaimed() -> None:
    a(Reclaim, only_step([DISK], [released_from(DISK)], classes=[class_facts(exists=False)]))


@pytest.mark.parametrize(
    ("policy", "event"),
    [
        ("Recycle", EVENT_UNSUPPORTED_POLICY),
        ("Shred", EVENT_UNKNOWN_POLICY),
        ("delete", EVENT_UNKNOWN_POLICY),
        ("", EVENT_UNKNOWN_POLICY),
        (None, EVENT_UNKNOWN_POLICY),
    ],
)
def test_another_policy_is_told_as_an_event_with_upstreams_reason(
    policy: str | None, event: str
) -> None:
    volume = released_from(DISK, policy=policy)
    hold = held(only_step([DISK], [volume]), "policy")
    assert hold.event == event
    assert hold.volume is volume
    assert str(policy) in hold.reason


def test_the_event_reasons_are_upstreams() -> None:
    assert EVENT_FAILED_DELETE == "VolumeFailedDelete"
    assert EVENT_UNSUPPORTED_POLICY == "VolumeUnsupportedReclaimPolicy"
    assert EVENT_UNKNOWN_POLICY == "VolumeUnknownReclaimPolicy"


@pytest.mark.parametrize("phase", ["Failed", "Lost"])
def test_a_volume_in_a_phase_that_is_not_ours_waits_for_somebody_to_look(phase: str) -> None:
    hold = held(only_step([DISK], [released_from(DISK, phase=phase)]), "phase")
    assert phase in hold.reason


def test_no_volume_at_all_calls_for_nothing() -> None:
    assert steps_of() == []


# --- an object that is being deleted -------------------------------------------------------------


def deleting(**changes: Any) -> Action:
    return only_step([DISK], [released_from(DISK, deleting=True, **changes)])


@pytest.mark.parametrize("phase", ["Released", "Failed"])
def test_what_a_claim_left_is_cleaned_before_the_object_goes(phase: str) -> None:
    volume = released_from(DISK, phase=phase, deleting=True)
    action = a(Clean, only_step([DISK], [volume]))
    assert action.volume is volume
    assert action.entry is DISK


def test_a_second_look_while_it_is_being_cleaned_says_the_same() -> None:
    volume = released_from(DISK, deleting=True)
    assert steps_of([DISK], [volume]) == steps_of([DISK], [volume])


@pytest.mark.parametrize("policy", POLICIES)
def test_as_long_as_a_claim_holds_it_nothing_is_done(policy: str | None) -> None:
    action = only_step([DISK], [bound_to(DISK, policy=policy, deleting=True)])
    assert "claim is still there" in a(Keep, action).reason


@pytest.mark.parametrize("phase", ["Available", "Pending", ""])
def test_while_it_is_being_bound_nothing_is_cleaned(phase: str) -> None:
    """The controller writes claimRef first and the phase later: in between a pod may be on its way.

    Soon the phase is Bound or Released; only then is it known whose the data is.
    """
    volume = volume_of(DISK, phase=phase, claim="claim-uid", deleting=True)
    action = only_step([DISK], [volume])
    assert not isinstance(action, Clean | LetGo), action


@pytest.mark.parametrize("policy", ["Retain", "Recycle", "Shred", None])
@pytest.mark.parametrize("phase", ["Released", "Failed"])
def test_with_another_policy_the_object_goes_and_the_data_stays(
    policy: str | None, phase: str
) -> None:
    action = a(LetGo, deleting(policy=policy, phase=phase))
    assert "the data stays" in action.reason


@pytest.mark.parametrize("phase", ["Available", "Pending", "", "Failed"])
def test_what_no_claim_ever_held_goes_without_being_cleaned(phase: str) -> None:
    volume = volume_of(DISK, phase=phase, deleting=True)
    action = a(LetGo, only_step([DISK], [volume]))
    assert action.volume is volume
    assert "no claim ever" in action.reason


def test_what_no_claim_ever_held_goes_also_where_its_volume_is_gone() -> None:
    a(LetGo, only_step([], [volume_of(DISK, deleting=True)]))


def test_a_reservation_for_a_claim_that_never_came_is_no_claim() -> None:
    """An administrator's claimRef without a UID: nobody has written anything."""
    volume = volume_of(DISK, deleting=True)
    reserved = replace(volume.spec, claim_ref=ClaimRef(namespace="team", name="claim"))
    a(LetGo, only_step([DISK], [replace(volume, spec=reserved)]))


def test_without_our_finalizer_it_is_not_for_us_to_keep_or_to_clean() -> None:
    assert "another finalizer" in a(Keep, deleting(finalized=False)).reason


# --- volumes that were released and are no longer ------------------------------------------------

UNRELEASED = (
    pytest.param({marks.CLAIMED_ANNOTATION: "claim-uid"}, id="our mark"),
    pytest.param({marks.BOUND_BY_CONTROLLER_ANNOTATION: "yes"}, id="the controller's mark"),
)


@pytest.mark.parametrize("mark", UNRELEASED)
def test_a_volume_whose_claim_ref_somebody_emptied_is_never_withdrawn(
    mark: dict[str, str],
) -> None:
    """It holds a tenant's data; withdrawn and found again it would be somebody else's."""
    volume = volume_of(DISK, annotations=mark)
    a(Keep, only_step([DISK], [volume]))
    held(only_step([], [volume], missing={volume.metadata.uid: 1e9}), "vanished")
    other = filesystem(uuid="another")
    held(only_step([other], [volume]), "replaced")
    held(only_step([filesystem(size=5 * 2**30)], [volume]), "size")


@pytest.mark.parametrize("mark", UNRELEASED)
def test_deleted_by_hand_it_is_cleaned_first(mark: dict[str, str]) -> None:
    a(Clean, only_step([DISK], [volume_of(DISK, annotations=mark, deleting=True)]))


def test_a_volume_that_is_bound_again_is_not_reclaimed() -> None:
    volume = bound_to(DISK, annotations={marks.BOUND_BY_CONTROLLER_ANNOTATION: "yes"})
    assert not [s for s in steps_of([DISK], [volume]) if isinstance(s, TOUCHES_DATA)]


@pytest.mark.parametrize("deleting", [False, True])
def test_where_mounts_of_pods_cannot_be_seen_filesystems_are_held(deleting: bool) -> None:
    """A device tells itself that it is in use."""
    unseen = "what pods have mounted cannot be seen"
    disk = filesystem()
    volume = released_from(disk, deleting=deleting)
    hold = held(only_step([disk], [volume], pods_unseen=unseen), "not-cleaned")
    assert unseen in hold.reason
    raw = block()
    volume = released_from(raw, deleting=deleting)
    action = only_step([raw], [volume], pods_unseen=unseen)
    assert isinstance(action, Clean if deleting else Reclaim)
