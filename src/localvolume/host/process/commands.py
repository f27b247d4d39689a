"""Run a program to its end, within limits of time and memory, in a process group of its own.

How it differs from ``asyncio.create_subprocess_exec``, and why:

- Output is always taken from the pipes and only its head and tail are kept, so no amount of it
  blocks the program or fills our memory.
- The leader of the process group is reaped last. Until then its number, which is also the group's,
  cannot be reused, so signals reach that group or nobody.
- The kernel kills the program when we die (``PR_SET_PDEATHSIG``): a cleaner that outlived the agent
  could write to a device published again. ``setpriv`` sets this and then becomes the program:
  Python's ``preexec_fn`` may deadlock in a process with threads. The signal comes when the *thread*
  that started the program ends, so programs are started on the loop's thread, never in a worker.
  It reaches the program only, not its children; in a container those end with it. To know for
  certain that nothing is left, pass a locked file in ``pass_fds``: every descendant holds it.
"""

import asyncio
import contextlib
import errno
import functools
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NamedTuple

#: Longer lines are cut for ``on_line``; what is kept of the stream is not.
LINE_LIMIT = 4096
_LINE_END = re.compile(rb"[\r\n]")


class Excerpt:
    """The head and the tail of a stream, ``limit`` bytes together."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = len(self._tail) - self._tail_limit
        if excess > 0:
            del self._tail[:excess]
            self.left_out += excess

    def text(self) -> str:
        if not self.left_out:
            return _text(self._head + self._tail)
        return f"{_text(self._head)}\n[… {self.left_out} bytes left out …]\n{_text(self._tail)}"


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "backslashreplace")


@dataclass(eq=False)
class OutputStream:
    """Our end of one pipe: read as the program writes, until nobody holds the other end."""

    loop: asyncio.AbstractEventLoop
    descriptor: int
    limit: int
    on_line: Callable[[str], None] | None
    failed: Callable[[BaseException], None]

    def __post_init__(self) -> None:
        self._line = bytearray()
        self.kept = Excerpt(self.limit)
        self.ended: asyncio.Future[None] = self.loop.create_future()
        os.set_blocking(self.descriptor, False)
        self.loop.add_reader(self.descriptor, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return
        self.kept.add(data)
        if self.on_line is not None:
            try:
                self._split(data, self.on_line)
            except Exception as error:  # noqa: BLE001 - the caller's own, raised again from run()
                self.on_line = None
                self.failed(error)
        if not data:
            self.close()

    def _split(self, data: bytes, on_line: Callable[[str], None]) -> None:
        *whole, rest = _LINE_END.split(data)
        if not data:  # the end also ends the last line
            whole, rest = [b""], b""
        for piece in whole:
            self._line += piece[: LINE_LIMIT - len(self._line)]
            line, self._line = self._line, bytearray()
            if line:
                on_line(_text(line))
        self._line += rest[: LINE_LIMIT - len(self._line)]

    def close(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
            self.loop.remove_reader(self.descriptor)
            os.close(self.descriptor)


class Ending(NamedTuple):
    """How long to wait, in seconds, for a program that ends or is told to end."""

    #: For output still in the pipes after its end.
    settle: float = 0.5
    #: Between asking its group to end and killing it.
    grace: float = 2.0
    #: For the kernel to kill it.
    kill: float = 1.0


ENDING = Ending()


class Finished(NamedTuple):
    """How a program ended and what it said."""

    argv: tuple[str, ...]
    #: The exit status, or minus the number of the signal that ended it.
    returncode: int
    #: UTF-8; other bytes appear as ``\\xNN``. The middle is left out when it was too long.
    stdout: str
    stderr: str
    #: Whether the middle of either was left out.
    truncated: bool
    seconds: float


class CommandMissing(Exception):
    """There is no such program, or it cannot be executed: correct the image or the setting."""

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(f"{program}: {reason}")
        self.program = program


class CommandTimedOut(Exception):
    """The program took too long, and was told to end, then killed.

    ``still_running``: it could not even be killed (it hangs in the kernel, on a dead disk). Treat
    what it works on as in use until ``still_running`` no longer holds.
    """

    def __init__(self, running: "_Running", argv: Sequence[str], seconds: float) -> None:
        self._running = running
        self.argv = tuple(argv)
        self.seconds = seconds
        self.stdout = running.out.kept.text()
        self.stderr = running.err.kept.text()
        state = "; it cannot be killed" if self.still_running else ""
        super().__init__(f"{argv[0]}: not finished after {seconds:.1f} s{state}")

    @property
    def still_running(self) -> bool:
        return not self._running.exited.done()


async def run(
    argv: Sequence[str],
    *,
    timeout: float | None,
    output_limit: int = 65536,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    nice_io: bool = False,
    pass_fds: Sequence[int] = (),
    ending: Ending = ENDING,
) -> Finished:
    """Run ``argv`` without a shell, stdin empty, in a process group of its own, and wait for it.

    ``timeout`` in seconds (None: none), ``output_limit`` in bytes for each of stdout and stderr.
    ``env`` is added to our own environment. ``on_line`` gets each line of both, without its end
    (newline or carriage return), empty ones left out, cut at 4096 bytes; what it raises ends the
    program and is raised here. ``nice_io``: with idle disk priority and a lower processor priority.

    When the program ends, is cancelled or times out, whatever else is left of its group ends too:
    SIGTERM, and SIGKILL after ``ending.grace``. Any exit status is returned; raises
    ``CommandMissing``, ``CommandTimedOut``, and OSError when the exit status was lost.
    """
    began = time.monotonic()
    running = _start(argv, output_limit, env, on_line, nice_io, pass_fds, ending)
    clock = asyncio.timeout(timeout)
    try:
        async with clock:
            await running.over
        running.check()
        await running.settle()
        running.check()
    except GeneratorExit:  # the loop is closed: nothing can wait any more
        raise
    except BaseException as error:
        await running.end()
        if isinstance(error, TimeoutError) and clock.expired():
            raise CommandTimedOut(running, argv, time.monotonic() - began) from None
        raise
    finally:
        running.close()
    returncode = running.exited.result()
    stderr = running.err.kept.text()
    if returncode in (126, 127) and stderr.startswith("setpriv: "):
        raise CommandMissing(argv[0], stderr.strip().removeprefix("setpriv: "))
    return Finished(
        tuple(argv),
        returncode,
        running.out.kept.text(),
        stderr,
        bool(running.out.kept.left_out or running.err.kept.left_out),
        time.monotonic() - began,
    )


class _Running:
    """A started program: its two streams, and its exit status once it has one."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        out: int,
        err: int,
        limit: int,
        on_line: Callable[[str], None] | None,
        ending: Ending,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._ending = ending
        self._closed = False
        self._reaped = False
        self._error: BaseException | None = None
        #: Done when the program has ended: its exit status. It is not reaped before ``close``.
        self.exited: asyncio.Future[int] = loop.create_future()
        #: Done when there is nothing to wait for any more: it ended, or ``on_line`` failed.
        self.over: asyncio.Future[None] = loop.create_future()
        self.out = OutputStream(loop, out, limit, on_line, self._failed)
        self.err = OutputStream(loop, err, limit, on_line, self._failed)

    def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the end of the program, in a thread, leaving it unreaped."""
        returncode: int | None = None
        # Somebody else may have reaped it: then its exit status is unknown, and we invent none.
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            if ended is not None:
                normal = ended.si_code == os.CLD_EXITED
                returncode = ended.si_status if normal else -ended.si_status
        try:
            loop.call_soon_threadsafe(self._ended, returncode)
        except RuntimeError:  # the loop is closed: we are ending too
            self._reap()

    def _ended(self, returncode: int | None) -> None:
        if returncode is None:
            lost = ChildProcessError(f"{self._process.args!r}: its exit status was lost")
            self.exited.set_exception(lost)
            self.exited.exception()  # marks it as seen: not every caller asks
        else:
            self.exited.set_result(returncode)
        if not self.over.done():
            self.over.set_result(None)
        if self._closed:
            self._reap()

    def _failed(self, error: BaseException) -> None:
        self._error = self._error or error
        if not self.over.done():
            self.over.set_result(None)

    def check(self) -> None:
        """Raise what ``on_line`` raised."""
        if self._error is not None:
            raise self._error

    async def settle(self) -> None:
        """After the program's end, take the rest of the output, and end what still writes."""
        streams = (self.out.ended, self.err.ended)
        # What the program itself wrote is in the pipes already. If they do not end after that,
        # a child of it holds them open.
        await asyncio.wait(streams, timeout=self._ending.settle)
        grace, kill = self._ending.grace, self._ending.kill
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, kill)):
            if not all(ended.done() for ended in streams):
                self._signal(number)
                await asyncio.wait(streams, timeout=seconds)

    async def end(self) -> None:
        """End the whole group: gently, then by force. Returns even if the kernel cannot kill it."""
        self._signal(signal.SIGTERM)
        await asyncio.wait(
            (self.exited, self.out.ended, self.err.ended), timeout=self._ending.grace
        )
        self._signal(signal.SIGKILL)
        await asyncio.wait((self.exited,), timeout=self._ending.kill)

    def close(self) -> None:
        """Release everything at once; kill what is left of the group."""
        self._signal(signal.SIGKILL)
        self.out.close()
        self.err.close()
        self._closed = True
        if self.exited.done():
            self._reap()

    def _signal(self, number: int) -> None:
        if not self._reaped:
            # Not there any more, or not ours to signal (it changed its user): nothing to do here.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _reap(self) -> None:
        self._reaped = True
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process.pid, 0)
        # Popen must neither wait itself nor warn. It too says 0 when a status is lost.
        self._process.returncode = 0


