"""Which blocks of thin snapshots hold data, and which differ: compared with every byte of them."""

import itertools
import os
import random
from collections.abc import Sequence

import pytest

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.model import Busy, Impossible, Record
from localvolume.host.lvm.thinmetadata import READING
from tests.host.support_devices import command
from tests.suite.chance import SEED
from tests.suite.units import MIB

from .support_lvm_store import Pool, read, write
from .support_lvm_thin import cut, held, ranges_of, reserve

_BLOCK = 64 << 10
"""What LVM makes the blocks of a small pool of."""


def scribble(node: str, size: int, chance: random.Random) -> None:
    """Write, write the same, zero and discard here and there."""
    for _ in range(chance.randrange(1, 12)):
        at = chance.randrange(size // 4096) * 4096
        length = min(chance.randrange(1, 40) * 4096, size - at)
        match chance.randrange(4):
            case 0:
                write(node, read(node, length, at), at)
            case 1:
                where = ("--offset", str(at), "--length", str(length))
                command("blkdiscard", *chance.choice([("--zeroout",), ()]), *where, node)
            case _:
                write(node, chance.randbytes(length), at)


def content_of(pool: Pool, name: str) -> bytes:
    volume = pool.there(name)
    pool.lvm.activate(volume)
    try:
        return read(pool.node(name), volume.size_bytes)
    finally:
        pool.lvm.deactivate(volume)


def named(ranges: Sequence[tuple[int, int]], size: int) -> bytes:
    """A 1 for each sector that is named."""
    marks = bytearray(size // 512)
    end = 0
    for at, length in ranges:
        assert at >= end
        assert length > 0
        end = at + length
        marks[at // 512 : end // 512] = b"\1" * (length // 512)
    assert end <= size
    return bytes(marks)


def sectors(content: bytes) -> list[bytes]:
    return [content[at : at + 512] for at in range(0, len(content), 512)]


def test_what_differs_is_named_for_every_pair_of_snapshots(thin: Pool) -> None:
    chance = random.Random(SEED)
    volume = thin.offer(mib=8, volume_mode="Block")
    found: list[tuple[Record, bytes]] = []
    for number in range(5):
        if number == 3:
            volume = thin.store.grow(volume, 12 * MIB)
        scribble(thin.node("pvc-1"), volume.size_bytes, chance)
        taken = cut(thin.store, volume, f"s{number}")
        found.append((taken, content_of(thin, taken.name)))
    for record, content in found:
        marks = named(ranges_of(thin.store, record, None), len(content))
        for mark, sector in zip(marks, sectors(content), strict=True):
            assert mark or not sector.strip(b"\0"), f"seed {SEED}: {record.name} holds more"
    for (base, old), (target, new) in itertools.permutations(found, 2):
        marks = named(ranges_of(thin.store, target, base), len(new))
        pairs = zip(sectors(new), [*sectors(old), *[b""] * len(marks)], strict=False)
        differ = {number for number, (is_now, was) in enumerate(pairs) if is_now != was}
        missed = differ - {number for number, mark in enumerate(marks) if mark}
        assert not missed, f"seed {SEED}: {base.name} and {target.name} differ at {missed}"
    assert held(thin) == "-"
    assert READING not in thin.there("pool").tags


def test_one_block_that_was_written_to_is_all_that_differs(thin: Pool) -> None:
    volume = thin.offer(mib=8, volume_mode="Block")
    write(thin.node("pvc-1"), b"first" * 100, 2 * MIB)
    first = cut(thin.store, volume, "s1")
    again = cut(thin.store, volume, "s2")
    write(thin.node("pvc-1"), b"then", 5 * MIB + _BLOCK + 7)
    last = cut(thin.store, volume, "s3")
    assert ranges_of(thin.store, first, None) == [(2 * MIB, _BLOCK)]
    assert ranges_of(thin.store, again, first) == []
    assert ranges_of(thin.store, last, last) == []
    assert ranges_of(thin.store, last, first) == [(5 * MIB + _BLOCK, _BLOCK)]
    assert ranges_of(thin.store, first, last) == [(5 * MIB + _BLOCK, _BLOCK)]
    # From within it on, and from beyond it.
    start = 5 * MIB + _BLOCK + 512
    assert thin.store.blocks(last, first, start).ranges == [(start, _BLOCK - 512)]
    after = thin.store.blocks(last, first, 6 * MIB)
    assert (list(after.ranges), after.until, after.total_bytes) == ([], 8 * MIB, 8 * MIB)


def test_what_somebody_else_reads_is_left_alone(thin: Pool) -> None:
    taken = cut(thin.store, thin.offer(mib=8, volume_mode="Block"), "s")
    reserve(thin)
    root = held(thin)
    assert root != "-"
    with pytest.raises(Busy, match="somebody else reads the metadata of vg0/pool"):
        thin.store.blocks(taken, None, 0)
    assert not thin.store.look().warnings
    assert held(thin) == root
    reserve(thin, "release_metadata_snap")
    assert ranges_of(thin.store, taken, None) == []


def test_a_pool_that_does_not_tell_is_released(thin: Pool) -> None:
    taken = cut(thin.store, thin.offer(mib=8, volume_mode="Block"), "s")
    # There is no such device: the tool fails.
    os.rename("/dev/mapper/vg0-pool_tmeta", "/dev/mapper/hidden")
    try:
        with pytest.raises(Impossible, match=r"vg0/pool does not tell what has changed"):
            thin.store.blocks(taken, None, 0)
    finally:
        os.rename("/dev/mapper/hidden", "/dev/mapper/vg0-pool_tmeta")
    assert held(thin) == "-"
    assert READING not in thin.there("pool").tags


def test_thick_volumes_do_not_tell(thick: Pool) -> None:
    store: LvmStore = thick.store
    volume = thick.offer(mib=8)
    with pytest.raises(Impossible, match="in no thin pool"):
        store.blocks(volume, None, 0)
