"""Keeps LVM's commands in one group apart from putting right what a killed one left.

Everything that this process does in a group goes through one gate: many commands at once, or one
recovery alone. The group is recovered before the first command that changes anything, because the
previous process may have been killed, and after each command that did not end in time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from localvolume.host.lvm.commands import (
    CHANGE_SECONDS,
    DELTA_BYTES,
    LogicalVolume,
    Lvm,
    LvmFailed,
    LvmUnfinished,
)
from localvolume.host.lvm.thindelta import Comparison
from localvolume.host.lvm.thinmetadata import NUMBER_FIELDS, READING, ThinMetadata, numbers_of
from localvolume.host.process.commandsync import Run

log = logging.getLogger(__name__)


class Gate:
    """Lets many pass at once, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._passing = 0
        self._alone = False
        # One for the process before this one, which may have been killed.
        self._doubts, self._settled = 1, 0
        self.reading = threading.Lock()
        """Held while a thin pool's metadata are read: a pool shows them to one at a time."""

    @property
    def doubts(self) -> int:
        """How often a command may have been killed."""
        return self._doubts

    @property
    def unsafe(self) -> bool:
        """Whether a command may have been killed since the group was last put right."""
        return self._doubts > self._settled

    def doubt(self) -> None:
        """A command may have been killed."""
        with self._changed:
            self._doubts += 1

    def settle(self, doubts: int) -> None:
        """The group was put right after that many doubts; those since then remain."""
        self._settled = doubts

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Pass together with others, while nobody is alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._passing += 1
        try:
            yield
        finally:
            with self._changed:
                self._passing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Pass alone; nobody else gets in from the moment that this begins to wait."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            self._changed.wait_for(lambda: not self._passing)
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


_gates: dict[str, Gate] = {}
_of_gates = threading.Lock()


def gate_of(group: str) -> Gate:
    """The one gate of a volume group in this process."""
    with _of_gates:
        return _gates.setdefault(group, Gate())


class GatedLvm(Lvm):
    """LVM for one group; see the module."""

    def __init__(
        self,
        run: Run,
        prefix: Sequence[str],
        group: str,
        change_seconds: float = CHANGE_SECONDS,
        *,
        discovery: Sequence[str] = (),
    ) -> None:
        super().__init__(run, prefix, change_seconds, discovery=discovery)
        self._group = group
        self._gate = gate_of(group)
        self._mine = threading.local()

    def put_right(self, *, anew: bool = False) -> None:
        """Recover the group if needed; `anew` says that another process may have been killed.

        Raises as ``recover`` does.
        """
        if anew:
            self._gate.doubt()
        if self._gate.unsafe:
            with self._gate.alone():
                # Before it looks: what another process leaves from then on, it may not see.
                doubts = self._gate.doubts
                if self._gate.unsafe:
                    self._mine.inside = True
                    try:
                        for done in self.recover(self._group):
                            log.warning("volume group %s: %s", self._group, done)
                        self._gate.settle(doubts)
                    finally:
                        self._mine.inside = False

    def compared(self, pool: LogicalVolume, one: LogicalVolume, other: LogicalVolume) -> Comparison:
        """What two volumes of an active thin pool share; of one and itself, what it has.

        Raises VolumeInUse while somebody else reads the pool's metadata.
        """
        told = self._report("lvs", NUMBER_FIELDS, pool.group)
        numbers = numbers_of(told, pool.name, (one, other))
        with self._metadata_of(pool) as metadata:
            return metadata.compared(*numbers)

    def is_reading(self) -> bool:
        """Whether this process reads the metadata of a thin pool of the group now."""
        return self._gate.reading.locked()

    def release_left(self, pool: LogicalVolume) -> None:
        """Release the metadata of an active thin pool if one of ours was killed while it read them.

        Nobody else of ours may work with this pool.
        """
        with self._metadata_of(pool) as metadata:
            now = self.volume(pool.group, pool.name)
            if now is not None and now.uuid == pool.uuid and READING in now.tags:
                metadata.release_left()
                log.warning("volume group %s: let go of %s's metadata", pool.group, pool.name)

    @contextmanager
    def _metadata_of(self, pool: LogicalVolume) -> Iterator[ThinMetadata]:
        """Its metadata, with nobody else of ours at them, and no recovery until the end."""

        def tag(on: bool) -> None:
            self.retag(pool, () if on else (READING,), (READING,) if on else ())

        def delta(argv: Sequence[str]) -> str:
            try:
                return self._command("thin_delta", argv, CHANGE_SECONDS, DELTA_BYTES)
            except LvmUnfinished as error:
                # It takes too long, and would do so again.
                raise LvmFailed(str(error)) from error

        self.put_right()
        with self._gate.reading, self._gate.passing():
            self._mine.inside = True
            try:
                yield ThinMetadata(self._dmsetup, delta, tag, pool)
            finally:
                self._mine.inside = False

    def _command(self, command: str, argv: Sequence[str], seconds: float, most: int) -> str:
        inside = getattr(self._mine, "inside", False)
        # Looking changes nothing, and opens no volume.
        if not inside and command not in ("lvs", "vgs", "fullreport", "lvmconfig"):
            self.put_right()
        with nullcontext() if inside else self._gate.passing():
            try:
                return super()._command(command, argv, seconds, most)
            except LvmUnfinished:
                self._gate.doubt()
                raise
