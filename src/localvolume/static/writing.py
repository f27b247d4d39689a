"""Writes the records of prepared volumes for the acts, always before the API server is told.

An agent that dies in between leaves a record that says more than the object, which the next agent
completes. It never leaves an object whose hand-over is not on record.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from localvolume.cleaning.receipt import CleaningRefused
from localvolume.host.process.workers import Workers
from localvolume.kube.objects import PersistentVolume
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from localvolume.static.paces import StaticPaces
from localvolume.static.preconditions import Superseded
from localvolume.static.recording import Records
from localvolume.volumes.objects import claim_of, claims_of, generation_of
from localvolume.volumes.record import (
    Record,
    Recorded,
    held_by,
    next_offer,
    of_object,
    over,
    strange,
    taken,
)

T = TypeVar("T")


@dataclass(eq=False)
class RecordWriter:
    """`entry` is the volume as it was read just now, with what is on record of it."""

    records: Records
    survey: Survey
    workers: Workers
    paces: StaticPaces

    async def offer(self, entry: Entry) -> Record | None:
        """Record a new offer of the volume; returns its record, None if nothing is recorded.

        Another agent of the node may offer it at the same moment: the one that comes second raises
        Superseded, and finds the object of the first. Raises NotRecorded, Hung.
        """
        if entry.recorded == "nowhere":
            return None

        def offered() -> Recorded:
            with self.records.locked(entry):
                if self.records.read(entry) != entry.recorded:
                    raise Superseded(f"{entry.path}: its record has changed")
                generation = secrets.token_hex(8)
                record = next_offer(entry.recorded, generation, self.records.root_of(entry))
                return record if self.records.write(entry, record) else "nowhere"

        recorded = await self._do(entry, offered)
        self.survey.recorded(entry, recorded)
        return recorded if isinstance(recorded, Record) else None

    async def complete(self, volume: PersistentVolume, entry: Entry) -> str:
        """Record an object that is older than records, and the claim that it names.

        Returns the generation, "" if nothing is recorded.
        """
        recorded = await self._do(entry, lambda: self.records.read(entry))
        self.survey.recorded(entry, recorded)
        if recorded == "nowhere" or strange("", claims_of(volume), recorded):
            return ""
        record = next_offer(recorded, secrets.token_hex(8), None)
        if claim := claim_of(volume) or _last(volume):
            record = taken(record, claim)
        if record == recorded:
            return record.generation
        return record.generation if await self._write(entry, record) else ""

    async def take(self, volume: PersistentVolume, entry: Entry) -> None:
        """Record that the object's claim holds the volume, unless another holds it by its record.

        Raises NotRecorded, Hung.
        """
        recorded = await self._do(entry, lambda: self.records.read(entry))
        self.survey.recorded(entry, recorded)
        record = of_object(generation_of(volume), recorded)
        if not isinstance(record, Record):
            return
        if record is recorded and record.claim == claim_of(volume):
            return
        if not record.claim or record.claim in claims_of(volume):
            await self._write(entry, taken(record, claim_of(volume)))

    async def end(self, volume: PersistentVolume | None, entry: Entry, said: str) -> None:
        """Give the root its first state back, and record that the volume is clean and nobody's.

        `said` is the receipt of its cleaning in one line.

        Raises Superseded if the record no longer allows that: another agent of the node may have
        cleaned the volume as well, and offered it again since. Raises NotRecorded, Hung.
        """

        def ended() -> Recorded:
            with self.records.locked(entry):
                recorded = self.records.read(entry)
                if why := _refusal(volume, recorded):
                    raise Superseded(f"{entry.path}: {why}")
                found = of_object(generation_of(volume) if volume else "", recorded)
                if not isinstance(found, Record):
                    return recorded
                if found.root is not None and entry.kind == "filesystem":
                    self.records.restore_root(entry, found.root)
                record = over(found, said, time.time())
                return record if self.records.write(entry, record) else "nowhere"

        self.survey.recorded(entry, await self._do(entry, ended))

    def check(self, volume: PersistentVolume | None, entry: Entry) -> None:
        """Raises CleaningRefused if the record does not let the volume be cleaned for the object.

        `volume` None: for no object.
        """
        if why := _refusal(volume, entry.recorded):
            raise CleaningRefused(f"{entry.path}: {why}")

    async def check_anew(self, volume: PersistentVolume | None, entry: Entry) -> None:
        """The same for what is on record at this moment. Raises CleaningRefused, Hung."""
        recorded = await self._do(entry, lambda: self.records.read(entry))
        self.check(volume, replace(entry, recorded=recorded))

    async def _write(self, entry: Entry, record: Record) -> bool:
        written = await self._do(entry, lambda: self.records.write(entry, record))
        recorded: Recorded = record if written else "nowhere"
        self.survey.recorded(entry, recorded)
        return written

    async def _do(self, entry: Entry, call: Callable[[], T]) -> T:
        return await self.workers.call(entry.path, self.paces.entry, call)


def _refusal(volume: PersistentVolume | None, recorded: Recorded) -> str | None:
    """Why the record does not let the volume be the object's (None: no object's), or None."""
    if volume is None:
        return held_by(recorded)
    return strange(generation_of(volume), claims_of(volume), recorded)


def _last(volume: PersistentVolume) -> str:
    """The claim that held it last, if its claimRef has been emptied since."""
    return next(iter(sorted(claims_of(volume))), "")
