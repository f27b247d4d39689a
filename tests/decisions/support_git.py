"""A repository of git's, for what is asked of one."""

from __future__ import annotations

import subprocess
from pathlib import Path

_WHO = (
    *("-c", "user.name=somebody", "-c", "user.email=somebody@example.org"),
    *("-c", "commit.gpgsign=false"),
)


def committed(tree: Path) -> str:
    """All that is in `tree` as a commit of a repository there; returns which."""
    for words in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["commit", "--quiet", "--message=it"],
        ["rev-parse", "HEAD"],
    ):
        argv = ["git", *_WHO, "-C", str(tree), *words]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()
