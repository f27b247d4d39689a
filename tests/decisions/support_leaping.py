"""An event loop whose time passes at once: what sleeps is woken in its order, and nobody waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_TURNS: Final = 10_000


class Leaping(asyncio.SelectorEventLoop):
    """Where there is nothing to do before the next timer, it is that late already.

    Nothing else is waited for: no thread, no process, no socket. It fails where nothing would ever
    happen any more, and where so much happens that no time passes.
    """

    def __init__(self) -> None:
        self._passed = 0.0
        super().__init__(_Selector(self._leap))

    def time(self) -> float:
        return self._passed

    def _leap(self, seconds: float) -> None:
        self._passed += seconds


class _Selector(selectors.SelectSelector):
    def __init__(self, leap: Callable[[float], None]) -> None:
        super().__init__()
        self._leap = leap
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing would ever happen")
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > _TURNS:
            self._turns = 0
            raise AssertionError("it turns round and round, and no time passes")
        self._leap(max(0.0, timeout))
        return super().select(0)


def at_once(main: Coroutine[Any, Any, T]) -> T:
    """What it returns, on such a loop, which begins at 0."""
    with asyncio.Runner(loop_factory=Leaping) as runner:
        return runner.run(main)
