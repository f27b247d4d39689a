"""The alert rules, the tests that promtool runs of them, and the metrics that our code exposes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import Histogram

from docsite.metrics import TABLES
from localvolume.process.metrics import ProcessMetrics

ROOT = Path(__file__).parents[2]
FILES = ROOT / "charts" / "local-volume-provisioner" / "files"
ALERTS = FILES / "alerts.yaml"
DASHBOARD = FILES / "dashboard.json"
RUNBOOKS = ROOT / "docs" / "alerts.md"
RULE_TESTS = sorted((Path(__file__).parent / "rules").glob("*.yaml"))

#: What Prometheus itself adds to each sample; `node` is our ServiceMonitor's doing.
TARGET_LABELS = frozenset({"job", "namespace", "instance", "node"})

Alert = dict[str, Any]


def alerts() -> dict[str, Alert]:
    """The rules by the names of their alerts."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[Alert] = [rule for group in groups for rule in group["rules"]]
    found = {rule["alert"]: rule for rule in rules}
    assert len(found) == len(rules), "two alerts have one name"
    return found


def rule_tests() -> Iterator[dict[str, Any]]:
    """The tests of all files: input series, and what is expected when."""
    for path in RULE_TESTS:
        yield from yaml.safe_load(path.read_text())["tests"]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = ["promtool", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def exposed() -> dict[str, frozenset[str]]:
    """The names of the samples in /metrics of an agent and a controller: each with its labels."""
    found: dict[str, frozenset[str]] = {"up": frozenset()}
    for family in ProcessMetrics().registry.collect():  # the library's own
        found |= {sample.name: frozenset(sample.labels) for sample in family.samples}
    for one in TABLES:
        for row in one.declared().values():
            labels = frozenset(row.labels)
            if row.kind is Histogram:
                found[f"{row.name}_bucket"] = labels | {"le"}
                found[f"{row.name}_sum"] = found[f"{row.name}_count"] = labels
            else:
                found[row.name] = labels
    return found


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHERS = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
_LABEL_LISTS = re.compile(
    r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)", re.IGNORECASE
)
_WORD = re.compile(r"(?<![\w.])[a-zA-Z_:][\w:]*(?!\s*\()\b(?!\s*\()")
_KEYWORDS = frozenset({"and", "or", "unless", "offset", "bool", "inf", "nan"})


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics that a PromQL expression asks for."""
    bare = _LABEL_LISTS.sub(" ", _MATCHERS.sub(" ", _STRING.sub('""', expression)))
    return {word for word in _WORD.findall(bare) if word.lower() not in _KEYWORDS}


def labels_in(expression: str) -> set[str]:
    """The labels that it matches, groups or joins by."""
    bare = _STRING.sub('""', expression)
    found = set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", bare))
    for listed in _LABEL_LISTS.findall(bare):
        found |= {name.strip() for name in listed.split(",") if name.strip()}
    return found
