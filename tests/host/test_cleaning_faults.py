"""Cleaning a device that stalls, dies or goes away, and being told to stop in the middle."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import os
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import (
    CleaningFailed,
    CleaningRefused,
    CleaningStopped,
    Progress,
    Receipt,
)
from localvolume.cleaning.steps import DeviceCalls, OnRange
from localvolume.cleaning.target import Target
from localvolume.host.block import blockdev
from localvolume.host.process.workers import Workers
from tests.host.support_cleaning import (
    DISCARD,
    OVERWRITE,
    RESET_SIGNATURES,
    ZERO,
    block_target,
    fill,
    first_dirty,
    holds_secret,
    is_free,
    run_clean,
)
from tests.host.support_devices import LoopDevice, command, filesystem, loop_device
from tests.host.support_failing import waits_for_a_disk
from tests.suite.clock import LONG, Clock
from tests.suite.units import MIB
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root", "loop")

KERNEL_METHODS = [ZERO, DISCARD, OVERWRITE]
FS_IOC_SHUTDOWN = 0x8004587D  # linux/fs.h: _IOR('X', 125, __u32)


@pytest.fixture
def disk() -> Iterator[LoopDevice]:
    with loop_device(32 * MIB) as device:
        fill(device)
        yield device


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    pool = Workers(limit=4)
    yield pool
    pool.close()


class Slow:
    """A device of which each step of writing or discarding takes so much longer, and is 1 MiB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.began: list[float] = []
        self._seconds = seconds
        monkeypatch.setattr(os, "pwrite", _slow_write(os.pwrite, seconds, self.began))
        self.calls = DeviceCalls(
            zero_out=self._slow(blockdev.zero_out), discard=self._slow(blockdev.discard)
        )

    def _slow(self, real: OnRange) -> OnRange:
        def call(fd: int, start: int, length: int) -> None:
            self.began.append(time.monotonic())
            time.sleep(self._seconds)
            real(fd, start, length)

        return call

    async def clean(self, target: Target, method: Method, **how: Any) -> Receipt:
        how = {"paces": CleaningPaces(step_bytes=MIB), **how}
        return await run_clean(target, method, calls=self.calls, **how)


def _slow_write(
    real: Callable[[int, bytes, int], int], seconds: float, began: list[float]
) -> Callable[[int, bytes, int], int]:
    def call(fd: int, data: bytes, start: int) -> int:
        began.append(time.monotonic())
        time.sleep(seconds)
        return real(fd, data, start)

    return call


