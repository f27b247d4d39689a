"""Snapshots that have a reserve: what classes say, what is promised, told, refused and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from localvolume.backends.capacity import promised
from localvolume.backends.lvm.record import read_entry
from localvolume.backends.lvm.view import view_of
from localvolume.backends.model import Abilities, Fill, Record, kept_for, lost
from localvolume.csi import requests
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import InvalidArgument
from localvolume.dynamic.calls import NoRoom, NotNow, Volume, Wrong
from localvolume.dynamic.classes.reserves import RESERVE, Reserve, reserve
from localvolume.dynamic.model import AnswerCall, Keep, MakeCalled, Pool, Purge
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.kube.snapshotobjects import (
    SnapshotError,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
    VolumeSnapshotContentStatus,
)
from localvolume.snapshots.metrics import SnapshotMetrics
from localvolume.snapshots.plan import (
    FILLING,
    Action,
    Find,
    Remove,
    TellFill,
    TellLost,
    Tidy,
    fault_of_class,
    reserve_of,
)
from localvolume.volumes.capacity import GIB, MIB
from localvolume.volumes.lvtags import BadTag
from localvolume.volumes.snapshots import BEING_DELETED, RESERVE_ANNOTATION
from tests.decisions.support_dynamic import a, action
from tests.decisions.support_dynamic_calls import judged, refused
from tests.decisions.test_dynamic_copies import CUT_NOW, cow, origin, restore
from tests.decisions.test_dynamic_copies import cut as snapshot
from tests.decisions.test_lvm_records import THICK, group, lv, ours, record, told
from tests.decisions.test_snapshots_plan import CREATED, HANDLE, OWN, VOLUME, content
from tests.decisions.test_snapshots_plan import judged as judged_content
from tests.suite.names import CSI

A = TypeVar("A", bound=Action)

MIB64 = 64 * MIB
ABLE = Abilities(
    enforce=True, no_copies="thick volumes share no blocks", full_copies=True, reserves=True
)

# --- what is asked for -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "of_a_gib"),
    [
        ("5%", -(-GIB * 5 // 100)),
        ("99%", -(-GIB * 99 // 100)),
        ("100%", GIB + GIB // 64 + MIB),
        ("64Mi", MIB64),
        ("1", MIB),
        ("5Gi", GIB + GIB // 64 + MIB),
    ],
)
def test_a_reserve_is_a_share_or_a_size(said: str, of_a_gib: int) -> None:
    assert reserve(said).of(GIB) == of_a_gib


@pytest.mark.parametrize("said", ["", "0", "0%", "101%", "-1Gi", "20 %", "1.5%", "much", "007%"])
def test_what_is_no_reserve_is_refused_wherever_it_is_said(said: str) -> None:
    why = "must be a size or 1% to 100%"
    with pytest.raises(ValueError, match=why):
        reserve(said)
    asked = {"name": "s", "source_volume_id": "v", "parameters": {RESERVE: said}}
    with pytest.raises(InvalidArgument, match=f"parameter {RESERVE}: {why}"):
        requests.wanted_snapshot(messages.CreateSnapshotRequest(**asked))
    found = VolumeSnapshotClass(driver=CSI, parameters={RESERVE: said})
    assert f"VolumeSnapshotClass class: parameter {RESERVE}: {why}" in fault_of_class(
        content(), found
    )


def test_both_ways_ask_for_the_same() -> None:
    asked = {"name": "s", "source_volume_id": "v", "parameters": {RESERVE: "20%"}}
    wanted = requests.wanted_snapshot(messages.CreateSnapshotRequest(**asked))
    assert wanted.reserve == Reserve(percent=20)
    found = VolumeSnapshotClass(driver=CSI, parameters={RESERVE: "20%"})
    assert fault_of_class(content(), found) == ""
    assert reserve_of(found) == wanted.reserve
    assert reserve_of(VolumeSnapshotClass(driver=CSI)) is None
    assert reserve_of(None) is None


# --- what is promised --------------------------------------------------------------------------


def thick(*records: Record, fills: Mapping[str, Fill] | None = None, **more: Any) -> Pool:
    found = cow(*records, abilities=ABLE, **more)
    return replace(found, report=replace(found.report, fills=dict(fills or {})))


def reserved(**changes: Any) -> Record:
    return snapshot(**({"reserve_bytes": MIB64, "holds_bytes": MIB64} | changes))


WITH_RESERVE = replace(CUT_NOW, reserve=Reserve(size_bytes=MIB64))


def test_the_reserve_is_what_is_promised() -> None:
    made = a(MakeCalled, judged(WITH_RESERVE, thick(origin())))
    assert made.record == snapshot_record(origin(), made.key, MIB64, reserve_bytes=MIB64)
    assert made.record.size_bytes == origin().size_bytes
    assert "Or let its class allow" in refused(Wrong, CUT_NOW, thick(origin()))


def test_without_room_for_the_reserve_it_is_refused() -> None:
    left = thick(origin(), room=MIB64 - 1)
    assert "64Mi" in refused(NoRoom, WITH_RESERVE, left)


def test_a_pool_that_shares_blocks_needs_no_reserve() -> None:
    made = a(MakeCalled, judged(WITH_RESERVE, cow(origin())))
    assert made.record.reserve_bytes == 0
    slow = Abilities(enforce=True, no_copies="ext4 shares nothing", full_copies=True)
    assert "ext4 shares" in refused(Wrong, WITH_RESERVE, cow(origin(), abilities=slow))
    full = a(MakeCalled, judged(replace(WITH_RESERVE, full_copies=True),
                                cow(origin(), abilities=slow)))  # fmt: skip
    assert (full.record.full_copies, full.record.reserve_bytes) == (True, 0)


# --- what is lost ------------------------------------------------------------------------------


def test_what_is_lost_is_never_handed_out() -> None:
    there = (origin(), reserved())
    fills = {reserved().name: Fill(percent=100, lost=True)}
    ready = thick(*there, fills={reserved().name: Fill(percent=80)})
    answered = a(AnswerCall, judged(WITH_RESERVE, ready))
    assert (answered.record, answered.fill) == (reserved(), Fill(percent=80))
    a(MakeCalled, judged(restore(full_copies=True), ready))
    for call in (WITH_RESERVE, restore(full_copies=True)):
        assert "is lost: more of pvc-1" in refused(Wrong, call, thick(*there, fills=fills))
        # Until it is known, nothing is said of it.
        assert "it is not known yet how full" in refused(NotNow, call, thick(*there))


@pytest.mark.parametrize(
    ("one", "fill", "readable"),
    [
        (snapshot(), None, True),
        (reserved(), None, False),
        (reserved(), Fill(percent=99), True),
        (reserved(), Fill(percent=100, lost=True), False),
    ],
)
def test_only_what_is_known_to_be_there_is_ready(
    one: Record, fill: Fill | None, readable: bool
) -> None:
    assert Volume(record=one, pool="p", fill=fill).is_readable is readable


# --- the volume --------------------------------------------------------------------------------


def test_a_removed_volume_stays_for_the_last_of_its_snapshots() -> None:
    gone = origin(state="removed")
    for state in ("making", "offered", "removed"):
        kept = a(Keep, action(thick(gone, reserved(state=state)), name=gone.name))
        assert kept.reason == f"its data stays for {reserved().name}"
    for other in (snapshot(), reserved(snapshot_of="pvc-9")):
        a(Purge, action(thick(gone, other), name=gone.name))
    a(Purge, action(thick(gone, reserved(state="removed")), name=reserved().name))


# --- records and reports -----------------------------------------------------------------------


def of_lvm(state: str = "offered", **fields: Any) -> Record:
    known = {"snapshot_of": "pvc-1", "reserve_bytes": 8 * MIB, "holds_bytes": 8 * MIB}
    return record("s", state=state, size_bytes=40 * MIB, **{**known, **fields})


def cut_lv(one: Record | None = None, size: int = 8 * MIB, **fields: Any) -> Any:
    known = {"kind": "snapshot", "origin": "pvc-1", "active": True, "data_percent": 10.0}
    return ours(one or of_lvm(), size, **{**known, **fields})


@pytest.mark.parametrize("state", ["making", "offered", "removed"])
def test_a_record_in_a_snapshots_tags_is_read_as_it_was_written(state: str) -> None:
    assert read_entry(cut_lv(of_lvm(state))).record == of_lvm(state)
    entry = read_entry(cut_lv(of_lvm(state)))
    assert entry.content_bytes == 40 * MIB
    # Somebody has extended the reserve.
    assert read_entry(cut_lv(of_lvm(state), 12 * MIB)).record.holds_bytes == 12 * MIB


@pytest.mark.parametrize(
    "volume",
    [
        cut_lv(kind="thick", origin="", size=40 * MIB),
        cut_lv(of_lvm(reserve_bytes=0), size=40 * MIB),
        cut_lv(origin="pvc-2"),
    ],
)
def test_a_snapshot_that_is_not_what_its_tags_say_is_left_alone(volume: Any) -> None:
    with pytest.raises(BadTag):
        read_entry(volume)
    assert list(view_of(THICK, group(), [volume]).unreadable) == ["s"]


def test_its_reserve_is_counted_and_told() -> None:
    volume = ours(record("pvc-1", size_bytes=40 * MIB), 40 * MIB)
    seen = view_of(THICK, group(), [volume, cut_lv()])
    report = told(seen)
    assert report.fills == {"s": Fill(percent=10.0)}
    assert promised(report) == 48 * MIB
    assert kept_for("pvc-1", report.records.values()) == seen.kept_on("pvc-1") == ["s"]
    assert not report.warnings


@pytest.mark.parametrize(
    ("state", "fields", "fill", "warning"),
    [
        ("offered", {"data_percent": 79.9}, Fill(percent=79.9), ""),
        ("offered", {"data_percent": 80.0}, Fill(percent=80.0), "more than 80% full"),
        (
            "offered",
            {"data_percent": 100.0, "health": "invalid"},
            Fill(percent=100.0, lost=True),
            "lost",
        ),
        ("offered", {"data_percent": None, "health": "invalid"}, Fill(lost=True), "lost"),
        ("offered", {"data_percent": None}, None, ""),
        ("offered", {"data_percent": 10.0, "health": "partial"}, None, "LVM says of vg/s: partial"),
        ("offered", {"active": False}, None, ""),
        ("making", {"data_percent": 90.0}, None, "more than 80% full"),
        ("removed", {"data_percent": 90.0}, None, ""),
    ],
)
def test_how_full_it_is(
    state: str, fields: dict[str, Any], fill: Fill | None, warning: str
) -> None:
    report = told(view_of(THICK, group(), [lv("pvc-1"), cut_lv(of_lvm(state), **fields)]))
    assert report.fills.get("s") == fill
    assert [warning in one for one in report.warnings] == ([True] if warning else [])


# --- contents ----------------------------------------------------------------------------------

READY = VolumeSnapshotContentStatus(snapshot_handle=HANDLE, ready_to_use=True)
WHY = lost(reserved())
TOLD = VolumeSnapshotContentStatus(
    snapshot_handle=HANDLE, ready_to_use=False, error=SnapshotError(message=WHY)
)


def an(kind: type[A], found: Any) -> A:
    assert isinstance(found, kind), found
    return found


def of(one: VolumeSnapshotContent, **known: Any) -> Any:
    return judged_content(one, snapshots={HANDLE: VOLUME}, **known)


def test_that_it_is_lost_is_told_once() -> None:
    gone = {"lost": {HANDLE: WHY}}
    said = an(TellLost, of(content(notes=OWN, status=READY), **gone))
    assert said.reason == WHY
    assert of(content(notes=OWN, status=TOLD), **gone) is None
    # What would keep it from being deleted is taken away.
    an(Tidy, of(content(notes=OWN | CREATED, status=TOLD), **gone))
    going = content(notes=OWN | {BEING_DELETED: "yes"}, status=TOLD, going=True)
    assert an(Remove, of(going, **gone)).handle == HANDLE
    # Where nobody knows any more, it is asked again, and answered so.
    an(Find, of(content(notes=OWN, status=TOLD)))


def test_that_it_fills_is_told_once_and_taken_back() -> None:
    marked = OWN | {RESERVE_ANNOTATION: FILLING}
    for fill in (80.0, 99.9):
        full = {"fills": {HANDLE: fill}}
        assert an(TellFill, of(content(notes=OWN, status=READY), **full)).filling == FILLING
        assert of(content(notes=marked, status=READY), **full) is None
    room = {"fills": {HANDLE: 79.9}}
    assert of(content(notes=OWN, status=READY), **room) is None
    assert an(TellFill, of(content(notes=marked, status=READY), **room)).filling == ""
    # Where it is not known, what was said stays.
    assert of(content(notes=marked, status=READY)) is None


def test_they_are_counted() -> None:
    registry = CollectorRegistry()
    SnapshotMetrics(registry).tell_reserves([0.0, 79.9, 80.0, 100.0], 3)
    assert {
        state: registry.get_sample_value("localvolume_snapshot_reserves", {"state": state})
        for state in ("room", "filling", "lost")
    } == {"room": 2, "filling": 2, "lost": 3}
