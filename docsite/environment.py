"""The environment variables that are read, from the code's table of them."""

from __future__ import annotations

from docsite.markdown import code, table
from localvolume.config.variables import VARIABLES

_OF_KUBERNETES = (
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ("KUBERNETES_SERVICE_PORT", "443"),
)
"""What every client of Kubernetes obeys in a pod, ours included: not rows of the table."""


def section() -> str:
    """The section of the flags' page."""
    rows = [
        (
            code(one.name),
            one.readers,
            one.meaning + (f" (default {code(one.default)})" if one.default else ""),
            code(f"{one.name}={one.example}"),
        )
        for one in VARIABLES
    ]
    rows += [
        (code(name), "all", "set by Kubernetes in every pod", code(f"{name}={value}"))
        for name, value in _OF_KUBERNETES
    ]
    titles = ("variable", "read by", "meaning", "example")
    return (
        f"## Environment variables\n\nAn empty variable counts as unset.\n\n{table(titles, rows)}"
    )
