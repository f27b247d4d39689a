"""Host commands of a worker thread whose loop ends."""

import asyncio
import concurrent.futures
import contextlib
import errno
import gc
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.process.commandsync import on_loop
from tests.suite.clock import LONG
from tests.suite.until import until


class Loop(asyncio.SelectorEventLoop):
    """It tells when something was handed to it, and can be closed at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.handed = threading.Event()
        self.before: Callable[[], None] = lambda: None

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> asyncio.Handle:  # type: ignore[override]
        self.before()
        handle = super().call_soon_threadsafe(*args, **kwargs)
        self.handed.set()
        return handle


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop that does not run."""
    with contextlib.closing(Loop()) as loop:
        yield loop


def test_a_loop_that_is_closed_before_it_comes_to_a_command(loop: Loop) -> None:
    """Nothing that it was handed last is run, answered or cancelled by it."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(on_loop(loop), ["true"], LONG)
        assert loop.handed.wait(120)
        loop.close()
        with pytest.raises(OSError, match="the agent is ending") as error:
            # Long before the command's own time is over.
            asked.result(120)
    assert error.value.errno == errno.ECANCELED


def test_a_program_that_is_waited_for_by_a_closed_loop_is_ended(
    loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop came to it after it had cancelled what was to be cancelled, and ends without it."""
    said = tmp_path / "pid"
    # What other tests have left complains now, if it does.
    gc.collect()
    caplog.clear()

    async def begun() -> None:
        while not (said.exists() and said.read_text()):
            await asyncio.sleep(0.01)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(on_loop(loop), ["sh", "-c", f"echo $$ >{said}; exec sleep 1000"], LONG)
        loop.run_until_complete(asyncio.wait_for(begun(), 120))
        loop.close()
        with pytest.raises(OSError, match="the agent is ending") as error:
            asked.result(120)
    assert error.value.errno == errno.ECANCELED
    until(lambda: Path("/proc", said.read_text().strip()).exists(), lambda there: not there)
    # What Python collects of it has nothing more to say: as an exception it would fail this test.
    del asked, error
    gc.collect()
    assert caplog.messages == []


def test_a_loop_that_is_closed_while_a_command_is_handed_over(loop: Loop) -> None:
    loop.before = loop.close
    with pytest.raises(OSError, match="the agent is ending") as error:
        on_loop(loop)(["true"], 60)
    assert error.value.errno == errno.ECANCELED


def test_a_program_that_cannot_be_read_in_time_is_no_busy_agent(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies on a server that does not answer: starting it ends with ETIMEDOUT."""

    def times_out(*_: Any, **__: Any) -> Any:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    program = tmp_path / "program"
    program.touch(mode=0o755)
    monkeypatch.setattr(subprocess, "Popen", times_out)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with pytest.raises(OSError, match="timed out") as error:
            on_loop(loop)([str(program)], 60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    assert error.value.errno == errno.ETIMEDOUT
