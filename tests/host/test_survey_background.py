"""What a look does not wait for: what is said of it meanwhile, and when what is found counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from localvolume.config.model import ClassConfig
from localvolume.config.pools import LvmConfig
from localvolume.host.process.workers import Workers
from localvolume.static.facts.known import Changes
from localvolume.static.facts.probe import EMPTY
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from localvolume.static.paces import StaticPaces
from localvolume.volumes.record import Recorded, Unreadable
from tests.host.support_dead import DeadDisk, dead_disk
from tests.host.support_devices import loop_device
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root", "loop", "fuse")

HOST_DIR = "/host/raw"


class Node:
    """A class with one raw disk, and who looks at it."""

    def __init__(self, directory: Path, disk: DeadDisk, patience: float) -> None:
        self.workers = Workers()
        self.told = 0
        self.path = str(directory / "disk")
        raw = ClassConfig(
            name="raw", host_dir=HOST_DIR, mount_dir=str(directory), volume_mode="Block"
        )
        self._classes = {raw.name: raw}
        (directory / "disk").symlink_to(disk.device.path)
        paces = StaticPaces(entry=3600.0, patience=patience, stale=0.0)
        self.survey = Survey(self.workers, paces, look_again=self._tell)

    def _tell(self) -> None:
        self.told += 1

    async def look(
        self, changes: Changes | None = None, *, offered: bool = False, groups: int = 0
    ) -> Entry:
        found = await self.survey.look(
            self._classes,
            {f"{HOST_DIR}/disk"} if offered else set(),
            changes or Changes(host=False),
            [LvmConfig()] * groups,
        )
        (entry,) = found.entries
        return entry


@pytest.fixture
def disk() -> Iterator[DeadDisk]:
    with dead_disk() as disk:
        yield disk


@pytest.fixture
async def node(tmp_path: Path, disk: DeadDisk) -> AsyncIterator[Node]:
    node = Node(tmp_path, disk, patience=0.05)
    yield node
    disk.answer()
    await node.survey.stop()
    await until_async(lambda: not node.workers.running)
    node.workers.close()


def is_being_read(entry: Entry) -> bool:
    return entry.problem is not None and entry.problem.code == "reading"


async def known(node: Node) -> Entry:
    """What is said of the disk once it has been read."""
    return await until_async(node.look, lambda entry: not is_being_read(entry))


async def test_what_does_not_answer_is_being_read_until_it_does(node: Node, disk: DeadDisk) -> None:
    for _ in range(2):
        assert is_being_read(await node.look())
    assert not node.told
    disk.answer()
    await until_async(lambda: node.told)
    entry = await node.look()
    assert (entry.problem, entry.content) == (None, EMPTY)
    assert node.survey.probes_total == 1


async def _forget(node: Node) -> None:
    node.survey.forget(node.path)


async def _record(node: Node) -> None:
    node.survey.recorded(Entry("raw", "disk", node.path, ""), None)


async def _read_now(node: Node) -> None:
    # As before a cleaning: what lies in it is not read.
    await node.survey.read_now(Entry("raw", "disk", node.path, ""), offered=True)


async def _offer(node: Node) -> None:
    await node.look(offered=True)


async def _replace(node: Node) -> None:
    await node.look(Changes(paths={node.path}))


async def _group(node: Node) -> None:
    for groups in (1, 0):
        await node.look(groups=groups)


@pytest.mark.parametrize("happens", [_forget, _record, _read_now, _offer, _replace, _group])
async def test_what_happens_meanwhile_has_it_read_once_more(
    node: Node, disk: DeadDisk, happens: Callable[[Node], Awaitable[None]]
) -> None:
    await node.look()
    await happens(node)
    before = node.survey.probes_total
    disk.answer()
    await until_async(lambda: node.told)
    entry = await known(node)
    assert (entry.problem, entry.content) == (None, EMPTY)
    assert node.survey.probes_total == before + 1


async def test_what_ended_too_late_to_hold_is_looked_at_again(node: Node, disk: DeadDisk) -> None:
    """The look had waited for it: nothing else would ask for another."""
    below = Path(node.path).parent / "below"
    below.mkdir()
    patient = Node(below, disk, patience=3600.0)
    looks = asyncio.create_task(patient.look())
    # Others may read the disk, too: it is the look's own reading that is to be under way.
    await until_async(lambda: patient.survey.probes_total and disk.asked())
    patient.survey.forget(patient.path)
    disk.answer()
    assert is_being_read(await looks)
    assert patient.told == 1
    assert (await patient.look()).content == EMPTY
    patient.workers.close()


async def test_what_could_not_be_told_is_said_while_it_is_read(node: Node, disk: DeadDisk) -> None:
    disk.fail()
    entry = await known(node)
    assert entry.problem
    assert entry.problem.code == "unknown"
    disk.die()

    async def asked() -> int:
        assert (await node.look()).problem == entry.problem
        return disk.asked()

    # What was read when it died may have failed before, and that be all that one look waits for.
    await until_async(asked)


async def test_so_it_is_where_that_may_not_hold_any_more(node: Node, disk: DeadDisk) -> None:
    """What changes all the time would else be waited for as long."""
    await node.look()
    await until_async(disk.asked)
    await _replace(node)
    disk.fail()
    await until_async(lambda: node.told)
    disk.die()

    async def asked() -> int:
        entry = await node.look()
        assert entry.problem
        assert entry.problem.code == "unknown"
        return disk.asked()

    await until_async(asked)  # it is read once more


async def test_where_else_its_data_is_reached_is_known_while_it_is_read(tmp_path: Path) -> None:
    with dead_disk(content=b"x") as disk:
        node = Node(tmp_path, disk, patience=0.05)
        disk.answer()
        entry = await known(node)
        assert entry.content
        disk.die()
        again = await node.look()
        assert is_being_read(again)
        assert again.content is None
        assert (again.device, again.identity) == (entry.device, entry.identity)
        disk.answer()
        await node.survey.stop()
        await until_async(lambda: not node.workers.running)
        node.workers.close()


async def test_what_is_written_down_while_others_are_read_counts(
    tmp_path: Path, disk: DeadDisk
) -> None:
    """By the end of the look its object may be there, of which the older record knows nothing."""
    with loop_device() as other:
        paces = StaticPaces(entry=3600.0, patience=3600.0, stale=3600.0)
        workers = Workers()
        raw = ClassConfig(
            name="raw", host_dir=HOST_DIR, mount_dir=str(tmp_path), volume_mode="Block"
        )
        survey = Survey(workers, paces, look_again=lambda: None)
        (tmp_path / "disk").symlink_to(disk.device.path)
        (tmp_path / "other").symlink_to(other.path)

        async def look() -> dict[str, Recorded]:
            found = await survey.look({"raw": raw}, set(), Changes(host=False))
            return {entry.name: entry.recorded for entry in found.entries}

        disk.answer()
        assert await look() == {"disk": "nowhere", "other": "nowhere"}
        disk.die()
        survey.forget(str(tmp_path / "disk"))
        looking = asyncio.create_task(look())
        await until_async(disk.asked)
        await until_async(lambda: survey.probes_total == 3)  # also where others read the disk, too
        written = Unreadable("it has just been written")
        survey.recorded(Entry("raw", "other", str(tmp_path / "other"), ""), written)
        disk.answer()
        assert await looking == {"disk": "nowhere", "other": written}
        await survey.stop()
        await until_async(lambda: not workers.running)
        workers.close()