def _start(
    argv: Sequence[str],
    output_limit: int,
    env: Mapping[str, str] | None,
    on_line: Callable[[str], None] | None,
    nice_io: bool,
    pass_fds: Sequence[int],
    ending: Ending,
) -> _Running:
    environment = {**os.environ, **(env or {})}
    program = shutil.which(argv[0], path=environment.get("PATH", os.defpath))
    if program is None:
        raise CommandMissing(argv[0], "no such program, or not executable")
    # Before the program: one that nobody waits for would go on unseen, and be known as failed.
    begun = _waiting_for_one(argv[0])
    running = None
    try:
        running = _started(
            argv, program, environment, output_limit, on_line, nice_io, pass_fds, ending
        )
    finally:
        begun.put(running)
    return running


def _waiting_for_one(name: str) -> "SimpleQueue[_Running | None]":
    """A queue to put the started program into, for a thread that waits for its end; None: there is
    none. Raises OSError (EAGAIN) if the system gives no more threads.
    """
    loop, begun = asyncio.get_running_loop(), SimpleQueue[_Running | None]()

    def wait() -> None:
        if (running := begun.get()) is not None:
            running.wait(loop)

    try:
        # A thread works on every kernel and under every seccomp profile; pidfds do not.
        threading.Thread(target=wait, daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error), name) from error
    return begun


