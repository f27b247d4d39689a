"""Checks for ourselves that a volume is clean when somebody else says to have cleaned it.

A Job's success is only the word of a program that ran elsewhere. Before its volume is offered
again, we hold it as a cleaning would, and read what the method claims to have left.
"""

from __future__ import annotations

import asyncio

from localvolume.cleaning import device, proof
from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.signatures import refuse_recognised, signature
from localvolume.cleaning.steps import Steps
from localvolume.cleaning.target import Target
from localvolume.cleaning.unfinished import LABEL
from localvolume.host.filesystem.filesystems import looks_empty
from localvolume.host.process.workers import Workers

_ZEROING = frozenset({"discard", "zero", "overwrite"})


async def verify(
    target: Target,
    method: Method,
    *,
    workers: Workers,
    stop: asyncio.Event,
    paces: CleaningPaces | None = None,
) -> None:
    """Return if the volume looks as this method leaves it; nothing is written.

    Raises CleaningRefused if it is not the volume that was planned or is in use (also by another
    cleaning), CleaningFailed if it is not clean, CleaningStopped after the stop.
    """
    steps = Steps(target, workers, lambda _: None, stop, None, paces)
    try:
        await steps.open()
        steps.name = "looking whether it is clean"
        # The Job may have destroyed data already: what is not clean must be cleaned again.
        steps.touched = True
        try:
            if target.kind == "filesystem":
                await _empty(steps)
            elif method.name in _ZEROING:
                await _zeros(steps)
            else:
                await _no_signature(steps, method)
        except OSError as error:
            raise steps.explain(error) from error
    finally:
        await steps.close()


async def _empty(steps: Steps) -> None:
    left = await steps.do(looks_empty, steps.held.own_path)
    if not left.empty:
        raise steps.failed(f"{left.found!r} is there")


async def _zeros(steps: Steps) -> None:
    found = await proof.read_back(steps)
    if found.dirty is not None:
        raise device.not_zero(steps, found.dirty)


async def _no_signature(steps: Steps, method: Method) -> None:
    if method.name == "reset-signatures":
        await refuse_recognised(steps)
        return
    # An administrator's cleaner may leave anything but the note of an earlier cleaning of ours.
    note = await signature(steps)
    if note is not None and note.label == LABEL:
        raise steps.failed("it has the note of a cleaning that did not end")
