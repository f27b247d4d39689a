"""kill -9 at every step of what is done with an image: the next attempt ends it."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.fstools import may_resize_mounted
from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.model import BackendFailed, NotThisVolume, Record
from tests.suite.units import MIB
from tests.suite.until import until

from .support_images import ImagePool, image_pool, killed_at, mounted, run_here

pytestmark = pytest.mark.needs("root", "loop", "ext4")

xfs = pytest.mark.needs("xfs")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ImagePool]:
    # No thread may be there when the test forks.
    with image_pool(tmp_path, run_here) as pool:
        yield pool


def at_every_step(pool: ImagePool, executor: Callable[[ImageBackend], object]) -> Iterator[int]:
    """Yield after each death; the caller mends and checks."""
    for step in range(1000):
        if not killed_at(step, executor, pool.links):
            assert step > 3, "it was hardly watched"
            return
        yield step
    raise AssertionError("it never ends")


def nothing_is_left(pool: ImagePool) -> None:
    assert not list(pool.images.iterdir())
    assert not pool.loops()
    assert not [path for path in pool.links.glob("*/*") if not path.name.startswith(".")]


@pytest.mark.parametrize(
    "fields",
    [
        {"sparse": False},
        {"volume_mode": "Block"},
        pytest.param({"fs_type": "xfs", "mib": 300}, marks=xfs),
    ],
)
def test_making(pool: ImagePool, fields: dict[str, object]) -> None:
    record = pool.record(**{"mib": 16, **fields})  # type: ignore[arg-type]
    again = 0
    for step in at_every_step(pool, lambda backend: backend.make(pool.fd, pool.path, record)):
        if step % 2:
            made = pool.backend.make(pool.fd, pool.path, record)
            pool.attach(made)
            assert len(pool.loops()) == 1
            assert [path.name for path in pool.images.iterdir()] == ["pvc-1.img"]
            if record.fs_type != "xfs":
                assert pool.backend.is_untouched(pool.fd, pool.path, made)
            again += 1
        pool.backend.unmake(pool.fd, pool.path, record if not step % 2 else made)
        nothing_is_left(pool)
    assert again > 5
    pool.backend.unmake(pool.fd, pool.path, record)
    nothing_is_left(pool)


def test_unmaking(pool: ImagePool) -> None:
    made = [pool.make(mib=8, volume_mode="Block")]
    for _ in at_every_step(pool, lambda backend: backend.unmake(pool.fd, pool.path, made[-1])):
        pool.backend.unmake(pool.fd, pool.path, made[-1])
        nothing_is_left(pool)
        made.append(pool.make(mib=8, volume_mode="Block"))
    nothing_is_left(pool)


@pytest.fixture
def kept(pool: ImagePool) -> Record:
    """A volume that holds data."""
    record = pool.make(mib=16)
    with mounted(pool.node(record)) as where:
        (where / "file").write_text("tenant data")
    return replace(record, state="offered")


def is_kept(pool: ImagePool, record: Record) -> None:
    assert len(pool.loops()) == 1
    assert pool.loop(record).behind[1] == record.inode
    with mounted(pool.node(record)) as where:
        assert (where / "file").read_text() == "tenant data"


def test_attaching(pool: ImagePool, kept: Record) -> None:
    pool.reboot()
    for _ in at_every_step(pool, lambda backend: backend.attach(pool.fd, pool.path, kept)):
        pool.attach(kept)
        is_kept(pool, kept)
        pool.reboot()
    is_kept(pool, kept)


def test_retiring(pool: ImagePool, kept: Record) -> None:
    gone = replace(kept, state="removed", trash="pvc-1.12345678")
    for step in at_every_step(pool, lambda backend: backend.retire(pool.fd, pool.path, gone)):
        if step % 2:
            # The next start does not know yet.
            with contextlib.suppress(NotThisVolume):
                pool.attach(kept)
        pool.backend.retire(pool.fd, pool.path, gone)
        nothing_is_left(pool)
        # By hand, for the next turn.
        (pool.trash / gone.trash).rename(pool.image(kept))
        pool.attach(kept)
        is_kept(pool, kept)
    nothing_is_left(pool)
    assert [path.name for path in pool.trash.iterdir()] == [gone.trash]


def test_growing(pool: ImagePool, kept: Record) -> None:
    now = [kept]
    for turn in range(40):
        mib = 20 + 4 * turn

        def grow(backend: ImageBackend, mib: int = mib) -> None:
            backend.grow(pool.fd, pool.path, now[-1], mib * MIB)

        # Each growth takes several attempts that die, and a reboot after each of them.
        for step in (turn, turn + 30):
            if killed_at(step, grow, pool.links):
                pool.reboot()
                pool.attach(now[-1])
        now.append(pool.grow(now[-1], mib))
        is_kept(pool, now[-1])
        with mounted(pool.node(kept)) as where:
            found = os.statvfs(where)
        # 8 blocks of it are the file's and the first directories'.
        room = found.f_bavail * found.f_frsize
        assert mib * MIB - 32768 <= room <= mib * MIB * 1.015


def test_growing_that_dies_with_its_resize2fs(pool: ImagePool, kept: Record) -> None:
    """The agent dies at any moment, and its command with it: what is half resized is taken back."""
    if may_resize_mounted():
        pytest.skip("the kernel resizes it here, in its journal")
    half_done = 0
    undo = pool.images / "pvc-1.img.undo"
    for turn in range(30):
        # Larger each time: some get to their end.
        size = (4096 + 256 * turn) * MIB
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                ImageBackend(run_here, str(pool.links)).grow(pool.fd, pool.path, kept, size)
            os._exit(0)
        deadline = time.monotonic() + 10
        while not undo.exists() and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(0.0005 * turn)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        unclaimed(pool.loops()[0].node)
        if undo.exists():
            half_done += 1
            # Nobody is led to it before it is whole again.
            assert not pool.link(kept).is_symlink()
        if turn % 2:
            pool.reboot()
        pool.attach(kept)
        assert not undo.exists()
        is_kept(pool, kept)
        checked = subprocess.run(["e2fsck", "-fn", pool.node(kept)], capture_output=True)
        assert checked.returncode == 0, checked.stdout
    assert half_done > 3
    kept = pool.grow(kept, 20000)
    is_kept(pool, kept)


def unclaimed(node: str) -> None:
    """Wait until what worked on the device is dead."""

    def is_free() -> bool:
        try:
            os.close(os.open(node, os.O_RDONLY | os.O_EXCL))
        except OSError:
            return False
        return True

    until(is_free)


def test_what_was_mounted_since_is_not_taken_back(pool: ImagePool, kept: Record) -> None:
    undo = pool.images / "pvc-1.img.undo"
    undo.write_bytes(b"not one")
    os.utime(undo, (1, 1))
    with pytest.raises(BackendFailed, match="mounted after"):
        pool.attach(kept)
    assert undo.exists()
    assert not pool.link(kept).is_symlink()
    pool.retire(kept)
    pool.purge(replace(kept, state="removed", trash="pvc-1.12345678"))
    nothing_is_left(pool)


def test_purging(pool: ImagePool) -> None:
    def gone() -> Record:
        record = pool.make(mib=8, volume_mode="Block", overwrite=True)
        with open(pool.node(record), "wb") as device:
            device.write(b"secret" * 1000)
        return pool.retire(record)

    records = [gone()]
    stop = threading.Event()

    def purge(backend: ImageBackend) -> None:
        backend.purge(pool.fd, pool.path, records[-1], stop=stop)

    for _ in at_every_step(pool, purge):
        pool.purge(records[-1])
        assert not list(pool.trash.iterdir())
        records.append(gone())
    assert not list(pool.trash.iterdir())
    nothing_is_left(pool)
