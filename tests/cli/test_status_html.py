"""`localvolume status -o html` in a real browser: one file that shows all, and asks nobody."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, ViewportSize

from localvolume.cli.seeing.page.document import document
from localvolume.cli.seeing.page.model import page_data
from localvolume.cli.seeing.status.overview import overview
from tests.cli.support_page import DESKTOP, PHONE, Cluster, Seen, browser, cluster, said
from tests.decisions.support_seeing import agent, facts, node, volume
from tests.suite import speed

pytestmark = pytest.mark.needs("chromium")

ATTACKS = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<!--<script>\u2028window.hacked = 1\u2029//-->",
)
RIGHT_TO_LEFT = "\u202e"


async def file_of(kubeconfig: Path, directory: Path) -> Path:
    made = directory / "status.html"
    made.write_bytes(await said("status", "-o", "html", "--kubeconfig", str(kubeconfig)))
    return made


async def opened(seen: Seen, made: Path) -> None:
    await seen.page.goto(made.as_uri())
    await seen.page.wait_for_selector("#nodes tbody tr")


def small(made: Cluster) -> None:
    made.fill(nodes=3, volumes=8)
    made.annotate("local-pv-00004", health="ReadOnly: the filesystem is read-only")
    made.waiting_claim("orders", "no volume is large enough")


@pytest.mark.parametrize(
    ("window", "scheme"),
    [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")],
    ids=["desktop", "desktop-dark", "phone"],
)
async def test_the_file_shows_the_figures_of_the_json_and_asks_nobody(
    tmp_path: Path, window: ViewportSize, scheme: str
) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        small(made)
        status = json.loads(await said("status", "-o", "json", "--kubeconfig", str(kubeconfig)))
        file = await file_of(kubeconfig, tmp_path)
    async with browser(window, scheme) as seen:
        await opened(seen, file)
        assert await seen.tile("Volumes") == str(status["summary"]["volumeCount"]) == "24"
        assert await seen.tile("Nodes") == str(status["summary"]["nodes"]) == "3"
        assert await seen.tile("Waiting claims") == "1"
        assert await seen.tile("Problems") == str(status["summary"]["problems"])
        legend = " ".join((await seen.text("#legend")).split())
        for state, number in status["summary"]["volumes"].items():
            assert (f"{number} {state}" in legend) == bool(number)
        assert "24 volumes by node" in await seen.text("#where")
        assert await seen.overhang() <= 0
        await seen.shot(f"file-{window['width']}-{scheme}")
        # Without a server it still explains.
        await seen.page.get_by_role("button", name="pv/local-pv-00004").click()
        assert "it is not healthy" in await seen.text("#why .verdict")
        assert await seen.overhang() <= 0
        await seen.shot(f"why-{window['width']}-{scheme}")
        assert seen.complaints == []
        assert set(seen.requests) <= {file.as_uri(), "data:,"}


GIB = 2**30
POOLS = {
    "fast": {"totalBytes": 100 * GIB, "usedBytes": 37 * GIB},
    "lean": {"totalBytes": 100 * GIB, "usedBytes": 60 * GIB},
    "slow": 4000 * GIB,
    "tight": {"totalBytes": 20 * GIB, "usedBytes": 5 * GIB},
    "quick": {"totalBytes": 10 * GIB, "usedBytes": 99 * GIB},
}


def disk(name: str, verdict: str, reason: str, **more: Any) -> dict[str, Any]:
    path = f"/dev/disk/by-id/wwn-0x5002538e{name}"
    told = {"path": path, "device": f"/dev/{name}", "sizeBytes": 447 * GIB, "model": "SAMSUNG_MZ7"}
    return {**told, "serial": f"S45{name}", "verdict": verdict, "reason": reason, **more}


DISKS = {
    "disks": [
        disk("sdb", "format", "it is blank; the plan is not approved", **{"class": "fast"}),
        disk("sdc", "hold", "it holds LVM2_member", code="signature", **{"class": "fast"}),
        disk("sdd", "done", "it was formatted, and is mounted at /mnt/fast/sdd"),
        disk("sda", "skip", "ssds: it has 240Gi, less than 400Gi"),
    ],
    "more": 2,
}


async def parts_of(bar: Locator) -> dict[str | None, int]:
    """The parts that a bar shows, each with its hundredths of the bar's width."""
    widths = {
        await part.get_attribute("class"): box["width"]
        for part in await bar.locator("span").all()
        if (box := await part.bounding_box())
    }
    return {part: round(100 * width / sum(widths.values())) for part, width in widths.items()}


