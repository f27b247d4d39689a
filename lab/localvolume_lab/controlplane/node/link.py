"""The link between the machine and a node's network, so that the API server reaches kubelet."""

import ipaddress
import json
import random
import subprocess
from collections.abc import Sequence

from localvolume_lab.controlplane.node.requirements import NodeFailed, program

#: For benchmarks of network devices (RFC 2544): on no network that anybody else uses.
RANGE = ipaddress.ip_network("198.18.0.0/15")


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


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise NodeFailed(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout
