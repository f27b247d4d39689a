"""kill -9 of an agent that cuts thin volumes together, and SIGKILL of the commands it runs: each
group is whole afterwards, or nothing of it stays; and what stood still for it goes on.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.model import BackendFailed, Record
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.filesystem.freezing import NOTES
from localvolume.host.lvm.commands import Lvm
from tests.host.support_devices import mounted
from tests.host.support_images import thaw_all
from tests.suite.units import MIB

from .support_kills import Order, deaths_at
from .support_looks import GROUP
from .support_lvm_deaths import Deaths, Tenant, group_of_pattern
from .support_lvm_groups import (
    all_mounted,
    cut,
    is_frozen,
    nesting,
    nothing_left,
    still_writable,
    until_thawed,
    volumes,
)
from .support_lvm_store import Pool

pytestmark = nesting

#: Two volumes take two commands for the pool's numbers, and then two that cut.
_FROZEN = (
    Order("process", "lvcreate", 3, "during"),
    Order("command", "lvcreate", 4, "during", 0.1),
    Order("process", "lvchange-tag", 2, "before"),
)
_OTHERS = (
    Order("process", "lvcreate", 4, "after"),
    *deaths_at("lvcreate", "lvchange-down", "lvremove", "lvchange-tag"),
    *(Order("process", "lvremove", 2, when) for when in ("before", "after")),
    *(Order("process", "lvcreate", n, "after") for n in (1, 2, 3)),
    Order("process", "lvcreate", 4, "before"),
    *(Order("process", "lvchange-tag", n, when) for n in (1, 2, 3) for when in ("before", "after")),
    *(Order("process", "lvcreate", n, "during", s) for n in (3, 4) for s in (0.05, 0.1, 0.2, 0.4)),
    *(Order("command", "lvcreate", n, "during", s) for n in (3, 4) for s in (0.05, 0.1, 0.2, 0.4)),
    Order("command", "lvcreate", 1),
    Order("command", "lvremove", 2),
    Order("command", "lvchange-tag", 2),
)


@pytest.fixture
def deaths(lvm: Lvm, tmp_path: Path) -> Iterator[Deaths]:
    with group_of_pattern():
        lvm.create_pool(GROUP, "pool", 128 * MIB)
        yield Deaths(tmp_path, lvm, "pool")


def test_killed_while_volumes_stand_still_a_group_is_whole_or_gone(deaths: Deaths) -> None:
    dies_at_each(deaths, _FROZEN)


@pytest.mark.soak
def test_killed_at_each_point_a_group_is_whole_or_gone(deaths: Deaths) -> None:
    dies_at_each(deaths, _OTHERS)


def test_killed_with_the_process_that_would_thaw_the_next_one_thaws(thin: Pool) -> None:
    """As all processes of a container are."""
    origins = volumes(thin, "ext4", "ext4")
    thin.store.close()
    with all_mounted(thin, origins) as places:
        agent = [sys.executable, "-c", _AGENT, thin.group, thin.store.locks]
        ended = subprocess.run([*agent, *(one.name for one in origins)], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert [is_frozen(where) for where in places] == [True, True]
        assert thaw_all(Path(NOTES)) == {}
        still_writable(places)
        left = {one.name: one for one in thin.store.look().records.values() if one.group}
        assert {name: one.state for name, one in left.items()} == {"g-o0": "making"}
        thin.store.take_away(left["g-o0"])
        nothing_left(thin, origins)
        assert len(cut(thin.store, origins)) == 2


#: Dies before its second command that cuts, right after the process that has all frozen.
_AGENT = """
import os, signal, sys
from pathlib import Path
from tests.host.support_images import run_here
from tests.kernel.inside.support_lvm_groups import cut
from tests.kernel.inside.support_lvm_store import pool_on

group, locks, *names = sys.argv[1:]
cuts = []


def run(argv, timeout, **more):
    cuts.extend(["cut"] * ("--snapshot" in argv))
    if len(cuts) == 2:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        for child in children:
            if "freezer" in Path(f"/proc/{child}/cmdline").read_text():
                os.kill(int(child), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return run_here(argv, timeout, **more)


store = pool_on(group, Path(locks), thin_pool="pool", run=run).store
records = store.look().records
cut(store, [records[name] for name in names])
"""


def dies_at_each(deaths: Deaths, orders: tuple[Order, ...]) -> None:
    tenants = [deaths.make(raw=False, mib=8, overwrite=False) for _ in range(2)]
    for tenant in tenants:
        deaths.offer(tenant)
    with contextlib.ExitStack() as mounts:
        places = [mounts.enter_context(mounted(deaths.node(one.name))) for one in tenants]
        for order in orders:
            number = deaths.orders.give(order)
            taken = deaths.insist(lambda store: whole(store, tenants))
            # One that is killed some time after its start may have ended before.
            assert deaths.orders.was_met(number) or order.seconds, f"{order} was never met"
            for where in places:
                until_thawed(where)
            still_writable(places)
            for tenant, record in zip(tenants, taken, strict=True):
                tenant.snapshots = {record.name: record}
            deaths.check()
            for tenant in tenants:
                deaths.unsnapshot(tenant)
    for tenant in tenants:
        deaths.remove(tenant)
    deaths.check()


def whole(store: LvmStore, tenants: list[Tenant]) -> list[Record]:
    """The group as it is told of: what is left of one that is not whole is taken away first, as
    agents do."""
    report = store.look()
    if report.problem:
        raise BackendFailed(report.problem)
    left = [one for one in report.records.values() if one.group]
    found = sorted(left, key=lambda one: one.name)
    if [one.state in ("made", "offered") for one in found] != [True] * len(tenants):
        for one in found:
            assert one.state != "offered", f"{one} was told of, and its group is not whole"
            store.take_away(one)
        found = list(store.cut_together([member(one.record) for one in tenants]))
    assert len({one.cut_at for one in found}) == 1
    return [store.offered(one) for one in found]


def member(origin: Record) -> tuple[Record, Record]:
    asked = snapshot_record(origin, f"snap-{origin.name}", origin.size_bytes)
    return replace(asked, group="g", group_size=2), origin
