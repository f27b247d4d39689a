"""Where a process serves its endpoints: the flags that agent and controller share."""

from dataclasses import dataclass
from typing import Final

from localvolume.config.flags.table import Flag

AGENT_LISTEN_ADDRESS: Final = ":8080"
"""Upstream's provisioner has it, too."""

CONTROLLER_LISTEN_ADDRESS: Final = ":8081"
"""Not the agent's: both may run on one host, or in its network."""

DEFAULT_METRICS_PATH: Final = "/metrics"
_HIGHEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to serve: `host` None means every address of the machine; port 0 means any free one."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


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


def _metrics_path(text: str) -> str:
    """An absolute URL path that leaves /ready alone. Raises ValueError, saying why."""
    if not text.startswith("/") or any(char in "?#{} " for char in text):
        raise ValueError(f'{text!r} is no path like "/metrics"')
    if text == "/ready" or text.startswith("/ready/"):
        raise ValueError(f"{text!r} is where readiness is served")
    return text


def _directory(text: str) -> str:
    if not text:
        # A template that lacks the value must not make the metrics readable by everyone.
        raise ValueError("it names no directory")
    return text


SERVING_FLAGS: Final = (
    Flag("--metrics-path", "PATH", "where below the address the metrics are", _metrics_path,
         DEFAULT_METRICS_PATH),
    Flag("--metrics-certificate", "DIR",
         "serve metrics and health only over TLS, with tls.crt and tls.key of this directory (a "
         "mounted Secret; read again when they change), and metrics only to those whose bearer "
         "token may `get` their path, as the API server says (default: plain HTTP, to everyone)",
         _directory),
)  # fmt: skip
"""Those that mean the same in both; the controller's `--listen-address` may also be ""."""
