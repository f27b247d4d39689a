"""Images grow with their loop device and filesystem, mounted or not, and never by half."""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.fstools import may_resize_mounted
from localvolume.backends.model import BackendFailed, Impossible, NoSpace, Record
from localvolume.host.process.commandsync import Run
from tests.suite.units import MIB

from .support_devices import formatted
from .support_images import ImagePool, fill, image_pool, mounted, running

pytestmark = pytest.mark.needs("root", "loop", "ext4")

LOOP_SET_CAPACITY = 0x4C07  # linux/loop.h

xfs = pytest.mark.needs("xfs")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture
def pool(tmp_path: Path, run: Run) -> Iterator[ImagePool]:
    with image_pool(tmp_path, run) as pool:
        yield pool


def room(where: Path) -> int:
    found = os.statvfs(where)
    return found.f_bavail * found.f_frsize


def never_tell_the_device(patch: pytest.MonkeyPatch) -> None:
    """As if killed right before it is told how large the file is now."""
    real = fcntl.ioctl

    def ioctl(fd: int, request: int, *given: Any) -> Any:
        if request == LOOP_SET_CAPACITY:
            raise OSError("killed between file and device")
        return real(fd, request, *given)

    patch.setattr(fcntl, "ioctl", ioctl)


@pytest.mark.parametrize(
    "sizes", [(32, 64, 120), (100, 1000), (120, 131), (600, 3000, 20000), (5000, 100_000)]
)
def test_an_ext4_that_is_not_mounted_grows_to_the_promised_room(
    pool: ImagePool, sizes: tuple[int, ...]
) -> None:
    record = pool.make(mib=sizes[0])
    with mounted(pool.node(record)) as where:
        (where / "file").write_bytes(b"tenant data")
    for mib in sizes[1:]:
        record = pool.grow(record, mib)
        assert record.size_bytes == mib * MIB
        with mounted(pool.node(record)) as where:
            assert (where / "file").read_bytes() == b"tenant data"
            # One block is the file's.
            assert record.size_bytes - 4096 <= room(where) <= record.size_bytes * 1.01
            if mib <= 1000:
                assert record.size_bytes - 4096 <= fill(where) <= record.size_bytes * 1.01
                (where / "full").unlink()
    checked = subprocess.run(["e2fsck", "-fn", pool.node(record)], capture_output=True)
    assert checked.returncode == 0, checked.stdout


def test_a_mounted_ext4_grows_where_the_kernel_lets_us_and_later_where_not(
    pool: ImagePool,
) -> None:
    record = pool.make(mib=64)
    with mounted(pool.node(record)) as where:
        if may_resize_mounted():
            record = pool.grow(record, 200)
            assert 200 * MIB <= room(where) <= 202 * MIB
        else:
            for _ in range(3):
                with pytest.raises(BackendFailed, match="CAP_SYS_RESOURCE"):
                    pool.grow(record, 200)
            assert 64 * MIB <= room(where) <= 65 * MIB
            size = pool.image(record).stat().st_size
    if record.size_bytes != 200 * MIB:
        record = pool.grow(record, 200)
        # Continued, not added to.
        assert pool.image(record).stat().st_size == size
    with mounted(pool.node(record)) as where:
        assert 200 * MIB <= room(where) <= 202 * MIB


