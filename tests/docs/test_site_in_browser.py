"""The site in Chromium, on a desktop and on a phone, from a server and opened as files.

LOCALVOLUME_SCREENSHOTS says where its screenshots are kept, to be looked at.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import (
    Browser,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.docs.support_site import DOCS, REPOSITORY, copy_sources
from tests.suite import speed
from tests.suite.until import until

pytestmark = pytest.mark.needs("chromium")

DESKTOP: ViewportSize = {"width": 1400, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

SHOWN = {
    "alerts.html",
    "first-volume.html",
    "index.html",
    "migrate/topolvm.html",
    "reference/configuration.html",
    "reference/events.html",
    "seeing.html",
}

#: How long the browser may take for anything, in milliseconds.
_PATIENCE = 60_000 * speed.factor()

# What reaches out of the window, but for what scrolls inside itself.
_OUTSIDE = """() => {
    const scrolls = element => {
        for (let one = element; one && one !== document.body; one = one.parentElement)
            if (["auto", "scroll"].includes(getComputedStyle(one).overflowX)) return true;
        return false;
    };
    const found = [...document.querySelectorAll(".md-content *, .md-header *, .md-footer *")]
        .filter(one => one.checkVisibility()
            && one.getBoundingClientRect().right > innerWidth + 1 && !scrolls(one))
        .map(one => one.outerHTML.slice(0, 200));
    const { scrollWidth } = document.scrollingElement;
    if (scrollWidth > innerWidth) found.push(`the page: ${scrollWidth} px`);
    return found;
}"""
_TABLES_READY = """() => [...document.querySelectorAll(".md-typeset table:not([class])")]
    .every(table => table.closest(".md-typeset__scrollwrap"))"""
_TABLES_TOO_WIDE = """() => [...document.querySelectorAll(".md-typeset__scrollwrap")]
    .filter(wrap => wrap.scrollWidth > wrap.clientWidth)
    .map(wrap => wrap.innerText.slice(0, 100))"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """The address where a web server has the directory."""
    handler = functools.partial(_Quiet, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Where root runs the tests, it starts only without its sandbox.
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"], timeout=_PATIENCE
        )
        # A context's own does not count for what is expected: that would have five seconds.
        expect.set_options(timeout=_PATIENCE)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as address:
        yield address


@contextmanager
def visit(browser: Browser, allowed: str, size: ViewportSize, **options: Any) -> Iterator[Page]:
    """A new page of the browser, on which nothing goes wrong, and which asks `allowed` alone."""
    wrong: list[str] = []
    with browser.new_context(viewport=size, **options) as context:
        context.set_default_timeout(_PATIENCE)
        page = context.new_page()

        def asked(request: Request) -> None:
            if not request.url.startswith((allowed, "data:", "blob:")):
                wrong.append(f"{page.url}: asks for {request.url}")

        def answered(response: Response) -> None:
            if response.status >= 400:
                wrong.append(f"{page.url}: {response.status} for {response.url}")

        def failed(request: Request) -> None:
            # A page that is left while it still loads ends that itself.
            if request.failure != "net::ERR_ABORTED":
                wrong.append(f"{page.url}: {request.failure} for {request.url}")

        page.on("request", asked)
        page.on("response", answered)
        page.on("requestfailed", failed)
        page.on("console", lambda said: wrong.append(f"{page.url}: {said.text}"))
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        yield page
    assert wrong == []


def test_no_page_is_wider_than_its_window(
    browser: Browser, site: Path, address: str, tmp_path: Path
) -> None:
    shots = Path(os.environ.get("LOCALVOLUME_SCREENSHOTS", tmp_path))
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    found = {}
    assert {*names} >= SHOWN
    with visit(browser, address, DESKTOP) as page:
        for name in names:
            page.set_viewport_size(DESKTOP)
            page.goto(f"{address}/{name}")
            page.wait_for_function(_TABLES_READY)
            for size in (DESKTOP, PHONE):
                page.set_viewport_size(size)
                page.wait_for_function(f"() => innerWidth === {size['width']}")
                if wide := page.evaluate(_OUTSIDE) + page.evaluate(_TABLES_TOO_WIDE):
                    found[f"{name} at {size['width']}"] = wide
                if name in SHOWN:
                    shot = f"{name.replace('/', '-').removesuffix('.html')}-{size['width']}.png"
                    page.screenshot(path=shots / shot)
    assert found == {}


def test_what_is_too_wide_is_found(browser: Browser, address: str) -> None:
    with visit(browser, address, PHONE) as page:
        page.goto(f"{address}/index.html")
        page.wait_for_function(_TABLES_READY)
        assert page.evaluate(_OUTSIDE) == []
        wide = "const wide = document.createElement('p'); wide.style.width = '500px';"
        page.evaluate(f"() => {{ {wide} document.querySelector('article').append(wide); }}")
        assert page.evaluate(_OUTSIDE) != []


def test_a_phone_reads_a_wide_table_row_by_row(browser: Browser, address: str) -> None:
    with visit(browser, address, PHONE) as page:
        page.goto(f"{address}/reference/events.html")
        page.wait_for_function(_TABLES_READY)
        cells = page.locator("tbody tr", has_text="VolumeVanished").first.locator("td")
        tops = [cell.bounding_box() for cell in cells.all()]
        below = [box["y"] for box in tops if box is not None]
        assert len(below) == 5
        assert below == sorted({*below})
        expect(cells.nth(1)).to_have_attribute("data-column", "type")
        shown = "getComputedStyle(cell, '::before').content"
        assert cells.nth(1).evaluate(f"cell => {shown}") == '"type: "'


@pytest.mark.parametrize("opened", ["from a server", "as files"])
def test_search_finds_a_word_and_leads_to_its_page(
    browser: Browser, site: Path, address: str, opened: str
) -> None:
    root = address if opened == "from a server" else site.as_uri()
    with visit(browser, root, DESKTOP) as page:
        page.goto(f"{root}/migrate/topolvm.html")
        page.get_by_role("textbox", name="Search").press_sequentially("VolumeKeptFromClaim")
        page.locator(".md-search-result__link[href*='/reference/events.html']").first.click()
        expect(page.get_by_role("heading", name="Events", level=1)).to_be_visible()
        expect(page).to_have_url(re.compile(re.escape(f"{root}/reference/events.html")))


def test_a_console_is_copied_as_its_commands(browser: Browser, address: str) -> None:
    text = (DOCS / "install.md").read_text()
    consoles = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    commands = [
        "\n".join(line[2:] for line in console.splitlines() if line.startswith("$ "))
        for console in consoles
    ]
    assert any(len(lines.splitlines()) > 1 for lines in commands)
    assert any(console.count("\n") > console.count("$ ") for console in consoles)
    may = {"permissions": ["clipboard-read", "clipboard-write"]}
    with visit(browser, address, DESKTOP, **may) as page:
        page.goto(f"{address}/install.html")
        copied = []
        for block in page.locator(".language-console").all():
            # That something was copied may still be shown of the one before.
            page.evaluate("navigator.clipboard.writeText('')")
            block.hover()
            block.locator("button").click()
            expect(page.get_by_text("Copied to clipboard")).to_be_visible()
            copied.append(until(lambda: page.evaluate("navigator.clipboard.readText()")))
        assert copied == commands


def test_the_menu_of_a_phone_leads_to_every_part(browser: Browser, address: str) -> None:
    with visit(browser, address, PHONE) as page:
        page.goto(f"{address}/index.html")
        menu = page.get_by_role("navigation", name="Navigation")
        expect(menu).not_to_be_in_viewport()
        page.locator(".md-header label[for=__drawer]").click()
        expect(menu).to_be_in_viewport()
        menu.locator("label.md-nav__title", has_text="Start").click()
        menu.locator("label.md-nav__link", has_text="Reference").click()
        menu.get_by_role("link", name="Events").click()
        expect(page.get_by_role("heading", name="Events", level=1)).to_be_visible()


@pytest.mark.parametrize("first", ["light", "dark"])
def test_the_site_is_light_or_dark_as_its_reader(
    browser: Browser, address: str, first: Literal["light", "dark"]
) -> None:
    with visit(browser, address, DESKTOP, color_scheme=first) as page:
        page.goto(f"{address}/index.html")
        # Pictures go by it as well.
        expect(page.locator("body")).to_have_css("color-scheme", first)
        page.locator("label[for^=__palette]:visible").click()
        other = {"light": "dark", "dark": "light"}[first]
        expect(page.locator("body")).to_have_css("color-scheme", other)


@pytest.mark.needs("git", "make")
def test_readers_choose_between_versions(browser: Browser, tmp_path: Path) -> None:
    sources, published = tmp_path / "sources", tmp_path / "published"
    sources.mkdir()
    copy_sources(sources)
    shutil.copy(REPOSITORY / "Makefile", sources)
    (sources / "release").mkdir()
    shutil.copy(REPOSITORY / "release" / "site.py", sources / "release")
    _run("git", "init", "-q", str(sources))
    _run("git", "-C", str(sources), "commit", "-q", "--allow-empty", "-m", "A version")
    programs = Path(sys.executable).parent
    # The last is a fix of an older line.
    for version in ("1.0.0", "1.1.0", "1.0.1"):
        given = (f"VERSION={version}", f"BIN={programs}", "DEV=")
        _run("make", "-C", str(sources), "site-version", *given)
    _run("git", "clone", "-q", "-b", "gh-pages", str(sources), str(published))
    with served(published) as address, visit(browser, address, DESKTOP) as page:
        page.goto(f"{address}/index.html")
        page.wait_for_url("**/latest/")
        chosen = page.locator(".md-version__current")
        expect(chosen).to_have_text("1.1.0")
        chosen.focus()
        expect(page.locator(".md-version__link", has_text="1.0.1")).to_be_attached()
        page.locator(".md-version__link", has_text="1.0.0").click()
        expect(chosen).to_have_text("1.0.0")
        expect(page).to_have_url(re.compile(re.escape(f"{address}/1.0.0/")))


def _run(*argv: str) -> None:
    somebody = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "somebody"), ("EMAIL", "somebody@example.com"))
    }
    done = subprocess.run(
        argv,
        env=os.environ | somebody,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
