"""The administrator's own cleaner, run for real: what it gets, what it may not do, how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import CleaningFailed, CleaningStopped
from localvolume.host.process.workers import Workers
from tests.host.support_cleaning import block_target, fill, holds_secret, is_free, run_clean
from tests.host.support_devices import LoopDevice, loop_device
from tests.suite.clock import LONG, Clock
from tests.suite.units import MIB
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root", "loop")

LOGGER = "localvolume.cleaning.command"
#: Writes to every pipe that the shell has.
CHATTER = 'for fd in /proc/self/fd/*; do if [ -p "$fd" ]; then echo word > "$fd"; fi; done'


@pytest.fixture
def disk() -> Iterator[LoopDevice]:
    with loop_device(32 * MIB) as device:
        fill(device)
        yield device


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    pool = Workers(limit=4)
    yield pool
    pool.close()


def shell(script: str) -> Method:
    return Method("command", command=("/bin/sh", "-c", script))


def is_running(pid_file: Path) -> bool:
    pid = int(pid_file.read_text())
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def until_written(path: Path) -> None:
    await until_async(lambda: path.exists() and path.read_text().endswith("\n"))


async def test_it_gets_the_device_and_our_environment(
    disk: LoopDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "a volume"
    link.symlink_to(disk.path)
    monkeypatch.setenv("FROM_THE_AGENT", "inherited")
    receipt = await run_clean(
        block_target(str(link)),
        shell(
            f'printf "%s\\n" "$LOCAL_PV_BLKDEVICE" "$FROM_THE_AGENT" > {tmp_path}/seen;'
            ' dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M count=32 status=none'
        ),
    )
    assert (tmp_path / "seen").read_text().split("\n")[:2] == [str(link), "inherited"]
    assert not holds_secret(disk)
    assert (receipt.result, receipt.samples) == ("done", 0)
    assert receipt.detail == "no signature is left"
    assert receipt.bytes == 32 * MIB


@pytest.mark.needs("ext4")
async def test_it_may_open_the_device_exclusively_and_what_it_leaves_is_told(
    disk: LoopDevice,
) -> None:
    # mkfs insists on O_EXCL: our own exclusive descriptor must be gone by then.
    receipt = await run_clean(
        block_target(disk), shell('mkfs.ext4 -q -F "$LOCAL_PV_BLKDEVICE" && wipefs /dev/null; :')
    )
    assert receipt.result == "done"
    assert receipt.detail == "recognised as ext4 now"
    assert "proved" not in receipt.summary()


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("echo first; echo the disk is sick >&2; exit 3", "ended with 3"),
        ("echo first; echo the disk is sick; kill -9 $$", "killed by signal 9"),
    ],
)
async def test_any_other_end_is_a_failure_with_its_last_words(
    disk: LoopDevice, script: str, how: str
) -> None:
    with pytest.raises(CleaningFailed, match=how) as failed:
        await run_clean(block_target(disk), shell(script))
    assert "the disk is sick" in failed.value.reason
    assert failed.value.touched


async def test_no_output_stops_it_however_long_its_lines(disk: LoopDevice) -> None:
    # Upstream's scanner gives up at 64 KiB and the cleaner then blocks on its pipe for ever.
    script = (
        "head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2;"
        ' echo; echo end; dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M count=32 status=none'
    )
    async with asyncio.timeout(120):
        await run_clean(block_target(disk), shell(script))
    assert not holds_secret(disk)


async def test_the_log_gets_the_beginning_of_its_output(
    disk: LoopDevice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)
    await run_clean(
        block_target(disk),
        shell("printf 'red \\033[31mline\\r\\n'; seq 1 1000; head -c 5000 /dev/zero | tr '\\0' z"),
    )
    lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert lines[0] == f"{disk.path}: cleaner: red  [31mline"
    assert lines[1] == f"{disk.path}: cleaner: 1"
    assert len(lines) == 201
    assert "not logged" in lines[-1]
    assert max(map(len, lines)) < 600


async def test_too_long_and_it_is_ended_with_all_its_children(
    disk: LoopDevice, tmp_path: Path
) -> None:
    clock, child, said = Clock(), tmp_path / "child", tmp_path / "said"
    script = (
        f"trap '' TERM; sleep 300 & echo $! > {child}; echo working; echo > {said}; wait; sleep 300"
    )
    task = asyncio.create_task(run_clean(block_target(disk), shell(script), timeout=LONG))
    await until_written(said)
    began = time.monotonic()
    clock.move_on(LONG)
    with pytest.raises(CleaningFailed, match=r"not finished after [0-9.]+ s; its last words: w"):
        await task
    assert time.monotonic() - began < 60
    # Whoever is killed goes in its own time.
    await until_async(lambda: not is_running(child))


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_stop_ends_it(disk: LoopDevice, tmp_path: Path, how: str) -> None:
    pid = tmp_path / "pid"
    stop = asyncio.Event()
    task = asyncio.create_task(
        run_clean(block_target(disk), shell(f"echo $$ > {pid}; exec sleep 300"), stop=stop)
    )
    await until_written(pid)
    began = time.monotonic()
    if how == "stop":
        stop.set()
        with pytest.raises(CleaningStopped, match="running /bin/sh"):
            await task
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert time.monotonic() - began < 60
    # What is killed lets go in its own time.
    await until_async(lambda: not is_running(pid))
    await until_async(lambda: is_free(disk))


async def test_what_it_leaves_running_keeps_the_volume_from_everybody(
    disk: LoopDevice, tmp_path: Path, workers: Workers
) -> None:
    """A daemon that left the process group may still be writing, also to what it inherited."""
    pid = tmp_path / "pid"
    target = block_target(disk)
    method = shell(
        f"setsid sh -c 'echo $$ > {pid}; while :; do {CHATTER}; sleep 0.05; done' >/dev/null 2>&1 &"
        f" until test -s {pid}; do sleep 0.05; done"
    )
    paces = CleaningPaces(gone=0.3)
    try:
        with pytest.raises(CleaningFailed, match="processes it started are still running"):
            await run_clean(target, method, workers=workers, paces=paces)
        assert is_running(pid)
        with pytest.raises(CleaningFailed, match="still stuck"):
            await run_clean(target, Method("zero", passes=1), workers=workers)
        assert holds_secret(disk)
    finally:
        os.kill(int(pid.read_text()), 9)
    await until_async(lambda: not workers.hung)
    receipt = await run_clean(target, Method("zero", passes=1), workers=workers)
    assert receipt.result == "proved"


async def test_what_it_writes_to_descriptors_it_finds_is_nobodys(
    disk: LoopDevice, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream's cleaners run with a pipe of ours open; what has ended has ended all the same."""
    caplog.set_level(logging.INFO, logger=LOGGER)
    receipt = await run_clean(block_target(disk), shell(f"{CHATTER}; echo '  '; echo end"))
    assert receipt.result == "done"
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "cleaner:" in line and "word" not in line] == [
        f"{disk.path}: cleaner: end"
    ]