@pytest.mark.parametrize(
    ("window", "scheme"),
    [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")],
    ids=["desktop", "desktop-dark", "phone"],
)
async def test_pools_are_bars_and_raw_disks_are_there_with_what_is_planned(
    tmp_path: Path, window: ViewportSize, scheme: str
) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        small(made)
        made.tells("worker-0", pools=POOLS, disks=DISKS)
        # This volume is of 59 GiB.
        made.annotate("local-pv-00007", **{"localvolume.dev/pool": "fast/id-of-fast"})
        # Of 45 GiB: more than the pool has.
        made.annotate("local-pv-00005", **{"localvolume.dev/pool": "tight/id-of-tight"})
        made.tells("worker-1", disks={"disks": []})
        made.node_event("worker-2", "PoolWarning", "pool fast: its data is 81 % full", 600)
        file = await file_of(kubeconfig, tmp_path)
    async with browser(window, scheme) as seen:
        await opened(seen, file)
        pools = seen.page.locator("#nodes .pool")
        assert [" ".join((await one.inner_text()).split()) for one in await pools.all()] == [
            "fast: 1 volume 37Gi used, 59Gi promised, 63Gi free of 100Gi",
            "lean: 0 volumes 60Gi used, 0 promised, 40Gi free of 100Gi",
            "quick: 0 volumes, 0 promised of 10Gi",
            "slow: 0 volumes, 0 promised of 3.9Ti",
            "tight: 1 volume 5Gi used, 45Gi promised, 15Gi free of 20Gi",
        ]
        bars = pools.locator(".stack")
        # A bar without what is used would look like an empty pool.
        assert [await parts_of(bar) for bar in await bars.all()] == [
            {"bound": 37, "promised": 22, "free-room": 41},
            {"bound": 60, "free-room": 40},
            {"bound": 25, "promised": 75},
        ]
        rows = await seen.page.locator("#disks tbody tr").all()
        assert len(rows) == 4
        first = await rows[0].inner_text()
        for text in ("worker-0", "wwn-0x5002538esdb", "/dev/sdb", "447Gi", "fast", "↻ format"):
            assert text in first
        assert "it is blank; the plan is not approved" in first
        assert "! hold" in await rows[1].inner_text()
        assert "worker-0: 2 more" in await seen.text("#disks")
        nodes = await seen.text("#nodes")
        assert "6 raw disks" in nodes
        assert "0 raw disks" in nodes
        problem = seen.page.locator("#problems tbody tr", has_text="81 % full")
        # Ten minutes, or a few more where the machine is busy.
        assert re.search(r"\b[1-5][0-9]m ago", await problem.inner_text())
        assert await seen.overhang() <= 0
        await seen.page.locator("#nodes").scroll_into_view_if_needed()
        await seen.whole(f"pools-and-disks-{window['width']}-{scheme}")
        assert seen.complaints == []


async def test_if_no_agent_tells_of_raw_disks_they_are_not_known(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=2, volumes=1)
        file = await file_of(kubeconfig, tmp_path)
    async with browser() as seen:
        await opened(seen, file)
        assert "no agent reports any" in await seen.text("#disks")
        assert (await seen.text("#disks h2")).split() == ["Raw", "disks", "?"]


@pytest.mark.parametrize(
    "without", [("csistoragecapacities",), ("csistoragecapacities", "pods", "persistentvolumes")]
)
async def test_if_raw_disks_could_not_be_read_nobody_says_that_there_are_none(
    tmp_path: Path, without: tuple[str, ...]
) -> None:
    known = facts(node(), agent(), volume(), without=dict.fromkeys(without, "forbidden"))
    file = tmp_path / "status.html"
    file.write_text(document(page_data(overview(known), {})))
    async with browser() as seen:
        await seen.page.goto(file.as_uri())
        await seen.page.wait_for_selector("#disks h2")
        shown = " ".join((await seen.text("#disks")).split())
        assert shown == "Raw disks ? Not known: it could not be read."
        assert seen.complaints == []


async def test_an_agent_that_was_taken_over_changes_nothing_but_its_own_rows(
    tmp_path: Path,
) -> None:
    """What it writes is shown as text, cut, or not at all."""
    lie = disk("sdb", "format", ATTACKS[0], model=RIGHT_TO_LEFT + ATTACKS[1], serial="s" * 1500)
    huge = {"disks": [lie, {**lie, "verdict": "wiped"}, *[lie] * 100], "more": 10**300}
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=2, volumes=1)
        made.tells("worker-0", pools={ATTACKS[0]: 5, "x": 10**400}, disks=huge)
        made.tells("worker-1", pools="[" * 90_000, disks=DISKS)
        made.node("worker-2")
        made.tells("worker-2", disks='{"disks": 7}')
        file = await file_of(kubeconfig, tmp_path)
        for form in ("json", "yaml", "wide"):
            assert await said("status", "-o", form, "--kubeconfig", str(kubeconfig))
    async with browser(PHONE) as seen:
        await opened(seen, file)
        shown = await seen.text("body")
        assert ATTACKS[0] in shown
        assert RIGHT_TO_LEFT not in shown
        assert "wiped" not in shown
        assert "worker-0: 39 more, worker-1: 2 more" in shown
        assert "it holds LVM2_member" not in shown  # Beyond the first 50 rows.
        await seen.page.locator("#disks button.more").click()
        assert "it holds LVM2_member" in await seen.text("#disks")
        assert await seen.page.evaluate("window.hacked") is None
        assert await seen.overhang() <= 0
        assert seen.complaints == []


