"""`localvolume controller`: upstream's flags, what is refused and why, how the process ends."""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localvolume.cli.main import main
from localvolume.config.controller_flags import ControllerFlags, add_controller_flags
from localvolume.config.environment import ListenAddress
from localvolume.config.pools import DYNAMIC_PROVISIONER
from localvolume.controlplane import ControlPlane, RequestFailed
from localvolume.controlplane.ports import free_ports
from tests.cluster.support_controller import LEASES
from tests.cluster.support_endpoints import http
from tests.cluster.support_routing import DRIVERS


def read(*words: str, **environ: str) -> ControllerFlags:
    parser = argparse.ArgumentParser()
    add_controller_flags(parser)
    return ControllerFlags.read(parser.parse_args(list(words)), environ)


def test_upstreams_defaults() -> None:
    """Facts, section 6."""
    flags = read()
    assert flags.storageclass_names == frozenset()
    assert flags.pvc_deletion_delay == 60
    assert flags.stale_pv_discovery_interval == 10
    assert flags.worker_threads == 10
    assert flags.resync == 600
    assert flags.listen_address == ListenAddress(None, 8080)
    assert flags.metrics_path == "/metrics"
    assert flags.kubeconfig is None
    assert flags.node_return_period == 24 * 3600
    assert (flags.lease_namespace, flags.lease_name) == ("default", "localvolume-controller")
    assert (flags.lease_seconds, flags.renew_deadline, flags.retry_seconds) == (15, 10, 2)


def test_all_of_them() -> None:
    flags = read(
        "--storageclass-names=fast,slow",
        "--storageclass-names",
        "other",
        "--pvc-deletion-delay=0",
        "--stale-pv-discovery-interval=1m30s",
        "--worker-threads=3",
        "--resync=1h",
        "--listen-address=",
        "--metrics-path=/m",
        "--kubeconfig=/some/file",
        "--node-return-period=48h",
        "--lease-name=mine",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=20s",
        "--leader-elect-retry-period=5s",
        MY_NAMESPACE="storage",
    )
    assert flags.storageclass_names == {"fast", "slow", "other"}
    assert flags.pvc_deletion_delay == 0
    assert flags.stale_pv_discovery_interval == 90
    assert flags.worker_threads == 3
    assert flags.resync == 3600
    assert flags.listen_address is None
    assert flags.metrics_path == "/m"
    assert flags.kubeconfig == "/some/file"
    assert flags.node_return_period == 48 * 3600
    assert (flags.lease_namespace, flags.lease_name) == ("storage", "mine")
    assert (flags.lease_seconds, flags.renew_deadline, flags.retry_seconds) == (30, 20, 5)
    assert read("--lease-namespace=given", MY_NAMESPACE="storage").lease_namespace == "given"


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("--storageclass-names=Fast", "'Fast' is no name of a storage class"),
        ("--pvc-deletion-delay=-1s", "'-1s' is less than nothing"),
        ("--pvc-deletion-delay=60", "lacks a unit"),
        ("--stale-pv-discovery-interval=1ms", "'1ms' is shorter than 100ms"),
        ("--worker-threads=0", "'0' is no number from 1 to 1000"),
        ("--resync=often", "is no duration"),
        ("--listen-address=8080", "lacks the colon"),
        ("--metrics-path=metrics", "is no path like"),
        ("--node-return-period=-5m", "is less than nothing"),
        ("--lease-name=My Lease", "is no name of a Lease"),
        ("--lease-namespace=My", "'My' is no name of a namespace"),
        ("--leader-elect-lease-duration=2500ms", "is no number of whole seconds"),
        ("--leader-elect-lease-duration=9s", "must be longer than --leader-elect-renew-deadline"),
        ("--leader-elect-retry-period=9s", "1.2 times --leader-elect-retry-period"),
    ],
)
def test_what_is_refused(word: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["controller", word])
    except SystemExit as error:
        status = int(error.code or 0)
    assert status == 2
    assert reason in " ".join(capsys.readouterr().err.split())


def test_no_way_to_an_api_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "none"
    assert main(["controller", f"--kubeconfig={missing}", "--listen-address="]) == 2
    assert str(missing) in capsys.readouterr().err


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert main(["controller", f"--listen-address={address}"]) == 1
    assert "address already in use" in capsys.readouterr().err.lower()


def test_it_carries_only_what_it_needs() -> None:
    """Every module costs memory in each replica, and what it does not have it cannot do."""
    script = (
        "import sys, localvolume.cli.controller\n"
        "print(*[m for m in sys.modules if m.startswith('localvolume.') or m == 'rich'])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "localvolume.controller.role" in found
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
        deadline = time.monotonic() + 90
        while http(port, "/ready") != (200, "ok, leading\n"):
            assert time.monotonic() < deadline, log.read_text()
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
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
        with contextlib.suppress(RequestFailed):
            control_plane.request("DELETE", f"{DRIVERS}/{DYNAMIC_PROVISIONER}")
    assert "Traceback" not in log.read_text()
