"""Two agents of one node write the record of one volume: the second does nothing to the first's."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.host.locks import lock_directory
from localvolume.host.process.workers import Workers
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from localvolume.static.preconditions import Superseded
from localvolume.static.recording import NotRecorded, Records
from localvolume.static.writing import RecordWriter
from localvolume.volumes.record import Record
from tests.host.support_devices import filesystem, loop_device, tmpfs
from tests.host.support_entries import entry_at
from tests.host.support_paces import PATIENT
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")

FILESYSTEM, DEVICE = "filesystem", "device"


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(str(tmp_path / "records"))


@pytest.fixture
async def writer(records: Records) -> AsyncIterator[RecordWriter]:
    with closing(Workers()) as workers:
        yield RecordWriter(records, Survey(workers, PATIENT, records=records), workers, PATIENT)


@pytest.fixture(params=[FILESYSTEM, DEVICE])
def entry(request: pytest.FixtureRequest) -> Iterator[Entry]:
    if request.param == FILESYSTEM:
        with filesystem("ext4") as path:
            yield entry_at(path)
    else:
        with loop_device(4 * MIB) as loop:
            yield entry_at(loop.path)


@pytest.mark.parametrize("before", [None, Record("g1", ended=True)])
async def test_one_of_two_offers_it(
    records: Records, writer: RecordWriter, entry: Entry, before: Record | None
) -> None:
    if before:
        records.write(entry, before)
    planned = replace(entry, recorded=records.read(entry))
    offered = await writer.offer(planned)
    with pytest.raises(Superseded, match="its record has changed"):
        await writer.offer(planned)
    found = records.read(entry)
    assert offered
    assert isinstance(found, Record)
    assert found.generation == offered.generation


async def test_who_was_told_that_it_is_recorded_offers_it_again(
    records: Records, writer: RecordWriter, entry: Entry
) -> None:
    """The API server did not take the object: it is made for the same generation."""
    offered = await writer.offer(replace(entry, recorded=None))
    again = replace(entry, recorded=records.read(entry))
    told = await writer.offer(again)
    assert offered
    assert told
    assert told.generation == offered.generation


async def test_what_another_process_has_locked_is_not_written(
    records: Records, writer: RecordWriter, entry: Entry, tmp_path: Path
) -> None:
    where = entry.path if entry.kind == FILESYSTEM else str(tmp_path / "records")
    os.makedirs(where, exist_ok=True)
    fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert lock_directory(fd)
        with pytest.raises(NotRecorded, match="another process has its record locked"):
            await writer.offer(replace(entry, recorded=None))
        with pytest.raises(NotRecorded, match="another process has its record locked"):
            await writer.end(None, entry, "proved")
        assert records.read(entry) is None
    finally:
        os.close(fd)
    assert await writer.offer(replace(entry, recorded=None))


async def test_another_mount_at_the_path_is_neither_locked_nor_written_to(
    records: Records, writer: RecordWriter
) -> None:
    with filesystem("ext4") as path:
        entry = entry_at(path)
        with tmpfs(path):
            with pytest.raises(NotRecorded, match="another filesystem is mounted"):
                await writer.offer(replace(entry, recorded=None))
            with pytest.raises(NotRecorded, match="another filesystem is mounted"):
                await writer.end(None, entry, "proved")
        assert records.read(entry) is None


async def test_what_a_claim_holds_meanwhile_is_not_ended(
    records: Records, writer: RecordWriter, entry: Entry
) -> None:
    held = Record("g2", claim="b")
    records.write(entry, held)
    with pytest.raises(Superseded, match="the claim b holds it"):
        await writer.end(None, replace(entry, recorded=Record("g1")), "proved")
    found = records.read(entry)
    assert isinstance(found, Record)
    assert found.claim == "b"
    assert not found.ended


async def test_the_receipt_is_kept_with_the_record(
    records: Records, writer: RecordWriter, entry: Entry
) -> None:
    records.write(entry, Record("g1"))
    await writer.end(None, entry, "zero: proved")
    offered = await writer.offer(replace(entry, recorded=records.read(entry)))
    assert offered
    assert offered.cleaned.endswith("Z zero: proved")
    found = records.read(entry)
    assert isinstance(found, Record)
    assert found.cleaned == offered.cleaned
