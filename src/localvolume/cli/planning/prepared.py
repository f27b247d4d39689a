"""The rows of `localvolume plan` for prepared volumes: the role's plan, in words.

Nothing is decided here: see ``static.plan``.
"""

from __future__ import annotations

from typing import Any, Final

from localvolume.static.model import Action, Clean, Facts, Hold, Keep, Publish
from localvolume.static.plan.offer import offer
from localvolume.static.plan.plan import plan

VERDICTS: Final = {
    "Publish": "publish",
    "CleanFirst": "clean first",
    "Ask": "ask",
    "Adopt": "adopt",
    "MarkClaimed": "mark",
    "KeepRecord": "record",
    "Withdraw": "withdraw",
    "Reclaim": "delete, then clean",
    "Clean": "clean",
    "StopJob": "stop the Job",
    "LetGo": "let go",
    "Hold": "hold",
    "Keep": "keep",
}


def described(facts: Facts) -> list[dict[str, Any]]:
    """One row per action, and one per class that cannot be listed."""
    rows = [
        {"class": name, "path": class_facts.config.host_dir, "verdict": "hold"}
        | {"reason": class_facts.problem}
        for name, class_facts in facts.classes.items()
        if class_facts.problem
    ]
    return rows + [_row(action, facts) for action in plan(facts)]


def _row(action: Action, facts: Facts) -> dict[str, Any]:
    volume = getattr(action, "volume", None)
    entry = getattr(action, "entry", None)
    row: dict[str, Any] = {
        "class": volume.spec.storage_class_name if volume else entry.class_name if entry else "",
        "path": action.key,
        "verdict": VERDICTS[type(action).__name__],
        "reason": action.reason,
    }
    if isinstance(action, Hold):
        row["code"] = action.code
    if isinstance(action, Keep) and entry is not None and entry.excluded:
        row["verdict"] = "skip"
    if isinstance(action, Clean) and action.by_job:
        row["verdict"] = "clean by a Job"
    name = getattr(action, "name", "") or (volume.metadata.name if volume else "")
    if name:
        row["persistentVolume"] = name
    if entry is not None and entry.kind != "none":
        row |= {
            "kind": entry.kind,
            "capacityBytes": entry.size_bytes,
            "identity": dict(entry.identity),
        }
    if isinstance(action, Publish):
        class_facts = facts.classes[action.entry.class_name]
        row["manifest"] = offer(action.name, action.entry, class_facts, facts.node, facts.options)
    return row
