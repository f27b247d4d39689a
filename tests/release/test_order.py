"""What is released is one version, of a commit, with a section in the changelog, or nothing is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from image.application import ROOT
from image.running import BuildFailed
from release.order import CHART, agreement, notes, order, versions
from tests.decisions.support_git import committed
from tests.release.support_release import tree

LOG = """# Changelog

## [Unreleased]

- Later.

## [1.2.0] - 2026-11-28

### Added

- This.

## [1.1.0] - 2026-01-01

## [1.0.0]

- Without a day.

[1.2.0]: https://forge.example
"""
NAMES = ("registry.example/somebody", "https://forge.example/a/b", "https://builder.example")


def test_the_notes_are_the_versions_section() -> None:
    assert notes(LOG, "1.2.0") == "### Added\n\n- This.\n"


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("1.1.0", "says nothing of 1.1.0"),
        ("1.0.0", r"has no section `## \[1.0.0\] - YYYY-MM-DD`"),
        ("1.2.1", "has no section"),
        ("1x2.0", "has no section"),
        ("Unreleased", "has no section"),
    ],
)
def test_without_a_section_there_is_no_release(version: str, why: str) -> None:
    with pytest.raises(BuildFailed, match=why):
        notes(LOG, version)


def test_all_places_of_a_version_are_asked() -> None:
    said = versions(ROOT)
    assert set(said) == {"pyproject.toml", f"version of {CHART}", f"appVersion of {CHART}"}
    assert agreement(said) == said["pyproject.toml"]


@pytest.mark.parametrize("odd", ["1.2.0", "1.3.1"])
@pytest.mark.parametrize("place", ["a", "b"])
def test_places_that_disagree_are_told(place: str, odd: str) -> None:
    with pytest.raises(BuildFailed, match=f"not of one version:\n(.*\n)*.*{odd} by {place}"):
        agreement({"a": "1.3.0", "b": "1.3.0", "c": "1.3.0", place: odd})


@pytest.mark.parametrize("odd", ["1.2", "1.2.3rc1", "v1.2.3", ""])
def test_a_version_is_three_numbers(odd: str) -> None:
    with pytest.raises(BuildFailed, match="three numbers"):
        agreement({"a": odd})


@pytest.mark.needs("git")
def test_a_commit_is_released_and_nothing_else(tmp_path: Path) -> None:
    """With the time of the commit. What is not committed, and what names nobody, is refused."""
    place = tree(tmp_path / "tree")
    commit = committed(place)
    made = order(place, *NAMES)
    when = subprocess.check_output(
        ["git", "-C", place, "log", "--format=%ct", "-1"], text=True, timeout=60
    )
    assert (made.commit, made.epoch) == (commit, int(when))
    for number, odd in enumerate(
        ("registry.example", "https://forge.example/a/b/", "nobody"),
    ):
        names = [*NAMES]
        names[number] = odd
        with pytest.raises(BuildFailed, match=odd):
            order(place, *names)
    with pytest.raises(BuildFailed, match="ARTIFACTHUB"):
        order(place, *NAMES, artifacthub="mine")
    (place / "README.md").write_text("another")
    with pytest.raises(BuildFailed, match="uncommitted changes"):
        order(place, *NAMES)
    # Said before anything is built.
    (place / "CHANGELOG.md").write_text("## [Unreleased]\n")
    with pytest.raises(BuildFailed, match="has no section"):
        order(place, *NAMES)


@pytest.mark.needs("git")
def test_the_command_says_why_not_and_keeps_what_is_there(tmp_path: Path) -> None:
    output = tmp_path / "dist"
    output.mkdir()
    (output / "mine").write_text("kept")
    argv = [sys.executable, "-m", "release", "--output", str(output)]
    argv += [f"--{name}={value}" for name, value in zip(KEYS, NAMES, strict=True)]
    place = tree(tmp_path / "tree")
    committed(place)
    (place / "new").write_text("of no commit")
    # The copy has no tests, whose helm a release runs.
    (place / "tests").symlink_to(ROOT / "tests")
    done = subprocess.run(argv, cwd=place, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("release: ")
    assert "new" in done.stderr
    assert [path.name for path in output.iterdir()] == ["mine"]


KEYS = ("registry", "source", "builder")
