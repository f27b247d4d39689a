"""Real nodes with a pool each, our agents on them and our controller: where databases are run."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.node.support_installed import disk
from tests.suite.api import CLASSES
from tests.suite.names import NATIVE
from tests.suite.units import MIB

Object = dict[str, Any]

_OURS = [sys.executable, "-m", "localvolume"]
_POOL_BYTES = 8192 * MIB


class Ground:
    """The nodes of one control plane; `directory` has the disks of their pools and all logs."""

    def __init__(self, plane: ControlPlane, nodes: Sequence[KubeletNode], directory: Path) -> None:
        self.plane = plane
        self.nodes = {node.name: node for node in nodes}
        self._directory = directory
        self._programs: dict[str, Program] = {}

    def start(self) -> None:
        controller = ["controller", "--lease-name", "databases", "--listen-address", ""]
        self._start("controller", [*_OURS, *controller], {})
        for name, node in self.nodes.items():
            config = self._directory / f"config-{name}"
            config.mkdir()
            pools = {"local": {"hostDir": str(self.pool(name)), "backend": "image"}}
            (config / "pools").write_text(json.dumps(pools))
            agent = ["agent", "--config", str(config), "--listen-address", "127.0.0.1:0"]
            self._start(name, node.enter([*_OURS, *agent]), {"MY_NODE_NAME": name})

    def stop(self) -> None:
        with contextlib.ExitStack() as ending:
            for program in self._programs.values():
                ending.callback(program.stop)

    def give(self, image: Path) -> None:
        """Give every node the images of an archive."""
        with ThreadPoolExecutor(len(self.nodes)) as giving:
            list(giving.map(lambda node: node.import_image(image), self.nodes.values()))

    def lose(self, node: str) -> None:
        """Have it lose power, for good; its Node stays."""
        self.nodes.pop(node).stop()

    def pool(self, node: str) -> Path:
        """Where the pool's disk is mounted in the node."""
        return self._directory / f"pool-{node}"

    def logs(self) -> str:
        """The last words of each of ours."""
        return "\n".join(
            f"{name}:\n{program.log.read_text()[-1500:]}"
            for name, program in self._programs.items()
        )

    def storage_class(self, objects: Objects, name: str, kind: str) -> None:
        """A class as the chart's `local`, whose volumes have that filesystem."""
        body = {
            "metadata": {"name": name},
            "provisioner": NATIVE,
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
            "parameters": {"fsType": kind},
        }
        objects.make(CLASSES, body)

    def _start(self, name: str, argv: list[str], environment: dict[str, str]) -> None:
        cluster = {"KUBECONFIG": str(self.plane.kubeconfig), "MY_NAMESPACE": "default"}
        log = self._directory / f"{name}.log"
        self._programs[name] = Program(argv, {**cluster, **environment}, log)


@contextlib.contextmanager
def ground_of(
    plane: ControlPlane, nodes: Sequence[KubeletNode], directory: Path
) -> Iterator[Ground]:
    """Pools, agents and controller until the end."""
    ground = Ground(plane, nodes, directory)
    with contextlib.ExitStack() as stack:
        for node in nodes:
            pool, name = ground.pool(node.name), node.name
            stack.enter_context(disk(node, directory / f"{name}.disk", str(pool), _POOL_BYTES))
        stack.callback(ground.stop)
        ground.start()
        yield ground
