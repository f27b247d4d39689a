"""`localvolume plan` has a word for everything that the roles for claims and snapshots may do."""

from __future__ import annotations

from localvolume.cli.planning.rows import VERDICTS
from localvolume.cli.planning.snapshots import WORDS
from localvolume.dynamic.model import Action, GrowCalled, ModifyCalled
from localvolume.snapshots import plan as single
from localvolume.snapshots.groups import plan as group


def names(*kinds: type[object]) -> set[str]:
    found: list[type[object]] = []
    for kind in kinds:
        found += kind.__subclasses__()
    return {one.__name__ for one in found}


def test_each_action_has_a_word() -> None:
    # Only calls ask for these two, and a plan has none but those that contents need.
    assert names(Action) - {GrowCalled.__name__, ModifyCalled.__name__} == VERDICTS.keys()
    # These two are what the pools are asked for.
    assert names(single.Action, group.Action) - {"Cut", "Remove"} == WORDS.keys()
