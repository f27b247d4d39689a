"""The page of metrics: what the registries of agent and controller hold."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from docsite.environment import SOURCE
from docsite.markdown import Missing, code, page, table, text
from localvolume.agent.metrics import AgentMetrics
from localvolume.controller.metrics import ControllerMetrics
from localvolume.disks.role import DisksMetrics
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.flexvolume.collecting import CollectorMetrics
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.health.metrics import HealthMetrics
from localvolume.static.metrics import StaticMetrics

ON_A_REGISTRY: Mapping[str, Callable[[CollectorRegistry], Any]] = {
    "static/metrics.py": StaticMetrics,
    "dynamic/metrics.py": DynamicMetrics,
    "flexvolume/metrics.py": FlexMetrics,
    "flexvolume/collecting.py": CollectorMetrics,
    "health/metrics.py": HealthMetrics,
    "disks/role.py": DisksMetrics,
}
"""What adds metrics to the agent's registry, by the module."""

_OF_THE_PROCESS = {"agent/metrics.py", "controller/metrics.py", "process/metrics.py"}
_TITLES = {
    "static/metrics.py": "Agent: static volumes",
    "dynamic/metrics.py": "Agent: volumes made for claims",
    "flexvolume/metrics.py": "Agent: FlexVolume",
    "flexvolume/collecting.py": "Agent: what FlexVolume removes",
    "health/metrics.py": "Agent: health",
    "disks/role.py": "Agent: raw disks",
}
_MAKERS = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}

_INTRODUCTION = """\
Agent and controller serve them at `--listen-address`, path `/metrics`, to everyone or to
[who may read them](../security.md#who-may-read-the-metrics). Names that begin with
`local_volume_provisioner_`, `local_volume_node_cleanup_` or `controller_` are those of the tools
that are replaced, with their labels and buckets; `localvolume_` are ours. Beside them are
`process_…` and `python_…`, as every Python program has them.

A gauge tells the truth of the whole node after every look. A counter with `_total` also has
`…_created`. The label `claim` is empty unless the agent has
[`--claims-in-metrics`](../security.md#the-agent).
"""


def render(shown: Mapping[str, Callable[[CollectorRegistry], Any]] = ON_A_REGISTRY) -> str:
    """docs/reference/metrics.md. Raises Missing."""
    known = set(shown) | _OF_THE_PROCESS
    if wrong := _modules() ^ known:
        raise Missing(
            "docsite/metrics.py, ON_A_REGISTRY: these modules make metrics and are not there, or "
            f"make none any more: {', '.join(sorted(wrong))}"
        )
    parts = [_section("Agent: the process", _metrics(AgentMetrics().registry))]
    for module, add in shown.items():
        registry = CollectorRegistry()
        add(registry)
        parts.append(_section(_TITLES.get(module, f"Agent: `{module}`"), _metrics(registry)))
    parts.append(_section("Controller", _metrics(ControllerMetrics().registry)))
    return page("Metrics", _INTRODUCTION, *parts)


def names() -> set[str]:
    """Every metric's name as Prometheus has it after a scrape, histograms without suffix."""
    registries = [AgentMetrics().registry, ControllerMetrics().registry]
    for add in ON_A_REGISTRY.values():
        registries.append(CollectorRegistry())
        add(registries[-1])
    return {_name(one) for registry in registries for one in _metrics(registry)}


def _metrics(registry: CollectorRegistry) -> list[MetricWrapperBase]:
    found = dict.fromkeys(registry._collector_to_names)
    return [one for one in found if isinstance(one, MetricWrapperBase)]


def _name(metric: MetricWrapperBase) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else str(metric._name)


def _section(title: str, metrics: list[MetricWrapperBase]) -> str:
    rows = [
        (
            code(_name(metric)),
            str(metric._type),
            ", ".join(code(label) for label in metric._labelnames),
            text(metric._documentation),
        )
        for metric in metrics
    ]
    return f"## {title}\n\n{table(('metric', 'type', 'labels', 'meaning'), rows)}"


def _modules() -> set[str]:
    """The modules that import what metrics are made of."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "prometheus_client"
                and _MAKERS & {alias.name for alias in node.names}
            ):
                found.add(path.relative_to(SOURCE).as_posix())
    return found
