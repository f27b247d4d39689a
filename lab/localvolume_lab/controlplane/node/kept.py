"""Namespaces that a keeper keeps, and programs that run in them: a node, or what joins nodes."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from localvolume_lab.controlplane.node import enter, requirements
from localvolume_lab.controlplane.node.holding import Keeper
from localvolume_lab.controlplane.node.requirements import NodeFailed
from localvolume_lab.controlplane.plane import ControlPlane
from localvolume_lab.controlplane.running import START_SECONDS, Running

#: The inside has its own of these, so a directory there would be hidden from it.
_HIDDEN = ("/run", "/var/run", "/var/log", "/var/lib", "/proc")


class Kept(Running):
    """Mount, network and PID namespaces with a way to the API server.

    A context manager, or start() and stop(). Everything ends with this process, however it ends.
    """

    error = NodeFailed

    def __init__(self, plane: ControlPlane, directory: str | os.PathLike[str] | None) -> None:
        super().__init__()
        self.plane = plane
        self._given_directory = None if directory is None else Path(directory).resolve()
        self._keeper: Keeper | None = None

    # Life

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start it and wait until it is ready; raises NodeFailed, ComponentsMissing, or
        OSError if the API server does not answer."""
        if self._keeper is not None:
            raise NodeFailed(f"{self._what} is already running")
        if (reason := requirements.missing()) is not None:
            raise NodeFailed(reason)
        program = self._program()
        # First, as nothing is left behind if the API server does not answer.
        service = self.plane.request("GET", "/api/v1/namespaces/default/services/kubernetes")
        self._service: str = service["spec"]["clusterIP"]
        self.directory = self._given_directory or Path(
            tempfile.mkdtemp(prefix="localvolume-node-", dir=_visible(tempfile.gettempdir()))
        )
        _visible(str(self.directory))
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._keeper = Keeper(
            self.directory,
            remove=self._given_directory is None,
            apiserver=int(self.plane.url.rpartition(":")[2]),
            service=self._service,
        )
        deadline = time.monotonic() + timeout
        try:
            self._keeper.wait_ready(deadline - time.monotonic())
            shutil.copyfile(self.plane.kubeconfig, self._kubeconfig)
            self._kubeconfig.chmod(0o600)
            self._start(self._keeper, program, deadline)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process in it, and with them its mounts, links and control groups.

        Loop devices that programs in it attached are detached. Raises NodeFailed if something of it
        could not be removed.
        """
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        keeper.close()
        for component in self._components.values():
            component.stop(grace=0)
        self._components.clear()
        # A given directory stays as it is, without the credentials.
        self._kubeconfig.unlink(missing_ok=True)
        if keeper.failure is not None:
            raise NodeFailed(keeper.failure)

    @property
    @abstractmethod
    def _what(self) -> str:
        """What it is, in a sentence."""

    @abstractmethod
    def _program(self) -> Path:
        """What is built to run in it, built now where it was not; raises ComponentsMissing."""

    @abstractmethod
    def _start(self, keeper: Keeper, program: Path, deadline: float) -> None:
        """Start what runs in it, now that its namespaces are there; raises NodeFailed."""

    @property
    def _kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    def _succeeds(self, argv: Sequence[str]) -> bool:
        return subprocess.run(self.enter(argv), capture_output=True, check=False).returncode == 0

    # Use

    @property
    def running(self) -> bool:
        return self._keeper is not None

    @property
    def holder(self) -> int:
        """The process that has the namespaces: /proc/<holder>/root is the / inside."""
        if self._keeper is None:
            raise NodeFailed(f"{self._what} is not running")
        return self._keeper.holder

    def enter(self, argv: Sequence[str]) -> list[str]:
        """`argv` such that it runs inside, with the same environment and directory.

        A signal sent to the process reaches the program, and it ends as the program ends.
        """
        return entering(self.holder, argv)

    def run(self, argv: Sequence[str], *, input: str | None = None, timeout: float = 60.0) -> str:  # noqa: A002
        """Run a program inside; its standard output. Raises NodeFailed, TimeoutExpired."""
        done = subprocess.run(
            self.enter(argv),
            input=input or "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise NodeFailed(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout


def entering(holder: int, argv: Sequence[str]) -> list[str]:
    """`argv` such that it runs in the namespaces that the process `holder` holds."""
    return [sys.executable, "-I", "-S", enter.__file__, str(holder), *argv]


def _visible(directory: str) -> str:
    if any(directory == hidden or directory.startswith(f"{hidden}/") for hidden in _HIDDEN):
        raise NodeFailed(f"a node sees another {directory} than the machine: choose another place")
    return directory
