"""What changes under a PersistentVolume: its volume vanishes, returns, is replaced or resized."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from localvolume.kube.objects import ClaimRef, PersistentVolume
from localvolume.static.model import Action, Entry, Hold, Keep, Withdraw
from localvolume.static.plan.plan import EVENT_REPLACED, EVENT_SIZE_DIFFERS, EVENT_VANISHED
from localvolume.volumes import marks
from tests.decisions.support_plan import (
    ELSEWHERE,
    a,
    block,
    bound_to,
    broken,
    class_facts,
    filesystem,
    held,
    only_step,
    released_from,
    step_about,
    steps_of,
    volume_of,
)

DISK = filesystem()
SMALLER = filesystem(size=5 * 2**30)
GONE: dict[str, list[Entry]] = {
    "no entry": [],
    "no mount": [broken("gone")],
    "a file": [broken("wrong-kind")],
}
gone = pytest.mark.parametrize("now", GONE.values(), ids=GONE.keys())
never_used = pytest.mark.parametrize("phase", ["Available", "Pending", ""])


def after(seconds: float, now: list[Entry], volume: PersistentVolume) -> Action:
    return only_step(now, [volume], missing={volume.metadata.uid: seconds}, grace_seconds=60.0)


# --- vanished ------------------------------------------------------------------------------------


@gone
@never_used
def test_a_never_used_volume_is_withdrawn_after_the_grace_period(
    now: list[Entry], phase: str
) -> None:
    volume = volume_of(DISK, phase=phase)
    action = a(Withdraw, after(60.0, now, volume))
    assert action.volume is volume
    assert "no claim ever held it" in action.reason


@gone
@pytest.mark.parametrize(("seconds", "left"), [(0.0, 60.0), (45.0, 15.0), (59.5, 0.5)])
def test_until_then_it_is_held_and_looked_at_when_the_period_ends(
    now: list[Entry], seconds: float, left: float
) -> None:
    hold = held(after(seconds, now, volume_of(DISK)), "vanished")
    assert hold.again_seconds == left
    assert "withdrawn if it stays so" in hold.reason


def test_a_volume_of_which_no_absence_is_known_has_the_whole_period() -> None:
    hold = held(only_step([], [volume_of(DISK)], grace_seconds=60.0), "vanished")
    assert hold.again_seconds == 60.0


def test_the_absence_of_an_earlier_object_of_that_name_does_not_count() -> None:
    volume = volume_of(DISK)
    action = only_step([], [volume], missing={"uid-of-the-object-before": 1e9})
    held(action, "vanished")


@gone
def test_a_bound_volume_that_vanished_keeps_its_object_and_tells(now: list[Entry]) -> None:
    volume = bound_to(DISK)
    hold = held(after(1e9, now, volume), "vanished")
    assert hold.event == EVENT_VANISHED
    assert hold.volume is volume


@gone
def test_a_used_volume_that_vanished_keeps_its_object_and_tells(now: list[Entry]) -> None:
    volume = volume_of(DISK, annotations={marks.CLAIMED_ANNOTATION: "c"})
    hold = held(after(1e9, now, volume), "vanished")
    assert hold.event == EVENT_VANISHED


@pytest.mark.parametrize("claim_ref", [ClaimRef(uid="c"), ClaimRef(uid="c", name="claim")])
def test_a_volume_that_is_being_bound_just_now_is_not_withdrawn(claim_ref: ClaimRef) -> None:
    volume = volume_of(DISK)
    reserved = changed(volume, spec=changed(volume.spec, claim_ref=claim_ref))
    a(Hold, after(1e9, [], reserved))


@never_used
def test_a_volume_that_returns_is_offered_as_before(phase: str) -> None:
    volume = volume_of(DISK, phase=phase)
    a(Keep, after(30.0, [DISK], volume))
    a(Keep, after(1e9, [DISK], volume)), "an absence that is over counts for nothing"


def test_a_bound_volume_that_returns_is_well_again() -> None:
    a(Keep, only_step([DISK], [bound_to(DISK)]))


@pytest.mark.parametrize(
    ("now", "classes"),
    [
        pytest.param([broken("unknown")], [class_facts()], id="it does not answer"),
        pytest.param([broken("reading")], [class_facts()], id="it is being read"),
        pytest.param([], [class_facts(problem="input/output error")], id="no listing"),
        pytest.param([DISK], [class_facts(problem="input/output error")], id="an old listing"),
        pytest.param(
            [broken("gone")], [class_facts(problem="input/output error")], id="an old absence"
        ),
    ],
)
@pytest.mark.parametrize("phase", ["Available", "Bound"])
def test_nothing_is_concluded_from_what_cannot_be_read(
    now: list[Entry], classes: list[Any], phase: str
) -> None:
    volume = bound_to(DISK) if phase == "Bound" else volume_of(DISK)
    missing = {volume.metadata.uid: 1e9}
    hold = held(only_step(now, [volume], classes=classes, missing=missing), "unknown")
    assert hold.again_seconds > 0
    assert hold.event == ""


def test_the_volume_of_a_class_that_was_removed_stays_as_it_is() -> None:
    volume = volume_of(DISK, class_name="removed", name="pv")
    a(Hold, step_about(steps_of([], [volume], missing={volume.metadata.uid: 1e9}), volume))
    bound = bound_to(DISK, class_name="removed", name="pv")
    held(step_about(steps_of([], [bound]), bound), "no-class")


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "/mnt/other/disk"},
        {"hostname": ELSEWHERE},
        {"path": "/mnt/disks/a/b"},
        {"path": "/mnt/disks//disk"},
    ],
)
def test_of_a_place_that_nobody_looks_at_nobody_says_that_it_vanished(
    changes: dict[str, Any],
) -> None:
    """For instance after the class's hostDir was changed: the old volumes are where they were."""
    volume = bound_to(DISK, **changes)
    action = step_about(steps_of([], [volume]), volume)
    assert getattr(action, "event", "") != EVENT_VANISHED
    assert "does not exist" not in action.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "/mnt/other/disk"},
        {"hostname": ELSEWHERE},
        {"local": False},
        {"class_name": "removed"},
    ],
)
def test_an_offer_that_is_misplaced_is_told_and_not_withdrawn(changes: dict[str, Any]) -> None:
    volume = volume_of(DISK, **changes)
    actions = steps_of([], [volume], missing={volume.metadata.uid: 1e9})
    held(step_about(actions, volume), "misplaced")


