"""LVM's commands of which nobody knows how they ended: the group is put right before the next."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import CodeType

import pytest

from localvolume.host.lvm.commands import Lvm, LvmFailed, LvmUnfinished
from localvolume.host.lvm.gate import GatedLvm, gate_of
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import on_loop
from tests.suite.clock import LONG
from tests.suite.until import until

_numbers = count()

# In LVM's place: it succeeds at everything, and writes down what it was asked.
_PROGRAM = """#!/bin/sh
echo "$*" >> "$0.asked"
case "$*" in *lvs*) echo '{"report": [{"lv": []}]}';; esac
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "lvm"
    path.write_text(_PROGRAM)
    path.chmod(0o755)
    return path


@pytest.fixture
def unreaped() -> Iterator[None]:
    """The kernel reaps our children itself: how they ended is lost."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_a_lost_exit_status(program: Path, unreaped: None) -> None:
    run = on_loop(asyncio.get_running_loop())
    with pytest.raises(LvmUnfinished, match="its exit status was lost"):
        await asyncio.to_thread(Lvm(run, (str(program),)).volumes, "vg0")


def test_another_process_that_is_killed_while_the_group_is_put_right() -> None:
    """What it leaves may be of a kind, or in a place, that was looked at already."""
    group = f"vg-meanwhile-{next(_numbers)}"
    looking, go_on = threading.Event(), threading.Event()
    looks: list[Sequence[str]] = []

    def run(argv: Sequence[str], timeout: float, **_more: object) -> Finished:
        if argv[0] == "dmsetup":
            looks.append(argv)
            looking.set()
            assert go_on.wait(LONG)
        answer = '{"report": [{"lv": []}]}' if "lvs" in argv else ""
        return Finished(tuple(argv), 0, answer, "", False, 0.0)

    one = threading.Thread(target=GatedLvm(run, (), group).put_right)
    two = threading.Thread(target=GatedLvm(run, (), group).put_right, kwargs={"anew": True})
    one.start()
    try:
        assert looking.wait(LONG)
        two.start()
        # Until it waits for the first to end.
        until(lambda: _where(two) == threading.Condition.wait.__code__)
    finally:
        go_on.set()
        one.join()
        two.join()
    assert len(looks) == 2
    assert not gate_of(group).unsafe


def _where(thread: threading.Thread) -> CodeType | None:
    """The function that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame.f_code if frame is not None else None


def test_a_command_of_which_nothing_is_heard(program: Path) -> None:
    """The loop is busy with something else, for longer than the command may take."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    group = f"vg-unheard-{next(_numbers)}"
    run = on_loop(loop, beyond=0.2)
    lvm = GatedLvm(run, (str(program),), group)
    hurried = GatedLvm(run, (str(program),), group, change_seconds=0.2)
    busy, asked = threading.Event(), Path(f"{program}.asked")
    try:
        lvm.create(group, "one", 512)
        assert not gate_of(group).unsafe
        loop.call_soon_threadsafe(busy.wait)
        with pytest.raises(LvmUnfinished, match="too busy") as error:
            hurried.create(group, "two", 512)
        assert isinstance(error.value, LvmFailed)
        assert gate_of(group).unsafe
        busy.set()
        asked.unlink()  # of the first
        lvm.create(group, "three", 512)
        assert not gate_of(group).unsafe
        first, *_, last = asked.read_text().splitlines()
        assert "lvcreate" not in first, "it is put right first"
        assert "--name three" in last
        assert "--name two" not in asked.read_text(), "nobody waits for it any more"
    finally:
        busy.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
