"""Over whatever history of disks, claims, backups and crashes: nothing of anybody's is destroyed
while it is wanted, and no claim gets what another has written.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.decisions.support_histories import Node
from tests.suite.chance import examples

HAPPENINGS = (
    "agent",
    "bind",
    "end",
    "back_up",
    "restore",
    "delete",
    "swap",
    "take_out",
    "put_in",
    "clone",
    "resize",
    "write",
)

HISTORY = st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 3)), max_size=40)
KINDS = st.sampled_from(("filesystem", "block"))
FIRST_USES = st.sampled_from(("require-empty", "clean", "trust"))


def happen(node: Node, history: list[tuple[str, int]]) -> None:
    for what, number in history:
        if what == "agent":
            node.agent(number or 99)
        elif what in ("back_up", "restore", "swap"):
            getattr(node, what)(number)
        else:
            getattr(node, what)(number % 2)


# What holes were like that this has found, or that reviewers did.
THE_FORMER_COMES_BACK = [
    ("agent", 0), ("bind", 0), ("end", 0), ("back_up", 0), ("agent", 0), ("agent", 0), ("agent", 0),
    ("agent", 0), ("bind", 0), ("restore", 0), ("agent", 0), ("agent", 0), ("agent", 0),
]  # fmt: skip
THE_OFFER_COMES_BACK = [
    ("agent", 0), ("back_up", 0), ("bind", 0), ("restore", 0), ("agent", 0), ("bind", 0),
    ("agent", 0), ("agent", 0), ("bind", 0),
]  # fmt: skip
THE_CLAIM_COMES_BACK = [
    ("agent", 0), ("bind", 0), ("back_up", 0), ("end", 0), ("agent", 0), ("agent", 0),
    ("restore", 0), ("agent", 0), ("write", 0), ("end", 0), ("agent", 0), ("agent", 0),
    ("agent", 0), ("bind", 0),
]  # fmt: skip
THE_OBJECT_IS_LOST = [
    ("back_up", 0), ("agent", 0), ("bind", 0), ("restore", 0), ("agent", 0), ("agent", 0),
    ("bind", 0),
]  # fmt: skip
IT_DIES_AFTER_EACH_WRITE = [
    ("agent", 1), ("agent", 1), ("bind", 0), ("end", 0), *[("agent", 1)] * 12, ("bind", 0),
]  # fmt: skip


@given(kind=KINDS, first_use=FIRST_USES, history=HISTORY)
@example(kind="filesystem", first_use="trust", history=THE_FORMER_COMES_BACK)
@example(kind="block", first_use="trust", history=THE_FORMER_COMES_BACK)
@example(kind="filesystem", first_use="trust", history=THE_OFFER_COMES_BACK)
@example(kind="block", first_use="require-empty", history=THE_OFFER_COMES_BACK)
@example(kind="filesystem", first_use="trust", history=THE_CLAIM_COMES_BACK)
@example(kind="block", first_use="require-empty", history=THE_CLAIM_COMES_BACK)
@example(kind="filesystem", first_use="clean", history=THE_OBJECT_IS_LOST)
@example(kind="block", first_use="require-empty", history=THE_OBJECT_IS_LOST)
@example(kind="filesystem", first_use="trust", history=IT_DIES_AFTER_EACH_WRITE)
@example(kind="block", first_use="require-empty", history=IT_DIES_AFTER_EACH_WRITE)
@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
def test_nothing_of_anybodys_is_destroyed_or_handed_on(
    kind: str, first_use: Any, history: list[tuple[str, int]]
) -> None:
    happen(Node(kind, first_use), history)


@pytest.mark.parametrize("kind", ["filesystem", "block"])
def test_a_volume_goes_from_claim_to_claim(kind: str) -> None:
    """The histories are of something: without backups a volume is cleaned and offered again."""
    node = Node(kind, "require-empty")
    for _ in range(3):
        happen(node, [("agent", 0), ("bind", 0), ("end", 0), *[("agent", 0)] * 4])
    assert node.claims.made == 3
    assert {disk.owner for disk in node.disks} == {""}
    happen(node, [("bind", 0)])
    assert node.disks[0].owner == "claim-4"
    record = node.disks[0].record
    assert record
    assert record.claim == "claim-4"
