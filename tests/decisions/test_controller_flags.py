"""`localvolume controller`: upstream's flags, their defaults, what is refused and why."""

import argparse
import re

import pytest

from localvolume.cli.controller import options_of
from localvolume.cli.main import main
from localvolume.config.flags.controller import CONTROLLER_FLAGS
from localvolume.config.flags.listening import ListenAddress
from localvolume.config.flags.table import add_flags
from localvolume.controller.controller import ControllerOptions, LeaseOptions


def read(*words: str, **environ: str) -> ControllerOptions:
    parser = argparse.ArgumentParser()
    add_flags(parser, *CONTROLLER_FLAGS)
    return options_of(parser.parse_args(list(words)), environ)


def test_upstreams_defaults() -> None:
    """Facts, section 6."""
    options = read()
    assert options.policy.delete_classes == frozenset()
    assert options.policy.claim_delay == 60
    assert options.pace.lost == 10
    assert options.pace.at_a_time == 10
    assert options.pace.resync == 600
    assert options.listen_address == ListenAddress(None, 8081)
    assert options.metrics_path == "/metrics"
    assert options.metrics_certificate is None
    assert options.kubeconfig is None
    assert options.policy.return_period == 24 * 3600
    assert options.lease == LeaseOptions(
        namespace="default",
        name="localvolume-controller",
        seconds=15,
        renew_deadline=10,
        retry_seconds=2,
    )


def test_all_of_them() -> None:
    options = read(
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
    assert options.policy.delete_classes == {"fast", "slow", "other"}
    assert options.policy.claim_delay == 0
    assert options.pace.lost == 90
    assert options.pace.at_a_time == 3
    assert options.pace.resync == 3600
    assert options.listen_address is None
    assert options.metrics_path == "/m"
    assert options.kubeconfig == "/some/file"
    assert options.policy.return_period == 48 * 3600
    assert options.lease == LeaseOptions(
        namespace="storage", name="mine", seconds=30, renew_deadline=20, retry_seconds=5
    )
    assert read("--lease-namespace=given", MY_NAMESPACE="storage").lease.namespace == "given"


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
