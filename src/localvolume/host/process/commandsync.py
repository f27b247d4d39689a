"""Host commands for code that blocks in a worker thread: they run on the loop, as all others do.

A program must be started on the loop's thread (``commands`` says why), so a worker hands it there.
"""

import asyncio
import concurrent.futures
import errno
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from localvolume.host.process import commands
from localvolume.host.process.commands import Finished

OUTPUT_LIMIT: Final = 65536
"""What is kept of each of stdout and stderr, in bytes, unless the caller wants more."""
_CLOSED_SECONDS: Final = 1.0


class Run(Protocol):
    """Runs argv to its end within `timeout` seconds; raises as ``commands.run`` does.

    `env` is added to our own environment.
    """

    def __call__(
        self,
        argv: Sequence[str],
        timeout: float,
        *,
        output_limit: int = OUTPUT_LIMIT,
        env: Mapping[str, str] | None = None,
    ) -> Finished: ...


def on_loop(loop: asyncio.AbstractEventLoop, beyond: float = 30.0) -> Run:
    """Return a ``Run`` that any thread but the loop's own may call.

    Within ``beyond`` seconds after its own limit a command is told to end, killed and given up.

    It raises as ``commands.run`` does, OSError (ECANCELED) when the loop ends meanwhile, and
    TimeoutError when nothing is heard of the command long after its own limit.
    """

    def run(
        argv: Sequence[str],
        timeout: float,
        *,
        output_limit: int = OUTPUT_LIMIT,
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        if _on_this_thread(loop):
            raise RuntimeError("it would wait for itself: await commands.run here")
        if loop.is_closed():
            raise OSError(errno.ECANCELED, "the agent is ending", argv[0])
        given_up = threading.Event()
        begun: list[asyncio.Task[Any] | None] = []

        async def unless_given_up() -> Finished:
            # A loop that gets to it late would start the program only to kill it.
            if given_up.is_set():
                raise asyncio.CancelledError
            begun.append(asyncio.current_task())
            return await commands.run(argv, timeout=timeout, output_limit=output_limit, env=env)

        handed_over = unless_given_up()
        try:
            future = asyncio.run_coroutine_threadsafe(handed_over, loop)
        except RuntimeError:  # it was closed just now
            handed_over.close()
            raise OSError(errno.ECANCELED, "the agent is ending", argv[0]) from None
        try:
            return _result(future, timeout + beyond, loop)
        except concurrent.futures.CancelledError:
            # A closed loop leaves the coroutine unstarted or waiting: it ends here.
            handed_over.close()
            for task in begun:
                # Its loop never hears that it has ended, and Python would log that.
                # asyncio.gather prevents it in the same way.
                task._log_destroy_pending = False  # type: ignore[union-attr]
            raise OSError(errno.ECANCELED, "the agent is ending", argv[0]) from None
        except _Unheard:
            given_up.set()
            future.cancel()
            why = "the agent is too busy to watch it: it is not known whether it ended"
            raise TimeoutError(errno.ETIMEDOUT, why, argv[0]) from None

    return run


class _Unheard(Exception):
    """Nothing was heard of the command in the time that it had."""


def _result(
    future: "concurrent.futures.Future[Finished]", seconds: float, loop: asyncio.AbstractEventLoop
) -> Finished:
    """Wait that many seconds for the result. A closed loop neither answers nor cancels: what was
    handed to it last is cancelled here, within a second.
    """
    end = time.monotonic() + seconds
    while not future.done():
        left = end - time.monotonic()
        if left <= 0:
            raise _Unheard
        concurrent.futures.wait([future], min(left, _CLOSED_SECONDS))
        if loop.is_closed() and not future.done():
            raise concurrent.futures.CancelledError
    return future.result()


def _on_this_thread(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
