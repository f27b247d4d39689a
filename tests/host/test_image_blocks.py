"""Which blocks of a snapshot hold data or have changed: compared byte by byte with the images."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from localvolume.backends.image.blocks import blocks
from localvolume.backends.model import Impossible, NotThisVolume, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.host.filesystem.extents import AT_ONCE
from localvolume.host.process.commandsync import Run
from tests.suite.units import GIB, MIB

from .support_copies import made, written
from .support_devices import command, filesystem
from .support_images import (
    ImagePool,
    copied,
    image_pool,
    mounted,
    running,
    snapshot_of,
    snapshotted,
)
from .support_pools import config_of

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")

BLOCK = 4096


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@contextmanager
def on(kind: str, run: Run) -> Iterator[ImagePool]:
    """A pool on such a filesystem."""
    with filesystem(kind, size=4 * GIB) as where, image_pool(where, run) as pool:
        yield pool


ON = ["xfs", pytest.param("btrfs", marks=pytest.mark.needs("btrfs"))]


def named(
    pool: ImagePool, cut: Record, base: Record | None = None, start: int = 0
) -> list[tuple[int, int]]:
    """All ranges, page by page: in order, apart, and within the image."""
    found: list[tuple[int, int]] = []
    at, size = start, pool.image(cut).stat().st_size
    while at < size:
        page = pool.backend.blocks(pool.fd, pool.path, cut, base, at)
        assert page.total_bytes == size
        assert at < page.until <= size
        found += page.ranges
        at = page.until
    before = start
    for first, length in found:
        assert length > 0
        assert before <= first
        before = first + length
    assert before <= size
    return found


def count(ranges: list[tuple[int, int]]) -> int:
    return sum(length for _, length in ranges)


def check(pool: ImagePool, cut: Record, base: Record | None = None) -> list[tuple[int, int]]:
    """What is not named holds zeros, or the same as in the base. Returns what is."""
    found = named(pool, cut, base)
    content = bytearray(pool.image(cut).read_bytes())
    other = bytearray(len(content)) if base is None else bytearray(pool.image(base).read_bytes())
    assert len(other) <= len(content)
    other.extend(b"\1" * (len(content) - len(other)))
    for first, length in found:
        content[first : first + length] = other[first : first + length] = bytes(length)
    assert content == other
    return found


class Writer:
    """Writes to a raw volume, or gives back some of it, at random."""

    def __init__(self, pool: ImagePool, record: Record, dice: random.Random) -> None:
        self.node, self.size, self.dice = pool.node(record), record.size_bytes, dice

    def some(self, times: int) -> None:
        fd = os.open(self.node, os.O_RDWR | os.O_CLOEXEC)
        try:
            for _ in range(times):
                at = self.dice.randrange(0, self.size - 1, 512)
                length = min(self.dice.choice([1, 512, BLOCK, 100_000]), self.size - at)
                kind = self.dice.randrange(6)
                if kind == 0:
                    os.pwrite(fd, bytes(length), at)
                elif kind == 1:
                    # As a filesystem without options writes zeros, or none at all.
                    command("blkdiscard", "-o", str(at // BLOCK * BLOCK), "-l", "65536", self.node)
                else:
                    os.pwrite(fd, self.dice.randbytes(length), at)
            os.fsync(fd)
        finally:
            os.close(fd)


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "reserved"])
@pytest.mark.parametrize("kind", ON)
def test_whatever_was_written_is_named(run: Run, kind: str, sparse: bool) -> None:
    with on(kind, run) as pool:
        dice = random.Random(f"{kind} {sparse}")
        volume = made(pool, "raw", sparse=sparse)
        cuts = [snapshotted(pool, volume, "snap-0")]
        assert count(check(pool, cuts[0])) == 0
        for number in range(1, 5):
            Writer(pool, volume, dice).some(40)
            cuts.append(snapshotted(pool, volume, f"snap-{number}"))
        for cut in cuts:
            check(pool, cut)
            for base in cuts:
                # In any order: of either, the other may be the older one.
                check(pool, cut, base)
        assert count(named(pool, cuts[1], cuts[1])) == 0
        start = dice.randrange(volume.size_bytes)
        part = [
            (max(at, start), at + n - max(at, start)) for at, n in named(pool, cuts[4], cuts[1])
        ]
        assert named(pool, cuts[4], cuts[1], start) == [one for one in part if one[1] > 0]


@pytest.mark.parametrize("kind", ON)
def test_no_more_is_named_than_was_written(run: Run, kind: str) -> None:
    with on(kind, run) as pool:
        volume = made(pool, "raw")
        written(pool, volume, 4)
        first = snapshotted(pool, volume, "snap-1")
        written(pool, volume, 1, at=2)
        second = snapshotted(pool, volume, "snap-2")
        assert check(pool, first) == [(0, 4 * MIB)]
        assert check(pool, second, first) == [(2 * MIB, MIB)]
        # The same written again is named: nothing is read.
        again = pool.image(volume).read_bytes()[:MIB]
        with open(pool.node(volume), "r+b") as device:
            device.write(again)
            device.flush()
            os.fsync(device.fileno())
        third = snapshotted(pool, volume, "snap-3")
        assert check(pool, third, second) == [(0, MIB)]


@pytest.mark.parametrize("kind", ON)
def test_more_extents_than_one_look_sees(run: Run, kind: str) -> None:
    with on(kind, run) as pool:
        volume = made(pool, "raw")
        base = snapshotted(pool, volume, "snap-1")
        with open(pool.node(volume), "r+b", buffering=0) as device:
            for at in range(0, volume.size_bytes, 2 * BLOCK):
                device.seek(at)
                device.write(os.urandom(BLOCK))
            os.fsync(device.fileno())
        cut = snapshotted(pool, volume, "snap-2")
        scattered = [(at, BLOCK) for at in range(0, volume.size_bytes, 2 * BLOCK)]
        assert len(scattered) > AT_ONCE
        assert pool.backend.blocks(pool.fd, pool.path, cut, base, 0).until < volume.size_bytes
        assert check(pool, cut) == scattered
        assert check(pool, cut, base) == scattered
        # What the base has alone differs as well, and makes pages of its own.
        assert check(pool, base, cut) == scattered


@pytest.mark.parametrize("kind", ON)
def test_what_a_volume_has_grown_by_is_named(run: Run, kind: str) -> None:
    with on(kind, run) as pool:
        volume = made(pool, "raw")
        written(pool, volume, 2)
        small = snapshotted(pool, volume, "snap-1")
        grown = pool.grow(volume, 24)
        large = snapshotted(pool, grown, "snap-2")
        assert check(pool, large, small) == [(16 * MIB, 8 * MIB)]
        assert check(pool, large) == [(0, 2 * MIB)]
        # The older of two is the smaller one, and has no bytes beyond its end.
        assert named(pool, small, large) == []


@pytest.mark.needs("btrfs")
def test_what_somebody_compressed_differs_from_everything(run: Run) -> None:
    """Parts of a compressed extent have one address, whatever they hold."""
    with on("btrfs", run) as pool:
        volume = made(pool, "raw")
        with open(pool.node(volume), "r+b") as device:
            device.write(b"tenant data " * 100_000)
            device.flush()
            os.fsync(device.fileno())
        command("btrfs", "filesystem", "defragment", "-f", "-czstd", pool.image(volume))
        first = snapshotted(pool, volume, "snap-1")
        second = snapshotted(pool, volume, "snap-2")
        assert pool.image(first).read_bytes() == pool.image(second).read_bytes()
        assert count(check(pool, second, first)) >= 1_200_000


def test_full_copies_share_nothing(run: Run) -> None:
    """All that either holds is named, and no more."""
    with (
        filesystem("ext4", size=1 * GIB) as where,
        image_pool(where, run, full_copies=True) as pool,
    ):
        volume = made(pool, "raw")
        written(pool, volume, 2)
        first = snapshotted(pool, volume, "snap-1")
        written(pool, volume, 1, at=8)
        second = snapshotted(pool, volume, "snap-2")
        assert check(pool, first) == [(0, 2 * MIB)]
        assert check(pool, second) == [(0, 2 * MIB), (8 * MIB, MIB)]
        assert check(pool, second, first) == [(0, 2 * MIB), (8 * MIB, MIB)]
        assert check(pool, first, first) == []


@pytest.mark.parametrize("content", ["ext4", "xfs"])
def test_filesystems(run: Run, content: str) -> None:
    with on("xfs", run) as pool:
        volume = made(pool, content)
        with mounted(pool.node(volume)) as where:
            (where / "old").write_bytes(os.urandom(2 * MIB))
            first = snapshotted(pool, volume, "snap-1")
            (where / "new").write_bytes(os.urandom(MIB))
            (where / "old").unlink()
            second = snapshotted(pool, volume, "snap-2")
        check(pool, first)
        found = count(check(pool, second, first))
        assert MIB <= found < pool.image(second).stat().st_size // 2


def test_a_restored_volume_shares_with_snapshots_of_its_source(run: Run) -> None:
    """Each is named by what it holds, however it came to share it."""
    with on("xfs", run) as pool:
        volume = made(pool, "raw")
        written(pool, volume, 4)
        first = snapshotted(pool, volume, "snap-1")
        restored = copied(pool, "pvc-2", first)
        written(pool, restored, 1, at=8)
        second = snapshotted(pool, restored, "snap-2")
        assert check(pool, second) == [(0, 4 * MIB), (8 * MIB, MIB)]
        assert check(pool, second, first) == [(8 * MIB, MIB)]


def _cut_off(image: Path) -> None:
    with image.open("r+b") as file:
        os.truncate(file.fileno(), MIB)


@pytest.mark.parametrize("change", [os.unlink, _cut_off], ids=["gone", "cut off"])
def test_an_image_that_somebody_tampered_with(run: Run, change: Callable[[Path], None]) -> None:
    with on("xfs", run) as pool:
        volume = made(pool, "raw")
        written(pool, volume, 4)
        first = snapshotted(pool, volume, "snap-1")
        second = snapshotted(pool, volume, "snap-2")
        # Nobody else gets the inode of what is gone while it is open.
        with pool.image(first).open("rb"):
            change(pool.image(first))
            if pool.image(first).exists():
                assert check(pool, second, first) == [(MIB, 15 * MIB)]
                return
            for cut, base in ((first, None), (second, first)):
                with pytest.raises(NotThisVolume):
                    pool.backend.blocks(pool.fd, pool.path, cut, base, 0)
            # Another file in its place is not it, whatever it holds.
            pool.image(first).write_bytes(pool.image(second).read_bytes())
            with pytest.raises(NotThisVolume):
                pool.backend.blocks(pool.fd, pool.path, second, first, 0)


def test_a_filesystem_that_does_not_tell(tmp_path: Path) -> None:
    with filesystem("tmpfs") as where:
        (where / "image").write_bytes(bytes(MIB))
        with (where / "image").open("rb") as image:
            with pytest.raises(Impossible, match="does not tell where files lie"):
                blocks(image.fileno(), None, 0)
            assert blocks(image.fileno(), None, MIB).ranges == ()


def test_files_of_two_filesystems_share_nothing() -> None:
    with filesystem("xfs") as one, filesystem("xfs") as other:
        for where in (one, other):
            (where / "image").write_bytes(b"1" * MIB)
            command("sync", "-f", where)
        with (one / "image").open("rb") as image, (other / "image").open("rb") as base:
            assert list(blocks(image.fileno(), base.fileno(), 0).ranges) == [(0, MIB)]


def test_the_store_tells_of_snapshots_alone(run: Run) -> None:
    with on("xfs", run) as pool:
        store = PoolStore(config_of(pool.root, backend="image"), pool.backend, known_ids=())
        told = SimpleNamespace(volume=pool.record("pvc-1", 16, volume_mode="Block"))
        try:
            volume = store.offered(store.make(told.volume))
            cuts = [
                store.offered(store.copy(snapshot_of(volume, f"snap-{number}"), volume))
                for number in (1, 2)
            ]
            first, second = cuts
            assert store.blocks(first, None, 0).total_bytes == 16 * MIB
            assert list(store.blocks(second, first, 0).ranges) == []
            assert list(store.blocks(second, second, 0).ranges) == []
            with pytest.raises(NotThisVolume, match="is not that snapshot"):
                store.blocks(volume, None, 0)
            with pytest.raises(NotThisVolume, match="is not that snapshot"):
                store.blocks(second, volume, 0)
            with pytest.raises(NotThisVolume, match="is not that snapshot"):
                store.blocks(replace(second, cut_at=1), None, 0)
            store.retire(first)
            for cut, base in ((first, None), (second, first)):
                with pytest.raises(NotThisVolume, match="is removed"):
                    store.blocks(cut, base, 0)
        finally:
            store.close()
