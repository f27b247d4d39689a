"""What the tests of cleaning share: targets as the agent plans them, old data, a runner."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import Progress, Receipt
from localvolume.cleaning.run import clean
from localvolume.cleaning.steps import DeviceCalls
from localvolume.cleaning.target import Target
from localvolume.host.block import blockdev
from localvolume.host.block.blockdev import probe_block_device
from localvolume.host.filesystem.filesystems import identity_of_mount, probe_filesystem
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.process.workers import Workers
from tests.host.support_devices import LoopDevice
from tests.suite.units import MIB

SECRET = b"the old tenant's secret. "
DELETE_FILES = Method("delete-files")
ZERO = Method("zero", passes=1)
DISCARD = Method("discard")
OVERWRITE = Method("overwrite", passes=1)
RESET_SIGNATURES = Method("reset-signatures")


def block_target(path: str | LoopDevice) -> Target:
    """As the agent plans it: by what is there at this moment."""
    path = path.path if isinstance(path, LoopDevice) else path
    found = probe_block_device(path)
    return Target("block", path, found.device, identity=found.identity)


def mount_target(where: Path) -> Target:
    mount = read_mount_table().at(str(where))
    assert mount is not None
    identity = identity_of_mount(mount, probe_filesystem(str(where), mount))
    return Target("filesystem", str(where), mount.device, mount.mount_id, identity=identity)


async def run_clean(
    target: Target,
    method: Method,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    timeout: float | None = None,
    workers: Workers | None = None,
    paces: CleaningPaces | None = None,
    calls: DeviceCalls | None = None,
) -> Receipt:
    mine = workers or Workers(limit=4)
    try:
        return await clean(
            target,
            method,
            workers=mine,
            progress=progress,
            stop=stop or asyncio.Event(),
            timeout=timeout,
            paces=paces,
            calls=calls,
        )
    finally:
        if workers is None:
            mine.close()


def fill(device: LoopDevice) -> None:
    """The old tenant: every sector of the device carries data."""
    with open(device.path, "r+b", buffering=0) as disk:
        size = disk.seek(0, os.SEEK_END)
        disk.seek(0)
        block = (SECRET * (MIB // len(SECRET) + 1))[:MIB]
        disk.writelines(block[: min(MIB, size - start)] for start in range(0, size, MIB))
        os.fsync(disk)


def first_dirty(device: LoopDevice, start: int = 0, end: int | None = None) -> int | None:
    """Where, to the MiB, the device first does not read as zeros; every byte is looked at."""
    with open(device.path, "rb", buffering=0) as disk:
        end = disk.seek(0, os.SEEK_END) if end is None else end
        disk.seek(start)
        while start < end:
            part = disk.read(min(MIB, end - start))
            if part.count(0) != len(part):
                return start
            start += len(part)
    return None


def holds_secret(device: LoopDevice, at: int = 8 * MIB) -> bool:
    with open(device.path, "rb", buffering=0) as disk:
        disk.seek(at)
        return SECRET in disk.read(4096)


def is_free(device: LoopDevice) -> bool:
    try:
        os.close(blockdev.exclusive_open(device.path))
    except blockdev.InUse:
        return False
    return True


def die_while_cleaning(device: LoopDevice, method: Method, call: int) -> bool:
    """Clean in a process that is killed when so many calls on the device have returned.

    False: there were not so many, it is cleaned.
    """
    # Not forked: this process has threads.
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_clean_and_die, args=(device.path, method, call))
    process.start()
    process.join(120)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


def _clean_and_die(path: str, method: Method, call: int) -> None:
    left = call

    class Deadly(Workers):
        """They end their process when so many calls have returned."""

        async def call(self, key: str, seconds: float, fn: Any, *args: Any) -> Any:
            return await super().call(key, seconds, self._use, fn, *args)

        def _use(self, fn: Any, *args: Any) -> Any:
            nonlocal left
            result = fn(*args)
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

    asyncio.run(run_clean(block_target(path), method, workers=Deadly(limit=4)))
