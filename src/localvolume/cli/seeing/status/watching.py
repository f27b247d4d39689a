"""`status --watch`: the tables drawn again and again; a picture that is old says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from localvolume.cli.output.console import table_console
from localvolume.cli.rows import printable
from localvolume.cli.seeing.facts import Facts
from localvolume.kube.errors import ApiError
from localvolume.volumes.moments import written


async def watch(
    read: Callable[[], Awaitable[Facts]], draw: Callable[[Facts], None], every: float
) -> None:
    """Reads and draws every so many seconds until it is cancelled.

    Raises ApiError if even the first reading fails; later, what was seen before stays.
    """
    facts, told = await read(), ""
    while True:
        _head(facts, every, told)
        draw(facts)
        await asyncio.sleep(every)
        try:
            facts, told = await read(), ""
        except ApiError as error:
            told = (
                told or f"The API server could not be asked since {written(time.time())}: {error}"
            )


def _head(facts: Facts, every: float, told: str) -> None:
    console = table_console()
    if console.is_terminal:
        console.clear()
    state = "OLD" if told else f"Every {every:g} s"
    print(f"{state}, as of {written(facts.now)}; Ctrl-C ends it")
    if told:
        print(printable(told))
    print(flush=True)
