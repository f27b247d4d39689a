"""The end of an agent in the midst of a cleaning, and two agents of one node at once."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning.run import clean
from localvolume.host.locks import lock_directory
from tests.attacks.support_records import recorded, until_held
from tests.cluster.support_agent import Class, Lab, Volume
from tests.cluster.support_frozen import frozen
from tests.cluster.support_program import Program
from tests.faults.support_cleaner import Cleaner
from tests.host.support_devices import tmpfs

Confirm = Callable[[], Awaitable[object]]

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

#: What a kubelet gives a pod before it kills it, less what is reserved for a slow machine.
STOP_SECONDS = 25.0


@pytest.fixture
def cleaner(tmp_path: Path) -> Cleaner:
    return Cleaner(tmp_path)


def _second_agent(lab: Lab) -> Program:
    """Another agent of the same node, as during an upgrade; the caller ends it."""
    first, port = lab.agent, lab.port
    lab.port = 0
    try:
        return lab.start_process(wait=False)
    finally:
        lab.agent, lab.port = first, port


def _stopped(agent: Program, meanwhile: Callable[[], None] = lambda: None) -> float:
    """Seconds from SIGTERM to the end; `meanwhile` is done again and again until then.

    What holds this process up as well is none of the agent's time: a turn counts for a second at
    the most.
    """
    spent = 0.0
    agent.process.terminate()
    while (status := agent.process.poll()) is None:
        assert spent < STOP_SECONDS
        began = time.monotonic()
        time.sleep(0.2)
        meanwhile()
        spent += min(time.monotonic() - began, 1.0)
    assert status == 0
    return spent


def _cleaning_device(lab: Lab, cleaner: Cleaner) -> tuple[Class, Volume]:
    raw = lab.add_class("raw", volumeMode="Block", blockCleanerCommand=cleaner.command)
    device = lab.raw_disk()
    lab.link(device, raw.path("device"))
    lab.start_process()
    first = lab.published(raw, "device")
    claim = lab.bound(first)
    lab.delete_claim(claim)
    cleaner.wait_for(["begun"])
    return raw, first


def test_a_cleaner_is_ended_and_begun_anew(lab: Lab, cleaner: Cleaner) -> None:
    raw, first = _cleaning_device(lab, cleaner)
    assert isinstance(lab.agent, Program)
    assert _stopped(lab.agent) < STOP_SECONDS
    assert cleaner.record() == ["begun"]
    held = lab.volumes_at(raw, "device")
    assert [v["metadata"]["uid"] for v in held] == [first["metadata"]["uid"]]
    cleaner.go()
    lab.start_process()
    lab.published(raw, "device", unlike=first["metadata"]["uid"])
    assert cleaner.record() == ["begun", "begun", "done"]


def test_deleting_files_is_ended_and_continued(lab: Lab) -> None:
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(size=256 << 20), fs.path("full"))
    lab.start_process()
    first = lab.published(fs, "full")
    claim = lab.bound(first)
    lab.stop()
    _fill(where, 30_000)
    full = _free_inodes(where)
    lab.delete_claim(claim)

    # All of them are deleted in less time than it may take to see it and to say stop.
    with frozen(where) as ice:

        def a_few_are_deleted() -> int:
            ice.let_through()
            return _free_inodes(where)

        agent = lab.start_process(wait=False)
        lab.until(a_few_are_deleted, lambda free: free > full)
        assert _stopped(agent, ice.let_through) < STOP_SECONDS
    left = _count(where)
    assert left > 0, "the cleaning was over before the agent was told to stop"
    assert len(lab.volumes_at(fs, "full")) == 1
    lab.start_process()
    lab.published(fs, "full", unlike=first["metadata"]["uid"])
    assert _count(where) == 0


@pytest.mark.needs("setpriv")
def test_a_cleaner_that_outlives_its_agent_is_waited_for(lab: Lab, cleaner: Cleaner) -> None:
    """It would write zeros over the next tenant's data."""
    raw, first = _cleaning_device(lab, cleaner)
    assert isinstance(lab.agent, Program)
    # A child of the script, as dd would be: the kernel kills the script alone.
    orphan = cleaner.child()
    try:
        lab.agent.kill()
        cleaner.go()
        lab.start_process()
        lab.event(first["metadata"]["name"], "VolumeFailedDelete", "another process")
        assert cleaner.record() == ["begun"]
        assert [v["metadata"]["uid"] for v in lab.volumes_at(raw, "device")] == [
            first["metadata"]["uid"]
        ]
    finally:
        os.kill(orphan, signal.SIGKILL)
    lab.published(raw, "device", unlike=first["metadata"]["uid"])
    assert cleaner.record() == ["begun", "begun", "done"]


