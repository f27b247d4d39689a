"""What a node's agent tells of its raw disks, read with suspicion: pure.

An agent can be taken over. Then it may write anything about its own node, and nothing about others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from localvolume.cli.seeing.facts import Facts
from localvolume.disks.model import Verdict
from localvolume.disks.plan.told import MOST
from localvolume.volumes import marks

_TEXTS: Final = ("device", "model", "serial", "wwn", "transport", "class", "code", "reason", "plan")
_LONGEST: Final = 500
_VERDICTS: Final[frozenset[str]] = frozenset(get_args(Verdict))


class Told(NamedTuple):
    """The disks, and how many more there are; None if no agent tells of that node's."""

    disks: list[dict[str, Any]] | None = None
    more: int | None = None


def disks_of(facts: Facts, node: str) -> Told:
    """If there are several notes, the first valid one counts."""
    for thing in facts.disks_by_node.get(marks.node_key(node), ()):
        told = told_in(thing.metadata.annotations.get(marks.DISKS_ANNOTATION, ""))
        if told.disks is not None:
            return told
    return Told()


def told_in(note: str) -> Told:
    """What an annotation tells; nothing if it is no such note. Disks that it does not describe as
    an agent would are left out, and counted."""
    try:
        told = json.loads(note)
    except (ValueError, RecursionError):
        return Told()
    disks = told.get("disks") if isinstance(told, dict) else None
    if not isinstance(disks, list):
        return Told()
    read = [disk for one in disks[:MOST] if (disk := _read(one)) is not None]
    more = _count(told.get("more")) or 0
    return Told(read, more + len(disks) - len(read))


def _read(told: Any) -> dict[str, Any] | None:
    if not isinstance(told, Mapping):
        return None
    path, verdict = _text(told.get("path")), told.get("verdict")
    if not path or not isinstance(verdict, str) or verdict not in _VERDICTS:
        return None
    approved = told.get("approved")
    texts = {key: _text(told.get(key)) for key in _TEXTS}
    return {
        "path": path,
        "capacityBytes": _count(told.get("sizeBytes")),
        "verdict": verdict,
        "approved": approved if isinstance(approved, bool) else None,
        **texts,
    }


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None
