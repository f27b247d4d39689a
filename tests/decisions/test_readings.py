"""What is read in the background: who waits for it, and when what it found does not count."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from localvolume.host.mount.mounts import Mount
from localvolume.static.facts.known import Changes, Known
from localvolume.static.facts.readings import MOST, Readings
from localvolume.static.model import Entry
from tests.decisions.support_plan import block, broken, filesystem
from tests.suite.until import until_async

ENTRY = block()
KEY = (ENTRY.class_name, ENTRY.name)


class Disks:
    """Each answers once it may; `begun` are those that were asked, in order."""

    def __init__(self, patience: float | None = 0.01) -> None:
        self.begun: list[str] = []
        self.ended = self.over = 0
        self._may: dict[str, asyncio.Event] = {}
        self.readings = Readings(self._read, patience=patience, ended=self._end)

    async def _read(self, entry: Entry, _: Mount | None) -> Entry:
        self.begun.append(entry.name)
        try:
            await self.may(entry.name).wait()
        finally:
            self.over += 1
        return entry

    def _end(self) -> None:
        self.ended += 1

    def may(self, name: str) -> asyncio.Event:
        return self._may.setdefault(name, asyncio.Event())

    async def answered(self) -> Known:
        """What is known once the one that hangs has answered."""
        self.may(ENTRY.name).set()
        await until_async(lambda: self.ended)
        return self.readings.take()[KEY]


async def test_one_that_answers_at_once_is_waited_for() -> None:
    disks = Disks(patience=3600.0)
    disks.may(ENTRY.name).set()
    await disks.readings.wait_for(ENTRY, None)
    assert not disks.readings.take()[KEY].outdated
    assert not disks.ended, "nobody has to look again"


async def test_one_that_does_not_answer_is_left_and_its_end_is_told() -> None:
    disks = Disks()
    await disks.readings.wait_for(ENTRY, None)
    assert disks.readings.take() == {}
    known = await disks.answered()
    assert (known.entry, known.outdated) == (ENTRY, False)
    assert disks.readings.take() == {}, "it is known once"


async def test_without_patience_it_is_waited_for_to_the_end() -> None:
    disks = Disks(patience=None)
    waits = asyncio.create_task(disks.readings.wait_for(ENTRY, None))
    await until_async(lambda: disks.begun)
    assert not waits.done()
    disks.may(ENTRY.name).set()
    await waits
    assert KEY in disks.readings.take()


async def test_an_entry_is_read_once_at_a_time() -> None:
    disks = Disks()
    for _ in range(3):
        await disks.readings.wait_for(ENTRY, None)
    assert disks.begun == [ENTRY.name]
    await disks.answered()
    await disks.readings.wait_for(ENTRY, None)
    assert len(disks.begun) == 2
    await disks.readings.stop()


async def test_there_are_only_so_many_at_a_time() -> None:
    disks = Disks(patience=0.0)
    for number in range(MOST + 3):
        await disks.readings.wait_for(replace(ENTRY, name=str(number)), None)
    await until_async(lambda: len(disks.begun) == MOST)
    disks.may("7").set()
    await until_async(lambda: disks.ended)
    assert len(disks.readings.take()) == 1
    await disks.readings.wait_for(replace(ENTRY, name="more"), None)
    await until_async(lambda: disks.begun[MOST:] == ["more"])
    await disks.readings.stop()


async def test_what_answers_is_none_of_them() -> None:
    """A node has more disks than that, and at its start each is to be read."""
    disks = Disks(patience=3600.0)
    for number in range(2 * MOST):
        disks.may(str(number)).set()
        await disks.readings.wait_for(replace(ENTRY, name=str(number)), None)
    assert len(disks.readings.take()) == 2 * MOST


@pytest.mark.parametrize(
    ("changes", "outdated"),
    [
        (Changes(host=True), False),
        (Changes(everything=True), True),
        (Changes(paths={ENTRY.path}), True),
        (Changes(paths={"/elsewhere/disk"}), False),
        (Changes(devices={ENTRY.device}), True),
        (Changes(devices={"another"}), False),
    ],
)
async def test_what_the_kernel_tells_of_meanwhile_outdates_what_is_found(
    changes: Changes, outdated: bool
) -> None:
    disks = Disks()
    await disks.readings.wait_for(ENTRY, None)
    disks.readings.changed(changes)
    disks.readings.changed(Changes(host=False))
    known = await disks.answered()
    assert known.outdated is outdated
    assert known.is_fresh(None, False, Changes(host=False), 3600.0) is not outdated


@pytest.mark.parametrize(("path", "outdated"), [(None, True), (ENTRY.path, True), ("/x", False)])
async def test_what_acts_do_meanwhile_outdates_it_too(path: str | None, outdated: bool) -> None:
    disks = Disks()
    await disks.readings.wait_for(ENTRY, None)
    disks.readings.outdate(path)
    assert (await disks.answered()).outdated is outdated


async def test_so_does_another_mount_in_its_place() -> None:
    disks = Disks()
    before = Mount(1, 0, "8:1", "/", ENTRY.path, "rw", "ext4", "/dev/sda1")
    for mount in (before, before._replace(mount_id=2)):
        await disks.readings.wait_for(ENTRY, mount)
    assert (await disks.answered()).outdated


async def test_those_that_never_answer_are_let_go_at_the_end() -> None:
    disks = Disks()
    await disks.readings.wait_for(ENTRY, None)
    async with asyncio.timeout(60):
        await disks.readings.stop()
    assert disks.over == 1


@pytest.mark.parametrize(
    ("entry", "untold"),
    [
        (filesystem(), False),
        (filesystem(content="holds"), False),
        (filesystem(content=None), False),
        (filesystem(content="unknown"), True),
        (broken("unknown"), True),
        (broken("gone"), False),
    ],
)
def test_what_nobody_could_tell_is_said_until_somebody_can(entry: Entry, untold: bool) -> None:
    assert Known(entry, None, 0.0).untold is untold
