"""The pools of an agent while its configuration changes: what is under way ends, and goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.model import BackendFailed, GoesOn, PoolReport, Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.pools import COPIERS, Pools
from localvolume.host.process.workers import Workers
from tests.host.support_devices import filesystem
from tests.host.support_pools import ON_EXT4, config_of, store_in, wish
from tests.suite.until import until_async

SECONDS = 60.0
"""More than anything here takes, and less than what was stopped would have taken."""


@pytest.fixture
def where() -> Iterator[Path]:
    with filesystem("ext4") as where:
        yield where


@asynccontextmanager
async def opened(*configs: PoolConfig, limit: int = 4) -> AsyncIterator[Pools]:
    """Pools as the agent has them."""
    workers = Workers(limit)
    pools = Pools(workers)
    pools.configure(configs, [])
    try:
        yield pools
    finally:
        pools.close()
        workers.close()


def unheard(_files: int, _size: int) -> None:
    """Nobody listens to what a purge tells of its progress."""


async def report(pools: Pools) -> PoolReport:
    (pool,) = await pools.look()
    return pool.report


async def removed(pools: Pools, config: PoolConfig, where: Path, files: int) -> Record:
    """A volume in the trash, with that many files in it."""
    made = await make(pools, config, wish())
    offered = await pools.call(config, made.name, lambda store: store.offered(made))
    for number in range(files):
        (where / "pvc-1" / f"file-{number}").write_text("x")
    gone: Record = await pools.call(config, made.name, lambda store: store.retire(offered))
    return gone


async def make(pools: Pools, config: PoolConfig, record: Record) -> Record:
    return await pools.call(config, record.name, lambda store: store.make(record))


@ON_EXT4
async def test_a_purge_makes_way_for_a_new_configuration_and_goes_on_with_it(where: Path) -> None:
    slow = config_of(where, purge_files_per_second=1.0)
    async with opened(slow) as pools:
        assert (await report(pools)).problem == ""
        gone = await removed(pools, slow, where, files=300)
        trash = where / ".localvolume/trash" / gone.trash

        def purge(config: PoolConfig) -> asyncio.Task[None]:
            return asyncio.create_task(pools.purge(config, gone, unheard))

        purging = purge(slow)
        await until_async(lambda: len(list(trash.iterdir())), lambda left: left < 300)
        fast = replace(slow, purge_files_per_second=None, reserve_bytes=1 << 20)
        pools.configure([fast], [])
        with pytest.raises(GoesOn, match="configured otherwise"):
            await asyncio.wait_for(purging, SECONDS)
        assert trash.exists()
        found = await report(pools)
        assert (found.problem, found.records) == ("", {"pvc-1": gone})
        # Something can be made there at once.
        await make(pools, fast, wish("pvc-2"))
        await asyncio.wait_for(purge(fast), SECONDS)
        assert set((await report(pools)).records) == {"pvc-2"}
        assert not trash.exists()


@ON_EXT4
async def test_a_purge_that_is_told_to_stop_is_no_news_of_the_configuration(where: Path) -> None:
    slow = config_of(where, purge_files_per_second=1.0)
    async with opened(slow) as pools:
        gone = await removed(pools, slow, where, files=300)
        trash = where / ".localvolume/trash" / gone.trash
        purging = asyncio.create_task(pools.purge(slow, gone, unheard))
        # One that has not begun yet would find its pool closed, which is the configuration's doing.
        await until_async(lambda: len(list(trash.iterdir())), lambda left: left < 300)
        pools.stop_purges()
        pools.configure([replace(slow, purge_files_per_second=None)], [])
        with pytest.raises(BackendFailed) as refused:
            await asyncio.wait_for(purging, SECONDS)
        assert not isinstance(refused.value, GoesOn)


@ON_EXT4
async def test_an_agent_that_ends_begins_no_purge(where: Path) -> None:
    """Nor in a pool that is opened only then."""
    slow = config_of(where, purge_files_per_second=1.0)
    async with opened(slow) as pools:
        gone = await removed(pools, slow, where, files=300)
        pools.stop_purges()
        other = replace(slow, reserve_bytes=1 << 20)
        pools.configure([other], [])
        with pytest.raises(BackendFailed):
            await asyncio.wait_for(pools.purge(other, gone, unheard), SECONDS)
        assert len(list((where / ".localvolume/trash" / gone.trash).iterdir())) == 300


@ON_EXT4
async def test_what_waits_for_a_worker_does_not_open_a_closed_pool(where: Path) -> None:
    config = config_of(where)
    async with opened(config, limit=1) as pools:
        busy, end = threading.Event(), threading.Event()

        def occupy() -> None:
            busy.set()
            assert end.wait(SECONDS)

        first = asyncio.create_task(pools._workers.call("else", SECONDS, occupy))
        await until_async(busy.is_set)
        waiting = asyncio.create_task(make(pools, config, wish()))
        await asyncio.sleep(0)
        pools.configure([], [])
        end.set()
        await first
        with pytest.raises(GoesOn):
            await waiting
        with store_in(where) as other:
            assert other.look().problem == ""
            assert other.look().records == {}


@ON_EXT4
async def test_what_is_on_its_way_into_a_pool_leaves_it_closed_in_the_end(where: Path) -> None:
    config = config_of(where)
    async with opened(config) as pools:

        def late(store: Any) -> str:
            pools.close()
            # It had been asked to before, and opens it anew.
            return str(store.look().problem)

        assert pools._in_store("pool", late)() == ""
        with store_in(where) as other:
            assert other.look().problem == ""


@ON_EXT4
async def test_what_cannot_be_attached_is_said_when_it_is_new(
    where: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(where)
    async with opened(config) as pools:
        for name in ("pvc-1", "pvc-2"):
            await make(pools, config, wish(name))
    caplog.set_level(logging.ERROR)

    def said() -> list[str]:
        found = [
            one.getMessage().split(":")[1].split()[0]
            for one in caplog.records
            if one.name.startswith("localvolume.")
        ]
        caplog.clear()
        return found

    (where / "pvc-1").rename(where / "away-1")
    async with opened(config) as pools:
        await pools.look()
        assert said() == ["pvc-1"]
        await pools.look()
        assert said() == []
        (where / "pvc-2").rename(where / "away-2")
        await pools.look()
        assert said() == ["pvc-2"]
        (where / "away-1").rename(where / "pvc-1")
        (where / "away-2").rename(where / "pvc-2")
        await pools.look()
        (where / "pvc-1").rename(where / "away-1")
        await pools.look()
        # All of them are attached: they are not looked at again.
        assert said() == []


async def test_calls_about_one_volume_take_turns_and_those_that_read_it_too(tmp_path: Path) -> None:
    config = config_of(tmp_path, must_be_mounted=False)
    free, done = threading.Event(), []

    async with opened(config) as pools:

        async def call(name: str, said: str, origin: str = "") -> None:
            def act(_: object) -> None:
                if said == "first":
                    assert free.wait(SECONDS)
                done.append(said)

            await pools.call(config, name, act, origin=origin)

        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            try:
                for words in (
                    ("pvc-1", "first"),
                    ("pvc-1", "again"),
                    ("copy", "reads it", "pvc-1"),
                    ("a copy", "reads it, too", "pvc-1"),
                    ("a copy", "after its copy"),
                ):
                    tasks.create_task(call(*words))
                    await asyncio.sleep(0)
                # A thread would be free for each of them.
                await call("pvc-2", "another")
                await call("pvc-3", "one more", "pvc-2")
            finally:
                free.set()
    assert done[:3] == ["another", "one more", "first"]
    assert sorted(done[3:]) == sorted(["again", "reads it", "reads it, too", "after its copy"])
    assert done.index("reads it, too") < done.index("after its copy")


@ON_EXT4
async def test_full_copies_wait_for_each_other_and_hold_up_no_one_meanwhile(where: Path) -> None:
    """However long one takes: what waits behind it leaves the volume alone that it copies."""
    config = config_of(where)
    end = threading.Event()
    begun: list[int] = []
    async with opened(config) as pools:
        await pools.look()

        async def copy(number: int) -> None:
            def act(_: object) -> None:
                begun.append(number)
                end.wait()

            await pools.call(config, f"copy-{number}", act, origin=f"pvc-{number}", in_full=True)

        copies = [asyncio.create_task(copy(number)) for number in range(COPIERS + 1)]
        await until_async(lambda: len(begun), lambda running: running == COPIERS)
        # This one's copy waits.
        assert await pools.call(config, f"pvc-{COPIERS}", lambda _: "used") == "used"
        # And those whose copies are made wait for that.
        used = asyncio.create_task(pools.call(config, "pvc-0", lambda _: end.is_set()))
        for other in range(3):
            # Each of these was asked for later, and has its turn.
            assert await pools.call(config, f"other-{other}", lambda _: "other") == "other"
        assert not used.done()
        end.set()
        assert await used
        await asyncio.gather(*copies)


async def test_copies_that_hang_hold_up_no_other_pool(tmp_path: Path) -> None:
    """Neither its copies nor its other calls, though no thread of an agent is left over."""
    stuck = [
        config_of(tmp_path / name, name=name, must_be_mounted=False) for name in ("bad", "worse")
    ]
    good = config_of(tmp_path / "good", name="good", must_be_mounted=False)
    for config in (*stuck, good):
        Path(config.mount_dir).mkdir()
    end = threading.Event()
    begun: list[str] = []
    async with opened(*stuck, good, limit=COPIERS) as pools:

        async def copy(config: PoolConfig, number: int) -> None:
            def act(_: object) -> None:
                begun.append(config.name)
                end.wait()

            await pools.call(config, f"copy-{number}", act, in_full=True)

        copies = [
            asyncio.create_task(copy(config, number))
            for config in stuck
            for number in range(COPIERS)
        ]
        try:
            await until_async(lambda: len(begun), lambda running: running == 2 * COPIERS)
            async with asyncio.timeout(SECONDS):
                assert await pools.call(good, "copy", lambda _: "done", in_full=True) == "done"
                assert await pools.call(good, "pvc-1", lambda _: "used") == "used"
        finally:
            end.set()
            await asyncio.gather(*copies)


async def test_between_two_parts_of_a_copy_others_have_their_turns(tmp_path: Path) -> None:
    """In the order in which they asked, however many parts there are."""
    config = config_of(tmp_path, must_be_mounted=False)
    done: list[str] = []
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def copy(_: object) -> str:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(SECONDS)
        done.append("a part")
        if len(done) < 4:
            raise GoesOn("there is more")
        return "copied"

    async with opened(config) as pools, asyncio.timeout(SECONDS):
        copying = asyncio.create_task(
            pools.call(config, "copy", copy, origin="pvc-1", in_full=True)
        )
        try:
            await begun.wait()
            used = asyncio.create_task(pools.call(config, "pvc-1", lambda _: done.append("used")))
            await asyncio.sleep(0)
        finally:
            go_on.set()
        assert await copying == "copied"
        await used
    assert done == ["a part", "used", "a part", "a part"]
