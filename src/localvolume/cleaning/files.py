"""Emptying a filesystem: everything in it goes, the filesystem and its lost+found stay."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

from localvolume.cleaning.device import Outcome
from localvolume.cleaning.priority import at_idle
from localvolume.cleaning.receipt import CleaningRefused
from localvolume.cleaning.steps import Steps
from localvolume.host.filesystem.filesystems import looks_empty
from localvolume.host.tree.deletion import (
    Deleted,
    DeletionIncomplete,
    DeletionStopped,
    NestedMount,
    delete_contents,
)

# Deleting is one long call. It is cut into slices with a deadline each, so that a hanging disk is
# noticed. Each slice begins at the root again, so they grow: else walking might take up all of one.
_LONGEST_SLICE: Final = 300.0
_LOOK_EVERY: Final = 0.25


class _Slice:
    """One call of delete_contents; what it has done so far can be read while it runs."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.deleted = Deleted()
        self.whole = False

    def run(self, fd: int) -> None:
        """Delete until all is gone or `stop` is set; blocking. Raises as delete_contents does."""
        at_idle(self._run, fd)

    def _run(self, fd: int) -> None:
        try:
            self.deleted = delete_contents(fd, progress=self._note, stop=self.stop)
            self.whole = True
        except DeletionStopped as stopped:
            self.deleted = stopped.deleted

    def _note(self, deleted: Deleted) -> None:
        self.deleted = deleted


async def delete_files(steps: Steps) -> Outcome:
    """Delete everything in the held filesystem, then check that it is empty."""
    steps.name = "deleting files"
    steps.touched = True
    seconds = steps.paces.first_slice
    try:
        while not await _delete_some(steps, seconds):
            seconds = min(_LONGEST_SLICE, seconds * 2)
    except NestedMount as error:
        # Found before anything was deleted, unless it was mounted while we deleted.
        steps.touched = steps.done_files > 0
        if not steps.touched:
            raise CleaningRefused(f"{steps.held.target.path}: {error}") from error
        raise steps.failed(str(error)) from error
    except DeletionIncomplete as error:
        raise steps.failed(str(error)) from error
    steps.name = "looking whether it is empty"
    left = await steps.do(looks_empty, steps.held.own_path)
    if not left.empty:
        raise steps.failed(f"{left.found!r} is there: somebody is writing to it")
    return "proved", 0, "read back empty"


async def _delete_some(steps: Steps, seconds: float) -> bool:
    """Delete for about that many seconds; returns whether all is gone."""
    part = _Slice()
    files, size = steps.done_files, steps.done_bytes
    until = time.monotonic() + seconds
    deadline = seconds + steps.paces.step
    call = asyncio.ensure_future(steps.do(part.run, steps.held.fd, seconds=deadline))
    try:
        while not call.done():
            await asyncio.wait((call,), timeout=_LOOK_EVERY)
            left = steps.seconds_left()
            if steps.stop.is_set() or time.monotonic() > until or (left is not None and left <= 0):
                part.stop.set()
            steps.done_files = files + part.deleted.files + part.deleted.directories
            steps.done_bytes = size + part.deleted.bytes
            steps.report()
        await call
    finally:
        part.stop.set()
        call.cancel()
    steps.check()
    return part.whole
