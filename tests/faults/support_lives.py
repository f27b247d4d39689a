"""Agents that are to be killed: forked from a zygote with a point to die at, or started as ever;
and how one after the other is.
"""

import datetime as dt
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import localvolume
from tests.suite.chance import rounds
from tests.suite.until import until

#: Of how many kills one is of an agent that was started as a program of its own.
_EXECED_EVERY = 12
#: How many lives it may take to meet every point, and so many for each at least.
_LIVES, _LIVES_EACH = 60, 4
#: How long an agent waits for a point that must be met.
_LONGEST_SECONDS = 3.0
#: When an agent has read its configuration on a machine that has nothing else to do, after its
#: birth; on one that takes longer all lives are longer, up to so many times.
_READ_SECONDS, _SLOWEST = 0.04, 6.0

_SOURCE = os.path.dirname(os.path.dirname(localvolume.__file__))


class Point(NamedTuple):
    """Where an agent kills itself: "before" or "after" the n-th call of that kind (zygote.py)."""

    kind: str
    n: int
    when: str = "before"


class Zygote:
    """Forks agents, one at a time; see zygote.py."""

    #: Arguments of Python that start the program: another one may be built upon it.
    program: Sequence[str] = (str(Path(__file__).with_name("zygote.py")),)

    def __init__(
        self,
        directory: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        hurried: Mapping[str, Mapping[str, float]] | None = None,
    ):
        """`hurried` are paces, by role, of agents that are given a point or are to be killed: short
        lives have no use for long waits."""
        self._arguments = ["agent", *arguments]
        self._environment = dict(environment)
        self._hurried = dict(hurried or {})
        self.log = directory / "agent.log"
        self.hits = directory / "hits"
        self._process = subprocess.Popen(
            [sys.executable, *self.program],
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
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait(60)
            self._process.stdout.close()

    def start(self, point: Point | None = None, *, hurried: bool = False) -> None:
        """Begin a life; the one before must be over."""
        assert not self._pid, "an agent is still alive"
        order = {
            "arguments": self._arguments,
            "environment": self._environment,
            "log": str(self.log),
            "hits": str(self.hits),
            "point": point,
            "paces": self._hurried if hurried else {},
        }
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        born = self._line(120)
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

    def kill(self, number: int = signal.SIGKILL, seconds: float = 60) -> int:
        """Send it a signal, wait for its end, return its status."""
        # 0 is everybody in the caller's own process group.
        assert self._pid, "no agent is running"
        os.kill(self._pid, number)
        status = self.died(seconds)
        assert status is not None, f"signal {number} did not end the agent"
        return status

    def execed(self) -> "Execed":
        """One that is no child of the zygote, otherwise the same."""
        return Execed(self._arguments, self._environment, self.log)

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
                [sys.executable, "-m", "localvolume", *arguments],
                env={**os.environ, "PYTHONPATH": _SOURCE, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


class Killing:
    """Agents that die one after the other, each at a point or at any time.

    `points` are the kinds of points (zygote.py) and up to which of them in one life. An agent dies
    at its point or is killed after `seconds`, or as much later as this machine is slower than one
    that has nothing else to do. `first` says, for points that are rarely come to by chance, where
    the agent before must have died.
    """

    def __init__(
        self,
        zygote: Zygote,
        points: Mapping[str, int],
        chance: random.Random,
        seconds: float,
        first: Mapping[str, Point] | None = None,
    ) -> None:
        self._first = dict(first or {})
        self._zygote = zygote
        self._points = points
        self._chance = chance
        self._seconds = seconds
        #: How many times longer than on such a machine something takes here.
        self.slowness = 1.0
        self.died: Counter[str] = Counter()
        self._tried: Counter[Point] = Counter()

    def at_each_point(self, between: Callable[[Point | None], None]) -> None:
        """As many lives as it takes to die before and after a first call of each kind.

        `between` is called before each life, with the point at which it is to end.
        """
        for _ in range(max(_LIVES, _LIVES_EACH * len(self.never_met()))):
            missed = self.never_met()
            if not missed:
                break
            # Not at random: what has waited longest for its turn.
            point = min(missed, key=lambda one: self._tried[one])
            self._tried[point] += 1
            if before := self._first.get(point.kind):
                between(before)
                self._life(before, _LONGEST_SECONDS)
            between(point)
            self._life(point, _LONGEST_SECONDS)
        between(None)

    def at_random(self, between: Callable[[Point | None], None]) -> None:
        """Deaths for as long as the soak says."""
        for number in rounds():
            if number % _EXECED_EVERY == _EXECED_EVERY - 1:
                between(None)
                execed = self._zygote.execed()
                try:
                    time.sleep(self.slowness * self._chance.uniform(0.3, 2.5))
                finally:
                    execed.kill()
                self.died["at any time, started as a program"] += 1
            else:
                point, seconds = self._moment()
                between(point)
                self._life(point, seconds)
        between(None)

    def hits(self) -> Counter[str]:
        """How often an agent died at each point."""
        hits = self._zygote.hits
        return Counter(hits.read_text().splitlines() if hits.exists() else ())

    def never_met(self) -> list[Point]:
        met = self.hits()
        points = (Point(kind, 1, when) for kind in self._points for when in ("before", "after"))
        return [point for point in points if f"{point.when} {point.kind}" not in met]

    def _moment(self) -> tuple[Point | None, float]:
        """Where the next agent dies by itself, and after how many seconds it is killed at the
        latest.

        It is connected after 0.1 s, has read everything after 0.2 s and acts from then on: random
        times reach from before that to far into the work.
        """
        chance = self._chance
        if chance.random() < 0.3:
            return None, chance.choice((chance.uniform(0, 0.3), chance.uniform(0.1, 1.2)))
        kind = chance.choice(list(self._points))
        # The first few are met most often, the last ones now and then.
        n = int(self._points[kind] ** chance.uniform(0, 1.0))
        return Point(kind, n, chance.choice(("before", "after"))), self._seconds

    def _life(self, point: Point | None, seconds: float) -> None:
        """One agent from its birth to its death."""
        said = self._zygote.log.stat().st_size if self._zygote.log.exists() else 0
        born = time.time()
        self._zygote.start(point, hurried=True)
        status = self._zygote.died(seconds * self.slowness)
        if status is None:
            self._zygote.kill()
            self.died["at any time"] += 1
        else:
            log = self._zygote.log.read_text()[-5000:]
            assert status == -signal.SIGKILL, f"{point} ended with {status}:\n{log}"
            self.died["at a point"] += 1
        lived = time.time() - born
        read = _read_after(self._zygote.log.read_bytes()[said:].decode(), born)
        # One that did not live long enough says only that it takes longer than that.
        if read is not None or lived > self.slowness * _READ_SECONDS:
            slowness = (read or lived) / _READ_SECONDS
            self.slowness = (self.slowness + min(max(slowness, 1.0), _SLOWEST)) / 2


def _read_after(log: str, born: float) -> float | None:
    """After how many seconds an agent had read its configuration, by its log."""
    for line in log.splitlines():
        if " configuration in force;" in line:
            return dt.datetime.fromisoformat(line.split()[0]).timestamp() - born
    return None


def until_settled(
    wrong: Callable[[], list[str]],
    zygote: Zygote,
    violations: Sequence[str],
    seconds: float = 180,
) -> None:
    """Wait until nothing is `wrong`, with an agent that lives."""
    __tracebackhide__ = True

    def check() -> None:
        assert not violations, "\n".join([*violations, "the agent's log:", log()])
        status = zygote.died(0)
        assert status is None, f"the agent ended with {status}; its log:\n{log()}"

    def log() -> str:
        return zygote.log.read_text()[-6000:]

    until(
        wrong,
        lambda found: not found,
        seconds=seconds,
        check=check,
        said=lambda: f"the agent's log:\n{log()}",
    )
