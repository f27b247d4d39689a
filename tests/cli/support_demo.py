"""Running `localvolume demo` as people do, and looking for whatever it may have left behind."""

import codecs
import contextlib
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from pathlib import Path

from tests.suite.until import until

DEMO = (sys.executable, "-m", "localvolume", "demo")
#: Code: from the sentence on that its first word is a pattern of, it rests after each. It does not
#: end before the signal comes, whatever holds the test up.
REST = """
import re, sys
from localvolume_lab.demo.narrator import Narrator

moment, tell = sys.argv[1], Narrator._print

def told(narrator, text, *how, **more):
    tell(narrator, text, *how, **more)
    if re.search(moment, text):
        narrator._pace = 3600.0

Narrator._print = told
"""

#: The same, and it is run with the other words.
RESTING = f"""{REST}
import runpy

sys.argv = ["localvolume", "demo", *sys.argv[2:]]
runpy.run_module("localvolume", run_name="__main__")
"""
#: Longer than it ever takes, for one output line or the end, in seconds.
PATIENCE = 300.0
#: What the kernel and the keeper may take after a kill -9, in seconds.
SETTLE = 60.0


class Run:
    """One run, in a temporary directory of its own, with its output as it comes."""

    def __init__(
        self, where: Path, argv: Sequence[str], *, columns: int = 0, env: dict[str, str] | None
    ) -> None:
        self.where = where
        self.output = ""
        self._changed = threading.Condition()
        self._terminal: int | None = None
        # What would say more of the terminal than the terminal itself.
        told = {"NO_COLOR", "COLUMNS", "LINES"}
        environment = {key: value for key, value in os.environ.items() if key not in told}
        environment |= {"TMPDIR": str(where), **(env or {})}
        if columns:
            self._terminal, inside = pty.openpty()
            ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
            environment["TERM"] = "xterm-256color"
            # Ctrl-C is a signal only from the terminal that one is controlled by.
            argv = ["setsid", "--ctty", *argv]
            stdin = stdout = inside
        else:
            stdin = subprocess.DEVNULL
            self._reading, stdout = os.pipe()
        self._process = subprocess.Popen(
            # nohup has whatever it runs ignore SIGHUP.
            ["env", "--default-signal=HUP", *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stdout,
            env=environment,
            start_new_session=not columns,
        )
        os.close(stdout)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        source = self._terminal if self._terminal is not None else self._reading
        # A reading may end within a character.
        decoder = codecs.getincrementaldecoder("utf-8")()
        # A terminal whose other end is closed answers EIO.
        with contextlib.suppress(OSError):
            while data := os.read(source, 65536):
                with self._changed:
                    self.output += decoder.decode(data)
                    self._changed.notify_all()
        with self._changed:
            self.output += "\0"
            self._changed.notify_all()

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for a part of the output; AssertionError with all of it if that never comes."""
        with self._changed:
            self._changed.wait_for(
                lambda: re.search(pattern, self.output) or "\0" in self.output, PATIENCE
            )
            found = re.search(pattern, self.output)
            assert found, f"no {pattern!r} in:\n{self.output}"
            return found

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def type(self, text: str) -> None:
        assert self._terminal is not None
        os.write(self._terminal, text.encode())

    def end(self) -> int:
        """The exit status once all output has been read; minus the number of a signal."""
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(PATIENCE)
        os.close(self._terminal if self._terminal is not None else self._reading)
        # Whatever the test had to say: nothing may stay on the machine.
        left = residue(self.where)
        for process in processes(self.where):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        assert not left, f"left behind: {left}\n{self.output}"


@contextlib.contextmanager
def running(
    where: Path,
    *options: str,
    argv: Sequence[str] = DEMO,
    columns: int = 0,
    env: dict[str, str] | None = None,
) -> Iterator[Run]:
    """Run it with its output on a pipe, or on a terminal that is so many columns wide.

    However it ends, nothing of it may be left: that is asserted here, for every test.
    """
    run = Run(where, [*argv, *options], columns=columns, env=env)
    try:
        yield run
    finally:
        run.close()


def residue(where: Path) -> list[str]:
    """What is left of demos that ran there, given a while to go."""
    with contextlib.suppress(AssertionError):
        return until(lambda: _residue(where), lambda left: not left, seconds=SETTLE)
    return _residue(where)


def _residue(where: Path) -> list[str]:
    left = [f"file {path}" for path in where.iterdir()]
    left += [
        f"mount {line}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if str(where) in line
    ]
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if str(where) in path.read_text():
                left.append(f"loop device {path.parts[3]}")
    return left + [f"process {number}" for number in processes(where)]


def processes(where: Path) -> list[int]:
    """Processes, not zombies, whose command line names the directory: agents, keepers, servers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(where) in path.read_bytes():
                found.append(int(path.parts[2]))
    return found
