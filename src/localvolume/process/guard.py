"""Who may read the endpoints: what is configured of it, and what is made of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localvolume.kube.client import OnRequest
from localvolume.process.server import Accept


@dataclass(frozen=True, slots=True)
class Secured:
    """TLS for all pages, and the metrics for those alone whom the API server lets `get` them.

    `certificate` is the directory of tls.crt and tls.key, `kubeconfig` says how that is asked.
    """

    certificate: str
    kubeconfig: str | None
    on_request: OnRequest


@dataclass(frozen=True, slots=True)
class Guard:
    """What that takes. `refusal` is the status for who may not read the metrics, by the header
    Authorization; "" for who may."""

    accept: Accept
    refusal: Callable[[str], str]
