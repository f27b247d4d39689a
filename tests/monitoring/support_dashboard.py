"""The dashboard's panels, and what each asks Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.monitoring.support_rules import DASHBOARD

Panel = dict[str, Any]


def panels() -> list[Panel]:
    return [one for one in json.loads(DASHBOARD.read_text())["panels"] if one["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """The title of each panel, and the expression of each of its queries, as it is written."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def filled_in(expression: str, cluster: str = ".*") -> str:
    """As Grafana asks it, with everything selected but for the cluster; without the zero that
    stands in where somebody is there to say, and says nothing."""
    expression = re.sub(r" or (vector\(0\)|count\b.*\* 0)$", "", expression)
    expression = expression.replace("$cluster", cluster)
    # As long as all of it takes, as a loaded machine may miss some scrapes.
    expression = expression.replace("$__rate_interval", "5m")
    return re.sub(r"\$\{?(node|class|pool)\}?", ".*", expression)
