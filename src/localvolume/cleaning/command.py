"""The administrator's own cleaner: run as upstream runs it, reported, and not vouched for."""

from __future__ import annotations

import logging
from collections import deque

from localvolume.cleaning.device import Outcome
from localvolume.cleaning.receipt import CleaningRefused
from localvolume.cleaning.signatures import signature
from localvolume.cleaning.steps import Steps
from localvolume.cleaning.supervise import run_command
from localvolume.config.variables import LOCAL_PV_BLKDEVICE
from localvolume.host.process.commands import CommandMissing, CommandTimedOut

# A wipe may report every percent of every pass; the log keeps the beginning.
_LOGGED_LINES = 200
_LINE_CHARACTERS = 500
_LAST_LINES = 5

_log = logging.getLogger(__name__)


class _Output:
    """The lines of a cleaner: the first ones to the log, the last ones for an error message."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    def add(self, line: str) -> None:
        line = "".join(c if c.isprintable() else " " for c in line[:_LINE_CHARACTERS]).strip()
        if not line:
            return
        self._last.append(line)
        self._count += 1
        if self._count <= _LOGGED_LINES:
            _log.info("%s: cleaner: %s", self._path, line)
        elif self._count == _LOGGED_LINES + 1:
            _log.info("%s: cleaner: further output is not logged", self._path)

    def last(self) -> str:
        return " | ".join(self._last) or "it printed nothing"


async def run_cleaner(steps: Steps, command: tuple[str, ...]) -> Outcome:
    """Run it with our environment and LOCAL_PV_BLKDEVICE; by exit status 0 it says that it is done.

    The cleaner opens the path itself. So the path is compared with the checked device right before
    and after: if the device was exchanged meanwhile, the other one may have been wiped.
    """
    path = steps.held.target.path
    await steps.do(steps.held.loosen)
    await steps.do(steps.held.check_path)
    output = _Output(path)
    steps.name = f"running {command[0]}"
    steps.touched = True
    try:
        # Upstream's name for the device, set for every cleaner; its scripts insist on it.
        env = {LOCAL_PV_BLKDEVICE.name: path}
        finished = await run_command(steps, command, timeout=None, env=env, on_line=output.add)
    except CommandMissing as error:
        steps.touched = False
        raise steps.failed(str(error)) from error
    except CommandTimedOut as error:
        raise steps.failed(f"{error}; its last words: {output.last()}") from error
    if finished.returncode:
        how = (
            f"ended with {finished.returncode}"
            if finished.returncode > 0
            else f"was killed by signal {-finished.returncode}"
        )
        raise steps.failed(f"{how}; its last words: {output.last()}")
    try:
        await steps.do(steps.held.check_path)
    except CleaningRefused as error:
        raise steps.failed(f"{error.reason} while it ran") from error
    steps.done_bytes = steps.total_bytes = steps.held.size_bytes
    found = await signature(steps)
    left = "no signature is left" if found is None else f"recognised as {found.type} now"
    return "done", 0, left
