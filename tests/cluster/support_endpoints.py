"""What our processes tell on their port of this machine: health and metrics."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

STALLED = "the event loop has not answered"
"""Said where a machine has no time for a process: asked again, as the kubelet would."""

CUT = "the answer was cut"
"""A process drops a request that it has not answered for some seconds: the same."""


def http(port: int, path: str) -> tuple[int, str]:
    """What a process answers on that port, (0, why) where it does not."""
    for _ in range(10):
        status, text = _ask(f"http://127.0.0.1:{port}{path}")
        if STALLED not in text and not text.startswith(CUT):
            break
    return status, text


def _ask(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (ConnectionResetError, HTTPException) as error:
        return 0, f"{CUT}: {error}"
    except OSError as error:
        return 0, str(error)


def samples(port: int, name: str) -> Iterator[tuple[dict[str, str], float]]:
    """The samples of that name in /metrics: labels and value."""
    # Only the one: writing and reading all of them takes both processes a good while.
    status, text = http(port, f"/metrics?name[]={name}")
    for family in text_string_to_metric_families(text if status == 200 else ""):
        for sample in family.samples:
            if sample.name == name:
                yield sample.labels, sample.value


def metric(port: int, name: str, **labels: str) -> float | None:
    """One sample of /metrics, None where there is none."""
    return next((value for known, value in samples(port, name) if known == labels), None)
