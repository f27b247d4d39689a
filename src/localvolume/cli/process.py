"""Runs one of our long processes as a container does: until it is told to stop, with a status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Coroutine

from localvolume.kube.errors import AccessInvalid

log = logging.getLogger(__name__)

Main = Callable[[], Coroutine[None, None, None]]


def run_process(name: str, main: Main) -> int:
    """Run `main` until it ends, or SIGTERM or SIGINT cancels it; the exit status.

    0 where it was told to stop, 1 where the system refuses something, 2 where the API server
    cannot be reached as configured; `name` is the subcommand, for the message.
    """
    try:
        asyncio.run(_until_told_to_stop(main))
    except AccessInvalid as error:
        print(f"localvolume {name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"localvolume {name}: {error}", file=sys.stderr)
        return 1
    return 0


async def _until_told_to_stop(main: Main) -> None:
    running = asyncio.ensure_future(main())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    log.info("stopped")