def test_two_agents_never_clean_one_device_at_once(lab: Lab, cleaner: Cleaner) -> None:
    raw, first = _cleaning_device(lab, cleaner)
    second = _second_agent(lab)
    try:
        lab.event(first["metadata"]["name"], "VolumeFailedDelete", "another process")
        cleaner.go()
        lab.published(raw, "device", unlike=first["metadata"]["uid"])
        # The second one may clean it once more after the first, which has not let go of its object
        # yet; never beside it, and never what was offered anew.
        record = cleaner.record()
        assert record == ["begun", "done"] * (len(record) // 2)
        # Long enough for the second one to try again.
        time.sleep(7)
        assert cleaner.record() == record
        assert len(lab.volumes_at(raw, "device")) == 1
        second.check()
    finally:
        second.kill()


def test_two_agents_and_directories(lab: Lab) -> None:
    """The slower one must not go on deleting when the volume is the next tenant's already."""
    fs = lab.add_class("fs")
    for number in range(4):
        fs.path(str(number)).mkdir()
        lab.stack.enter_context(tmpfs(fs.path(str(number)), size=128 << 20))
    lab.start_process()
    second = _second_agent(lab)
    try:
        for _ in range(3):
            claims = {}
            for number in range(4):
                volume = lab.published(fs, str(number))
                claims[number] = lab.bound(volume)
                uid = volume["metadata"]["uid"]
                assert os.listdir(fs.path(str(number))) == []
                (fs.path(str(number)) / uid).mkdir()
                _fill(fs.path(str(number)) / uid, 4000)
            time.sleep(0.5)
            for number, claim in claims.items():
                assert _count(fs.path(str(number))) == 4000
                lab.delete_claim(claim)
        for number in range(4):
            lab.until(lambda number=number: _count(fs.path(str(number))), lambda n: not n)  # type: ignore[misc]
            lab.published(fs, str(number))
        assert lab.agent
        lab.agent.check()
        second.check()
    finally:
        second.kill()


def _fill(where: Path, files: int) -> None:
    for number in range(files // 1000):
        (where / str(number)).mkdir()
        for file in range(1000):
            os.close(os.open(where / str(number) / str(file), os.O_WRONLY | os.O_CREAT))


def _count(where: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(where))


def _free_inodes(where: Path) -> int:
    return os.statvfs(where).f_ffree


def test_a_locked_directory_is_neither_cleaned_nor_offered(lab: Lab) -> None:
    """As another agent has it in the midst of its cleaning."""
    lab.hurry(first_wait=0.4, look_again=0.5, stale=0.3)
    fs = lab.add_class("fs")
    used, fresh = (lab.mount(lab.disk(), fs.path(name)) for name in ("used", "fresh"))
    with _locked(fresh):
        lab.start()
        first = lab.published(fs, "used")
        lab.settle()
        assert not lab.volumes_at(fs, "fresh")
        lab.until(lambda: lab.held(fs), lambda held: held == {"in-use": 1})
    lab.published(fs, "fresh")
    claim = lab.bound(first)
    (used / "secret").write_text("tenant")
    with _locked(used):
        lab.delete_claim(claim)
        lab.event(first["metadata"]["name"], "VolumeFailedDelete", "another process")
        assert (used / "secret").exists()
    lab.published(fs, "used", unlike=first["metadata"]["uid"])
    assert not (used / "secret").exists()


def test_what_another_agent_has_finished_is_not_cleaned_again(lab: Lab) -> None:
    """It comes to hold the volume when the other one has let it go: it may be a tenant's again."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("disk"))

    async def held_late(*args: Any, confirm: Confirm | None = None, **how: Any) -> Any:
        async def confirm_late() -> None:
            lab.patch(name, {"metadata": {"finalizers": None}})
            (where / "next").write_text("the next tenant's")
            assert confirm is not None
            await confirm()

        return await clean(*args, confirm=confirm_late, **how)

    lab.deeds = replace(lab.deeds, clean=held_late)
    lab.start()
    first = lab.published(fs, "disk")
    name = first["metadata"]["name"]
    claim = lab.bound(first)
    lab.delete_claim(claim)
    lab.until(lambda: lab.volume(name), lambda found: found is None)
    lab.settle()
    assert (where / "next").read_text() == "the next tenant's"


def test_what_another_agent_has_offered_anew_is_not_written_down_as_clean(lab: Lab) -> None:
    """Both have cleaned it; the slower one comes to say so when a tenant has it again."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("disk"))
    cleaned, go_on = threading.Event(), threading.Event()

    async def told_late(*args: Any, **how: Any) -> Any:
        receipt = await clean(*args, **how)
        cleaned.set()
        await asyncio.to_thread(go_on.wait, 120)
        return receipt

    lab.deeds = replace(lab.deeds, clean=told_late)
    lab.start()
    first = lab.published(fs, "disk")
    lab.delete_claim(lab.bound(first))
    try:
        assert cleaned.wait(60)
        second = _second_agent(lab)
        try:
            anew = lab.published(fs, "disk", unlike=first["metadata"]["uid"])
            claim = lab.bound(anew)
            until_held(lab, where, claim)
        finally:
            second.kill()
        held = recorded(where)
        where.chmod(0o711)
    finally:
        go_on.set()
    lab.settle()
    assert recorded(where) == held
    assert where.stat().st_mode & 0o777 == 0o711
    (where / "rows").write_text("the next tenant's")
    lab.delete_claim(claim)
    lab.published(fs, "disk", unlike=anew["metadata"]["uid"])
    assert not (where / "rows").exists()


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert lock_directory(fd)
        yield
    finally:
        os.close(fd)
