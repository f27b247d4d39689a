"""Who may read the endpoints: the configuration, and the guard made from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localvolume.kube.client import OnRequest
from localvolume.process.server import Accept


@dataclass(frozen=True, slots=True)
class Secured:
    """TLS for all pages, and the metrics only for those whom the API server lets `get` them.

    `certificate` is the directory of tls.crt and tls.key; `kubeconfig` says how to ask the server.
    """

    certificate: str
    kubeconfig: str | None
    on_request: OnRequest


@dataclass(frozen=True, slots=True)
class Guard:
    """What a server needs for that. `refusal` takes the Authorization header and returns the status
    for a client that may not read the metrics, "" for one that may."""

    accept: Accept
    refusal: Callable[[str], str]
