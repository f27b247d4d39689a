"""The flags of the controller: upstream's node-cleanup by their names, and ours.

Upstream's: `--storageclass-names`, `--pvc-deletion-delay`, `--stale-pv-discovery-interval`,
`--worker-threads`, `--resync`, `--listen-address`, `--metrics-path`, `--kubeconfig`. The
`--leader-elect-...` ones are those that every Kubernetes component has.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from localvolume.config.environment import (
    DEFAULT_LISTEN_ADDRESS,
    DEFAULT_METRICS_PATH,
    ListenAddress,
    add_certificate_flag,
    parse_listen_address,
    parse_metrics_path,
)
from localvolume.config.provisioner import DYNAMIC_PROVISIONER
from localvolume.config.syntax import names
from localvolume.config.syntax.durations import BadDuration, parse_duration
from localvolume.config.variables import MY_NAMESPACE

T = TypeVar("T")

DEFAULT_LEASE_NAME: Final = "localvolume-controller"
_SHORTEST_PERIOD: Final = 0.1
_SHORTEST_LEASE: Final = 2.0
_JITTER: Final = 1.2
_MOST_WORKERS: Final = 1000


class FlagsInvalid(Exception):
    """Flags are right one by one, but not together, or not with the environment: why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerFlags:
    """What was asked for. Times in seconds; `listen_address` None: nothing is served.

    `kubeconfig` None leaves the choice of access to `kube.auth`. `dynamic_provisioners` always has
    our own.
    """

    storageclass_names: frozenset[str]
    dynamic_provisioners: frozenset[str]
    pvc_deletion_delay: float
    stale_pv_discovery_interval: float
    node_return_period: float
    worker_threads: int
    resync: float
    listen_address: ListenAddress | None
    metrics_path: str
    metrics_certificate: str | None
    kubeconfig: str | None
    lease_name: str
    lease_namespace: str
    lease_seconds: float
    renew_deadline: float
    retry_seconds: float

    @classmethod
    def read(cls, given: argparse.Namespace, environ: Mapping[str, str]) -> ControllerFlags:
        """The parsed flags, completed by MY_NAMESPACE. Raises FlagsInvalid."""
        namespace = given.lease_namespace or MY_NAMESPACE.text(environ)
        if "." in namespace or names.fault_of_object_name(namespace):
            raise FlagsInvalid(f"{namespace!r} is no name of a namespace for the Lease")
        lease, renew, retry = (
            given.leader_elect_lease_duration,
            given.leader_elect_renew_deadline,
            given.leader_elect_retry_period,
        )
        if not lease > renew > retry * _JITTER:
            raise FlagsInvalid(
                "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, "
                f"and that longer than {_JITTER} times --leader-elect-retry-period"
            )
        if given.metrics_certificate is not None and given.listen_address is None:
            raise FlagsInvalid("--metrics-certificate has no use where --listen-address is empty")
        return cls(
            storageclass_names=frozenset(
                name for list_ in given.storageclass_names for name in list_
            ),
            dynamic_provisioners=frozenset(
                {
                    DYNAMIC_PROVISIONER,
                    *(name for list_ in given.dynamic_provisioners for name in list_),
                }
            ),
            pvc_deletion_delay=given.pvc_deletion_delay,
            stale_pv_discovery_interval=given.stale_pv_discovery_interval,
            node_return_period=given.node_return_period,
            worker_threads=given.worker_threads,
            resync=given.resync,
            listen_address=given.listen_address,
            metrics_path=given.metrics_path,
            metrics_certificate=given.metrics_certificate,
            kubeconfig=given.kubeconfig,
            lease_name=given.lease_name,
            lease_namespace=namespace,
            lease_seconds=lease,
            renew_deadline=renew,
            retry_seconds=retry,
        )


