"""Gives memory back once a process has started: imports and first lists need more than they keep.

The C library keeps free pages between used ones until it is told to give them back: half a megabyte
in an agent that has just published its volumes.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import Final

STARTED_SECONDS: Final = 20.0
"""How long after its launch a process counts as started."""


def give_back() -> None:
    """Give back free memory, blocking for some tens of milliseconds; does nothing without glibc.

    Source: malloc_trim(3).
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


async def give_back_once_started() -> None:
    """Run as a task; returns when it is done."""
    await asyncio.sleep(STARTED_SECONDS)
    give_back()
