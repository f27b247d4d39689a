"""`localvolume ui` in a real browser: it follows the cluster, and never shows old as new."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import ViewportSize, expect

from tests.cli.support_page import DESKTOP, PATIENCE_MS, PHONE, browser, cluster, said, ui

pytestmark = pytest.mark.needs("chromium")


@pytest.mark.parametrize("window", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_the_page_has_the_figures_of_status_and_the_words_of_why(
    tmp_path: Path, window: ViewportSize
) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=3, volumes=8)
        made.annotate("local-pv-00004", health="ReadOnly: the filesystem is read-only")
        made.waiting_claim("orders", "no volume is large enough")
        asked = ("-o", "json", "--kubeconfig", str(kubeconfig))
        status = json.loads(await said("status", *asked))
        why_volume = json.loads(await said("why", "pv/local-pv-00004", *asked))
        why_claim = json.loads(await said("why", "pvc/orders", *asked))
        async with ui(kubeconfig) as address, browser(window) as seen:
            await seen.page.goto(address)
            await seen.page.wait_for_selector("#nodes tbody tr")
            assert await seen.tile("Volumes") == str(status["summary"]["volumeCount"])
            # A claim that waits for a minute becomes one, which may be over by now.
            problems = int(await seen.tile("Problems"))
            later = json.loads(await said("status", *asked))
            assert status["summary"]["problems"] <= problems <= later["summary"]["problems"]
            assert (await seen.text("#asof")).startswith("Live, as of")
            for about, why in (
                ("pv/local-pv-00004", why_volume),
                ("pvc/default/orders", why_claim),
            ):
                await seen.page.locator(f"[data-key='{about}']").first.click()
                verdict = seen.page.locator("#why .verdict")
                await expect(verdict).to_have_text(why["reason"], timeout=PATIENCE_MS)
                text = await seen.text("#why")
                assert why["next"] in text
                assert all(fact["value"] in text for fact in why["facts"])
                assert all(event["message"] in text for event in why["events"])
                await seen.page.keyboard.press("Escape")
            assert await seen.overhang() <= 0
            await seen.shot(f"ui-{window['width']}")
            assert seen.complaints == []
            origin = urlsplit(address)[:2]
            assert {urlsplit(one)[:2] for one in seen.requests} - {("data", "")} == {origin}
            # The token is exchanged for a cookie: it stays in no address.
            assert "token" not in seen.page.url


async def test_it_follows_the_cluster_and_keeps_the_place_of_the_keyboard(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=2, volumes=2)
        async with ui(kubeconfig) as address, browser() as seen:
            await seen.page.goto(address)
            await seen.page.wait_for_selector("#nodes tbody tr")
            await seen.page.locator("[data-key='worker-1']").focus()
            made.volume("late", "worker-0", gib=5)
            made.annotate("local-pv-00001", health="IOErrors: <b>three</b> in an hour")
            problems = seen.page.locator("#problems")
            await expect(problems).to_contain_text("<b>three</b>", timeout=PATIENCE_MS)
            assert await seen.tile("Volumes") == "5"
            focused = await seen.page.evaluate("document.activeElement.dataset.key")
            assert focused == "worker-1"
            made.annotate("local-pv-00001", health="")
            await expect(problems).to_contain_text("None", timeout=PATIENCE_MS)
            assert seen.complaints == []


async def test_while_the_api_server_is_away_the_picture_is_called_old(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as later:
        async with cluster(tmp_path) as (_, made, kubeconfig):
            made.fill(nodes=2, volumes=2)
            address = await later.enter_async_context(ui(kubeconfig))
            seen = await later.enter_async_context(browser())
            await seen.page.goto(address)
            await seen.page.wait_for_selector("#nodes tbody tr")
            assert not await seen.page.locator("#stale").is_visible()
        stale = seen.page.locator("#stale")
        await expect(stale).to_contain_text(
            "The API server could not be asked", timeout=PATIENCE_MS
        )
        time = (await seen.text("#asof")).removeprefix("Old, as of ")
        assert time in await seen.text("#stale")
        # What was seen stays, and what it was explained by.
        assert await seen.tile("Volumes") == "4"
        await seen.page.locator("[data-key='worker-1']").click()
        await seen.page.locator("#map").click()
        verdict = seen.page.locator("#why .verdict")
        await expect(verdict).not_to_have_text("…", timeout=PATIENCE_MS)
        await seen.shot("ui-old")
        assert (await seen.text("#asof")) == f"Old, as of {time}"


async def test_a_cluster_that_was_never_seen_is_no_empty_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, _made, kubeconfig):
        pass
    async with ui(kubeconfig) as address, browser() as seen:
        await seen.page.goto(address)
        await expect(seen.page.locator("#stale")).to_contain_text(
            "The API server could not be asked", timeout=PATIENCE_MS
        )
        assert not await seen.page.locator("main").is_visible()


async def test_when_it_has_ended_the_page_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, made, kubeconfig), browser() as seen:
        made.fill(nodes=1, volumes=1)
        async with ui(kubeconfig) as address:
            await seen.page.goto(address)
            await seen.page.wait_for_selector("#nodes tbody tr")
        await expect(seen.page.locator("#stale")).to_contain_text(
            "is it still running?", timeout=PATIENCE_MS
        )


async def test_the_address_can_be_clicked_in_a_page_of_another_site(tmp_path: Path) -> None:
    """As in a terminal within a browser: the redirect to the page is then one between sites."""
    async with cluster(tmp_path) as (_, made, kubeconfig):
        made.fill(nodes=1, volumes=1)
        async with ui(kubeconfig) as address, browser() as seen:
            await seen.page.goto(f"data:text/html,<a href='{address}'>here</a>")
            await seen.page.get_by_role("link").click()
            await seen.page.wait_for_selector("#nodes tbody tr")
