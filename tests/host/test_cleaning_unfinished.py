"""A device whose cleaning was begun and did not end says so by itself."""

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from localvolume.cleaning import unfinished
from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import CleaningFailed, CleaningStopped, Progress
from localvolume.cleaning.steps import DeviceCalls
from localvolume.host.block import blockdev
from localvolume.host.block.blockdev import read_signature
from tests.host.support_cleaning import (
    DISCARD,
    OVERWRITE,
    RESET_SIGNATURES,
    SECRET,
    ZERO,
    block_target,
    die_while_cleaning,
    fill,
    first_dirty,
    holds_secret,
    run_clean,
)
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop")

METHODS = [ZERO, OVERWRITE, DISCARD, RESET_SIGNATURES]


async def _stop_after_first_step(device: str, method: Method) -> None:
    stop = asyncio.Event()

    def told(progress: Progress) -> None:
        if progress.done_bytes:
            stop.set()

    # Progress is told once a second at most: a device this small would be done by then.
    paces = CleaningPaces(progress=0.0)
    with pytest.raises(CleaningStopped):
        await run_clean(block_target(device), method, stop=stop, progress=told, paces=paces)


@pytest.mark.parametrize("method", [ZERO, OVERWRITE], ids=str)
async def test_it_is_recognised_until_the_end(method: Method) -> None:
    with loop_device(256 * MIB) as device:
        with Path(device.path).open("r+b") as raw:
            raw.seek(255 * MIB)
            raw.write(SECRET)
        await _stop_after_first_step(device.path, method)
        with Path(device.path).open("rb") as raw:
            raw.seek(255 * MIB)
            assert raw.read(len(SECRET)) == SECRET, "the test must stop before the end"
        signature = await read_signature(device.path)
        assert signature is not None
        assert signature.label == unfinished.LABEL

        await run_clean(block_target(device.path), method)
        assert await read_signature(device.path) is None


def _leaving_data_at(place: int) -> DeviceCalls:
    """A disk that has the old data there again after it was zeroed, and does not discard."""

    def zero_out(fd: int, start: int, length: int) -> None:
        blockdev.zero_out(fd, start, length)
        if start <= place < start + length:
            os.pwrite(fd, SECRET, place)

    return DeviceCalls(zero_out=zero_out, discard=lambda fd, start, length: None)


@pytest.mark.parametrize("size", [MIB, 4 * MIB])
@pytest.mark.parametrize("method", METHODS, ids=str)
async def test_what_is_found_not_clean_says_so_itself(method: Method, size: int) -> None:
    with loop_device(size) as device:
        fill(device)
        command("mkswap", device.path)
        calls = _leaving_data_at(size - MIB // 2)
        with pytest.raises(CleaningFailed, match="does not read as the zeros"):
            await run_clean(block_target(device.path), method, calls=calls)
        signature = await read_signature(device.path)
        assert signature is not None
        assert signature.label == unfinished.LABEL
        await run_clean(block_target(device.path), method)
        assert await read_signature(device.path) is None


@pytest.mark.parametrize("method", METHODS, ids=str)
async def test_also_where_the_very_last_page_is_not_clean(method: Method) -> None:
    with loop_device(8 * MIB) as device:
        fill(device)
        with pytest.raises(CleaningFailed, match="byte 0 and on does not read as the zeros"):
            await run_clean(block_target(device.path), method, calls=_leaving_data_at(0))
        signature = await read_signature(device.path)
        assert signature is not None
        assert signature.label == unfinished.LABEL


@pytest.mark.parametrize("method", METHODS, ids=str)
async def test_nothing_is_erased_of_a_disk_that_does_not_keep_the_note(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def pwrite(fd: int, data: bytes, start: int) -> int:
        return len(data) if start == 0 else real(fd, data, start)

    with loop_device(16 * MIB) as device:
        fill(device)
        monkeypatch.setattr(os, "pwrite", pwrite)
        with pytest.raises(CleaningFailed, match="does not keep what is written"):
            await run_clean(block_target(device.path), method)
        assert holds_secret(device, at=0)
        assert holds_secret(device, at=MIB)
        assert holds_secret(device)


@pytest.mark.needs("ext4")
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_killed_at_any_moment_it_is_recognised_or_clean(method: Method) -> None:
    with loop_device(8 * MIB) as device:
        deaths = 0
        for call in itertools.count(1):
            fill(device)
            device.format("ext4")
            if not die_while_cleaning(device, method, call):
                break
            deaths += 1
            recognised = asyncio.run(read_signature(device.path))
            assert recognised is not None or _is_clean(device, method), f"killed after call {call}"
        assert deaths > 8
        assert asyncio.run(read_signature(device.path)) is None
        assert _is_clean(device, method)


def _is_clean(device: LoopDevice, method: Method) -> bool:
    if method is not RESET_SIGNATURES:
        return first_dirty(device) is None
    return first_dirty(device, end=MIB) is None and first_dirty(device, start=7 * MIB) is None


@pytest.mark.parametrize("method", [ZERO, OVERWRITE, DISCARD], ids=str)
async def test_nothing_of_it_is_left_behind(method: Method) -> None:
    with loop_device(8 * MIB) as device:
        receipt = await run_clean(block_target(device.path), method)
        assert receipt.result == "proved"
        assert not any(Path(device.path).read_bytes())
