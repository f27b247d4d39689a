"""`localvolume support-bundle` on a real control plane: no planted secret is in any byte of it."""

import gzip
import http.server
import io
import json
import os
import ssl
import stat
import tarfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_accounts import account, rule
from tests.cluster.support_agent import Lab
from tests.cluster.support_objects import Objects
from tests.cluster.support_seeing import LABELS, Seeing, agent_pod
from tests.suite.api import MERGE, VOLUMES

pytestmark = pytest.mark.needs("controlplane")

CANARY = "kanarie0vogel7geheim"
"""In every planted secret, and in nothing else."""

LOG = f"""\
2026-01-01T00:00:00Z INFO published persistentvolume='local-pv-1'
2026-01-01T00:00:01Z DEBUG GET https://10.0.0.1/ Authorization: Bearer {CANARY}1
2026-01-01T00:00:02Z INFO pulling from https://robot:{CANARY}2@registry.example/v2
2026-01-01T00:00:03Z {{"level":"info","dbPassword":"{CANARY}3"}}
"""


class Contents(dict[str, str]):
    """The files of a bundle by their names, and everything that is in it in one piece."""

    def __init__(self, path: Path) -> None:
        self.raw = gzip.decompress(path.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(self.raw)) as tar:
            for one in tar.getmembers():
                file = tar.extractfile(one)
                assert file is not None
                assert one.isfile()
                assert not os.path.isabs(one.name)
                self[one.name.partition("/")[2]] = file.read().decode()

    def json(self, name: str) -> Any:
        return json.loads(self[name])


