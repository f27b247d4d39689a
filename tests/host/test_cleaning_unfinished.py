"""A device whose cleaning was begun and did not end says so by itself."""

import asyncio
from pathlib import Path

import pytest

from localvolume.cleaning import unfinished
from localvolume.cleaning.method import Method
from localvolume.cleaning.receipt import CleaningStopped, Progress
from localvolume.host.blockdev import read_signature
from tests.host.support_cleaning import (
    DISCARD,
    OVERWRITE,
    SECRET,
    ZERO,
    block_target,
    run_clean,
)
from tests.host.support_devices import MIB, loop_device

pytestmark = pytest.mark.needs("root", "loop")


async def _stop_after_first_step(device: str, method: Method) -> None:
    stop = asyncio.Event()

    def told(progress: Progress) -> None:
        if progress.done_bytes:
            stop.set()

    with pytest.raises(CleaningStopped):
        await run_clean(block_target(device), method, stop=stop, progress=told)


@pytest.mark.parametrize("method", [ZERO, OVERWRITE], ids=str)
async def test_it_is_recognised_until_the_end(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Progress is told once a second at most: a device this small would be done by then.
    monkeypatch.setattr("localvolume.cleaning.steps._PROGRESS_EVERY", 0.0)
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


@pytest.mark.parametrize("method", [ZERO, OVERWRITE, DISCARD], ids=str)
async def test_nothing_of_it_is_left_behind(method: Method) -> None:
    with loop_device(8 * MIB) as device:
        receipt = await run_clean(block_target(device.path), method)
        assert receipt.result == "proved"
        assert not any(Path(device.path).read_bytes())
