"""KubeletNode: one real node of a control plane, Ready in seconds, gone without a trace."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from localvolume_lab.controlplane.access import RequestFailed
from localvolume_lab.controlplane.assets import Assets
from localvolume_lab.controlplane.build import provide
from localvolume_lab.controlplane.node import configuration, enter, link, requirements
from localvolume_lab.controlplane.node.client import KubeletClient
from localvolume_lab.controlplane.node.holding import Keeper
from localvolume_lab.controlplane.node.images import pause_image
from localvolume_lab.controlplane.node.requirements import NodeFailed
from localvolume_lab.controlplane.plane import ControlPlane
from localvolume_lab.controlplane.processes import Component

#: What a node sees as its own, so a directory there would be hidden from it.
_HIDDEN = ("/run", "/var/run", "/var/log", "/var/lib", "/proc")


class KubeletNode:
    """kubelet, containerd and runc in mount, network and PID namespaces of their own, as root.

    A context manager, or start() and stop(). Inside, mounts propagate as on any node, / is the
    machine's, and /run, /var/log and /var/lib are the node's own. Everything ends with this
    process, however it ends. stop() leaves the objects in the API: the node goes silent, and a
    start with the same name is the same node after losing power and its disk.

    `plane`: running, with `node_controllers=True`, else the node keeps the taint of a new one.
    `directory`: for logs and configuration (a temporary one of ours is removed); kubelet's own
    directory is `state` below it. `labels`: of the Node. `client`: what the API server proves
    itself with; without it, logs and exec do not work. `kubelet_args`: they come last, and so win.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        directory: str | os.PathLike[str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        client: KubeletClient | None = None,
        kubelet_args: Sequence[str] = (),
        assets: Assets | None = None,
    ) -> None:
        self.plane, self.name = plane, name
        self._given_directory = None if directory is None else Path(directory).resolve()
        self._labels, self._client = dict(labels or {}), client
        self._kubelet_args = tuple(kubelet_args)
        self._assets = assets
        self._keeper: Keeper | None = None
        self._components: dict[str, Component] = {}

    # Life

    def __enter__(self) -> "KubeletNode":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, timeout: float = 90.0) -> None:
        """Start it and wait until it is Ready; raises NodeFailed or ComponentsMissing."""
        if self._keeper is not None:
            raise NodeFailed("this node is already running")
        if (reason := requirements.missing()) is not None:
            raise NodeFailed(reason)
        self._assets = self._assets or provide(["kubelet"])
        self.directory = self._given_directory or Path(
            tempfile.mkdtemp(prefix="localvolume-node-", dir=_visible(tempfile.gettempdir()))
        )
        _visible(str(self.directory))
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._layout = configuration.Layout(self.directory)
        service = self.plane.request("GET", "/api/v1/namespaces/default/services/kubernetes")
        self._keeper = Keeper(
            self.directory,
            remove=self._given_directory is None,
            apiserver=int(self.plane.url.rpartition(":")[2]),
            service=service["spec"]["clusterIP"],
        )
        try:
            self._start(self._assets, self._keeper, time.monotonic() + timeout)
        except BaseException:
            self.stop()
            raise

    def _start(self, assets: Assets, keeper: Keeper, deadline: float) -> None:
        keeper.wait_ready(deadline - time.monotonic())
        self.address = link.make(keeper.holder)
        for argv in link.node_commands(self.address):
            self.run(argv)
        self._write_configuration(keeper.cgroup)
        containerd = f"--config={self._layout.containerd_config}"
        self._launch(keeper, "containerd", [requirements.program("containerd"), containerd])
        self._until(self._containerd_answers, deadline, "containerd")
        image = self.directory / "pause.tar"
        pause_image(image, configuration.PAUSE)
        self.import_image(image)
        self._launch(keeper, "kubelet", [str(assets["kubelet"]), *self._kubelet_flags()])
        self.wait_ready(deadline - time.monotonic())

    def _launch(self, keeper: Keeper, name: str, argv: Sequence[str]) -> None:
        log = self.directory / f"{name}.log"
        log.unlink(missing_ok=True)  # of an earlier start in the same directory
        self._components[name] = Component(name, self.enter(argv), log, keeper)
        self._components[name].start()

    def _write_configuration(self, cgroup: str) -> None:
        layout = self._layout
        shutil.copyfile(self.plane.kubeconfig, layout.kubeconfig)
        layout.kubeconfig.chmod(0o600)
        runc, plugins = requirements.program("runc"), requirements.plugins()
        layout.containerd_config.write_text(configuration.containerd(layout, runc, plugins))
        layout.cni.mkdir(exist_ok=True)
        (layout.cni / "pods.conflist").write_text(configuration.network(layout))
        certificate = None if self._client is None else self._client.certificate
        layout.kubelet_config.write_text(configuration.kubelet(layout, cgroup, certificate))

    def _kubelet_flags(self) -> list[str]:
        labels = ",".join(f"{key}={value}" for key, value in self._labels.items())
        return [
            f"--config={self._layout.kubelet_config}",
            f"--kubeconfig={self._layout.kubeconfig}",
            f"--root-dir={self._layout.kubelet_root}",
            f"--cert-dir={self._layout.state / 'certificates'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            *([f"--node-labels={labels}"] if labels else []),
            "--v=2",
            *self._kubelet_args,
        ]

    def stop(self) -> None:
        """End every process of the node, and with them its mounts, links and control groups.

        Nothing is asked to end: it is as if the node lost power. Raises NodeFailed naming what
        could not be removed.
        """
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        keeper.close()
        for component in self._components.values():
            component.stop(grace=0)
        self._components.clear()
        # What is in the directory that was given stays, but for what lets in.
        self._layout.kubeconfig.unlink(missing_ok=True)
        if keeper.failure is not None:
            raise NodeFailed(keeper.failure)

    # Health

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Until the Node is Ready and free of the taint of a new one; raises NodeFailed."""
        self._until(self._ready, time.monotonic() + timeout, f"the node {self.name} to be Ready")

    def check(self) -> None:
        """Raises NodeFailed if kubelet or containerd ended by itself."""
        for component in self._components.values():
            if (death := component.died()) is not None:
                raise NodeFailed(death)

    def _ready(self) -> bool:
        try:
            node: dict[str, Any] = self.plane.request("GET", f"/api/v1/nodes/{self.name}")
        except (OSError, RequestFailed):
            return False
        conditions = {one["type"]: one for one in node["status"].get("conditions", ())}
        ready = conditions.get("Ready", {})
        tainted = any("not-ready" in one["key"] for one in node["spec"].get("taints", ()))
        # Of an earlier start with this name it may be Ready still, but at another address.
        addresses = [one["address"] for one in node["status"].get("addresses", ())]
        return ready.get("status") == "True" and not tainted and self.address in addresses

    def _containerd_answers(self) -> bool:
        argv = ["ctr", "--address", self._layout.socket, "version"]
        return subprocess.run(self.enter(argv), capture_output=True, check=False).returncode == 0

    def _until(self, condition: Callable[[], bool], deadline: float, what: str) -> None:
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                tails = "\n".join(f"{c.log}:\n{c.tail()}" for c in self._components.values())
                raise NodeFailed(f"waited too long for {what}\n{tails}")
            time.sleep(0.05)

    # Use

    @property
    def holder(self) -> int:
        """The process whose namespaces are the node's: /proc/<holder>/root is its /."""
        if self._keeper is None:
            raise NodeFailed("this node is not running")
        return self._keeper.holder

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of kubelet and of containerd."""
        return {name: component.log for name, component in self._components.items()}

    @property
    def plugin_directory(self) -> Path:
        """Where kubelet looks for FlexVolume drivers (--volume-plugin-dir); the node's own."""
        return self._layout.plugins

    def restart_kubelet(self, timeout: float = 60.0) -> None:
        """End kubelet and start it anew, as an upgrade does: pods go on meanwhile.

        Raises NodeFailed.
        """
        kubelet = self._components["kubelet"]
        kubelet.stop()
        kubelet.start()
        self.wait_ready(timeout)

    def pause_kubelet(self) -> None:
        """Freeze kubelet, as on a node that hangs: what runs goes on, and nothing is heard of."""
        self._components["kubelet"].signal(signal.SIGSTOP)

    def resume_kubelet(self) -> None:
        """Let a frozen kubelet go on."""
        self._components["kubelet"].signal(signal.SIGCONT)

    @property
    def kubelet_root(self) -> Path:
        """kubelet's own directory (--root-dir), which only the node sees; /var/lib/kubelet too."""
        return self._layout.kubelet_root

    def enter(self, argv: Sequence[str]) -> list[str]:
        """`argv` such that it runs inside the node, with the same environment and directory.

        A signal sent to the process reaches the program, and it ends as the program ends.
        """
        return entering(self.holder, argv)

    def run(self, argv: Sequence[str], *, input: str | None = None, timeout: float = 60.0) -> str:  # noqa: A002
        """Run a program inside the node; its standard output. Raises NodeFailed, TimeoutExpired."""
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

    def import_image(self, path: str | os.PathLike[str]) -> None:
        """Give the node the images of a docker archive, under the names that are in it."""
        where = ["--address", self._layout.socket, "--namespace", "k8s.io"]
        self.run(["ctr", *where, "images", "import", str(Path(path).absolute())], timeout=120)


def entering(holder: int, argv: Sequence[str]) -> list[str]:
    """`argv` such that it runs in the node whose namespaces the process `holder` holds."""
    return [sys.executable, "-I", "-S", enter.__file__, str(holder), *argv]


def _visible(directory: str) -> str:
    if any(directory == hidden or directory.startswith(f"{hidden}/") for hidden in _HIDDEN):
        raise NodeFailed(f"a node sees another {directory} than the machine: choose another place")
    return directory
