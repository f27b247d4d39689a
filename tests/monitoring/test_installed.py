"""What is installed for monitoring is what is proven here: rules, dashboard, and target labels."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.monitoring.support_life import AGENT, CONTROLLER
from tests.monitoring.support_rules import ALERTS, DASHBOARD, ROOT

MANIFESTS = ROOT / "deploy" / "monitoring.yaml"


def objects(kind: str) -> list[dict[str, Any]]:
    """The objects of a kind in the manifests."""
    return [one for one in yaml.safe_load_all(MANIFESTS.read_text()) if one["kind"] == kind]


def test_the_manifests_have_these_rules() -> None:
    (found,) = objects("PrometheusRule")
    assert found["spec"] == yaml.safe_load(ALERTS.read_text())


def test_the_manifests_have_this_dashboard() -> None:
    boards = [text for one in objects("ConfigMap") for text in one["data"].values()]
    assert [json.loads(text) for text in boards] == [json.loads(DASHBOARD.read_text())]


def test_the_monitors_give_the_labels_that_rules_and_panels_know() -> None:
    jobs: list[str] = []
    for monitor in objects("ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        rules = {rule["targetLabel"]: rule for rule in endpoint["relabelings"]}
        jobs.append(rules["job"]["replacement"])
        assert "sourceLabels" not in rules["job"], "whatever the release is called"
        assert rules["node"]["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
    assert sorted(jobs) == [AGENT, CONTROLLER]
