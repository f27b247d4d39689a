"""Whether a volume is clean that somebody else says to have cleaned: looked at, and not changed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from localvolume.cleaning.method import Method
from localvolume.cleaning.receipt import CleaningFailed, CleaningRefused
from localvolume.cleaning.target import Target
from localvolume.cleaning.verify import verify
from localvolume.host.process.workers import Workers
from tests.host.support_cleaning import (
    RESET_SIGNATURES,
    ZERO,
    block_target,
    fill,
    holds_secret,
    run_clean,
)
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.suite.units import MIB
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root", "loop")


@pytest.fixture
def disk() -> Iterator[LoopDevice]:
    with loop_device(16 * MIB) as device:
        yield device


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    pool = Workers(limit=4)
    yield pool
    pool.close()


async def look(target: Target, method: Method, workers: Workers) -> None:
    await verify(target, method, workers=workers, stop=asyncio.Event())


@pytest.mark.needs("ext4")
async def test_what_is_still_recognised_is_not_clean(disk: LoopDevice, workers: Workers) -> None:
    """Its content is there in either case, and only the signature counts."""
    fill(disk)
    await run_clean(block_target(disk), RESET_SIGNATURES)
    await look(block_target(disk), RESET_SIGNATURES, workers)
    assert holds_secret(disk)
    disk.format("ext4")
    with pytest.raises(CleaningFailed, match="still recognised as ext4"):
        await look(block_target(disk), RESET_SIGNATURES, workers)


async def test_a_device_that_cannot_be_read_is_not_clean(
    disk: LoopDevice, workers: Workers
) -> None:
    os.truncate(disk.backing, 8 * MIB)
    with pytest.raises(CleaningFailed, match="its signatures cannot be read"):
        await look(block_target(disk), RESET_SIGNATURES, workers)


async def test_a_device_that_shrinks_is_not_proved(disk: LoopDevice, workers: Workers) -> None:
    """What lay behind its end now may be there again with the next boot."""
    target = block_target(disk)

    def shrink() -> None:  # the last thing before it is looked at
        os.truncate(disk.backing, 8 * MIB)
        command("losetup", "--set-capacity", disk.path)

    object.__setattr__(target, "recheck", shrink)
    with pytest.raises(CleaningFailed, match=r"ends at \d+, before its size"):
        await look(target, ZERO, workers)


@pytest.mark.parametrize("known", [True, False])
async def test_a_recheck_alone_may_know_the_volume(
    disk: LoopDevice, workers: Workers, known: bool
) -> None:
    """Of a device that has no identity by which it could be told from another."""

    def recheck() -> None:
        if not known:
            raise CleaningRefused("it is another one by now")

    planned = block_target(disk)
    target = Target("block", planned.path, planned.device, recheck=recheck)
    if known:
        await look(target, ZERO, workers)
    else:
        with pytest.raises(CleaningRefused, match="another one by now"):
            await look(target, ZERO, workers)


async def test_a_look_that_nobody_waits_for_any_more_ends(
    disk: LoopDevice, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk must not be read on by threads of lookers that were told to stop."""
    reads: list[int] = []
    go_on = threading.Event()

    def slow(real: Callable[..., int]) -> Callable[..., int]:
        def read(fd: int, buffers: Any, offset: int) -> int:
            reads.append(offset)
            assert go_on.wait(60)
            return real(fd, buffers, offset)

        return read

    monkeypatch.setattr(os, "preadv", slow(os.preadv))
    task = asyncio.create_task(look(block_target(disk), ZERO, workers))
    await until_async(lambda: reads)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await until_async(lambda: not workers.running and not workers.hung)
    assert reads == [0]
