"""What a volume's record lets happen to it: whose it is counts before anything else of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import (
    Action,
    Clean,
    Entry,
    Hold,
    Keep,
    KeepRecord,
    MarkClaimed,
    Publish,
    Reclaim,
    StopJob,
    Withdraw,
)
from localvolume.volumes import marks
from localvolume.volumes.record import Record, Recorded, Unreadable, over
from tests.decisions.support_plan import (
    a,
    block,
    bound_to,
    class_facts,
    filesystem,
    held,
    job_for,
    only_step,
    released_from,
    steps_of,
    volume_of,
)

OFFERED = Record("g1")
HELD = Record("g1", claim="a")
OTHERS = Record("g1", claim="b")
G1 = {marks.GENERATION_ANNOTATION: "g1"}


def recorded(entry: Entry, record: Recorded) -> Entry:
    return replace(entry, recorded=record)


def kinds(actions: list[Action]) -> list[type[Action]]:
    return [type(action) for action in actions]


def released(entry: Entry, **changes: Any) -> PersistentVolume:
    return released_from(entry, "a", annotations=G1, **changes)


@pytest.mark.parametrize("record", [OFFERED, HELD])
def test_a_release_is_cleaned_where_the_record_speaks_for_it(record: Record) -> None:
    entry = recorded(filesystem(), record)
    a(Reclaim, only_step([entry], [released(entry)]))
    a(Clean, only_step([entry], [released(entry, deleting=True)]))


@pytest.mark.parametrize(
    "record",
    [
        OTHERS,
        Record("g2"),
        over(Record("g2"), "proved", 0),
        None,
        "nowhere",
        Unreadable("an error"),
    ],
)
@pytest.mark.parametrize("deleting", [False, True])
def test_a_release_is_kept_where_it_does_not(record: Recorded, deleting: bool) -> None:
    entry = recorded(filesystem(), record)
    hold = held(only_step([entry], [released(entry, deleting=deleting)]), "not-cleaned")
    assert "this may be somebody else's volume now" in hold.reason
    assert "localvolume forget" in hold.reason


def test_a_job_that_came_back_with_its_object_is_stopped() -> None:
    entry = recorded(filesystem(), OTHERS)
    volume = released(entry, deleting=True)
    actions = steps_of([entry], [volume], jobs=[job_for(volume)], use_jobs=True)
    assert kinds(actions) == [Hold, StopJob]


@pytest.mark.parametrize("record", [OTHERS, Record("g2"), None])
def test_what_another_holds_is_offered_no_longer(record: Recorded) -> None:
    entry = recorded(filesystem(), record)
    a(Withdraw, only_step([entry], [volume_of(entry, annotations=G1)]))


def test_it_is_withdrawn_before_anything_is_added_to_it() -> None:
    """Until then somebody may claim it."""
    entry = recorded(filesystem(), OTHERS)
    entry = replace(entry, identity={**entry.identity, "deviceSerial": "s"})
    older = {key: value for key, value in entry.identity.items() if key != "deviceSerial"}
    a(Withdraw, only_step([entry], [volume_of(entry, annotations=G1, identity=older)]))


def test_what_cannot_be_read_withdraws_nothing() -> None:
    entry = recorded(filesystem(), Unreadable("an error"))
    assert held(only_step([entry], [volume_of(entry, annotations=G1)]), "unknown").again_seconds


@pytest.mark.parametrize(
    ("record", "written"),
    [
        (OFFERED, True),
        (Record("g2"), True),  # a backup brought the claim back: its pods write already
        (HELD, False),
        (OTHERS, False),
        (None, False),
        (Unreadable("an error"), False),
    ],
)
def test_a_claim_takes_what_no_other_holds(record: Recorded, written: bool) -> None:
    entry = recorded(filesystem(), record)
    actions = steps_of([entry], [bound_to(entry, "a", annotations=G1)])
    assert (MarkClaimed in kinds(actions)) == written


def test_the_claim_before_it_is_known_to_the_object() -> None:
    entry = recorded(filesystem(), Record("g1", claim="former"))
    own = {**G1, marks.CLAIMED_ANNOTATION: "former"}
    volume = volume_of(entry, phase="Bound", claim="a", annotations=own)
    actions = steps_of([entry], [volume])
    assert kinds(actions) == [MarkClaimed, Keep]


@pytest.mark.parametrize(
    ("claim", "record", "made"),
    [
        ("a", None, True),
        ("a", HELD, True),
        ("a", OTHERS, False),
        ("a", "nowhere", False),
        ("a", Unreadable("an error"), False),
        ("", None, True),
        ("", OFFERED, True),
        ("", OTHERS, False),
    ],
)
def test_an_object_of_an_older_release_gets_its_record(
    claim: str, record: Recorded, made: bool
) -> None:
    entry = recorded(filesystem(), record)
    volume = bound_to(entry, claim) if claim else volume_of(entry)
    assert (KeepRecord in kinds(steps_of([entry], [volume]))) == made


@pytest.mark.parametrize("first_use", ["require-empty", "clean", "trust"])
def test_what_a_claim_holds_is_not_offered_without_its_object(first_use: Any) -> None:
    classes = [class_facts(first_use=first_use)]
    entry = recorded(filesystem(content="holds"), HELD)
    hold = held(only_step([entry], classes=classes), "recorded")
    assert "`localvolume forget /mnt/disks/disk`" in hold.reason
    # Of a device nobody can tell that it is empty.
    device = recorded(block(), HELD)
    classes = [class_facts(first_use=first_use, mode="Block")]
    held(only_step([device], classes=classes), "recorded")


def test_a_filesystem_without_a_file_is_offered_again() -> None:
    """As an administrator leaves it who has kept what was in it."""
    entry = recorded(filesystem(), HELD)
    a(Publish, only_step([entry], asked={}, online=False))


def test_what_cannot_be_read_is_not_offered_however_empty() -> None:
    entry = recorded(filesystem(), Unreadable("an error"))
    assert held(only_step([entry]), "unknown").again_seconds
