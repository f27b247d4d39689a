"""Watching directories that come, go, are replaced, mounted over and flooded."""

import asyncio
import gc
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from asyncinotify import Inotify

from localvolume.host.inotify import DirectoryWatcher
from localvolume.host.process.workers import Workers
from tests.host.support_mounts import Mounts
from tests.suite.clock import LONG, Clock, cost_of_waiting
from tests.suite.until import until_async


def _lines(path: Path) -> list[str]:
    # A descriptor that is closed meanwhile has none.
    with suppress(FileNotFoundError):
        return path.read_text().splitlines()
    return []


def watches() -> int:
    """How many inodes this process watches, by the kernel's account."""
    return sum(
        line.startswith("inotify ")
        for path in Path("/proc/self/fdinfo").iterdir()
        for line in _lines(path)
    )


class Seen:
    """What the watcher told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []

    def __call__(self, path: str, name: str | None) -> None:
        self.calls.append((path, name))

    async def of(self, path: str, name: str | None) -> None:
        """Wait until this was told, then forget everything."""
        await until_async(lambda: (path, name) in self.calls)
        self.calls.clear()

    async def settled(self) -> None:
        await asyncio.sleep(0.05)
        self.calls.clear()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return os.path.realpath(tmp_path)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    with Mounts() as made:
        yield made


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def watch(seen: Seen) -> AsyncIterator[Callable[..., DirectoryWatcher]]:
    watchers: list[DirectoryWatcher] = []

    def start(*paths: str) -> DirectoryWatcher:
        watcher = DirectoryWatcher(paths, seen)
        watcher.start()
        watchers.append(watcher)
        return watcher

    yield start
    for watcher in watchers:
        watcher.close()


Watch = Callable[..., DirectoryWatcher]


async def test_each_kind_of_change_is_told_by_name(place: str, seen: Seen, watch: Watch) -> None:
    disks = f"{place}/disks"
    os.mkdir(disks)
    watch(disks)
    await seen.of(disks, None)
    os.mkdir(f"{disks}/v1")
    await seen.of(disks, "v1")
    os.symlink("/dev/no-such-disk", f"{disks}/by-id")
    await seen.of(disks, "by-id")
    os.chmod(f"{disks}/v1", 0o700)
    await seen.of(disks, "v1")
    os.rename(f"{disks}/v1", f"{disks}/v2")
    await until_async(lambda: {(disks, "v1"), (disks, "v2")} <= set(seen.calls))
    await seen.settled()
    os.rename(f"{disks}/v2", f"{place}/elsewhere")
    await seen.of(disks, "v2")
    os.rename(f"{place}/elsewhere", f"{disks}/v3")
    await seen.of(disks, "v3")
    os.rmdir(f"{disks}/v3")
    await seen.of(disks, "v3")
    name = os.fsdecode(b"odd \xff\n name")
    os.mkdir(f"{disks}/{name}")
    await seen.of(disks, name)


async def test_what_happens_inside_the_entries_or_beside_is_not_told(
    place: str, seen: Seen, watch: Watch
) -> None:
    """Tenants write there all day."""
    disks = f"{place}/disks"
    os.makedirs(f"{disks}/v1")
    watch(disks)
    await seen.of(disks, None)
    Path(f"{disks}/v1/file").write_text("x")
    os.mkdir(f"{place}/beside")
    await asyncio.sleep(0.05)
    assert seen.calls == []


async def test_a_directory_removed_and_made_again(place: str, seen: Seen, watch: Watch) -> None:
    disks = f"{place}/disks"
    os.mkdir(disks)
    watcher = watch(disks)
    await seen.of(disks, None)
    for _ in range(3):
        shutil.rmtree(disks)
        await seen.of(disks, None)
        await until_async(lambda: disks in watcher.problems)
        assert watcher.problems == {disks: f"{disks}: No such file or directory"}
        await seen.settled()
        os.mkdir(disks)
        await seen.of(disks, None)
        await until_async(lambda: not watcher.problems)
        await seen.settled()
        os.mkdir(f"{disks}/v1")
        await seen.of(disks, "v1")


async def test_one_removed_while_somebody_holds_it_open(
    place: str, seen: Seen, watch: Watch
) -> None:
    """Its own end is not told then: the inode lives on."""
    disks = f"{place}/disks"
    os.mkdir(disks)
    watch(disks)
    await seen.of(disks, None)
    held = os.open(disks, os.O_RDONLY)
    try:
        os.rmdir(disks)
        os.mkdir(disks)
        await seen.of(disks, None)
        await seen.settled()
        os.mkdir(f"{disks}/v1")
        await seen.of(disks, "v1")
    finally:
        os.close(held)


async def test_one_that_does_not_exist_yet_nor_its_parents(
    place: str, seen: Seen, watch: Watch
) -> None:
    disks = f"{place}/a/b/disks"
    watcher = watch(disks)
    await seen.of(disks, None)
    assert disks in watcher.problems
    os.makedirs(disks)
    await until_async(lambda: not watcher.problems)
    await seen.settled()
    os.mkdir(f"{disks}/v1")
    await seen.of(disks, "v1")


async def test_a_parent_moved_away_and_replaced(place: str, seen: Seen, watch: Watch) -> None:
    disks = f"{place}/a/b/disks"
    os.makedirs(disks)
    watch(disks)
    await seen.of(disks, None)
    gc.collect()  # what earlier tests left has watches, too
    held = watches()
    os.rename(f"{place}/a", f"{place}/old")
    os.makedirs(f"{disks}/already")
    await seen.of(disks, None)
    await seen.settled()
    os.mkdir(f"{disks}/v1")
    await seen.of(disks, "v1")
    os.mkdir(f"{place}/old/b/disks/stale")
    await asyncio.sleep(0.05)
    assert seen.calls == []
    assert watches() == held, "the old ones were dropped"


async def test_a_link_that_leads_elsewhere_now(place: str, seen: Seen, watch: Watch) -> None:
    for name in ("one", "two"):
        os.mkdir(f"{place}/{name}")
    os.symlink("one", f"{place}/disks")
    watch(f"{place}/disks")
    await seen.of(f"{place}/disks", None)
    os.mkdir(f"{place}/one/v1")
    await seen.of(f"{place}/disks", "v1")
    os.symlink("two", f"{place}/next")
    os.rename(f"{place}/next", f"{place}/disks")
    await seen.of(f"{place}/disks", None)
    await seen.settled()
    os.mkdir(f"{place}/two/v2")
    await seen.of(f"{place}/disks", "v2")
    os.mkdir(f"{place}/one/old")
    await asyncio.sleep(0.05)
    assert seen.calls == []


async def test_a_file_in_place_of_the_directory(place: str, seen: Seen, watch: Watch) -> None:
    disks = f"{place}/disks"
    Path(disks).touch()
    watcher = watch(disks)
    await until_async(lambda: watcher.problems == {disks: f"{disks}: Not a directory"})
    os.unlink(disks)
    os.mkdir(disks)
    await until_async(lambda: not watcher.problems)


async def test_several_also_one_inside_the_other(place: str, seen: Seen, watch: Watch) -> None:
    inner, beside = f"{place}/outer/inner", f"{place}/beside"
    outer = f"{place}/outer"
    os.makedirs(inner)
    os.mkdir(beside)
    watcher = watch(outer, inner, beside, outer)
    await until_async(lambda: len(seen.calls) == 3)
    await seen.settled()
    os.mkdir(f"{inner}/v")
    await seen.of(inner, "v")
    os.mkdir(f"{beside}/v")
    await seen.of(beside, "v")
    os.chmod(inner, 0o711)
    await until_async(lambda: (outer, "inner") in seen.calls)
    await seen.settled()
    shutil.rmtree(inner)
    await until_async(lambda: {(outer, "inner"), (inner, None)} <= set(seen.calls))
    await until_async(lambda: inner in watcher.problems)
    os.mkdir(inner)
    await until_async(lambda: not watcher.problems)
    await seen.settled()
    os.mkdir(f"{inner}/v")
    await seen.of(inner, "v")


@pytest.mark.needs("root")
async def test_a_mount_over_it_and_its_end(
    place: str, seen: Seen, watch: Watch, mounts: Mounts
) -> None:
    disks = f"{place}/disks"
    os.mkdir(disks)
    watcher = watch(disks)
    await seen.of(disks, None)

    mounts.tmpfs(disks)
    os.mkdir(f"{disks}/before")
    await asyncio.sleep(0.05)
    assert seen.calls == [], "inotify alone knows nothing of it"
    watcher.refresh()  # as on every wake of the mount table
    await seen.of(disks, None)
    os.mkdir(f"{disks}/v1")
    await seen.of(disks, "v1")

    mounts.umount(disks)  # our watch does not keep it busy
    await seen.of(disks, None)
    await seen.settled()
    os.mkdir(f"{disks}/underneath")
    await seen.of(disks, "underneath")


@pytest.mark.needs("root")
async def test_a_bind_mount_over_a_parent_and_its_end(
    place: str, seen: Seen, watch: Watch, mounts: Mounts
) -> None:
    """Ending a bind mount ends no filesystem: not even that is told."""
    disks = f"{place}/mnt/disks"
    os.makedirs(disks)
    os.makedirs(f"{place}/other/disks")
    watcher = watch(disks)
    await seen.of(disks, None)
    mounts.bind(f"{place}/other", f"{place}/mnt")
    watcher.refresh()
    await seen.of(disks, None)
    os.mkdir(f"{place}/other/disks/v1")
    await seen.of(disks, "v1")
    mounts.umount(f"{place}/mnt", lazily=True)
    watcher.refresh()
    await seen.of(disks, None)
    os.mkdir(f"{disks}/v2")
    await seen.of(disks, "v2")
    os.mkdir(f"{place}/other/disks/v3")
    await asyncio.sleep(0.05)
    assert seen.calls == []


async def test_refreshing_what_is_right_tells_nothing(place: str, seen: Seen, watch: Watch) -> None:
    watcher = watch(place, f"{place}/missing")
    await until_async(lambda: len(seen.calls) == 2)
    await seen.settled()
    for _ in range(5):
        watcher.refresh()
        await asyncio.sleep(0.01)
    assert seen.calls == []


async def test_events_lost_in_a_flood_mean_look_again(place: str, seen: Seen, watch: Watch) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    watch(place)
    await seen.of(place, None)
    for number in range(limit // 2 + 100):  # blocking the loop meanwhile: nothing is taken
        os.rename(place + "/a", place + "/b") if number else Path(place + "/b").touch()
        os.rename(place + "/b", place + "/a")
    await seen.of(place, None)
    await seen.settled()
    os.mkdir(f"{place}/v1")
    await seen.of(place, "v1")


async def test_the_limit_of_watches_is_a_problem_with_a_name(
    place: str, seen: Seen, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Inotify, "add_watch", full)
        watcher = watch(place)
        await until_async(lambda: "max_user_watches" in watcher.problems.get(place, ""))
    watcher.refresh()
    await until_async(lambda: not watcher.problems)
    await seen.settled()
    os.mkdir(f"{place}/v1")
    await seen.of(place, "v1")


async def test_a_directory_that_hangs_holds_up_neither_the_loop_nor_the_others(
    place: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one on a dead network mount does; the next refresh after its return finds it."""
    for name in ("dead", "good"):
        os.mkdir(f"{place}/{name}")
    os.mkfifo(f"{place}/fifo")
    real, hangs, clock = Inotify.add_watch, threading.Event(), Clock()
    let_go: list[int] = []

    def hanging(self: Inotify, path: str, mask: int) -> object:
        if path.endswith("/dead"):
            hangs.set()
            os.close(os.open(f"{place}/fifo", os.O_RDONLY))
        return real(self, path, mask)  # type: ignore[arg-type]

    monkeypatch.setattr(Inotify, "add_watch", hanging)
    workers = Workers(2)
    watcher = DirectoryWatcher(
        [f"{place}/dead", f"{place}/good"],
        seen,
        workers=workers,
        deadline_seconds=LONG,
    )
    watcher.start()
    try:
        await until_async(hangs.is_set)
        clock.move_on(LONG)
        await seen.of(f"{place}/good", None)
        assert "no answer from the host" in watcher.problems[f"{place}/dead"]
        os.mkdir(f"{place}/good/v1")
        await seen.of(f"{place}/good", "v1")
        monkeypatch.setattr(Inotify, "add_watch", real)
        watcher.refresh()
        await until_async(lambda: "still stuck" in watcher.problems[f"{place}/dead"])
        # Kept open, for a thread that is late and comes there yet.
        let_go.append(os.open(f"{place}/fifo", os.O_RDWR | os.O_NONBLOCK))
        await until_async(lambda: not workers.hung)
        watcher.refresh()
        await seen.of(f"{place}/dead", None)
        assert watcher.problems == {}
        os.mkdir(f"{place}/dead/v1")
        await seen.of(f"{place}/dead", "v1")
    finally:
        let_go.append(os.open(f"{place}/fifo", os.O_RDWR | os.O_NONBLOCK))
        watcher.close()
        os.unlink(f"{place}/fifo")  # whoever comes now is told that it is gone
        for fd in let_go:
            os.close(fd)


