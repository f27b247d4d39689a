"""Filesystems that take no writes until the test says so: what is under way there stays so."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.support_agent import Class, Lab, Volume
from tests.host.support_devices import command, loop_device
from tests.suite.units import MIB

OVERWRITTEN_PASSES = 30
OVERWRITE = ["localvolume", "overwrite", str(OVERWRITTEN_PASSES)]
OVERWRITTEN_BYTES = 4 * MIB

# linux/fs.h
_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878


class Frozen:
    """A filesystem to which writes wait; reads do not."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self.freeze()

    def freeze(self) -> None:
        command("fsfreeze", "--freeze", self._where)

    def thaw(self) -> None:
        command("fsfreeze", "--unfreeze", self._where)

    def let_through(self) -> None:
        """What waits goes on for a moment, and then some of it waits again.

        By system calls: while a busy machine starts a command, all of it might go through.
        """
        place = os.open(self._where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(place, _FITHAW, 0)
            fcntl.ioctl(place, _FIFREEZE, 0)
        finally:
            os.close(place)


@contextlib.contextmanager
def frozen(where: Path) -> Iterator[Frozen]:
    """Writes to the filesystem wait for as long as this is entered."""
    made = Frozen(where)
    try:
        yield made
    finally:
        made.thaw()


@contextlib.contextmanager
def half_cleaned(lab: Lab, cls: Class) -> Iterator[Volume]:
    """A volume whose cleaning has come some way, and comes no further while this is entered.

    The class is one of devices, cleaned by OVERWRITE. Their disk stalls, and takes a little now and
    then until the agent tells how far it is.
    """
    ground = lab.mount(lab.disk(), lab.directory / "stalls")
    device = loop_device(OVERWRITTEN_BYTES, backing=ground / "disk")
    lab.link(lab.stack.enter_context(device), cls.path("stalls"))
    volume = lab.published(cls, "stalls")
    name, claim = volume["metadata"]["name"], lab.bound(volume)

    def done() -> float:
        # Progress is told once a second, and when a step ends: after the wait, the next one tells.
        time.sleep(1.1)
        disk.let_through()
        return lab.metric("localvolume_cleaning_done_bytes", persistentvolume=name) or 0

    with frozen(ground) as disk:
        lab.delete_claim(claim)
        lab.until(lambda: lab.logged("cleaning with overwrite"), bool)
        lab.until(done, bool)
        yield volume
