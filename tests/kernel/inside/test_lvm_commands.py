"""How many commands of LVM the life of a volume takes; while nothing happens there are none."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from localvolume.dynamic.classes.reserves import RESERVE
from tests.cluster.support_csicalls import Caller
from tests.host.support_devices import command
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


@contextmanager
def written(node: str) -> Iterator[None]:
    """Meanwhile somebody writes to it all the time, and has begun to."""
    begun, enough = threading.Event(), threading.Event()

    def go_on() -> None:
        while not enough.is_set():
            write(node, os.urandom(4096))
            begun.set()

    with ThreadPoolExecutor(1) as workers:
        writing = workers.submit(go_on)
        try:
            assert begun.wait(60)
            yield
        finally:
            enough.set()
    writing.result()


def of_lvm(took: Counter[str]) -> int:
    return sum(count for tool, count in took.items() if tool != ASKS_NO_LVM)


def changes(took: Counter[str]) -> dict[str, int]:
    """All but looks at the whole group: many calls share one, and other things wake the agent."""
    return {tool: count for tool, count in took.items() if tool != LOOK}


def said(words: str) -> Counter[str]:
    return Counter(words.split())


def making(
    csi: LvmCsiLab, counted: Counted, name: str, begin: Callable[[], object] = bool, **how: bool
) -> Counter[str]:
    """What it takes to make a volume after `begin`, few commands: where something else has woken
    the agent meanwhile, which then looks once more, another one is made."""
    caller = Caller(csi.kubelet)
    tries = []
    for number in range(3):
        quiet(csi, counted)
        begin()
        took = counted.of(partial(caller.create, name if not number else f"{name}-{number}", **how))
        if of_lvm(took) <= MOST_TO_CREATE:
            return took
        tries.append(took)
    raise AssertionError(f"each takes more than {MOST_TO_CREATE} commands: {tries}")


@pytest.mark.parametrize("thin", [True, False], ids=["thin", "thick"])
def test_the_life_of_a_volume(csi: LvmCsiLab, counted: Counted, thin: bool) -> None:
    csi.fill_node(thin)
    caller = Caller(csi.kubelet)
    asked = {"dmsetup": 1} if thin else {}
    for name, block in (("mounted", False), ("raw", True)):
        took = making(csi, counted, name, block=block)
        assert changes(took) == {"lvcreate": 1, "lvchange-tag": 1, **asked}
    # While somebody writes to the group's disks, nobody can tell without LVM what else has changed.
    making(csi, counted, "third", partial(write, f"/dev/{GROUP}/raw", os.urandom(MIB)))
    quiet(csi, counted)
    took = counted.of(partial(caller.grow, "mounted", 64 * MIB))
    assert changes(took) == {"lvextend": 1, "lvchange-tag": 1}
    quiet(csi, counted)
    took = counted.of(partial(caller.grow, "raw", 64 * MIB))
    # A thick one grows onto what was zeroed as a volume of its own.
    zeroed = "" if thin else "lvcreate lvs lvs lvchange-down lvremove lvs"
    assert changes(took) == said(f"{zeroed} lvextend lvchange-tag")
    quiet(csi, counted)
    slowed = {"volume_id": "raw", "mutable_parameters": {"readOps": "1000"}}
    took = counted.of(partial(caller.call, "ControllerModifyVolume", **slowed))
    assert changes(took) == said("lvchange-tag")
    quiet(csi, counted)

    def gone() -> None:
        caller.delete("raw")
        csi.until(lambda: csi.logged(PURGED), bool)

    took = counted.of(gone)
    assert changes(took) == {"lvchange-down": 1, "lvchange-tag": 1, "lvs": 2, "lvremove": 1}
    csi.stop()


def test_who_only_mounts_or_looks_asks_lvm_for_nothing(csi: LvmCsiLab, counted: Counted) -> None:
    """As the kubelet does each minute, for each volume, also while pods write."""
    csi.fill_node(thin=True)
    caller = Caller(csi.kubelet)
    caller.create("writer", block=True)
    caller.create("volume")
    target = str(caller.use("volume"))
    stats = partial(caller.call, "NodeGetVolumeStats", volume_id="volume", volume_path=target)
    again: list[Callable[[], object]] = [
        partial(caller.stage, "volume"),
        partial(caller.publish, "volume"),
        stats,
    ]
    with written(f"/dev/{GROUP}/writer"):
        for act in again:
            # The agent may be woken by something else meanwhile.
            csi.until(partial(counted.of, act), lambda took: not took)
    caller.leave("volume")
    # What is not active is activated, which is a change.
    command("lvchange", "--quiet", "--activate", "n", f"{GROUP}/volume")
    caller.use("volume")
    assert (Path(target) / "lost+found").exists()
    caller.leave("volume")
    csi.stop()


@pytest.mark.parametrize("block", [False, True], ids=["mounted", "raw"])
@pytest.mark.parametrize("thin", [True, False], ids=["thin", "thick"])
def test_making_while_pods_write_all_the_time(
    csi: LvmCsiLab, counted: Counted, thin: bool, block: bool
) -> None:
    csi.fill_node(thin)
    caller = Caller(csi.kubelet)
    caller.create("writer", block=True)

    def makes(name: str) -> int:
        """How many commands it took, the last one being that which completes the volume."""
        quiet(csi, counted)
        with written(f"/dev/{GROUP}/writer"):
            took = counted.in_order(partial(caller.create, name, block=block))
        last = len(took) - took[::-1].index("lvchange-tag")
        return of_lvm(Counter(took[:last]))

    # The agent may be woken by something else meanwhile, and then looks once more.
    assert min(makes(f"volume-{n}") for n in range(3)) <= MOST_TO_CREATE
    csi.stop()


def test_the_life_of_a_snapshot(csi: LvmCsiLab, counted: Counted) -> None:
    csi.fill_node(thin=True)
    caller = Caller(csi.kubelet)
    caller.create("origin")
    quiet(csi, counted)
    cut = partial(caller.call, "CreateSnapshot", name="s", source_volume_id="origin")
    # One volume is made and removed before, so that the snapshot gets a number that is free.
    first = {"lvcreate": 1, "lvs": 2, "lvchange-down": 1, "lvremove": 1, "dmsetup": 1}
    then = {"lvcreate": 1, "lvs": 1, "lvchange-tag": 1, "dmsetup": 2}
    assert changes(counted.of(cut)) == dict(Counter(first) + Counter(then))
    (listed,) = caller.call("ListSnapshots").entries
    quiet(csi, counted)

    def gone() -> None:
        caller.call("DeleteSnapshot", snapshot_id=listed.snapshot.snapshot_id)
        csi.until(lambda: csi.logged(PURGED), bool)

    assert changes(counted.of(gone)) == {"lvchange-tag": 1, "lvs": 2, "lvremove": 1}
    csi.stop()


#: What makes one volume and removes it: the next one gets its number, which is free then.
_NUMBER = "lvcreate lvs lvchange-down lvremove lvs"
#: Of two snapshots, whose origins are asked for what they have before and after.
_GROUP = f"{_NUMBER} {_NUMBER} lvcreate lvcreate lvs lvs" + 4 * " lvchange-tag dmsetup"


def copying(
    caller: Caller, name: str, source: dict[str, Any], **parameters: str
) -> Callable[[], object]:
    more = {"volume_content_source": source, "parameters": parameters}
    return partial(caller.call, "CreateVolume", **caller.wanted(name), **more)


def test_copies_of_thin_volumes(csi: LvmCsiLab, counted: Counted) -> None:
    csi.fill_node(thin=True)
    caller = Caller(csi.kubelet)
    caller.create("origin")
    caller.call("CreateSnapshot", name="s", source_volume_id="origin")
    for name, source in (
        ("restored", {"snapshot": {"snapshot_id": "s"}}),
        ("cloned", {"volume": {"volume_id": "origin"}}),
    ):
        quiet(csi, counted)
        took = counted.of(copying(caller, name, source))
        assert changes(took) == said(f"dmsetup {_NUMBER} lvcreate lvs lvchange-tag")
    quiet(csi, counted)
    group = {"name": "g", "source_volume_ids": ["cloned", "origin"]}

    def cut() -> bool:
        try:
            caller.call("CreateVolumeGroupSnapshot", **group)
        except GRPCError as error:
            # So many commands take a slow machine longer: who asks again waits for the rest.
            if error.status is not Status.DEADLINE_EXCEEDED:
                raise
            return False
        return True

    took = counted.of(partial(csi.until, cut, bool, 600))
    assert changes(took) == said(_GROUP)
    csi.stop()


def test_copies_of_thick_volumes(csi: LvmCsiLab, counted: Counted) -> None:
    csi.fill_node(thin=False)
    caller = Caller(csi.kubelet)
    caller.create("origin")
    quiet(csi, counted)
    cut = {"name": "s", "source_volume_id": "origin", "parameters": {RESERVE: "32Mi"}}
    took = counted.of(partial(caller.call, "CreateSnapshot", **cut))
    assert changes(took) == said("lvcreate lvs lvchange-tag")
    quiet(csi, counted)
    source = {"snapshot": {"snapshot_id": "s"}}
    took = counted.of(copying(caller, "restored", source, fullCopies="allowed"))
    # With each part that is copied it is noted how far that has come: here it is but one.
    assert changes(took) == said("lvcreate lvs lvchange-tag lvchange-tag")
    quiet(csi, counted)
    source = {"volume": {"volume_id": "restored"}}
    took = counted.of(copying(caller, "cloned", source, fullCopies="allowed"))
    begun, ended = "lvcreate lvcreate lvs lvs lvchange-tag", "lvs lvremove lvs lvchange-tag"
    assert changes(took) == said(f"{begun} {ended}")
    csi.stop()