def add_controller_flags(parser: argparse.ArgumentParser) -> None:
    """Add them all; `ControllerFlags.read` takes what comes of parsing them."""

    def add(
        flag: str, metavar: str, parse: Callable[[str], object], default: str, text: str
    ) -> None:
        parser.add_argument(
            flag,
            metavar=metavar,
            type=_argument(parse),
            default=default,
            help=f"{text} (default {default})",
        )

    parser.add_argument(
        "--storageclass-names",
        metavar="NAME[,NAME]",
        type=_argument(_class_names),
        action="append",
        default=[],
        help="storage classes whose claims and PersistentVolumes are deleted when their node is "
        "lost; may be given several times (default: none; what would be deleted is only reported)",
    )
    parser.add_argument(
        "--dynamic-provisioners",
        metavar="NAME[,NAME]",
        type=_argument(_provisioners),
        action="append",
        default=[],
        help="provisioners that are replaced, like rancher.io/local-path: their claims are routed "
        "to nodes (those of volumes.k8s.elastic.co/elastic-local get FlexVolume volumes) and their "
        "PersistentVolumes are adopted; stop the old ones first; may be given several times "
        f"(default: none; {DYNAMIC_PROVISIONER} and localvolume.dev/flexvolume always are served)",
    )
    for flag, parse, default, text in _DURATIONS:
        add(flag, "DURATION", parse, default, text)
    text = "how many volumes something is done about at the same time"
    add("--worker-threads", "N", _workers, "10", text)
    text = 'where metrics, /ready and /healthz are served; "" for nowhere'
    add("--listen-address", "[HOST]:PORT", _listen_address, DEFAULT_LISTEN_ADDRESS, text)
    text = "where below the address the metrics are"
    add("--metrics-path", "PATH", parse_metrics_path, DEFAULT_METRICS_PATH, text)
    add_certificate_flag(parser)
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: KUBECONFIG, else the pod's service account)",
    )
    text = "the Lease that makes one replica the leader"
    add("--lease-name", "NAME", _object_name, DEFAULT_LEASE_NAME, text)
    parser.add_argument(
        "--lease-namespace",
        metavar="NAMESPACE",
        help=f"the Lease's namespace (default: MY_NAMESPACE, else {MY_NAMESPACE.default})",
    )


def _class_names(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",") if name.strip()]
    for name in found:
        if fault := names.fault_of_object_name(name):
            raise ValueError(f"{name!r} is no name of a storage class: it {fault}")
    return found


def _provisioners(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",") if name.strip()]
    for name in found:
        # As the API server takes them: the syntax of a label's key, in any case.
        if fault := names.fault_of_label_key(name.lower()):
            raise ValueError(f"{name!r} is no name of a provisioner: it {fault}")
    return found


def _object_name(text: str) -> str:
    if fault := names.fault_of_object_name(text):
        raise ValueError(f"{text!r} is no name of a Lease: it {fault}")
    return text


def _listen_address(text: str) -> ListenAddress | None:
    return parse_listen_address(text) if text else None


def _delay(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0:
        raise BadDuration(f"{text!r} is less than nothing")
    return seconds


def _period(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < _SHORTEST_PERIOD:
        raise BadDuration(f"{text!r} is shorter than 100ms")
    return seconds


def _lease_duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < _SHORTEST_LEASE or seconds != int(seconds):
        raise BadDuration(f"{text!r} is no number of whole seconds from 2s on, as a Lease has it")
    return seconds


def _workers(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_WORKERS):
        raise ValueError(f"{text!r} is no number from 1 to {_MOST_WORKERS}")
    return int(text)


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The parser as argparse wants it: it shows the reason of this one exception only."""

    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_argument


_DURATIONS: Final = (
    (
        "--pvc-deletion-delay",
        _delay,
        "1m",
        "how long a node must be missing before the claims on its volumes are deleted",
    ),
    (
        "--node-return-period",
        _delay,
        "24h",
        "how long a lost node's volumes that were used and never cleaned are kept",
    ),
    (
        "--stale-pv-discovery-interval",
        _period,
        "10s",
        "how often the volumes of lost nodes are looked at again",
    ),
    (
        "--resync",
        _period,
        "10m",
        "how often all volumes are looked at again, and what is not done is said again",
    ),
    (
        "--leader-elect-lease-duration",
        _lease_duration,
        "15s",
        "how long a standby waits after the last sign of the leader",
    ),
    (
        "--leader-elect-renew-deadline",
        _period,
        "10s",
        "how long the leader tries to renew the Lease before it gives up",
    ),
    (
        "--leader-elect-retry-period",
        _period,
        "2s",
        "how often the Lease is renewed, or tried for",
    ),
)
