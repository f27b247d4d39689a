"""How much may still be promised in a pool: never more than there is, and nothing counted twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.backends.capacity import capacity, most_of_cut, promised
from localvolume.backends.model import PoolReport, Record, Usage
from localvolume.config.pools import PoolConfig
from tests.suite.units import GIB, MIB


def config(**fields: Any) -> PoolConfig:
    return PoolConfig(name="p", host_dir="/p", mount_dir="/p", provisioner="x", **fields)


def record(name: str, size: int, **fields: Any) -> Record:
    known: dict[str, Any] = {"backend": "directory", "state": "offered", "directory": name}
    return Record(name=name, size_bytes=size, **{**known, **fields})


def report(total: int, available: int, *records: Record, **used: int) -> PoolReport:
    return PoolReport(
        name="p",
        total_bytes=total,
        available_bytes=available,
        records={one.name: one for one in records},
        usage={name: Usage(used_bytes=size) for name, size in used.items()},
    )


@pytest.mark.parametrize(
    ("fields", "seen", "expected"),
    [
        ({}, report(10, 10), 10),
        ({"reserve_bytes": 3}, report(10, 10), 7),
        ({"reserve_bytes": 30}, report(10, 10), 0),
        # What a volume holds is missing from what is available: counted once.
        ({}, report(10, 6, record("a", 5), a=4), 5),
        ({}, report(10, 10, record("a", 5), a=0), 5),
        ({}, report(10, 10, record("a", 5)), 5),
        # More than its size, as a volume without a limit may hold.
        ({}, report(10, 3, record("a", 5), a=7), 3),
        # Foreign data lowers it, too.
        ({}, report(10, 2, record("a", 5), a=4), 1),
        # Begun counts at once.
        ({}, report(10, 10, record("a", 5, state="making")), 5),
        # A removed one stands for what it still holds; unknown, for all of its size.
        ({}, report(10, 8, record("a", 5, state="removed"), a=2), 8),
        ({}, report(10, 8, record("a", 5, state="removed")), 5),
        # Not enforced: in the books alone.
        ({}, report(10, 4, record("a", 5, enforced=False)), 4),
        # A quota's limit above the size can be written to, a soft one alone at least for a while.
        ({}, report(20, 20, record("a", 5, hard_bytes=10)), 10),
        ({}, report(20, 20, record("a", 5, soft_bytes=8, hard_bytes=10)), 10),
        ({}, report(20, 20, record("a", 5, soft_bytes=8)), 12),
        ({}, report(20, 14, record("a", 5, hard_bytes=10), a=6), 10),
        ({"overbook": 2.0}, report(20, 20, record("a", 5, hard_bytes=10)), 20),
        ({"overbook": 2.0}, report(20, 20, record("a", 15, hard_bytes=30)), 10),
        # Overbooked: the disk counts as it is now.
        ({"overbook": 3.0}, report(10, 6, record("a", 5), a=4), 6),
        ({"overbook": 3.0}, report(10, 10, record("a", 25)), 5),
        ({"overbook": 3.0, "reserve_bytes": 5}, report(10, 10, record("a", 12)), 3),
        ({"overbook": 0.5}, report(10, 10), 5),
        ({}, replace(report(10, 10), problem="gone"), 0),
    ],
)
def test_room(fields: dict[str, Any], seen: PoolReport, expected: int) -> None:
    assert capacity(config(**fields), seen) == expected


def image(taken: int, outstanding: int, *, used: int, **fields: Any) -> PoolReport:
    """A pool of 20 with an image of 10, of which its file has `taken` already."""
    one = record("a", 10, backend="image", directory="", **fields)
    held = Usage(used_bytes=used, taken_bytes=taken, outstanding_bytes=outstanding)
    return replace(report(20, 20 - taken, one), usage={"a": held})


@pytest.mark.parametrize(
    ("fields", "seen", "expected"),
    [
        # An image that was allocated has nothing left to take, whatever was written to it.
        ({}, image(11, 0, used=1, sparse=False), 9),
        # But what is discarded in it is given back to the pool, and may be wanted again.
        ({}, image(4, 7, used=1, sparse=False), 9),
        # What its tenant reserves in it takes nothing of the pool yet.
        ({}, image(1, 10, used=9), 9),
        # Its file is larger than its volume, and all of it can be written to.
        ({}, image(5, 6, used=4), 9),
        # Nobody can tell what is in it, but what it takes.
        ({}, replace(image(5, 6, used=0), usage={"a": Usage(outstanding_bytes=6)}), 9),
        # Begun: nothing is known of it.
        ({}, replace(image(0, 0, used=0, state="making"), usage={}), 10),
        # A removed one stands for what its file has, and nothing can be added to it.
        ({}, image(7, 0, used=1, state="removed"), 13),
        ({"overbook": 2.0}, image(7, 0, used=1, state="removed"), 13),
        ({"overbook": 0.5}, image(7, 0, used=1, state="removed"), 3),
    ],
)
def test_room_beside_an_image(fields: dict[str, Any], seen: PoolReport, expected: int) -> None:
    assert capacity(config(**fields), seen) == expected


def lvm(name: str, size: int, **fields: Any) -> Record:
    return record(name, size, backend="lvm", directory="", **fields)


def thin(total: int, available: int, *records: Record, foreign: int = 0) -> PoolReport:
    return replace(report(total, available, *records), foreign_bytes=foreign, data_percent=10.0)


@pytest.mark.parametrize(
    ("fields", "seen", "expected"),
    [
        # Thick: what they have is missing from what is free, whatever they hold.
        ({}, report(100, 60, lvm("a", 40)), 60),
        ({}, report(100, 60, lvm("a", 40), a=1), 60),
        ({}, report(100, 60, lvm("a", 40, state="making")), 60),
        ({}, report(100, 60, lvm("a", 40, state="removed")), 60),
        # Foreign ones have theirs.
        ({}, report(100, 20, lvm("a", 40)), 20),
        # TopoLVM's lvmd makes volumes of the room that it was told to spare.
        ({"reserve_bytes": 10}, report(100, 60, lvm("a", 40)), 50),
        ({"reserve_bytes": 70}, report(100, 60, lvm("a", 40)), 0),
        # Whole extents alone can be had.
        ({}, replace(report(100, 63), unit_bytes=4), 60),
        ({"reserve_bytes": 1}, replace(report(100, 60), unit_bytes=4), 56),
        # Thin: by the books, and others' volumes are in them.
        ({}, thin(100, 95, lvm("a", 40)), 60),
        ({}, thin(100, 95, lvm("a", 40), foreign=50), 10),
        ({}, thin(100, 95, lvm("a", 40), foreign=70), 0),
        ({"overbook": 3.0}, thin(100, 95, lvm("a", 240)), 60),
        ({"overbook": 3.0}, thin(100, 95, lvm("a", 240), foreign=50), 10),
        ({"overbook": 3.0, "reserve_bytes": 20}, thin(100, 95, lvm("a", 200)), 40),
        # Never more than can be written now.
        ({"overbook": 3.0}, thin(100, 30, lvm("a", 40)), 30),
        ({"overbook": 3.0, "reserve_bytes": 20}, thin(100, 30, lvm("a", 40)), 10),
        # Nearly full, in data or metadata.
        ({"overbook": 3.0}, replace(thin(100, 5), data_percent=94.9), 5),
        ({"overbook": 3.0}, replace(thin(100, 5), data_percent=95.0), 0),
        ({"overbook": 3.0}, replace(thin(100, 80), metadata_percent=95.0), 0),
    ],
)
def test_room_of_logical_volumes(fields: dict[str, Any], seen: PoolReport, expected: int) -> None:
    """W-23: TopoLVM: spare-gb is ignored when making."""
    assert capacity(config(backend="lvm", **fields), seen) == expected


sizes = st.integers(min_value=0, max_value=20 * GIB)


@given(
    total=sizes,
    reserve=sizes,
    overbook=st.sampled_from([1.0, 1.0, 0.5, 1.5, 4.0]),
    actions=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=30),
)
def test_who_promises_within_the_room_never_promises_too_much(
    total: int, reserve: int, overbook: float, actions: list[tuple[float, float, bool]]
) -> None:
    known = config(reserve_bytes=reserve, overbook=overbook)
    seen = report(total, total)
    for number, (share, fill, remove) in enumerate(actions):
        size = int(capacity(known, seen) * share)
        assert 0 <= size <= capacity(known, seen)
        one = record(f"v{number}", size)
        records = {**seen.records, one.name: one}
        if remove and records:
            gone = next(iter(records))
            records[gone] = replace(records[gone], state="removed")
        # Each may hold as much as it was promised, as long as the disk has it.
        usage = dict(seen.usage)
        written = min(int(size * fill), seen.available_bytes)
        usage[one.name] = Usage(used_bytes=written)
        seen = replace(
            seen,
            records=records,
            usage=usage,
            available_bytes=seen.available_bytes - written,
        )
        assert promised(seen) <= max(0, int((total - reserve) * overbook))
        if overbook <= 1:
            # Everybody can have all that was promised, and the reserve stays.
            owed = sum(
                max(0, each.size_bytes - (usage[name].used_bytes or 0))
                for name, each in records.items()
                if each.state != "removed"
            )
            assert owed <= max(0, seen.available_bytes - reserve)


@given(total=sizes, used=sizes, size=sizes, reserve=sizes)
def test_more_use_never_makes_more_room(total: int, used: int, size: int, reserve: int) -> None:
    known = config(reserve_bytes=reserve)
    held = min(used, size, total)
    less = report(total, total, record("v", size), v=0)
    more = report(total, total - held, record("v", size), v=held)
    assert capacity(known, more) == capacity(known, less)


@pytest.mark.parametrize(
    ("backend", "usage", "most"),
    [
        # What was deleted is still in the blocks of a device, or written and not yet in them.
        ("lvm", Usage(used_bytes=100, taken_bytes=200), 200),
        ("lvm", Usage(used_bytes=200, taken_bytes=100), 200),
        ("btrfs", Usage(used_bytes=2 * GIB), GIB),
        ("btrfs", Usage(taken_bytes=100), GIB),
        # Until it is cut, more may be written to a file that has no blocks for it yet, or counted.
        ("btrfs", Usage(used_bytes=100), 100 + 64 * MIB),
        ("image", Usage(used_bytes=50, taken_bytes=100), 100 + 64 * MIB),
        ("image", Usage(used_bytes=200, taken_bytes=100), 200 + 64 * MIB),
        ("image", Usage(used_bytes=50, taken_bytes=GIB - 100), GIB),
        # An xfs that is not mounted does not tell what it holds.
        ("image", Usage(taken_bytes=100), 100 + 64 * MIB),
        # A file is larger than its volume, and no larger than that.
        ("image", Usage(taken_bytes=GIB + 1, outstanding_bytes=2), GIB + 3),
        ("image", None, GIB),
    ],
)
def test_a_snapshot_may_hold_what_its_volume_does(
    backend: Any, usage: Usage | None, most: int
) -> None:
    assert most_of_cut(record("a", GIB, backend=backend), usage) == most


def test_a_snapshot_of_a_thick_logical_volume_has_its_whole_size() -> None:
    origin = record("a", GIB, backend="lvm", sparse=False)
    assert most_of_cut(origin, Usage(used_bytes=100)) == GIB


def test_a_snapshot_of_a_volume_without_a_limit_may_hold_more_than_its_size() -> None:
    origin = record("a", GIB, backend="btrfs", enforced=False)
    assert most_of_cut(origin, Usage(used_bytes=2 * GIB)) == 2 * GIB + 64 * MIB
