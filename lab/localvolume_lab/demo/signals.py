"""Signals that ask the demo to end: an exception where nothing waits, a cancellation where it does.

At any moment one of three things holds: a signal raises Interrupted, or it cancels the main task,
or (while everything is being removed) it is ignored. In the instants between them it may end the
process at once: then the keeper removes what there is.
"""

from __future__ import annotations

import asyncio
import signal
import types
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked us to end; not an Exception, so that nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


def _heeded() -> list[signal.Signals]:
    """All but those that whoever started us wants ignored: nohup, a script's background job."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def raise_interrupted() -> None:
    """From now on a signal raises Interrupted, wherever the main thread is."""

    def handler(number: int, _frame: types.FrameType | None) -> None:
        raise Interrupted(number)

    for number in _heeded():
        signal.signal(number, handler)


def ignore() -> None:
    """From now on they are ignored: what is being removed is removed."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def run_interruptibly(main: Coroutine[None, None, T]) -> T:
    """asyncio.run, cancelled by a signal, which is then raised as Interrupted.

    A coroutine that takes the cancellation as its end returns as usual. Signals are ignored
    afterwards: all that follows is the removal.
    """
    caught: list[int] = []

    async def guarded() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop(number: int) -> None:
            if not caught and task is not None:
                caught.append(number)
                task.cancel()

        for number in _heeded():
            loop.add_signal_handler(number, stop, number)
        return await main

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if not caught:
            raise
        raise Interrupted(caught[0]) from None
    finally:
        ignore()
