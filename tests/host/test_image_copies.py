"""Snapshots, restores and clones of images: what is in them, and whom they harm."""

import mmap
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from localvolume.backends.model import (
    BackendFailed,
    Busy,
    Impossible,
    NotThisVolume,
    Record,
)
from localvolume.backends.pool.pool import PoolStore
from localvolume.host.process.commandsync import Run
from tests.suite.units import GIB, MIB
from tests.suite.until import until

from .support_copies import SIZES, clean, content_of, kind, made, written
from .support_devices import filesystem, flush
from .support_images import (
    POOL_ID,
    ImagePool,
    command,
    copied,
    copy_of,
    fill,
    image_pool,
    mounted,
    running,
    snapshot_of,
    snapshotted,
)
from .support_pools import config_of

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture(params=["xfs", "ext4"])
def pool(run: Run, request: pytest.FixtureRequest) -> Iterator[ImagePool]:
    """A pool on an xfs of its own, which shares blocks, or an ext4, where all is copied."""
    full = request.param == "ext4"
    with (
        filesystem(request.param, size=4 * GIB) as where,
        image_pool(where, run, full_copies=full) as pool,
    ):
        yield pool


def uuid_of(pool: ImagePool, record: Record) -> str:
    return command("blkid", "-p", "-s", "UUID", "-o", "value", pool.node(record)).strip()


@pytest.mark.parametrize("content", ["ext4", "xfs"])
def test_what_was_written_before_the_call_is_in_the_snapshot_and_later_writes_are_not(
    pool: ImagePool, content: str
) -> None:
    origin = made(pool, content, mode=0o2770, uid=1000, gid=2000)
    before = time.time_ns()
    with mounted(pool.node(origin)) as where:
        # Written, and synced by nobody.
        (where / "file").write_bytes(b"before" * 100_000)
        (where / "directory").mkdir()
        cut = snapshotted(pool, origin)
        (where / "file").write_bytes(b"after" * 100_000)
        (where / "later").touch()
        flush(where)
        restored = copied(pool, "pvc-2", cut)
        # Beside its origin, on the same machine at the same time.
        with mounted(pool.node(restored)) as beside:
            assert (beside / "file").read_bytes() == b"before" * 100_000
            assert (beside / "directory").is_dir()
            assert not (beside / "later").exists()
            seen = beside.stat()
            assert (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid) == (0o2770, 1000, 2000)
            (beside / "own").write_bytes(os.urandom(MIB))
        assert not (where / "own").exists()
        assert (where / "file").read_bytes() == b"after" * 100_000
    assert before < cut.cut_at < time.time_ns()
    assert uuid_of(pool, restored) != uuid_of(pool, origin)
    clean(pool, restored)
    clean(pool, origin)


@pytest.mark.parametrize("content", ["ext4", "xfs"])
def test_a_clone_of_a_volume_that_nobody_uses(pool: ImagePool, content: str) -> None:
    origin = made(pool, content)
    with mounted(pool.node(origin)) as where:
        (where / "file").write_text("tenant data")
    first = content_of(pool.image(origin))
    clone = copied(pool, "pvc-2", origin)
    assert content_of(pool.image(origin)) == first
    with mounted(pool.node(origin)), mounted(pool.node(clone)) as where:
        assert (where / "file").read_text() == "tenant data"
    assert len({uuid_of(pool, origin), uuid_of(pool, clone)}) == 2
    # And a clone of a clone.
    again = copied(pool, "pvc-3", clone)
    with mounted(pool.node(clone)), mounted(pool.node(again)) as where:
        assert (where / "file").read_text() == "tenant data"


