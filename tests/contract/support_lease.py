"""Candidates for a lease: in this process, and as programs that can be stopped and killed.

Run as a program (kubeconfig, namespace, lease, identity, the clock's file, times as JSON): prints
one line per event; see `main`.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import localvolume
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.election.lease import Election, NotLeading, boottime
from localvolume.kube.kinds import CONFIG_MAPS
from tests.contract.support_api import ApiUnderTest, Body
from tests.suite.until import until_async

#: Short, but not so short that a busy machine lets a lease run out by itself.
TIMES: Final[dict[str, Any]] = {
    "lease_seconds": 3.0,
    "renew_deadline": 2.0,
    "retry_seconds": 0.25,
}
#: No lease of these runs out by itself, whoever is held up, the API server too. Where one has to,
#: a test moves the candidates' clock on.
LONG: Final[dict[str, Any]] = {"lease_seconds": 600.0, "renew_deadline": 400.0}
_SOURCE: Final = os.path.dirname(os.path.dirname(localvolume.__file__))


class Clock:
    """A clock of candidates that a test moves on: it is as many seconds ahead as a file has bytes.

    A program that is stopped finds it moved on, as it finds any clock.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    def __call__(self) -> float:
        return boottime() + self.file.stat().st_size

    def move_on(self, seconds: float) -> None:
        os.truncate(self.file, self.file.stat().st_size + int(seconds))


@asynccontextmanager
async def unstalled() -> AsyncIterator[Callable[[], float]]:
    """A clock for candidates of this process, which stands still while that is held up.

    By any other, a leader that gets no turn for two seconds ends its term, and rightly so.
    """
    now = 0.0

    async def tick() -> None:
        nonlocal now
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            now += min(time.monotonic() - began, 0.1)

    ticking = asyncio.create_task(tick())
    try:
        yield lambda: now
    finally:
        ticking.cancel()


class Candidate:
    """One that stands for election in this process; `terms` counts how often it led.

    `at_work` is from the first to the last instruction of its `lead`, which ends `slow_end` s after
    it was cancelled. `stop()` ends it, as a signal would.
    """

    def __init__(
        self,
        kubeconfig: Path | str,
        namespace: str,
        name: str,
        identity: str,
        *,
        slow_end: float = 0.0,
        lead: Callable[[], Any] | None = None,
        **times: Any,
    ) -> None:
        access = find_access(str(kubeconfig), environ={})
        self.client = Client(access, user_agent="test")
        self._options = {"namespace": namespace, "name": name, **TIMES, **times}
        self.election = Election(self.client, identity=identity, **self._options)
        self.terms = 0
        self.at_work = False
        self._slow_end = slow_end
        self._lead = lead
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        self._task = asyncio.create_task(self.election.run(self._work))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._task is not None and not self._task.done():
                await self.stop()
        finally:
            await self.client.__aexit__(kind, error, traceback)

    @property
    def task(self) -> asyncio.Task[None]:
        assert self._task is not None
        return self._task

    @property
    def renewed(self) -> str | None:
        """When the lease was renewed, as it has last seen it."""
        view = self.election._lock.view
        return view.lease.spec.renew_time if view is not None and view.lease else None

    async def renewals(self, count: int) -> None:
        """Wait until it has seen the lease renewed so many times more.

        A leader that has seen its third one has an answer to a renewal that it sent from now on.
        """
        for _ in range(count):
            await until_async(lambda: self.renewed, partial(operator.ne, self.renewed))

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    def begin_again(self) -> None:
        """Another life after `stop()`, with an identity of its own."""
        identity = f"{self.election.identity}+"
        self.election = Election(self.client, identity=identity, **self._options)
        self._task = asyncio.create_task(self.election.run(self._work))

    async def _work(self) -> None:
        self.terms += 1
        self.at_work = True
        try:
            if self._lead is not None:
                await self._lead()
            else:
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self._slow_end)
            self.at_work = False


class Program:
    """A candidate as a process of its own; see `main` for what it says and does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def says(self, what: str, timeout: float = 180.0) -> None:
        """Wait for this line, which must be the next."""
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout):
            line = await self.process.stdout.readline()
        assert line.decode().strip() == what

    async def order(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n".encode())
        await self.process.stdin.drain()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def stopped(self, timeout: float = 60.0) -> None:
        """Wait until the kernel shows it as stopped by a signal."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        await until_async(
            stat.read_text, lambda text: text.rpartition(")")[2].split()[0] == "T", seconds=timeout
        )


@asynccontextmanager
async def program(
    kubeconfig: Path | str, namespace: str, name: str, identity: str, clock: Clock
) -> AsyncIterator[Program]:
    """Run one, with a lease that lasts LONG by that clock; it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        str(kubeconfig),
        namespace,
        name,
        identity,
        str(clock.file),
        json.dumps(LONG),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{_SOURCE}{os.pathsep}{Path(__file__).parents[2]}"},
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


class Seat:
    """The lease of one test."""

    def __init__(self, api: ApiUnderTest) -> None:
        self.api = api
        self.name = api.unique
        self.path = f"{api.namespaced('leases', 'coordination.k8s.io')}/{self.name}"
        api.remember(self.path)

    def candidate(self, identity: str, **options: Any) -> Candidate:
        return Candidate(self.api.kubeconfig, self.api.namespace, self.name, identity, **options)

    def program(self, identity: str, clock: Clock) -> AbstractAsyncContextManager[Program]:
        return program(self.api.kubeconfig, self.api.namespace, self.name, identity, clock)

    async def edit(self, **spec: Any) -> None:
        """By hand, with no regard for anybody."""
        answer = await self.api.patch(self.path, {"spec": spec})
        assert answer.status == 200, answer.body

    async def spec(self) -> Body:
        spec: Body = (await self.api.now(self.path))["spec"]
        return spec


async def main(
    kubeconfig: str, namespace: str, name: str, identity: str, ahead: str, times: str
) -> None:
    """Stand for election. As a leader, obey the orders on standard input:

    "write"  write our identity into the ConfigMap of the lease's name, say "wrote" or "refused"
    "stop"   check that we lead, and stop by SIGSTOP at that very point; once let go on, say whether
             we are "leading" or "lost" before anything else runs, then try to "write"
    """
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    access = find_access(kubeconfig, environ={})
    async with Client(access, user_agent="election") as plain:
        clock, options = Clock(Path(ahead)), {**TIMES, **json.loads(times)}
        election = Election(
            plain, namespace=namespace, name=name, identity=identity, clock=clock, **options
        )
        guarded = Client(access, user_agent="work", before_write=election.check)

        async def write() -> None:
            patch = MergePatch({"data": {"by": identity}})
            try:
                await guarded.patch(CONFIG_MAPS, name, patch, namespace)
            except NotLeading:
                _say("refused")
                raise
            _say("wrote")

        async def lead() -> None:
            _say("elected")
            try:
                while order := (await orders.readline()).decode().strip():
                    if order == "stop":
                        # The worst place: all was checked, and nothing is sent yet.
                        election.check()
                        os.kill(os.getpid(), signal.SIGSTOP)
                        _say("leading" if election.leading else "lost")
                    await write()
            finally:
                _say("ended")

        async with guarded:
            await election.run(lead)


def _say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
