"""A cleaning that is held between two of its steps, for as long as a test wants it to be."""

import os
import threading

from localvolume.cleaning.paces import CleaningPaces
from localvolume.host.block import blockdev
from tests.cluster.support_agent import Lab
from tests.suite.units import MIB


class Gate:
    """Agents that the lab starts from now on write zeros in steps of 1 MiB, and wait before the
    second one until `open` is called; the test's end opens it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._begun = threading.Event()
        self._may_go_on = threading.Event()
        lab.hurry(cleaning=CleaningPaces(step_bytes=MIB))
        lab.ask_kernel(zero_out=self._zero_out)
        lab.stack.callback(self.open)

    def _zero_out(self, fd: int, start: int, length: int) -> None:
        if start >= MIB:
            self._begun.set()
            assert self._may_go_on.wait(120)
        blockdev.zero_out(fd, start, length)

    def wait(self) -> None:
        """Until a cleaning waits at it."""
        self._lab.until(self._begun.is_set, bool)

    def open(self) -> None:
        self._may_go_on.set()


def fill(path: str, data: bytes) -> None:
    """Write it over the whole device, again and again."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        os.pwrite(fd, (data * (size // len(data) + 1))[:size], 0)
        os.fsync(fd)
    finally:
        os.close(fd)
