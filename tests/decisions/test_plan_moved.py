"""A disk in another place: its link was renamed, or it was mounted elsewhere.

A PersistentVolume still names it, so it is nobody else's, whatever became of the old place.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from localvolume.config.model import FirstUse
from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import CleanFirst, Entry, Publish, Withdraw
from tests.decisions.support_plan import (
    State,
    a,
    block,
    broken,
    class_facts,
    filesystem,
    steps_of,
    volume_of,
)

FIRST_USES: tuple[FirstUse, ...] = ("require-empty", "trust", "clean")
OLD_PLACES = (None, broken("gone", "old-place"), broken("unknown", "old-place"))


def disk(kind: str, name: str, content: State = "empty", **changes: Any) -> Entry:
    if kind == "filesystem":
        return filesystem(name, uuid="the-disk", content=content, **changes)
    return block(name, serial="the-disk", content=content, **changes)


def offered_again(
    entry: Entry, volume: PersistentVolume, old: Entry | None, first_use: FirstUse, **changes: Any
) -> list[Publish | CleanFirst]:
    entries = [entry, *([old] if old else [])]
    classes = changes.pop("classes", [class_facts(first_use=first_use)])
    actions = steps_of(entries, [volume], classes=classes, online=False, **changes)
    return [action for action in actions if isinstance(action, Publish | CleanFirst)]


@pytest.mark.parametrize("first_use", FIRST_USES)
@pytest.mark.parametrize("kind", ["filesystem", "block"])
@pytest.mark.parametrize("old", OLD_PLACES, ids=["removed", "unmounted", "hung"])
def test_the_disk_of_a_claimed_volume_is_neither_offered_nor_cleaned(
    kind: str, first_use: FirstUse, old: Entry | None
) -> None:
    for phase, content in product(("Bound", "Released", "Failed"), ("empty", "holds")):
        volume = volume_of(disk(kind, "old-place"), phase=phase, claim="c", policy="Retain")
        entry = disk(kind, "new-place", "empty" if content == "empty" else "holds")
        assert offered_again(entry, volume, old, first_use) == []


@pytest.mark.parametrize("first_use", FIRST_USES)
def test_nor_where_the_class_of_its_object_is_not_configured_any_more(first_use: FirstUse) -> None:
    before = filesystem("old-place", "removed", host_dir="/mnt/removed", uuid="the-disk")
    volume = volume_of(before, phase="Bound", claim="c")
    entry = filesystem("new-place", uuid="the-disk", content="holds")
    assert offered_again(entry, volume, None, first_use) == []


@pytest.mark.parametrize("first_use", FIRST_USES)
def test_nor_where_the_old_directory_cannot_be_listed(first_use: FirstUse) -> None:
    before = filesystem("old-place", "slow", host_dir="/mnt/slow", uuid="the-disk")
    classes = [
        class_facts(first_use=first_use),
        class_facts("slow", host_dir="/mnt/slow", problem="input/output error"),
    ]
    volume = volume_of(before, phase="Bound", claim="c")
    entry = filesystem("new-place", uuid="the-disk", content="holds")
    assert offered_again(entry, volume, None, first_use, classes=classes) == []


@pytest.mark.parametrize(
    ("recorded", "found"), [("/", "/inner"), ("/inner", "/"), ("/a", "/a")], ids=str
)
def test_a_part_of_it_and_what_is_around_it_count_too(recorded: str, found: str) -> None:
    volume = volume_of(disk("filesystem", "old-place", root=recorded), phase="Bound", claim="c")
    entry = disk("filesystem", "new-place", "holds", root=found)
    assert offered_again(entry, volume, None, "clean") == []


def test_another_directory_of_the_same_filesystem_is_another_volume() -> None:
    volume = volume_of(disk("filesystem", "old-place", root="/a"), phase="Bound", claim="c")
    for root in ("/b", "/ab"):
        entry = disk("filesystem", "new-place", root=root)
        assert len(offered_again(entry, volume, None, "require-empty")) == 1


def test_disks_that_nothing_tells_apart_are_not_taken_for_one() -> None:
    """Virtual disks without a serial: the same size and model say nothing."""
    nameless = {"kind": "block", "sizeBytes": "1000", "model": "Virtual"}
    one = replace(block("one"), identity=nameless)
    other = replace(block("other"), identity=nameless)
    actions = steps_of([one, other], [volume_of(one, phase="Bound", claim="c")])
    assert [type(action) for action in actions if action.key == other.host_path] == [Publish]


def test_two_parts_of_one_disk_are_two_volumes() -> None:
    """Partitions without a UUID, and two loop devices on one file."""
    disk_of = {"kind": "block", "serial": "S1"}
    file = {"kind": "block", "loopFile": "/srv/disk.img", "loopInode": "42"}
    pairs = (
        (disk_of | {"partUuid": "p-1"}, disk_of | {"partUuid": "p-2"}),
        (disk_of | {"partStart": "2048"}, disk_of | {"partStart": "409600"}),
        (file | {"loopOffset": "512"}, file | {"loopOffset": "1024"}),
    )
    for first, second in pairs:
        one, other = replace(block("one"), identity=first), replace(block("two"), identity=second)
        actions = steps_of([one, other], [volume_of(one, phase="Bound", claim="c")])
        assert [type(action) for action in actions if action.key == other.host_path] == [Publish]


def test_a_disk_is_not_offered_beside_a_part_of_it() -> None:
    disk_of = {"kind": "block", "serial": "S1"}
    whole = replace(block("whole"), identity=disk_of)
    part = replace(block("part"), identity=disk_of | {"partUuid": "p-1"})
    for offered, other in ((whole, part), (part, whole)):
        volume = volume_of(offered, phase="Bound", claim="c")
        for first_use in FIRST_USES:
            assert offered_again(other, volume, None, first_use) == []


def test_a_never_used_volume_is_withdrawn_from_its_old_place_and_then_offered_in_the_new() -> None:
    volume = volume_of(disk("filesystem", "old-place"))
    entry = disk("filesystem", "new-place")
    assert offered_again(entry, volume, None, "require-empty") == []
    uid = volume.metadata.uid
    later = steps_of([entry], [volume], missing={uid: 61.0})
    assert [action.volume for action in later if isinstance(action, Withdraw)] == [volume]
    (last,) = steps_of([entry])
    a(Publish, last)
