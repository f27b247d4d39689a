"""Of what an image is said to be made: of a commit, and of nothing that is not in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from image import base, bill, pins, provenance
from image.build import Built
from image.pins import Package
from image.running import BuildFailed
from tests.decisions.support_git import committed

DASH = Package("dash", "0.5.12-2", "a" * 64)
PACKAGE = {
    "Package": DASH.name,
    "Version": DASH.version,
    "Architecture": "amd64",
    "SHA256": DASH.sha256,
}
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What provenance looks at of a tree of ours."""
    tree = tmp_path / "tree"
    for name in ("requirements/runtime.txt", "src/localvolume/__init__.py", "docs/a.md"):
        (tree / name).parent.mkdir(parents=True)
        (tree / name).touch()
    (tree / ".gitignore").write_text("build/\n__pycache__/\n")
    (tree / "image").mkdir()
    (tree / "image" / base.record_file().name).write_text(pins.written([DASH]))
    return tree


@pytest.fixture
def built(tmp_path: Path) -> Built:
    """An archive and a bill, as far as provenance looks at them."""
    archive, beside = tmp_path / "x.tar", tmp_path / "x.cdx.json"
    archive.touch()
    components = [*bill.of_debian([PACKAGE]), *bill.of_go("client", "1", "1.24")]
    beside.write_text(bill.written("x", "1", f"sha256:{'1' * 64}", components))
    return Built(archive, "x:1", f"sha256:{'1' * 64}", beside)


def statement(built: Built, tree: Path, commit: str = "c" * 40) -> bytes:
    return provenance.statement(
        provenance.subjects(built),
        provenance.dependencies(tree, commit, built.bill),
        provenance.named("https://builder.example/one"),
        allow_newest=False,
    )


def test_a_statement(built: Built, tree: Path) -> None:
    """Word for word, as the two specifications have it, and the same each time."""
    record = tree / "image" / base.record_file().name
    said = statement(built, tree)
    assert said == statement(built, tree)
    assert json.loads(said) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": "x.tar", "digest": {"sha256": EMPTY}},
            described(built.bill, "x.cdx.json"),
            {"name": "x:1", "digest": {"sha256": "1" * 64}},
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://localvolume.dev/image/v1",
                "externalParameters": {"allowNewest": False},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": "c" * 40}},
                    {"name": "requirements/runtime.txt", "digest": {"sha256": EMPTY}},
                    described(record, f"image/{record.name}"),
                ],
            },
            "runDetails": {"builder": {"id": "https://builder.example/one"}},
        },
    }


def described(file: Path, name: str) -> dict[str, object]:
    return {"name": name, "digest": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}}


@pytest.mark.parametrize(
    "recorded",
    [
        [Package("dash", "0.5.12-1", "a" * 64)],
        [Package("dash", "0.5.12-2", "b" * 64)],
        [DASH, Package("perl", "5", "a" * 64)],
    ],
    ids=["another version", "another archive", "one more"],
)
def test_packages_that_are_not_as_recorded_are_named(
    built: Built, tree: Path, recorded: list[Package]
) -> None:
    """The record would tell of others than the image has."""
    (tree / "image" / base.record_file().name).write_text(pins.written(recorded))
    _, dash = bill.of_debian([PACKAGE])
    assert provenance.dependencies(tree, "c" * 40, built.bill)[2:] == [
        provenance.Descriptor(uri=dash["purl"], digest={"sha256": DASH.sha256})
    ]


@pytest.mark.parametrize("text", ["", "me", "https:", "https://a b", "https://a\n", "//a/b", "1:a"])
def test_who_builds_is_named_by_a_uri(text: str) -> None:
    with pytest.raises(BuildFailed, match="named by a URI"):
        provenance.named(text)
    assert provenance.named("urn:a:b").id == "urn:a:b"


@pytest.mark.needs("git")
def test_a_tree_as_it_was_committed(tree: Path) -> None:
    """What git ignores, and no image has, may be there."""
    commit = committed(tree)
    assert len(commit) == 40
    for ignored in ("build/x", "src/localvolume/__pycache__/x.pyc"):
        (tree / ignored).parent.mkdir()
        (tree / ignored).touch()
    assert provenance.commit(tree) == commit


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("docs/a.md", " M docs/a.md"),
        ("new.py", "?? new.py"),
        ("src/localvolume/new/a.py", "?? src/localvolume/new/a.py"),
        ("src/localvolume/build/x.py", "!! src/localvolume/build/"),
        ("src/localvolume/ü/build/x.py", "!! src/localvolume/ü/build/"),
    ],
)
def test_a_tree_with_what_is_in_no_commit(tree: Path, name: str, told: str) -> None:
    """Also what git ignores where the image takes all there is."""
    committed(tree)
    (tree / name).parent.mkdir(exist_ok=True, parents=True)
    (tree / name).write_text("changed")
    with pytest.raises(BuildFailed, match=r"nothing is signed.* uncommitted changes") as refused:
        provenance.commit(tree)
    assert str(refused.value).splitlines()[1:] == [told]


@pytest.mark.needs("git")
def test_a_tree_that_is_no_checkout(tree: Path) -> None:
    """Nor is one within a repository that knows nothing of it."""
    with pytest.raises(BuildFailed, match=r"nothing is signed(?s:.*)not a git repository"):
        provenance.commit(tree)
    (tree.parent / ".gitignore").write_text("tree/\n")
    committed(tree.parent)
    with pytest.raises(BuildFailed, match=r"nothing is signed.* within another repository"):
        provenance.commit(tree)
