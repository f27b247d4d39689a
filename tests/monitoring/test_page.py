"""docs/monitoring.md: what it has Prometheus do keeps our pods, with the labels that rules ask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.support_life import AGENT, CONTROLLER
from tests.monitoring.support_prometheus import Prometheus
from tests.monitoring.support_rules import ALERTS, ROOT
from tests.suite.until import until

_CONFIGURATION = re.compile(r"```yaml\n# prometheus\.yml\n(.*?)```", re.DOTALL)
_LABEL = "__meta_kubernetes_pod_label_"
COMPONENT = _LABEL + "app_kubernetes_io_component"
NAMESPACE = "local-volume-provisioner"


def job_of_the_page() -> dict[str, Any]:
    (text,) = _CONFIGURATION.findall((ROOT / "docs" / "monitoring.md").read_text())
    configuration = yaml.safe_load(text)
    assert configuration["rule_files"] == [ALERTS.name]
    (job,) = configuration["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [
        {"role": "pod", "namespaces": {"names": [NAMESPACE]}}
    ]
    return dict(job)


def installed() -> Iterator[dict[str, str]]:
    """What Prometheus finds of each kind of pod of deploy/install.yaml, by port."""
    for one in yaml.safe_load_all((ROOT / "deploy" / "install.yaml").read_text()):
        if one["kind"] not in ("DaemonSet", "Deployment"):
            continue
        template = one["spec"]["template"]
        for container in template["spec"]["containers"]:
            for port in container["ports"]:
                yield discovered(port["name"], template["metadata"]["labels"])


def discovered(port: str, labels: dict[str, str]) -> dict[str, str]:
    """The labels of a pod's target, as Prometheus' discovery in Kubernetes names them."""
    return {
        "__meta_kubernetes_namespace": NAMESPACE,
        "__meta_kubernetes_pod_node_name": "worker-1",
        "__meta_kubernetes_pod_container_port_name": port,
        **{_LABEL + re.sub(r"\W", "_", name): value for name, value in labels.items()},
    }


@pytest.mark.needs("prometheus")
def test_it_keeps_our_pods_alone_with_the_labels_that_rules_and_panels_ask(tmp_path: Path) -> None:
    found = [*installed(), discovered("metrics", {"app.kubernetes.io/component": "database"})]
    # Nobody answers there: that they are asked, and under which labels, is what counts.
    targets = [
        {"targets": [f"127.0.0.1:{port}"], "labels": labels} for port, labels in enumerate(found, 1)
    ]
    job = {**job_of_the_page(), "static_configs": targets}
    with Prometheus(tmp_path / "prometheus", {}, ALERTS, jobs=[job]) as prometheus:
        asked = until(
            lambda: [labels for labels, _ in prometheus.now("up")],
            lambda asked: len(asked) == len(found) - 1,
        )
        (dropped,) = prometheus.ask("targets", state="dropped")["droppedTargets"]
    jobs = {"agent": AGENT, "controller": CONTROLLER}
    assert {labels["instance"]: labels["job"] for labels in asked} == {
        f"127.0.0.1:{port}": jobs[labels[COMPONENT]] for port, labels in enumerate(installed(), 1)
    }
    assert {(labels["node"], labels["namespace"]) for labels in asked} == {("worker-1", NAMESPACE)}
    assert dropped["discoveredLabels"][COMPONENT] == "database"
