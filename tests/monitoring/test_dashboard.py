"""Every panel's query, and the alerts, in a real Prometheus that scrapes real processes of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.controlplane import ControlPlane
from tests.monitoring.support_life import AGENT, CONTROLLER, Lives, lives_for, scraped
from tests.monitoring.support_prometheus import Prometheus
from tests.monitoring.support_rules import ALERTS, DASHBOARD, alerts, exposed, metrics_in

pytestmark = pytest.mark.needs("root", "loop", "ext4", "btrfs", "controlplane", "prometheus")

#: Panels whose trouble is not made here, and why. Their metrics are exposed all the same.
WITHOUT_DATA = {
    "Thin pools: data": "device mapper is needed, which only the guests of tests/kernel have",
    "Thin pools: metadata": "device mapper is needed, which only the guests of tests/kernel have",
}

#: Alerts whose trouble is made here, in this order.
FIRING = ("ReadOnly", "Held", "LimitEscaped", "NodesLost", "ConfigurationInvalid", "AgentDown")

Panel = dict[str, Any]


def panels() -> list[Panel]:
    return [one for one in json.loads(DASHBOARD.read_text())["panels"] if one["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """The title of each panel, and the expression of each of its queries, as it is written."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def filled_in(expression: str) -> str:
    """As Grafana asks it, with everything selected; without what stands in for no data."""
    expression = expression.removesuffix(" or vector(0)")
    # As long as all of it takes, as a loaded machine may miss some scrapes.
    expression = expression.replace("$__rate_interval", "5m")
    return re.sub(r"\$\{?(node|class|pool)\}?", ".*", expression)


@pytest.fixture(scope="module")
def prometheus(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Once everything that the dashboard shows has happened twice, and some trouble after it."""
    directory = tmp_path_factory.mktemp("monitoring")
    with pytest.MonkeyPatch.context() as patch, lives_for(control_plane, directory) as lives:
        patch.setattr("localvolume.cleaning.limits._FIRST_WAIT", 0.4)
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
    assert set(asked) == {"node", "class", "pool"}
    for name, query in asked.items():
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found, query
        values = prometheus.ever(f"count by ({found[2]}) ({found[1]})")
        assert [one for one in values if one.get(found[2])], name


def test_the_board_is_what_grafana_expects() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert board["uid"] == "local-volume-provisioner"
    assert board["schemaVersion"] >= 39
    assert board["templating"]["list"][0]["type"] == "datasource"
    everything = board["panels"]
    assert len({one["id"] for one in everything}) == len(everything)
    rows = [one["title"] for one in everything if one["type"] == "row"]
    assert rows == [
        "Overview",
        "Static volumes",
        "Cleaning",
        "Pools and room",
        "Dynamic volumes",
        "FlexVolume",
        "Controller",
        "Health",
        "Process",
    ]
    cells: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        covered = {
            (column, line)
            for column in range(at["x"], at["x"] + at["w"])
            for line in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not covered & cells, f"{panel['title']} lies over another panel"
        cells |= covered
    titles = [panel["title"] for panel in panels()]
    assert len(set(titles)) == len(titles)
    for panel in panels():
        assert panel["description"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_ask_only_for_metrics_that_there_are() -> None:
    known = {*exposed(), "ALERTS"}
    for title, expression in queries():
        metrics = metrics_in(filled_in(expression))
        assert metrics, title
        assert metrics <= known, title


def test_each_metric_of_ours_is_shown_or_alerted_on() -> None:
    """But for those that say in another way what is shown."""
    used: set[str] = set()
    for expression in [text for _, text in queries()] + [one["expr"] for one in alerts().values()]:
        used |= metrics_in(filled_in(expression))
    ours = {
        name
        for name in exposed()
        if name.startswith(("localvolume_", "local_volume_", "controller_"))
        and not name.endswith(("_sum", "_count"))
    }
    assert ours - used == {
        "localvolume_dynamic_looks_total",
        "localvolume_health_looks_total",
        "localvolume_purge_bytes",
    }


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
