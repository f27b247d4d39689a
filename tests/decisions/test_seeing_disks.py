"""Raw disks in `status`: what agents tell of them, and what one that was taken over may not do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localvolume.cli.seeing.page.model import page_data
from localvolume.cli.seeing.status.disks import told_in
from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.tables import print_status
from localvolume.disks.plan.told import MOST, note_of
from tests.decisions.support_disks import disk, disks_of, inside, planned
from tests.decisions.support_seeing import NOW, agent, facts, node, room, volume


def seen(*things: Any, **more: Any) -> dict[str, Any]:
    return {one["name"]: one for one in overview(facts(*things, **more))["nodes"]}


PLAN = planned(disk("sda"), inside(disk("sdb"), signature="ext4"))


def test_a_node_has_the_disks_that_its_agent_tells_of() -> None:
    found = seen(node(), node("n2"), agent(), agent("n2"), disks_of(PLAN))
    first, second = found["n1"]["disks"]
    assert first == {
        "path": "/dev/disk/by-id/wwn-0x5000sda",
        "device": "/dev/sda",
        "capacityBytes": 100 * 2**30,
        "model": "SAMSUNG_MZ7",
        "serial": "S-sda",
        "wwn": "naa.5000sda",
        "transport": "sata",
        "class": "fast",
        "verdict": "format",
        "code": "",
        "reason": "it is blank, and ssds matches it: ext4 for fast; the plan is not approved",
        "plan": PLAN.digest,
        "approved": False,
    }
    assert (second["verdict"], second["code"], second["approved"]) == ("hold", "signature", None)
    assert found["n1"]["disksLeftOut"] == 0
    # No agent tells of the other node.
    assert (found["n2"]["disks"], found["n2"]["disksLeftOut"]) == (None, None)


def test_of_several_notes_the_first_counts_that_is_one() -> None:
    assert len(seen(disks_of("no JSON"), disks_of(PLAN), disks_of(planned()))["n1"]["disks"]) == 2
    assert seen(disks_of(planned()), disks_of(PLAN))["n1"]["disks"] == []


def test_no_disks_are_none_and_what_cannot_be_read_is_unknown() -> None:
    assert seen(disks_of(planned()))["n1"]["disks"] == []
    unread = seen(agent(), without={"csistoragecapacities": "not allowed"})
    assert unread["n1"]["disks"] is None


def test_the_object_for_disks_is_no_room_of_a_pool() -> None:
    found = seen(disks_of(PLAN), room("made", "4Gi"))["n1"]
    assert [one["class"] for one in found["rooms"]] == ["made"]
    assert found["pools"] == []


def test_a_node_of_which_only_disks_are_known_is_listed() -> None:
    assert list(seen(node("n3"), agent("n1"), disks_of(PLAN, "n3"))) == ["n1", "n3"]


def test_the_wide_table_has_disks_and_pools(capsys: pytest.CaptureFixture[str]) -> None:
    note = {"localvolume.dev/pools": '{"fast":{"totalBytes":4096,"usedBytes":1024}}'}
    more = json.dumps({**json.loads(note_of(PLAN)), "more": 3})
    known = facts(disks_of(more), room("made", "1Ki", annotations=note))
    print_status(overview(known), NOW, wide=False)
    assert "RAW DISK" not in capsys.readouterr().out
    print_status(overview(known), NOW, wide=True)
    lines = capsys.readouterr().out.splitlines()
    (row,) = (line for line in lines if "wwn-0x5000sda" in line)
    path = "/dev/disk/by-id/wwn-0x5000sda"
    assert row.split()[:6] == ["n1", path, "100Gi", "SAMSUNG_MZ7", "fast", "format"]
    (row,) = (line for line in lines if line.split()[1:2] == ["fast"])
    assert row.split() == ["n1", "fast", "0", "0", "1Ki", "4Ki"]
    assert "n1: 3 more raw disks" in lines


@pytest.mark.parametrize(
    ("more", "line"), [(1, "n1: 1 more raw disk"), (7, "n1: 7 more raw disks")]
)
def test_disks_are_counted_if_none_can_be_shown(
    more: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = overview(facts(disks_of(json.dumps({"disks": [], "more": more}))))
    print_status(known, NOW, wide=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["", line]
    assert not any("RAW DISK" in one for one in lines)


def like(**changes: Any) -> str:
    (one, *_) = json.loads(note_of(PLAN))["disks"]
    return json.dumps({"disks": [{**one, **changes}]})


@pytest.mark.parametrize(
    "note",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "[]",
        '{"disks": null}',
        '{"disks": {"a": 1}}',
        "1" * 5000,
    ],
)
def test_what_is_no_such_note_tells_of_nothing(note: str) -> None:
    assert seen(node(), disks_of(note))["n1"]["disks"] is None


@pytest.mark.parametrize(
    "change",
    [{"path": ""}, {"path": 1}, {"verdict": "wiped"}, {"verdict": []}, {"verdict": None}],
)
def test_what_no_agent_writes_of_a_disk_is_left_out_and_counted(change: dict[str, Any]) -> None:
    assert told_in(like(**change)) == ([], 1)


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("sizeBytes", -1, None),
        ("sizeBytes", 10**400, None),
        ("sizeBytes", True, None),
        ("model", ["x"], ""),
        ("approved", "yes", None),
        ("reason", "x" * 10_000, "x" * 500),
    ],
)
def test_a_value_that_makes_no_sense_is_unknown(key: str, value: object, read: object) -> None:
    disks, left_out = told_in(like(**{key: value}))
    assert disks is not None
    assert (len(disks), left_out) == (1, 0)
    assert disks[0]["capacityBytes" if key == "sizeBytes" else key] == read


def test_an_agent_that_tells_of_thousands_has_most_of_them_counted() -> None:
    one = json.loads(like())["disks"][0]
    disks, more = told_in(json.dumps({"disks": [one] * 5000, "more": 5}))
    assert disks is not None
    assert (len(disks), more) == (MOST, 5000 - MOST + 5)


# JSON can hold surrogates without their other half, which no encoding of text can.
TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(["\ud800", "\udc80x"])
HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(HOSTILE, HOSTILE)
@example("\ud800", "\ud800")
def test_no_note_ends_who_looks(value: object, text: object) -> None:
    """Not the JSON, not the tables, and not the page."""
    notes = [
        json.dumps(value),
        json.dumps({"disks": value, "more": text}),
        like(path=text, verdict=value),
        like(model=text, reason=text, sizeBytes=value, plan=value, approved=text),
        json.dumps({str(text): 1}),
    ]
    identity = {"localvolume.dev/identity": json.dumps({str(text): str(text)})}
    for note in notes:
        pools = {"localvolume.dev/pools": note}
        things = volume(annotations=identity), room("made", "1Gi", annotations=pools)
        known = overview(facts(disks_of(note), *things))
        json.dumps(known)
        print_status(known, NOW, wide=True)
        page_data(known, {})


def test_what_one_agent_tells_is_of_its_own_node_alone() -> None:
    """The admission policies hold it to its own label; what it says of others does not count."""
    lie = json.loads(note_of(PLAN))
    lie["node"] = "n2"
    found = seen(node(), node("n2"), disks_of(json.dumps(lie)), disks_of(planned(), "n2"))
    assert len(found["n1"]["disks"]) == 2
    assert found["n2"]["disks"] == []
