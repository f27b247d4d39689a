"""What is shown: the product itself, its agent and its controller as processes of their own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from localvolume_lab.demo.keeper import Keeper
from localvolume_lab.demo.machine import search_path
from localvolume_lab.demo.witness import NotSeen

STOP_SECONDS = 8.0
_PORT = re.compile(rb"served on port (\d+)")


@dataclass(frozen=True)
class Usage:
    """What a process has used so far: resident memory in bytes, processor time in seconds."""

    memory_bytes: int
    cpu_seconds: float


class Product:
    """`localvolume agent` or `localvolume controller`, in a process group that the keeper watches.

    `what` is the subcommand.
    """

    def __init__(self, keeper: Keeper, what: str, log: str) -> None:
        self._keeper = keeper
        self.what = what
        self.log = log
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it with these arguments; what it says goes to the file `log`."""
        own = {"PATH": search_path(), "PYTHONUNBUFFERED": "1"}
        environment = {**os.environ, **own, **environment}
        argv = [sys.executable, "-m", "localvolume", self.what, *words]
        argv += ["--listen-address", "127.0.0.1:0"]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal is for the demo, which then ends its processes in order.
                start_new_session=True,
            )
        self._keeper.watch(self._process.pid)

    def died(self) -> bool:
        """Whether it ended, which it never should by itself."""
        return self._process is not None and self._process.poll() is not None

    def tail(self, lines: int = 12) -> str:
        """Its last words."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return "".join(file.readlines()[-lines:]).rstrip()
        except FileNotFoundError:
            return ""

    async def wait_ready(self, seconds: float, saying: str = "ok") -> None:
        """Until /ready says so, with these words in it. Raises NotSeen."""
        deadline = time.monotonic() + seconds
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < deadline and not self.died():
                if self.port == 0:
                    self._find_port()
                elif await self._ready(session, saying):
                    return
                await asyncio.sleep(0.02)
        if self.died():
            raise NotSeen(f"the {self.what} ended instead of starting")
        raise NotSeen(f"the {self.what} was not ready after {seconds:.0f} s")

    async def _ready(self, session: aiohttp.ClientSession, saying: str) -> bool:
        timeout = aiohttp.ClientTimeout(total=2.0)
        try:
            url = f"http://127.0.0.1:{self.port}/ready"
            async with session.get(url, timeout=timeout) as answer:
                return answer.status == 200 and saying in await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _find_port(self) -> None:
        with open(self.log, "rb") as file:
            if found := _PORT.search(file.read()):
                self.port = int(found[1])

    def usage(self) -> Usage:
        """From /proc; raises OSError where it is gone."""
        with open(f"/proc/{self.pid}/statm") as file:
            pages = int(file.read().split()[1])
        with open(f"/proc/{self.pid}/stat") as file:
            # The second field, the program's name, may hold anything, brackets too.
            fields = file.read().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return Usage(pages * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK"))

    async def stop(self) -> None:
        """Ask it to end, then make it; returns when it has."""
        process = self._process
        if process is None:
            return
        deadline = time.monotonic() + STOP_SECONDS
        if process.poll() is None:
            process.terminate()
        while process.poll() is None:
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                break
            await asyncio.sleep(0.01)
        self._keeper.forget(process.pid)
        self._process = None
