"""Who is at work with something open: it is closed once it is given up *and* nobody is any more."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Users:
    """Counts calls in worker threads, which may be left behind in one that hangs.

    `on_last()` is called once, by whoever is the last. Earlier, a thread that comes back might
    write to whatever got the descriptor's number next; never, a disk that was slow once would stay
    locked as long as the agent lives.
    """

    def __init__(self, on_last: Callable[[], None]) -> None:
        self._on_last = on_last
        self._lock = threading.Lock()
        # Whoever has not given it up yet is one of them.
        self._count = 1
        self._given_up = False

    @property
    def given_up(self) -> bool:
        return self._given_up

    def enter(self) -> bool:
        """Whether a call may begin: then `leave` is to be called after it."""
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
        """No call begins from now on; harmless when done before."""
        with self._lock:
            if self._given_up:
                return
            self._given_up = True
        self.leave()