@pytest.mark.parametrize("content", ["ext4", "xfs"])
@pytest.mark.parametrize("more", [0, 1, 200])
def test_a_filesystem_as_a_block_volume(pool: ImagePool, content: str, more: int) -> None:
    """Byte by byte, its identity too; the record says how large the device is."""
    origin = made(pool, content)
    with mounted(pool.node(origin)) as where:
        (where / "file").write_text("tenant data")
    cut = snapshotted(pool, origin)
    whole = pool.image(cut).read_bytes()
    blocks = copied(pool, "pvc-2", cut, mib=SIZES[content] + more, volume_mode="Block")
    found = Path(pool.node(blocks)).read_bytes()
    assert found[: len(whole)] == whole
    assert found[len(whole) :] == bytes(len(found) - len(whole))
    assert blocks.size_bytes == len(found) == max(len(whole), (SIZES[content] + more) * MIB)
    assert command("blockdev", "--getss", pool.node(blocks)).strip() == "512"
    assert uuid_of(pool, blocks) == uuid_of(pool, origin)
    with mounted(pool.node(blocks), options="nouuid" if content == "xfs" else "") as where:
        assert (where / "file").read_text() == "tenant data"
    # It grows and is cut as any other.
    grown = pool.grow(blocks, 1024)
    again = copied(pool, "pvc-3", snapshotted(pool, grown, "snap-2"))
    assert again.size_bytes == grown.size_bytes == 1024 * MIB


def test_blocks_are_no_filesystem(pool: ImagePool) -> None:
    origin = made(pool, "raw")
    command("mkfs.ext4", "-q", "-F", pool.node(origin))
    cut = snapshotted(pool, origin)
    with pytest.raises(Impossible, match="is never mounted as a filesystem"):
        copied(pool, "pvc-2", cut, volume_mode="Filesystem", fs_type="ext4")
    assert {path.name for path in pool.images.iterdir()} == {"pvc-1.img", "snap-1.img"}


def test_a_volume_that_is_mounted_read_only_is_copied(pool: ImagePool) -> None:
    for content in ("ext4", "xfs"):
        origin = made(pool, content, f"pvc-{content}")
        with mounted(pool.node(origin)) as where:
            (where / "file").write_text("tenant data")
        with mounted(pool.node(origin), options="ro"):
            clone = copied(pool, f"clone-{content}", origin)
        with mounted(pool.node(clone)) as where:
            assert (where / "file").read_text() == "tenant data"


