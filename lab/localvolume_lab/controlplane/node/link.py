"""The links of a node's network: to the machine, so that the API server reaches kubelet, and to the
router between nodes, so that their pods reach each other."""

import ipaddress
import json
import random
import subprocess
from collections.abc import Sequence

from localvolume_lab.controlplane.node.requirements import NodeFailed, program

#: For benchmarks of network devices (RFC 2544): on no network that anybody else uses.
RANGE = ipaddress.ip_network("198.18.0.0/15")
#: The router's, at its end of every link. Any address that nobody routes will do: only the nodes'
#: own routes name it.
_ROUTER = "169.254.1.1"


def make(holder: int) -> str:
    """A pair of links to the network of process `holder`; returns the node's address.

    It goes with the node's network, which goes with the node's last process. Raises NodeFailed.
    """
    ip = program("ip")
    taken = {
        ipaddress.ip_address(address["local"])
        for link in json.loads(_run([ip, "-json", "-4", "address"]))
        for address in link.get("addr_info", ())
    }
    free = [net for net in RANGE.subnets(new_prefix=30) if not any(one in net for one in taken)]
    ours, theirs = random.SystemRandom().choice(free).hosts()
    # Named after a process that lives as long: no other link can have the name.
    name, peer = f"lvnode{holder}", "eth0"
    _run([ip, "link", "add", name, "type", "veth", "peer", "name", peer, "netns", str(holder)])
    _run([ip, "address", "add", f"{ours}/30", "dev", name])
    _run([ip, "link", "set", name, "up"])
    return f"{theirs}"


def node_commands(address: str) -> list[list[str]]:
    """What is to be run in the node, to give its end the address."""
    return [
        ["ip", "address", "add", f"{address}/30", "dev", "eth0"],
        ["ip", "link", "set", "eth0", "up"],
    ]


def join(router: int, node: int) -> str:
    """A pair of links between the networks of these processes; returns the name of the router's.

    It goes with either network. Raises NodeFailed.
    """
    name, peer = f"lvnode{node}", "eth1"
    ends = ["name", name, "netns", str(router), "type", "veth", "peer", "name", peer]
    _run([program("ip"), "link", "add", *ends, "netns", str(node)])
    return name


def forwarding() -> list[str]:
    """What is to be run in a network that hands on what is for others."""
    return [program("busybox"), "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"]


def router_commands(name: str, address: str, subnet: str) -> list[list[str]]:
    """What is to be run at the router's end of a link, for a node's own address and its pods'."""
    return [
        ["ip", "address", "add", f"{_ROUTER}/32", "dev", name],
        ["ip", "link", "set", name, "up"],
        ["ip", "route", "add", address, "dev", name],
        # A link of the node's earlier start may still be on its way out.
        ["ip", "route", "replace", subnet, "via", address, "dev", name],
    ]


def joined_commands(address: str) -> list[list[str]]:
    """What is to be run in a node that was joined: the router is its way to everything else."""
    return [
        # Otherwise it would ask who the router is as from the API server's address, and the router
        # has that address too.
        ["ip", "address", "add", f"{address}/32", "dev", "eth1"],
        ["ip", "link", "set", "eth1", "up"],
        # CNI has the node hand on what is for its pods.
        ["ip", "route", "add", "default", "via", _ROUTER, "dev", "eth1", "onlink"],
    ]


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise NodeFailed(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
