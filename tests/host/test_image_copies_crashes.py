"""kill -9 at every step of a copy of an image: the next attempt ends it, and nobody is harmed."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.model import Record
from tests.suite.units import GIB, MIB

from .support_devices import filesystem
from .support_images import (
    ImagePool,
    copy_of,
    image_pool,
    killed_at,
    mounted,
    run_here,
    snapshot_of,
    snapshotted,
)

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")


@pytest.fixture(params=["ext4 on xfs", "xfs on xfs", "ext4 on ext4"])
def kinds(request: pytest.FixtureRequest) -> list[str]:
    """The filesystem of the volume, and that of the pool."""
    return str(request.param).split(" on ")


@pytest.fixture
def pool(kinds: list[str]) -> Iterator[ImagePool]:
    """A pool on an xfs, which shares blocks, or on an ext4, where all is copied."""
    full = kinds[1] == "ext4"
    # No thread may be there when the test forks.
    with (
        filesystem(kinds[1], size=2 * GIB) as where,
        image_pool(where, run_here, full_copies=full) as pool,
    ):
        yield pool


@pytest.fixture
def origin(pool: ImagePool, kinds: list[str]) -> Record:
    """A volume that holds data."""
    record = pool.make(mib=300, fs_type=kinds[0])
    with mounted(pool.node(record)) as where:
        (where / "file").write_text("tenant data")
    return replace(record, state="offered")


def holds_data(pool: ImagePool, record: Record) -> None:
    with mounted(pool.node(record)) as where:
        assert (where / "file").read_text() == "tenant data"


def only_these_are_left(pool: ImagePool, *records: Record) -> None:
    assert {path.name for path in pool.images.iterdir()} == {f"{one.name}.img" for one in records}
    assert len(pool.loops()) == len([one for one in records if not one.snapshot_of])


@pytest.mark.parametrize("in_use", [False, True])
def test_a_snapshot(pool: ImagePool, origin: Record, in_use: bool) -> None:
    record = snapshot_of(origin)

    def cut(backend: ImageBackend) -> None:
        backend.copy(pool.fd, pool.path, record, origin)

    def at_each_step() -> None:
        for step in range(1000):
            if not killed_at(step, cut, pool.links):
                assert step > 8, "it was hardly watched"
                return
            # What was frozen for it goes on by itself.
            pool.thawed()
            if step % 2:
                made = pool.backend.copy(pool.fd, pool.path, record, origin)
                # Its record has its inode by now.
                pool.attach(made)
                only_these_are_left(pool, origin, made)
                pool.backend.unmake(pool.fd, pool.path, made)
            else:
                pool.backend.unmake(pool.fd, pool.path, record)
            only_these_are_left(pool, origin)

    if in_use:
        with mounted(pool.node(origin)) as where:
            at_each_step()
            assert (where / "file").read_text() == "tenant data"
    else:
        at_each_step()
    holds_data(pool, origin)


def test_a_clone_that_is_larger(pool: ImagePool, origin: Record) -> None:
    cut = snapshotted(pool, origin)
    record = copy_of(cut, size_bytes=400 * MIB)
    before = pool.image(cut).read_bytes()[: 32 * MIB]

    def clone(backend: ImageBackend) -> None:
        backend.copy(pool.fd, pool.path, record, cut)

    for step in range(1000):
        if not killed_at(step, clone, pool.links):
            break
        if step % 3 == 1:
            pool.reboot()
            pool.attach(origin)
        if step % 2:
            made = pool.backend.copy(pool.fd, pool.path, record, cut)
            pool.attach(replace(made, state="offered"))
            only_these_are_left(pool, origin, cut, made)
            holds_data(pool, made)
            with mounted(pool.node(made)) as where:
                found = os.statvfs(where)
                assert found.f_bavail * found.f_frsize >= 399 * MIB
            pool.backend.unmake(pool.fd, pool.path, made)
        else:
            pool.backend.unmake(pool.fd, pool.path, record)
        only_these_are_left(pool, origin, cut)
    assert step > 20, "it was hardly watched"
    assert pool.image(cut).read_bytes()[: 32 * MIB] == before
    holds_data(pool, origin)


def test_a_filesystem_as_blocks(pool: ImagePool, origin: Record) -> None:
    cut = snapshotted(pool, origin)
    record = copy_of(cut, volume_mode="Block")
    size = pool.image(cut).stat().st_size

    def restore(backend: ImageBackend) -> None:
        backend.copy(pool.fd, pool.path, record, cut)

    for step in range(1000):
        if not killed_at(step, restore, pool.links):
            break
        if step % 2:
            made = pool.backend.copy(pool.fd, pool.path, record, cut)
            pool.attach(replace(made, state="offered"))
            only_these_are_left(pool, origin, cut, made)
            assert made.size_bytes == size
            pool.backend.unmake(pool.fd, pool.path, made)
        else:
            pool.backend.unmake(pool.fd, pool.path, record)
        only_these_are_left(pool, origin, cut)
    assert step > 8, "it was hardly watched"
    holds_data(pool, origin)


def test_a_snapshot_that_goes(pool: ImagePool, origin: Record) -> None:
    gone = [replace(snapshotted(pool, origin), state="removed", trash="snap-1.12345678")]

    def retire(backend: ImageBackend) -> None:
        backend.retire(pool.fd, pool.path, gone[-1])

    for step in range(1000):
        if not killed_at(step, retire, pool.links):
            break
        pool.backend.retire(pool.fd, pool.path, gone[-1])
        pool.purge(gone[-1])
        only_these_are_left(pool, origin)
        assert not list(pool.trash.iterdir())
        gone.append(replace(snapshotted(pool, origin), state="removed", trash="snap-1.12345678"))
    assert step > 3, "it was hardly watched"
    holds_data(pool, origin)
