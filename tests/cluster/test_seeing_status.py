"""`localvolume status` on a real control plane: what it says, with which rights, in how many
requests."""

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_accounts import account, rule
from tests.cluster.support_agent import Lab
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_objects import Objects
from tests.cluster.support_seeing import Seeing, agent_pod
from tests.faults.support_proxy import Proxy
from tests.suite.api import VOLUMES

pytestmark = pytest.mark.needs("controlplane")

OF_THE_DRIVER = {
    *("csinodes", "volumeattributesclasses"),
    *("volumesnapshotcontents", "volumegroupsnapshotcontents"),
}
"""What is asked for only where something uses the CSI driver."""

Ask = Callable[..., Any]


@pytest.fixture
def seeing(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Seeing:
    return Seeing(control_plane, capsys)


@pytest.mark.needs("root", "loop", "ext4")
def test_a_node_with_its_volumes_claims_and_agent(lab: Lab, seeing: Seeing) -> None:
    cls = lab.add_class()
    for name in ("one", "two"):
        lab.mount(lab.disk(), cls.path(name))
    lab.start()
    lab.published(cls, "one")
    volume = lab.published(cls, "two")
    lab.bound(volume)
    pod = agent_pod(lab.objects, lab.node)
    status = seeing.ask("status", "--node", lab.node, "-o", "json").json
    (node,) = status["nodes"]
    assert node["agent"] == {"state": "ready", "reason": "", "pod": f"default/{pod}"}
    assert node["exists"] is True
    (found,) = node["classes"]
    assert found["name"] == cls.name
    assert found["volumes"] == {"available": 1, "bound": 1}
    by_name = {one["name"]: one for one in status["volumes"]}
    bound = by_name[volume["metadata"]["name"]]
    assert bound["state"] == "bound"
    assert bound["path"] == cls.host_path("two")
    assert bound["identity"]["fsType"] == "ext4"
    assert status["problems"] == []
    assert status["unknown"] == {}
    table = seeing.ask("status", "--node", lab.node).out
    assert "1 available, 1 bound" in table
    assert "Problems    none known" in table
    assert cls.host_path("two") not in table
    assert cls.host_path("two") in seeing.ask("status", "--node", lab.node, "-o", "wide").out


@pytest.mark.needs("root", "loop", "ext4")
def test_a_pool_as_large_as_its_agent_says(dynamic: DynamicLab, seeing: Seeing) -> None:
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    dynamic.made(dynamic.claim(cls, size="8Mi"))
    size = dynamic.metric("localvolume_pool_size_bytes", pool="fast")
    assert size is not None

    def pools() -> list[dict[str, Any]]:
        (node,) = seeing.ask("status", "--node", dynamic.node, "-o", "json").json["nodes"]
        found: list[dict[str, Any]] = node["pools"]
        return found

    whole = int(size) - int(size) % 2**20
    wanted = {"name": "fast", "volumeCount": 1, "promisedBytes": 8 * 2**20, "totalBytes": whole}
    (found,) = dynamic.until(pools, lambda found: found and found[0]["totalBytes"] == whole)
    used = found.pop("usedBytes")
    assert found == wanted
    free = os.statvfs(pool.directory)
    really = (free.f_blocks - free.f_bfree) * free.f_frsize
    assert really <= used <= really + whole * 0.04
    # Of a disk that is not there nobody can tell: what was said of it is taken back.
    subprocess.run(["umount", "--lazy", str(pool.directory)], check=True, timeout=60)
    gone = [{**wanted, "totalBytes": None, "usedBytes": None}]
    dynamic.until(pools, lambda found: found == gone)


def test_with_check_the_exit_status_tells_that_somebody_should_look(
    objects: Objects, unique: str, seeing: Seeing
) -> None:
    node = f"{unique}-node"
    objects.node(node)
    agent_pod(objects, node)
    assert seeing.ask("status", "--node", node, "--check").status == 0
    labelled = {"localvolume.dev/node": node}
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    objects.make(
        VOLUMES,
        {
            "metadata": {
                "name": f"{unique}-pv",
                "labels": labelled,
                "annotations": {"localvolume.dev/health": "ReadOnly: the filesystem is read-only"},
            },
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": unique,
                "local": {"path": "/mnt/x"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        },
    )
    said = seeing.ask("status", "--node", node)
    assert said.status == 0
    assert f"localvolume why pv/{unique}-pv" in said.out
    assert seeing.ask("status", "--node", node, "--check").status == 1


def test_what_may_not_be_read_is_unknown_and_not_zero(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = account(lab, [rule("nodes", "list"), rule("persistentvolumes", "list")])
    words = ["status", "--node", lab.node, "--kubeconfig", str(kubeconfig)]
    assert main([*words, "-o", "json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["claims"] is None
    assert status["summary"]["claimsWaiting"] is None
    assert "forbidden" in status["unknown"]["persistentvolumeclaims"]
    assert "403" in status["unknown"]["pods"]
    assert status["volumes"] == []
    (node,) = status["nodes"]
    assert node["agent"]["state"] == "unknown"
    assert node["rooms"] is None
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "Claims      ? waiting" in table
    (unknown,) = (line for line in table.splitlines() if line.startswith("Unknown "))
    assert "persistentvolumeclaims" in unknown
    assert main([*words, "--check"]) == 1


def test_nothing_at_all_is_an_error(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = account(lab, [])
    assert main(["status", "--kubeconfig", str(kubeconfig)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "forbidden" in said.err


def test_it_asks_a_little_and_writes_nothing(
    objects: Objects, unique: str, capsys: pytest.CaptureFixture[str], proxy: Proxy
) -> None:
    node = f"{unique}-node"
    objects.node(node)
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    for number in range(2):
        objects.make(
            VOLUMES,
            {
                "metadata": {
                    "name": f"{unique}-{number}",
                    "labels": {"localvolume.dev/node": node},
                },
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": unique,
                    "local": {"path": f"/mnt/{number}"},
                    "nodeAffinity": {
                        "required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
                    },
                },
            },
        )
    words = ("status", "--node", node, "-o", "json", "--kubeconfig", str(proxy.kubeconfig))
    assert main(words) == 0
    assert len(json.loads(capsys.readouterr().out)["volumes"]) == 2
    assert {one.verb for one in proxy.seen} == {"list", "get"}
    # Another test's volume may be one of the driver's.
    assert len({one.resource for one in proxy.seen} - OF_THE_DRIVER) == 11


def test_pods_of_another_label_are_found_by_it(
    objects: Objects, unique: str, seeing: Seeing
) -> None:
    node = f"{unique}-node"
    objects.node(node)
    agent_pod(objects, node, ready=False)
    words = ("status", "--node", node, "-o", "json", "--selector")
    (found,) = seeing.ask(*words, f"node={node}").json["nodes"]
    assert found["agent"]["state"] == "not ready"
    assert found["agent"]["reason"] == "ImagePullBackOff"
    (unseen,) = seeing.ask(*words, f"node={unique}").json["nodes"]
    assert unseen["agent"]["state"] == "unknown"
    assert unique in unseen["agent"]["reason"]


def test_a_context_of_the_kubeconfig_can_be_chosen(seeing: Seeing) -> None:
    said = seeing.ask("status", "--context", "no-such-context")
    assert said.status == 3
    assert "no-such-context" in said.err
