"""Runs one of our long-running processes until it is told to stop, and gives its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any

from localvolume.cli.output.exits import UNREACHED
from localvolume.cli.output.refusal import say
from localvolume.kube.errors import AccessInvalid

log = logging.getLogger(__name__)

Main = Callable[[], Coroutine[None, None, None]]

STOPPING_SECONDS = 10.0
"""How long a stop may take before the log says what it waits for, and how often it repeats that."""

_MOST_TASKS = 10


def run_process(name: str, main: Main, *, stopping_seconds: float = STOPPING_SECONDS) -> int:
    """Runs `main` until it ends, or until SIGTERM or SIGINT cancels it. Returns the exit status:

    0 if it ended or was told to stop, 1 if the system refuses something, 3 if the configured access
    to the API server is invalid. `name` is the subcommand, for the message.
    """
    try:
        asyncio.run(_until_told_to_stop(main, stopping_seconds))
    except AccessInvalid as error:
        say(name, error)
        return UNREACHED
    except OSError as error:
        say(name, error)
        return 1
    return 0


async def _until_told_to_stop(main: Main, stopping_seconds: float) -> None:
    running = asyncio.ensure_future(main())
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def stop() -> None:
        told.set()
        running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    saying = asyncio.create_task(_say_what_it_waits_for(told, stopping_seconds))
    with contextlib.suppress(asyncio.CancelledError):
        await running
    saying.cancel()
    log.info("stopped")


async def _say_what_it_waits_for(told: asyncio.Event, seconds: float) -> None:
    """Logs why a stop takes long, so that the reason is in the log before SIGKILL comes."""
    await told.wait()
    while True:
        await asyncio.sleep(seconds)
        places = sorted(_place(task) for task in asyncio.all_tasks() - {asyncio.current_task()})
        more = f" and {len(places) - _MOST_TASKS} more" if len(places) > _MOST_TASKS else ""
        log.warning("still stopping, waiting for %s%s", ", ".join(places[:_MOST_TASKS]), more)


def _place(task: asyncio.Task[Any]) -> str:
    """The functions that a task is in, with line numbers, outermost first."""
    functions = []
    inner: object = task.get_coro()
    while isinstance(inner, CoroutineType) and inner.cr_frame is not None:
        functions.append(f"{inner.__qualname__}:{inner.cr_frame.f_lineno}")
        inner = inner.cr_await
    return " > ".join(functions) or task.get_name()
