"""A thin pool that holds a volume of which LVM knows nothing: its number is given to the next.

A command that is killed between LVM's metadata and the kernel leaves one. LVM takes the kernel's
answer that it is there already for the one to its own message, sent once more: the new volume is
the old one, with its data.
"""

import contextlib
from collections.abc import Iterator

import pytest

from localvolume.backends.model import GoesOn, Record
from tests.host.support_devices import command
from tests.suite.units import MIB

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


def test_one_that_is_new_is_made_at_once(thin: Pool) -> None:
    for mode in ("Block", "Filesystem"):
        assert (
            thin.store.make(thin.record(f"pvc-{mode.lower()}", 12, volume_mode=mode)).state
            == "made"
        )
