"""The dashboard's file: a board as Grafana expects it, which asks for metrics that there are."""

import json

from tests.monitoring.support_dashboard import filled_in, panels, queries
from tests.monitoring.support_rules import DASHBOARD, alerts, exposed, metrics_in


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
        "Health",
        "Static volumes",
        "Cleaning",
        "Pools and room",
        "Dynamic volumes",
        "CSI",
        "FlexVolume",
        "Controller",
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
    """But for those that say in another way what is shown, and that of disks, which only Events
    and `localvolume plan` show."""
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
        "localvolume_disks",
        "localvolume_dynamic_looks_total",
        "localvolume_health_looks_total",
        "localvolume_purge_bytes",
    }
