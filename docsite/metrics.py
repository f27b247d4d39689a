"""The page of metrics: the tables that agent and controller make theirs from."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from docsite.markdown import Missing, code, page, table, text
from docsite.source import SOURCE
from localvolume.agent.metrics import AgentMetrics
from localvolume.controller.metrics import ControllerMetrics
from localvolume.csi.metrics import CsiMetrics
from localvolume.disks.role import DisksMetrics
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.flexvolume.collecting import CollectorMetrics
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.health.metrics import HealthMetrics
from localvolume.process.metrics import Declared, Metrics
from localvolume.snapshots.groups.metrics import GroupMetrics
from localvolume.snapshots.metrics import SnapshotMetrics
from localvolume.static.metrics import StaticMetrics

TABLES: Mapping[type[Metrics], str] = {
    AgentMetrics: "Agent: the process",
    StaticMetrics: "Agent: static volumes",
    DynamicMetrics: "Agent: volumes made for claims",
    CsiMetrics: "Agent: CSI",
    SnapshotMetrics: "Agent: snapshots",
    GroupMetrics: "Agent: groups of snapshots",
    FlexMetrics: "Agent: FlexVolume",
    CollectorMetrics: "Agent: what FlexVolume removes",
    HealthMetrics: "Agent: health",
    DisksMetrics: "Agent: raw disks",
    ControllerMetrics: "Controller",
}
"""The title of each table's section."""

_MAKERS = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
_MAKER = "process/metrics.py"

_INTRODUCTION = """\
The agent and the controller serve them at `--listen-address`, path `/metrics`, to everyone or only
to [those who may read them](../security.md#who-may-read-the-metrics). Names that begin with
`local_volume_provisioner_`, `local_volume_node_cleanup_` or `controller_` come from the tools that
we replace, with their labels and buckets. Names with `csi_` come from CSI's sidecars, and names
with `localvolume_` are ours. There are also `process_…` and `python_…`, which every Python program
has.

After every look, a gauge shows the state of the whole node. A counter with `_total` also has
`…_created`. The label `claim` is empty unless the agent has
[`--claims-in-metrics`](../security.md#the-agent).
"""


def render(tables: Mapping[type[Metrics], str] = TABLES) -> str:
    """docs/reference/metrics.md. Raises Missing."""
    trees = {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
    }
    shown = {base.__name__ for one in tables for base in one.__mro__}
    if missing := declaring(trees.values()) - shown:
        raise Missing(
            "docsite/metrics.py, TABLES: these declare metrics and are not there: "
            f"{', '.join(sorted(missing))}"
        )
    if wrong := [path for path, tree in trees.items() if path != _MAKER and makes(tree)]:
        raise Missing(f"these make metrics without a table of {_MAKER}: {', '.join(wrong)}")
    sections = (_section(title, one.declared().values()) for one, title in tables.items())
    return page("Metrics", _INTRODUCTION, *sections)


def names() -> set[str]:
    """Every metric's name as Prometheus has it after a scrape, histograms without suffix."""
    return {row.name for one in TABLES for row in one.declared().values()}


def declaring(trees: Iterable[ast.AST]) -> set[str]:
    """The names of the classes that extend Metrics, or one that does."""
    classes = [
        (node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases})
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    found: set[str] = set()
    more = {Metrics.__name__}
    while more:
        more = {name for name, bases in classes if bases & more} - found
        found |= more
    return found


def makes(tree: ast.AST) -> bool:
    """Whether a module makes a metric by itself."""
    nodes = list(ast.walk(tree))
    makers = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "prometheus_client"
        for alias in node.names
        if alias.name in _MAKERS
    }
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers
        for node in nodes
    )


def _section(title: str, rows: Collection[Declared[Any]]) -> str:
    cells = [
        (
            code(row.name),
            row.kind.__name__.lower(),
            ", ".join(code(label) for label in row.labels),
            text(row.text),
        )
        for row in rows
    ]
    return f"## {title}\n\n{table(('metric', 'type', 'labels', 'meaning'), cells)}"
