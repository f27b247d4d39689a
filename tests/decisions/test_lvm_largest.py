"""How large a volume LVM can make of what is free in a group, and what is promised of that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.backends.lvm.view import free_bytes, largest_by_class, largest_extents
from localvolume.config.lvcreateoptions import allocation_of
from localvolume.config.pools import LvmConfig
from localvolume.dynamic.model import GiveBack, Make, Pool
from localvolume.dynamic.plan.plan import plan
from localvolume.host.lvm.report import VolumeGroup
from localvolume.volumes.capacity import GIB, MIB
from tests.decisions.support_dynamic import a, claim, facts, lvm_pool, planned, storage_class

FREE = ((40, 77), (100, 7), (20, 37))


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        ((), ""),
        (("--readahead", "none", "--yes"), ""),
        (("--alloc", "cling"), "cling"),
        (("--alloc=contiguous",), "contiguous"),
        (("--alloc", "inherit"), ""),
        (("--yes", "--contiguous", "y"), "contiguous"),
        (("-Cy",), "contiguous"),
        (("-C", "n"), ""),
        # LVM heeds --contiguous only where --alloc is not given.
        (("-C", "y", "--alloc", "normal"), "normal"),
        (("--alloc", "contiguous", "-C", "n"), "contiguous"),
        (("-C", "y", "--alloc", "inherit"), ""),
    ],
)
def test_the_policy_that_options_name(words: tuple[str, ...], policy: str) -> None:
    assert allocation_of(words) == policy


@pytest.mark.parametrize(
    ("stripes", "policy", "extents"),
    [
        (1, "normal", 281),
        (1, "anywhere", 281),
        (1, "contiguous", 100),
        (1, "cling", 100),
        (1, "", 100),
        (2, "contiguous", 154),
        (3, "contiguous", 111),
        (3, "normal", 171),
        (4, "normal", 0),
        (4, "contiguous", 0),
    ],
)
def test_the_largest_of_a_layout(stripes: int, policy: str, extents: int) -> None:
    assert largest_extents(FREE, stripes, policy) == extents


def test_what_stripes_cannot_be_made_of_is_not_counted() -> None:
    assert largest_extents(((100,), (10,)), 2, "normal") == 20
    # Of three disks of one size two are taken, and the third one is left alone.
    assert largest_extents(((9,), (9,), (9,)), 2, "normal") == 18
    assert largest_extents((), 1, "normal") == largest_extents((), 1, "contiguous") == 0


@given(
    st.lists(st.lists(st.integers(1, 50), max_size=4), max_size=5),
    st.integers(1, 4),
    st.sampled_from(["normal", "contiguous", "cling", "anywhere"]),
)
def test_the_largest_is_made_of_what_is_free(
    free: list[list[int]], stripes: int, policy: str
) -> None:
    extents = largest_extents(free, stripes, policy)
    assert extents % stripes == 0
    # No stripe shares a physical volume with another, so none has more of one than its share.
    share = extents // stripes
    assert sum(min(sum(runs), share) for runs in free) >= extents
    assert extents >= largest_extents(free, stripes, "contiguous")


def test_by_option_class() -> None:
    group = VolumeGroup(
        name="vg",
        uuid="u",
        size_bytes=GIB,
        free_bytes=400 * MIB,
        extent_bytes=MIB,
        allocation="normal",
        free=FREE,
    )
    config = LvmConfig(
        group="vg", stripes=3, option_classes=(("any", ()), ("one", ("--contiguous", "y")))
    )
    found = largest_by_class(config, group)
    assert found == {"": 171 * MIB, "any": 281 * MIB, "one": 100 * MIB}
    assert free_bytes(group) == 281 * MIB
    # Where nobody said which extents are free, there is only the sum.
    told = replace(group, free=None)
    assert (largest_by_class(config, told), free_bytes(told)) == ({}, 400 * MIB)


# --- what is promised ------------------------------------------------------------------------


def limited(**largest: int) -> Pool:
    """A pool of 10 GiB with these as the largest volumes, by option class ("none" for none)."""
    pool = lvm_pool(room=10 * GIB, option_classes=(("together", ()),))
    sizes = {"" if name == "none" else name: size for name, size in largest.items()}
    return replace(pool, report=replace(pool.report, largest_bytes=sizes))


def test_a_claim_that_no_volume_can_be_made_for_is_given_back() -> None:
    actions = planned(claim(size="3Gi"), limited(none=2 * GIB))
    given_back = a(GiveBack, actions["pvc-1"])
    assert "10Gi of room left, of which LVM makes no volume larger than 2Gi" in given_back.reason
    a(Make, planned(claim(size="2Gi"), limited(none=2 * GIB))["pvc-1"])


def test_the_pool_is_chosen_in_which_it_fits() -> None:
    large, small = limited(none=2 * GIB), lvm_pool(name="small", room=4 * GIB)
    assert a(Make, planned(claim(size="3Gi"), large, small)["pvc-1"]).pool.name == "small"


def test_what_a_plan_takes_may_be_of_the_largest() -> None:
    made = plan(facts(claim(size="1Gi"), limited(none=2 * GIB)))
    assert (made.capacity["local"], made.largest["local"]) == ((9 * GIB,), GIB)
    made = plan(facts(claim(1, size="2Gi"), claim(2, size="2Gi"), limited(none=2 * GIB)))
    assert (made.capacity["local"], made.largest["local"]) == ((8 * GIB,), 0)


def test_a_class_has_the_largest_of_its_options() -> None:
    pool = limited(none=2 * GIB, together=5 * GIB)
    made = plan(facts(storage_class(option_class="together"), pool))
    assert (made.capacity["local"], made.largest["local"]) == ((10 * GIB,), 5 * GIB)
    assert plan(facts(pool)).largest["local"] == 2 * GIB


def test_what_is_said_to_fit_is_made_though_claims_are_rounded_up() -> None:
    """The pool's own layout has three stripes, and that of the class none."""
    pool = limited(none=2 * GIB, together=100 * MIB)
    pool = replace(pool, report=replace(pool.report, unit_bytes=12 * MIB))
    together = storage_class(option_class="together")
    assert plan(facts(together, pool)).largest["local"] == 96 * MIB
    a(Make, planned(together, claim(size="96Mi"), pool)["pvc-1"])
    a(GiveBack, planned(together, claim(size="100Mi"), pool)["pvc-1"])


def test_reserved_room_is_taken_off_all_that_is_free_and_not_off_the_largest() -> None:
    pool = limited(none=2 * GIB)
    kept = replace(pool, config=replace(pool.config, reserve_bytes=7 * GIB))
    made = plan(facts(kept))
    assert (made.capacity["local"], made.largest["local"]) == ((3 * GIB,), 2 * GIB)
    kept = replace(pool, config=replace(pool.config, reserve_bytes=9 * GIB))
    assert plan(facts(kept)).largest["local"] == GIB
