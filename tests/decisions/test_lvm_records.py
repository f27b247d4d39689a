"""Records of logical volumes, written in tags and read back, and what LVM's reports make a pool."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.backends.capacity import promised
from localvolume.backends.lvm.record import (
    CUT,
    GROWTH,
    KEPT,
    KIND,
    OF,
    fields_of,
    is_begun,
    kept_fields,
    read_entry,
)
from localvolume.backends.lvm.view import NoPool, View, report_of, view_of, warnings_of
from localvolume.backends.model import Abilities, PoolReport, Record, Usage, as_offered
from localvolume.config.pools import LvmConfig
from localvolume.host.lvm.commands import LogicalVolume, VolumeGroup
from localvolume.volumes.attributes import Attributes
from localvolume.volumes.lvtags import FLEX_OWNER, OWNER, POOL_OWNER, BadTag, encode
from tests.suite.units import MIB

EXTENT = 4 * MIB
THICK, THIN = LvmConfig(group="vg"), LvmConfig(group="vg", thin_pool="tp")


def group(**fields: Any) -> VolumeGroup:
    known = {"size_bytes": 400 * MIB, "free_bytes": 200 * MIB, "extent_bytes": EXTENT}
    return VolumeGroup(**{"name": "vg", "uuid": "vg-uuid", **known, **fields})


def lv(name: str, size: int = 12 * MIB, **fields: Any) -> LogicalVolume:
    known: dict[str, Any] = {"uuid": f"u-{name}", "group": "vg", "kind": "thick"}
    return LogicalVolume(name=name, size_bytes=size, **{**known, **fields})


def thin_pool(**fields: Any) -> LogicalVolume:
    known = {"kind": "pool", "zeroes": True, "data_percent": 25.0, "metadata_percent": 10.0}
    return lv("tp", 100 * MIB, **{**known, **fields})


def record(name: str = "pvc-1", **fields: Any) -> Record:
    known: dict[str, Any] = {"state": "offered", "size_bytes": 12 * MIB, "sparse": False}
    return Record(name=name, backend="lvm", directory="", **{**known, **fields})


def ours(one: Record, size: int = 12 * MIB, **fields: Any) -> LogicalVolume:
    return lv(one.name, size, tags=encode(fields_of(one)), **fields)


def tagged(name: str, told: dict[str, str], **fields: Any) -> LogicalVolume:
    return lv(name, tags=encode(told), **fields)


def told(seen: View) -> PoolReport:
    return report_of("p", seen, abilities=Abilities(enforce=True))


# --- records -------------------------------------------------------------------------------------

texts = st.text(max_size=60)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)


@given(
    name=names,
    state=st.sampled_from(["made", "offered", "removed"]),
    class_name=texts,
    claim=texts,
    claim_uid=texts,
    volume_uid=texts,
    mode=st.sampled_from(["Filesystem", "Block"]),
    fs=st.sampled_from(["", "ext4", "xfs"]),
    perm=st.integers(0, 0o7777),
    ids=st.tuples(st.integers(0, 2**32 - 2), st.integers(0, 2**32 - 2)),
    wipe=st.sampled_from(["", "overwrite", "discard"]),
    copied=st.tuples(names, names, st.integers(0, 2**63), st.integers(0, 2**60)),
    kept=st.builds(
        Attributes,
        class_name=names | st.just(""),
        undo_seconds=st.none() | st.floats(0, 1e9),
    ),
    full_copies=st.booleans(),
    group=st.just(("", 0)) | st.tuples(names.filter(bool), st.integers(1, 1 << 20)),
    extents=st.integers(1, 1 << 20),
)
def test_a_record_is_read_as_it_was_written(
    name: str,
    state: Any,
    class_name: str,
    claim: str,
    claim_uid: str,
    volume_uid: str,
    mode: Any,
    fs: str,
    perm: int,
    ids: tuple[int, int],
    wipe: str,
    copied: tuple[str, str, int, int],
    kept: Attributes,
    full_copies: bool,
    group: tuple[str, int],
    extents: int,
) -> None:
    written = record(
        name,
        state=state,
        size_bytes=extents * EXTENT,
        class_name=class_name,
        claim=claim,
        claim_uid=claim_uid,
        volume_uid=volume_uid,
        full_copies=full_copies,
        volume_mode=mode,
        fs_type=fs,
        mode=perm,
        uid=ids[0],
        gid=ids[1],
        overwrite=wipe == "overwrite",
        discard=wipe == "discard",
        snapshot_of=copied[0],
        made_from=copied[1],
        cut_at=copied[2],
        holds_bytes=copied[3],
        group=group[0],
        group_size=group[1],
        attributes=kept,
    )
    try:
        volume = ours(written, extents * EXTENT)
    except BadTag:
        return  # longer than a tag can be: refused before anything is made
    assert read_entry(volume).record == written
    # Others' tags change nothing.
    more = replace(volume, tags=volume.tags | {"backup", "topolvm.io/x"})
    assert read_entry(more).record == written


def test_what_lvm_has_given_counts_once_the_filesystem_has_it() -> None:
    """TopoLVM's recovery forgot the size; here it is on the volume from its first moment on.

    W-21.
    """
    extended = ours(record(size_bytes=12 * MIB), 20 * MIB)
    assert read_entry(extended).record.size_bytes == 12 * MIB
    begun = ours(record(state="making", size_bytes=10 * MIB), 12 * MIB)
    assert read_entry(begun).record.size_bytes == 12 * MIB
    assert read_entry(begun).asked == 10 * MIB


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "pvc-2"}, "renamed"),
        ({"attributes": "gold"}, "are no attributes"),
        ({"attributes": '{"class_name":7}'}, "are no attributes"),
        ({"name": ""}, "renamed"),
        ({"state": ""}, "state"),
        ({"state": "gone"}, "state"),
        ({"mode": "block"}, "mode"),
        ({"size": ""}, "size"),
        ({"size": "-1"}, "size"),
        ({"size": "1e3"}, "size"),
        ({"size": str(13 * MIB)}, "smaller"),
        ({"perm": "999"}, "perm"),
        ({"uid": "root"}, "uid"),
        ({"on-removal": "shred"}, "on-removal"),
        ({"zeroed": "x"}, "zeroed"),
        ({"group": "g"}, "group-size"),
    ],
)
def test_tags_that_make_no_sense_are_no_record(change: dict[str, str], why: str) -> None:
    volume = tagged("pvc-1", {**fields_of(record()), **change})
    with pytest.raises(BadTag, match=why):
        read_entry(volume)
    seen = view_of(THICK, group(), [volume])
    assert set(seen.unreadable) == {"pvc-1"}
    assert not seen.entries


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        # Made as asked for, whatever its pool's options say today.
        ({"option_class": "ssd"}, True),
        # As it is reported while it is made: the plan makes it by that.
        ({"size_bytes": 12 * MIB}, True),
        ({"size_bytes": 12 * MIB, "claim_uid": "other"}, False),
        ({"size_bytes": 11 * MIB}, False),
        ({"size_bytes": 16 * MIB}, False),
        ({"claim_uid": "other"}, False),
        ({"volume_mode": "Block"}, False),
        ({"fs_type": "xfs"}, False),
        ({"mode": 0o700}, False),
        ({"overwrite": True}, False),
    ],
)
def test_what_is_half_made_goes_on_if_it_is_what_is_asked_for(
    change: dict[str, Any], same: bool
) -> None:
    """W-25: TopoLVM: what exists is taken for what is asked for."""
    asked = record(state="making", size_bytes=10 * MIB)
    begun = read_entry(ours(asked, 12 * MIB))
    assert is_begun(begun, replace(asked, **change)) is same


# --- the pool ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "there", "volumes", "why"),
    [
        (THICK, {"missing": 1}, [], "1 physical volumes of vg are missing"),
        (THICK, {"writable": False}, [], "read-only"),
        (THIN, {}, [], "no thin pool tp"),
        (THIN, {}, [lv("tp")], "is no thin pool"),
        (THIN, {}, [thin_pool(zeroes=False)], "lvchange --zero y vg/tp"),
    ],
)
def test_what_cannot_be_the_pool(
    config: LvmConfig, there: dict[str, Any], volumes: list[LogicalVolume], why: str
) -> None:
    with pytest.raises(NoPool, match=why):
        view_of(config, group(**there), volumes)


def test_the_id_is_the_groups_or_the_thin_pools() -> None:
    assert view_of(THICK, group(), []).id == "vg-uuid"
    assert view_of(THIN, group(), [thin_pool()]).id == "u-tp"


def test_foreign_volumes_are_neither_volumes_nor_orphans() -> None:
    """elastic's collector removed every logical volume that had no PersistentVolume."""
    volumes = [
        lv("root"),
        lv("pvc-2", tags=frozenset({"topolvm"})),
        tagged("pvc-3", {**fields_of(record("pvc-3")), OWNER: FLEX_OWNER}),
        lv("raid", kind="other"),
        thin_pool(),
        lv("pvc-4", kind="thin", pool="tp", tags=encode(fields_of(record("pvc-4")))),
    ]
    seen = view_of(THICK, group(), volumes)
    assert (dict(seen.entries), dict(seen.unreadable), list(seen.orphans)) == ({}, {}, [])


