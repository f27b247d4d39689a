"""Alerts and dashboard lead to the pages of this documentation, where somebody serves them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.chart.support_helm import ROOT, one, render

pytestmark = pytest.mark.needs("go")

DOCS = ROOT / "docs"
URL = "https://docs.example.org/localvolume/0.1"
MONITORED = {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}


def rendered(**values: Any) -> tuple[dict[str, dict[str, str]], list[dict[str, Any]]]:
    """The annotations of each alert, and the links of the dashboard."""
    objects = render({**MONITORED, **values})
    groups = one(objects, "PrometheusRule")["spec"]["groups"]
    alerts = {rule["alert"]: rule["annotations"] for group in groups for rule in group["rules"]}
    (board,) = (each for each in objects if each["metadata"]["name"].endswith("-dashboard"))
    links: list[dict[str, Any]] = json.loads(board["data"]["local-volume-provisioner.json"])[
        "links"
    ]
    return alerts, links


@pytest.mark.parametrize("given", [URL, f"{URL}/"])
def test_each_alert_leads_to_its_section(given: str) -> None:
    alerts, links = rendered(docsUrl=given)
    # Of a heading of one word, the anchor is that word in small letters.
    headings = re.findall(r"^### (\w+)$", (DOCS / "alerts.md").read_text(), re.MULTILINE)
    anchors = {heading.lower() for heading in headings}
    assert alerts
    for name, notes in alerts.items():
        page, _, anchor = notes["runbook_url"].partition("#")
        assert page == f"{URL}/alerts.html", name
        assert anchor in anchors, name
        assert notes["runbook"] == f"docs/alerts.md#{anchor}"
    pages = [link["url"].removeprefix(f"{URL}/") for link in links]
    assert "alerts.html" in pages
    for page in pages:
        assert (DOCS / page).with_suffix(".md").exists(), page


def test_the_pages_are_called_so() -> None:
    """A site of directories would have `alerts/` in place of `alerts.html`."""
    options = (ROOT / "mkdocs.yml").read_text()
    assert yaml.safe_load(options.split("\nplugins:")[0])["use_directory_urls"] is False


def test_without_an_address_there_are_no_links() -> None:
    """A link that leads nowhere helps nobody at night."""
    alerts, links = rendered()
    assert links == []
    assert alerts
    assert not [name for name, notes in alerts.items() if "runbook_url" in notes]
