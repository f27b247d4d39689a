"""kill -9 of the agent while it reads a thin pool's metadata: the next agent lets go of them."""

from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.model import BackendFailed, Impossible
from localvolume.host.lvm.gate import gate_of
from localvolume.host.lvm.thinmetadata import READING
from tests.suite.units import MIB

from .support_kills import Order, Orders, forked
from .support_lvm_store import Pool, pool_on, write
from .support_lvm_thin import cut, held, ranges_of

#: The tag, the hold, the reading, the release, and the end of the tag.
_POINTS = (
    Order("process", "lvchange-tag", 1, "before"),
    *(Order("process", "dmsetup", 2, when) for when in ("before", "after")),
    Order("process", "thin_delta", 1, "after"),
    Order("process", "dmsetup", 3, "after"),
    Order("process", "lvchange-tag", 2, "after"),
)


def test_killed_at_each_point_the_next_agent_lets_go(thin: Pool, tmp_path: Path) -> None:
    volume = thin.offer(mib=8, volume_mode="Block")
    first = cut(thin.store, volume, "s1")
    write(thin.node("pvc-1"), b"new", 3 * MIB)
    last = cut(thin.store, volume, "s2")
    expected = [(3 * MIB, 64 << 10)]
    thin.store.close()
    orders = Orders(tmp_path)

    def agent(run: Any) -> Pool:
        # What the test's own process knows of the group is not this one's.
        gate_of(thin.group).doubt()
        return pool_on(thin.group, tmp_path, thin_pool="pool", run=run)

    def dying(order: Order) -> Any:
        def life(run: Any) -> Any:
            store = agent(run).store
            assert not store.look().problem
            orders.give(order)
            return ranges_of(store, last, first)

        return life

    def living(run: Any) -> Any:
        pool = agent(run)
        report = pool.store.look()
        seen = (report.problem, list(report.warnings), held(pool))
        tags = pool.there("pool").tags
        return seen, READING in tags, ranges_of(pool.store, last, first), held(pool)

    were_held = set()
    for order in _POINTS:
        status, said = forked(dying(order), orders)
        assert status == -9, (order, said)
        were_held.add(held(thin) != "-")
        orders.give(None)
        status, said = forked(living, orders)
        assert status == 0, said
        assert said == (("", [], "-"), False, expected, "-"), order
    assert were_held == {True, False}


@pytest.mark.parametrize(("what", "kind"), [("thin_delta", Impossible), ("dmsetup", BackendFailed)])
def test_a_command_that_is_killed_leaves_nothing_held(
    thin: Pool, tmp_path: Path, what: str, kind: type[BackendFailed]
) -> None:
    taken = cut(thin.store, thin.offer(mib=8, volume_mode="Block"), "s")
    thin.store.close()
    orders = Orders(tmp_path)
    # Of dmsetup's, the one that holds the metadata: whether it did is not known.
    number = 2 if what == "dmsetup" else 1

    def life(run: Any) -> Any:
        gate_of(thin.group).doubt()
        store = pool_on(thin.group, tmp_path, thin_pool="pool", run=run).store
        assert not store.look().problem
        failed: type[BackendFailed] | None = None
        # On a busy machine it may have ended before it is killed.
        for _ in range(20):
            orders.give(Order("command", what, number))
            try:
                store.blocks(taken, None, 0)
            except BackendFailed as error:
                failed = type(error)
                break
        orders.give(None)
        return failed, ranges_of(store, taken, None)

    status, said = forked(life, orders)
    assert (status, said) == (0, (kind, [])), said
    assert held(thin) == "-"
    assert READING not in thin.there("pool").tags
