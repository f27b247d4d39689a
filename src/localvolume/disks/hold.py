"""A disk that nobody else may take, held until the last call that works on it has returned."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from localvolume.disks.model import Judged
from localvolume.host.users import Users

R = TypeVar("R")


class Hold:
    """`pin` is open and locked, `exclusive` excludes all; -1: not open.

    Usable from worker threads that may be left behind in a hanging call (host/users.py).
    """

    def __init__(self, judged: Judged) -> None:
        self.judged = judged
        self.pin = -1
        self.exclusive = -1
        self._users = Users(self._close)

    @property
    def through(self) -> str:
        """The disk by the open descriptor, for programs that read it while we hold it."""
        return f"/proc/{os.getpid()}/fd/{self.pin}"

    def use(self, fn: Callable[..., R], *args: Any) -> R:
        """Call `fn` with the hold, sure to stay open meanwhile. ValueError if it was let go."""
        if not self._users.enter():
            raise ValueError(f"{self.judged.disk.name}: given up before it began")
        try:
            return fn(self, *args)
        finally:
            self._users.leave()

    def share(self) -> None:
        """Let others open it exclusively; no call may be at work on it."""
        self.exclusive, exclusive = -1, self.exclusive
        if exclusive >= 0:
            os.close(exclusive)

    def let_go(self) -> None:
        """At once, or when the last call returns."""
        self._users.give_up()

    def _close(self) -> None:
        self.share()
        self.pin, pin = -1, self.pin
        if pin >= 0:
            os.close(pin)