def test_thick_and_thin_of_one_group_are_two_pools() -> None:
    volumes = [
        thin_pool(),
        ours(record("a")),
        ours(record("b", sparse=True), kind="thin", pool="tp"),
        ours(record("c", sparse=True), kind="thin", pool="other"),
    ]
    assert set(view_of(THICK, group(), volumes).entries) == {"a"}
    assert set(view_of(THIN, group(), volumes).entries) == {"b"}


def test_a_thin_pool_or_snapshot_that_carries_our_tags_is_left_alone() -> None:
    volumes = [
        thin_pool(tags=encode(fields_of(record("tp")))),
        ours(record("a"), kind="snapshot", origin="x"),
        tagged("tp2", {OWNER: POOL_OWNER, KIND: "other", OF: "x"}, kind="pool"),
        tagged("b", {OWNER: POOL_OWNER, KIND: "other", OF: "x"}, kind="other"),
    ]
    seen = view_of(THICK, group(), volumes)
    assert set(seen.unreadable) == {"tp", "tp2", "a", "b"}
    assert not seen.entries


def test_doubled_tags_are_unreadable() -> None:
    volume = ours(record())
    volume = replace(volume, tags=volume.tags | {"localvolume.dev/state=made"})
    assert "pvc-1" in view_of(THICK, group(), [volume]).unreadable