def _started(
    argv: Sequence[str],
    program: str,
    environment: Mapping[str, str],
    output_limit: int,
    on_line: Callable[[str], None] | None,
    nice_io: bool,
    pass_fds: Sequence[int],
    ending: Ending,
) -> _Running:
    out, out_theirs = os.pipe()
    err, err_theirs = os.pipe()
    try:
        process = subprocess.Popen(
            [*(_polite() if nice_io else ()), *_dying_with_us(), program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=out_theirs,
            stderr=err_theirs,
            env=environment,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        os.close(out)
        os.close(err)
        if isinstance(error, (FileNotFoundError, PermissionError, NotADirectoryError)):
            raise CommandMissing(argv[0], error.strerror or str(error)) from error
        raise
    finally:
        os.close(out_theirs)
        os.close(err_theirs)
    return _Running(process, out, err, output_limit, on_line, ending)


@functools.cache
def _dying_with_us() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    # BusyBox has a setpriv that does not know the option and would refuse every command.
    if setpriv is None or os.path.basename(os.path.realpath(setpriv)) == "busybox":
        return ()
    return (setpriv, "--pdeathsig", "KILL", "--")


@functools.cache
def _polite() -> tuple[str, ...]:
    words: tuple[str, ...] = ()
    if nice := shutil.which("nice"):
        words += (nice, "-n", "10")
    if ionice := shutil.which("ionice"):
        words += (ionice, "-c", "3", "-t")
    return words
