"""A process that forks agents quickly: everything is imported once, each life begins in 20 ms.

Run as a program by `support_lives`. One line of JSON on standard input per life; it answers with a
line for the birth and one for the death, and reaps only when asked for the next, so that the number
of a dead agent is nobody else's while it may still be sent a signal.

An order may name a *point* at which the agent kills itself with SIGKILL, between two lines of the
program: before or after the n-th "create", "patch" or "delete" at the API server (Events do not
count), the n-th "unlink" or "rmdir", or the n-th time that it begins to "zero" a stretch of a
device or a "wipefs".
"""

import asyncio
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

#: What an agent imports late; here it costs nothing.
_EARLY = (
    "localvolume.agent.agent",
    "localvolume.cli.agent",
    "localvolume.cli.logs",
    "localvolume.cli.main",
    "localvolume.config.live",
    "asyncinotify",
    "yaml",
)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Point:
    """Counts what passes, and kills this process at the n-th."""

    def __init__(self, n: int, when: str, hits: str) -> None:
        self._left = n
        self._when = when
        self._hits = hits
        self._lock = threading.Lock()

    def passes(self, when: str, what: str) -> None:
        if when != self._when:
            return
        with self._lock:
            self._left -= 1
            if self._left:
                return
            fd = os.open(self._hits, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(fd, f"{when} {what}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.passes("before", what)
            result = fn(*args, **kwargs)
            self.passes("after", what)
            return result

        return call


def _die_at_write(point: Point, wanted: str) -> None:
    from localvolume.kube.transport import Transport

    request = Transport.request

    async def counted(self: Transport, verb: str, kind: Any, *args: Any, **kwargs: Any) -> bytes:
        if verb != wanted or kind.plural == "events":
            return await request(self, verb, kind, *args, **kwargs)
        point.passes("before", verb)
        answer = await request(self, verb, kind, *args, **kwargs)
        point.passes("after", verb)
        return answer

    Transport.request = counted  # type: ignore[method-assign]


def _die_at_host_call(point: Point, wanted: str) -> None:
    from localvolume.host import blockdev

    if wanted == "zero":
        vars(blockdev)["zero_out"] = point.around(wanted, blockdev.zero_out)
    elif wanted == "wipefs":
        popen = subprocess.Popen
        wiping = point.around(wanted, popen)

        def start(argv: list[str], *args: Any, **kwargs: Any) -> Any:
            wipes = any(word.endswith("wipefs") for word in argv)
            return (wiping if wipes else popen)(argv, *args, **kwargs)

        vars(subprocess)["Popen"] = start
    else:
        vars(os)[wanted] = point.around(wanted, getattr(os, wanted))


def _never_clean() -> None:
    """An agent that only says that it cleaned: the checks of the test must notice it."""
    from localvolume.cleaning.receipt import Receipt
    from localvolume.static import act, probe

    async def lie(_target: Any, method: Any, **_: Any) -> Receipt:
        await asyncio.sleep(0)
        return Receipt(method, 0, 0, 0.0, 0, "proved")

    vars(act)["clean"] = lie
    # The second guard, which would keep back what a tenant's files are still in.
    vars(probe)["looks_empty"] = lambda _path: type("Emptiness", (), {"empty": True})()


def _live(order: dict[str, Any]) -> None:
    """The life of one agent, in the forked process; does not return."""
    _die_with_parent()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["environment"])
    kind, n, when = order.get("point") or ("", 0, "")
    point = Point(n, when, order["hits"])
    if kind in ("create", "patch", "delete"):
        _die_at_write(point, kind)
    elif kind in ("unlink", "rmdir", "zero", "wipefs"):
        _die_at_host_call(point, kind)
    elif kind == "never-clean":
        _never_clean()
    main = importlib.import_module("localvolume.cli.main").main
    status = 1
    try:
        status = main(order["arguments"])
    finally:
        os._exit(status or 0)


def _serve() -> None:
    _die_with_parent()
    for name in _EARLY:
        importlib.import_module(name)
    previous = 0
    for line in sys.stdin:
        if previous:
            os.waitpid(previous, 0)
        previous = os.fork()
        if not previous:
            _live(json.loads(line))
        print(f"born {previous}", flush=True)
        ended = os.waitid(os.P_PID, previous, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        print(f"died {status}", flush=True)


if __name__ == "__main__":
    _serve()
