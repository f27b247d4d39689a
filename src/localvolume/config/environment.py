"""The environment variables and flags of the agent, as upstream names them.

MY_NODE_NAME, MY_NAMESPACE, JOB_CONTAINER_IMAGE and KUBECONFIG; `--listen-address`,
`--metrics-path`, `--discovery-period`, `--config-sync-period`; and four that are ours,
MY_POD_NAME, KUBELET_DIR, RECORDS_DIR and MUST_BE_CONFINED.
Where we take another provisioner's place, its own: KUTTI_NODE_NAME here, and elastic's NODE_NAME
(the rest in `kutti`, `openebs` and `elastic`), and flags of ours that say where local-path's
configuration and OpenEBS' base paths are.

Upstream looks at the disks and at its configuration once a period. We are told of changes, so the
two periods are what they can still mean: how long a change that nobody was told of may go
unnoticed. Nothing is looked at periodically on their account unless they are given.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from localvolume.config import variables
from localvolume.config.syntax.durations import BadDuration, parse_duration
from localvolume.config.variables import Variable

T = TypeVar("T")

DEFAULT_LISTEN_ADDRESS: Final = ":8080"
DEFAULT_METRICS_PATH: Final = "/metrics"
LOCAL_PATH_PROVISIONER: Final = "rancher.io/local-path"
_HIGHEST_PORT: Final = 65535
_SHORTEST_PERIOD: Final = 0.1


class EnvironmentInvalid(Exception):
    """Variables are missing or wrong: correct the DaemonSet. `problems` has one text for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to serve: `host` None means every address of the machine; port 0 means any free one."""

    host: str | None
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEnvironment:
    """What the pod tells its agent.

    `kubeconfig` None leaves the choice of access to `kube.auth`. `kubelet_directory` is where the
    mounts of pods are; None where no kubelet runs. `records_directory` is for the records of
    volumes that can carry none themselves; None: there are none of those. `namespace` is the pod's,
    and that of cleaning Jobs; `pod_name` is "" where nothing names the pod. `job_image` is for
    cleaning Jobs; without one `useJobForCleaning` is refused.
    """

    node_name: str
    namespace: str = variables.MY_NAMESPACE.default
    pod_name: str = ""
    job_image: str | None = None
    kubeconfig: str | None = None
    kubelet_directory: str | None = None
    records_directory: str | None = None
    confined: bool = False
    """Whether policies confine the agent to its node, by the manifests: it is to see to that."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "AgentEnvironment":
        """Read the variables; an empty one counts as unset. Raises EnvironmentInvalid.

        KUTTI_NODE_NAME stands in for MY_NODE_NAME, and must not differ from it; so does elastic's
        NODE_NAME beside DRIVER_KIND.
        """
        names = [variables.MY_NODE_NAME, variables.KUTTI_NODE_NAME]
        if variables.DRIVER_KIND.text(environ):
            names.append(variables.NODE_NAME)
        own, *others = names
        name = own.text(environ)
        problems = [
            f"{one} {one.text(environ)!r} is not {own} {name!r}"
            for one in others
            if name and one.text(environ) not in ("", name)
        ]
        node = next((one for one in names if one.text(environ)), own)
        values: dict[str, Any] = {}
        for field, variable in {"node_name": node, **_FIELDS}.items():
            try:
                values[field] = variable.read(environ)
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise EnvironmentInvalid(problems)
        return cls(**values)


_FIELDS: Final[Mapping[str, Variable[Any]]] = {
    "namespace": variables.MY_NAMESPACE,
    "pod_name": variables.MY_POD_NAME,
    "job_image": variables.JOB_CONTAINER_IMAGE,
    "kubeconfig": variables.KUBECONFIG,
    "kubelet_directory": variables.KUBELET_DIR,
    "records_directory": variables.RECORDS_DIR,
    "confined": variables.MUST_BE_CONFINED,
}


