"""D6: pools on one filesystem take their room from the same, and it is promised once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.backends.capacity import beside, capacity, most_of, price, worth
from localvolume.backends.model import BackendName, PoolReport, Record, Usage
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import Facts, GiveBack, Grow, Hold, Make, Pool, TellInfeasible
from localvolume.dynamic.plan.capacity import ClassCapacity, desired_objects
from localvolume.dynamic.plan.fullness import PoolSize
from localvolume.dynamic.plan.plan import plan
from localvolume.dynamic.plan.world import with_neighbours
from tests.decisions.support_dynamic import (
    a,
    action,
    bound,
    claim,
    facts,
    lvm_pool,
    planned,
    pool,
    record,
    storage_class,
    volume,
)
from tests.suite.units import GIB

DISK = "8:1"
SIZE = 10 * GIB


def on_disk(name: str, *records: Record, disk: str = DISK, **changes: Any) -> Pool:
    """A pool of class `name` on a filesystem of 10 GiB, in which its volumes hold nothing yet."""
    left = SIZE - sum(one.size_bytes for one in records)
    return pool(*records, name=name, room=left, filesystem=disk, classes=(name,), **changes)


CLASSES = (storage_class("a"), storage_class("b"))


def in_class(number: int, name: str, size: str) -> Any:
    return claim(number, class_name=name, size=size)


def rooms(made: Facts) -> dict[str, int]:
    return {name: sum(room) for name, room in plan(made).capacity.items()}


# --- what one has promised is missing from the others -----------------------------------------


def test_what_one_pool_has_promised_is_missing_from_the_room_of_the_other() -> None:
    one, two = on_disk("a", record(1, size_bytes=7 * GIB)), on_disk("b")
    assert rooms(facts(one, two, *CLASSES)) == {"a": 3 * GIB, "b": 3 * GIB}
    apart = on_disk("b", disk="8:2")
    assert rooms(facts(one, apart, *CLASSES)) == {"a": 3 * GIB, "b": 10 * GIB}
    # Of neither is it known where it is: no two of these are one.
    nowhere = (replace_filesystem(one), replace_filesystem(two))
    assert rooms(facts(*nowhere, *CLASSES)) == {"a": 3 * GIB, "b": 10 * GIB}


def replace_filesystem(one: Pool, filesystem: str = "") -> Pool:
    return replace(one, report=replace(one.report, filesystem=filesystem))


def test_claims_through_both_pools_cannot_exceed_the_room_together() -> None:
    """Nor those of one plan, of which nothing is on record."""
    wanted = (in_class(1, "a", "6Gi"), in_class(2, "b", "6Gi"))
    actions = planned(*wanted, on_disk("a"), on_disk("b"), *CLASSES)
    a(Make, actions["pvc-1"])
    given_back = a(GiveBack, actions["pvc-2"])
    assert (
        "pool b: 4Gi of room left on the filesystem that it shares with pool a, 6Gi asked for"
        in given_back.reason
    )
    made = facts(*wanted, on_disk("a"), on_disk("b"), *CLASSES)
    assert rooms(made) == {"a": 4 * GIB, "b": 4 * GIB}


def test_what_is_being_made_in_one_has_its_room_in_both() -> None:
    making = [("a", record(1, "making", size_bytes=6 * GIB))]
    answer = action(
        in_class(2, "b", "6Gi"), on_disk("a"), on_disk("b"), *CLASSES, name="pvc-2", promised=making
    )
    assert "4Gi of room left on the filesystem" in a(GiveBack, answer).reason


@pytest.mark.parametrize(("promised", "grows"), [(4 * GIB, True), (4 * GIB + 1, False)])
def test_a_volume_grows_only_into_what_the_other_pool_has_left(promised: int, grows: bool) -> None:
    other = on_disk("b", record(2, size_bytes=promised, class_name="b"))
    home = on_disk("a", record(size_bytes=GIB, class_name="a"))
    it = volume(class_name="a", pool="a/id-of-a")
    answer = action(bound(size="6Gi", class_name="a"), it, home, other, *CLASSES)
    if grows:
        a(Grow, answer)
    else:
        reason = a(TellInfeasible, answer).reason
        assert "of room left on the filesystem that it shares with pool b, 5Gi needed" in reason


def test_a_growth_takes_the_room_of_both() -> None:
    home = on_disk("a", record(size_bytes=GIB, class_name="a"))
    it = volume(class_name="a", pool="a/id-of-a")
    growing = bound(size="8Gi", class_name="a")
    assert rooms(facts(growing, it, home, on_disk("b"), *CLASSES)) == {"a": 2 * GIB, "b": 2 * GIB}


def test_what_a_class_is_said_to_have_counts_a_shared_room_once() -> None:
    """The scheduler and our controller add nothing up that is there once."""
    shared = storage_class("both")
    pools = [
        pool(name=name, room=SIZE, filesystem=disk)
        for name, disk in (("a", DISK), ("b", DISK), ("c", "8:2"))
    ]
    made = plan(facts(*pools, shared))
    assert made.capacity == {"both": (SIZE, SIZE)}
    said = desired_objects(
        [ClassCapacity("both", "p", made.capacity["both"], largest=made.largest["both"])]
    )
    assert (said["both"].capacity, said["both"].maximum) == (2 * SIZE, SIZE)


def test_a_class_is_told_how_large_its_pools_are_but_not_those_that_cannot_be_used() -> None:
    for_a, for_b = pool(name="one", classes=("a",), room=SIZE), pool(name="two", classes=("b",))
    dark = pool(name="dark", classes=("a",), problem="it is not mounted")
    made = plan(facts(for_a, for_b, dark, *CLASSES))
    assert made.sizes == {"a": {"one": PoolSize(SIZE)}, "b": {"two": PoolSize(100 * GIB)}}


def test_logical_volumes_share_no_filesystem() -> None:
    full = lvm_pool(record(1, size_bytes=SIZE, backend="lvm", directory=""), name="a", room=0)
    assert with_neighbours([full, lvm_pool(name="b", room=SIZE)])[1].beside.names == ()


# --- what cannot be used, or told --------------------------------------------------------------


def test_a_pool_that_cannot_be_used_has_promised_what_it_has_promised() -> None:
    broken = on_disk("a", problem="others may write to it", dormant=[record(1, size_bytes=7 * GIB)])
    made = facts(broken, on_disk("b"), *CLASSES)
    assert rooms(made) == {"a": 0, "b": 3 * GIB}


def test_where_nobody_can_tell_what_was_promised_nothing_more_is() -> None:
    dark = on_disk("a", problem="it cannot be read", uncounted="Input/output error")
    made = facts(in_class(2, "b", "1Gi"), dark, on_disk("b"), *CLASSES)
    text = "it is not known what pool a has promised of the same filesystem: Input/output error"
    (answer,) = plan(made).actions
    assert f"pool b: {text}" in a(GiveBack, answer).reason
    assert rooms(made) == {"a": 0, "b": 0}
    assert text in plan(made).unfit["b"]
    home = on_disk("b", record(size_bytes=GIB, class_name="b"))
    it = volume(class_name="b", pool="b/id-of-b")
    growing = action(bound(size="2Gi", class_name="b"), it, dark, home, *CLASSES)
    assert text in a(Hold, growing).reason


# --- how much that is -------------------------------------------------------------------------


def config(name: str = "p", backend: BackendName = "directory", **fields: Any) -> PoolConfig:
    known = {"host_dir": f"/{name}", "mount_dir": f"/{name}", "provisioner": "x"}
    return PoolConfig(name=name, backend=backend, **(known | fields))


def report(total: int, available: int, *records: Record, **used: int) -> PoolReport:
    return PoolReport(
        name="p",
        total_bytes=total,
        available_bytes=available,
        records={one.name: one for one in records},
        usage={name: Usage(used_bytes=size) for name, size in used.items()},
    )


def kept(name: str, size: int, **fields: Any) -> Record:
    known: dict[str, Any] = {"backend": "directory", "state": "offered", "directory": name}
    return Record(name=name, size_bytes=size, **{**known, **fields})


def image(size: int, state: Any = "offered", **fields: Any) -> Record:
    return kept("i", size, backend="image", directory="", state=state, **fields)


@pytest.mark.parametrize(
    ("own", "other", "seen", "expected"),
    [
        # By the books and by the disk: what theirs hold is missing from what is free already.
        ({}, {}, report(100, 100, kept("v", 60), v=0), 40),
        ({}, {}, report(100, 70, kept("v", 60), v=30), 40),
        ({}, {}, report(100, 20, kept("v", 60), v=30), 0),
        # Removed: what it still holds.
        ({}, {}, report(100, 90, kept("v", 60, state="removed"), v=10), 90),
        # Without an enforced size in the books alone, as in its own pool.
        ({}, {}, report(100, 50, kept("v", 60, enforced=False), v=50), 40),
        # The largest reserve is kept, whosever it is.
        ({}, {"reserve_bytes": 30}, report(100, 100), 70),
        ({"reserve_bytes": 40}, {"reserve_bytes": 30}, report(100, 100), 60),
        # Who overbooks may promise what others have, but not what they may still write.
        ({"overbook": 4.0}, {}, report(100, 100, kept("v", 60), v=0), 40),
        ({"overbook": 4.0}, {}, report(100, 70, kept("v", 60), v=30), 40),
        ({"overbook": 4.0}, {"overbook": 4.0}, report(100, 70, kept("v", 60), v=30), 70),
        ({}, {"overbook": 4.0}, report(100, 100, kept("v", 160), v=0), 0),
        ({}, {"overbook": 4.0}, report(100, 100, kept("v", 60), v=0), 40),
        # An image takes more than its size: by its file where that is known.
        ({}, {"backend": "image"}, report(100, 100, image(45, "making")), 50),
        (
            {},
            {"backend": "image"},
            replace(
                report(100, 95, image(45)),
                usage={"i": Usage(taken_bytes=5, outstanding_bytes=45)},
            ),
            50,
        ),
        ({"backend": "image"}, {}, report(100, 100, kept("v", 60), v=0), 36),
    ],
)
def test_room_beside_another_pool(
    own: dict[str, Any], other: dict[str, Any], seen: PoolReport, expected: int
) -> None:
    """Of an own pool that found the filesystem empty, before the other one looked."""
    others = beside([(config("other", **other), seen)])
    assert capacity(config(**own), report(100, 100), others) == expected


def test_what_a_pool_with_a_problem_found_to_be_free_counts_for_nothing() -> None:
    dark = PoolReport(name="other", problem="not mounted", dormant={"v": kept("v", 60)})
    assert capacity(config(), report(100, 100), beside([(config("other"), dark)])) == 40


def test_beside_what_nobody_can_tell_there_is_no_room() -> None:
    """For the metric, too, which asks for no class."""
    dark = PoolReport(name="other", problem="broken", uncounted="Input/output error")
    assert capacity(config(), report(100, 100), beside([(config("other"), dark)])) == 0


sizes = st.integers(min_value=0, max_value=20 * GIB)
backends = st.sampled_from(["directory", "btrfs", "image"])


@given(backend=backends, size=sizes)
def test_what_is_priced_is_worth_no_less(backend: BackendName, size: int) -> None:
    assert worth(backend, price(backend, size)) >= size


@given(
    total=sizes,
    kinds=st.lists(backends, min_size=2, max_size=4),
    actions=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1), st.floats(0, 1)), max_size=30),
)
def test_who_promises_within_the_room_never_promises_too_much_together(
    total: int, kinds: list[BackendName], actions: list[tuple[int, float, float]]
) -> None:
    """Whatever is promised in whichever pool: everybody can have all of it, written or not."""
    configs = [config(f"p{number}", kind) for number, kind in enumerate(kinds)]
    reports = [report(total, total) for _ in configs]
    for number, (which, share, fill) in enumerate(actions):
        which %= len(configs)
        mine, seen = configs[which], reports[which]
        others = [
            (configs[other], reports[other]) for other in range(len(configs)) if other != which
        ]
        size = int(capacity(mine, seen, beside(others)) * share)
        one = kept(f"v{number}", size, backend=mine.backend)
        file = price(mine.backend, size)
        held = int(file * fill)
        usage = Usage(taken_bytes=held, outstanding_bytes=file - held)
        reports[which] = replace(
            seen,
            records={**seen.records, one.name: one},
            usage={**seen.usage, one.name: usage},
        )
        free = seen.available_bytes - held
        reports = [replace(each, available_bytes=free) for each in reports]
        every = [made for each in reports for made in each.records.values()]
        assert sum(price(made.backend, most_of(made)) for made in every) <= total