def test_what_was_kept_is_an_orphan_and_nothing_else() -> None:
    kept = kept_fields(record(claim="ns/data", claim_uid="u", volume_uid="v"))
    assert kept["claim"] == "ns/data"
    assert kept[KEPT]
    seen = view_of(THICK, group(), [tagged("pvc-1", kept)])
    assert (list(seen.orphans), dict(seen.entries)) == (["pvc-1"], {})


@pytest.mark.parametrize(("kind", "name"), [(GROWTH, "a.growing"), (CUT, "a.cut")])
def test_what_a_volume_has_beside_it_for_a_while_is_its_own(kind: str, name: str) -> None:
    """Room to grow by, or the cut that it is copied from."""
    aside = {OWNER: POOL_OWNER, KIND: kind, OF: "a"}
    volumes = [ours(record("a")), tagged(name, aside)]
    seen = view_of(THICK, group(), volumes)
    assert (set(seen.entries), list(seen.orphans)) == ({"a"}, [])
    assert list(view_of(THICK, group(), volumes[1:]).orphans) == [name]
    # Nobody goes on that was let go of; who cannot be read may.
    kept = [tagged("a", kept_fields(record("a"))), volumes[1]]
    assert list(view_of(THICK, group(), kept).orphans) == ["a", name]
    torn = [tagged("a", {**fields_of(record("a")), "state": "x"}), volumes[1]]
    assert list(view_of(THICK, group(), torn).orphans) == []


