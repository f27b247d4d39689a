"""KubeletNode: one real node of a control plane, Ready in seconds, gone without a trace."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane.access import RequestFailed
from localvolume_lab.controlplane.assets import Assets
from localvolume_lab.controlplane.build import provide
from localvolume_lab.controlplane.node import configuration, link, requirements
from localvolume_lab.controlplane.node.client import KubeletClient
from localvolume_lab.controlplane.node.holding import Keeper
from localvolume_lab.controlplane.node.images import pause_image
from localvolume_lab.controlplane.node.kept import Kept
from localvolume_lab.controlplane.node.network import NodeNetwork
from localvolume_lab.controlplane.plane import ControlPlane
from localvolume_lab.controlplane.running import START_SECONDS


class KubeletNode(Kept):
    """kubelet, containerd and runc in mount, network and PID namespaces of their own, as root.

    A context manager, or start() and stop(). Inside, mounts propagate as on any node, / is the
    machine's, and /run, /var/log and /var/lib are the node's own. Everything ends with this
    process, however it ends. stop() asks nothing to end and leaves the objects in the API: the node
    goes silent, as if it lost power, and a start with the same name is the same node with a new
    disk.

    `plane`: running, with `node_controllers=True`, else the node keeps the taint of a new one.
    `directory`: for logs and configuration (a temporary one of ours is removed); kubelet's own
    directory is `state` below it. `labels`: of the Node. `client`: what the API server proves
    itself with; without it, logs and exec do not work. `network`: what it shares with other nodes,
    running; without it, pods reach those of their own node alone, and know no names.
    `kubelet_args`: they come last, and so win.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        directory: str | os.PathLike[str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        client: KubeletClient | None = None,
        network: NodeNetwork | None = None,
        kubelet_args: Sequence[str] = (),
        assets: Assets | None = None,
    ) -> None:
        super().__init__(plane, directory)
        self.name = name
        self._labels, self._client, self._network = dict(labels or {}), client, network
        self._kubelet_args = tuple(kubelet_args)
        self._assets = assets

    # Life

    @property
    def _what(self) -> str:
        return "this node"

    def _program(self) -> Path:
        return (self._assets or provide(["kubelet"]))["kubelet"]

    def _start(self, keeper: Keeper, program: Path, deadline: float) -> None:
        self._layout = configuration.Layout(self.directory)
        self.address = link.make(keeper.holder)
        for argv in link.node_commands(self.address):
            self.run(argv)
        subnet = configuration.POD_SUBNET
        if self._network is not None:
            subnet = self._network.join(self.name, keeper.holder, self.address)
            for argv in link.joined_commands(self.address):
                self.run(argv)
        self._write_configuration(keeper.cgroup, subnet)
        containerd = f"--config={self._layout.containerd_config}"
        argv = self.enter([requirements.program("containerd"), containerd])
        self._launch("containerd", argv, keeper)
        answers = ["ctr", "--address", self._layout.socket, "version"]
        self._until(lambda: self._succeeds(answers), deadline, "containerd")
        image = self.directory / "pause.tar"
        pause_image(image, configuration.PAUSE)
        self.import_image(image)
        self._launch("kubelet", self.enter([str(program), *self._kubelet_flags()]), keeper)
        self.wait_ready(deadline - time.monotonic())

    def _write_configuration(self, cgroup: str, subnet: str) -> None:
        layout = self._layout
        runc, plugins = requirements.program("runc"), requirements.plugins()
        layout.containerd_config.write_text(configuration.containerd(layout, runc, plugins))
        layout.cni.mkdir(exist_ok=True)
        (layout.cni / "pods.conflist").write_text(configuration.network(layout, subnet))
        certificate = None if self._client is None else self._client.certificate
        server = None if self._network is None else self._network.name_server
        kubelet = configuration.kubelet(layout, cgroup, certificate, server)
        layout.kubelet_config.write_text(kubelet)

    def _kubelet_flags(self) -> list[str]:
        labels = ",".join(f"{key}={value}" for key, value in self._labels.items())
        return [
            f"--config={self._layout.kubelet_config}",
            f"--kubeconfig={self._kubeconfig}",
            f"--root-dir={self._layout.kubelet_root}",
            f"--cert-dir={self._layout.state / 'certificates'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            *([f"--node-labels={labels}"] if labels else []),
            "--v=2",
            *self._kubelet_args,
        ]

    # Health

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Until the Node is Ready and free of the taint of a new one; raises NodeFailed."""
        self._until(self._ready, time.monotonic() + timeout, f"the node {self.name} to be Ready")

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

    # Use

    @property
    def plugin_directory(self) -> Path:
        """Where kubelet looks for FlexVolume drivers (--volume-plugin-dir); the node's own."""
        return self._layout.plugins

    def restart_kubelet(self, timeout: float = START_SECONDS) -> None:
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

    def import_image(self, path: str | os.PathLike[str]) -> None:
        """Give the node the images of a docker archive, under the names that are in it."""
        where = ["--address", self._layout.socket, "--namespace", "k8s.io"]
        self.run(["ctr", *where, "images", "import", str(Path(path).absolute())], timeout=120)
