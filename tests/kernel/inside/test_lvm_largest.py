"""What is published as the largest volume of a group is what LVM makes of it: not all that is free
there, where stripes, a contiguous layout or disks that are kept out want more than that."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.model import NoSpace
from localvolume.dynamic.model import Pool as PoolFacts
from localvolume.dynamic.plan.capacity import ClassCapacity, Desired, desired_objects
from localvolume.dynamic.plan.plan import plan
from localvolume.host.lvm.commands import NoSpaceInGroup
from tests.decisions.support_dynamic import facts, storage_class
from tests.host.support_devices import command
from tests.suite.units import MIB

from .support_lvm import EXTENT, begin, clear
from .support_lvm_store import Pool, pool_on

DISKS = ("/dev/ubdc", "/dev/ubdd", "/dev/ubde")
#: Of 127 extents on each of the disks, those that somebody else's volumes have.
TAKEN = {"/dev/ubdc": "40-49", "/dev/ubdd": "100-119", "/dev/ubde": "20-89"}


@pytest.fixture
def three_disks() -> Iterator[str]:
    """A group of three disks, empty."""
    begin("vg3", *DISKS, use_bytes=512 * MIB)
    try:
        yield "vg3"
    finally:
        clear("vg3", *DISKS)


def fragmented(group: str) -> None:
    """Runs of 40 and 77 extents are left on the first disk, 100 and 7, 20 and 37."""
    for number, (disk, extents) in enumerate(TAKEN.items()):
        first, last = map(int, extents.split("-"))
        size = str(last - first + 1)
        argv = ["lvcreate", "--quiet", "--yes", "--zero", "n", "--name", f"other{number}"]
        command(*argv, "--extents", size, group, f"{disk}:{extents}")


def published(pool: Pool, option_class: str = "") -> Desired:
    report = pool.store.look()
    assert not report.problem
    config = pool.store.config
    wanted = storage_class(provisioner=config.provisioner, option_class=option_class)
    made = plan(facts(wanted, PoolFacts(config=config, report=report)))
    room = ClassCapacity(
        "local", config.provisioner, made.capacity["local"], largest=made.largest["local"]
    )
    return desired_objects([room])["local"]


CASES: dict[str, tuple[dict[str, Any], tuple[str, ...], str, int, int]] = {
    # The layout, the disks that are kept out, the group's policy; the largest volume, all room.
    "linear": ({}, (), "normal", 281, 281),
    "a disk kept out": ({}, DISKS[1:2], "normal", 174, 174),
    "contiguous": ({"options": ("--alloc", "contiguous")}, (), "normal", 100, 281),
    "contiguous, a disk kept out": ({"options": ("-Cy",)}, DISKS[1:2], "normal", 77, 174),
    "the group is contiguous": ({}, (), "contiguous", 100, 281),
    "inherited": ({"options": ("--alloc=inherit",)}, (), "contiguous", 100, 281),
    "normal in one that is not": ({"options": ("--alloc", "normal")}, (), "contiguous", 281, 281),
    "stripes": ({"stripes": 2}, DISKS[2:], "normal", 214, 224),
    "three stripes": ({"stripes": 3}, (), "normal", 171, 281),
    "contiguous stripes": ({"stripes": 2, "options": ("-C", "y")}, (), "normal", 154, 281),
    "too few disks": ({"stripes": 3}, DISKS[:1], "normal", 0, 164),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_published_is_what_lvm_makes(case: str, three_disks: str, tmp_path: Path) -> None:
    layout, kept_out, policy, largest, free = CASES[case]
    fragmented(three_disks)
    if policy != "normal":
        command("vgchange", "--quiet", "--alloc", policy, three_disks)
    for disk in kept_out:
        command("pvchange", "--quiet", "--allocatable", "n", disk)
    pool = pool_on(three_disks, tmp_path, lvm=layout)
    try:
        said = published(pool)
        unit = layout.get("stripes", 1)
        assert said.maximum == largest * EXTENT
        assert said.capacity == free // unit * unit * EXTENT
        lvm = pool.lvm
        with pytest.raises(NoSpaceInGroup):
            lvm.create(three_disks, "more", said.maximum + unit * EXTENT, **layout)
        with pytest.raises(NoSpace):
            pool.store.make(pool.record("more", (said.maximum + unit * EXTENT) / MIB))
        if largest:
            made = pool.store.make(pool.record("most", said.maximum / MIB))
            assert made.size_bytes == said.maximum
    finally:
        pool.end()


def test_stripes_on_disks_of_one_size(three_disks: str, tmp_path: Path) -> None:
    """LVM takes two of the three, and there is no second one for what is left."""
    pool = pool_on(three_disks, tmp_path, lvm={"stripes": 2})
    try:
        said = published(pool)
        assert said.maximum == 2 * 127 * EXTENT
        with pytest.raises(NoSpaceInGroup):
            pool.lvm.create(three_disks, "more", said.maximum + 2 * EXTENT, stripes=2)
        assert pool.store.make(pool.record("most", said.maximum / MIB)).size_bytes == said.maximum
    finally:
        pool.end()


def test_an_option_class_has_its_own_largest(three_disks: str, tmp_path: Path) -> None:
    fragmented(three_disks)
    classes = (("together", ("--alloc", "contiguous")),)
    pool = pool_on(three_disks, tmp_path, lvm={"option_classes": classes})
    try:
        assert published(pool).maximum == 281 * EXTENT
        assert published(pool, "together").maximum == 100 * EXTENT
        record = pool.record("more", 101 * EXTENT / MIB, option_class="together")
        with pytest.raises(NoSpace):
            pool.store.make(record)
        record = pool.record("most", 100 * EXTENT / MIB, option_class="together")
        assert pool.store.make(record).size_bytes == 100 * EXTENT
    finally:
        pool.end()
