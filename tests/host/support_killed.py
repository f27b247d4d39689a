"""Kill what changes a pool's disk before any one of its changes."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from localvolume.host.tree import trees

#: Everything by which this code changes a disk; what opens a file to write it is counted by write.
_CHANGES = ("mkdir", "rename", "rmdir", "unlink", "fchmod", "fchown", "fsync", "write")


def _count_down(changes: int, ioctls: bool) -> Callable[[], int]:
    """Have this process killed before the change after so many; returns how many there were."""
    seen = 0

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            if seen == changes:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
            return real(*args, **kwargs)

        return call

    for name in _CHANGES:
        setattr(os, name, counted(name, getattr(os, name)))
    trees._renameat2 = counted("renameat2", trees._renameat2)
    if ioctls:
        fcntl.ioctl = counted("ioctl", fcntl.ioctl)
    return lambda: seen


def killed(changes: int, deed: Callable[[], None], *, ioctls: bool = False) -> bool:
    """Do it in another process, killed before one change; False where it needed no more.

    `ioctls`: each of these counts as one, too.
    """
    child = os.fork()
    if not child:
        try:
            _count_down(changes, ioctls)
            deed()
        except BaseException:  # noqa: BLE001 - told by the exit code
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False
