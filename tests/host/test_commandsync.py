"""Host commands of a worker thread whose loop ends."""

import asyncio
import concurrent.futures
import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localvolume.host.commandsync import on_loop


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
        began = time.monotonic()
        asked = pool.submit(on_loop(loop), ["true"], 60)
        assert loop.handed.wait(10)
        loop.close()
        with pytest.raises(OSError, match="the agent is ending") as error:
            asked.result(50)
    assert error.value.errno == errno.ECANCELED
    assert time.monotonic() - began < 30


def test_a_loop_that_is_closed_while_a_command_is_handed_over(loop: Loop) -> None:
    loop.before = loop.close
    with pytest.raises(OSError, match="the agent is ending") as error:
        on_loop(loop)(["true"], 60)
    assert error.value.errno == errno.ECANCELED
