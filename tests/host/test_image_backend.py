"""The image backend: volumes of the promised size, attached, measured, removed."""

import contextlib
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.fstools import may_resize_mounted
from localvolume.backends.image.measuring import maps_of
from localvolume.backends.model import BackendFailed, Impossible, NoSpace, NotThisVolume, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.host.filesystem import extsuper
from localvolume.host.loop import attach
from localvolume.host.process.commandsync import Run
from tests.suite import speed
from tests.suite.units import MIB
from tests.suite.until import until

from .support_devices import filesystem, flush, formatted
from .support_images import POOL_ID, ImagePool, command, fill, image_pool, mounted, running
from .support_pools import config_of

pytestmark = pytest.mark.needs("root", "loop", "ext4")

xfs = pytest.mark.needs("xfs")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture
def pool(tmp_path: Path, run: Run) -> Iterator[ImagePool]:
    with image_pool(tmp_path, run) as pool:
        yield pool


@pytest.mark.parametrize("mib", [1, 7.3, 16, 100, 128, 135, 511, 700])
def test_an_ext4_has_the_promised_room_and_one_percent_more_at_most(
    pool: ImagePool, mib: float
) -> None:
    record = pool.make(mib=mib)
    with mounted(pool.node(record)) as where:
        found = os.statvfs(where)
        room, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        assert record.size_bytes <= room <= max(record.size_bytes * 1.01, record.size_bytes + 16384)
        # The kernel keeps 2 % of all (16 MiB at most) to itself, which df shows as used.
        kept = min(pool.image(record).stat().st_size // 50, 16 * MIB)
        assert total <= room + kept + 32768
        assert record.size_bytes <= fill(where) <= room
        assert os.statvfs(where).f_bavail <= 2


@pytest.mark.parametrize("gib", [2, 20, 300])
def test_df_of_a_large_ext4_shows_the_promised_size(pool: ImagePool, gib: int) -> None:
    record = pool.make(mib=gib * 1024)
    with mounted(pool.node(record)) as where:
        found = os.statvfs(where)
    assert record.size_bytes <= found.f_bavail * found.f_frsize <= record.size_bytes * 1.01
    assert record.size_bytes <= found.f_blocks * found.f_frsize <= record.size_bytes * 1.013


@xfs
@pytest.mark.parametrize("mib", [300, 1000, 20480])
def test_an_xfs_has_the_promised_room_and_one_percent_more_at_most(
    pool: ImagePool, mib: int
) -> None:
    record = pool.make(mib=mib, fs_type="xfs", mode=0o2770, uid=100000, gid=200000)
    with mounted(pool.node(record)) as where:
        found = os.statvfs(where)
        room = found.f_bavail * found.f_frsize
        assert record.size_bytes <= room <= record.size_bytes * 1.01
        assert found.f_blocks * found.f_frsize <= record.size_bytes * 1.08
        seen = where.stat()
        assert (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid) == (0o2770, 100000, 200000)
        if mib == 300:
            assert record.size_bytes <= fill(where) <= record.size_bytes * 1.01


def test_an_ext4_is_made_in_a_moment(pool: ImagePool) -> None:
    began = time.monotonic()
    pool.make(mib=1024)
    assert time.monotonic() - began < 20 * speed.factor()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o2770, 0o700, 0])
def test_the_root_directory_of_an_ext_has_its_owner_and_mode(pool: ImagePool, mode: int) -> None:
    record = pool.make(mode=mode, uid=100000, gid=4294967294)
    assert pool.backend.is_untouched(pool.fd, pool.path, record)
    with mounted(pool.node(record)) as where:
        seen = where.stat()
        assert (stat.S_IMODE(seen.st_mode), seen.st_uid) == (mode, 100000)
        assert seen.st_gid == 4294967294
    assert subprocess.run(["e2fsck", "-fn", pool.node(record)], capture_output=True).returncode == 0


