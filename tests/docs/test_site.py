"""The site builds strictly, asks nothing of other hosts, and every link of it leads somewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from docsite.links import without_leaving
from docsite.lists import with_whole_lists
from docsite.tables import with_named_cells
from docsite.words import with_breaks
from tests.docs.support_site import DOCS, REPOSITORY, build, copy_sources

SOURCES = [
    REPOSITORY / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
NAMES = [path.relative_to(REPOSITORY).as_posix() for path in SOURCES]
ASSETS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}


class _Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                self.links.append(value)
            if (tag, name) in ASSETS and value:
                self.loads.append(value)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    # 404.html is for a server at its root.
    return {path: _Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_is_there(site: Path, pages: dict[Path, _Page]) -> None:
    expected = {
        path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")
    }
    expected = {re.sub(r"README\.html$", "index.html", name) for name in expected}
    built = {path.relative_to(site).as_posix() for path in pages}
    assert expected <= built


def test_every_decision_is_listed() -> None:
    listed = (DOCS / "decisions" / "README.md").read_text()
    records = [path.name for path in (DOCS / "decisions").glob("0*.md")]
    assert records
    assert not [name for name in records if f"]({name})" not in listed]


def test_every_link_of_the_site_leads_somewhere(pages: dict[Path, _Page]) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(address.partition("?")[0])).resolve()
            target = path if not address else target
            known = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(anchor) not in known:
                dead.append(f"{path.name}: {link}")
    assert not dead


def test_the_site_asks_nothing_of_other_hosts(site: Path, pages: dict[Path, _Page]) -> None:
    foreign = [load for page in pages.values() for load in page.loads if "//" in load]
    for sheet in site.rglob("*.css"):
        foreign += re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*", sheet.read_text())
    assert not foreign


# --- that strict means strict


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    copy_sources(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "added", "complaint"),
    [
        ("index.md", "[x](nowhere.md)", "nowhere.md"),
        ("index.md", "[x](../nowhere.md)", "nowhere.md"),
        ("index.md", "[x](concepts.md#nowhere)", "nowhere"),
        ("unlisted.md", "# A page", "unlisted.md"),
    ],
)
def test_what_is_wrong_fails_the_build(copy: Path, file: str, added: str, complaint: str) -> None:
    with (copy / "docs" / file).open("a") as page:
        page.write(f"\n{added}\n")
    done = build(copy, copy / "site")
    assert done.returncode != 0
    assert complaint in done.stdout


def test_only_what_exists_may_be_linked_outside_of_docs() -> None:
    text = "[a](../README.md#x) [b](../nowhere.md) [c](pools.md) [d](https://example.com/x)"
    left = "a [b](../nowhere.md) [c](pools.md) [d](https://example.com/x)"
    assert without_leaving(text, "index.md") == left


def test_every_item_of_a_list_is_in_a_list(site: Path) -> None:
    torn = {}
    for path in site.rglob("*.html"):
        for paragraph in re.findall(r"<p>(.*?)</p>", path.read_text(), flags=re.DOTALL):
            if re.search(r"^ *(?:[0-9]+\.|[-*]) ", paragraph, flags=re.MULTILINE):
                torn[path.relative_to(site).as_posix()] = paragraph
    assert not torn


def test_what_belongs_to_a_numbered_item_is_indented_as_the_site_asks() -> None:
    code = "```\n1. h\n   i\n```"
    text = f"1. a\n   b\n\n   ```sh\n   c\n   ```\n2. d\n10. d\n    e\nf\n   g\n{code}"
    wide = f"1. a\n    b\n\n    ```sh\n    c\n    ```\n\n2. d\n10. d\n    e\nf\n   g\n{code}"
    assert with_whole_lists(text) == wide


def test_a_flag_is_kept_whole_and_a_long_name_in_a_table_is_divided() -> None:
    name = "<code>app.kubernetes.io/partOfTheProvisioner</code>"
    divided = "app.kubernetes.io/<wbr>part<wbr>Of<wbr>The<wbr>Provisioner"
    cell = f"<td>{name} and <code>storageClassMap</code></td>"
    assert with_breaks(f"<p>{name}</p>") == f"<p>{name}</p>"
    assert with_breaks(cell) == cell.replace(name, f"<code>{divided}</code>")
    flags = "<code>why --node N <span>--x</span> a--b</code> --prose"
    whole = '<span class="flag">{}</span>'
    assert with_breaks(flags) == flags.replace("--node", whole.format("--node")).replace(
        ">--x<", f">{whole.format('--x')}<"
    )


def _table(*rows: str) -> str:
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def test_the_cells_of_a_wide_table_have_the_names_of_their_columns() -> None:
    narrow = _table("<th>a</th><th>b</th>", "<td>1</td><td>2</td>")
    wide = _table(
        '<th>a</th><th style="x"><code>"b"</code></th><th></th>',
        '<td>1</td><td style="x">2</td><td></td>',
        "<td>4</td><td>5</td><td>6</td>",
    )
    named = with_named_cells(f"{narrow} {wide}")
    assert named.startswith(f"{narrow} <table data-wide>")
    assert re.findall(r'<td data-column="(.*?)"', named) == 2 * ["a", "&quot;b&quot;", ""]
    assert re.sub(r' data-(wide|column="[^"]*")', "", named) == f"{narrow} {wide}"


_REACHES_OUT = re.compile(
    r"<script|<foreignObject|<image|\son\w+=|@import|href=[\"'](?!#)|url\((?!#)", re.IGNORECASE
)


def _faults_of_picture(text: str) -> list[str]:
    missing = [part for part in ("viewBox=", "<title") if part not in text]
    return missing + _REACHES_OUT.findall(text) + _too_small(text)


_PHONE_PIXELS = 358
"""How wide a picture is on a phone of 390 px."""


def _too_small(picture: str) -> list[str]:
    """The sizes of its letters that come out smaller than 11 px there."""
    width = re.search(r'viewBox="0 0 ([\d.]+) ', picture)
    scale = min(1.0, _PHONE_PIXELS / float(width[1])) if width else 1.0
    sizes = sorted({float(size) for size in re.findall(r'font-size[=:] ?"?([\d.]+)', picture)})
    return [f"font-size {size}" for size in sizes if size * scale < 11]


def test_pictures_say_what_they_are_and_take_nothing_from_elsewhere() -> None:
    found = {
        path.name: faults
        for path in sorted((DOCS / "pictures").glob("*.svg"))
        if (faults := _faults_of_picture(path.read_text()))
    }
    assert not found


@pytest.mark.parametrize(
    "part",
    [
        "<script>x()</script>",
        '<g onload="x()"/>',
        '<a href="https://example.com/"/>',
        '<use xlink:href="other.svg#a"/>',
        "<style>@import 'x.css';</style>",
        '<rect fill="url(https://example.com/#a)"/>',
        '<text font-size="10">x</text>',
    ],
)
def test_a_picture_that_reaches_out_is_found(part: str) -> None:
    good = '<svg viewBox="0 0 1 1"><title>x</title><path marker-end="url(#a)"/>{}</svg>'
    assert _faults_of_picture(good.format("")) == []
    assert len(_faults_of_picture(good.format(part))) == 1
    assert _faults_of_picture(good.replace("viewBox", "box").format("")) == ["viewBox="]


def test_letters_are_as_large_as_the_picture_is_wide() -> None:
    text = '<svg viewBox="0 0 {} 216"><text font-size="13">x</text><text font-size="30">y</text>'
    assert _too_small(text.format(820)) == ["font-size 13.0"]
    assert _too_small(text.format(420)) == []


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_what_shows_a_prompt_is_a_console(source: Path) -> None:
    """Its copy button leaves the prompts out."""
    fences = re.findall(r"^ *```(\S*)\n(.*?)^ *```", source.read_text(), re.DOTALL | re.MULTILINE)
    prompting = {name for name, text in fences if re.search(r"^ *\$ ", text, re.MULTILINE)}
    assert prompting <= {"console"}


# --- as they are read on the forge


def _links(path: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    yield from re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text)


def _anchors(path: Path) -> set[str]:
    """As forges make them of headings."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    found = {""}
    for heading in re.findall(r"^#+ +(.*?) *$", text, flags=re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_relative_link_leads_to_a_file_of_the_repository(name: str) -> None:
    path = REPOSITORY / name
    dead = []
    for link in _links(path):
        address, anchor = urldefrag(link)
        target = path if not address else (path.parent / unquote(address)).resolve()
        inside = target.exists() and target.is_relative_to(REPOSITORY)
        wanted = unquote(anchor) if target.suffix == ".md" else ""
        if not inside or (wanted and wanted not in _anchors(target)):
            dead.append(link)
    assert not dead


_OF_A_MACHINE = re.compile(
    r"(?<![\w.$}-])/(?:work|root|home|tmp|Users|private)/\S+"
    r"|\b(?:docker\.io|quay\.io|gcr\.io|ghcr\.io|registry\.k8s\.io)\b"
)


@pytest.mark.parametrize("name", NAMES)
def test_no_page_names_a_path_of_a_machine(name: str) -> None:
    assert not _OF_A_MACHINE.findall((REPOSITORY / name).read_text())


_BY_CONTENTS = re.compile(r"\b(?:UUID|LABEL)=|by-(?:uuid|label)\b|\bblkid -s UUID\b")
_BY_ID = re.compile(r"/dev/disk/by-id/([a-z]\S*)")
_OF_HARDWARE = ("wwn-", "nvme-", "ata-", "scsi-", "virtio-")
_SAYING = [
    *SOURCES,
    *(
        path
        for top in ("charts", "deploy", "src")
        for path in sorted((REPOSITORY / top).rglob("*"))
        if path.suffix in {".json", ".py", ".tpl", ".txt", ".yaml"}
    ),
]


def test_no_disk_is_named_by_what_a_tenant_can_write() -> None:
    """Who has a Block volume can write any filesystem's UUID or label onto it, and at the next boot
    theirs may be mounted in its place."""
    found = {}
    for path in _SAYING:
        text = path.read_text()
        links = [name for name in _BY_ID.findall(text) if not name.startswith(_OF_HARDWARE)]
        if names := [*_BY_CONTENTS.findall(text), *links]:
            found[path.relative_to(REPOSITORY).as_posix()] = names
    assert not found
