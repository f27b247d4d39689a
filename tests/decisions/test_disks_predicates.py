"""Which disks a filter means, and which are never touched: every predicate, by its name."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localvolume.config.disks import DiskMatch, DisksConfig
from localvolume.disks.model import Claim, Disk, Inside
from localvolume.disks.plan.naming import stable
from localvolume.disks.plan.plan import worth_a_look
from localvolume.disks.plan.predicates import INSIDE, MEANT, OUTSIDE
from tests.decisions.support_disks import disk, inside, judged, planned, wanted
from tests.suite.chance import examples
from tests.suite.units import GIB

PARTITION: dict[str, Any] = {
    "parent": "sda",
    "identity": {"wwn": "naa.5000sda", "partUuid": "11111111-01"},
}


class TestMeaning:
    @pytest.mark.parametrize(
        ("match", "keys", "said"),
        [
            ({"min_bytes": 200 * GIB}, {}, "it has 100Gi, less than 200Gi"),
            ({"max_bytes": 50 * GIB}, {}, "it has 100Gi, more than 50Gi"),
            ({"model": "INTEL*"}, {}, "its model is 'SAMSUNG_MZ7'"),
            ({"model": "INTEL*"}, {"model": ""}, "its model is not known"),
            ({"vendor": "WD"}, {}, "its vendor is 'ATA'"),
            ({"rotational": True}, {}, "it does not rotate"),
            ({"rotational": False}, {"rotational": True}, "it rotates"),
            ({"rotational": False}, {"rotational": None}, "whether it rotates is not known"),
            ({"transport": "nvme"}, {}, "its transport is sata"),
            ({"by_id": "nvme-*"}, {}, "no link of that name"),
            ({"partitions": True, "model": "*"}, {}, "it is a whole disk"),
            ({"model": "*"}, PARTITION, "it is a partition of sda"),
            ({"model": "*"}, {"size_bytes": GIB - 1}, "less than 1Gi"),
            *(
                ({"model": "*"}, {"transport": word}, "which a filter must name")
                for word in ("usb", "loop", "iscsi", "fc", "mmc", "nvme-of")
            ),
        ],
    )
    def test_a_disk_that_is_not_meant_is_left_alone(
        self, match: dict[str, Any], keys: dict[str, Any], said: str
    ) -> None:
        row = judged(disk(**keys), filters=[wanted(match=DiskMatch(**match))])
        assert row.verdict == "skip"
        assert said in row.reason

    @pytest.mark.parametrize(
        ("match", "keys"),
        [
            ({"min_bytes": 100 * GIB, "max_bytes": 100 * GIB}, {}),
            ({"model": "SAMSUNG*", "vendor": "ATA", "rotational": False}, {}),
            ({"by_id": "wwn-*"}, {}),
            ({"min_bytes": 512 << 20}, {"size_bytes": 512 << 20}),
            ({"transport": "loop"}, {"transport": "loop"}),
            ({"partitions": True, "model": "*"}, PARTITION),
        ],
    )
    def test_a_disk_that_is_meant_would_be_formatted(
        self, match: dict[str, Any], keys: dict[str, Any]
    ) -> None:
        assert judged(disk(**keys), filters=[wanted(match=DiskMatch(**match))]).verdict == "format"

    def test_the_first_filter_counts(self) -> None:
        filters = [wanted(name="a", match=DiskMatch(model="SAM*")), wanted(name="b")]
        row = judged(disk(), filters=filters)
        assert row.filter is not None
        assert row.filter.name == "a"

    def test_without_filters_nothing_is_meant(self) -> None:
        assert judged(disk(), filters=[]).verdict == "skip"


CLAIM = Claim("sha256:" + "0" * 64, "u-u-i-d", {"wwn": "naa.other"})

HELD: dict[str, Disk] = {
    "virtual": disk(virtual=True),
    "removable": disk(removable=True),
    "read-only": disk(read_only=True),
    "partitions": disk(partitions=("sda1",)),
    "holders": disk(holders=("dm-0",)),
    "disk-holders": disk(parent_holders=("dm-0",)),
    "reserved": disk(part_name="EFI System Partition"),
    "nameless": disk(identity={"kind": "block", "model": "X", "sizeBytes": "1"}),
    "too-small": disk(size_bytes=299 << 20),
    "misplaced": disk(misplaced="hostDir is another directory"),
    "unknown": inside(disk(), unknown="it cannot be read"),
    "users": inside(disk(), users=("sda: loop device /dev/loop3",)),
    "mounts": inside(disk(), mounts=("/data",)),
    "exclusive": inside(disk(), in_use="/dev/sda is in use"),
    "signature": inside(disk(), signature="LVM2_member"),
    "claim": inside(disk(), claim=CLAIM),
    "data": inside(disk(), data_at=4096),
    "offered": disk(offered=("/seen/raw/sda",)),
    "named": disk(named="PersistentVolume pv-1 names it"),
    "taken": disk(taken="/seen/raw/sda leads to its disk sda"),
    "place": disk(place="/seen/fast is not mounted"),
    "by-id": disk(links=()),
}


class TestNeverTouched:
    def test_every_predicate_has_a_disk_here(self) -> None:
        assert set(HELD) == {code for code, _ in (*OUTSIDE, *INSIDE)}

    @pytest.mark.parametrize("code", sorted(HELD))
    def test_it_is_held_by_the_predicate_of_that_name(self, code: str) -> None:
        match = DiskMatch(min_bytes=1, transport="sata")
        filters = [wanted(match=match, fs_type="" if code == "by-id" else "xfs")]
        row = judged(HELD[code], filters=filters)
        assert (row.verdict, row.code) == ("hold", code)
        assert row.reason
        # The same disk without that is no reason to hold anything.
        assert judged(disk(), filters=filters).verdict in ("format", "link")

    def test_a_disk_that_nobody_looked_at(self) -> None:
        assert judged(disk(inside=None)).code == "unknown"

    def test_a_partition_without_a_uuid(self) -> None:
        filters = [wanted(match=DiskMatch(partitions=True, model="*"))]
        row = judged(disk(parent="sda"), filters=filters)
        assert row.code == "nameless"

    @pytest.mark.parametrize(
        "value", ["", "0", "naa.0000000000000000", "eui.0000000000000000", " "]
    )
    def test_a_name_of_zeros_is_none(self, value: str) -> None:
        assert judged(disk(identity={"wwn": value})).code == "nameless"

    def test_two_disks_with_one_identity_are_both_held(self) -> None:
        one, two = disk("sda"), disk("sdb", identity=disk("sda").identity)
        assert [row.code for row in planned(one, two, disk("sdc")).rows] == ["twin", "twin", ""]

    def test_data_on_an_xfs_mark_that_libblkid_does_not_know(self) -> None:
        assert judged(inside(disk(), fs_type="xfs", fs_uuid="x")).code == "signature"

    @pytest.mark.parametrize("code", [code for code, _ in OUTSIDE])
    def test_it_is_not_even_opened(self, code: str) -> None:
        match = DiskMatch(min_bytes=1, transport="sata")
        config = DisksConfig(filters=(wanted(match=match, fs_type="xfs"),))
        assert worth_a_look(disk(), config)
        assert not worth_a_look(HELD[code], config)
        assert not worth_a_look(disk(transport="usb"), config)


# --- whatever comes ------------------------------------------------------------------------------

words = st.sampled_from(["", "a", "SAMSUNG", "boot"])
names = st.tuples() | st.tuples(words)
insides = st.none() | st.builds(
    Inside,
    users=names,
    mounts=names,
    in_use=words,
    unknown=words,
    signature=st.sampled_from(["", "xfs", "ext4", "gpt", "LVM2_member"]),
    data_at=st.none() | st.just(0),
    fs_type=st.sampled_from(["", "xfs", "ext4"]),
    fs_uuid=st.sampled_from(["", "u-u-i-d"]),
    fs_was_mounted=st.booleans(),
    claim=st.none()
    | st.just(CLAIM)
    | st.just(Claim(CLAIM.digest, CLAIM.uuid, stable(disk().identity))),
)
disks = st.builds(
    disk,
    st.sampled_from(["sda", "sdb", "sdc"]),
    size_bytes=st.sampled_from([0, 1 << 20, 1 << 30, 100 << 30]),
    identity=st.sampled_from([{}, disk("sda").identity, disk("sdb").identity]),
    parent=st.sampled_from(["", "sda"]),
    transport=st.sampled_from(["sata", "nvme", "loop", ""]),
    virtual=st.booleans(),
    removable=st.booleans(),
    read_only=st.booleans(),
    partitions=names,
    holders=names,
    parent_holders=names,
    part_name=words,
    links=names,
    offered=names,
    named=words,
    place=words,
    taken=words,
    inside=insides,
)
filters = st.builds(
    wanted,
    match=st.builds(
        DiskMatch,
        min_bytes=st.none() | st.just(1),
        model=st.sampled_from(["", "*"]),
        transport=st.sampled_from(["", "sata", "loop"]),
        partitions=st.booleans(),
    ),
    fs_type=st.sampled_from(["", "xfs", "ext4"]),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(disks, max_size=4), st.lists(filters, max_size=3))
def test_nothing_that_anybody_has_is_ever_in_a_plan(all_disks: list[Disk], wants: Any) -> None:
    found = planned(*all_disks, filters=wants)
    assert len(found.rows) == len(all_disks)
    for row in found.todo:
        made, within = row.disk, row.disk.inside
        assert within is not None
        assert not any((made.partitions, made.holders, made.parent_holders, made.offered))
        assert not any(
            (made.virtual, made.removable, made.read_only, made.named, made.place, made.taken)
        )
        assert not any((within.users, within.mounts, within.in_use, within.unknown))
        assert stable(made.identity)
        assert sum(stable(one.identity) == stable(made.identity) for one in all_disks) == 1
        if within.signature or within.data_at is not None or within.fs_uuid:
            # Only what we began ourselves on this very disk.
            assert within.claim is not None
            assert row.begun
            assert within.claim.identity == stable(made.identity)
            assert within.fs_uuid in ("", within.claim.uuid)
            assert not within.fs_was_mounted
    # What says nothing of itself is skipped, and every verdict has its reason.
    assert all(row.reason for row in found.rows)


@settings(max_examples=examples(200), deadline=None)
@given(disks)
def test_a_disk_that_would_be_formatted_is_held_once_it_has_anything(made: Disk) -> None:
    clean = disk(made.name)
    for name in ("partitions", "holders", "parent_holders", "removable", "read_only", "virtual"):
        changed = replace(clean, **{name: getattr(made, name)})
        expected = "hold" if getattr(made, name) else "format"
        assert judged(changed).verdict == expected


def test_the_tables_name_each_predicate_once() -> None:
    codes = [code for table in (MEANT, OUTSIDE, INSIDE) for code, _ in table]
    assert len([code for code in codes if code != "partitions"]) == len(set(codes)) - 1
