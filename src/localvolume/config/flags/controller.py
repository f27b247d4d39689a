"""The flags of the controller: those of upstream's node-cleanup by their own names, and ours.

Upstream's: `--storageclass-names`, `--pvc-deletion-delay`, `--stale-pv-discovery-interval`,
`--worker-threads`, `--resync`, `--listen-address`, `--metrics-path`, `--kubeconfig`. The
`--leader-elect-...` ones are those that every Kubernetes component has.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from localvolume.config.flags.listening import (
    CONTROLLER_LISTEN_ADDRESS,
    SERVING_FLAGS,
    ListenAddress,
    parse_listen_address,
)
from localvolume.config.flags.table import Flag
from localvolume.config.provisioner import CSI_DRIVER, DYNAMIC_PROVISIONER
from localvolume.config.syntax import names
from localvolume.config.syntax.durations import BadDuration, parse_duration, parse_period
from localvolume.config.variables import MY_NAMESPACE

DEFAULT_LEASE_NAME: Final = "localvolume-controller"
_SHORTEST_LEASE: Final = 2.0
_JITTER: Final = 1.2
_MOST_WORKERS: Final = 1000


class FlagsInvalid(Exception):
    """Flags are valid alone, but not together or with the environment; the message says why."""


def lease_namespace(given: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """The flag's value, else MY_NAMESPACE. Raises FlagsInvalid."""
    namespace: str = given.lease_namespace or MY_NAMESPACE.text(environ)
    if "." in namespace or names.fault_of_object_name(namespace):
        raise FlagsInvalid(f"{namespace!r} is no name of a namespace for the Lease")
    return namespace


def check_together(given: argparse.Namespace) -> None:
    """Check the flags against each other. Raises FlagsInvalid."""
    renew, retry = given.leader_elect_renew_deadline, given.leader_elect_retry_period
    if not given.leader_elect_lease_duration > renew > retry * _JITTER:
        raise FlagsInvalid(
            "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, "
            f"and that longer than {_JITTER} times --leader-elect-retry-period"
        )
    if given.metrics_certificate is not None and given.listen_address is None:
        raise FlagsInvalid("--metrics-certificate has no use where --listen-address is empty")


def _names(of: str, fault_of: Callable[[str], str | None]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",") if name.strip()]
        for name in found:
            if fault := fault_of(name):
                raise ValueError(f"{name!r} is no name of a {of}: it {fault}")
        return found

    return parse


def _fault_of_provisioner(name: str) -> str | None:
    # As the API server does: the syntax of a label's key, in upper or lower case.
    return names.fault_of_label_key(name.lower())


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


def _lease_duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < _SHORTEST_LEASE or seconds != int(seconds):
        raise BadDuration(f"{text!r} is no number of whole seconds from 2s on, as a Lease has it")
    return seconds


def _workers(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_WORKERS):
        raise ValueError(f"{text!r} is no number from 1 to {_MOST_WORKERS}")
    return int(text)


CONTROLLER_FLAGS: Final = (
    Flag("--storageclass-names", "NAME[,NAME]",
         "storage classes whose claims and PersistentVolumes are deleted when their node is "
         "lost; may be given several times (default: none; what would be deleted is only reported)",
         _names("storage class", names.fault_of_object_name), repeated=True),
    Flag("--dynamic-provisioners", "NAME[,NAME]",
         "provisioners to replace, like rancher.io/local-path: their claims are routed "
         "to nodes (those of volumes.k8s.elastic.co/elastic-local get FlexVolume volumes) and "
         "their PersistentVolumes are adopted; stop the old ones first; may be given several times "
         f"(default: none; {DYNAMIC_PROVISIONER}, {CSI_DRIVER} and localvolume.dev/flexvolume "
         "are always served)",
         _names("provisioner", _fault_of_provisioner), repeated=True),
    Flag("--pvc-deletion-delay", "DURATION",
         "how long a node must be missing before the claims on its volumes are deleted",
         _delay, "1m"),
    Flag("--node-return-period", "DURATION",
         "how long a lost node's volumes that were used and never cleaned are kept", _delay, "24h"),
    Flag("--stale-pv-discovery-interval", "DURATION",
         "how often the volumes of lost nodes are looked at again", parse_period, "10s"),
    Flag("--resync", "DURATION",
         "how often the controller looks at all volumes again, and repeats what is not done",
         parse_period, "10m"),
    Flag("--leader-elect-lease-duration", "DURATION",
         "how long a standby waits after the last sign of the leader", _lease_duration, "15s"),
    Flag("--leader-elect-renew-deadline", "DURATION",
         "how long the leader tries to renew the Lease before it gives up", parse_period, "10s"),
    Flag("--leader-elect-retry-period", "DURATION",
         "how often the leader renews the Lease, and a standby tries for it", parse_period, "2s"),
    Flag("--worker-threads", "N", "how many volumes are worked on at the same time",
         _workers, "10"),
    Flag("--listen-address", "[HOST]:PORT",
         'where metrics, /ready and /healthz are served; "" for nowhere',
         _listen_address, CONTROLLER_LISTEN_ADDRESS),
    *SERVING_FLAGS,
    Flag("--kubeconfig", "FILE",
         "how to reach the API server (default: KUBECONFIG, else the pod's service account)"),
    Flag("--lease-name", "NAME", "the Lease that makes one replica the leader",
         _object_name, DEFAULT_LEASE_NAME),
    Flag("--lease-namespace", "NAMESPACE",
         f"the Lease's namespace (default: MY_NAMESPACE, else {MY_NAMESPACE.default})"),
)  # fmt: skip
