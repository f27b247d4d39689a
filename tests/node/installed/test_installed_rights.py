"""What the tokens are good for that kubelet mounts in the installed pods: for nothing else.

tests/attacks/test_rights.py and test_rights_controller.py try every rule of the policies; here is
what an attacker has who is root on a node, and the policies as `kubectl apply` has left them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.cluster.support_accounts import Caller
from tests.cluster.support_agent import ADMISSION
from tests.cluster.support_rights import sample_spec
from tests.node.support_installed import (
    AGENT,
    CONTROLLER,
    DISCOVERED,
    DYNAMIC,
    NAMESPACE,
    POOL,
    STATIC,
    Installed,
    claim_and_write,
    claim_of,
    next_agent,
    readiness,
)
from tests.suite.api import CLAIMS, DRIVERS, EVENTS, VOLUMES
from tests.suite.names import NATIVE, NODE_LABEL, PROVISIONED_BY
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "image", "loop", "ext4")

Object = dict[str, Any]

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
VOLUME_POLICY = "local-volume-provisioner-volumes"


def stolen(installed: Installed, component: str) -> Caller:
    """Whoever has read the token in a pod of that component."""
    pod = installed.pods(component)[0]
    return Caller(installed.plane, installed.execute(pod, "cat", TOKEN).strip())


def offer(node: str, storage_class: str, path: str, source: str = "local", **more: Any) -> Object:
    """A volume of the node as its agent offers it."""
    spec = sample_spec(node, local=None, storageClassName=storage_class, **more)
    spec[source] = {"path": path}
    meta = {"name": "attacked", "labels": {NODE_LABEL: node}}
    return {"metadata": meta, "spec": spec}


def refused(caller: Caller, method: str, where: str, body: Object | None) -> str:
    """What keeps it from being done. The API server puts each policy into force in its own time:
    until then it is not really asked for."""
    until(partial(caller.refusal, method, where, body), bool)
    return caller.refusal(method, where, body, really=True)


@pytest.fixture
def waiting(installed: Installed, unique: str) -> Iterator[Object]:
    """A reference to somebody's claim of another driver's class, which has no volume yet."""
    claim = claim_of(unique, "1Mi")
    made = installed.plane.request("POST", CLAIMS, claim)
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": unique,
        "uid": made["metadata"]["uid"],
    }
    left = installed.plane.request("GET", f"{CLAIMS}/{unique}")
    installed.plane.request("DELETE", f"{CLAIMS}/{unique}")
    assert "volumeName" not in left["spec"]
    assert left["status"]["phase"] == "Pending"


def test_the_controllers_token_makes_no_node_read_a_secret(
    installed: Installed, waiting: Object
) -> None:
    """E1: a FlexVolume's secretRef, for a pod that waits for its claim."""
    flex = {
        "driver": "localvolume.dev/flexvolume",
        "secretRef": {"name": "registry", "namespace": "kube-system"},
    }
    body = {
        "metadata": {"name": "attacked"},
        "spec": sample_spec(
            "x",
            local=None,
            nodeAffinity=None,
            flexVolume=flex,
            claimRef=waiting,
            storageClassName=waiting["name"],
        ),
    }
    caller = stolen(installed, CONTROLLER)
    assert "is forbidden" in caller.refusal("POST", VOLUMES, body, really=True)


def test_an_agents_token_offers_what_is_its_nodes_alone(
    installed: Installed, waiting: Object
) -> None:
    """E2: the root directory, somebody's claim, another class, another node."""
    caller, node = stolen(installed, AGENT), installed.node.name
    false = (
        offer(node, STATIC, "/", "hostPath"),
        offer(node, STATIC, "/etc/kubernetes"),
        offer(node, "somebodys", f"{DISCOVERED}/one"),
        offer(node, waiting["name"], "/", "hostPath", claimRef=waiting),
        offer(node, DYNAMIC, "/etc/kubernetes", claimRef=waiting),
        offer("elsewhere", STATIC, f"{DISCOVERED}/one"),
    )
    for body in false:
        said = refused(caller, "POST", VOLUMES, body)
        assert "denied request" in said, (body, said)
    assert caller.refusal("POST", VOLUMES, offer(node, STATIC, f"{DISCOVERED}/one")) == ""
    body = offer(node, DYNAMIC, f"{POOL}/pvc-1", claimRef=waiting)
    body["metadata"]["annotations"] = {
        PROVISIONED_BY: NATIVE,
        "localvolume.dev/pool": "fast/id",
    }
    assert caller.refusal("POST", VOLUMES, body) == ""


