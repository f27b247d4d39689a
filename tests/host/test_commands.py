"""Programs that hang, flood, ignore signals, leave children behind, and do not exist."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from localvolume.host.process import commands
from localvolume.host.process.commands import CommandMissing, CommandTimedOut, Ending, run
from tests.host.support_devices import formatted, mounted
from tests.suite.clock import LONG, Clock
from tests.suite.until import until_async


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(wanted: str) -> list[str]:
    """Those of ours that are in this state."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name, _, rest = path.read_text().rpartition(")")
            state, parent = rest.split()[:2]
            if state == wanted and int(parent) == os.getpid():
                found.append(name.partition("(")[2])
    return found


def zombies() -> list[str]:
    """Our children that ended and were not reaped. (Other tests' children may still run.)"""
    return children("Z")


def python(script: str, *args: str) -> list[str]:
    return [sys.executable, "-S", "-c", script, *args]


def shell(script: str, *args: str) -> list[str]:
    return ["sh", "-c", script, "sh", *args]


async def test_what_a_program_says_and_how_it_ends() -> None:
    """E-FV-25, E-FV-26."""
    finished = await run(shell("echo out; echo err >&2; exit 3"), timeout=LONG)
    assert (finished.stdout, finished.stderr) == ("out\n", "err\n")
    assert (finished.returncode, finished.truncated) == (3, False)
    assert finished.argv[0] == "sh"
    assert 0 < finished.seconds < 120
    killed = await run(shell("kill -USR1 $$"), timeout=LONG)
    assert killed.returncode == -signal.SIGUSR1


async def test_words_are_passed_as_they_are() -> None:
    words = ["two words", "$(id)", ";reboot", "--help", "", "*", "line\nbreak", "\udcff"]
    script = "import os, sys; sys.stdout.buffer.write(b'|'.join(map(os.fsencode, sys.argv[1:])))"
    finished = await run(python(script, *words), timeout=LONG)
    assert finished.stdout == "two words|$(id)|;reboot|--help||*|line\nbreak|\\xff"


async def test_environment_is_added_and_stdin_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    script = 'read x || echo "nothing to read; $INHERITED $LOCAL_PV_BLKDEVICE"'
    finished = await run(shell(script), timeout=LONG, env={"LOCAL_PV_BLKDEVICE": "/dev/sdx"})
    assert finished.stdout == "nothing to read; yes /dev/sdx\n"


async def test_without_a_thread_to_wait_for_it_no_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be known as failed, and go on where nobody sees it."""

    def none_left(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    said = tmp_path / "said"
    os.mkfifo(said)
    before = set(os.listdir("/proc/self/fd"))
    reading = os.open(said, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", none_left)
            with pytest.raises(OSError, match="can't start new thread"):
                await run(shell('exec 3> "$1"; echo here >&3; sleep 600', str(said)), timeout=LONG)
        assert (await run(shell('echo done > "$1"', str(said)), timeout=LONG)).returncode == 0
        # A program that runs would have said so by now, or keep the other end open.
        assert os.read(reading, 100) == b"done\n"
        assert os.read(reading, 100) == b""
    finally:
        os.close(reading)
    assert set(os.listdir("/proc/self/fd")) <= before


async def test_a_group_of_its_own() -> None:
    """A terminal's interrupt for the agent is not one for a half-done cleaner."""
    finished = await run(
        python("import os; print(os.getpid(), os.getpgrp(), os.getsid(0))"), timeout=LONG
    )
    pid, group, session = finished.stdout.split()
    assert pid == group == session