def test_sizes_read_from_the_superblock_are_those_of_the_kernel(pool: ImagePool) -> None:
    for name, mib in (("pvc-1", 20), ("pvc-2", 600), ("pvc-3", 9000)):
        record = pool.make(name, mib)
        with pool.image(record).open("rb") as image:
            read = extsuper.read_super(image.fileno())
        assert read is not None
        with mounted(pool.node(record)) as where:
            found = os.statvfs(where)
        assert read.available == found.f_bavail
        assert read.blocks - read.overhead(read.blocks) == found.f_blocks


def test_an_image_is_sparse_or_preallocated(pool: ImagePool) -> None:
    sparse = pool.image(pool.make("pvc-1", 64)).stat()
    full = pool.image(pool.make("pvc-2", 64, sparse=False)).stat()
    assert sparse.st_blocks * 512 < 4 * MIB
    assert full.st_blocks * 512 >= full.st_size >= 64 * MIB
    assert stat.S_IMODE(full.st_mode) == 0o600


@pytest.mark.parametrize("size", [1, 4096, 10**9, 10**9 + 1, 3 * MIB])
def test_a_raw_volume_has_exactly_its_size(pool: ImagePool, size: int) -> None:
    record = replace(pool.record(volume_mode="Block"), size_bytes=size)
    record = replace(pool.backend.make(pool.fd, pool.path, record), state="made")
    device = pool.loop(record).device
    sectors = int(Path(f"/sys/dev/block/{device}/size").read_text())
    assert size <= sectors * 512 < size + 4096
    assert Path(f"/sys/dev/block/{device}/queue/logical_block_size").read_text().strip() == "512"


def test_direct_io_is_used_where_the_filesystem_has_it(pool: ImagePool) -> None:
    file = pool.root / "try"
    file.write_bytes(bytes(4096))
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        pytest.skip("the filesystem of the temporary directory has no direct I/O")
    loop = pool.loop(pool.make())
    assert loop.direct
    assert loop.ours