async def test_without_the_picture_there_is_a_table_and_without_a_mouse_the_keys(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        small(made)
        file = await file_of(kubeconfig, tmp_path)
    async with browser() as seen:
        await opened(seen, file)
        await seen.page.focus("#map")
        await seen.page.keyboard.press("ArrowRight")
        told = await seen.text("#pointed")
        assert told.startswith("local-pv-")
        await seen.page.keyboard.press("Enter")
        assert await seen.text("#why-title") == f"pv/{told.split(',')[0]}"
        await seen.page.keyboard.press("Escape")
        assert not await seen.page.locator("#why").is_visible()
        await seen.page.get_by_role("button", name="Table").click()
        assert await seen.page.locator("#table tbody tr").count() == 24
        await seen.page.select_option("#state", "unhealthy")
        assert await seen.page.locator("#table tbody tr").count() == 1
        assert "▲ unhealthy" in await seen.text("#table tbody")
        await seen.page.select_option("#state", "")
        await seen.page.fill("#search", "shop/db-7")
        assert "local-pv-00007" in await seen.text("#table tbody")
        assert await seen.page.locator("#table tbody tr").count() == 1


async def test_what_tenants_write_is_shown_and_never_run(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=1, volumes=len(ATTACKS) + 1)
        for number, text in enumerate(ATTACKS):
            made.waiting_claim(f"claim-{number}", f"{RIGHT_TO_LEFT}{text}")
            made.annotate(f"local-pv-0000{number}", health=text)
        made.annotate(f"local-pv-0000{len(ATTACKS)}", health="long " * 50_000)
        file = await file_of(kubeconfig, tmp_path)
    async with browser(PHONE) as seen:
        await opened(seen, file)
        shown = await seen.text("body")
        assert ATTACKS[0] in shown
        assert ATTACKS[1] in shown
        assert "<!--<script>\\u2028window.hacked = 1\\u2029//-->" in shown
        assert RIGHT_TO_LEFT not in shown
        assert re.search(r"… \(2500\d\d characters\)", shown)
        for number in range(len(ATTACKS) + 1):
            await seen.page.locator(f"[data-key='pv/local-pv-0000{number}']").first.click()
            assert "it is not healthy" in await seen.text("#why .verdict")
            await seen.page.keyboard.press("Escape")
        assert await seen.page.evaluate("window.hacked") is None
        assert await seen.page.locator("img").count() == 0
        assert await seen.overhang() <= 0
        assert seen.complaints == []


async def test_ten_thousand_volumes_are_drawn_and_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=1000, volumes=10)
        made.annotate("local-pv-05000", health="ReadOnly: the filesystem is read-only")
        file = await file_of(kubeconfig, tmp_path)
    async with browser() as seen:
        began = time.monotonic()
        await opened(seen, file)
        took = time.monotonic() - began
        assert await seen.tile("Volumes") == "10000"
        assert "10000 volumes by node" in await seen.text("#where")
        await seen.shot("file-1000-nodes")
        # Some second and a half alone; a page of 10,000 elements takes many times as long.
        assert took < 30 * speed.factor()
        await seen.page.fill("#search", "local-pv-05000")
        assert "1 volume by node" in await seen.text("#where")
        await seen.page.locator("#map").click()
        assert await seen.text("#why-title") == "pv/local-pv-05000"
        await seen.page.keyboard.press("Escape")
        await seen.page.fill("#search", "")
        # A volume is too small to be hit among so many: its node comes first.
        await seen.page.locator("#map").click(position={"x": 300, "y": 200})
        assert "10 volumes" in await seen.text("#where")
        await seen.page.locator("#map").click(position={"x": 300, "y": 200})
        await seen.page.wait_for_selector("#why .verdict:not(.quiet)")
        await seen.page.keyboard.press("Escape")
        await seen.page.click("#all-nodes")
        assert "10000 volumes by node" in await seen.text("#where")
        assert seen.complaints == []
