"""Changes of the configuration are noticed as they really happen on a node."""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from asyncinotify import Inotify, Mask, Watch

from localvolume.config import loading
from localvolume.config.watcher import ConfigWatcher

NOTICED_SECONDS = 60.0
QUIET_SECONDS = 0.5
ABOUT_ONE_BURST = 2
"""Bursts are settled for 100 ms; a slow machine may spread one over two."""


class Calls:
    """Counts callbacks and lets a test wait for one."""

    def __init__(self) -> None:
        self.count = 0
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._event.set()

    async def next(self) -> None:
        async with asyncio.timeout(NOTICED_SECONDS):
            await self._event.wait()
        self._event.clear()

    async def settle(self) -> int:
        """Wait until nothing more comes, and return how many came in all."""
        while True:
            before = self.count
            await asyncio.sleep(QUIET_SECONDS)
            if self.count == before:
                self._event.clear()
                return before


@contextlib.asynccontextmanager
async def watching(directory: Path, **seconds: float) -> AsyncIterator[Calls]:
    calls = Calls()
    config_watcher = ConfigWatcher(str(directory), calls, **seconds)
    config_watcher.start()
    task = asyncio.create_task(config_watcher.run())
    try:
        yield calls
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def config(tmp_path: Path) -> Path:
    directory = tmp_path / "etc" / "config"
    directory.mkdir(parents=True)
    return directory


def kubelet_writes(directory: Path, **files: str) -> None:
    """Write a ConfigMap volume as the kubelet's AtomicWriter does, step by step."""
    old = os.readlink(directory / "..data") if (directory / "..data").is_symlink() else None
    number = int(old.rpartition("_")[2]) + 1 if old else 0
    data = directory / f"..2026_11_21_{number}"
    data.mkdir()
    for name, text in files.items():
        (data / name).write_text(text)
    (directory / "..data_tmp").symlink_to(data.name)
    os.rename(directory / "..data_tmp", directory / "..data")
    for name in files:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in files:
            entry.unlink()
    if old:
        shutil.rmtree(directory / old)


async def test_the_kubelets_exchange_is_noticed_every_time(config: Path) -> None:
    kubelet_writes(config, useAlphaAPI="false")
    async with watching(config) as calls:
        for value in ("true", "false", "true"):
            before = calls.count
            kubelet_writes(config, useAlphaAPI=value)
            await calls.next()
            assert loading.load(str(config)).use_alpha_api is (value == "true")
            assert await calls.settle() - before <= ABOUT_ONE_BURST
        kubelet_writes(config, useNodeNameOnly="true")
        await calls.next()
        await calls.settle()
        assert loading.load(str(config)).use_node_name_only
        assert not loading.load(str(config)).use_alpha_api


async def test_an_edit_in_place_is_noticed(config: Path) -> None:
    (config / "useAlphaAPI").write_text("false")
    async with watching(config) as calls:
        (config / "useAlphaAPI").write_text("true")
        await calls.next()
        assert loading.load(str(config)).use_alpha_api


async def test_a_file_still_being_written_is_not_read(config: Path) -> None:
    (config / "useAlphaAPI").write_text("false")
    async with watching(config) as calls:
        with open(config / "useAlphaAPI", "w") as file:
            file.write("tr")
            file.flush()
            assert await calls.settle() == 0
            file.write("ue")
        await calls.next()


async def test_an_editors_rename_over_is_noticed(config: Path) -> None:
    (config / "useAlphaAPI").write_text("false")
    async with watching(config) as calls:
        new = config / ".useAlphaAPI.new"
        new.write_text("true")
        new.rename(config / "useAlphaAPI")
        await calls.next()
        await calls.settle()
        assert loading.load(str(config)).use_alpha_api


async def test_a_new_and_a_removed_file_are_noticed(config: Path) -> None:
    async with watching(config) as calls:
        (config / "useAlphaAPI").write_text("true")
        await calls.next()
        await calls.settle()
        (config / "useAlphaAPI").unlink()
        await calls.next()


async def test_a_file_linked_from_elsewhere_is_noticed(config: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "alpha").write_text("false")
    (config / "useAlphaAPI").symlink_to(elsewhere / "alpha")
    async with watching(config) as calls:
        (elsewhere / "alpha").write_text("true")
        await calls.next()


async def test_a_file_linked_from_the_parent_is_noticed(config: Path) -> None:
    (config.parent / "alpha").write_text("false")
    (config / "useAlphaAPI").symlink_to("../alpha")
    async with watching(config) as calls:
        (config.parent / "alpha").write_text("true")
        await calls.next()


