"""Copies of images: their sizes, what they take of a pool, and that none is promised twice."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.backends.capacity import capacity, most_of_cut, price, promised
from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.image.measuring import anew, maps_of
from localvolume.backends.model import (
    NoSpace,
    PoolReport,
    Record,
    Usage,
)
from localvolume.host.process.commandsync import Run
from tests.suite.units import GIB, MIB

from .support_copies import SIZES, available, clean, content_of, made, written
from .support_devices import filesystem, flush, formatted
from .support_images import (
    ImagePool,
    copied,
    fill,
    image_pool,
    mounted,
    running,
    snapshotted,
)
from .support_pools import config_of

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture
def pool(run: Run) -> Iterator[ImagePool]:
    """A pool on an xfs of its own."""
    with filesystem("xfs", size=4 * GIB) as where, image_pool(where, run) as pool:
        yield pool


@pytest.mark.parametrize("content", ["ext4", "xfs", "raw"])
@pytest.mark.parametrize("sparse", [True, False])
def test_a_larger_restore_has_the_room_it_says(pool: ImagePool, content: str, sparse: bool) -> None:
    origin = made(pool, content, sparse=sparse)
    before = SIZES[content]
    mib = before + 200
    if content == "raw":
        data = written(pool, origin, 1)
        restored = copied(pool, "pvc-2", snapshotted(pool, origin), mib=mib)
        image = pool.image(restored).stat()
        found = Path(pool.node(restored)).read_bytes()
        assert len(found) == mib * MIB
        assert found[:MIB] == data
        assert found[MIB:] == bytes(len(found) - MIB)
    else:
        with mounted(pool.node(origin)) as where:
            (where / "file").write_bytes(b"1" * MIB)
            restored = copied(pool, "pvc-2", snapshotted(pool, origin), mib=mib)
        # Once it is mounted, an ext4 clears inode tables that are new, and gives back their blocks.
        image = pool.image(restored).stat()
        with mounted(pool.node(restored)) as where:
            assert (where / "file").read_bytes() == b"1" * MIB
            assert (mib - 1) * MIB - 65536 <= fill(where) <= mib * MIB * 1.015
            assert (where / "file").read_bytes() == b"1" * MIB
        clean(pool, restored)
    assert restored.size_bytes == mib * MIB
    assert sparse or image.st_blocks * 512 >= image.st_size
    assert pool.image(origin).stat().st_size < image.st_size


def test_a_copy_takes_no_room_at_first_and_a_snapshot_says_how_much_it_holds(
    pool: ImagePool,
) -> None:
    origin = made(pool, "ext4", mib=400)
    with mounted(pool.node(origin)) as where:
        (where / "file").write_bytes(os.urandom(200 * MIB))
        flush(where)
        flush(pool.root)
        free = available(pool)
        cut = snapshotted(pool, origin)
        flush(pool.root)
        assert free - available(pool) < 8 * MIB
        taken = pool.image(cut).stat().st_blocks * 512
        assert taken >= 200 * MIB
        # In the unit of promises: an image is larger than what was promised.
        assert anew(taken) <= price("image", cut.holds_bytes) < anew(taken) + 4096
        (where / "file").write_bytes(os.urandom(200 * MIB))
        flush(where)
    assert pool.image(cut).stat().st_blocks * 512 == taken


def test_a_snapshot_that_would_hold_more_than_was_found_room_for_is_not_made(
    pool: ImagePool,
) -> None:
    origin = made(pool, "raw", sparse=False)
    written(pool, origin, 8)
    with pytest.raises(NoSpace, match="written to meanwhile"):
        snapshotted(pool, origin, holds_bytes=2 * MIB)
    assert [path.name for path in pool.images.iterdir()] == ["pvc-1.img"]


@pytest.mark.parametrize(
    ("content", "mib"), [("ext4", 1), ("ext4", 7), ("ext4", 64), ("xfs", 300), ("raw", 1)]
)
def test_for_a_snapshot_of_a_full_volume_enough_room_is_asked(
    pool: ImagePool, content: str, mib: int
) -> None:
    origin = made(pool, content, mib=mib)
    if content == "raw":
        written(pool, origin, mib)
    else:
        with mounted(pool.node(origin)) as where:
            before = usage_of(pool, origin)
            # Little of it is in the image yet.
            (where / "file").write_bytes(os.urandom(min(mib, 80) * MIB // 2))
            snapshotted(pool, origin, "early", holds_bytes=most_of_cut(origin, before))
            fill(where)
            seen = usage_of(pool, origin)
            snapshotted(pool, origin, "in-use", holds_bytes=most_of_cut(origin, seen))
    seen = usage_of(pool, origin)
    cut = snapshotted(pool, origin, "unused", holds_bytes=most_of_cut(origin, seen))
    again = usage_of(pool, origin, cut)
    snapshotted(pool, origin, "again", holds_bytes=most_of_cut(origin, again))


def report_of(pool: ImagePool, *records: Record) -> PoolReport:
    flush(pool.root)
    usage = pool.backend.usage(pool.fd, pool.path, records)
    found = os.statvfs(pool.root)
    return PoolReport(
        name="pool",
        total_bytes=found.f_blocks * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
        records={one.name: one for one in records},
        usage=usage,
    )


def usage_of(pool: ImagePool, record: Record, *records: Record) -> Usage:
    return pool.backend.usage(pool.fd, pool.path, [record, *records])[record.name]


def test_what_overwriting_may_take_is_outstanding(pool: ImagePool) -> None:
    origin = made(pool, "raw")
    written(pool, origin, 8)
    assert anew(8 * MIB) == 8 * MIB + 8 * MIB // 100
    alone = usage_of(pool, origin)
    left = 8 * MIB + maps_of(16 * MIB)
    assert alone.outstanding_bytes == left
    cut = snapshotted(pool, origin)
    for others in ((cut,), ()):  # its record may be missing
        assert usage_of(pool, origin, *others).outstanding_bytes == left + anew(8 * MIB)
    assert usage_of(pool, cut, origin) == Usage(
        used_bytes=8 * MIB, taken_bytes=8 * MIB, outstanding_bytes=0
    )
    written(pool, origin, 2)
    assert usage_of(pool, origin, cut).outstanding_bytes == left + anew(6 * MIB)
    gone = pool.retire(cut)
    assert usage_of(pool, origin, gone).outstanding_bytes == left + anew(6 * MIB)
    pool.purge(gone)
    assert usage_of(pool, origin).outstanding_bytes == left


def test_a_look_counts_no_longer_than_it_may(pool: ImagePool, run: Run) -> None:
    """Its tenants decide how long that takes. What there was no time for is taken to be shared."""
    pool.backend = ImageBackend(run, str(pool.links), counting=1e-9)
    records = [made(pool, "raw", name) for name in ("pvc-1", "pvc-2")]
    for record in records:
        written(pool, record, 8)
    one, other = records
    snapshotted(pool, one)
    left = 8 * MIB + maps_of(16 * MIB)

    def shared() -> list[int]:
        found = pool.backend.usage(pool.fd, pool.path, records)
        return [(found[record.name].outstanding_bytes or 0) - left for record in records]

    assert shared() == [anew(8 * MIB), anew(8 * MIB)]
    assert shared() == [anew(8 * MIB), 0]
    written(pool, one, 2)
    assert shared() == [anew(6 * MIB), 0]
    assert shared() == [anew(6 * MIB), 0]
    snapshotted(pool, other, "snapshot-2")
    assert shared() == [anew(6 * MIB), anew(8 * MIB)]


@pytest.mark.parametrize("fs_type", ["ext4", "xfs"])
def test_an_image_written_in_pieces_takes_no_more_than_was_kept_for_it(
    run: Run, fs_type: str
) -> None:
    """A tenant writes every other block, and then the rest: each lies by itself, and the pool's
    filesystem takes more than the file is large to tell where."""
    with filesystem(fs_type, size=1 * GIB) as where, image_pool(where, run) as pool:
        origin = made(pool, "raw", mib=64)
        before = usage_of(pool, origin)
        assert before.taken_bytes is not None
        assert before.outstanding_bytes is not None
        block = mmap.mmap(-1, 4096)
        block.write(os.urandom(4096))
        device = os.open(pool.node(origin), os.O_RDWR | os.O_DIRECT)
        try:
            count = 64 * MIB // 4096
            for number in (*range(0, count, 2), *range(1, count, 2)):
                os.pwrite(device, block, number * 4096)
            os.fsync(device)
        finally:
            os.close(device)
        after = usage_of(pool, origin).taken_bytes
        assert after is not None
        assert 64 * MIB < after <= before.taken_bytes + before.outstanding_bytes


@pytest.mark.parametrize("piece", [4096, 512])
def test_a_pool_full_of_promises_has_room_for_all_overwriting(run: Run, piece: int) -> None:
    with filesystem("xfs", size=900 * MIB) as where, image_pool(where, run) as pool:
        config = config_of(pool.root, backend="image", reserve_bytes=0)
        origin = made(pool, "raw", mib=160)
        written(pool, origin, 100)
        cut = snapshotted(pool, origin)
        clone = copied(pool, "pvc-2", cut, mib=200)
        records = [origin, cut, clone]
        # All the rest is promised.
        while (left := capacity(config, report_of(pool, *records))) >= 2 * MIB:
            records.append(made(pool, "raw", f"pvc-{len(records)}", mib=left // MIB))
        assert len(records) > 3
        assert promised(report_of(pool, *records)) <= 900 * MIB
        volumes = [record for record in records if record is not cut]
        before = content_of(pool.image(cut))
        for record in volumes:
            overwritten(pool.node(record), piece)
        # Every byte was written, and nobody's content is lost.
        assert content_of(pool.image(cut)) == before
        for record in volumes:
            pool.purge(pool.retire(record))
        last = copied(pool, "last", cut)
        assert content_of(pool.image(last)) == before


def overwritten(node: str, piece: int) -> None:
    """Write to all of a device, the way that splits its file into the most pieces."""
    with open(node, "r+b", buffering=0) as device:
        size = device.seek(0, os.SEEK_END)
        for half in (0, 1):
            for start in range(half * MIB, size, 2 * MIB):
                length = min(MIB, size - start)
                os.pwrite(device.fileno(), os.urandom(length), start)
            # A tenant is told of what does not reach the disk.
            os.fsync(device.fileno())
    direct = os.open(node, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, piece)
    page.write(os.urandom(piece))
    try:
        for number in range(2000):
            os.pwrite(direct, page, number * 7919 * 4096 % (size - 4096) // piece * piece)
        os.fsync(direct)
    finally:
        os.close(direct)


def test_a_filesystem_and_its_clone_can_both_be_filled_anew(run: Run) -> None:
    with filesystem("xfs", size=900 * MIB) as where, image_pool(where, run) as pool:
        config = config_of(pool.root, backend="image", reserve_bytes=0)
        origin = made(pool, "ext4", mib=150)
        with mounted(pool.node(origin)) as inside:
            (inside / "file").write_bytes(os.urandom(100 * MIB))
        cut = snapshotted(pool, origin)
        clone = copied(pool, "pvc-2", cut)
        left = capacity(config, report_of(pool, origin, cut, clone))
        other = made(pool, "ext4", "pvc-3", mib=left // MIB)
        assert capacity(config, report_of(pool, origin, cut, clone, other)) < 8 * MIB
        fill_all(pool, origin, clone, other)
        for record in (origin, clone, other):
            clean(pool, record)


def fill_all(pool: ImagePool, *records: Record) -> None:
    for record in records:
        with mounted(pool.node(record)) as where:
            for path in where.iterdir():
                if path.is_file():
                    with path.open("r+b") as file:
                        file.write(os.urandom(path.stat().st_size))
                        os.fsync(file.fileno())
            assert fill(where) > 0
            with (where / "full").open("r+b") as file:
                file.write(os.urandom((where / "full").stat().st_size))
                os.fsync(file.fileno())


def test_overwriting_what_is_shared_takes_little_room_and_reaches_the_last_copy(
    run: Run,
) -> None:
    """Zeros over shared blocks take new ones: they are given back as it goes."""
    with (
        formatted("xfs", size=500 * MIB) as disk,
        mounted(disk) as where,
        image_pool(where, run) as pool,
    ):
        origin = made(pool, "raw", mib=240, overwrite=True)
        secret = b"a tenant's secret" * 241
        with open(pool.node(origin), "r+b") as device:
            device.writelines(secret for _ in range(240 * MIB // len(secret)))
        cut = snapshotted(pool, origin)
        with open(where / "ballast", "xb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, available(pool) - 100 * MIB)
        before = content_of(pool.image(cut))
        pool.purge(pool.retire(origin))
        assert content_of(pool.image(cut)) == before
        pool.purge(pool.retire(cut))
        flush(where)
        with open(disk.path, "rb") as blocks:
            while piece := blocks.read(16 * MIB):
                assert secret not in piece