async def test_only_the_descriptors_given_are_passed(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as passed, open(tmp_path / "other", "w") as other:
        os.set_inheritable(other.fileno(), True)
        finished = await run(
            python("import os; print(*sorted(map(int, os.listdir('/proc/self/fd'))))"),
            timeout=LONG,
            pass_fds=[passed.fileno()],
        )
        # 3 or higher: the listing's own.
        numbers = set(map(int, finished.stdout.split()))
        assert passed.fileno() in numbers
        assert other.fileno() not in numbers


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "/etc/passwd", "/etc"])
async def test_a_missing_program_is_told_from_a_failing_one(program: str) -> None:
    """E-FV-27: cmdutil: an unknown program."""
    with pytest.raises(CommandMissing, match=program) as caught:
        await run([program, "x"], timeout=LONG)
    assert caught.value.program == program


async def test_a_script_whose_interpreter_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(CommandMissing, match=str(script)):
        await run([str(script)], timeout=LONG)


async def test_without_setpriv_programs_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/echo").symlink_to(str(shutil.which("echo")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    commands._dying_with_us.cache_clear()
    try:
        assert (await run(["echo", "x"], timeout=LONG)).stdout == "x\n"
        with pytest.raises(CommandMissing, match=str(script)):
            await run([str(script)], timeout=LONG)
        assert commands._dying_with_us() == ()
    finally:
        commands._dying_with_us.cache_clear()


async def test_ten_megabytes_in_one_line_neither_block_nor_stay() -> None:
    lines: list[str] = []
    script = "import sys; sys.stdout.write('a' * 10_000_000 + 'z'); sys.stderr.write('done')"
    finished = await run(python(script), timeout=LONG, output_limit=1000, on_line=lines.append)
    assert finished.returncode == 0
    assert finished.truncated
    head, _, rest = finished.stdout.partition("\n")
    middle, _, tail = rest.partition("\n")
    assert head == "a" * 500
    assert middle == "[… 9999001 bytes left out …]"
    assert tail == "a" * 499 + "z"
    assert finished.stderr == "done"
    assert sorted(lines) == ["a" * 4096, "done"]


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 30])
async def test_what_fits_is_kept_whole(size: int) -> None:
    finished = await run(
        shell(f"printf %0{size}d 7" if size else ":"), timeout=LONG, output_limit=10
    )
    text = "7".rjust(size, "0") if size else ""
    assert finished.truncated == (size > 10)
    assert finished.stdout == (
        text if size <= 10 else f"00000\n[… {size - 10} bytes left out …]\n00007"
    )


