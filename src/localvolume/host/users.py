"""Who still uses something open: it is closed once it is given up *and* nobody uses it any more."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Users:
    """Counts calls in worker threads, which may hang and be left behind.

    The last user calls `on_last()`, once. Any earlier, a thread that comes back might write to
    whatever got the descriptor's number next. If nobody called it, a disk that was slow once would
    stay locked as long as the agent lives.
    """

    def __init__(self, on_last: Callable[[], None]) -> None:
        self._on_last = on_last
        self._lock = threading.Lock()
        # The owner is one of them until it gives up.
        self._count = 1
        self._given_up = False

    @property
    def given_up(self) -> bool:
        return self._given_up

    def enter(self) -> bool:
        """Return whether a call may begin; if so, call `leave` after it."""
        with self._lock:
            if not self._given_up:
                self._count += 1
            return not self._given_up

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
            last = not self._count
        if last:
            self._on_last()

    def give_up(self) -> None:
        """Let no call begin from now on; harmless when done before."""
        with self._lock:
            if self._given_up:
                return
            self._given_up = True
        self.leave()