@pytest.fixture
def seeing(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Seeing:
    return Seeing(control_plane, capsys)


def certificate(directory: Path) -> Path:
    """A certificate that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = directory / "node.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


class _Logs(http.server.BaseHTTPRequestHandler):
    """The one thing of a kubelet that the API server asks for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = LOG.encode()
        self.send_response(200 if "/containerLogs/" in self.path else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def logs_of_node(tmp_path: Path) -> Iterator[tuple[int, list[str]]]:
    """The port of what serves logs as a kubelet does, and what was asked of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    asked: list[str] = []
    handler = type("Logs", (_Logs,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join(10)


def plant(objects: Objects, node: str, unique: str) -> None:
    """Secrets wherever people put them."""
    default = "/api/v1/namespaces/default"
    applied = {
        "kubectl.kubernetes.io/last-applied-configuration": f'{{"data":"{CANARY}4"}}',
        "example.org/note": f"{CANARY}5",
    }
    labels = {**LABELS, "unique": unique}
    data = {"password": f"{CANARY}6"}
    objects.make(
        f"{default}/secrets",
        {"metadata": {"name": unique, "labels": labels}, "stringData": data},
    )
    config = (
        f"users:\n- user:\n    token: {CANARY}7\n    client-key-data: {CANARY}8\n"
        f"  password: |\n    {CANARY}9\n"
    )
    objects.make(
        f"{default}/configmaps",
        {
            "metadata": {"name": unique, "labels": labels, "annotations": applied},
            "data": {"kubeconfig": config, "storageClassMap": "fast:\n  hostDir: /mnt/fast\n"},
        },
    )
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    objects.make(
        VOLUMES,
        {
            "metadata": {
                "name": f"{unique}-pv",
                "labels": {"localvolume.dev/node": node},
                "annotations": applied,
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
    objects.make(
        VOLUMES,
        {
            "metadata": {"name": f"{unique}-not-ours"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": f"{unique}-not-ours",
                "hostPath": {"path": f"/{CANARY}10"},
            },
        },
    )
    objects.make(
        f"{default}/events",
        {
            "metadata": {"name": f"{unique}-event", "namespace": "default"},
            "involvedObject": {"kind": "PersistentVolume", "name": f"{unique}-pv"},
            "reason": "Odd",
            "message": f"mount failed: password={CANARY}11",
            "type": "Warning",
        },
    )


def test_no_planted_secret_is_in_any_byte(
    objects: Objects,
    unique: str,
    seeing: Seeing,
    tmp_path: Path,
    logs_of_node: tuple[int, list[str]],
) -> None:
    node = f"{unique}-node"
    objects.node(node)
    port, asked = logs_of_node
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    path = f"/api/v1/nodes/{node}/status"
    objects.plane.request("PATCH", path, {"status": status}, content_type=MERGE)
    plant(objects, node, unique)
    env = [
        {"name": "HARMLESS", "value": f"{CANARY}12"},
        {"name": "MY_NAMESPACE", "value": "default"},
    ]
    args = ["agent", "--registry-token", f"{CANARY}13", f"--x-password={CANARY}14"]
    pod = agent_pod(objects, node, env=env, args=args)
    file = tmp_path / "bundle.tar.gz"
    said = seeing.ask("support-bundle", "-o", str(file), "--logs-since", "2h", "--node", node)
    assert said.status == 0, said.err
    found = Contents(file)
    log = found[f"logs/default/{pod}/agent.log"]
    assert CANARY.encode() not in found.raw
    # Nor what we identify ourselves with, nor what the kubeconfig has besides.
    assert objects.plane.token.encode() not in found.raw
    assert b"BEGIN" not in found.raw
    # And what is needed is there.
    assert "published persistentvolume='local-pv-1'" in log
    assert any("sinceSeconds=7200" in one and "limitBytes=" in one for one in asked)
    assert "hostDir: /mnt/fast" in found["objects/configmaps.json"]
    pods = found.json("objects/pods.json")
    (own,) = [one for one in pods if one["metadata"]["name"] == pod]
    assert {"name": "MY_NAMESPACE", "value": "default"} in own["spec"]["containers"][0]["env"]
    names = [one["metadata"]["name"] for one in found.json("objects/persistentvolumes.json")]
    assert f"{unique}-pv" in names
    assert f"{unique}-not-ours" not in names
    assert found.json("versions.json")["kubernetes"]["gitVersion"].startswith("v1.")
    assert found.json("status.json")["version"] == "localvolume.dev/status/v1"
    assert "objects/secrets.json" not in found
    manifest = found.json("manifest.json")
    assert manifest["takenOut"] > 10
    assert {one["name"] for one in manifest["files"]} == set(found) - {"manifest.json"}
    assert "host" in manifest["unknown"]


def test_it_is_its_owners_alone_and_nothing_is_overwritten(
    seeing: Seeing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bundle.tar.gz"
    words = ("support-bundle", "-o", str(file))
    assert seeing.ask(*words).status == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    said = seeing.ask(*words)
    assert said.status == 1
    assert "there already" in said.err
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["bundle.tar.gz"]
    # A link to nowhere is something as well.
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert seeing.ask("support-bundle", "-o", str(tmp_path / "link")).status == 1
    assert not (tmp_path / "target").exists()
    monkeypatch.chdir(tmp_path)
    assert seeing.ask("support-bundle").status == 0
    (made,) = tmp_path.glob("localvolume-support-*.tar.gz")
    assert "manifest.json" in Contents(made)


def test_where_the_cluster_cannot_be_asked_nothing_is_left_behind(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = account(lab, [])
    directory = tmp_path / "out"
    directory.mkdir()
    words = ["support-bundle", "-o", str(directory / "x.tar.gz"), "--kubeconfig", str(kubeconfig)]
    assert main(words) == 3
    assert "forbidden" in capsys.readouterr().err
    assert os.listdir(directory) == []


def test_what_could_not_be_read_is_in_the_manifest(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = account(lab, [rule("nodes", "list")])
    file = tmp_path / "x.tar.gz"
    assert main(["support-bundle", "-o", str(file), "--kubeconfig", str(kubeconfig)]) == 0
    manifest = Contents(file).json("manifest.json")
    assert "forbidden" in manifest["unknown"]["persistentvolumes"]
    assert "forbidden" in manifest["unknown"]["configmaps"]
    assert "not in it: persistentvolumes: " in capsys.readouterr().err


@pytest.mark.needs("root", "loop", "ext4")
def test_on_a_node_it_has_the_nodes_own_facts(
    lab: Lab, seeing: Seeing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = lab.add_class()
    disk = lab.disk()
    where = lab.mount(disk, cls.path("one"))
    lab.configure()
    monkeypatch.setenv("MY_NODE_NAME", lab.node)
    file = tmp_path / "x.tar.gz"
    config = str(lab.config_directory)
    assert seeing.ask("support-bundle", "-o", str(file), "--config", config).status == 0
    found = Contents(file)
    assert str(where) in found["host/mountinfo"]
    (row,) = found.json("host/plan.json")
    assert row["verdict"] == "publish"
    by_name = {one["name"]: one for one in found.json("host/disks.json")}
    loop = by_name[os.path.basename(disk.path)]
    assert loop["capacityBytes"] > 1 << 20
    assert loop["backingFile"]