async def test_one_made_while_its_parents_were_being_watched(
    place: str, seen: Seen, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event comes before anybody knows what the watch is for."""
    disks = f"{place}/disks"
    loop = asyncio.get_running_loop()
    real = Inotify.add_watch

    async def turns() -> None:
        """The loop reads what there is in the second of these at the latest."""
        for _ in range(4):
            await asyncio.sleep(0)

    def late(self: Inotify, path: str, mask: int) -> object:
        try:
            return real(self, path, mask)  # type: ignore[arg-type]
        except FileNotFoundError:
            monkeypatch.setattr(Inotify, "add_watch", real)
            os.mkdir(disks)
            asyncio.run_coroutine_threadsafe(turns(), loop).result()
            raise

    monkeypatch.setattr(Inotify, "add_watch", late)
    watcher = watch(disks)
    await seen.of(disks, None)
    await until_async(lambda: not watcher.problems)
    await seen.settled()
    os.mkdir(f"{disks}/v1")
    await seen.of(disks, "v1")


@pytest.mark.parametrize(
    "how", ["renamed", pytest.param("unmounted", marks=pytest.mark.needs("root"))]
)
async def test_one_replaced_while_it_was_being_watched(
    place: str,
    seen: Seen,
    watch: Watch,
    mounts: Mounts,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unmount is told of by the directory alone, and not by the one above."""
    disks = f"{place}/disks"
    os.mkdir(disks)
    if how == "unmounted":
        mounts.tmpfs(disks)
    loop = asyncio.get_running_loop()
    real = Inotify.add_watch

    async def turns() -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    def late(self: Inotify, path: str, mask: int) -> object:
        made = real(self, path, mask)  # type: ignore[arg-type]
        if path == disks:
            monkeypatch.setattr(Inotify, "add_watch", real)
            if how == "unmounted":
                mounts.umount(disks)
            else:
                os.rename(disks, f"{place}/elsewhere")
                os.mkdir(disks)
            asyncio.run_coroutine_threadsafe(turns(), loop).result()
        return made

    monkeypatch.setattr(Inotify, "add_watch", late)
    watch(disks)
    # It is told once more, as that was of the directory that is elsewhere now.
    await until_async(lambda: seen.calls.count((disks, None)) > 1)
    await seen.settled()
    os.mkdir(f"{disks}/v1")
    await seen.of(disks, "v1")


async def test_what_could_not_be_told_for_a_directory_that_hung_is_told_later(
    place: str, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watches may be as before, and what happened is not: a flood, for one, has lost events."""
    os.mkfifo(f"{place}/fifo")
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    disks = f"{place}/disks"
    os.mkdir(disks)
    real, hangs, clock = Inotify.add_watch, threading.Event(), Clock()
    let_go: list[int] = []

    def hanging(self: Inotify, path: str, mask: int) -> object:
        if path == disks:
            hangs.set()
            os.close(os.open(f"{place}/fifo", os.O_RDONLY))
        return real(self, path, mask)  # type: ignore[arg-type]

    workers = Workers(2)
    watcher = DirectoryWatcher([disks], seen, workers=workers, deadline_seconds=LONG)
    watcher.start()
    try:
        await seen.of(disks, None)
        monkeypatch.setattr(Inotify, "add_watch", hanging)
        for number in range(limit // 2 + 100):  # blocking the loop meanwhile: nothing is taken
            os.rename(disks + "/a", disks + "/b") if number else Path(disks + "/b").touch()
            os.rename(disks + "/b", disks + "/a")
        await until_async(hangs.is_set)
        clock.move_on(LONG)
        await until_async(lambda: "no answer from the host" in watcher.problems.get(disks, ""))
        monkeypatch.setattr(Inotify, "add_watch", real)
        # Kept open, for a thread that is late and comes there yet.
        let_go.append(os.open(f"{place}/fifo", os.O_RDWR | os.O_NONBLOCK))
        await until_async(lambda: not workers.hung)
        await seen.settled()
        watcher.refresh()
        await seen.of(disks, None)
        assert watcher.problems == {}
    finally:
        let_go.append(os.open(f"{place}/fifo", os.O_RDWR | os.O_NONBLOCK))
        watcher.close()
        os.unlink(f"{place}/fifo")  # whoever comes now is told that it is gone
        for fd in let_go:
            os.close(fd)


async def test_nothing_is_left_after_closing_and_nothing_costs_when_quiet(
    place: str, seen: Seen, watch: Watch
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    watcher = watch(place)
    await seen.of(place, None)
    await until_async(lambda: cost_of_waiting(0.3), lambda seconds: seconds < 0.02)
    watcher.refresh()
    watcher.close()
    watcher.close()
    await until_async(lambda: set(os.listdir("/proc/self/fd")) <= before)
    os.mkdir(f"{place}/v1")
    await asyncio.sleep(0.05)
    assert seen.calls == []


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/a/", ""])
def test_a_path_that_is_not_absolute_and_normalised_is_refused(path: str, seen: Seen) -> None:
    with pytest.raises(ValueError):
        DirectoryWatcher([path], seen)
