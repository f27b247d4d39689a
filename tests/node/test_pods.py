"""On a real node pods run, and can be read and entered."""

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_pods import log_until, make_pod, pod_spec, pod_until
from tests.suite.api import JOBS, PODS
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet")


def test_the_node_is_ready(node_plane: ControlPlane, kubelet_node: KubeletNode) -> None:
    # A controller takes them away after it has heard that the node is ready.
    node = until(
        lambda: node_plane.request("GET", f"/api/v1/nodes/{kubelet_node.name}"),
        lambda node: "taints" not in node["spec"],
    )
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == kubelet_node.name
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    kubelet_node.check()


def test_a_pod_runs_and_can_be_read_and_entered(
    kubelet_node: KubeletNode, objects: Objects, unique: str
) -> None:
    make_pod(objects, unique, pod_spec("echo running; sleep 600"))
    pod_until(objects, unique, "Running")
    log_until(objects.plane, unique, "running")
    assert objects.plane.kubectl("exec", unique, "--", "cat", "/etc/hostname").strip() == unique


def test_a_deleted_pod_is_gone_soon(
    kubelet_node: KubeletNode, objects: Objects, unique: str
) -> None:
    make_pod(objects, unique, pod_spec("sleep 600"))
    pod_until(objects, unique, "Running")
    objects.plane.request("DELETE", f"{PODS}/{unique}")
    path = f"{PODS}?fieldSelector=metadata.name={unique}"
    until(lambda: objects.get(path)["items"], lambda items: not items, seconds=150)


def test_a_job_completes_and_its_last_words_are_in_the_api(
    kubelet_node: KubeletNode, objects: Objects, unique: str
) -> None:
    spec = pod_spec("printf 'all is clean' > /dev/termination-log")
    body = {"metadata": {"name": unique}, "spec": {"template": {"spec": spec}, "backoffLimit": 0}}
    objects.make(JOBS, body)
    until(
        lambda: objects.get(f"{JOBS}/{unique}")["status"],
        lambda status: status.get("succeeded") == 1,
        seconds=150,
    )
    (pod,) = objects.get(f"{PODS}?labelSelector=job-name={unique}")["items"]
    objects.adopt(f"{PODS}/{pod['metadata']['name']}")
    (container,) = pod["status"]["containerStatuses"]
    assert container["state"]["terminated"]["message"] == "all is clean"


def test_a_failed_job_says_so(kubelet_node: KubeletNode, objects: Objects, unique: str) -> None:
    spec = pod_spec("echo no luck; exit 3", terminationMessagePolicy="FallbackToLogsOnError")
    body = {"metadata": {"name": unique}, "spec": {"template": {"spec": spec}, "backoffLimit": 0}}
    objects.make(JOBS, body)
    until(
        lambda: objects.get(f"{JOBS}/{unique}")["status"],
        lambda status: any(one["type"] == "Failed" for one in status.get("conditions", ())),
        seconds=150,
    )
    (pod,) = objects.get(f"{PODS}?labelSelector=job-name={unique}")["items"]
    path = f"{PODS}/{pod['metadata']['name']}"
    objects.adopt(path)
    # Out of its log, which may be written after it has ended: kubelet looks once more later.
    terminated = until(
        lambda: objects.get(path)["status"]["containerStatuses"][0]["state"]["terminated"],
        lambda found: "message" in found,
    )
    assert (terminated["exitCode"], terminated["message"]) == (3, "no luck\n")


def test_strangers_are_kept_out_of_the_kubelet(
    node_plane: ControlPlane, kubelet_node: KubeletNode
) -> None:
    """Its port can be reached by every user of the machine; it gives root in every pod."""
    url = f"https://{kubelet_node.address}:10250/pods"
    wget = ["busybox", "wget", "-q", "-O", "-", "--no-check-certificate", url]
    with pytest.raises(Exception, match="401"):
        kubelet_node.run(wget)
