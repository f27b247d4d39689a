"""Waking on changes of the mount table: at once, every time, and never without reason."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from localvolume.host.mount.mounts import MountSnapshot, MountWatcher, read_mount_table
from tests.host.support_mounts import MS_RDONLY, MS_REMOUNT, Mounts, mount, mount_namespace
from tests.suite import speed
from tests.suite.clock import cost_of_waiting
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root")


class Wakes:
    """Counts wakes and waits for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self.at = 0.0
        self._next = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self.at = time.perf_counter()
        self._next.set()

    async def next(self) -> None:
        await asyncio.wait_for(self._next.wait(), 60)
        self._next.clear()

    async def quiet(self) -> None:
        """Let what is on its way arrive, and forget it."""
        await asyncio.sleep(0.05)
        self._next.clear()


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    with Mounts() as made:
        yield made


@pytest.fixture
async def wakes() -> AsyncIterator[Wakes]:
    counter = Wakes()
    watcher = MountWatcher(counter)
    watcher.start()
    await counter.quiet()
    counter.count = 0
    yield counter
    watcher.close()


async def test_each_kind_of_change_wakes(wakes: Wakes, mounts: Mounts, tmp_path: Path) -> None:
    place = os.path.realpath(tmp_path)
    target = mounts.tmpfs(f"{place}/m")
    await wakes.next()
    assert read_mount_table().at(target) is not None
    mount("", target, flags=MS_REMOUNT | MS_RDONLY)
    await wakes.next()
    bound = mounts.bind(target, f"{place}/bound")
    await wakes.next()
    os.mkdir(f"{place}/moved")
    moved = mounts.move(bound, f"{place}/moved")
    await wakes.next()
    mounts.umount(moved, lazily=True)
    await wakes.next()
    mounts.umount(target)
    await wakes.next()
    assert read_mount_table().at(target) is None


async def test_the_wake_comes_within_milliseconds(
    wakes: Wakes, mounts: Mounts, tmp_path: Path
) -> None:
    target = f"{os.path.realpath(tmp_path)}/m"
    delays = []
    for _ in range(30):
        mounts.tmpfs(target)
        done = time.perf_counter()
        await wakes.next()
        delays.append(wakes.at - done)
        mounts.umount(target)
        await wakes.next()
    assert sorted(delays)[len(delays) // 2] < 0.05 * speed.factor()


async def test_nothing_is_lost_in_a_burst(wakes: Wakes, mounts: Mounts, tmp_path: Path) -> None:
    """Changes may share a wake, but after the last change there always comes one."""
    target = f"{os.path.realpath(tmp_path)}/m"
    os.mkdir(target)

    def burst() -> None:
        for _ in range(300):
            mounts.tmpfs(target)
            mounts.umount(target)
        mounts.tmpfs(target, source="the last")

    seen: list[str | None] = []
    watcher = MountWatcher(
        lambda: seen.append(found.source if (found := read_mount_table().at(target)) else None)
    )
    watcher.start()
    try:
        await asyncio.to_thread(burst)
        await until_async(lambda: seen[-1:], lambda last: last == ["the last"])
    finally:
        watcher.close()


async def test_a_quiet_table_costs_nothing() -> None:
    """Where a plain reader of the file, always readable as it is, would spin."""
    # A namespace nobody else touches: the tests beside this one mount things, too.
    with mount_namespace(":") as pid:
        counter = Wakes()
        watcher = MountWatcher(counter, path=f"/proc/{pid}/mountinfo")
        watcher.start()
        try:
            await counter.quiet()
            counter.count = 0
            await until_async(lambda: cost_of_waiting(0.5), lambda seconds: seconds < 0.02)
            assert counter.count == 0
        finally:
            watcher.close()


async def test_after_closing_nothing_comes(mounts: Mounts, tmp_path: Path) -> None:
    counter = Wakes()
    watcher = MountWatcher(counter)
    before = set(os.listdir("/proc/self/fd"))
    watcher.start()
    watcher.start()
    mounts.tmpfs(f"{os.path.realpath(tmp_path)}/m")
    await counter.next()
    watcher.close()
    watcher.close()
    await until_async(lambda: set(os.listdir("/proc/self/fd")) <= before)
    counter.count = 0
    mounts.tmpfs(f"{os.path.realpath(tmp_path)}/m2")
    await asyncio.sleep(0.05)
    assert counter.count == 0


async def test_a_namespace_of_slave_propagation_hears_of_our_mounts(
    mounts: Mounts, tmp_path: Path
) -> None:
    """As the agent's pod does with ``mountPropagation: HostToContainer``."""
    place = mounts.tmpfs(f"{os.path.realpath(tmp_path)}/shared")
    mounts.shared(place)
    with mount_namespace(":", propagation="slave") as pid:
        counter = Wakes()
        watcher = MountWatcher(counter, path=f"/proc/{pid}/mountinfo")
        watcher.start()
        try:
            await counter.quiet()
            target = mounts.tmpfs(f"{place}/late")
            await counter.next()
            assert read_mount_table(f"/proc/{pid}/mountinfo").at(target) is not None
        finally:
            watcher.close()


async def test_a_private_namespace_hears_nothing(mounts: Mounts, tmp_path: Path) -> None:
    place = mounts.tmpfs(f"{os.path.realpath(tmp_path)}/shared")
    mounts.shared(place)
    with mount_namespace(":", propagation="private") as pid:
        counter = Wakes()
        watcher = MountWatcher(counter, path=f"/proc/{pid}/mountinfo")
        watcher.start()
        try:
            await counter.quiet()
            counter.count = 0
            target = mounts.tmpfs(f"{place}/late")
            await asyncio.sleep(0.1)
            assert counter.count == 0
            assert read_mount_table(f"/proc/{pid}/mountinfo").at(target) is None
        finally:
            watcher.close()


def run_in(pid: int, *argv: str) -> None:
    """Run a command in the mount namespace of that process."""
    script = (
        "import ctypes, os, sys\n"
        "namespace = os.open(sys.argv[1], os.O_RDONLY)\n"
        "assert ctypes.CDLL(None).setns(namespace, 0) == 0\n"
        "os.execvp(sys.argv[2], sys.argv[2:])\n"
    )
    entered = (sys.executable, "-I", "-c", script, f"/proc/{pid}/ns/mnt")
    subprocess.run([*entered, *argv], check=True, timeout=60)


def test_a_snapshot_is_current_until_the_table_changes(tmp_path: Path) -> None:
    place = os.path.realpath(tmp_path)
    target = f"{place}/m"
    os.mkdir(target)
    # A namespace nobody else touches: the tests beside this one mount things, too.
    with mount_namespace(":") as pid:
        table = f"/proc/{pid}/mountinfo"
        before = MountSnapshot(table)
        assert before.table.settled
        assert before.is_current()
        run_in(pid, "mount", "-t", "tmpfs", "none", target)
        assert not before.is_current()
        assert not before.is_current(), "the kernel tells once; that must not be forgotten"
        between = MountSnapshot(table)
        assert between.is_current()
        assert between.table.at(target) is not None
        run_in(pid, "umount", target)
        assert not between.is_current()
        after = MountSnapshot(table)
        assert after.is_current()
        for snapshot in (before, between, after):
            snapshot.close()
            assert not snapshot.is_current()
