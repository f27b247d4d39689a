"""Host calls that hang for real: in the kernel, on a FIFO nobody writes to, on a frozen disk."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from localvolume.host.process.workers import AllHung, Hung, Workers
from tests.host.support_devices import formatted, mounted
from tests.suite.clock import LONG, Clock
from tests.suite.until import until_async


class Fifos:
    """FIFOs that hang who opens them; all are let go in the end."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._made: list[str] = []
        self._held: list[int] = []

    def make(self) -> str:
        path = str(self._place / f"fifo-{len(self._made)}")
        os.mkfifo(path)
        self._made.append(path)
        return path

    def let_go(self, path: str) -> None:
        """Let those who wait at this FIFO go on, and a thread that is late and comes there yet."""
        self._held.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    def let_all_go(self) -> None:
        for path in self._made:
            self.let_go(path)

    def end(self) -> None:
        self.let_all_go()
        for path in self._made:
            os.unlink(path)  # whoever comes now is told that it is gone
        for fd in self._held:
            os.close(fd)


def open_and_close(path: str) -> str:
    """Open as a careless probe would: on a FIFO this waits for a writer, in the kernel."""
    os.close(os.open(path, os.O_RDONLY))
    return path


@pytest.fixture
def fifos(tmp_path: Path) -> Iterator[Fifos]:
    made = Fifos(tmp_path)
    yield made
    made.end()


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    made = Workers(4)
    yield made
    made.close()


async def test_what_a_call_returns_and_raises_comes_back(workers: Workers) -> None:
    assert await workers.call("k", LONG, divmod, 17, 5) == (3, 2)
    with pytest.raises(FileNotFoundError):
        await workers.call("k", LONG, os.stat, "/no/such/thing")

    def exits() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await workers.call("k", LONG, exits)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await workers.call("k", LONG, next, iter(()))
    assert await workers.call("k", LONG, str, 1) == "1", "the threads survived all that"
    assert (workers.running, workers.waiting, workers.hung) == (0, 0, {})


async def test_calls_run_in_other_threads_and_no_more_than_the_limit(workers: Workers) -> None:
    barrier = threading.Barrier(4, timeout=LONG)
    lock = threading.Lock()
    running, most = 0, 0

    def work() -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait()  # passes only when four run at once
        with lock:
            running -= 1
        return threading.get_ident()

    threads = await asyncio.gather(*(workers.call(f"k{n}", LONG, work) for n in range(20)))
    assert most == 4
    assert threading.get_ident() not in threads
    assert len(set(threads)) <= 4


async def test_a_hanging_call_is_given_up_at_its_deadline(workers: Workers, fifos: Fifos) -> None:
    began = time.monotonic()
    with pytest.raises(Hung, match=r"disk-1: no answer from the host within 0\.1 s") as caught:
        await workers.call("disk-1", 0.1, open_and_close, fifos.make())
    assert 0.1 <= time.monotonic() - began < 30
    assert (caught.value.key, caught.value.seconds) == ("disk-1", 0.1)
    assert workers.hung == {"disk-1": 1}
    assert workers.hung_total == 1


async def test_its_key_fails_at_once_until_it_returns_others_go_on(
    workers: Workers, fifos: Fifos
) -> None:
    path = fifos.make()
    with pytest.raises(Hung):
        await workers.call("disk-1", 0.05, open_and_close, path)
    threads = set(threading.enumerate())
    began = time.monotonic()
    for _ in range(100):
        with pytest.raises(Hung, match="still stuck"):
            await workers.call("disk-1", 60, open_and_close, path)
    assert time.monotonic() - began < 30
    assert set(threading.enumerate()) <= threads, "no thread was spent on them"
    assert await workers.call("disk-2", LONG, str, 2) == "2"

    fifos.let_go(path)
    await until_async(lambda: not workers.hung)
    assert await workers.call("disk-1", LONG, str, 1) == "1"


async def test_what_hangs_is_replaced_so_that_the_limit_stays(
    workers: Workers, fifos: Fifos
) -> None:
    hanging = [workers.call(f"dead-{n}", 0.1, open_and_close, fifos.make()) for n in range(12)]
    outcomes = await asyncio.gather(*hanging, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Hung] * 12
    barrier = threading.Barrier(4, timeout=LONG)
    await asyncio.gather(*(workers.call(f"good-{n}", LONG, barrier.wait) for n in range(4)))


async def test_no_more_than_the_limit_wait_for_work_after_the_stuck_ones_return(
    fifos: Fifos,
) -> None:
    workers = Workers(2)
    before = set(threading.enumerate())
    hanging = [workers.call(f"dead-{n}", 0.05, open_and_close, fifos.make()) for n in range(6)]
    await asyncio.gather(*hanging, return_exceptions=True)
    assert len(set(threading.enumerate()) - before) == 6
    fifos.let_all_go()
    await until_async(lambda: not workers.hung)
    await until_async(lambda: len(set(threading.enumerate()) - before) <= 2)
    workers.close()
    await until_async(lambda: not set(threading.enumerate()) - before)


