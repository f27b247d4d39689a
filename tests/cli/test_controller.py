"""`localvolume controller`: ways that do not lead to an API server, how the process ends."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localvolume.cli.main import main
from localvolume.config.flags.listening import AGENT_LISTEN_ADDRESS, CONTROLLER_LISTEN_ADDRESS
from localvolume.config.provisioner import OURS
from localvolume_lab.controlplane import ControlPlane, RequestFailed
from localvolume_lab.controlplane.ports import free_ports
from tests.cluster.support_controller import LEASES
from tests.cluster.support_endpoints import http
from tests.suite.api import DRIVERS
from tests.suite.until import until


def test_no_way_to_an_api_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none"
    assert main(["controller", f"--kubeconfig={missing}", "--listen-address="]) == 3
    assert str(missing) in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert main(["controller", f"--listen-address={address}"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"localvolume controller: {address} is an address already in use: ")
    assert "choose another by --listen-address" in said


def test_agent_and_controller_share_a_host() -> None:
    agent, controller = str(AGENT_LISTEN_ADDRESS), str(CONTROLLER_LISTEN_ADDRESS)
    assert agent == ":8080", "as upstream's provisioner"
    assert controller != agent


def test_it_carries_only_what_it_needs() -> None:
    """Every module costs memory in each replica, and what it does not have it cannot do."""
    script = (
        "import sys, localvolume.cli.controller\n"
        "print(*[m for m in sys.modules if m.startswith('localvolume.') or m == 'rich'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "localvolume.controller.volumes.role" in found
    foreign = ("rich", "localvolume.host", "localvolume.cleaning", "localvolume.static")
    assert not [name for name in found if name.startswith(foreign)]


def test_sigterm_ends_it_quickly_and_gives_the_lease_up(
    control_plane: ControlPlane, unique: str, tmp_path: Path
) -> None:
    port = free_ports(1)[0]
    log = tmp_path / "log"
    argv = [sys.executable, "-m", "localvolume", "controller", f"--listen-address=127.0.0.1:{port}"]
    argv += [f"--lease-name={unique}", f"--kubeconfig={control_plane.kubeconfig}"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:

        def check() -> None:
            assert process.poll() is None, log.read_text()

        until(
            lambda: http(port, "/ready"),
            lambda answer: answer == (200, "ok, leading\n"),
            check=check,
            said=log.read_text,
        )
        lease = control_plane.request("GET", f"{LEASES}/{unique}")
        assert lease["spec"]["holderIdentity"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        lease = control_plane.request("GET", f"{LEASES}/{unique}")
        assert not lease["spec"].get("holderIdentity")
    finally:
        process.kill()
        process.wait()
        control_plane.request("DELETE", f"{LEASES}/{unique}")
        # With it there, the scheduler would ask for room that no test of others publishes.
        for name in OURS:
            with contextlib.suppress(RequestFailed):
                control_plane.request("DELETE", f"{DRIVERS}/{name}")
    assert "Traceback" not in log.read_text()
