"""One component as a process: started with its log, ended by asking and then by force."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from localvolume_lab.controlplane import guard


class Guard:
    """Our end of the process that cleans up if we die; see guard.py."""

    def __init__(self, remove: Path | None) -> None:
        extra = [] if remove is None else [str(remove)]
        reading, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, *extra],
                stdin=reading,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(reading)

    def watch(self, pid: int) -> None:
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        self._tell(f"-{pid}\n")

    def _tell(self, line: str) -> None:
        # A guard that somebody killed guards nothing any more; the plane still works.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, line.encode())

    def close(self) -> None:
        """The guard ends what it still watches, removes its directory and exits."""
        os.close(self._pipe)
        self._process.wait()


class Component:
    """A component that can be started again after it was stopped; its log is appended to."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, guard: Guard) -> None:
        self.name, self.argv, self.log = name, tuple(argv), log
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.alive:
            return
        # Their own proxies, kubeconfigs and homes must not reach the components.
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.log.parent),
            "LANG": "C.UTF-8",
        }
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                env=environment,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)

    def ask_to_end(self) -> None:
        if self.alive:
            self.signal(signal.SIGCONT)  # a paused process would never see the next signal
            self.signal(signal.SIGTERM)

    def stop(self, grace: float = 5.0) -> None:
        """SIGTERM, then SIGKILL after `grace` seconds (0: at once); returns when it has ended."""
        if self._process is None:
            return
        if grace > 0:
            self.ask_to_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._process.wait()
        self._guard.forget(self._process.pid)
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, if it runs."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def died(self) -> str | None:
        """Why it is not running although it was started, with its last words; else None."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return f"{self.name} ended by itself ({how}); the end of {self.log}:\n{self.tail()}"

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 65536))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return "  (no log)"
        return "\n".join(f"  {line[:400]}" for line in text.splitlines()[-lines:])


def wait_all(components: Sequence[Component], grace: float) -> None:
    """Ask all at once, then give them `grace` seconds together."""
    for component in components:
        component.ask_to_end()
    deadline = time.monotonic() + grace
    for component in components:
        component.stop(max(0.01, deadline - time.monotonic()))