def test_a_full_pool_is_no_room_and_nothing_remains(tmp_path: Path, run: Run) -> None:
    with formatted("ext4") as device, mounted(device) as where, image_pool(where, run) as pool:
        with pytest.raises(NoSpace):
            pool.make(mib=100, sparse=False)
        with pytest.raises(NoSpace):
            pool.make(mib=100, sparse=False, volume_mode="Block")
        assert not list(pool.images.iterdir())
        free = os.statvfs(where).f_bfree
        made = pool.make("pvc-2", mib=10, sparse=False)
        with pytest.raises(NoSpace):
            pool.grow(made, 100)
        assert pool.image(made).stat().st_size < 20 * MIB
        command("dd", "if=/dev/urandom", f"of={where}/fill", "bs=1M", "count=27")
        filler = os.open(where / "fill2", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(filler, bytes(4096))
        os.close(filler)
        with pytest.raises(NoSpace):
            pool.make("pvc-3", mib=10)
        assert [path.name for path in pool.images.iterdir()] == ["pvc-2.img"]
        assert free
        pool.retire(made)


def test_what_cannot_be_made_is_impossible_with_the_reason(pool: ImagePool) -> None:
    with pytest.raises(Impossible, match="ext4"):
        pool.make(mib=299, fs_type="xfs")
    with pytest.raises(Impossible, match="btrfs"):
        pool.make(fs_type="btrfs")
    assert not list(pool.images.iterdir())
    abilities = pool.backend.abilities(pool.fd, pool.path)
    assert abilities.enforce
    assert abilities.block
    assert not abilities.why_not


def test_commands_that_fail_or_lack_say_so(
    pool: ImagePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BackendFailed, match=r"mkfs\.ext4"):
        pool.make()
    assert not pool.backend.abilities(pool.fd, pool.path).filesystem
    assert not list(pool.images.iterdir())


def test_the_path_is_a_link_to_the_device_and_attaching_again_changes_nothing(
    pool: ImagePool,
) -> None:
    record = pool.make()
    node = pool.node(record)
    for _ in range(3):
        pool.attach(record)
    assert pool.node(record) == node
    assert len(pool.loops()) == 1
    path = pool.backend.host_path("/mnt/pool", POOL_ID, record)
    assert path == f"/run/localvolume/{POOL_ID}/pvc-1"
    assert [entry.name for entry in pool.link(record).parent.iterdir()] == ["pvc-1"]


def test_volumes_come_back_after_a_reboot_with_their_data(pool: ImagePool) -> None:
    first, raw = pool.make("pvc-1"), pool.make("pvc-2", volume_mode="Block")
    with mounted(pool.node(first)) as where:
        (where / "file").write_text("tenant data")
    with open(pool.node(raw), "r+b", buffering=0) as device:
        device.write(b"raw data")
        os.fsync(device.fileno())  # a reboot keeps no less and no more
    pool.reboot()
    assert not pool.links.exists()
    # Others come first and take the numbers that these two had.
    other = pool.make("pvc-0")
    for record in (raw, first):
        pool.attach(record)
    assert len({pool.node(record) for record in (first, raw, other)}) == 3
    with mounted(pool.node(first)) as where:
        assert (where / "file").read_text() == "tenant data"
    with open(pool.node(raw), "rb") as device:
        assert device.read(8) == b"raw data"


def test_a_link_that_leads_elsewhere_is_led_right(pool: ImagePool) -> None:
    first, second = pool.make("pvc-1"), pool.make("pvc-2")
    node = pool.node(first)
    pool.link(first).unlink()
    pool.link(first).symlink_to(pool.node(second))
    pool.attach(first)
    assert pool.node(first) == node
    assert len(pool.loops()) == 2


def test_which_links_lead_astray(pool: ImagePool) -> None:
    def astray() -> list[str]:
        return pool.backend.astray(pool.fd, pool.path, records)

    records = [pool.make("pvc-1"), pool.make("pvc-2"), pool.record("pvc-3")]
    first, second, _ = records
    node = pool.node(first)
    assert astray() == []
    pool.link(first).unlink()
    assert astray() == []  # It leads nowhere: whoever looks for the volume finds none.
    pool.link(first).symlink_to(pool.node(second))
    assert astray() == ["pvc-1"]
    assert pool.node(first) == pool.node(second)
    pool.link(first).unlink()
    pool.link(first).symlink_to(node)
    assert astray() == []
    attach.detach(pool.loop(first))
    assert astray() == ["pvc-1"]


def test_a_link_that_cannot_be_led_right_leads_nowhere(pool: ImagePool) -> None:
    first, second = pool.make("pvc-1"), pool.make("pvc-2")
    attach.detach(pool.loop(first))
    pool.link(first).unlink()
    pool.link(first).symlink_to(pool.node(second))
    # Somebody looks into the image.
    other = command("losetup", "--read-only", "--find", "--show", pool.image(first)).strip()
    with pytest.raises(BackendFailed, match="in another way"):
        pool.attach(first)
    assert not pool.link(first).is_symlink()
    command("losetup", "--detach", other)

    def attached() -> bool:
        with contextlib.suppress(BackendFailed):
            pool.attach(first)
        return pool.link(first).is_symlink()

    until(attached)
    assert pool.loop(first).ours


def test_no_old_link_leads_to_a_device_that_another_volume_gets(pool: ImagePool) -> None:
    # Other processes take loop devices too, and may be first: as often as need be.
    for number in range(30):
        first = pool.make(f"pvc-{number}", 2, volume_mode="Block")
        node = pool.node(first)
        attach.detach(pool.loop(first))  # as somebody's `losetup -d`
        other = pool.make(f"other-{number}", 2, volume_mode="Block")
        if pool.node(other) == node:
            break
    else:
        pytest.fail("others took each of the loop devices first")
    assert not pool.link(first).is_symlink()


def test_another_file_in_its_place_is_never_attached_grown_or_removed(pool: ImagePool) -> None:
    record = pool.make()
    pool.reboot()
    pool.image(record).rename(pool.images / "kept")
    pool.image(record).write_bytes(bytes(MIB))
    calls = (
        lambda: pool.attach(record),
        lambda: pool.grow(record, 64),
        lambda: pool.retire(record),
        lambda: pool.backend.unmake(pool.fd, pool.path, record),
    )
    for call in calls:
        with pytest.raises(NotThisVolume):
            call()
    pool.image(record).unlink()
    pool.image(record).symlink_to(pool.images / "kept")
    for call in calls:
        with pytest.raises((NotThisVolume, BackendFailed)):
            call()
    assert (pool.images / "kept").exists()
    assert not pool.loops()
    assert not pool.backend.usage(pool.fd, pool.path, [record])
    assert not pool.backend.is_untouched(pool.fd, pool.path, record)


def test_an_image_that_no_record_explains_is_not_made_anew(pool: ImagePool) -> None:
    (pool.images / "pvc-1.img").write_bytes(b"somebody's")
    with pytest.raises(NotThisVolume):
        pool.make()
    with pytest.raises(NotThisVolume):
        pool.backend.unmake(pool.fd, pool.path, pool.record())
    assert (pool.images / "pvc-1.img").read_bytes() == b"somebody's"


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".hidden", ""])
def test_names_that_lead_elsewhere_are_refused(pool: ImagePool, name: str) -> None:
    record = pool.record(name)
    with pytest.raises(NotThisVolume):
        pool.backend.make(pool.fd, pool.path, record)
    with pytest.raises(NotThisVolume):
        pool.backend.host_path("/pool", POOL_ID, record)
    with pytest.raises(NotThisVolume):
        pool.backend.retire(pool.fd, pool.path, replace(pool.record(), trash=name))


