"""Who asks for the metrics of an agent and a controller that have them secured: with the rights of
the chart, tokens of accounts, and the API server's own answers.

Unsecured, whoever reaches the port reads how many volumes there are, on which nodes, how full.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.attacks.support_certificates import Mounted
from tests.chart.support_helm import render
from tests.cluster.support_accounts import (
    ACCOUNTS,
    RBAC,
    allow,
    in_force,
    kubeconfig,
    rule,
    token,
)
from tests.cluster.support_accounts import account as account_with
from tests.cluster.support_agent import Lab
from tests.cluster.support_controller import Ground
from tests.cluster.support_objects import Objects, pause
from tests.cluster.support_rights import TEMPLATES, Rights, of_labs
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane", "go")

METRIC = "localvolume_api_requests_total"
GROWTH = 24 << 20
"""Bytes: sixteen connections with TLS, twice over while cut ones end, and their threads."""


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path / "certificate")


@pytest.fixture
def rights(control_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[Rights]:
    values = of_labs(tmp_path, {"metrics": {"secure": True, "secretName": "ours"}})
    manifests = render(values, release=f"{unique}-r", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        yield made


def reader(objects: Objects, unique: str, role: str = "") -> str:
    """The token of an account that is bound to the role, if any."""
    name = f"{unique}-{'reader' if role else 'nobody'}"
    objects.make(ACCOUNTS, {"metadata": {"name": name}})
    if role:
        body = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
            | {"name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        objects.make(f"{RBAC}/clusterrolebindings", body)
    return token(objects.plane, name)


def role_of(rights: Rights) -> str:
    """The chart's role for who reads metrics."""
    (name,) = {
        one["metadata"]["name"]
        for one in rights.manifests
        if one["metadata"]["name"].endswith("-metrics-reader")
    }
    return str(name)


def answer(
    mounted: Mounted, port: int, authorization: str, path: str = "/metrics"
) -> tuple[int, str]:
    """Until there is one: who is held up in the handshake is cut, and asks again."""
    return until(lambda: mounted.get(port, path, authorization), lambda got: got[0])


def status(mounted: Mounted, port: int, bearer: str, path: str = "/metrics") -> int:
    return answer(mounted, port, f"Bearer {bearer}" if bearer else "", path)[0]


def answered(mounted: Mounted, port: int, bearer: str, wanted: int) -> None:
    """Until it is so: the API server learns of its own roles by watches, and what it said before
    counts for some seconds."""
    until(lambda: status(mounted, port, bearer), lambda got: got == wanted)


def check_who_reads(mounted: Mounted, port: int, allowed: str, other: str) -> None:
    answered(mounted, port, allowed, 200)
    # What was answered counts for ten seconds; then the API server is asked again, and may be slow.
    _, text = until(
        lambda: mounted.get(port, "/metrics", f"bearer  {allowed} "), lambda got: got[0] == 200
    )
    assert METRIC in text
    assert status(mounted, port, "") == 401
    answered(mounted, port, other, 403)
    for wrong in ("x", allowed[:-6] + "AAAAAA", f"{allowed} {allowed}", "\u00e9"):
        answered(mounted, port, wrong, 401)
    for header in (f"Basic {allowed}", allowed, "Bearer", "Bearer  "):
        got, text = answer(mounted, port, header)
        assert got == 401, header
        assert METRIC not in text
    for probe in ("/ready", "/healthz"):
        until(partial(status, mounted, port, "", probe), lambda got: got == 200)


def test_the_agents_metrics_are_for_who_may_get_them(
    lab: Lab, mounted: Mounted, rights: Rights, objects: Objects
) -> None:
    allowed = reader(objects, lab.unique, role_of(rights))
    other = reader(objects, lab.unique)
    rights.confine(lab)
    lab.start(metrics_certificate=str(mounted.directory), wait=False)
    lab.until(lambda: mounted.get(lab.port, "/ready"), lambda got: got == (200, "ok\n"))
    check_who_reads(mounted, lab.port, allowed, other)
    # Nobody is served without TLS.
    assert lab.http("/metrics")[0] == lab.http("/healthz")[0] == 0


def test_the_controllers_metrics_are_for_who_may_get_them(
    ground: Ground, mounted: Mounted, rights: Rights, objects: Objects, tmp_path: Path
) -> None:
    allowed = reader(objects, ground.unique, role_of(rights))
    other = reader(objects, ground.unique)
    ground.lease = "localvolume-controller"
    ground.start(
        kubeconfig=kubeconfig(ground.plane, token(ground.plane, rights.controller), tmp_path),
        metrics_certificate=str(mounted.directory),
        wait=False,
    )
    leads = (200, "ok, leading\n")
    ground.until(lambda: mounted.get(ground.port, "/ready"), lambda got: got == leads)
    check_who_reads(mounted, ground.port, allowed, other)