@xfs
@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("sizes", [(300, 400, 1000), (2048, 30000)])
def test_an_xfs_grows_mounted_and_unmounted(
    pool: ImagePool, online: bool, sizes: tuple[int, ...]
) -> None:
    record = pool.make(mib=sizes[0], fs_type="xfs")
    for mib in sizes[1:]:
        with contextlib.ExitStack() as stack:
            if online:
                stack.enter_context(mounted(pool.node(record)))
            record = pool.grow(record, mib)
        with mounted(pool.node(record)) as where:
            assert record.size_bytes <= room(where) <= record.size_bytes * 1.01
            if mib <= 400:
                assert record.size_bytes <= fill(where) <= record.size_bytes * 1.01
                (where / "full").unlink()
    size = pool.image(record).stat().st_size
    # Asked for again, as after a crash before it was written down.
    pool.grow(replace(record, size_bytes=sizes[0] * MIB), sizes[-1])
    assert pool.image(record).stat().st_size == size
    checked = subprocess.run(["xfs_repair", "-n", pool.node(record)], capture_output=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("sparse", [True, False])
def test_a_raw_volume_grows_while_it_is_open(pool: ImagePool, sparse: bool) -> None:
    record = pool.make(mib=8, volume_mode="Block", sparse=sparse)
    fd = os.open(pool.node(record), os.O_RDWR)
    try:
        os.pwrite(fd, b"tenant data", 0)
        record = pool.grow(record, 20)
        assert os.lseek(fd, 0, os.SEEK_END) == 20 * MIB
        os.pwrite(fd, b"more", 20 * MIB - 4)
        assert os.pread(fd, 11, 0) == b"tenant data"
    finally:
        os.close(fd)
    allocated = pool.image(record).stat().st_blocks * 512
    assert allocated < MIB if sparse else allocated >= 20 * MIB


def begun(pool: ImagePool, record: Record) -> float:
    """The MiB that a growth has taken already, as the pool tells of a volume with that record."""
    usage = pool.backend.usage(pool.fd, pool.path, [record]).get(record.name)
    return usage.begun_bytes / MIB if usage else 0


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    ("mib", "fields"),
    [
        (32, {"volume_mode": "Block"}),
        (32, {}),
        (1000, {}),
        pytest.param(320, {"fs_type": "xfs"}, marks=xfs),
    ],
)
def test_what_a_growth_that_ended_early_has_had_is_told(
    pool: ImagePool,
    mib: int,
    fields: dict[str, str],
    sparse: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is missing from the pool's room, allocated or kept for what may be written: the next
    attempt would not find it there again."""
    record, more = pool.make(mib=mib, sparse=sparse, **fields), 100

    def told(small: bool) -> None:
        found = begun(pool, record)
        if small:
            assert found == 0
        else:
            assert more <= found <= more * 1.05

    told(small=True)
    with monkeypatch.context() as patch:
        never_tell_the_device(patch)
        with pytest.raises(OSError, match="killed"):
            pool.grow(record, mib + more)
    told(small=False)
    # Grown, and killed before it is written down; mounted or not.
    grown = pool.grow(record, mib + more)
    told(small=False)
    if not fields.get("volume_mode"):
        with mounted(pool.node(record)):
            told(small=False)
            assert begun(pool, grown) == 0
    assert begun(pool, grown) == 0
    assert begun(pool, pool.retire(record)) == 0


def test_nothing_shrinks(pool: ImagePool) -> None:
    record = pool.make(mib=8)
    with pytest.raises(Impossible):
        pool.grow(record, 7)
    assert pool.grow(record, 8) == record


@pytest.mark.parametrize("fields", [{}, {"volume_mode": "Block"}])
def test_no_room_leaves_the_volume_as_it_was(run: Run, fields: dict[str, str]) -> None:
    with (
        formatted("ext4", size=128 * MIB) as device,
        mounted(device) as on,
        image_pool(on, run) as pool,
    ):
        record = pool.make(mib=30, sparse=False, **fields)
        before = pool.image(record).stat()
        free = os.statvfs(on).f_bfree
        with pytest.raises(NoSpace):
            pool.grow(record, 300)
        after = pool.image(record).stat()
        assert after.st_size == before.st_size
        # But for a block of the map of its extents.
        assert after.st_blocks <= before.st_blocks + 16
        assert os.statvfs(on).f_bfree >= free - 8
        record = pool.grow(record, 40)
        assert pool.image(record).stat().st_blocks * 512 >= 40 * MIB


def test_what_is_claimed_where_we_do_not_see_it_does_not_grow(pool: ImagePool) -> None:
    record = pool.make(mib=32)
    claimed = os.open(pool.node(record), os.O_RDONLY | os.O_EXCL)
    try:
        with pytest.raises(BackendFailed, match="in use"):
            pool.grow(record, 64)
    finally:
        os.close(claimed)
    assert pool.image(record).stat().st_size < 64 * MIB


def test_a_size_that_the_device_has_not_yet_is_given_to_it(
    pool: ImagePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = pool.make(mib=8, volume_mode="Block")

    with monkeypatch.context() as patch:
        never_tell_the_device(patch)
        with pytest.raises(OSError, match="killed"):
            pool.grow(record, 16)
    pool.grow(record, 16)
    with open(pool.node(record), "rb") as device:
        assert device.seek(0, os.SEEK_END) == 16 * MIB
