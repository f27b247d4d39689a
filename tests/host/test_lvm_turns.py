"""Agents of one machine keep out of each other's pools of logical volumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from localvolume.backends.lvm.turns import Turns
from localvolume.backends.pool.root import PoolTaken

POOL = "0a0a0a-0000"


def test_what_was_closed_meanwhile_is_not_taken_again(tmp_path: Path) -> None:
    """The next agent has it from then on, which one that was about to begin would disturb."""
    turns, next_ = Turns(str(tmp_path)), Turns(str(tmp_path))
    begun = turns.begin()
    turns.close()
    with pytest.raises(PoolTaken, match="closed meanwhile"), turns.holding(POOL, begun):
        pass
    with next_.holding(POOL, next_.begin()) as fresh:
        assert fresh


def test_who_looked_at_it_before_it_was_locked_looks_again(tmp_path: Path) -> None:
    """Until a moment ago another agent worked in it, whichever call has locked it since."""
    turns = Turns(str(tmp_path))
    first, second = turns.begin(), turns.begin()
    with turns.holding(POOL, first) as fresh:
        assert fresh
    with turns.holding(POOL, second) as fresh:
        assert fresh
    with turns.holding(POOL, turns.begin()) as fresh:
        assert not fresh


def test_it_stays_locked_until_what_was_begun_has_ended(tmp_path: Path) -> None:
    turns, next_ = Turns(str(tmp_path)), Turns(str(tmp_path))
    with turns.holding(POOL, turns.begin()):
        turns.close()
        with pytest.raises(PoolTaken, match="another agent"), next_.holding(POOL, next_.begin()):
            pass
    with next_.holding(POOL, next_.begin()) as fresh:
        assert fresh
