"""The real control plane: it serves, binds and schedules, survives faults, and leaves nothing."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane, KubectlFailed, PlaneFailed, RequestFailed
from localvolume_lab.controlplane.access import Access
from localvolume_lab.controlplane.assets import build_directory
from tests.cluster.support_objects import Objects, pause
from tests.suite import speed
from tests.suite.api import CLAIMS, CLASSES, NODES, PODS, VOLUMES
from tests.suite.until import until


def make_class(objects: Objects, name: str, mode: str) -> None:
    objects.make(
        CLASSES,
        {
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": mode,
        },
    )


def make_volume(objects: Objects, name: str, node: str) -> None:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    objects.make(
        VOLUMES,
        {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": name.rpartition("-")[0],
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": f"/mnt/{name}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        },
    )


def make_claim(objects: Objects, name: str) -> None:
    objects.make(
        CLAIMS,
        {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": name,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
            },
        },
    )


def phase(objects: Objects, path: str) -> str:
    found: str = objects.get(path).get("status", {}).get("phase", "")
    return found


def test_kubectl_works(control_plane: ControlPlane, unique: str) -> None:
    made = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {unique}}}\ndata: {{a: b}}\n"
    control_plane.kubectl("apply", "-f", "-", input=made)
    assert control_plane.kubectl("get", "configmap", unique, "-o=jsonpath={.data.a}") == "b"
    control_plane.kubectl("delete", "configmap", unique)
    with pytest.raises(KubectlFailed, match="NotFound"):
        control_plane.kubectl("get", "configmap", unique)


def test_it_is_the_release_that_the_build_names(control_plane: ControlPlane) -> None:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    version = control_plane.request("GET", "/version")["gitVersion"]
    assert version == build_directory().name.rpartition("-")[0] or given


def test_a_connection_that_has_ended_is_not_used_again(control_plane: ControlPlane) -> None:
    control_plane.request("GET", "/version")
    kept = [connection.sock for connection in control_plane._access._idle]
    for sock in kept:
        sock.shutdown(socket.SHUT_RDWR)
    assert kept
    assert control_plane.request("GET", "/version")


def test_a_claim_is_bound_at_once(objects: Objects, unique: str) -> None:
    make_class(objects, unique, "Immediate")
    make_volume(objects, f"{unique}-v", node="nowhere")
    make_claim(objects, unique)
    until(lambda: phase(objects, f"{CLAIMS}/{unique}"), lambda p: p == "Bound")
    assert objects.get(f"{VOLUMES}/{unique}-v")["spec"]["claimRef"]["name"] == unique


def test_a_claim_that_waits_is_bound_where_its_pod_goes(objects: Objects, unique: str) -> None:
    """The scheduler chooses the node that has the volume; deleting the claim releases it."""
    make_class(objects, unique, "WaitForFirstConsumer")
    for node in (f"{unique}-a", f"{unique}-b"):
        objects.node(node)
    make_volume(objects, f"{unique}-v", node=f"{unique}-b")
    # Else the scheduler may just have told the pod that it is not: it tries again after minutes.
    until(lambda: phase(objects, f"{VOLUMES}/{unique}-v"), lambda p: p == "Available")
    make_claim(objects, unique)
    pod = {
        "metadata": {"name": unique},
        "spec": {
            "containers": [{"name": "c", "image": "none"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": unique}}],
        },
    }
    objects.make(PODS, pod)
    node = until(lambda: objects.get(f"{PODS}/{unique}")["spec"].get("nodeName"), bool)
    assert node == f"{unique}-b"
    # The scheduler waits for the binding, and not until its last word, the phase, is written.
    until(lambda: phase(objects, f"{CLAIMS}/{unique}"), lambda p: p == "Bound")

    objects.plane.kubectl("delete", "pod", unique, "--force", "--grace-period=0")
    objects.plane.kubectl("delete", "pvc", unique)
    until(lambda: phase(objects, f"{VOLUMES}/{unique}-v"), lambda p: p == "Released")


def test_a_made_node_is_ready_and_takes_pods(objects: Objects, unique: str) -> None:
    objects.plane.create_node(unique, {"zone": "z"}, taints=[{"key": "k", "effect": "NoSchedule"}])
    try:
        node = objects.get(f"/api/v1/nodes/{unique}")
        assert node["metadata"]["labels"] == {"zone": "z", "kubernetes.io/hostname": unique}
        assert node["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
        assert " Ready " in objects.plane.kubectl("get", "node", unique)
        with pytest.raises(RequestFailed, match="409"):
            objects.plane.create_node(unique)
    finally:
        objects.plane.kubectl("delete", "node", unique)


def test_the_api_server_keeps_everything_over_a_restart(
    control_plane: ControlPlane, objects: Objects, unique: str
) -> None:
    make_class(objects, unique, "Immediate")
    before = objects.get(f"{CLASSES}/{unique}")
    for grace in (0.5, 0.0):
        control_plane.stop_apiserver(grace)
        port = int(control_plane.url.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 1).close()
        control_plane.start_apiserver()
        # The same port, token, certificate and data: a client notices only the gap.
        assert objects.get(f"{CLASSES}/{unique}") == before
        control_plane.check()


def test_a_frozen_api_server_keeps_connections_and_says_nothing(
    control_plane: ControlPlane,
) -> None:
    host, port = "127.0.0.1", int(control_plane.url.rpartition(":")[2])
    trust = ssl.create_default_context(cafile=str(control_plane.ca_file))
    with (
        socket.create_connection((host, port), 60) as plain,
        trust.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.settimeout(0.5)
        pause(control_plane, "kube-apiserver")
        try:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises(TimeoutError):
                connection.recv(1)
        finally:
            control_plane.resume()
        connection.settimeout(60)
        assert connection.recv(64).startswith(b"HTTP/1.1 ")


@pytest.mark.needs("controlplane")
def test_a_second_one_beside_it_with_users_and_without_controllers(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    other = ControlPlane(
        tmp_path / "other", controllers=False, scheduler=False, users={"bob": ["devs", "ops"]}
    )
    with other:
        assert other.url != control_plane.url
        assert set(other.pids) == {"etcd", "kube-apiserver"}
        with pytest.raises(ssl.SSLCertVerificationError):  # certificates of its own
            Access(other.url, control_plane.ca_file, {}).request("GET", "/version")
        who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        seen = other.request("POST", who, body, user="bob")["status"]["userInfo"]
        assert seen["username"] == "bob"
        assert set(seen["groups"]) == {"devs", "ops", "system:authenticated"}
        with pytest.raises(RequestFailed, match="403"):
            other.request("GET", NODES, user="bob")
        config = other.kubeconfig_of("bob")
        assert config.stat().st_mode & 0o077 == 0
        assert other.token_of("bob") in config.read_text()
        assert other.token not in config.read_text()
        with pytest.raises(PlaneFailed, match="already running"):
            other.start()
        logs = other.logs
    # The logs stay, the keys and the data go.
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [
        "etcd.log",
        "kube-apiserver.log",
        "kubeconfig-bob",
    ]
    assert b"Serving securely" in logs["kube-apiserver"].read_bytes()
    other.stop()  # again, which does nothing


@pytest.mark.needs("controlplane")
def test_a_component_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path, extra_apiserver_args=["--no-such-flag"])
    with pytest.raises(PlaneFailed, match=r"kube-apiserver ended .*\n(.*\n)*.*no-such-flag"):
        plane.start()
    assert plane.pids == {}


@pytest.mark.needs("controlplane")
def test_service_accounts_get_tokens_that_the_server_takes(
    control_plane: ControlPlane, unique: str
) -> None:
    """One key, the server's own, signs and verifies them."""
    control_plane.kubectl("create", "serviceaccount", unique)
    try:
        token = control_plane.kubectl("create", "token", unique).strip()
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = control_plane.request("POST", path, review)["status"]
        assert status["user"]["username"] == f"system:serviceaccount:default:{unique}"
    finally:
        control_plane.kubectl("delete", "serviceaccount", unique)