async def test_lines_come_while_the_program_runs() -> None:
    """As progress does: by newlines, by carriage returns, the last one by the end."""
    seen: list[str] = []
    fifo_free = asyncio.Event()

    def on_line(line: str) -> None:
        seen.append(line)
        if line == "100%":
            fifo_free.set()

    script = r"printf 'one\n\n10%%\r100%%\r'; sleep 300"
    task = asyncio.create_task(run(shell(script), timeout=LONG, on_line=on_line))
    await asyncio.wait_for(fifo_free.wait(), 120)
    assert seen == ["one", "10%", "100%"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await run(shell(r"printf 'a\nlast \344'; printf err >&2"), timeout=LONG, on_line=seen.append)
    assert sorted(seen[3:]) == ["a", "err", "last \\xe4"]


async def test_a_failing_callback_ends_the_program() -> None:
    pids: list[int] = []
    ending = Ending(grace=60.0, kill=60.0)

    def on_line(line: str) -> None:
        pids.append(int(line))
        raise ValueError("cannot read that")

    with pytest.raises(ValueError, match="cannot read that"):
        await run(shell("echo $$; sleep 300"), timeout=LONG, on_line=on_line, ending=ending)
    assert not alive(pids[0])
    with pytest.raises(ValueError, match="cannot read that"):
        await run(shell("echo $$"), timeout=LONG, on_line=on_line)


async def test_a_callback_failing_on_what_a_child_says_later() -> None:
    # A slow machine may take its time over that child; a failure ends the wait for it.
    ending = Ending(settle=60.0)

    def on_line(line: str) -> None:
        raise ValueError(line)

    with pytest.raises(ValueError, match="late"):
        await run(shell("(sleep 0.1; echo late) &"), timeout=LONG, on_line=on_line, ending=ending)


async def test_lines_are_cut_whether_they_come_whole_or_in_pieces() -> None:
    lines: list[str] = []
    script = "import sys; sys.stdout.write('a' * 5000 + '\\nb\\n')"
    finished = await run(python(script), timeout=LONG, on_line=lines.append)
    assert lines == ["a" * 4096, "b"]
    assert finished.stdout == "a" * 5000 + "\nb\n"


async def out_of_time(
    script: str, lines: int, ending: Ending, pids: list[int] | None = None
) -> CommandTimedOut:
    """The failure of a script whose time is over once it has said so many lines."""
    clock = Clock()
    said: list[str] = []
    task = asyncio.create_task(run(shell(script), timeout=LONG, on_line=said.append, ending=ending))
    await until_async(lambda: len(said) == lines)
    clock.move_on(LONG)
    with pytest.raises(CommandTimedOut, match=r"sh: not finished after [0-9]+\.[0-9] s") as caught:
        await task
    if pids is not None:
        pids += [int(line) for line in said if line.isdigit()]
    return caught.value


async def test_a_hanging_program_is_ended_in_time() -> None:
    ending = Ending(grace=60.0)
    pids: list[int] = []
    began = time.monotonic()
    failed = await out_of_time("echo $$; echo why >&2; sleep 300", 2, ending, pids)
    assert time.monotonic() - began < ending.grace, "SIGTERM was enough"
    assert not alive(pids[0])
    assert not failed.still_running
    assert (failed.stdout, failed.stderr) == (f"{pids[0]}\n", "why\n")


async def test_one_that_ignores_sigterm_is_killed_with_its_children() -> None:
    pids: list[int] = []
    script = "trap '' TERM; sleep 301 & echo $!; echo $$; sleep 300; sleep 300"
    began = time.monotonic()
    await out_of_time(script, 2, Ending(grace=0.3), pids)
    assert 0.3 <= time.monotonic() - began < 60
    assert len(pids) == 2
    await until_async(lambda: not any(map(alive, pids)))


async def test_one_that_can_tidy_up_at_sigterm_may() -> None:
    script = "trap 'echo tidied; exit 0' TERM; echo ready; sleep 30 & wait"
    failed = await out_of_time(script, 1, Ending(grace=60.0))
    assert failed.stdout == "ready\ntidied\n"


async def test_a_child_left_behind_with_the_pipe_open_is_ended() -> None:
    pids: list[int] = []
    began = time.monotonic()
    finished = await run(
        shell("sleep 300 & echo $!; exit 4"),
        timeout=240,
        on_line=lambda line: pids.append(int(line)),
    )
    assert time.monotonic() - began < 60
    assert finished.returncode == 4
    assert finished.stdout == f"{pids[0]}\n"
    await until_async(lambda: not alive(pids[0]))


async def test_a_child_left_behind_without_the_pipe_is_ended() -> None:
    script = "sleep 300 >/dev/null 2>&1 & echo $!"
    finished = await run(shell(script), timeout=LONG, ending=Ending(settle=60.0))
    assert finished.seconds < 60, "there was nothing to wait for"
    await until_async(lambda: not alive(int(finished.stdout)))


async def test_one_that_left_the_group_and_keeps_the_pipe_is_not_waited_for() -> None:
    ending = Ending(grace=0.2, kill=0.2)
    before = set(os.listdir("/proc/self/fd"))
    finished = await run(shell("setsid sleep 300 & echo $!"), timeout=LONG, ending=ending)
    daemon = int(finished.stdout)
    try:
        assert finished.returncode == 0
        assert finished.seconds < 60
        await until_async(lambda: set(os.listdir("/proc/self/fd")) <= before)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)


