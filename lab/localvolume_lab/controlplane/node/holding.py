"""Our end of the process that keeps a node's namespaces; see keeper.py."""

import dataclasses
import json
import os
import select
import subprocess
import sys
from pathlib import Path

from localvolume_lab.controlplane.node.requirements import NodeFailed
from localvolume_lab.controlplane.processes import Guard

_REMOVAL_SECONDS = 180
"""Longer than it waits for devices and control groups."""


@dataclasses.dataclass(frozen=True)
class Order:
    """What one node needs."""

    #: Its directory, and whether it is removed at the end.
    directory: str
    remove: bool
    #: The port of the API server on the machine's loopback, and its address as pods know it.
    apiserver: int
    service: str


class Keeper(Guard):
    """Takes a node away when it is closed, or when this process ends in whatever way.

    As the guard of components it need not be told of them: they end with its namespaces.
    """

    def __init__(self, directory: Path, *, remove: bool, apiserver: int, service: str) -> None:
        order = Order(str(directory), remove, apiserver, service)
        self._log = directory / "keeper.log"
        self._answered: dict[str, object] = {}
        #: What it could not remove, once closed.
        self.failure: str | None = None
        reading, self._pipe = os.pipe()
        try:
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "localvolume_lab.controlplane.node.keeper"),
                        json.dumps(dataclasses.asdict(order)),
                    ],
                    stdin=reading,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd="/",
                    start_new_session=True,
                )
        finally:
            os.close(reading)

    def watch(self, pid: int) -> None:
        pass

    def forget(self, pid: int) -> None:
        pass

    def wait_ready(self, timeout: float) -> None:
        """Until the namespaces are there; raises NodeFailed with the reason why they are not."""
        line = b""
        if (answer := self._process.stdout) is not None:
            readable, _, _ = select.select([answer], [], [], max(0.0, timeout))
            line = answer.readline() if readable else b""
        self._answered = json.loads(line or b"{}")
        if "holder" not in self._answered:
            raise NodeFailed(
                "no namespaces for a node here: "
                f"{self._answered.get('error') or self._log.read_text() or 'no answer'}"
            )

    @property
    def holder(self) -> int:
        """The id of process 1 of the node."""
        return int(str(self._answered["holder"]))

    @property
    def cgroup(self) -> str:
        """The node's control group, from the root of each hierarchy."""
        return str(self._answered["cgroup"])

    def close(self) -> None:
        """Have everything taken away; `failure` says what could not be."""
        os.close(self._pipe)
        try:
            code = self._process.wait(_REMOVAL_SECONDS)
        except subprocess.TimeoutExpired:
            self.failure = (
                f"process {self._process.pid} has not taken the node away in {_REMOVAL_SECONDS} s"
            )
            return
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()
        if code != 0:
            # The log may have gone with the directory.
            words = self._log.read_text() if self._log.exists() else ""
            self.failure = words.strip() or f"the node's keeper ended with {code}"
