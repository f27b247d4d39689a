"""Groups of snapshots of images: all of one moment, all or none, and nothing stays frozen."""

import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.model import BackendFailed, Busy, Impossible, NoSpace, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.host.process.commandsync import Run
from tests.suite.units import GIB, MIB
from tests.suite.until import until

from .support_copies import Writer, last_of, written
from .support_devices import filesystem
from .support_images import (
    POOL_ID,
    ImagePool,
    copied,
    copy_of,
    image_pool,
    killed_at,
    mounted,
    run_here,
    running,
    snapshot_of,
)
from .support_mounts import MS_BIND, mount, umount
from .support_pools import config_of

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")

FREEZE, THAW = 0xC0045877, 0xC0045878


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture
def pool(run: Run) -> Iterator[ImagePool]:
    with filesystem("xfs", size=4 * GIB) as where, image_pool(where, run) as pool:
        yield pool


@contextmanager
def store_of(pool: ImagePool, backend: ImageBackend | None = None) -> Iterator[PoolStore]:
    config = config_of(pool.root, backend="image")
    store = PoolStore(config, backend or pool.backend, known_ids=[POOL_ID])
    try:
        yield store
    finally:
        store.close()


def volumes(store: PoolStore, pool: ImagePool, *contents: str) -> list[Record]:
    """Volumes of those filesystems, offered to pods."""
    sizes = {"ext4": 32, "xfs": 300, "raw": 16}
    kinds = {"raw": {"volume_mode": "Block"}}
    return [
        store.offered(
            store.make(
                pool.record(
                    f"pvc-{number}", sizes[one], **kinds.get(one, {"fs_type": one}), driver="csi"
                )
            )
        )
        for number, one in enumerate(contents)
    ]


def members(origins: Sequence[Record], **fields: object) -> list[tuple[Record, Record]]:
    told = {"group": "group-1", "group_size": len(origins), **fields}
    return [(snapshot_of(one, f"snap-of-{one.name}", **told), one) for one in origins]


@contextmanager
def all_mounted(pool: ImagePool, origins: Sequence[Record]) -> Iterator[list[Path]]:
    with ExitStack() as mounts:
        yield [mounts.enter_context(mounted(pool.node(one))) for one in origins]


