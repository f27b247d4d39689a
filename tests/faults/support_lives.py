"""Agents that are to be killed: forked from a zygote with a point to die at, or started as ever."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import localvolume

_SOURCE = os.path.dirname(os.path.dirname(localvolume.__file__))


class Point(NamedTuple):
    """Where an agent kills itself: "before" or "after" the n-th call of that kind (zygote.py)."""

    kind: str
    n: int
    when: str = "before"


class Zygote:
    """Forks agents, one at a time; see zygote.py."""

    def __init__(self, directory: Path, arguments: Sequence[str], environment: Mapping[str, str]):
        self._arguments = ["agent", *arguments]
        self._environment = dict(environment)
        self.log = directory / "agent.log"
        self.hits = directory / "hits"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": _SOURCE},
            start_new_session=True,
        )
        self._read = b""
        self._pid = 0

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid:
            self.kill()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait(10)
            self._process.stdout.close()

    def start(self, point: Point | None = None) -> None:
        """Begin a life; the one before must be over."""
        assert not self._pid, "an agent is still alive"
        order = {
            "arguments": self._arguments,
            "environment": self._environment,
            "log": str(self.log),
            "hits": str(self.hits),
            "point": point,
        }
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        born = self._line(20)
        assert born is not None, "the zygote does not fork"
        assert born.startswith("born"), born
        self._pid = int(born.split()[1])

    def died(self, seconds: float) -> int | None:
        """The exit status (minus the signal) if it ends within that time, else None."""
        line = self._line(seconds)
        if line is None:
            return None
        self._pid = 0
        return int(line.split()[1])

    def kill(self, number: int = signal.SIGKILL, seconds: float = 20) -> int:
        """Send it a signal, wait for its end, return its status."""
        os.kill(self._pid, number)
        status = self.died(seconds)
        assert status is not None, f"signal {number} did not end the agent"
        return status

    def _line(self, seconds: float) -> str | None:
        assert self._process.stdout
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                return None
            got = os.read(self._process.stdout.fileno(), 4096)
            assert got, "the zygote has ended"
            self._read += got
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()


class Execed:
    """The agent exactly as the DaemonSet starts it: a program of its own."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "localvolume", "agent", *arguments],
                env={**os.environ, "PYTHONPATH": _SOURCE, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)