def test_a_volume_that_somebody_else_claims_is_not_copied(pool: ImagePool) -> None:
    origin = made(pool, "ext4")
    holder = os.open(pool.node(origin), os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(Busy, match="not by its filesystem"):
            copied(pool, "pvc-2", origin)
    finally:
        os.close(holder)
    assert [path.name for path in pool.images.iterdir()] == ["pvc-1.img"]
    copied(pool, "pvc-2", origin)


def test_blocks_written_and_not_synced_are_in_the_copy(pool: ImagePool) -> None:
    origin = made(pool, "raw")
    data = os.urandom(3 * MIB)
    with open(pool.node(origin), "r+b", buffering=0) as device:
        device.write(data)
        cut = snapshotted(pool, origin)
        clone = copied(pool, "pvc-2", origin)
        device.seek(0)
        device.write(bytes(3 * MIB))
        os.fsync(device.fileno())
    restored = copied(pool, "pvc-3", cut)
    for one in (clone, restored):
        assert Path(pool.node(one)).read_bytes()[: 3 * MIB] == data
    assert Path(pool.node(origin)).read_bytes()[: 3 * MIB] == bytes(3 * MIB)


@pytest.mark.parametrize(
    ("pool", "content"),
    [("xfs", "raw"), ("xfs", "ext4"), ("xfs", "xfs"), ("ext4", "ext4"), ("ext4", "xfs")],
    indirect=["pool"],
)
def test_what_is_written_while_it_is_cut_is_in_it_in_its_order(
    pool: ImagePool, content: str
) -> None:
    """Each write is on disk before the next begins: no copy has one without those before it."""
    origin = made(pool, content)
    if content == "raw":
        order_holds(pool, origin, pool.node(origin))
    else:
        with mounted(pool.node(origin)) as where:
            order_holds(pool, origin, str(where / "log"))


def order_holds(pool: ImagePool, origin: Record, path: str) -> None:
    ended = threading.Event()
    turns = [0]
    started = threading.Event()
    size = 2 * MIB

    def write() -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_SYNC
        fd = os.open(path, flags)
        page = mmap.mmap(-1, 4096)
        try:
            while not ended.is_set():
                turns[0] += 1
                page[:8] = turns[0].to_bytes(8, "big")
                # The first place, and only then the second, far from it.
                os.pwrite(fd, page, 0)
                os.pwrite(fd, page, size)
                started.set()
        finally:
            os.close(fd)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert started.wait(120)
        seen, before = set(), 0
        for turn in range(12):
            # On a busy machine, it may write little between two cuts.
            until(lambda: turns[0], (before + 1).__lt__)
            least = turns[0] - 1
            cut = snapshotted(pool, origin, f"snap-{turn}")
            before = turns[0]
            restored = copied(pool, f"restored-{turn}", cut)
            if path.startswith("/dev/"):
                first, second = pairs(pool.node(restored), size)
            else:
                with mounted(pool.node(restored)) as where:
                    first, second = pairs(str(where / os.path.basename(path)), size)
            assert first in (second, second + 1)
            assert second >= least
            seen.add(first)
    finally:
        ended.set()
        writer.join(60)
    assert len(seen) == 12


def pairs(path: str, size: int) -> tuple[int, int]:
    with open(path, "rb") as file:
        first = int.from_bytes(file.read(8), "big")
        file.seek(size)
        return first, int.from_bytes(file.read(8), "big")


# --- their end ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(run: Run) -> Iterator[ImagePool]:
    with filesystem("xfs", size=1 * GIB) as where, image_pool(where, run) as pool:
        yield pool


def family(pool: ImagePool) -> list[Record]:
    """A volume, its snapshot, a clone of that and its snapshot; they share most of their blocks."""
    origin = made(pool, "raw", mib=4)
    written(pool, origin, 4)
    cut = snapshotted(pool, origin)
    clone = copied(pool, "pvc-2", cut)
    written(pool, clone, 1)
    second = snapshotted(pool, clone, "snap-2")
    written(pool, origin, 1, at=3)
    return [origin, cut, clone, second]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_each_goes_without_harm_to_the_others(
    shared: ImagePool, order: tuple[int, ...], overwrite: bool
) -> None:
    pool = shared
    records = dict(enumerate(family(pool)))
    contents = {number: content_of(pool.image(one)) for number, one in records.items()}
    assert len(set(contents.values())) == 4 - 1  # the second snapshot is as its volume
    for number in order:
        gone = replace(records.pop(number), overwrite=overwrite)
        pool.purge(pool.retire(gone))
        for other, record in records.items():
            assert content_of(pool.image(record)) == contents[other]
    assert not list(pool.images.iterdir())
    assert not list(pool.trash.iterdir())


def test_a_snapshot_is_used_by_nobody(pool: ImagePool) -> None:
    cut = snapshotted(pool, made(pool, "ext4"))
    assert stat.S_IMODE(pool.image(cut).stat().st_mode) == 0o400
    assert not pool.link(cut).is_symlink()
    assert len(pool.loops()) == 1
    with pytest.raises(NotThisVolume, match="is a snapshot"):
        pool.grow(cut, 64)
    with (
        pytest.raises(NotThisVolume, match="is a snapshot"),
        pool.backend.ready(pool.fd, pool.path, cut),
    ):
        pass
    # After a reboot neither.
    pool.reboot()
    pool.attach(cut)
    assert not pool.loops()
    assert not pool.backend.astray(pool.fd, pool.path, [cut])
    assert {path.name for path in pool.images.iterdir()} == {"pvc-1.img", "snap-1.img"}


def test_a_pool_makes_them_and_lets_them_go(run: Run) -> None:
    with filesystem("xfs", size=1 * GIB) as where, image_pool(where, run) as pool:
        config = config_of(pool.root, backend="image")
        store = PoolStore(config, pool.backend, known_ids=[POOL_ID])
        try:
            origin = store.offered(store.make(pool.record(mib=64)))
            with mounted(pool.node(origin)) as inside:
                (inside / "file").write_text("tenant data")
                cut = store.offered(store.copy(snapshot_of(origin), origin))
                assert store.copy(snapshot_of(origin), origin) == cut
                (inside / "file").write_text("an accident")
            assert not list(pool.images.glob("*.making"))
            store.purge(store.retire(origin), stop=threading.Event())
            restored = store.offered(store.copy(copy_of(cut, size_bytes=80 * MIB), cut))
            with mounted(pool.node(restored)) as inside:
                assert (inside / "file").read_text() == "tenant data"
            report = store.look()
            assert not report.orphans
            assert not report.astray
            assert report.records == {one.name: one for one in (cut, restored)}
            assert report.usage[cut.name].outstanding_bytes == 0
            pool.reboot()
            assert store.attach_all() == {}
            assert len(pool.loops()) == 1
            # Also one that nobody was told of.
            untold = store.copy(snapshot_of(restored, "snap-2"), restored)
            store.take_away(untold)
            for record in (cut, restored):
                store.purge(store.retire(record), stop=threading.Event())
            assert not list(pool.images.iterdir())
            assert not list(pool.trash.iterdir())
            assert not store.look().records
        finally:
            store.close()


# --- where there are none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fs_type", "options"), [("ext4", ()), ("xfs", ("-m", "reflink=0")), ("tmpfs", ())]
)
def test_where_files_share_no_blocks_nothing_is_copied(
    run: Run, fs_type: str, options: tuple[str, ...]
) -> None:
    with filesystem(fs_type, *options, size=400 * MIB) as where, image_pool(where, run) as pool:
        origin = made(pool, "ext4", mib=8)
        why = pool.backend.abilities(pool.fd, pool.path).no_copies
        assert "cannot share blocks" in why
        with pytest.raises(Impossible, match="cannot share blocks"):
            snapshotted(pool, origin)
        with pytest.raises(Impossible, match="cannot share blocks"):
            copied(pool, "pvc-2", origin)
        assert [path.name for path in pool.images.iterdir()] == ["pvc-1.img"]


