"""The dashboard in Grafana's own words: its typed schema knows every key, and keeps every value.

Grafana itself cannot be had here: it is in no package registry. What its SDK, made from its schema,
reads from the file and writes again must be the file.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.monitoring.support_rules import DASHBOARD

#: Grafana's editor writes it beside `query`; its schema has left it out.
UNKNOWN_TO_THE_SCHEMA = "definition"


@pytest.fixture(scope="module", autouse=True)
def _kinds_of_panels() -> None:
    register_default_plugins()


def written() -> Any:
    return json.loads(DASHBOARD.read_text())


def lost(board: Any) -> list[str]:
    """Where Grafana's schema does not keep what the dashboard says."""
    kept = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    return list(_differences(board, kept, ""))


def _differences(ours: Any, kept: Any, at: str) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(kept, dict):
        for key, value in ours.items():
            if key not in kept:
                if key != UNKNOWN_TO_THE_SCHEMA:
                    yield f"{at}.{key}"
            else:
                yield from _differences(value, kept[key], f"{at}.{key}")
    elif isinstance(ours, list) and isinstance(kept, list) and len(ours) == len(kept):
        for number, (one, other) in enumerate(zip(ours, kept, strict=True)):
            yield from _differences(one, other, f"{at}[{number}]")
    elif ours != kept:
        yield at


def test_grafana_knows_all_that_the_dashboard_says() -> None:
    assert lost(written()) == []


@pytest.mark.parametrize("kind", ["stat", "table", "timeseries"])
def test_what_grafana_does_not_know_is_found(kind: str) -> None:
    """In a panel, in its fields and in its options."""
    board = copy.deepcopy(written())
    at = next(n for n, panel in enumerate(board["panels"]) if panel["type"] == kind)
    panel = board["panels"][at]
    panel["tittle"] = "x"
    panel["fieldConfig"]["defaults"]["units"] = "bytes"
    panel["options"]["showHeaders"] = True
    panel["targets"][0]["expression"] = "up"
    expected = (
        "tittle",
        "fieldConfig.defaults.units",
        "options.showHeaders",
        "targets[0].expression",
    )
    assert sorted(lost(board)) == sorted(f".panels[{at}].{one}" for one in expected)