def test_what_a_growth_has_taken_already_is_told() -> None:
    aside = {OWNER: POOL_OWNER, KIND: GROWTH}
    volumes = [
        # Extended, and set aside to be zeroed; as before; both; while it is made, and at its end.
        ours(record("a"), 20 * MIB),
        ours(record("b")),
        tagged("b.growing", {**aside, OF: "b"}),
        ours(record("c"), 16 * MIB),
        tagged("c.growing", {**aside, OF: "c"}),
        ours(record("d")),
        ours(record("e", state="making", size_bytes=10 * MIB)),
        ours(record("f", state="removed"), 20 * MIB),
        # Whoever renamed it: it is not what growing goes on with.
        tagged("x", {**aside, OF: "d"}),
    ]
    report = told(view_of(THICK, group(), volumes))
    begun = {name: usage.begun_bytes // MIB for name, usage in report.usage.items()}
    assert begun == {"a": 8, "b": 12, "c": 16}
    held = Usage(used_bytes=MIB)
    seen = view_of(THICK, group(), volumes[:1])
    with_usage = report_of("p", seen, abilities=Abilities(enforce=True), usage={"a": held})
    assert with_usage.usage == {"a": replace(held, begun_bytes=8 * MIB)}


def test_striped_volumes_come_in_extents_on_each_disk() -> None:
    striped = replace(THICK, stripes=3)
    assert told(view_of(striped, group(), [])).unit_bytes == 3 * EXTENT
    # In a thin pool they lie as that does.
    striped = replace(THIN, stripes=3)
    assert told(view_of(striped, group(), [thin_pool()])).unit_bytes == EXTENT


def test_classic_snapshots_of_others_are_in_the_way_of_their_origin_and_thin_ones_are_not() -> None:
    volumes = [
        thin_pool(),
        ours(record("a")),
        lv("backup", kind="snapshot", origin="a"),
        lv("other", kind="snapshot", origin="b"),
    ]
    seen = view_of(THICK, group(), volumes)
    assert (seen.on("a"), set(seen.entries)) == (["backup"], {"a"})
    thin = [
        thin_pool(),
        ours(record("a"), kind="thin", pool="tp"),
        lv("backup", kind="thin", pool="tp", origin="a"),
    ]
    assert view_of(THIN, group(), thin).on("a") == []


def test_a_snapshot_counts_with_what_it_holds_and_a_copy_with_its_size() -> None:
    snapshot = record("s", snapshot_of="a", cut_at=1, holds_bytes=4 * MIB, sparse=True)
    copied = record("c", made_from="s", sparse=True)
    volumes = [
        thin_pool(),
        ours(record("a", sparse=True), kind="thin", pool="tp"),
        # Its volume had begun to grow when it was cut.
        ours(snapshot, 16 * MIB, kind="thin", pool="tp", origin="a"),
        ours(copied, kind="thin", pool="tp", origin="s"),
    ]
    report = told(view_of(THIN, group(), volumes))
    assert report.records == {"a": record("a", sparse=True), "s": snapshot, "c": copied}
    assert promised(report) + report.foreign_bytes == (12 + 4 + 12 + 4) * MIB
    assert report.usage == {}
    assert list(report.orphans) == []


def test_the_room_of_a_group_and_of_a_thin_pool() -> None:
    report = told(view_of(THICK, group(), [ours(record())]))
    assert (report.total_bytes, report.available_bytes) == (400 * MIB, 200 * MIB)
    assert report.used_bytes == 200 * MIB
    assert report.unit_bytes == EXTENT
    assert report.foreign_bytes == 0
    volumes = [
        thin_pool(),
        # Extended by a command before a crash: that is promised, and not yet in its record.
        ours(record("a", size_bytes=12 * MIB), 20 * MIB, kind="thin", pool="tp"),
        lv("foreign", 40 * MIB, kind="thin", pool="tp"),
        lv("backup", kind="thin", pool="tp", origin="a"),
        lv("elsewhere", kind="thin", pool="other"),
    ]
    report = told(view_of(THIN, group(), volumes))
    assert (report.total_bytes, report.available_bytes) == (100 * MIB, 75 * MIB)
    assert report.used_bytes == 25 * MIB
    assert report.foreign_bytes == (8 + 40 + 12) * MIB
    assert (report.data_percent, report.metadata_percent) == (25.0, 10.0)


def test_a_thin_pool_that_does_not_say_how_full_it_is_has_no_room() -> None:
    report = told(view_of(THIN, group(), [thin_pool(data_percent=None)]))
    assert report.available_bytes == 0
    assert report.used_bytes is None


def test_what_may_not_be_allocated_is_not_used() -> None:
    """A physical volume of the group is set aside."""
    report = told(view_of(THICK, replace(group(), free=((10,),)), []))
    assert (report.available_bytes, report.used_bytes) == (10 * EXTENT, 200 * MIB)


@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        ((79.9, 79.9), []),
        ((80.0, 10.0), ["data of vg/tp is more than 80%"]),
        ((94.99, 10.0), ["data of vg/tp is more than 80%"]),
        ((95.0, 10.0), ["no volume is made there"]),
        ((10.0, 85.0), ["metadata of vg/tp is more than 80%"]),
        ((100.0, 99.0), ["data of vg/tp is more than 95%", "metadata of vg/tp is more than 95%"]),
        ((None, None), []),
    ],
)
def test_people_are_warned_before_a_thin_pool_fills(
    percents: tuple[float | None, float | None], expected: list[str]
) -> None:
    pool = thin_pool(data_percent=percents[0], metadata_percent=percents[1])
    found = warnings_of(view_of(THIN, group(), [pool]))
    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True))


def test_people_are_warned_of_what_lvm_says_of_ours() -> None:
    volumes = [ours(record("a"), health="partial"), lv("foreign", health="partial")]
    found = warnings_of(view_of(THICK, group(), volumes))
    assert found == ["LVM says of vg/a: partial"]


def test_all_whom_it_was_given_to_fit_into_a_tag() -> None:
    made = record(claim_uid="0")
    uids = [str(uuid.UUID(int=number)) for number in range(40)]
    for number, uid in enumerate(uids):
        # Whatever is noted twice, as by an agent that was killed in between, is there once.
        made = as_offered(as_offered(made, "", uid, number), "", uid, number - 1)
    found = read_entry(ours(made)).record
    assert (found.given, found.generation) == (tuple(uids[-24:]), 39)
