"""`localvolume controller`: upstream's flags, their defaults, what is refused and why."""

import argparse
import re

import pytest

from localvolume.cli.main import main
from localvolume.config.controller_flags import ControllerFlags, add_controller_flags
from localvolume.config.environment import ListenAddress


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
    assert flags.metrics_certificate is None
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
        ("--metrics-certificate=", "it names no directory"),
        ("--listen-address= --metrics-certificate=/c", "has no use where --listen-address"),
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
        status = main(["controller", *re.split(r" (?=--)", word)])
    except SystemExit as error:
        status = int(error.code or 0)
    assert status == 2
    assert reason in " ".join(capsys.readouterr().err.split())
