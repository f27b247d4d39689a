"""Advice that fits the fault: room is named where it is room that is missing, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docsite.events import EVENTS
from localvolume.cli import seeing
from localvolume.cli.seeing.why.claim import why_claim
from tests.decisions.support_seeing import DYNAMIC, ago, claim, facts, klass, node, room
from tests.suite.names import HOSTNAME, PROVISIONER

OF_ROOM = re.compile(r"\broom\b|ask for less")
MADE = klass("made", DYNAMIC, volumeBindingMode="Immediate")
ELSEWHERE = [{"matchLabelExpressions": [{"key": HOSTNAME, "values": ["n9"]}]}]
SHUT = node(taints=["node.kubernetes.io/not-ready"])

#: why no node takes a claim for 50Gi, what there is, the code
NOWHERE: list[tuple[str, list[Any], str]] = [
    ("too small a pool", [MADE, room("made", "10Gi")], "no-room"),
    ("a full pool", [MADE, room("made", "0")], "no-room"),
    (
        "a full pool beside a node that is not ready",
        [MADE, SHUT, room("made", "90Gi"), node("n2"), room("made", "10Gi", "n2")],
        "no-room",
    ),
    ("no pool", [MADE], "no-pool"),
    ("a pool of another class", [MADE, room("other", "90Gi")], "no-pool"),
    ("a node that is not ready", [MADE, SHUT, room("made", "10Gi")], "no-node"),
    (
        "a class for other nodes",
        [
            klass("made", DYNAMIC, volumeBindingMode="Immediate", allowedTopologies=ELSEWHERE),
            room("made", "10Gi"),
        ],
        "no-node",
    ),
]


@pytest.mark.parametrize(
    ("things", "code"), [one[1:] for one in NOWHERE], ids=[n[0] for n in NOWHERE]
)
def test_room_is_named_where_no_node_has_it(things: list[Any], code: str) -> None:
    it = claim(cls="made", size="50Gi", annotations={PROVISIONER: DYNAMIC})
    verdict = why_claim(facts(it, *things), it).verdict
    assert verdict.code == code
    assert bool(OF_ROOM.search(verdict.who)) is (code == "no-room")


def test_a_claim_that_was_given_back_lacks_what_the_node_said() -> None:
    notes = {PROVISIONER: DYNAMIC, "localvolume.dev/not-here": f"n1 {ago(10)}"}
    it = claim(cls="made", annotations=notes)
    verdict = why_claim(facts(it, MADE, room("made", "90Gi")), it).verdict
    assert verdict.code == "no-node"
    assert not OF_ROOM.search(verdict.who)


def test_no_other_verdict_speaks_of_room() -> None:
    """Over all that `why` can answer, as it is written: who must act, by the verdict's code."""
    advice = list(written_advice())
    codes = {code for code, _ in advice}
    assert {"no-room", "no-pool", "no-node", "failing", "cannot-grow", "no-fit"} <= codes
    assert {code for code, who in advice if OF_ROOM.search(who)} == {"no-room"}


def test_events_speak_of_room_only_where_it_may_be_missing() -> None:
    speaking = {name: one.todo for name, one in EVENTS.items() if "room" in one.todo}
    assert speaking.keys() == {"ProvisioningFailed", "VolumeResizeFailed"}
    for text in speaking.values():
        assert re.search("only if room is what is missing, make room", text, re.IGNORECASE)


def written_advice() -> Iterator[tuple[str, str]]:
    """Each Verdict in the sources: its code, and the words of `who`, given there or before."""
    for path in sorted(Path(seeing.__file__).parent.rglob("*.py")):
        for block in blocks(ast.parse(path.read_text())):
            said = {"who": ""}
            for statement in block:
                if isinstance(statement, ast.Assign | ast.AugAssign):
                    said |= dict.fromkeys(names_of(statement), words(statement.value))
                if isinstance(statement, ast.Return | ast.Expr) and statement.value is not None:
                    yield from verdicts(statement.value, said)


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for one in ast.walk(tree):
        for field in ("body", "orelse"):
            found = getattr(one, field, None)
            if isinstance(found, list):
                yield found


def names_of(statement: ast.Assign | ast.AugAssign) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def verdicts(value: ast.expr, said: dict[str, str]) -> Iterator[tuple[str, str]]:
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Verdict":
            given = {one.arg: one.value for one in call.keywords}
            who = given.get("who")
            known = said.get(who.id, "") if isinstance(who, ast.Name) else words(who)
            yield words(given["code"]), known


def words(value: ast.expr | None) -> str:
    parts = ast.walk(value) if value is not None else ()
    return " ".join(
        one.value for one in parts if isinstance(one, ast.Constant) and isinstance(one.value, str)
    )