@pytest.mark.parametrize("program", ["/no/such/cleaner", "no-such-cleaner", "/etc/passwd"])
async def test_a_cleaner_that_cannot_be_run_has_touched_nothing(
    disk: LoopDevice, program: str
) -> None:
    with pytest.raises(CleaningFailed, match="no such program") as failed:
        await run_clean(block_target(disk), Method("command", command=(program,)))
    assert not failed.value.touched
    assert holds_secret(disk)


async def test_a_path_turned_elsewhere_while_it_runs_is_not_taken_for_clean(
    disk: LoopDevice, tmp_path: Path
) -> None:
    link = tmp_path / "volume"
    link.symlink_to(disk.path)
    with (
        loop_device(16 * MIB) as other,
        pytest.raises(CleaningFailed, match="lead somewhere else while it ran") as failed,
    ):
        await run_clean(block_target(str(link)), shell(f"ln -sfn {other.path} {link}"))
    assert failed.value.touched


async def test_a_path_turned_elsewhere_just_before_it_runs(
    disk: LoopDevice, tmp_path: Path
) -> None:
    link = tmp_path / "volume"
    link.symlink_to(disk.path)
    target = block_target(str(link))
    with loop_device(16 * MIB) as other:
        fill(other)

        def turn() -> None:  # the last thing that happens with the device held exclusively
            link.unlink()
            link.symlink_to(other.path)

        object.__setattr__(target, "recheck", turn)
        with pytest.raises(CleaningFailed, match="lead somewhere else") as failed:
            await run_clean(target, shell("dd if=/dev/zero of=$LOCAL_PV_BLKDEVICE bs=1M count=9"))
        assert not failed.value.touched
        assert holds_secret(other)