def test_what_is_in_use_is_not_retired_and_stays_attached(pool: ImagePool) -> None:
    record = pool.make()
    with mounted(pool.node(record)), pytest.raises(BackendFailed, match="mounted at"):
        pool.retire(record)
    # Claimed by somebody whose mounts we do not see.
    claimed = os.open(pool.node(record), os.O_RDONLY | os.O_EXCL)
    with pytest.raises(BackendFailed, match="in use"):
        pool.retire(record)
    os.close(claimed)
    # A pod has a raw device open like this.
    held = os.open(pool.node(record), os.O_RDWR)
    with pytest.raises(BackendFailed, match="in use"):
        pool.retire(record)
    os.close(held)
    assert pool.loop(record).ours  # it would go at its last close, else
    assert pool.image(record).exists()
    # The kubelet attaches a loop device to that of a raw volume.
    over = command("losetup", "--find", "--show", pool.node(record)).strip()
    with pytest.raises(BackendFailed, match="loop device"):
        pool.retire(record)
    command("losetup", "--detach", over)

    def retired() -> bool:
        with contextlib.suppress(BackendFailed):
            pool.retire(record)
        return not pool.loops()

    until(retired)


def test_a_removed_volume_goes_for_good(pool: ImagePool) -> None:
    record = pool.make()
    with mounted(pool.node(record)) as where:
        (where / "file").write_text("tenant data")
    gone = pool.retire(record)
    assert not pool.loops()
    assert not pool.link(record).is_symlink()
    assert [path.name for path in pool.trash.iterdir()] == [gone.trash]
    pool.retire(record)  # as after a crash
    told: list[tuple[int, int]] = []
    pool.purge(gone, progress=lambda files, count: told.append((files, count)))
    pool.purge(gone)
    assert told[-1][0] == 1
    assert not list(pool.trash.iterdir())
    assert not list(pool.images.iterdir())


def test_the_trash_is_not_mistaken_either(pool: ImagePool) -> None:
    gone = pool.retire(pool.make())
    (pool.trash / gone.trash).rename(pool.trash / "kept")
    (pool.trash / gone.trash).write_bytes(b"somebody's")
    with pytest.raises(NotThisVolume):
        pool.purge(gone)
    assert (pool.trash / gone.trash).read_bytes() == b"somebody's"


