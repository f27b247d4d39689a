"""Builds the documentation site for the tests."""

import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"


def build(root: Path, into: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` does in the tree at `root`, with what it said."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into)]
    return subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )


def copy_sources(into: Path) -> None:
    """All that the site is built from, to be changed."""
    for name in ("docs", "docsite"):
        shutil.copytree(REPOSITORY / name, into / name)
    (into / "mkdocs.yml").write_text((REPOSITORY / "mkdocs.yml").read_text())
    for name in ("charts", "README.md"):  # links that leave docs/ must have what they lead to
        if (REPOSITORY / name).exists():
            (into / name).symlink_to(REPOSITORY / name)