@pytest.mark.needs("btrfs")
def test_a_pool_on_btrfs_copies_images_too(run: Run) -> None:
    with filesystem("btrfs", size=1 * GIB) as where, image_pool(where, run) as pool:
        assert not pool.backend.abilities(pool.fd, pool.path).no_copies
        origin = made(pool, "ext4")
        with mounted(pool.node(origin)) as inside:
            (inside / "file").write_text("tenant data")
            cut = snapshotted(pool, origin)
            restored = copied(pool, "pvc-2", cut)
            with mounted(pool.node(restored)) as beside:
                assert (beside / "file").read_text() == "tenant data"


def test_a_full_pool_cannot_be_tried_and_an_answer_is_remembered(run: Run) -> None:
    options = ("-m", "reflink=0")
    with filesystem("xfs", *options, size=400 * MIB) as where, image_pool(where, run) as pool:

        def why() -> str:
            return pool.backend.abilities(pool.fd, pool.path).no_copies

        fill(where)
        with suppress(OSError):
            for number in range(10_000):
                (where / f"more-{number}").write_bytes(b"1" * 4096)
        assert not why()
        (where / "full").unlink()
        assert "cannot share blocks" in why()
        fill(where)
        assert "cannot share blocks" in why()


def test_a_filesystem_that_cannot_be_repaired_is_not_copied(pool: ImagePool) -> None:
    for content, match in (("ext4", "e2fsck"), ("xfs", "xfs cannot be mounted")):
        origin = made(pool, content, f"pvc-{content}")
        with open(pool.node(origin), "r+b") as device:
            device.write(bytes(4 * MIB))
        with pytest.raises(BackendFailed, match=match):
            copied(pool, "pvc-2", origin)
        assert not pool.image(replace(origin, name="pvc-2")).exists()
        assert not list(pool.images.glob("*.making"))


def test_nothing_shrinks_or_changes_its_filesystem(pool: ImagePool) -> None:
    origin = made(pool, "ext4")
    with pytest.raises(Impossible, match="which are more"):
        copied(pool, "pvc-2", origin, mib=31)
    with pytest.raises(Impossible, match="holds ext4"):
        copied(pool, "pvc-2", origin, mib=400, **kind("xfs"))
    assert [path.name for path in pool.images.iterdir()] == ["pvc-1.img"]
