"""Cleaning one volume from end to end: hold and check it, clean it, prove it, write the receipt.

Each way of cleaning is imported when it is used: an agent whose volumes are all held by claims,
often for weeks, loads none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import Progress, Receipt
from localvolume.cleaning.steps import DeviceCalls, Steps
from localvolume.cleaning.target import Target
from localvolume.host.process.workers import Workers

if TYPE_CHECKING:
    from localvolume.cleaning.device import Outcome


class Cleaning(Protocol):
    """The signature of `clean`."""

    async def __call__(
        self,
        target: Target,
        method: Method,
        *,
        workers: Workers,
        progress: Callable[[Progress], None],
        stop: asyncio.Event,
        timeout: float | None = None,
        confirm: Callable[[], Awaitable[object]] | None = None,
        paces: CleaningPaces | None = None,
    ) -> Receipt: ...


async def clean(
    target: Target,
    method: Method,
    *,
    workers: Workers,
    progress: Callable[[Progress], None],
    stop: asyncio.Event,
    timeout: float | None = None,
    confirm: Callable[[], Awaitable[object]] | None = None,
    paces: CleaningPaces | None = None,
    calls: DeviceCalls | None = None,
) -> Receipt:
    """Clean one volume, and return what was done and how far it is proved.

    `confirm` is awaited once the volume is held and checked, before anything is touched; whatever
    it raises ends the attempt. Two processes that clean one volume reach it one after the other, so
    there the second learns that the first is done.
    `progress` is called on the event loop, at most once a second. `stop` ends it within a second or
    two. `timeout`: seconds for all of it, None for no limit (a large rotating disk takes days).

    Raises CleaningRefused when the volume is not what was planned or is in use: nothing was
    touched. Raises CleaningFailed when it is not clean, CleaningStopped after the stop. In each
    case it is right to begin again from the start. If a call hangs in the kernel or a command
    cannot be killed, the volume stays held and further attempts fail until that has ended.
    """
    if (method.name == "delete-files") != (target.kind == "filesystem"):
        raise ValueError(f"{target.path}: {method} is no way to clean a {target.kind}")
    steps = Steps(target, workers, progress, stop, timeout, paces, calls)
    try:
        await steps.open()
        if confirm is not None:
            await confirm()
        try:
            result, samples, detail = await _apply(steps, method)
            if target.kind == "block":
                await _check_size(steps)
        except OSError as error:
            raise steps.explain(error) from error
    finally:
        await steps.close()
    return Receipt(
        method=method,
        bytes=steps.done_bytes if target.kind == "filesystem" else steps.held.size_bytes,
        files=steps.done_files,
        seconds=time.monotonic() - steps.began,
        samples=samples,
        result=result,
        detail=detail,
    )


async def _check_size(steps: Steps) -> None:
    """Raises CleaningFailed if the device's size has changed since its cleaning began."""
    size = await steps.do(steps.held.size_now)
    if size != steps.held.size_bytes:
        had = f"it had {steps.held.size_bytes} bytes when its cleaning began, and has {size} now"
        raise steps.failed(f"{had}: to be cleaned again")


async def _apply(steps: Steps, method: Method) -> Outcome:
    match method.name:
        case "delete-files":
            from localvolume.cleaning.files import delete_files

            return await delete_files(steps)
        case "discard":
            from localvolume.cleaning.device import discard

            return await discard(steps)
        case "zero":
            from localvolume.cleaning.device import zero

            return await zero(steps, method.passes)
        case "overwrite":
            from localvolume.cleaning.device import overwrite

            return await overwrite(steps, method.passes)
        case "reset-signatures":
            from localvolume.cleaning.signatures import reset_signatures

            return await reset_signatures(steps)
        case "command":
            from localvolume.cleaning.command import run_cleaner

            return await run_cleaner(steps, method.command)
