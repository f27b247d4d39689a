"""Runs a program as one step of a cleaning: the stop ends it, and it is gone before a retry."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence

from localvolume.cleaning.steps import Steps
from localvolume.host.process import commands
from localvolume.host.process.commands import Finished
from localvolume.host.syscalls import closed_after


async def run_command(
    steps: Steps,
    argv: Sequence[str],
    *,
    timeout: float | None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Run it to its end, within the time left for the cleaning; raises as host.commands does.

    Raises CleaningStopped after the stop, once the program was told to end. However the program
    ended, a process that it started may live on and still write. Until that is gone, further
    cleanings of this volume are refused; CleaningFailed says so if nothing else is raised.
    """
    steps.check()
    left = steps.seconds_left()
    if left is not None:
        timeout = left if timeout is None else min(timeout, left)
    # Every descendant inherits one end. The other end reports end of file when the last of them is
    # gone, even one that left the process group.
    alive, theirs = os.pipe()
    # This keeps other agents out, even after we end: descendants hold the lock while they live.
    pass_fds = (*pass_fds, steps.held.lock_fd, theirs)
    try:
        finished = await _run_or_stop(
            steps,
            commands.run(argv, timeout=timeout, env=env, on_line=on_line, pass_fds=pass_fds),
        )
    finally:
        os.close(theirs)
        gone = await _ended(alive, steps.paces.gone)
        if gone:
            os.close(alive)
        else:
            await steps.refuse_others_until(lambda: _wait_for_end(alive))
    if not gone:
        raise steps.failed(f"{argv[0]} ended, but processes it started are still running")
    return finished


async def _run_or_stop(steps: Steps, command: Coroutine[None, None, Finished]) -> Finished:
    running = asyncio.ensure_future(command)
    stopped = asyncio.ensure_future(steps.stop.wait())
    try:
        while not running.done() and not stopped.done():
            await asyncio.wait((running, stopped), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            steps.report()
        if not running.done():
            steps.check()
        return await running
    finally:
        stopped.cancel()
        running.cancel()
        await asyncio.wait((running,))  # until its processes were told to end, and killed


async def _ended(alive: int, seconds: float) -> bool:
    """Whether the other end of the pipe is closed everywhere within that many seconds."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def look() -> None:
        # Ignores data: a program may write to any descriptor it finds.
        if not os.read(alive, 4096):
            ended.set()

    loop.add_reader(alive, look)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()
    finally:
        loop.remove_reader(alive)
    return ended.is_set()


def _wait_for_end(alive: int) -> None:
    """Block until the last process is gone; in a worker thread, which is left behind with it."""
    said = b"?"
    with closed_after(alive):
        while said:
            said = os.read(alive, 4096)
