"""NodeNetwork: what joins nodes of one control plane, so that pods reach each other by name."""

import ipaddress
import os
import threading
from pathlib import Path

from localvolume_lab.controlplane.node import dns, link, requirements
from localvolume_lab.controlplane.node.holding import Keeper
from localvolume_lab.controlplane.node.kept import Kept
from localvolume_lab.controlplane.plane import ControlPlane

PODS = ipaddress.ip_network("10.244.0.0/16")


class NodeNetwork(Kept):
    """A router between nodes, and the cluster's DNS (CoreDNS) beside it.

    A context manager, or start() and stop(): before the nodes that are given it, and after them.
    Pods of all these nodes, and the nodes, reach each other by address; nothing is translated, and
    the machine routes nothing. Pods find Services without an address of their own, and the pods of
    these, by the usual names. The router is a network of its own, so no two of them have anything
    to do with each other.
    """

    def __init__(
        self, plane: ControlPlane, directory: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(plane, directory)
        self._subnets = PODS.subnets(new_prefix=24)
        self._taken: dict[str, str] = {}
        self._joining = threading.Lock()

    @property
    def name_server(self) -> tuple[str, str]:
        """Its address for pods, and the domain of the names that it knows."""
        return dns.address(self._service), dns.DOMAIN

    def join(self, name: str, holder: int, address: str) -> str:
        """Link it to the network of process `holder`, a node's; returns the subnet of its pods.

        That is the same whenever the node of that name starts. What is to be done in the node is
        left to it (link.joined_commands). From any thread; raises NodeFailed.
        """
        with self._joining:
            subnet = self._taken.get(name) or str(next(self._subnets))
            self._taken[name] = subnet
        own = link.join(self.holder, holder)
        for argv in link.router_commands(own, address, subnet):
            self.run(argv)
        return subnet

    @property
    def _what(self) -> str:
        return "this network of nodes"

    def _program(self) -> Path:
        return dns.provide()

    def _start(self, keeper: Keeper, program: Path, deadline: float) -> None:
        server, _ = self.name_server
        self.run(link.forwarding())
        self.run(["ip", "address", "add", f"{server}/32", "dev", "lo"])
        corefile = self.directory / "Corefile"
        corefile.write_text(dns.corefile(server, self._kubeconfig))
        self._launch("coredns", self.enter([str(program), "-conf", str(corefile)]), keeper)
        asked = [requirements.program("busybox"), "wget", "-q", "-O", "-", dns.READY_URL]
        self._until(lambda: self._succeeds(asked), deadline, "the name server to be ready")
