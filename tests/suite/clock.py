"""The clock of a test's event loop, which the test moves on: nobody waits for a timer.

What is due by then happens in the loop's next turns. Real time passes as well, so a deadline that
is not to pass by itself has to be minutes away, however slow the machine is.
"""

import asyncio
import time
from typing import Final

LONG: Final = 600.0
"""Seconds that do not pass by themselves while a test runs, however busy the machine is."""


class Clock:
    """Of the running loop, for as long as that runs."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ahead = 0.0
        passed = loop.time
        loop.time = lambda: passed() + self._ahead  # type: ignore[method-assign]

    def move_on(self, seconds: float) -> None:
        self._ahead += seconds


async def turns() -> None:
    """Let the loop take those turns in which what is due happens."""
    for _ in range(5):
        await asyncio.sleep(0)


async def cost_of_waiting(seconds: float) -> float:
    """Processor seconds that this thread takes meanwhile; other threads may have work to do."""
    began = time.thread_time()
    await asyncio.sleep(seconds)
    return time.thread_time() - began
