"""Duplicates: the same device or directory reached by two paths is one volume."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import (
    Action,
    ClassFacts,
    CleanFirst,
    Entry,
    Keep,
    Problem,
    Publish,
    Withdraw,
)
from localvolume.static.plan.plan import EVENT_DUPLICATE
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
    step_about,
    steps_of,
    volume_of,
)

PAIRS = {
    "one filesystem mounted twice": (filesystem("a", device="8:0"), filesystem("b", device="8:0")),
    "two links to one device": (block("a", device="8:0"), block("b", device="8:0")),
    "one directory mounted twice": (
        filesystem("a", device="8:0", root="/data"),
        filesystem("b", device="8:0", root="/data"),
    ),
    "a directory and one inside it": (
        filesystem("a", device="8:0", root="/data"),
        filesystem("b", device="8:0", root="/data/inner"),
    ),
    "a directory and the one around it": (
        filesystem("a", device="8:0", root="/data/inner"),
        filesystem("b", device="8:0", root="/data"),
    ),
    "a whole filesystem and a directory of it": (
        filesystem("a", device="8:0", root="/"),
        filesystem("b", device="8:0", root="/data"),
    ),
    "a device and the filesystem on it": (
        block("a", device="8:0"),
        filesystem("b", device="8:0", root="/data"),
    ),
    "a filesystem and the device below it": (
        filesystem("a", device="8:0"),
        block("b", device="8:0"),
    ),
}
APART = {
    "two filesystems": (filesystem("a"), filesystem("b")),
    "two devices": (block("a"), block("b")),
    "two directories of one filesystem": (
        filesystem("a", device="8:0", root="/one"),
        filesystem("b", device="8:0", root="/two"),
    ),
    "directories whose names begin alike": (
        filesystem("a", device="8:0", root="/one"),
        filesystem("b", device="8:0", root="/one-more"),
    ),
}

pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())


def published(actions: list[Action]) -> list[str]:
    return [action.entry.name for action in actions if isinstance(action, Publish)]


# --- entries -------------------------------------------------------------------------------------


@pairs
def test_of_two_paths_to_the_same_data_the_first_is_published(pair: tuple[Entry, Entry]) -> None:
    for entries in permutations(pair):
        first, second = steps_of(entries)
        assert a(Publish, first).entry.name == "a"
        hold = held(second, "duplicate")
        assert "/mnt/disks/a" in hold.reason
        assert "class fast" in hold.reason
        assert hold.again_seconds > 0


@pytest.mark.parametrize("pair", APART.values(), ids=APART.keys())
def test_what_shares_no_data_is_two_volumes(pair: tuple[Entry, Entry]) -> None:
    assert published(steps_of(pair)) == ["a", "b"]


@pairs
def test_the_one_that_is_offered_already_stays_the_one(pair: tuple[Entry, Entry]) -> None:
    one, other = pair
    for offered, unoffered in ((one, other), (other, one)):
        for volume in (volume_of(offered), bound_to(offered), released_from(offered)):
            actions = steps_of(pair, [volume])
            (hold,) = [action for action in actions if action.key == unoffered.host_path]
            assert offered.host_path in held(hold, "duplicate").reason


@pairs
def test_a_duplicate_is_not_cleaned_for_its_first_use(pair: tuple[Entry, Entry]) -> None:
    """That would clean what the other path offers."""
    one, other = pair
    full = replace(other, content=filesystem(content="holds").content)
    classes = [class_facts(first_use="clean")]
    actions = steps_of([one, full], [bound_to(one)], classes=classes, online=False)
    assert not [action for action in actions if isinstance(action, CleanFirst | Publish)]


@pairs
def test_what_is_just_being_published_or_cleaned_comes_first(pair: tuple[Entry, Entry]) -> None:
    """Its object may exist by now and not be known here yet."""
    for working, waiting in permutations(pair):
        actions = steps_of(pair, busy=[working.host_path])
        (action,) = [action for action in actions if action.key == waiting.host_path]
        assert working.host_path in held(action, "duplicate").reason


def test_what_is_busy_at_a_path_does_not_hold_that_path_itself() -> None:
    classes = [class_facts("fast"), class_facts("slow")]
    entries = [filesystem("disk", "slow"), filesystem("disk", "fast")]
    actions = steps_of(entries, classes=classes, busy=[entries[0].host_path])
    assert published(actions) == ["disk"]


def test_a_path_in_two_classes_is_published_once() -> None:
    """Two classes may share a directory, and a pattern of each may mean the same name."""
    classes = [class_facts("fast"), class_facts("slow")]
    entries = [filesystem("disk", "slow"), filesystem("disk", "fast")]
    for order in permutations(entries):
        actions = steps_of(order, classes=classes)
        assert len(published(actions)) == 1
        (made,) = [action for action in actions if isinstance(action, Publish)]
        assert made.entry.class_name == "fast", "the same one at every look"


def test_a_path_in_two_classes_is_cleaned_once_before_its_first_use() -> None:
    classes = [class_facts("fast", first_use="clean"), class_facts("slow", first_use="clean")]
    entries = [filesystem("disk", name, content="holds") for name in ("slow", "fast")]
    actions = steps_of(entries, classes=classes, online=False)
    assert len([action for action in actions if isinstance(action, CleanFirst)]) == 1


def test_a_path_in_two_classes_belongs_to_the_one_whose_pattern_means_it() -> None:
    classes = [class_facts("fast"), class_facts("slow")]
    entries = [filesystem("disk", "fast", excluded=True), filesystem("disk", "slow")]
    actions = steps_of(entries, classes=classes)
    assert [s.entry.class_name for s in actions if isinstance(s, Publish)] == ["slow"]


@pytest.mark.parametrize(
    "unfit",
    [
        class_facts("fast", exists=False),
        class_facts("fast", mode="Block"),
        class_facts("fast", policy="Recycle"),
    ],
    ids=["no StorageClass", "for devices", "policy"],
)
def test_a_path_in_two_classes_belongs_to_the_one_that_can_offer_it(unfit: ClassFacts) -> None:
    """One directory of devices and mounts, and a class of either mode: upstream practice."""
    entries = [filesystem("disk", "fast"), filesystem("disk", "slow")]
    actions = steps_of(entries, classes=[unfit, class_facts("slow")])
    assert [s.entry.class_name for s in actions if isinstance(s, Publish)] == ["slow"]


def test_across_classes_the_first_class_has_it() -> None:
    classes = [class_facts("fast", host_dir="/mnt/z"), class_facts("slow", host_dir="/mnt/a")]
    fast = filesystem("disk", "fast", host_dir="/mnt/z", device="8:0")
    slow = filesystem("disk", "slow", host_dir="/mnt/a", device="8:0")
    for order in permutations((fast, slow)):
        actions = steps_of(order, classes=classes)
        (made,) = [action for action in actions if isinstance(action, Publish)]
        assert made.entry is fast


def test_a_rival_that_the_pattern_excludes_is_none() -> None:
    entries = [
        filesystem("a", device="8:0", excluded=True),
        filesystem("b", device="8:0"),
    ]
    assert published(steps_of(entries)) == ["b"]


def test_a_rival_that_cannot_be_used_is_none_unless_it_is_offered() -> None:
    problem = Problem("wrong-kind", "it changed")
    rival = replace(filesystem("a", device="8:0"), problem=problem)
    entry = filesystem("b", device="8:0")
    assert published(steps_of([rival, entry])) == ["b"]
    actions = steps_of([rival, entry], [bound_to(rival)])
    assert published(actions) == []


def test_of_three_paths_to_the_same_data_one_is_published() -> None:
    entries = [filesystem(name, device="8:0") for name in "abc"]
    for order in permutations(entries):
        assert published(steps_of(order)) == ["a"]


# --- PersistentVolumes ---------------------------------------------------------------------------


def two_volumes(
    pair: tuple[Entry, Entry], one: PersistentVolume, other: PersistentVolume
) -> tuple[Action, Action]:
    actions = steps_of(pair, [one, other])
    return step_about(actions, one), step_about(actions, other)


@pairs
def test_of_two_available_never_used_volumes_exactly_one_is_withdrawn(
    pair: tuple[Entry, Entry],
) -> None:
    for low, high in permutations(pair):
        kept, withdrawn = volume_of(low, name="pv-1"), volume_of(high, name="pv-2")
        first, second = two_volumes(pair, kept, withdrawn)
        a(Keep, first)
        assert a(Withdraw, second).volume is withdrawn
        assert "pv-1" in second.reason


def test_two_available_objects_for_one_path_are_one_too_many() -> None:
    entry = filesystem()
    kept, withdrawn = volume_of(entry, name="pv-1"), volume_of(entry, name="pv-2")
    actions = steps_of([entry], [withdrawn, kept])
    a(Keep, step_about(actions, kept))
    a(Withdraw, step_about(actions, withdrawn))


@pairs
def test_beside_a_volume_that_a_claim_holds_or_held_the_unused_one_goes(
    pair: tuple[Entry, Entry],
) -> None:
    one, other = pair
    unused = volume_of(other, name="pv-1")
    for used in (
        bound_to(one, name="pv-2"),
        released_from(one, name="pv-2"),
        released_from(one, name="pv-2", policy="Retain"),
        volume_of(one, name="pv-2", annotations={marks.CLAIMED_ANNOTATION: "c"}),
        released_from(one, name="pv-2", phase="Failed"),
    ):
        actions = steps_of(pair, [unused, used])
        a(Withdraw, step_about(actions, unused))
        assert not isinstance(step_about(actions, used), Withdraw)


@pairs
def test_two_volumes_that_claims_hold_are_told_and_both_stay(pair: tuple[Entry, Entry]) -> None:
    one, other = pair
    for action in two_volumes(pair, bound_to(one), bound_to(other)):
        hold = held(action, "duplicate")
        assert hold.event == EVENT_DUPLICATE


def test_two_volumes_that_claims_held_are_told_and_both_stay() -> None:
    pair = PAIRS["one filesystem mounted twice"]
    marked = {marks.CLAIMED_ANNOTATION: "c"}
    one, other = (volume_of(entry, annotations=marked) for entry in pair)
    for action in two_volumes(pair, one, other):
        held(action, "duplicate")


def test_the_bound_one_comes_before_the_one_that_was_released() -> None:
    pair = PAIRS["one filesystem mounted twice"]
    bound, released = bound_to(pair[0]), released_from(pair[1])
    first, second = two_volumes(pair, bound, released)
    held(first, "duplicate")
    held(second, "not-cleaned")


def test_volumes_that_share_no_data_do_not_yield_to_each_other() -> None:
    for pair in APART.values():
        for action in two_volumes(pair, volume_of(pair[0]), volume_of(pair[1])):
            a(Keep, action)


def test_an_unused_volume_yields_to_a_bound_one_whatever_else_shares_the_data() -> None:
    """A third object of the same data, itself held, must not hide the one that counts."""
    entries = [filesystem(name, device="8:0") for name in ("a", "b", "c")]
    unused = volume_of(entries[1], name="pv-1")
    bystander = volume_of(entries[1], name="pv-2", hostname="another-node")
    bound = bound_to(entries[2], name="pv-3")
    for order in permutations((unused, bystander, bound)):
        actions = steps_of(entries, order)
        a(Withdraw, step_about(actions, unused))


def test_of_three_unused_volumes_one_remains_in_the_end() -> None:
    entries = [filesystem(name, device="8:0") for name in ("a", "b", "c")]
    for order in permutations(entries):
        volumes = {f"pv-{entry.name}": volume_of(entry, name=f"pv-{entry.name}") for entry in order}
        for _ in range(3):
            for action in steps_of(order, volumes.values()):
                if isinstance(action, Withdraw):
                    del volumes[action.volume.metadata.name]
        assert len(volumes) == 1


def test_the_withdrawn_ones_entry_is_held_and_not_published_again() -> None:
    one, other = PAIRS["one filesystem mounted twice"]
    actions = steps_of([one, other], [volume_of(one)])
    a(Keep, actions[0])
    held(actions[1], "duplicate")
    assert only_step([other]).key == other.host_path
