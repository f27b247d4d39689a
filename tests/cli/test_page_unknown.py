"""The page in a real browser, of a cluster that could not be read whole: unknown, never none."""

from __future__ import annotations

from pathlib import Path

import pytest

from localvolume.cli.seeing.page.document import document
from localvolume.cli.seeing.page.model import page_data
from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.tables import print_status
from tests.cli.support_page import browser
from tests.decisions.support_seeing import NOW, claim, facts, node, volume

pytestmark = pytest.mark.needs("chromium")

FORBIDDEN = "forbidden (403)"
#: what could not be read, the element to look at, what it says, what it must not say
CASES = {
    "volumes": ("persistentvolumes", "#nodes [data-title=Volumes]", "?", "0"),
    "agents": ("pods", "#tiles div:has-text('Nodes')", "agents: not known", "0 agents"),
    "nodes": ("persistentvolumes pods csistoragecapacities", "#nodes", "Not known", "No node"),
    "events": ("events", "#claims [data-title='Last word']", "?", "nobody"),
    "health": ("events", "#tiles div:has-text('Volumes')", "others are not known", "all well"),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_could_not_be_read_is_shown_as_unknown(case: str, tmp_path: Path) -> None:
    what, where, said, lie = CASES[case]
    without = dict.fromkeys(what.split(), FORBIDDEN)
    found = facts(node(), volume(), claim(), without=without)
    file = tmp_path / "status.html"
    file.write_text(document(page_data(overview(found), {})))
    async with browser() as seen:
        await seen.page.goto(file.as_uri())
        shown = await seen.text(where)
        assert said in shown
        assert lie not in shown
        assert seen.complaints == []


def test_nodes_that_could_not_be_found_are_not_none(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ("persistentvolumes", "pods", "csistoragecapacities")
    found = facts(node(), without=dict.fromkeys(kinds, FORBIDDEN))
    print_status(overview(found), NOW, wide=False)
    assert "\nnodes: unknown\n" in capsys.readouterr().out
