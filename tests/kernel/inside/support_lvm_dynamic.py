"""A node in the guest whose claims are served from volume groups: the agent, and the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import pytest

from localvolume.host.lvm.commands import LogicalVolume, Lvm
from localvolume_lab.controlplane import ControlPlane, RequestFailed
from localvolume_lab.sandbox import Sandbox
from localvolume_lab.sandbox.kinds import NAMESPACES, STORED
from tests.cluster.support_agent import AgentThread
from tests.cluster.support_dynamic import Claim, DynamicLab, Volume
from tests.cluster.support_objects import Objects
from tests.cluster.support_thread import LoopThread
from tests.suite.api import CAPACITIES, MERGE, NODES

T = TypeVar("T")

#: The guest is many times slower than the machine.
SECONDS = 120.0
#: Each sandbox makes its namespaces itself.
_KEPT = {one.qualified: one for one in STORED if one is not NAMESPACES}


class SandboxPlane:
    """The sandbox in a thread of its own, asked as a control plane is.

    `kept` are the objects that `halt` has written of one before.
    """

    def __init__(self, directory: Path, kept: Path | None = None) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._kept = kept
        self._url = ""
        self._up = threading.Event()
        self._thread = LoopThread("sandbox", self._serve)
        assert self._up.wait(60)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._sandbox = Sandbox()
        for plural, bodies in json.loads(self._kept.read_text() if self._kept else "{}").items():
            for body in bodies:
                self._sandbox.store.put(_KEPT[plural], body)
        async with self._sandbox as sandbox:
            self._url = sandbox.url
            sandbox.kubeconfig(self.kubeconfig)
            self._up.set()
            await asyncio.Event().wait()

    def stop(self) -> None:
        self._thread.stop()

    def halt(self, path: Path) -> None:
        """Write all objects there, on disk; from now on nobody is answered any more."""
        halted = threading.Event()
        self._loop.call_soon_threadsafe(self._halt, path, halted)
        assert halted.wait(60)

    def _halt(self, path: Path, halted: threading.Event) -> NoReturn:
        store = self._sandbox.store
        found = {plural: [one.body for one in store[kind]] for plural, kind in _KEPT.items()}
        with path.open("w") as file:
            json.dump(found, file)
            file.flush()
            os.fsync(file.fileno())
        halted.set()
        while True:
            time.sleep(60)

    def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Any:
        """As ControlPlane.request."""
        asked = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Accept": "application/json"},
        )
        try:
            with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            with error:
                raise RequestFailed(method, path, error.code, error.read().decode()) from None

    def create_node(self, name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        """As ControlPlane.create_node."""
        labels = {"kubernetes.io/hostname": name, **(labels or {})}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        made: dict[str, Any] = self.request("POST", NODES, node)
        return made


class LvmLab(DynamicLab):
    """A lab whose pools are volume groups."""

    def __init__(self, objects: Objects, directory: Path, lvm: Lvm) -> None:
        super().__init__(objects, "guest", directory)
        self.lvm = lvm

    def group(self, group: str, name: str = "fast", **keys: Any) -> None:
        """A pool of that volume group."""
        self.settings["pools"][name] = {"backend": "lvm", "volumeGroup": group, **keys}

    def start(self, *, wait: bool = True, write: bool = True, **options: Any) -> AgentThread:
        """Once every pool is in use: on a busy machine the first look at one may be too slow."""
        agent = super().start(wait=wait, write=write, **options)
        if wait:
            self.until(lambda: self.http("/ready")[0], lambda status: status == 200)
        return agent

    def until(
        self, read: Callable[[], T], wanted: Callable[[T], Any], seconds: float = SECONDS
    ) -> T:
        return super().until(read, wanted, seconds)

    def lv(self, volume: Volume, group: str = "vg0") -> LogicalVolume | None:
        return self.lvm.volume(group, volume["metadata"]["name"])

    def has(self, claim: Claim) -> str:
        """What the claim's status says of its size."""
        found = self.read_claim(claim)
        assert found is not None
        return str(found["status"].get("capacity", {}).get("storage", ""))

    def capacity(self, class_name: str) -> tuple[str, str]:
        """What is published of the class: all the room, and the largest volume."""
        path = CAPACITIES
        for one in self.plane.request("GET", path)["items"]:
            if one["storageClassName"] == class_name:
                return one["capacity"], one["maximumVolumeSize"]
        return "", ""

    def orphans(self) -> list[dict[str, Any]]:
        """What `localvolume orphans` lists."""
        options = ["--config", str(self.config_directory), "--node", self.node, "--output", "json"]
        options += ["--kubeconfig", str(self.plane.kubeconfig)]
        argv = [sys.executable, "-m", "localvolume", "orphans", *options]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode in (0, 1), done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def touch(self) -> None:
        """Wake the agent up."""
        self._count += 1
        body = {"metadata": {"labels": {"look": f"again-{self._count}"}}}
        self.plane.request("PATCH", f"/api/v1/nodes/{self.node}", body, content_type=MERGE)


@pytest.fixture
def lab(tmp_path: Path, lvm: Lvm) -> Iterator[LvmLab]:
    with contextlib.ExitStack() as stack:
        plane = SandboxPlane(tmp_path)
        stack.callback(plane.stop)
        objects = Objects(cast("ControlPlane", plane))
        made = stack.enter_context(LvmLab(objects, tmp_path, lvm))
        made.make_node()
        yield made