# --- replaced ------------------------------------------------------------------------------------

OTHERS = {
    "another filesystem": (DISK, filesystem(uuid="another")),
    "another device": (block(), block(serial="another")),
    "a device for a filesystem": (DISK, block()),
    "a filesystem for a device": (block(), filesystem()),
}
others = pytest.mark.parametrize(("before", "now"), OTHERS.values(), ids=OTHERS.keys())


@others
@never_used
def test_a_never_used_volume_that_was_replaced_is_withdrawn(
    before: Entry, now: Entry, phase: str
) -> None:
    action = a(Withdraw, only_step([now], [volume_of(before, phase=phase)]))
    assert "not the volume that was published" in action.reason


@others
def test_a_bound_volume_that_was_replaced_is_only_told(before: Entry, now: Entry) -> None:
    hold = held(only_step([now], [bound_to(before)]), "replaced")
    assert hold.event == EVENT_REPLACED


@others
def test_a_used_volume_that_was_replaced_is_only_told(before: Entry, now: Entry) -> None:
    volume = volume_of(before, annotations={marks.CLAIMED_ANNOTATION: "c"})
    hold = held(only_step([now], [volume]), "replaced")
    assert hold.event == EVENT_REPLACED


WEAK = {"kind": "block", "sizeBytes": "1000", "bootId": "b1", "diskSeq": "9"}


