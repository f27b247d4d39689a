"""Every alert, by Prometheus's own promtool: that it fires when it should, and only then."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.monitoring.support_rules import (
    ALERTS,
    RULE_TESTS,
    RUNBOOKS,
    TARGET_LABELS,
    alerts,
    exposed,
    labels_in,
    metrics_in,
    promtool,
    rule_tests,
)

needs_promtool = pytest.mark.needs("prometheus")

_SERIES = re.compile(r"^(\w+)\{(.*)\}$")
_LABEL = re.compile(r'(\w+)="')
_SHOWN = re.compile(r"\$labels\.(\w+)")


@needs_promtool
def test_the_rules_are_valid() -> None:
    done = promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


@needs_promtool
@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_they_fire_when_they_should_and_only_then(path: Path) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested_firing_and_silent() -> None:
    fires: defaultdict[str, int] = defaultdict(int)
    silent: defaultdict[str, int] = defaultdict(int)
    for test in rule_tests():
        for one in test["alert_rule_test"]:
            (fires if one["exp_alerts"] else silent)[one["alertname"]] += 1
            for expected in one["exp_alerts"]:
                annotations = set(expected["exp_annotations"])
                assert annotations == {"summary", "description", "runbook"}, test["name"]
    assert set(fires) == set(silent) == set(alerts())


def test_each_alert_says_what_an_administrator_needs() -> None:
    for name, rule in alerts().items():
        assert name.startswith("LocalVolume"), name
        assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"}), name
        assert rule["for"], name
        notes = rule["annotations"]
        assert notes["runbook"] == f"docs/alerts.md#{name.lower()}", name
        assert len(notes["summary"]) < 120, name
        assert notes["description"].endswith("."), name


def test_rules_ask_only_for_metrics_and_labels_that_there_are() -> None:
    known = exposed()
    for name, rule in alerts().items():
        metrics = metrics_in(rule["expr"])
        assert metrics, name
        assert metrics <= set(known), name
        labels = set(TARGET_LABELS).union(*(known[metric] for metric in metrics))
        assert labels_in(rule["expr"]) <= labels, name
        shown = set(_SHOWN.findall(" ".join(rule["annotations"].values())))
        assert shown <= labels, name


def test_their_tests_use_only_series_that_there_can_be() -> None:
    known = exposed()
    for test in rule_tests():
        for series in test["input_series"]:
            found = _SERIES.match(series["series"])
            assert found, series
            metric, text = found.groups()
            labels = set(_LABEL.findall(text)) - TARGET_LABELS
            assert metric in known, series
            assert labels <= known[metric], series


def test_each_alert_has_its_runbook() -> None:
    text = RUNBOOKS.read_text()
    sections = re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == list(alerts()), "one heading each, in their order"
    for name, body in sections:
        severity = alerts()[name]["labels"]["severity"]
        assert body.strip().startswith(f"*{severity}*"), name
        for part in ("**Look at**", "**Do**", "**Do not**"):
            assert body.count(part) == 1, (name, part)


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        ("up == 0", {"up"}, set()),
        ('absent(up{job="a,b=c"})', {"up"}, {"job"}),
        ("sum by (job, node) (rate(a_total[5m])) / b", {"a_total", "b"}, {"job", "node"}),
        ("a offset 1h and on (job) b:c > 1e3", {"a", "b:c"}, {"job"}),
        ('a{x!="1", y=~"z{2}"} unless b', {"a", "b"}, {"x", "y"}),
    ],
)
def test_what_an_expression_asks_for(expression: str, metrics: set[str], labels: set[str]) -> None:
    assert metrics_in(expression) == metrics
    assert labels_in(expression) == labels