def add_agent_flags(parser: argparse.ArgumentParser) -> None:
    """Add upstream's flags.

    They arrive as `listen_address: ListenAddress`, `metrics_path: str`, that of
    `add_certificate_flag`, and the seconds
    `discovery_period: float | None`, `config_sync_period: float | None`, None where not given;
    `flexvolume_driver: str | None`; and those of `add_pool_flags`.
    """
    parser.add_argument(
        "--listen-address",
        metavar="[HOST]:PORT",
        type=_argument(parse_listen_address),
        default=parse_listen_address(DEFAULT_LISTEN_ADDRESS),
        help=f"where metrics and /ready are served (default {DEFAULT_LISTEN_ADDRESS})",
    )
    parser.add_argument(
        "--metrics-path",
        metavar="PATH",
        type=_argument(parse_metrics_path),
        default=DEFAULT_METRICS_PATH,
        help=f"where below the address the metrics are (default {DEFAULT_METRICS_PATH})",
    )
    add_certificate_flag(parser)
    parser.add_argument(
        "--discovery-period",
        metavar="DURATION",
        type=_argument(_parse_period),
        default=None,
        help="look at all discovery directories at least this often "
        "(default: when something changes)",
    )
    parser.add_argument(
        "--config-sync-period",
        metavar="DURATION",
        type=_argument(_parse_period),
        default=None,
        help="read the configuration at least this often (default: when it changes)",
    )
    parser.add_argument(
        "--flexvolume-driver",
        metavar="KIND",
        default=None,
        help="serve FlexVolume as elastic's daemon did: lvm or bindmount (also DRIVER_KIND)",
    )
    add_pool_flags(parser)


def add_certificate_flag(parser: argparse.ArgumentParser) -> None:
    """Add ours that secures the endpoints; it arrives as `metrics_certificate: str | None`."""
    parser.add_argument(
        "--metrics-certificate",
        metavar="DIR",
        type=_argument(_parse_directory),
        default=None,
        help="serve metrics and health over TLS alone, with tls.crt and tls.key of this directory "
        "(a mounted Secret; read anew when they change), and metrics to those alone whose bearer "
        "token may `get` their path, by the API server (default: plain HTTP, to everyone)",
    )


def add_pool_flags(parser: argparse.ArgumentParser) -> None:
    """Add ours for the formats of the provisioners that are replaced.

    They arrive as `local_path_config: str | None`, `local_path_provisioner_name: str`,
    `openebs_base_path: list[str]` and `lvmd_config: str | None`.
    """
    parser.add_argument(
        "--local-path-config",
        metavar="PATH",
        default=None,
        help="local-path's config.json, or the directory of its mounted ConfigMap: make volumes "
        "as it says",
    )
    parser.add_argument(
        "--local-path-provisioner-name",
        metavar="NAME",
        default=LOCAL_PATH_PROVISIONER,
        help=f"which provisioner those classes name (default {LOCAL_PATH_PROVISIONER})",
    )
    parser.add_argument(
        "--openebs-base-path",
        metavar="PATH",
        action="append",
        default=[],
        help="a directory that OpenEBS hostpath classes may have as BasePath (may be repeated; "
        "OPENEBS_IO_BASE_PATH is one, too)",
    )
    parser.add_argument(
        "--lvmd-config",
        metavar="PATH",
        default=None,
        help="TopoLVM's lvmd.yaml, or the directory that it is in: make logical volumes in the "
        "volume groups and thin pools of its device classes",
    )


def parse_listen_address(text: str) -> ListenAddress:
    """Go's form: ":8080", "127.0.0.1:8080", "[::1]:8080". Raises ValueError, saying why."""
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f'{text!r} lacks the colon before the port, as in ":8080"')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f'{text!r} has an IPv6 address without brackets; write "[::1]:8080"')
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) <= _HIGHEST_PORT):
        raise ValueError(f"{text!r} has no port from 0 to {_HIGHEST_PORT} after the colon")
    return ListenAddress(host or None, int(port))


def parse_metrics_path(text: str) -> str:
    """An absolute URL path that leaves /ready alone. Raises ValueError, saying why."""
    if not text.startswith("/") or any(char in "?#{} " for char in text):
        raise ValueError(f'{text!r} is no path like "/metrics"')
    if text == "/ready" or text.startswith("/ready/"):
        raise ValueError(f"{text!r} is where readiness is served")
    return text


def _parse_directory(text: str) -> str:
    if not text:
        # Where a template has nothing to put there, nothing must be served to everyone.
        raise ValueError("it names no directory")
    return text


def _parse_period(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < _SHORTEST_PERIOD:
        raise BadDuration(f"{text!r} is shorter than 100ms")
    return seconds


def _argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """The parser as argparse wants it: it shows the reason of this one exception only."""

    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_argument
