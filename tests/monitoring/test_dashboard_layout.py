"""The dashboard as a reader meets it: health first, nothing on top of anything, any cluster."""

from __future__ import annotations

import itertools
import json
import re

from tests.monitoring.support_dashboard import Panel, panels, queries
from tests.monitoring.support_rules import DASHBOARD

ALL: list[Panel] = json.loads(DASHBOARD.read_text())["panels"]


def test_health_comes_first() -> None:
    rows = [panel["title"] for panel in ALL if panel["type"] == "row"]
    assert rows[:2] == ["Overview", "Health"]
    titles = [panel["title"] for panel in panels()]
    assert titles[:3] == ["Alerts firing", "Unhealthy", "Health unknown"]
    after_stats = next(panel for panel in panels() if panel["type"] != "stat")
    assert after_stats["title"] == "Nodes: health, and what is free"
    assert after_stats["gridPos"]["w"] == 24


def test_each_node_has_one_row_with_health_and_room() -> None:
    """Its queries are joined by the labels that all have, and each result is a named column."""
    (table,) = (panel for panel in panels() if panel["title"].startswith("Nodes:"))
    merge, organize = table["transformations"]
    assert merge["id"] == "merge"
    named = organize["options"]["renameByName"]
    ids = {f"Value #{target['refId']}" for target in table["targets"]}
    assert set(named) == {"cluster", "node", *ids}
    assert {"Agent", "Unhealthy", "Health unknown", "Pools, to promise"} <= set(named.values())
    for target in table["targets"]:
        assert re.match(r"(max|min|sum|count) by \(cluster, node\)", target["expr"]), target
    shown = {one["matcher"]["options"] for one in table["fieldConfig"]["overrides"]}
    assert shown <= set(named.values())


def test_nothing_lies_on_top_of_anything() -> None:
    assert len({panel["id"] for panel in ALL}) == len(ALL)
    cells: dict[tuple[int, int], str] = {}
    for panel in ALL:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for cell in itertools.product(
            range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        ):
            assert cell not in cells, (panel["title"], cells[cell])
            cells[cell] = panel["title"]
    assert [panel["gridPos"]["y"] for panel in ALL] == sorted(
        panel["gridPos"]["y"] for panel in ALL
    )


def test_every_query_is_of_the_clusters_that_are_chosen() -> None:
    """All is the default, and matches series without the label too."""
    listed = {one["name"]: one for one in json.loads(DASHBOARD.read_text())["templating"]["list"]}
    assert listed["cluster"]["allValue"] == ".*"
    assert listed["cluster"]["includeAll"] is True
    assert listed["cluster"]["current"]["value"] == ["$__all"]
    for title, expression in queries():
        for selector in re.findall(r"\{[^}]*\}", expression):
            assert 'cluster=~"$cluster"' in selector, title
    for name in ("node", "class", "pool"):
        assert 'cluster=~"$cluster"' in listed[name]["query"]["query"], name


def test_what_is_not_known_is_not_shown_as_zero() -> None:
    """A zero stands in only where an agent or the controller answers, and has nothing to say. Only
    Prometheus itself can say whether alerts fire."""
    for title, expression in queries():
        assert "vector(0)" not in expression or title == "Alerts firing", title