def test_who_loses_the_right_or_the_account_reads_no_more(
    lab: Lab, mounted: Mounted, objects: Objects
) -> None:
    role = f"{lab.unique}-role"
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    objects.make(f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": rules})
    bearer = reader(objects, lab.unique, role)
    lab.start(metrics_certificate=str(mounted.directory), wait=False)
    answered(mounted, lab.port, bearer, 200)
    lab.plane.request("DELETE", f"{RBAC}/clusterrolebindings/{lab.unique}-reader")
    answered(mounted, lab.port, bearer, 403)
    lab.plane.request("DELETE", f"{ACCOUNTS}/{lab.unique}-reader")
    answered(mounted, lab.port, bearer, 401)
    objects.make(ACCOUNTS, {"metadata": {"name": f"{lab.unique}-reader"}})
    body = objects.get(f"{RBAC}/clusterroles/{role}")
    assert body["rules"] == rules
    # The new account of that name is another.
    answered(mounted, lab.port, bearer, 401)


def test_nobody_reads_while_the_api_server_is_away(
    lab: Lab, mounted: Mounted, rights: Rights, objects: Objects
) -> None:
    bearer, late = reader(objects, lab.unique, role_of(rights)), reader(objects, lab.unique)
    lab.start(metrics_certificate=str(mounted.directory), wait=False)
    answered(mounted, lab.port, bearer, 200)
    before = lab.log()
    pause(lab.plane, "kube-apiserver")
    try:
        assert status(mounted, lab.port, late) == 503
        # Nor who was let in before, once that is some seconds ago.
        answered(mounted, lab.port, bearer, 503)
        assert status(mounted, lab.port, "") == 401
        assert status(mounted, lab.port, "", "/healthz") == 200
    finally:
        lab.plane.resume("kube-apiserver")
    told = [line for line in lab.log()[len(before) :] if "nobody may read the metrics" in line]
    assert len(told) == 1
    assert told[0].startswith("ERROR")
    answered(mounted, lab.port, bearer, 200)
    assert lab.logged("can be asked again who may read")


def test_nobody_reads_where_the_agent_may_not_ask(
    lab: Lab, mounted: Mounted, objects: Objects
) -> None:
    role = f"{lab.unique}-role"
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    objects.make(f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": rules})
    bearer = reader(objects, lab.unique, role)
    own = [
        rule("persistentvolumes", "list", "watch"),
        rule("nodes", "list", "watch"),
        rule("storageclasses", "list", "watch", group="storage.k8s.io"),
    ]
    lab.kubeconfig = account_with(lab, own)
    lab.start(metrics_certificate=str(mounted.directory), wait=False)
    answered(mounted, lab.port, bearer, 503)
    own.append(rule("tokenreviews", "create", group="authentication.k8s.io"))
    allow(lab, own)
    in_force(lab, own)
    for _ in range(3):
        assert status(mounted, lab.port, bearer) == 503
    assert sum("nobody may read the metrics" in line for line in lab.log()) == 1
    own.append(rule("subjectaccessreviews", "create", group="authorization.k8s.io"))
    allow(lab, own)
    answered(mounted, lab.port, bearer, 200)


@pytest.mark.parametrize("there", ["nothing", "no key"])
def test_an_agent_without_a_certificate_does_not_begin(
    lab: Lab, mounted: Mounted, there: str
) -> None:
    """Not even without TLS: what was to be secured is served to nobody."""
    (mounted.directory / "tls.key").unlink()
    if there == "nothing":
        (mounted.directory / "tls.crt").unlink()
    process = lab.start_process("--metrics-certificate", str(mounted.directory), wait=False)
    assert process.process.wait(120) == 1
    missing = "tls.crt" if there == "nothing" else "tls.key"
    said = process.log.read_text()
    assert "localvolume agent: the certificate cannot be read: [Errno 2]" in said
    assert str(mounted.directory / missing) in said
    lab.agent = None


def test_memory_stays_bounded_whoever_knocks(lab: Lab, mounted: Mounted) -> None:
    """Handshakes that never end, many that do, and large requests over TLS."""
    process = lab.start_process("--metrics-certificate", str(mounted.directory), wait=False).process
    lab.until(lambda: mounted.get(lab.port, "/ready"), lambda got: got == (200, "ok\n"))
    trust = mounted.trust()

    def connect(stack: contextlib.ExitStack) -> ssl.SSLSocket | None:
        plain = socket.create_connection(("127.0.0.1", lab.port), timeout=60)
        stack.callback(plain.close)
        try:
            one = trust.wrap_socket(plain, server_hostname="127.0.0.1")
        except OSError:
            return None
        stack.callback(one.close)
        return one

    def most() -> int:
        text = Path(f"/proc/{process.pid}/status").read_text()
        (line,) = [line for line in text.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) << 10

    before = most()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            hung = stack.enter_context(socket.create_connection(("127.0.0.1", lab.port)))
            with contextlib.suppress(OSError):
                hung.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + b"x" * 8_000)
        for _ in range(32):
            one = connect(stack)
            if one is not None:
                with contextlib.suppress(OSError):
                    one.sendall(b"GET /metrics HTTP/1.0\r\n" + b"X-Kept: " + b"x" * 60_000)
    for number in range(300):
        assert mounted.get(lab.port, "/metrics")[0] in (0, 401), number
    assert most() - before < GROWTH
    assert status(mounted, lab.port, "", "/ready") == 200