START_AND_WAIT = """
import sys, time
from localvolume_lab.controlplane import ControlPlane
plane = ControlPlane(controllers=False, scheduler=False)
plane.start()
print(plane.directory, *plane.pids.values(), flush=True)
time.sleep(600)
"""


@pytest.mark.needs("controlplane")
def test_kill_of_the_parent_leaves_no_processes_and_no_files() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        try:
            directory, *pids = parent.stdout.readline().split()
            assert len(pids) == 2
            assert all(alive(int(pid)) for pid in pids)
            assert Path(directory, "etcd").is_dir()
        finally:
            parent.send_signal(signal.SIGKILL)
    until(lambda: not any(alive(int(pid)) for pid in pids))
    until(lambda: not Path(directory).exists())


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.needs("controlplane")
def test_a_plane_started_by_a_thread_outlives_the_thread() -> None:
    plane = ControlPlane(controllers=False, scheduler=False)
    starter = threading.Thread(target=plane.start)
    starter.start()
    starter.join()
    try:
        time.sleep(0.2)
        plane.check()
        assert plane.request("GET", "/readyz") == "ok"
    finally:
        plane.stop()
    assert not plane.directory.exists()


def command(*arguments: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "localvolume_lab.controlplane", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120 * speed.factor(),
    )


@pytest.mark.needs("controlplane")
def test_the_command_holds_one_plane_until_it_is_told_to_end(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "KUBEBUILDER_ASSETS": os.environ.get("KUBEBUILDER_ASSETS") or str(build_directory()),
    }
    home = tmp_path / "local-volume-provisioner" / "controlplane" / "up"
    assert command("kubectl", "version", environment=environment).returncode == 1
    try:
        up = command("up", "--detach", environment=environment)
        assert up.returncode == 0, up.stderr
        assert f"export KUBECONFIG={home / 'kubeconfig'}\n" in up.stdout
        again = command("up", environment=environment)
        assert again.returncode == 1
        assert "up already" in again.stderr
        names = command("kubectl", "get", "--output=name", "namespaces", environment=environment)
        assert "namespace/default\n" in names.stdout
    finally:
        down = command("down", environment=environment)
    assert (down.returncode, down.stdout) == (0, "ended\n")
    assert command("down", environment=environment).stdout == "none is up\n"
    assert not (home / "kubeconfig").exists()
    assert not (home / "etcd").exists()
