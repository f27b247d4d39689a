"""Measures what comes after a failure that a coroutine has awaited: a pytest plugin.

asyncio throws the failure of what a task waits for into its coroutine, and CPython throws it on to
the innermost one. Where that one deals with it and returns, CPython 3.11 goes on in its caller
without telling a tracer, which then misses all lines up to the next wait: each `except` around an
awaited call, and what follows a timeout. A task that is resumed instead finds the failure in the
future itself, where it waits.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.suite import measured


class Resumed(asyncio.tasks._PyTask):  # type: ignore[name-defined,misc]  # not in typeshed
    """asyncio's own task in Python, never thrown into for what it waits for."""

    def _Task__wakeup(self, future: asyncio.Future[Any]) -> None:  # noqa: N802 - asyncio's name
        self._Task__step()


def pytest_configure() -> None:
    if measured.directory() is not None and sys.version_info < (3, 12):
        asyncio.tasks.Task = Resumed  # type: ignore[misc]
