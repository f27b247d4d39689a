"""No program of ours makes, changes or removes a volume group, or a disk of one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"

_NEVER = re.compile(
    r"(pv(create|remove|change|move|resize)|vg(create|remove|reduce|extend|rename))"
)


def test_groups_and_disks_are_never_made_or_removed() -> None:
    """W-36: Azure's driver ran pvremove on every disk of the host.

    Which disks a group has is for those to say who run the node: no program of ours ever runs a
    command that makes, changes or removes a physical volume or a volume group.
    """
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            said = node.value if isinstance(node, ast.Constant) else None
            if isinstance(said, str) and _NEVER.fullmatch(said):
                found.append(f"{path.relative_to(SOURCES)}: {said}")
    assert found == []