def test_the_controllers_token_takes_nothing_from_a_tenant(installed: Installed) -> None:
    """E5: the volume and the claim of a pod that runs, and what says whose they are."""
    caller = stolen(installed, CONTROLLER)
    claim_and_write(installed, DYNAMIC)
    volume = installed.volume_until(DYNAMIC, "Bound")
    path, claim = f"{VOLUMES}/{volume['metadata']['name']}", f"{CLAIMS}/{DYNAMIC}"
    about = {"kind": "PersistentVolume", "name": volume["metadata"]["name"], "namespace": ""}
    event = {
        "metadata": {"name": "attacked"},
        "involvedObject": about,
        "reason": "VolumeCleaned",
        "message": "all of it",
        "source": {"component": "local-volume-provisioner", "host": installed.node.name},
    }
    driver = {"metadata": {"name": "attacked.example.com"}, "spec": {}}
    attempts: tuple[tuple[str, str, Object | None], ...] = (
        ("DELETE", path, None),
        ("DELETE", claim, None),
        ("PATCH", path, {"metadata": {"finalizers": None}}),
        ("PATCH", path, {"metadata": {"labels": {NODE_LABEL: "elsewhere"}}}),
        ("PATCH", path, {"metadata": {"labels": {NODE_LABEL: None}}}),
        ("PATCH", path, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}),
        ("POST", DRIVERS, driver),
        ("POST", EVENTS, event),
    )
    for method, where, body in attempts:
        said = refused(caller, method, where, body)
        assert "is forbidden" in said or "denied request" in said, (method, where, body, said)
    left = installed.plane.request("GET", path)
    assert left["metadata"] == volume["metadata"]
    assert left["status"]["phase"] == "Bound"
    assert "deletionTimestamp" not in installed.plane.request("GET", claim)["metadata"]
    installed.kubectl("delete", "pod", DYNAMIC, "--grace-period=1", "--timeout=300s")
    installed.kubectl("delete", "pvc", DYNAMIC, "--timeout=300s")
    installed.gone("persistentvolume", volume["metadata"]["name"], "")


def test_without_its_policies_an_agent_is_not_ready(installed: Installed) -> None:
    """E6: as where what confines it was not applied, or was taken away."""
    where = f"{ADMISSION}/validatingadmissionpolicybindings"
    kept = installed.plane.request("GET", f"{where}/{VOLUME_POLICY}")
    anew = {
        "metadata": {key: kept["metadata"][key] for key in ("name", "labels")},
        "spec": kept["spec"],
    }
    false = offer("elsewhere", "somebodys", "/etc")
    caller = stolen(installed, AGENT)
    assert "denied request" in caller.refusal("POST", VOLUMES, false)
    installed.plane.request("DELETE", f"{where}/{VOLUME_POLICY}")
    try:
        until(lambda: caller.refusal("POST", VOLUMES, false), lambda said: said == "")
        name = next_agent(installed)["metadata"]["name"]
        started = ("--for=jsonpath={.status.phase}=Running", "--timeout=300s")
        installed.kubectl("wait", "-n", NAMESPACE, f"pod/{name}", *started)
        until(
            lambda: installed.kubectl("logs", "-n", NAMESPACE, name),
            lambda said: "the agent is not confined to its node" in said,
            seconds=150,
        )
        (agent,) = installed.pods(AGENT)
        ready = {one["type"]: one["status"] for one in agent["status"]["conditions"]}
        assert ready["Ready"] == "False"
    finally:
        installed.plane.request("POST", where, anew)
    installed.wait_ready()
    (agent,) = installed.pods(AGENT)
    until(lambda: readiness(installed, agent), lambda said: said.startswith("ok"))
