"""Pods on several real nodes reach each other by name and by address, as members of one set do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.kubectl import KubectlFailed
from localvolume_lab.controlplane.node import KubeletClient, KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_joined import TOGETHER, joined_nodes
from tests.node.support_pods import BUSYBOX
from tests.suite.api import NODES, PODS, SERVICES, SETS
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "coredns")

SERVE = """
mkdir -p /www/cgi-bin
printf '#!/bin/sh\\necho; echo $HOSTNAME for $REMOTE_ADDR\\n' > /www/cgi-bin/you
chmod +x /www/cgi-bin/you
exec httpd -f -p 0.0.0.0:80 -h /www
"""
"""Says whose it is and who asks, as it sees that."""


class Members:
    """Three pods of one StatefulSet, each on a node of its own, of those together by that name."""

    def __init__(self, plane: ControlPlane, objects: Objects, name: str) -> None:
        self._plane, self._objects, self.name = plane, objects, name
        labels = {"app": name}
        port = {"port": 80, "path": "/cgi-bin/you"}
        apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        container = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", SERVE],
            "readinessProbe": {"httpGet": port, "periodSeconds": 1},
        }
        pod = {
            "nodeSelector": {TOGETHER: name},
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
            },
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        service = {"clusterIP": "None", "selector": labels, "ports": [{"port": 80}]}
        objects.make(SERVICES, {"metadata": {"name": name}, "spec": service})
        spec = {
            "serviceName": name,
            "replicas": 3,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        objects.make(SETS, {"metadata": {"name": name}, "spec": spec})
        for number in range(3):
            objects.adopt(f"{PODS}/{name}-{number}")

    def pods(self) -> list[dict[str, Any]]:
        """In the order of their numbers."""
        found = self._objects.get(f"{PODS}?labelSelector=app={self.name}")["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def addresses(self) -> list[str]:
        """The pods', once all three are ready."""
        ready_all = [True] * 3
        pods = until(self.pods, lambda pods: [ready(one) for one in pods] == ready_all, seconds=150)
        return [pod["status"]["podIP"] for pod in pods]

    def within(self, number: int, script: str) -> str:
        """What a script says in a member; "" where it fails."""
        pod = f"{self.name}-{number}"
        try:
            return self._plane.kubectl("exec", pod, "--", "sh", "-c", script).strip()
        except KubectlFailed:
            return ""

    def ask(self, number: int, name: str) -> str:
        """What somebody of that name, or address, says to a member."""
        return self.within(number, f"timeout 5 wget -q -O - http://{name}/cgi-bin/you")

    def hears(self, number: int, name: str, wanted: str) -> None:
        """Wait until a member hears that of somebody: a ready pod has its name a moment later."""
        until(lambda: self.ask(number, name), lambda said: said == wanted, seconds=150)


def ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@pytest.fixture
def nodes(
    node_plane: ControlPlane,
    kubelet_client: KubeletClient,
    archives: list[Path],
    objects: Objects,
    tmp_path_factory: pytest.TempPathFactory,
    unique: str,
) -> Iterator[list[KubeletNode]]:
    for number in range(3):
        objects.adopt(f"{NODES}/{unique}-{number}")
    directory = tmp_path_factory.mktemp("joined")
    with joined_nodes(node_plane, kubelet_client, directory, unique, archives) as nodes:
        yield nodes


def test_members_on_three_nodes_reach_each_other(
    node_plane: ControlPlane,
    objects: Objects,
    nodes: list[KubeletNode],
    archives: list[Path],
    unique: str,
) -> None:
    """Nobody's address is translated, and when a node loses power the others go on."""
    members = Members(node_plane, objects, unique)
    addresses = members.addresses()
    on = [pod["spec"]["nodeName"] for pod in members.pods()]
    assert sorted(on) == sorted(node.name for node in nodes)
    subnets = {address.rpartition(".")[0] for address in addresses}
    assert len(subnets) == 3

    for asking, own in enumerate(addresses):
        for asked in range(3):
            said = f"{unique}-{asked} for {own}"
            short = f"{unique}-{asked}.{unique}"
            names = [short, f"{short}.default.svc.cluster.local", addresses[asked]]
            if asked != asking:
                for name in names:
                    members.hears(asking, name, said)
    assert members.within(0, "hostname -f") == f"{unique}-0.{unique}.default.svc.cluster.local"
    of_address = members.within(0, f"nslookup {addresses[1]}")
    assert of_address.endswith(f"name = {unique}-1.{unique}.default.svc.cluster.local")
    # Refused, not waited for.
    assert "REFUSED" in members.within(0, "nslookup elsewhere.example || true")
    # A node is reached from another by the address that it has in the API.
    nodes[0].run(["busybox", "ping", "-c", "1", "-W", "60", nodes[1].address])

    lost = next(node for node in nodes if node.name == on[0])
    # Whoever has this open keeps the network, and with it the link to the router.
    with open(f"/proc/{lost.holder}/ns/net"):
        lost.stop()
        members.hears(1, f"{unique}-2.{unique}", f"{unique}-2 for {addresses[1]}")
        members.hears(2, f"{unique}-1.{unique}", f"{unique}-1 for {addresses[2]}")
        assert members.ask(1, addresses[0]) == ""
        lost.start()
    lost.import_image(archives[0])
    members.hears(1, f"{unique}-0.{unique}", f"{unique}-0 for {addresses[1]}")
    assert {one.rpartition(".")[0] for one in members.addresses()} == subnets