def test_content_is_overwritten_where_the_class_demands_it(pool: ImagePool) -> None:
    record = pool.make(mib=40, volume_mode="Block", overwrite=True)
    with open(pool.node(record), "r+b", buffering=0) as device:
        for at in (0, 7 * MIB, 33 * MIB):
            device.seek(at)
            device.write(b"secret!!" * 1024)
        os.fsync(device.fileno())
    gone = pool.retire(record)
    # A second name shows what the purged file held.
    os.link(pool.trash / gone.trash, pool.root / "left")
    stop = threading.Event()
    stop.set()
    with pytest.raises(BackendFailed):
        pool.purge(gone, stop=stop)
    assert (pool.trash / gone.trash).exists()
    pool.purge(gone)
    left = pool.root / "left"
    assert not left.read_bytes().strip(b"\0")
    assert left.stat().st_blocks * 512 < 8 * MIB
    left.unlink()


@pytest.mark.parametrize("sparse", [True, False])
def test_a_raw_volume_shows_nothing_of_the_one_before(
    tmp_path: Path, run: Run, sparse: bool
) -> None:
    # On a disk as small as one volume, so that the second gets the blocks of the first.
    with (
        formatted("ext4", size=96 * MIB) as device,
        mounted(device) as where,
        image_pool(where, run) as pool,
    ):
        first = pool.make("pvc-1", 60, volume_mode="Block", sparse=sparse)
        with open(pool.node(first), "wb") as raw:
            raw.write(b"\xaa" * 60 * MIB)
        pool.purge(pool.retire(first))
        flush(where)
        second = pool.make("pvc-2", 60, volume_mode="Block", sparse=sparse)
        with open(pool.node(second), "rb") as raw:
            assert not raw.read().strip(b"\0")


@pytest.mark.parametrize("sparse", [True, False])
def test_untouched_is_said_only_of_what_nobody_wrote_to(pool: ImagePool, sparse: bool) -> None:
    def untouched(record: object) -> bool:
        return pool.backend.is_untouched(pool.fd, pool.path, record)  # type: ignore[arg-type]

    raw = pool.make("pvc-1", volume_mode="Block", sparse=sparse)
    assert untouched(raw)
    # Still in the memory of the device, not yet in the file.
    with open(pool.node(raw), "r+b", buffering=0) as device:
        device.seek(5 * MIB)
        device.write(bytes(4096))
        assert not untouched(raw)
    made = pool.make("pvc-2", sparse=sparse)
    assert untouched(made)
    grown = pool.grow(made, 64)
    # The kernel grows it in a mount of its own, which counts as one.
    assert untouched(grown) != may_resize_mounted()
    with mounted(pool.node(made)):
        assert not untouched(made)
    assert not untouched(made)
    subprocess.run(["e2fsck", "-fp", pool.node(made)], capture_output=True, check=True)
    assert not untouched(made)


@xfs
def test_what_an_xfs_holds_nobody_can_prove(pool: ImagePool) -> None:
    record = pool.make(mib=300, fs_type="xfs")
    assert not pool.backend.is_untouched(pool.fd, pool.path, record)
    unmounted = pool.backend.usage(pool.fd, pool.path, [record])["pvc-1"]
    assert (unmounted.used_bytes, unmounted.available_bytes) == (None, None)
    with mounted(pool.node(record)):
        found = pool.backend.usage(pool.fd, pool.path, [record])["pvc-1"]
        assert found.available_bytes is not None
        assert found.available_bytes >= record.size_bytes


def test_usage_is_what_the_filesystem_says(pool: ImagePool) -> None:
    made, raw = pool.make("pvc-1", 64), pool.make("pvc-2", 64, volume_mode="Block")
    lost = replace(made, name="pvc-3")

    def usage() -> dict[str, tuple[int | None, int | None, int | None]]:
        found = pool.backend.usage(pool.fd, pool.path, [made, raw, lost])
        return {
            name: (one.used_bytes, one.available_bytes, one.available_inodes)
            for name, one in found.items()
        }

    before = usage()
    assert set(before) == {"pvc-1", "pvc-2"}
    with mounted(pool.node(made)) as where:
        (where / "file").write_bytes(os.urandom(10 * MIB))
        flush(where)
        seen = os.statvfs(where)
        during = usage()
        assert during["pvc-1"] == (
            (seen.f_blocks - seen.f_bfree) * 4096,
            seen.f_bavail * 4096,
            seen.f_ffree,
        )
    after = usage()
    # Unmounted, it is read from the superblock: the same.
    assert after["pvc-1"] == during["pvc-1"]
    used = before["pvc-1"][0]
    assert used is not None
    assert after["pvc-1"][0] == used + 10 * MIB
    with open(pool.node(raw), "r+b") as device:
        device.write(bytes(range(256)) * 4096 * 8)
        device.flush()
        os.fsync(device.fileno())
    assert usage()["pvc-2"] == (8 * MIB, None, None)
    pool.retire(made)
    assert "pvc-1" not in usage()


