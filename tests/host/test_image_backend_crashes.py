"""kill -9 at every step of what is done with an image: the next attempt ends it."""

import contextlib
import os
import resource
import signal
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.fstools import may_resize_mounted
from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.model import BackendFailed, NotThisVolume, Record
from localvolume.host.process.commands import Finished
from tests.suite.units import MIB

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
    """They die at any moment, and what is half resized is taken back."""
    if may_resize_mounted():
        pytest.skip("the kernel resizes it here, in its journal")
    undo = pool.images / "pvc-1.img.undo"
    half_done = broken = 0
    for turn, limit in enumerate((0, 1024, *range(4096, 1 << 20, 8192))):
        if not grown_until(pool, kept, 1024 * MIB, limit):
            break
        half_done += undo.exists()
        # Nobody is led to it before it is whole again.
        assert not pool.link(kept).is_symlink()
        (loop,) = pool.loops()
        broken += is_broken(loop.node)
        if turn % 2:
            pool.reboot()
        pool.attach(kept)
        assert not undo.exists()
        is_kept(pool, kept)
        assert not is_broken(pool.node(kept))
    else:
        pytest.fail("resize2fs never came to its end")
    assert half_done > 5
    assert broken, "nothing of importance was half done"
    kept = pool.grow(kept, 20000)
    is_kept(pool, kept)


def grown_until(pool: ImagePool, kept: Record, size: int, limit: int) -> bool:
    """Grow in a child whose resize2fs dies once its undo file would have more than `limit` bytes,
    and which dies with it. Whether they died: False says that resize2fs came to its end.

    Before resize2fs overwrites anything, what was there goes to the undo file.
    """

    def run(argv: Any, timeout: float, **more: Any) -> Finished:
        if argv[0] != "resize2fs":
            return run_here(argv, timeout, **more)
        # Devices have no such limit.
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        finished = run_here(argv, timeout, **more)
        if finished.returncode == -signal.SIGXFSZ:
            os.kill(os.getpid(), signal.SIGKILL)
        return finished

    child = os.fork()
    if child == 0:
        try:
            ImageBackend(run, str(pool.links)).grow(pool.fd, pool.path, kept, size)
        except BaseException:  # noqa: BLE001 - nothing may go on in a child
            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed instead"
    return False


def is_broken(node: str) -> bool:
    """Whether e2fsck, which changes nothing, has something to mend."""
    return subprocess.run(["e2fsck", "-fn", node], capture_output=True).returncode != 0


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