def still_writable(places: Sequence[Path]) -> None:
    """No filesystem is frozen: what writes to it gets on."""
    done = threading.Event()

    def write() -> None:
        for where in places:
            (where / "still").write_text("writable")
            fd = os.open(where / "still", os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        done.set()

    threading.Thread(target=write, daemon=True).start()
    assert done.wait(60), "it is frozen"


def nothing_left(store: PoolStore, pool: ImagePool, origins: Sequence[Record]) -> None:
    assert store.look().records == {one.name: one for one in origins}
    assert {path.name for path in pool.images.iterdir()} == {f"{one.name}.img" for one in origins}


def test_what_is_written_to_several_volumes_in_turn_is_in_the_snapshots_in_that_turn(
    pool: ImagePool,
) -> None:
    with store_of(pool) as store:
        origins = volumes(store, pool, "ext4", "xfs", "ext4")
        with (
            all_mounted(pool, origins) as places,
            Writer([where / "log" for where in places]) as writer,
        ):
            for turn in range(6):
                least = writer.turn - 1
                asked = [
                    (replace(record, name=f"{record.name}-{turn}", group=f"group-{turn}"), one)
                    for record, one in members(origins)
                ]
                cut = [store.offered(one) for one in store.cut_together(asked)]
                assert len({one.cut_at for one in cut}) == 1
                most, found = writer.turn, []
                for number, one in enumerate(cut):
                    copy = copy_of(one, f"copy-{turn}-{number}")
                    restored = store.offered(store.copy(copy, one))
                    with mounted(pool.node(restored)) as where:
                        found.append(last_of(where / "log"))
                assert found[0] in (found[-1], found[-1] + 1)
                assert found == sorted(found, reverse=True)
                assert least <= found[-1]
                assert found[0] <= most


def test_volumes_that_nobody_uses_and_read_only_ones_are_cut_with_the_others(
    pool: ImagePool,
) -> None:
    with store_of(pool) as store:
        origins = volumes(store, pool, "raw", "ext4", "xfs", "xfs")
        data = written(pool, origins[0], 1)
        for one in origins[1:]:
            with mounted(pool.node(one)) as where:
                (where / "file").write_text("tenant data")
        with (
            all_mounted(pool, origins[1:3]) as places,
            mounted(pool.node(origins[3]), options="ro"),
        ):
            cut = [store.offered(one) for one in store.cut_together(members(origins))]
            still_writable(places)
        assert not list(pool.images.glob("*.making"))
        assert pool.image(cut[0]).read_bytes()[:MIB] == data
        for number, one in enumerate(cut[1:]):
            restored = copied(pool, f"copy-{number}", one)
            with mounted(pool.node(restored)) as where:
                assert (where / "file").read_text() == "tenant data"


def test_raw_blocks_in_use_are_not_cut_with_others_and_nothing_is_left(pool: ImagePool) -> None:
    with store_of(pool) as store:
        origins = volumes(store, pool, "ext4", "raw")
        with (
            mounted(pool.node(origins[0])) as where,
            open(pool.node(origins[1]), "r+b") as plain,
        ):
            holder = os.open(pool.node(origins[1]), os.O_RDWR | os.O_EXCL)
            try:
                with pytest.raises(Busy, match="block device that is in use"):
                    store.cut_together(members(origins))
            finally:
                os.close(holder)
            nothing_left(store, pool, origins)
            still_writable([where])
            plain.write(b"still")
        store.cut_together(members(origins))


def test_blocks_that_a_pod_has_are_not_cut_with_others_whoever_claims_them(
    pool: ImagePool,
) -> None:
    """Programs in pods open a device plainly: nobody else learns of that."""
    with store_of(pool) as store:
        origins = volumes(store, pool, "ext4", "raw")
        target = pool.root / "published"
        target.touch()
        mount(os.path.realpath(pool.node(origins[1])), str(target), flags=MS_BIND)
        try:
            with (
                mounted(pool.node(origins[0])),
                pytest.raises(Busy, match="block device that is in use"),
            ):
                store.cut_together(members(origins))
            nothing_left(store, pool, origins)
        finally:
            umount(str(target))
        store.cut_together(members(origins))


def test_what_somebody_else_froze_stays_frozen_and_the_others_do_not(pool: ImagePool) -> None:
    with store_of(pool) as store:
        origins = volumes(store, pool, "ext4", "xfs")
        with all_mounted(pool, origins) as places:
            fd = os.open(places[1], os.O_RDONLY)
            fcntl.ioctl(fd, FREEZE, 0)
            try:
                with pytest.raises(Busy, match="frozen already, by somebody else"):
                    store.cut_together(members(origins))
                still_writable(places[:1])
                with pytest.raises(OSError, match="busy"):
                    fcntl.ioctl(fd, FREEZE, 0)
            finally:
                fcntl.ioctl(fd, THAW, 0)
                os.close(fd)
            nothing_left(store, pool, origins)
            assert len(store.cut_together(members(origins))) == 2


def test_one_that_holds_more_than_room_was_found_for_takes_the_others_along(
    pool: ImagePool,
) -> None:
    with store_of(pool) as store:
        origins = volumes(store, pool, "ext4", "ext4")
        asked = members(origins)
        asked[1] = replace(asked[1][0], holds_bytes=4096), asked[1][1]
        with all_mounted(pool, origins) as places:
            (places[1] / "large").write_bytes(os.urandom(8 * MIB))
            with pytest.raises(NoSpace, match="was written to meanwhile"):
                store.cut_together(asked)
            still_writable(places)
        nothing_left(store, pool, origins)


def test_a_volume_that_is_gone_or_has_grown_is_not_cut_with_others(pool: ImagePool) -> None:
    with store_of(pool) as store:
        origins = volumes(store, pool, "ext4", "ext4")
        asked = members(origins)
        origins[0] = store.offered(origins[0], given="another", generation=1)
        with pytest.raises(BackendFailed, match="was given to another claim meanwhile"):
            store.cut_together(asked)
        asked = members(origins)
        store.grow(origins[1], 48 * MIB)
        with pytest.raises(BackendFailed, match="has grown meanwhile"):
            store.cut_together(asked)
        store.purge(store.retire(origins[1]), stop=threading.Event())
        with pytest.raises(BackendFailed, match="has no record"):
            store.cut_together(asked)
        nothing_left(store, pool, origins[:1])


def test_what_is_left_of_an_attempt_is_never_completed(pool: ImagePool) -> None:
    with store_of(pool) as store:
        origins = volumes(store, pool, "ext4", "ext4")
        asked = members(origins)
        first = store.cut_together(asked)[0]
        store.take_away(first)
        with pytest.raises(BackendFailed, match="not completed"):
            store.cut_together(asked)


@pytest.mark.parametrize("in_use", [True, False])
def test_an_agent_killed_at_any_step_leaves_nothing_frozen_and_no_part_that_stays(
    in_use: bool,
) -> None:
    # No thread may be there when the test forks.
    with (
        filesystem("xfs", size=3 * GIB) as where,
        image_pool(where, run_here) as pool,
        ExitStack() as stack,
    ):
        with store_of(pool) as store:
            origins = volumes(store, pool, "ext4", "xfs")
        asked = members(origins)
        places = stack.enter_context(all_mounted(pool, origins)) if in_use else []

        def cut(backend: ImageBackend) -> None:
            with store_of(pool, backend) as theirs:
                theirs.cut_together(asked)

        wholes = 0
        for step in range(0, 1000, 3):
            was_killed = killed_at(step, cut, pool.links)
            for place in places:
                until(lambda place=place: can_freeze(place), bool)  # type: ignore[misc]
            with store_of(pool) as store:
                found = [
                    one
                    for one in store.look().records.values()
                    if one.group and one.state == "made"
                ]
                # The last record that is made completes it, and says so of what is there.
                wholes += len(found) == 2
                for one in found if len(found) == 2 else []:
                    assert pool.image(one).stat().st_ino == one.inode
                for one in list(store.look().records.values()):
                    if one.group:
                        store.take_away(one)
                nothing_left(store, pool, origins)
            if not was_killed:
                break
        assert step > 20, "it was hardly watched"
        assert wholes


def can_freeze(where: Path) -> bool:
    """Nobody has it frozen any more."""
    fd = os.open(where, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FREEZE, 0)
        fcntl.ioctl(fd, THAW, 0)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.needs("btrfs")
def test_other_backends_cut_no_volumes_together() -> None:
    from localvolume.backends.btrfs.backend import BtrfsBackend
    from localvolume.backends.directory.backend import DirectoryBackend

    for backend, why in (
        (BtrfsBackend(), "btrfs cuts each subvolume at a moment of its own"),
        (DirectoryBackend(), "its backend cuts no volumes together"),
    ):
        with pytest.raises(Impossible, match=f"{why}.* need a pool of images on xfs, or a thin"):
            backend.cut_together(-1, "", [])