async def test_replacements_end_and_then_calls_fail_at_once(fifos: Fifos) -> None:
    workers = Workers(2, abandoned=3)
    before = set(threading.enumerate())
    paths = [fifos.make() for _ in range(5)]
    for number, path in enumerate(paths[:4]):
        with pytest.raises(Hung):
            await workers.call(f"dead-{number}", 0.05, open_and_close, path)
    # Three were replaced, the fourth was not: one thread is left, for any other key.
    assert await workers.call("good", LONG, str, 1) == "1"

    hanging = asyncio.create_task(workers.call("dead-4", 0.2, open_and_close, paths[4]))
    waiting = asyncio.create_task(workers.call("good", LONG, str, 1))
    with pytest.raises(Hung):
        await hanging
    with pytest.raises(AllHung, match="all 5 worker threads are stuck"):
        await waiting
    with pytest.raises(AllHung):
        await workers.call("good", LONG, str, 1)
    assert len(set(threading.enumerate()) - before) == 5

    fifos.let_go(paths[0])
    await until_async(lambda: "dead-0" not in workers.hung)
    assert await workers.call("good", LONG, str, 1) == "1"
    workers.close()


async def test_a_call_of_a_key_that_hangs_while_it_waits_is_not_begun(fifos: Fifos) -> None:
    workers = Workers(1)
    begun = threading.Event()
    first = asyncio.create_task(workers.call("disk", 0.1, open_and_close, fifos.make()))
    second = asyncio.create_task(workers.call("disk", 0.1, begun.set))
    with pytest.raises(Hung):
        await first
    with pytest.raises(Hung, match="still stuck"):
        await second
    assert not begun.is_set()
    workers.close()


async def test_waiting_does_not_count_against_the_deadline(fifos: Fifos) -> None:
    workers = Workers(1)
    clock = Clock()
    path = fifos.make()
    first = asyncio.create_task(workers.call("a", 4 * LONG, open_and_close, path))
    second = asyncio.create_task(workers.call("b", LONG, str, 1))
    await until_async(lambda: workers.waiting == 1)
    clock.move_on(2 * LONG)
    fifos.let_go(path)
    assert await second == "1"
    await first
    workers.close()


async def test_cancelling_frees_the_caller_and_the_place_when_the_call_ends(fifos: Fifos) -> None:
    workers = Workers(1)
    clock = Clock()
    path = fifos.make()
    task = asyncio.create_task(workers.call("disk", LONG, open_and_close, path))
    await until_async(lambda: workers.running == 1)
    waiting = asyncio.create_task(workers.call("other", LONG, str, 1))
    await until_async(lambda: workers.waiting == 1)
    waiting.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert workers.running == 1, "it still runs, and still has a deadline"
    assert workers.waiting == 0
    clock.move_on(LONG)
    await until_async(lambda: workers.hung == {"disk": 1})
    assert await workers.call("other", LONG, str, 1) == "1"
    fifos.let_go(path)
    await until_async(lambda: not workers.hung)
    assert workers.running == 0
    workers.close()


async def test_idle_threads_end() -> None:
    workers = Workers(3, idle_seconds=0.05)
    barrier = threading.Barrier(3, timeout=LONG)

    def together() -> threading.Thread:
        barrier.wait()
        return threading.current_thread()

    used = await asyncio.gather(*(workers.call(f"k{n}", LONG, together) for n in range(3)))
    assert len(set(used)) == 3
    await until_async(lambda: not any(thread.is_alive() for thread in used))
    assert await workers.call("k", LONG, str, 1) == "1"


async def test_nothing_is_kept_alive_after_the_call(workers: Workers) -> None:
    class Big:
        pass

    gone = threading.Event()

    def work(big: Big) -> Big:
        return big

    big = Big()
    weakref.finalize(big, gone.set)
    await workers.call("k", LONG, work, big)
    del big

    def is_gone() -> bool:
        gc.collect()
        return gone.is_set()

    # Its thread lets go of it after it has told the result.
    await until_async(is_gone)


def test_a_hanging_call_does_not_hold_up_the_end_of_the_process(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = """
import asyncio, os, sys
from localvolume.host.process.workers import Hung, Workers
async def main():
    workers = Workers()
    for key in "abc":
        try:
            await workers.call(key, 0.05, os.open, sys.argv[1], os.O_RDONLY)
        except Hung as hung:
            print(hung.key, flush=True)
    asyncio.get_running_loop().create_task(workers.call("d", 60, os.open, sys.argv[1], os.O_RDONLY))
    await asyncio.sleep(0.05)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "fifo")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\nb\nc\n", "")


@pytest.mark.needs("root", "loop", "ext4")
async def test_a_disk_that_stops_answering(workers: Workers) -> None:
    """Writes to a frozen filesystem hang uninterruptibly, as they do on a dead disk."""

    def write(path: Path) -> None:
        path.write_text("x")

    with formatted("ext4") as device, mounted(device) as place:
        subprocess.run(["fsfreeze", "--freeze", str(place)], check=True)
        try:
            with pytest.raises(Hung):
                await workers.call("frozen", 0.2, write, place / "file")
            with pytest.raises(Hung):
                await workers.call("frozen", 60, write, place / "file")
            assert await workers.call("another", LONG, str, 1) == "1"
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", str(place)], check=True)
        await until_async(lambda: not workers.hung)
        await workers.call("frozen", LONG, write, place / "file")
        assert (place / "file").read_text() == "x"
