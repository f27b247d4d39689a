"""Our own commands as processes: agents and controllers, as their containers run them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path


class Program:
    """A command of ours that goes on until it is told to stop, its log in a file."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                argv,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def check(self) -> None:
        status = self.process.poll()
        assert status is None, f"it ended with {status}: {self.log.read_text()[-3000:]}"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"SIGTERM did not end it: {self.log.read_text()[-3000:]}"
            ) from None
