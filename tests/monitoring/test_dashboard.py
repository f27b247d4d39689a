"""Every panel's query, and the alerts, in a real Prometheus that scrapes real processes of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from localvolume_lab.controlplane import ControlPlane
from tests.monitoring.support_dashboard import filled_in, queries
from tests.monitoring.support_life import AGENT, CLUSTER, CONTROLLER, Lives, lives_for, scraped
from tests.monitoring.support_prometheus import Prometheus
from tests.monitoring.support_rules import ALERTS, DASHBOARD, alerts, metrics_in

pytestmark = pytest.mark.needs(
    "root", "loop", "ext4", "btrfs", "controlplane", "prometheus", "snapshots"
)

#: Panels whose trouble is not made here, and why. Their metrics are exposed all the same.
WITHOUT_DATA = {
    "Thin pools: data": "device mapper is needed, which only the guests of tests/kernel have",
    "Thin pools: metadata": "device mapper is needed, which only the guests of tests/kernel have",
    "Snapshots that failed": "no snapshot is asked for here",
}

#: Alerts whose trouble is made here, in this order.
FIRING = ("ReadOnly", "Held", "LimitEscaped", "NodesLost", "ConfigurationInvalid", "AgentDown")


@pytest.fixture(scope="module")
def prometheus(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Once everything that the dashboard shows has happened twice, and some trouble after it."""
    directory = tmp_path_factory.mktemp("monitoring")
    with lives_for(control_plane, directory) as lives:
        lives.static.hurry(first_wait=0.4)
        lives.begin()
        with Prometheus(directory / "prometheus", lives.targets(), _rules(directory)) as made:
            # A counter that begins with 1 shows no increase: the first round only makes it begin.
            for number in range(2):
                lives.round(number)
                scraped(made)
            with lives.at_work():
                scraped(made)
            _trouble(lives, made)
            yield made


def _rules(directory: Path) -> Path:
    """The rules as they are, and each once more, named ...AtOnce, which fires without delay."""
    rules = yaml.safe_load(ALERTS.read_text())
    for group in list(rules["groups"]):
        at_once = [
            {**rule, "alert": f"{rule['alert']}AtOnce", "for": "0s"} for rule in group["rules"]
        ]
        rules["groups"].append({"name": f"{group['name']}-at-once", "rules": at_once})
    path = directory / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    return path


def _trouble(lives: Lives, prometheus: Prometheus) -> None:
    lives.trouble()
    # An error in a filesystem tells of itself at the next look: there is one each minute.
    prometheus.until('localvolume_volume_unhealthy{reason="ReadOnly"} == 1', 150)
    for name in FIRING:
        if name == "AgentDown":
            lives.flex.stop()
        prometheus.until(f'ALERTS{{alertname="LocalVolume{name}AtOnce", alertstate="firing"}}')


# --- the dashboard -------------------------------------------------------------------------------


def test_each_panel_shows_data(prometheus: Prometheus) -> None:
    empty: dict[str, str] = {}
    for title, expression in queries():
        if not prometheus.ever(filled_in(expression)) and title not in WITHOUT_DATA:
            empty[title] = filled_in(expression)
    assert not empty, json.dumps(empty, indent=1)


def test_what_shows_trouble_only_asks_for_metrics_that_are_exposed(prometheus: Prometheus) -> None:
    assert set(WITHOUT_DATA) <= {title for title, _ in queries()}
    families = set(prometheus.ask("metadata"))
    # Of counters and histograms, the names of families are shorter than those of their samples.
    known = families | {f"{name}_{end}" for name in families for end in ("total", "bucket")}
    for title, expression in queries():
        if title in WITHOUT_DATA:
            assert metrics_in(filled_in(expression)) <= known, title


def test_the_variables_have_values(prometheus: Prometheus) -> None:
    listed = json.loads(DASHBOARD.read_text())["templating"]["list"]
    asked = {one["name"]: one["query"]["query"] for one in listed if one["type"] == "query"}
    assert set(asked) == {"cluster", "node", "class", "pool"}
    for name, query in asked.items():
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query.replace("$cluster", ".*"))
        assert found, query
        values = prometheus.ever(f"count by ({found[2]}) ({found[1]})")
        assert [one for one in values if one.get(found[2])], name


def test_a_cluster_is_chosen_where_there_are_several(prometheus: Prometheus) -> None:
    """All of them are shown by default, also those whose targets have no such label."""
    (served,) = (one for title, one in queries() if title == "Nodes served")
    assert prometheus.ever(f"{filled_in(served, CLUSTER)} == 1")
    assert not prometheus.ever(f"{filled_in(served, CLUSTER)} != 1")
    assert prometheus.ever(f"{filled_in(served)} == 4")
    assert not prometheus.ever(filled_in(served, "another"))


# --- the alerts ----------------------------------------------------------------------------------


def test_prometheus_runs_every_rule(prometheus: Prometheus) -> None:
    prometheus.until('count(ALERTS{alertname=~".*AtOnce"})')
    groups = prometheus.ask("rules", type="alert")["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(found) == {name for one in alerts() for name in (one, f"{one}AtOnce")}
    for name, rule in found.items():
        assert (name, rule["health"], rule.get("lastError", "")) == (name, "ok", "")


@pytest.mark.parametrize("name", FIRING)
def test_they_fire_of_real_trouble(prometheus: Prometheus, name: str) -> None:
    query = f'ALERTS{{alertname="LocalVolume{name}AtOnce", alertstate="firing"}}'
    found = prometheus.until(f"max_over_time({query}[10m])")
    job = CONTROLLER if name == "NodesLost" else AGENT
    assert {labels["job"] for labels, _ in found} == {job}