async def test_a_directory_that_comes_later_is_noticed(tmp_path: Path) -> None:
    config = tmp_path / "a" / "b" / "config"
    async with watching(config) as calls:
        config.parent.mkdir(parents=True)
        await calls.settle()
        config.mkdir()
        await calls.next()
        await calls.settle()
        (config / "useAlphaAPI").write_text("true")
        await calls.next()
        assert loading.load(str(config)).use_alpha_api


async def test_a_whole_tree_that_comes_at_once_is_noticed(tmp_path: Path) -> None:
    config = tmp_path / "a" / "b" / "config"
    async with watching(config) as calls:
        config.mkdir(parents=True)
        (config / "useAlphaAPI").write_text("true")
        await calls.next()
        await calls.settle()
        (config / "useAlphaAPI").write_text("false")
        await calls.next()


async def test_a_directory_that_comes_just_before_its_parent_is_watched_is_watched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    real = Inotify.add_watch

    def add_watch(self: Inotify, path: str, mask: Mask) -> Watch:
        config.mkdir(exist_ok=True)
        return real(self, path, mask)

    monkeypatch.setattr(Inotify, "add_watch", add_watch)
    async with watching(config) as calls:
        (config / "useAlphaAPI").write_text("true")
        await calls.next()


async def test_a_directory_replaced_by_another_is_noticed_and_watched(config: Path) -> None:
    async with watching(config) as calls:
        config.rename(config.with_name("old"))
        config.mkdir()
        (config / "useAlphaAPI").write_text("true")
        await calls.next()
        await calls.settle()
        (config / "useAlphaAPI").write_text("false")
        await calls.next()
        await calls.settle()
        shutil.rmtree(config)
        await calls.next()
        await calls.settle()
        config.mkdir()
        await calls.next()


async def test_a_link_to_the_directory_that_is_changed_is_noticed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "config").symlink_to("one")
    async with watching(tmp_path / "config") as calls:
        (tmp_path / "link").symlink_to("two")
        (tmp_path / "link").rename(tmp_path / "config")
        await calls.next()
        await calls.settle()
        (tmp_path / "two" / "useAlphaAPI").write_text("true")
        await calls.next()


async def test_neighbours_and_reading_are_no_change(config: Path) -> None:
    (config / "useAlphaAPI").write_text("true")
    async with watching(config) as calls:
        for number in range(5):
            (config.parent / f"neighbour{number}").write_text("x")
            loading.load(str(config))
        assert await calls.settle() == 0


async def test_a_change_between_start_and_run_is_not_lost(config: Path) -> None:
    calls = Calls()
    config_watcher = ConfigWatcher(str(config), calls)
    config_watcher.start()
    (config / "useAlphaAPI").write_text("true")
    task = asyncio.create_task(config_watcher.run())
    try:
        await calls.next()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    config_watcher.close()


async def test_a_period_calls_without_a_change(config: Path) -> None:
    async with watching(config, period=0.2) as calls:
        await calls.next()
        await calls.next()
    assert calls.count >= 2


@pytest.mark.needs("root", "mount")
async def test_a_mount_over_the_directory_is_seen_after_refresh(config: Path) -> None:
    calls = Calls()
    config_watcher = ConfigWatcher(str(config), calls)
    task = asyncio.create_task(config_watcher.run())
    mounted = False
    try:
        await asyncio.sleep(0)
        subprocess.run(["mount", "-t", "tmpfs", "config-test", config], check=True)
        mounted = True
        config_watcher.refresh()
        await calls.next()
        await calls.settle()
        (config / "useAlphaAPI").write_text("true")
        await calls.next()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if mounted:
            subprocess.run(["umount", config], check=True)


def own(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the watcher said: asyncio may tell of what an earlier test left behind."""
    return [one for one in caplog.records if one.name.startswith("localvolume.")]


async def test_without_inotify_it_polls_and_says_so(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(_: Inotify) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Inotify, "__init__", none_left)
    with caplog.at_level(logging.WARNING):
        async with watching(config, fallback_seconds=0.1) as calls:
            await calls.next()
            await calls.next()
    (record,) = own(caplog)
    assert "no inotify watch (Too many open files)" in record.message


async def test_without_watches_it_polls_until_there_are_some_again(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Inotify.add_watch
    refuse = True

    def add_watch(self: Inotify, path: str, mask: Mask) -> Watch:
        if refuse:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, path, mask)

    monkeypatch.setattr(Inotify, "add_watch", add_watch)
    async with watching(config, fallback_seconds=0.1) as calls:
        await calls.next()
        await calls.next()
        refuse = False
        await calls.next()
        await calls.settle()
        (config / "useAlphaAPI").write_text("true")
        await calls.next()
    assert len(own(caplog)) == 1
