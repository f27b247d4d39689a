"""A thin pool that holds a volume of which LVM knows nothing: its number is given to the next.

LVM takes the kernel's answer that it is there already for the one to its own message, sent once
more: the new volume is the old one, with its data.

A removal leaves one where a command was killed before, and LVM was not made to clear what it had on
record for the pool.
"""

import contextlib
import re
import subprocess
from collections.abc import Iterator

import pytest

from localvolume.backends.model import GoesOn, Record
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from tests.host.support_devices import command
from tests.suite.units import MIB

from .support_lvm import devices
from .support_lvm_store import Pool, read, write

FORMER = b"of the former tenant"


def device_number(pool: Pool, name: str) -> int:
    """The number of a thin volume in its pool."""
    found = command("lvs", "--noheadings", "--options", "thin_id", f"{pool.group}/{name}")
    return int(found)


@contextlib.contextmanager
def mapped(pool: Pool, number: int, size: int) -> Iterator[str]:
    """The thin volume of that number, whatever LVM knows."""
    table = f"0 {size // 512} thin /dev/mapper/{pool.group}-pool-tpool {number}"
    command("dmsetup", "create", "former", "--table", table)
    try:
        # There is no udev to do it.
        command("dmsetup", "mknodes", "former")
        yield "/dev/mapper/former"
    finally:
        command("dmsetup", "remove", "former")


def numbers_there(pool: Pool) -> list[int]:
    """Those that the pool knows, whatever LVM does."""
    found = []
    for number in range(1, 9):
        # There is none of that number, where it cannot be mapped.
        with contextlib.suppress(AssertionError), mapped(pool, number, MIB):
            found.append(number)
    return found


def numbers_on_record(pool: Pool) -> list[int]:
    found = command("lvs", "--noheadings", "--options", "thin_id", pool.group)
    return sorted(map(int, found.split()))


def remove_half(pool: Pool, name: str) -> None:
    """As a removal that is killed when it has written down what the pool is to be told."""
    argv = ["lvremove", "--yes", "--driverloaded", "n", f"{pool.group}/{name}"]
    command("lvchange", "--activate", "n", f"{pool.group}/{name}")
    done = subprocess.run(argv, capture_output=True, text=True)
    assert re.search(r"Failed to update (thin )?pool", done.stderr), done.stderr


def orphan(pool: Pool) -> int:
    """Leave a volume with a tenant's data in the pool, under the number that LVM gives out next."""
    pool.offer("pvc-beside", 4, volume_mode="Block")
    number = device_number(pool, "pvc-beside") + 1
    command("dmsetup", "message", f"{pool.group}-pool-tpool", "0", f"create_thin {number}")
    with mapped(pool, number, 12 * MIB) as node:
        write(node, FORMER * 1000)
        write(node, FORMER * 1000, 8 * MIB)
    return number


def made(pool: Pool, record: Record) -> Record:
    """As an agent makes it: called again where it goes on."""
    for _ in range(3):
        with contextlib.suppress(GoesOn):
            return pool.store.make(record)
    raise AssertionError("it goes on and on")


@pytest.mark.parametrize("mode", ["Block", "Filesystem"])
def test_what_nobody_knows_of_is_given_to_nobody(thin: Pool, mode: str) -> None:
    number = orphan(thin)
    record = thin.record("pvc-new", 12, volume_mode=mode)
    with pytest.raises(GoesOn, match="was not empty"):
        thin.store.make(record)
    assert thin.volume("pvc-new") is None
    assert made(thin, record).state == "made"
    # It is another one under the same number.
    assert device_number(thin, "pvc-new") == number
    left = b"".join(read(thin.node("pvc-new"), MIB, at * MIB) for at in range(12))
    assert FORMER not in left
    assert mode == "Filesystem" or not left.strip(b"\0")


def test_a_snapshot_never_has_what_nobody_knows_of(thin: Pool) -> None:
    number = orphan(thin)
    beside = thin.store.look().records["pvc-beside"]
    write(thin.node("pvc-beside"), b"of its own tenant")
    thin.store.copy(snapshot_record(beside, "s", 0), beside)
    assert device_number(thin, "s") == number
    thin.lvm.activate(thin.there("s"))
    assert read(thin.node("s"), 17) == b"of its own tenant"
    assert FORMER not in read(thin.node("s"), 4 * MIB)


def test_one_that_is_new_is_made_at_once(thin: Pool) -> None:
    for mode in ("Block", "Filesystem"):
        assert (
            thin.store.make(thin.record(f"pvc-{mode.lower()}", 12, volume_mode=mode)).state
            == "made"
        )


@pytest.mark.parametrize("told", [False, True])
def test_a_removal_after_one_that_was_killed_is_told_to_the_pool(thin: Pool, told: bool) -> None:
    for name in ("pvc-1", "pvc-2", "pvc-3"):
        thin.offer(name, 4, volume_mode="Block")
    write(thin.node("pvc-3"), FORMER)
    remove_half(thin, "pvc-2")
    if told:
        # The pool gets the message, which stays on record.
        command("lvchange", "--refresh", f"{thin.group}/pvc-1")
        assert numbers_there(thin) == [1, 3]
    assert thin.lvm.recover(thin.group) == ("told pool of earlier changes",)
    assert numbers_there(thin) == numbers_on_record(thin) == [1, 3]
    command("lvextend", "--size", "+4m", f"{thin.group}/pvc-1")
    thin.lvm.remove(thin.there("pvc-3"))
    assert numbers_there(thin) == numbers_on_record(thin) == [1]
    assert thin.lvm.recover(thin.group) == ()


def test_a_pool_that_is_not_active_is_told_and_is_not_left_active(thin: Pool) -> None:
    for name in ("pvc-1", "pvc-2"):
        thin.offer(name, 4, volume_mode="Block")
    remove_half(thin, "pvc-2")
    command("vgchange", "--activate", "n", thin.group)
    assert thin.lvm.recover(thin.group) == ("told pool of earlier changes",)
    assert devices(thin.group) == []
    command("vgchange", "--activate", "y", thin.group)
    assert numbers_there(thin) == numbers_on_record(thin) == [1]


def test_what_a_killed_recovery_has_left_is_removed(thin: Pool) -> None:
    argv = ["--name", "localvolume-recovery", "--addtag", "localvolume.dev/owner=recovery"]
    command("lvcreate", "--thin", "--virtualsize", "4m", *argv, f"{thin.group}/pool")
    assert thin.lvm.recover(thin.group) == ("told pool of earlier changes",)
    assert thin.lvm_names() == ["pool"]
    assert numbers_there(thin) == []


def test_a_volume_of_that_name_that_is_not_of_recovery_is_left_alone(thin: Pool) -> None:
    thin.lvm.create(thin.group, "localvolume-recovery", 4 * MIB, thin_pool="pool")
    (done,) = thin.lvm.recover(thin.group)
    assert "pool is not told of earlier changes" in done
    assert thin.lvm_names() == ["localvolume-recovery", "pool"]
    thin.lvm.remove(thin.there("localvolume-recovery"))
    thin.lvm.create(thin.group, "localvolume-recovery", 4 * MIB)
    assert thin.lvm.recover(thin.group) == ()
