"""How many commands of LVM the life of a volume takes; while nothing happens there are none."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

import pytest

from tests.cluster.support_csicalls import Caller
from tests.suite.units import MIB

from .support_lvm_counts import Counted, counted
from .support_lvm_csi import GROUP, LvmCsiLab, csi
from .support_lvm_store import write

__all__ = ["counted", "csi"]

#: Of LVM: dmsetup asks the kernel, and reads and locks nothing of a group.
ASKS_NO_LVM = "dmsetup"
LOOK = "fullreport"
MOST_TO_CREATE = 4
PURGED = "purged in"


def quiet(lab: LvmCsiLab, counted: Counted) -> None:
    """Until the node is looked at again, as each minute, with no command of LVM."""
    lab.until(lambda: counted.of(lab.settle), lambda took: not took)


def of_lvm(took: Counter[str]) -> int:
    return sum(count for tool, count in took.items() if tool != ASKS_NO_LVM)


def changes(took: Counter[str]) -> dict[str, int]:
    """All but looks at the whole group: many calls share one, and other things wake the agent."""
    return {tool: count for tool, count in took.items() if tool != LOOK}


@pytest.mark.parametrize("thin", [True, False], ids=["thin", "thick"])
def test_the_life_of_a_volume(csi: LvmCsiLab, counted: Counted, thin: bool) -> None:
    csi.fill_node(thin)
    caller = Caller(csi.kubelet)
    asked = {"dmsetup": 1} if thin else {}
    for name, block in (("mounted", False), ("raw", True)):
        quiet(csi, counted)
        took = counted.of(partial(caller.create, name, block=block))
        assert of_lvm(took) <= MOST_TO_CREATE
        more = {} if thin or not block else {"lvs": 1}
        assert changes(took) == {"lvcreate": 1, "lvchange-tag": 1, **asked, **more}
    quiet(csi, counted)
    # While somebody writes to the group's disks, nobody can tell without LVM what else has changed.
    write(f"/dev/{GROUP}/raw", os.urandom(MIB))
    assert of_lvm(counted.of(partial(caller.create, "third"))) <= MOST_TO_CREATE
    quiet(csi, counted)
    took = counted.of(partial(caller.grow, "mounted", 64 * MIB))
    assert changes(took) == {"lvextend": 1, "lvs": 1, "lvchange-tag": 1}
    quiet(csi, counted)

    def gone() -> None:
        caller.delete("raw")
        csi.until(lambda: csi.logged(PURGED), bool)

    took = counted.of(gone)
    assert changes(took) == {"lvchange-down": 1, "lvchange-tag": 1, "lvs": 2, "lvremove": 1}
    csi.stop()


def test_the_life_of_a_snapshot(csi: LvmCsiLab, counted: Counted) -> None:
    csi.fill_node(thin=True)
    caller = Caller(csi.kubelet)
    caller.create("origin")
    quiet(csi, counted)
    cut = partial(caller.call, "CreateSnapshot", name="s", source_volume_id="origin")
    # One volume is made and removed before, so that the snapshot gets a number that is free.
    first = {"lvcreate": 1, "lvs": 3, "lvchange-down": 1, "lvremove": 1, "dmsetup": 1}
    then = {"lvcreate": 1, "lvs": 1, "lvchange-tag": 1, "dmsetup": 2}
    assert changes(counted.of(cut)) == dict(Counter(first) + Counter(then))
    (listed,) = caller.call("ListSnapshots").entries
    quiet(csi, counted)

    def gone() -> None:
        caller.call("DeleteSnapshot", snapshot_id=listed.snapshot.snapshot_id)
        csi.until(lambda: csi.logged(PURGED), bool)

    assert changes(counted.of(gone)) == {"lvchange-tag": 1, "lvs": 2, "lvremove": 1}
    csi.stop()