def renumbered() -> tuple[Entry, Entry]:
    """A disk without a serial number before and after a reboot; or another one of its kind."""
    before = replace(block(), identity=WEAK)
    return before, replace(before, identity=WEAK | {"bootId": "b2"})


@never_used
def test_a_never_used_disk_that_nothing_tells_apart_is_offered_anew_after_a_reboot(
    phase: str,
) -> None:
    before, now = renumbered()
    action = a(Withdraw, only_step([now], [volume_of(before, mode="Block", phase=phase)]))
    assert "may not be the volume that was published" in action.reason


def test_a_bound_one_is_only_told() -> None:
    before, now = renumbered()
    hold = held(only_step([now], [bound_to(before, mode="Block")]), "renumbered")
    assert hold.event == EVENT_REPLACED
    assert "remove the annotation localvolume.dev/identity" in hold.reason


def test_an_older_object_whose_device_became_a_directory_is_not_offered_as_one() -> None:
    volume = volume_of(block(), mode="Block", identity=None)
    a(Withdraw, only_step([DISK], [volume]))


@pytest.mark.parametrize("phase", ["Available", "Bound"])
@pytest.mark.parametrize(
    "hidden", [{}, {"kind": "filesystem"}, {"kind": "filesystem", "fsType": "ext4", "root": "/"}]
)
def test_what_cannot_be_compared_now_is_not_called_replaced(
    hidden: dict[str, str], phase: str
) -> None:
    """Nothing is known for certain, so nothing is withdrawn and nobody is told a wrong thing."""
    volume = bound_to(DISK) if phase == "Bound" else volume_of(DISK)
    hold = a(Hold, only_step([replace(DISK, identity=hidden)], [volume]))
    assert hold.event != EVENT_REPLACED
    assert "cannot be read now" in hold.reason


# --- resized -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5 * 2**30, 40 * 2**30])
@never_used
def test_a_never_used_volume_of_another_size_is_withdrawn_to_return_with_its_size(
    size: int, phase: str
) -> None:
    action = only_step([filesystem(size=size)], [volume_of(DISK, phase=phase)])
    assert "published with 21474836480 bytes and now has" in a(Withdraw, action).reason


@pytest.mark.parametrize("size", [5 * 2**30, 40 * 2**30])
def test_a_used_volume_of_another_size_is_only_told(size: int) -> None:
    now = filesystem(size=size)
    marked = {marks.CLAIMED_ANNOTATION: "c"}
    for volume in (bound_to(DISK), volume_of(DISK, annotations=marked)):
        hold = held(only_step([now], [volume]), "size")
        assert hold.event == EVENT_SIZE_DIFFERS


def test_what_rounding_hides_is_no_other_size() -> None:
    a(Keep, only_step([filesystem(size=20 * 2**30 + 5)], [volume_of(DISK)]))


@pytest.mark.parametrize("capacity", ["20480Mi", "21474836480", "20971520Ki", "21474836480.0"])
def test_the_same_size_in_other_words_is_the_same(capacity: str) -> None:
    a(Keep, only_step([DISK], [volume_of(DISK, capacity=capacity)]))


@pytest.mark.parametrize("capacity", ["20G", "plenty", "-1"])
def test_a_promise_that_is_not_the_size_is_told(capacity: str) -> None:
    held(only_step([DISK], [bound_to(DISK, capacity=capacity)]), "size")


# --- what is said about a volume that nobody may touch ------------------------------------------


@pytest.mark.parametrize(
    "now", [[], [broken("gone")], [broken("unknown")], [filesystem(uuid="x")], [SMALLER]]
)
@pytest.mark.parametrize("policy", ["Delete", "Retain", "Recycle", None])
def test_a_bound_volume_is_only_ever_held_or_kept(now: list[Entry], policy: str | None) -> None:
    volume = bound_to(DISK, policy=policy)
    assert isinstance(after(1e9, now, volume), Hold | Keep)


def test_a_retained_volume_that_vanished_stays_retained() -> None:
    a(Keep, after(1e9, [], released_from(DISK, policy="Retain")))
