"""Images copied in full, on filesystems that share no blocks: who waits, and what is refused."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.capacity import price
from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.model import Busy, Impossible, NoSpace, Record
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import ioc
from tests.suite.units import GIB, MIB

from .support_copies import clean, made, written
from .support_devices import filesystem
from .support_images import (
    ImagePool,
    command,
    copied,
    fill,
    image_pool,
    mounted,
    running,
    snapshotted,
)

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")

FREEZE, THAW = ioc(3, ord("X"), 119, 4), ioc(3, ord("X"), 120, 4)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture
def pool(run: Run) -> Iterator[ImagePool]:
    """A pool on an ext4, of a class that lets all data be copied."""
    with (
        filesystem("ext4", size=2 * GIB) as where,
        image_pool(where, run, full_copies=True) as pool,
    ):
        yield pool


def impatient(pool: ImagePool, run: Run, stall: float) -> ImagePool:
    """The pool, with copies that may hold up their users for so many seconds."""
    notes = f"{pool.links}/.frozen"
    return replace(pool, backend=ImageBackend(run, str(pool.links), stall, notes))


def is_frozen(where: Path) -> bool:
    fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, FREEZE, 0)
        fcntl.ioctl(fd, THAW, 0)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def at_writes(act: Callable[[int], object]) -> Iterator[None]:
    """Do something before each piece that is written to the copy; it is told how many there were
    before."""
    seen = 0

    def look(frame: Any, event: str, called: Any) -> None:
        nonlocal seen
        if (
            event == "c_call"
            and called is os.pwrite
            and "/localvolume/" in frame.f_code.co_filename
        ):
            sys.setprofile(None)
            try:
                act(seen)
                seen += 1
            finally:
                sys.setprofile(look)

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert seen, "nothing was copied"


def only_these_are_left(pool: ImagePool, *records: Record) -> None:
    assert {path.name for path in pool.images.iterdir()} == {f"{one.name}.img" for one in records}
    assert not list(pool.links.glob(".frozen/*"))


@pytest.mark.parametrize(("fs_type", "options"), [("ext4", ()), ("xfs", ("-m", "reflink=0"))])
def test_only_where_the_class_says_so(run: Run, fs_type: str, options: tuple[str, ...]) -> None:
    with filesystem(fs_type, *options, size=GIB) as where, image_pool(where, run) as pool:
        origin = made(pool, "ext4", mib=8)
        able = pool.backend.abilities(pool.fd, pool.path)
        assert able.no_copies
        assert able.full_copies
        with pytest.raises(Impossible, match="cannot share blocks"):
            copied(pool, "pvc-2", origin)
        copied(pool, "pvc-2", origin, full_copies=True)
        snapshotted(pool, origin, full_copies=True)


@pytest.mark.parametrize("content", ["ext4", "xfs"])
def test_what_is_in_use_stands_still_until_all_is_copied(pool: ImagePool, content: str) -> None:
    origin = made(pool, content)
    with mounted(pool.node(origin)) as where:
        (where / "file").write_bytes(os.urandom(8 * MIB))
        frozen: list[bool] = []
        with at_writes(lambda _: frozen.append(is_frozen(where))):
            cut = snapshotted(pool, origin)
        assert len(frozen) > 2
        assert all(frozen)
        assert not is_frozen(where)
        (where / "file").unlink()
    # It holds what it says, and no more is promised.
    holds = pool.image(cut).stat().st_blocks * 512
    assert 8 * MIB <= holds <= price("image", cut.holds_bytes)
    clean(pool, copied(pool, "pvc-2", cut))


def test_what_nobody_uses_is_held(pool: ImagePool) -> None:
    for content in ("ext4", "raw"):
        origin = made(pool, content, f"pvc-{content}")
        if content == "raw":
            written(pool, origin, 3)
        with at_writes(partial(cannot_be_claimed, pool.node(origin))):
            copied(pool, f"clone-{content}", origin)
        os.close(os.open(pool.node(origin), os.O_RDWR | os.O_EXCL))


def cannot_be_claimed(node: str, _piece: int) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        os.close(os.open(node, os.O_RDWR | os.O_EXCL))


def test_what_is_written_while_its_speed_is_measured_is_in_the_copy(pool: ImagePool) -> None:
    """Some is copied before the cut, to see how long it would take: of that, nothing is used."""
    origin = made(pool, "ext4", mib=200)
    with mounted(pool.node(origin)) as where:
        first, second = where / "first", where / "second"
        for file in (first, second):
            file.write_bytes(os.urandom(60 * MIB))
        command("sync", "-f", where)
        data = os.urandom(20 * MIB)

        def change(piece: int) -> None:
            if piece == 1:
                assert not is_frozen(where)
                with first.open("r+b") as file:
                    file.write(data)
                second.unlink()
                command("sync", "-f", where)
                command("fstrim", where)

        with at_writes(change):
            cut = snapshotted(pool, origin)
        held = pool.image(cut).stat().st_blocks * 512
        assert held < 100 * MIB
    restored = copied(pool, "pvc-2", cut)
    with mounted(pool.node(restored)) as where:
        assert (where / "first").read_bytes()[: 20 * MIB] == data
        assert not (where / "second").exists()
    clean(pool, restored)


# --- what is refused ---------------------------------------------------------------------------


def test_a_block_volume_in_use_is_not_copied(pool: ImagePool) -> None:
    origin = made(pool, "raw")
    node = pool.node(origin)
    target = pool.root / "published"
    target.touch()
    command("mount", "--bind", node, target)
    try:
        for name in ("one", "two"):
            with pytest.raises(Busy, match="Block volume in use"):
                copied(pool, name, origin)
    finally:
        command("umount", target)
    with open(node, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        holder = os.open(node, os.O_RDWR | os.O_EXCL)
        with pytest.raises(Busy, match="Block volume in use"):
            snapshotted(pool, origin)
        os.close(holder)
    only_these_are_left(pool, origin)
    snapshotted(pool, origin)


def test_what_would_take_too_long_is_not_begun(pool: ImagePool, run: Run) -> None:
    origin = made(pool, "ext4", mib=200)
    impatiently = impatient(pool, run, 1e-4)
    with mounted(pool.node(origin)) as where:
        (where / "file").write_bytes(os.urandom(100 * MIB))
        frozen: list[bool] = []
        with (
            at_writes(lambda _: frozen.append(is_frozen(where))),
            pytest.raises(Busy, match=r"would hold up its users for about .* are allowed"),
        ):
            snapshotted(impatiently, origin)
        assert not any(frozen)
        only_these_are_left(pool, origin)
    # Nobody waits for that of a volume that nobody uses.
    snapshotted(impatiently, origin)


def test_what_takes_too_long_is_dropped_and_not_tried_again_soon(pool: ImagePool, run: Run) -> None:
    origin = made(pool, "ext4")
    # On a busy machine, freezing takes a part of it.
    impatiently = impatient(pool, run, 3.0)
    with mounted(pool.node(origin)) as where:
        (where / "file").write_bytes(os.urandom(8 * MIB))
        with (
            at_writes(lambda _: time.sleep(3.0)),
            pytest.raises(Busy, match="the copy was dropped"),
        ):
            snapshotted(impatiently, origin)
        assert not is_frozen(where)
        (where / "file").unlink()
        only_these_are_left(pool, origin)
        for name in ("one", "two"):
            with pytest.raises(Busy, match="not tried again within an hour"):
                snapshotted(impatiently, origin, name)
        # Others are.
        other = made(pool, "ext4", "pvc-2")
        with mounted(pool.node(other)):
            snapshotted(impatient(pool, run, 600), other, "other")
    snapshotted(impatiently, origin)


def test_what_an_operator_has_frozen_is_not_copied(pool: ImagePool) -> None:
    origin = made(pool, "ext4")
    with mounted(pool.node(origin)) as where:
        command("fsfreeze", "--freeze", where)
        try:
            with pytest.raises(Busy, match="frozen already, by somebody else"):
                snapshotted(pool, origin)
            assert is_frozen(where)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", where], check=True, timeout=60)
        only_these_are_left(pool, origin)
        snapshotted(pool, origin)


def test_a_pool_without_room_keeps_nothing_of_a_copy(pool: ImagePool) -> None:
    origin = made(pool, "ext4", mib=100)
    with mounted(pool.node(origin)) as where:
        (where / "file").write_bytes(os.urandom(50 * MIB))
        command("sync", "-f", where)
        fill(pool.root)
        before = os.statvfs(pool.root).f_bavail
        with pytest.raises(NoSpace):
            snapshotted(pool, origin)
        assert os.statvfs(pool.root).f_bavail >= before
        assert not is_frozen(where)
        assert (where / "file").stat().st_size == 50 * MIB
    only_these_are_left(pool, origin)
    (pool.root / "full").unlink()
    snapshotted(pool, origin)