async def test_cancelling_ends_the_program_and_its_children() -> None:
    pids: list[int] = []
    task = asyncio.create_task(
        run(
            shell("sleep 1000 & echo $!; echo $$; wait"),
            timeout=None,
            on_line=lambda line: pids.append(int(line)),
        )
    )
    await until_async(lambda: len(pids) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_async(lambda: not any(map(alive, pids)))


async def test_cancelling_twice_does_not_wait_for_sigterm() -> None:
    pids: list[int] = []
    task = asyncio.create_task(
        run(
            shell("trap '' TERM; echo $$; sleep 300; sleep 300"),
            timeout=None,
            on_line=lambda line: pids.append(int(line)),
            ending=Ending(grace=120.0),
        )
    )
    await until_async(lambda: len(pids) == 1)
    began = time.monotonic()
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_async(lambda: not alive(pids[0]))
    assert time.monotonic() - began < 120
    await until_async(lambda: not Path(f"/proc/{pids[0]}").exists())  # no zombie stays, either


async def test_nothing_is_left_over() -> None:
    await run(["true"], timeout=LONG)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await run(shell("exit 1"), timeout=LONG)
    # Fewer may be: what an earlier test left to the garbage collector is closed at any time.
    await until_async(lambda: set(os.listdir("/proc/self/fd")) <= before)
    await until_async(lambda: zombies() == [])


async def test_many_at_once() -> None:
    finished = await asyncio.gather(*(run(["echo", str(n)], timeout=LONG) for n in range(30)))
    assert [done.stdout for done in finished] == [f"{n}\n" for n in range(30)]


async def test_a_lost_exit_status_is_not_taken_for_success() -> None:
    """With SIGCHLD ignored, as some parents leave it, the kernel reaps children itself."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(ChildProcessError, match="exit status was lost"):
            await run(["false"], timeout=LONG)
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_nice_io_lowers_both_priorities() -> None:
    script = "import os, subprocess; print(os.nice(0)); print(subprocess.getoutput('ionice'))"
    normal = await run(python(script), timeout=LONG)
    polite = await run(python(script), timeout=LONG, nice_io=True)
    assert normal.stdout.split("\n")[0] != "10"
    assert polite.stdout.split("\n")[:2] == ["10", "idle"]


@pytest.mark.needs("setpriv")
async def test_the_program_dies_when_we_are_killed() -> None:
    """An agent killed at once must not leave a cleaner writing to a device."""
    agent = """
import asyncio
from localvolume.host.process.commands import run
argv = ["sh", "-c", "echo $$; exec sleep 1000"]
asyncio.run(run(argv, timeout=1000, on_line=lambda line: print(line, flush=True)))
"""
    with subprocess.Popen([sys.executable, "-c", agent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert alive(pid)
        process.kill()
    await until_async(lambda: not alive(pid))


@pytest.mark.needs("root", "loop", "ext4")
async def test_one_that_cannot_be_killed_is_said_to_run_still() -> None:
    """A write to a frozen filesystem, as to a dead disk, ends for no signal."""
    clock = Clock()
    with formatted("ext4") as device, mounted(device) as place:
        subprocess.run(["fsfreeze", "--freeze", str(place)], check=True)
        try:
            # What has not come as far as the write can still be killed, also where it waits for
            # its own code to be read. So it does the same elsewhere first, and says so.
            said: list[str] = []
            writes = shell(': > /dev/null; echo here; : > "$1"', str(place / "file"))
            task = asyncio.create_task(run(writes, timeout=LONG, on_line=said.append))
            await until_async(lambda: said == ["here"] and "sh" in children("D"))
            clock.move_on(LONG)
            with pytest.raises(CommandTimedOut, match="it cannot be killed") as caught:
                async with asyncio.timeout(60):
                    await task
            assert caught.value.still_running
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", str(place)], check=True)
        await until_async(lambda: not caught.value.still_running)
        await until_async(lambda: zombies() == [])
