"""Times in annotations: RFC 3339 in UTC, whole seconds, as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime

_FORM = "%Y-%m-%dT%H:%M:%SZ"


def written(seconds: float) -> str:
    """A time in seconds since the epoch as text."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_FORM)


def moment(text: str) -> float | None:
    """The seconds since the epoch that such a text stands for; None for any other text."""
    try:
        return datetime.strptime(text, _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
