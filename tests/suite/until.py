"""Wait until something is so: the one way in which tests wait for what comes in its own time.

The bound on how long is a sanity bound, and longer on a slow machine (speed.py). A test whose
subject is that something comes in time has to say so itself, with `asyncio.timeout` or a clock.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from time import monotonic, sleep
from typing import Any, TypeVar, overload

from tests.suite import speed

T = TypeVar("T")

#: Of what was last read, so many characters are shown: half from its start, half from its end.
_SHOWN = 6000


def until(
    read: Callable[[], T],
    wanted: Callable[[T], object] = bool,
    *,
    seconds: float = 90,
    every: float = 0.1,
    check: Callable[[], object] | None = None,
    said: Callable[[], str] | None = None,
) -> T:
    """What `read` returns once it is `wanted`; AssertionError where it is not after `seconds`.

    It is read ever less often: at last `every` so many seconds. After each reading that was not
    as wanted, `check` may raise what makes waiting pointless. What is `said`, such as somebody's
    log, is told beside what was last read.
    """
    __tracebackhide__ = True
    wait = _Wait(seconds, every, said)
    while not wanted(last := read()):
        if check is not None:
            check()
        sleep(wait.pause_after(last))
    return last


@overload
async def until_async(
    read: Callable[[], Awaitable[T]],
    wanted: Callable[[T], object] = bool,
    *,
    seconds: float = 90,
    every: float = 0.02,
    check: Callable[[], object] | None = None,
    said: Callable[[], str] | None = None,
) -> T: ...


@overload
async def until_async(
    read: Callable[[], T],
    wanted: Callable[[T], object] = bool,
    *,
    seconds: float = 90,
    every: float = 0.02,
    check: Callable[[], object] | None = None,
    said: Callable[[], str] | None = None,
) -> T: ...


async def until_async(
    read: Callable[[], Any],
    wanted: Callable[[Any], object] = bool,
    *,
    seconds: float = 90,
    every: float = 0.02,
    check: Callable[[], object] | None = None,
    said: Callable[[], str] | None = None,
) -> Any:
    """`until`, for what happens on the event loop; `read` may be a coroutine function.

    It reads more often, since most of what is read this way is in this process.
    """
    __tracebackhide__ = True
    wait = _Wait(seconds, every, said)
    while True:
        last = read()
        if inspect.isawaitable(last):
            # One reading that hangs is an end, too.
            async with asyncio.timeout(wait.seconds):
                last = await last
        if wanted(last):
            return last
        if check is not None:
            check()
        await asyncio.sleep(wait.pause_after(last))


class _Wait:
    """How long one wait has lasted, and how long it is to pause."""

    def __init__(self, seconds: float, every: float, said: Callable[[], str] | None) -> None:
        self.seconds = seconds * speed.factor()
        self._every = every
        self._said = said
        self._began = self._looked = monotonic()
        self._pause = every / 5

    def pause_after(self, last: object) -> float:
        """For how long to sleep before the next reading. Fails where this one was the last.

        Only one that began after the time was over is: this process may have been held up.
        """
        __tracebackhide__ = True
        if self._looked - self._began > self.seconds:
            raise AssertionError(self._failure(last))
        pause, self._pause = self._pause, min(self._pause * 1.5, self._every)
        self._looked = monotonic() + pause
        return pause

    def _failure(self, last: object) -> str:
        lasted = monotonic() - self._began
        lines = [f"not so after {lasted:.1f} s; last read: {_cut(repr(last))}"]
        if self._said is not None:
            lines.append(self._said())
        return "\n".join(lines)


def _cut(text: str) -> str:
    left_out = len(text) - _SHOWN
    if left_out <= 0:
        return text
    half = _SHOWN // 2
    return f"{text[:half]} ... {left_out} characters ... {text[-half:]}"