def _takes(pool: ImagePool, record: Record) -> tuple[int, int]:
    found = pool.backend.usage(pool.fd, pool.path, [record])[record.name]
    assert found.taken_bytes is not None
    assert found.outstanding_bytes is not None
    return found.taken_bytes, found.outstanding_bytes


@pytest.mark.parametrize("sparse", [True, False])
def test_what_an_image_may_still_take_is_what_its_file_has_no_blocks_for(
    pool: ImagePool, sparse: bool
) -> None:
    record = pool.make(mib=64, sparse=sparse)
    size = pool.image(record).stat().st_size
    maps = maps_of(size)
    taken, outstanding = _takes(pool, record)
    # Of one that has all its blocks only the maps are left, as far as it has none yet.
    assert taken + outstanding == size + maps
    assert sparse or (taken >= size and outstanding <= maps)
    with mounted(pool.node(record)) as where:
        # What its tenant reserves takes nothing of a sparse image's pool.
        fd = os.open(where / "reserved", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, 40 * MIB)
        os.fsync(fd)
        os.close(fd)
        command("sync", "--file-system", where)
        now = _takes(pool, record)
        assert (now[1] > size - 24 * MIB) if sparse else (now[1] <= maps)
        os.unlink(where / "reserved")
        (where / "written").write_bytes(os.urandom(20 * MIB))
        command("sync", "--file-system", where)
        full = _takes(pool, record)
        assert full[0] >= (20 * MIB if sparse else size)
        # And what is discarded goes back to it, wherever it came from.
        os.unlink(where / "written")
        command("sync", "--file-system", where)
        command("fstrim", where)
        trimmed = _takes(pool, record)
        assert trimmed[0] < 16 * MIB
        assert trimmed[1] == size + maps - trimmed[0]
    gone = pool.retire(record)
    assert _takes(pool, gone)[1] == 0


def test_one_that_is_in_use_after_all_is_not_taken_away_and_stays_what_it_was(
    pool: ImagePool,
) -> None:
    """Of one that is being made, nobody asks whether it was written to."""
    config = config_of(pool.root, backend="image", enforce=True, must_be_mounted=False)
    pool.root.chmod(0o755)
    store = PoolStore(config, pool.backend)
    try:
        made = store.make(pool.record(sparse=True))
        with mounted(pool.node(made)):
            with pytest.raises(BackendFailed, match="in use"):
                store.take_away(made)
            assert store.look().records == {"pvc-1": made}
        store.take_away(made)
        assert store.look().records == {}
        assert not list(pool.images.iterdir())
    finally:
        store.close()


@pytest.mark.needs("btrfs")
def test_where_new_data_goes_elsewhere_no_class_gets_its_content_overwritten(
    tmp_path: Path, run: Run
) -> None:
    with filesystem("btrfs") as root, image_pool(root, run) as pool:
        assert not pool.backend.abilities(pool.fd, pool.path).overwrite
        with pytest.raises(Impossible, match="overwritten"):
            pool.make(mib=8, volume_mode="Block", overwrite=True)
        assert not list(pool.images.iterdir())
        assert not DirectoryBackend().abilities(pool.fd, pool.path).overwrite
    with image_pool(tmp_path, run) as pool:
        assert pool.backend.abilities(pool.fd, pool.path).overwrite
