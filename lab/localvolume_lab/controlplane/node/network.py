"""NodeNetwork: what joins nodes of one control plane, so that pods reach each other by name."""

import ipaddress
import os
from pathlib import Path

from localvolume_lab.controlplane.node import dns, link, requirements
from localvolume_lab.controlplane.node.holding import Keeper
from localvolume_lab.controlplane.node.kept import Kept
from localvolume_lab.controlplane.plane import ControlPlane

PODS = ipaddress.ip_network("10.244.0.0/16")


class NodeNetwork(Kept):
    """A router between nodes, and the cluster's DNS (CoreDNS) beside it.

    A context manager, or start() and stop(). It starts before the nodes that are given it, and
    stops after them. These nodes and all of their pods reach each other by address; nothing is
    translated, and the machine routes nothing. Pods find Services without an address of their own,
    and the pods of these, by the usual names. The router is a network of its own, so no two of them
    have anything to do with each other.
    """

    def __init__(
        self, plane: ControlPlane, directory: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(plane, directory)
        self._free = [str(subnet) for subnet in PODS.subnets(new_prefix=24)]
        self._taken: dict[str, str] = {}

    @property
    def name_server(self) -> tuple[str, str]:
        """Its address for pods, and the domain of the names that it knows."""
        return dns.address(self._service), dns.DOMAIN

    def join(self, name: str, holder: int, address: str) -> str:
        """Link it to the network of process `holder`, a node's; returns the subnet of its pods.

        A node that starts again has the same subnet. Its own end of the link is left to it
        (link.joined_commands). Several nodes may join at once; raises NodeFailed.
        """
        if name not in self._taken:
            self._taken[name] = self._free.pop(0)
        subnet = self._taken[name]
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