@pytest.mark.parametrize("method", KERNEL_METHODS, ids=str)
async def test_stopped_in_the_middle(
    disk: LoopDevice, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, stop = Slow(monkeypatch, 0.05), asyncio.Event()
    task = asyncio.create_task(slow.clean(block_target(disk), method, stop=stop))
    await until_async(lambda: len(slow.began) > 3)
    stop.set()
    asked = time.monotonic()
    with pytest.raises(CleaningStopped, match="stopped while"):
        await task
    assert time.monotonic() - asked < 30
    steps = len(slow.began)
    assert steps < 32
    assert is_free(disk)
    await asyncio.sleep(0.2)
    assert len(slow.began) == steps, "something went on writing"
    monkeypatch.undo()
    assert first_dirty(disk, start=24 * MIB) is not None
    # Beginning again is all it takes.
    await run_clean(block_target(disk), method)
    assert first_dirty(disk) is None


async def test_stopped_before_it_began(disk: LoopDevice) -> None:
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(CleaningStopped):
        await run_clean(block_target(disk), ZERO, stop=stop)
    assert holds_secret(disk)


async def test_a_stop_does_not_wait_for_a_step_that_hangs(
    disk: LoopDevice, workers: Workers
) -> None:
    began: list[int] = []
    answers = threading.Event()

    def wait(fd: int, start: int, length: int) -> None:
        began.append(start)
        assert answers.wait(120)
        blockdev.zero_out(fd, start, length)

    stop, calls = asyncio.Event(), DeviceCalls(zero_out=wait)
    task = asyncio.create_task(
        run_clean(block_target(disk), ZERO, stop=stop, workers=workers, calls=calls)
    )
    try:
        await until_async(lambda: bool(began))
        stop.set()
        async with asyncio.timeout(60):
            with pytest.raises(CleaningStopped):
                await task
        # What was left behind may still write: nobody gets the device before it returned.
        assert not is_free(disk)
    finally:
        answers.set()
    await until_async(lambda: is_free(disk))
    assert len(began) == 1


async def test_a_long_step_notices_that_nobody_waits(
    disk: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []
    cancelled = threading.Event()
    real = os.pwrite

    def wait(fd: int, data: bytes, start: int) -> int:
        began.append(start)
        assert cancelled.wait(60)
        return real(fd, data, start)

    monkeypatch.setattr(os, "pwrite", wait)
    task = asyncio.create_task(run_clean(block_target(disk), OVERWRITE))
    await until_async(lambda: bool(began))
    task.cancel()  # in the first of four writes
    with pytest.raises(asyncio.CancelledError):
        await task
    cancelled.set()
    await until_async(lambda: is_free(disk))
    assert len(began) == 1


async def test_cancelled_in_the_middle(disk: LoopDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, 0.1)
    task = asyncio.create_task(slow.clean(block_target(disk), ZERO))
    await until_async(lambda: len(slow.began) > 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    steps = len(slow.began)
    await until_async(lambda: is_free(disk))
    assert len(slow.began) <= steps + 1, "none is begun after it but by chance"


@pytest.mark.parametrize("method", KERNEL_METHODS, ids=str)
async def test_longer_than_the_class_allows(
    disk: LoopDevice, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch, 0.05)
    # No step is too long by itself.
    paces = CleaningPaces(step_bytes=MIB, step=4 * LONG)
    task = asyncio.create_task(slow.clean(block_target(disk), method, timeout=LONG, paces=paces))
    await until_async(lambda: slow.began)
    passed = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: passed() + LONG)
    with pytest.raises(CleaningFailed, match="not finished after 600 s") as failed:
        await task
    assert failed.value.touched
    assert is_free(disk)


@pytest.mark.needs("ext4")
async def test_a_disk_that_stops_answering(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one: the filesystem under the loop device is frozen, its writes wait in the kernel."""
    method = OVERWRITE  # zeroing by the kernel punches holes, which a frozen ext4 allows
    clock, paces, writes = Clock(), CleaningPaces(step=LONG), threading.Event()
    real = os.pwrite

    def write(fd: int, data: bytes, start: int) -> int:
        writes.set()
        return real(fd, data, start)

    monkeypatch.setattr(os, "pwrite", write)
    with (
        filesystem("ext4", size=256 * MIB) as below,
        loop_device(16 * MIB, backing=below / "disk") as disk,
    ):
        fill(disk)
        target = block_target(disk)
        command("fsfreeze", "--freeze", below)
        try:
            task = asyncio.create_task(run_clean(target, method, workers=workers, paces=paces))
            await until_async(lambda: writes.is_set() and waits_for_a_disk())
            began = time.monotonic()
            clock.move_on(LONG)
            with pytest.raises(CleaningFailed, match="no answer from the host") as failed:
                await task
            assert failed.value.touched
            with pytest.raises(CleaningFailed, match="still stuck"):
                await run_clean(target, method, workers=workers, paces=paces)
            assert time.monotonic() - began < 60
            # Its writes may land at any time: another agent could not clean or mount it either.
            assert not is_free(disk)
            with pytest.raises(CleaningRefused, match="in use"):
                await run_clean(target, method, paces=paces)
        finally:
            command("fsfreeze", "--unfreeze", below)
        # It is let go in one thread, and that the call has returned is told by another.
        await until_async(lambda: is_free(disk) and not workers.hung)
        receipt = await run_clean(target, method, workers=workers)
        assert receipt.result == "proved"
        assert first_dirty(disk) is None


@pytest.mark.needs("ext4")
@pytest.mark.parametrize("method", [*KERNEL_METHODS, RESET_SIGNATURES], ids=str)
async def test_a_disk_that_dies_in_the_middle(method: Method) -> None:
    """Every I/O fails from some moment on: the filesystem under the loop device is shut down."""
    with (
        filesystem("ext4", size=256 * MIB) as below,
        loop_device(16 * MIB, backing=below / "disk") as disk,
    ):
        fill(disk)
        target = block_target(disk)

        def die(fd: int) -> None:
            _shut_down(below)
            blockdev.flush_buffers(fd)

        with pytest.raises(CleaningFailed, match="the device answers") as failed:
            await run_clean(target, method, calls=DeviceCalls(flush_buffers=die))
        assert failed.value.touched


def _shut_down(mount_point: Path) -> None:
    fd = os.open(mount_point, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", 2))  # without flushing
    finally:
        os.close(fd)


async def test_a_disk_that_fails_to_write_in_the_middle() -> None:
    """A thin disk that runs full: some writes succeed, then none does."""
    with (
        filesystem("tmpfs", size=8 * MIB) as below,
        loop_device(16 * MIB, backing=below / "disk") as disk,
    ):
        with pytest.raises(CleaningFailed, match="the device answers") as failed:
            await run_clean(block_target(disk), OVERWRITE)
        assert failed.value.touched


async def test_a_disk_that_was_pulled(disk: LoopDevice) -> None:
    def gone(fd: int, start: int, length: int) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    with pytest.raises(CleaningFailed, match="writing zeros: the device is gone"):
        await run_clean(block_target(disk), ZERO, calls=DeviceCalls(zero_out=gone))


async def test_a_disk_detached_in_the_middle_stays_ours_until_the_end(
    disk: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, slow = block_target(disk), Slow(monkeypatch, 0.05)
    task = asyncio.create_task(slow.clean(target, ZERO))
    await until_async(lambda: len(slow.began) > 3)
    # The kernel detaches it when the last user has closed it, not before.
    detached = asyncio.create_task(asyncio.to_thread(disk.detach))
    await until_async(lambda: len(slow.began) > 10)
    assert not detached.done()
    receipt = await task
    await detached
    assert receipt.result == "proved"
    with pytest.raises(CleaningRefused):
        await run_clean(target, ZERO)
    assert disk.backing.read_bytes().count(0) == 32 * MIB


async def test_progress_is_told_once_a_second_and_only_grows(
    disk: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[float, Progress]] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    await Slow(monkeypatch, 0.03).clean(
        block_target(disk),
        Method("zero", passes=2),
        progress=lambda progress: told.append((loop.time(), progress)),
        paces=CleaningPaces(progress=0.2, step_bytes=MIB),
    )
    # Opening it is told of only where it takes long.
    told = [(when, progress) for when, progress in told if progress.step != "opening"]
    assert 5 < len(told) <= (loop.time() - began) / 0.2 + 1
    times = [when for when, _ in told]
    # What is told may come a little later than it was found due.
    assert all(later - earlier > 0.1 for earlier, later in itertools.pairwise(times))
    done = [progress.done_bytes for _, progress in told]
    assert done == sorted(done)
    assert {progress.total_bytes for _, progress in told} == {64 * MIB}
    assert told[0][1].step == "writing zeros, pass 1 of 2"
    assert max(done) <= 64 * MIB


async def test_a_stuck_close_does_not_hold_up_the_answer(disk: LoopDevice) -> None:
    clock, paces = Clock(), CleaningPaces(step=LONG)
    hangs, answers = threading.Event(), threading.Event()

    class Stuck(Workers):
        """They hang where the volume is closed."""

        async def call(self, key: str, seconds: float, fn: Any, *args: Any) -> Any:
            if fn.__name__ != "close":
                return await super().call(key, seconds, fn, *args)

            def hang() -> None:
                hangs.set()
                assert answers.wait(120)
                fn(*args)

            return await super().call(key, seconds, hang)

    stuck = Stuck(limit=4)
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - began)

    heart = asyncio.create_task(beat())
    try:
        target = block_target(disk)
        task = asyncio.create_task(run_clean(target, DISCARD, paces=paces, workers=stuck))
        await until_async(hangs.is_set)
        clock.move_on(LONG)
        async with asyncio.timeout(60):
            receipt = await task
        assert receipt.result == "proved"
        assert stuck.hung, "it was waited for"
    finally:
        answers.set()
    heart.cancel()
    assert max(gaps) < 30, "the event loop was blocked"
    await until_async(lambda: is_free(disk))
    stuck.close()
