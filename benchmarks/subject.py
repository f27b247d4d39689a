"""What is under measurement: a process as it is installed, and what the kernel counts of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

AS_IN_ITS_IMAGE = {
    "PYTHONOPTIMIZE": "2",
    "PYTHONNODEBUGRANGES": "1",
    "AIOHTTP_NO_EXTENSIONS": "1",
    "PROPCACHE_NO_EXTENSIONS": "1",
    "YARL_NO_EXTENSIONS": "1",
    "MALLOC_ARENA_MAX": "1",
}
"""How the agent is to be started where its memory counts; docs/decisions/0001 has what each saves.

It is measured so, with compiled bytecode, as an image ships it.
"""

_IMPORTS = (
    "import localvolume.cli.main, localvolume.cli.agent, localvolume.cli.controller, "
    "localvolume.kube.access.kubeconfig, localvolume.csi.role"
)

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Program:
    """A process with this command and these variables beside ours; ended with the block."""

    def __init__(self, argv: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        self._argv = list(argv)
        self._environment = {**os.environ, **variables}
        self.log = log

    def __enter__(self) -> Self:
        self.started = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._argv, env=self._environment, stderr=log, stdin=subprocess.DEVNULL
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def rss_bytes(self) -> int:
        """Of the process, which must still run."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self._argv[0]} ended:\n{self.log.read_text()}")
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE


class Subject(Program):
    """One `localvolume` process with these arguments and variables."""

    def __init__(
        self, arguments: Sequence[str], variables: Mapping[str, str], log: Path, bytecode: Path
    ) -> None:
        argv = [str(Path(sys.executable).with_name("localvolume")), *arguments]
        ours = {**AS_IN_ITS_IMAGE, "PYTHONPYCACHEPREFIX": str(bytecode), **variables}
        super().__init__(argv, ours, log)
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def __enter__(self) -> Self:
        # Compiles what is not compiled yet, so that no measurement does.
        subprocess.run([sys.executable, "-c", _IMPORTS], env=self._environment, check=True)
        return super().__enter__()

    def cpu_seconds(self) -> float:
        """User and system time so far, of the process and the children it has waited for."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / _TICKS

    def received_bytes(self) -> int:
        """TLS bytes that its open connections have received, as the kernel counts them."""
        lines = subprocess.run(
            ["ss", "-tinpHO", "state", "established"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        own = [line for line in lines if f"pid={self.process.pid}," in line]
        return sum(
            int(found) for line in own for found in re.findall(r"bytes_received:(\d+)", line)
        )
