"""What becomes of the records of a pool whose files were copied: by what lies under each name."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.backends.model import Record
from localvolume.backends.pool.restamp import Answer, Seen, judge


def record(name: str = "a", **fields: Any) -> Record:
    known: dict[str, Any] = {
        "name": name,
        "backend": "directory",
        "state": "offered",
        "directory": name,
        "size_bytes": 1,
        "inode": 10,
        "claim_uid": f"uid-of-{name}",
        **fields,
    }
    return Record(**known)


def judged(*pairs: tuple[Record, Seen], by_name: bool = False) -> dict[str, Answer]:
    records = {one.name: one for one, _ in pairs}
    return judge(records, {one.name: seen for one, seen in pairs}, by_name=by_name)


def verdicts(*pairs: tuple[Record, Seen], by_name: bool = False) -> dict[str, str]:
    return {name: one.verdict for name, one in judged(*pairs, by_name=by_name).items()}


def test_a_record_tells_of_what_lies_under_its_name_and_of_nothing_else_anew() -> None:
    known = record()
    answer = judged((known, Seen(identity=77)))["a"]
    assert answer.verdict == "stamp"
    assert answer.record == record(inode=77)


def test_what_is_as_recorded_is_left_so() -> None:
    assert judged((record(), Seen(identity=10)))["a"] == Answer(verdict="fits", record=record())


def test_what_is_missing_is_told() -> None:
    assert verdicts((record(), Seen())) == {"a": "missing"}


@pytest.mark.parametrize("fields", [{"state": "making"}, {"state": "removed", "trash": "a.0"}])
def test_of_what_nobody_has_nothing_is_missing(fields: dict[str, Any]) -> None:
    assert verdicts((record(**fields), Seen())) == {"a": "fits"}


def test_what_cannot_be_the_volume_is_left() -> None:
    answer = judged((record(), Seen(fault="a symbolic link lies at a")))["a"]
    assert (answer.verdict, answer.reason) == ("left", "a symbolic link lies at a")


def test_a_removal_that_was_begun_is_ended_under_its_name_in_the_trash() -> None:
    answer = judged((record(), Seen(identity=77, trash="a.12345678")))["a"]
    assert answer.record == record(inode=77, state="removed", trash="a.12345678")


def test_what_was_removed_is_removed_still() -> None:
    known = record(state="removed", trash="a.12345678")
    answer = judged((known, Seen(identity=77, trash="a.12345678")))["a"]
    assert answer.record == record(inode=77, state="removed", trash="a.12345678")


def test_two_that_may_have_been_swapped_are_doubtful_until_somebody_has_looked() -> None:
    pairs = (record("a", inode=10), Seen(identity=11)), (record("b", inode=11), Seen(identity=10))
    assert verdicts(*pairs) == {"a": "doubtful", "b": "doubtful"}
    assert verdicts(*pairs, by_name=True) == {"a": "stamp", "b": "stamp"}


def test_one_that_took_the_place_of_another_is_doubtful() -> None:
    a = record("a", inode=10), Seen(identity=11)
    assert verdicts(a, (record("b", inode=11), Seen(identity=12))) == {
        "a": "doubtful",
        "b": "stamp",
    }
    assert verdicts(a, (record("b", inode=11), Seen())) == {"a": "doubtful", "b": "missing"}


def test_ids_of_subvolumes_and_inodes_are_no_more_alike_than_any_two_numbers() -> None:
    a = record("a", inode=10, backend="btrfs"), Seen(identity=300)
    assert verdicts(a, (record("b", inode=300), Seen(identity=300))) == {"a": "stamp", "b": "fits"}


def test_one_file_under_two_names_is_nobodys() -> None:
    pairs = (record("a", inode=10), Seen(identity=77)), (record("b", inode=11), Seen(identity=77))
    assert verdicts(*pairs, by_name=True) == {"a": "left", "b": "left"}


@pytest.mark.parametrize("state", ["offered", "making"])
def test_one_in_the_directory_of_another_is_left(state: str) -> None:
    pairs = (
        (record("a", directory="x"), Seen(identity=77)),
        (record("b", directory="x/y", inode=11, state=state), Seen(identity=78)),
        (record("c", inode=12), Seen(identity=79)),
    )
    assert verdicts(*pairs) == {"a": "left", "b": "left", "c": "stamp"}


def test_what_lies_in_the_trash_is_in_nobodys_way() -> None:
    pairs = (
        (record("a", directory="x"), Seen(identity=77)),
        (
            record("b", directory="x/y", inode=11, state="removed", trash="b.0"),
            Seen(identity=78, trash="b.0"),
        ),
    )
    assert verdicts(*pairs) == {"a": "stamp", "b": "stamp"}
