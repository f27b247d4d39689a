"""The agent under show: the product itself, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import aiohttp

from localvolume.cli.demonstration.keeper import Keeper

STOP_SECONDS = 8.0
_PORT = re.compile(rb"served on port (\d+)")


@dataclass(frozen=True)
class Usage:
    """What the agent has used so far: resident memory in bytes, processor time in seconds."""

    memory_bytes: int
    cpu_seconds: float


class AgentProcess:
    """`localvolume agent` for one node, in a process group that the keeper watches."""

    def __init__(self, keeper: Keeper, log: str) -> None:
        self._keeper = keeper
        self.log = log
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self, node: str, config: str, kubeconfig: str) -> None:
        """Start it; what it says goes to the file `log`."""
        environment = {
            **os.environ,
            "MY_NODE_NAME": node,
            "KUBECONFIG": kubeconfig,
            "PYTHONUNBUFFERED": "1",
        }
        argv = [sys.executable, "-m", "localvolume", "agent"]
        argv += ["--config", config, "--listen-address", "127.0.0.1:0"]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal is for the demo, which then ends its agent in order.
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

    async def wait_ready(self, seconds: float) -> bool:
        """Until /ready says so; False if it died or took longer."""
        deadline = time.monotonic() + seconds
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < deadline and not self.died():
                if self.port == 0:
                    self._find_port()
                elif await self._ready(session):
                    return True
                await asyncio.sleep(0.02)
        return False

    async def _ready(self, session: aiohttp.ClientSession) -> bool:
        timeout = aiohttp.ClientTimeout(total=2.0)
        try:
            url = f"http://127.0.0.1:{self.port}/ready"
            async with session.get(url, timeout=timeout) as answer:
                return answer.status == 200
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
