"""Snapshots with a reserve by calls of CSI: cut, restored, lost, left when their volume goes."""

from __future__ import annotations

import os
from typing import Any

from grpclib.const import Status

from localvolume.dynamic.classes.reserves import RESERVE
from tests.cluster.support_csicalls import Caller, capability
from tests.suite.units import MIB

from .support_lvm_csi import GROUP, LvmCsiLab, csi
from .support_lvm_store import read, write

__all__ = ["csi"]

SIZE = 64 * MIB


def lvs(csi: LvmCsiLab) -> set[str]:
    return {one.name for one in csi.lvm.volumes(GROUP)}


def cut(caller: Caller, name: str, source: str, reserve: str = "32Mi") -> Any:
    return caller.call(
        "CreateSnapshot", name=name, source_volume_id=source, parameters={RESERVE: reserve}
    ).snapshot


def from_it(name: str, snapshot: str, *, block: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "capacity_range": {"required_bytes": SIZE},
        "volume_capabilities": [capability(block=block)],
        "volume_content_source": {"snapshot": {"snapshot_id": snapshot}},
        "parameters": {"fullCopies": "allowed"},
    }


def test_a_snapshot_outlives_its_volume_and_both_go_in_the_end(csi: LvmCsiLab) -> None:
    csi.fill_node(thin=False)
    caller = Caller(csi.kubelet)
    volume = caller.create("volume-1", SIZE)
    place = caller.use(volume)
    (place / "file").write_text("before")
    free = csi.lvm.group(GROUP).free_bytes
    snapshot = cut(caller, "cut-1", volume)
    assert (snapshot.ready_to_use, snapshot.size_bytes) == (True, SIZE)

    def room() -> int:
        csi.touch()
        return int(caller.call("GetCapacity").available_capacity)

    csi.until(room, lambda room: room == free - 32 * MIB)
    (place / "file").write_text("after")
    refused = caller.refused(
        "ControllerExpandVolume", volume_id=volume, capacity_range={"required_bytes": 2 * SIZE}
    )
    assert refused[0] is Status.UNAVAILABLE
    assert "grows once its snapshots (cut-1) are removed" in refused[1]
    caller.leave(volume)
    caller.delete(volume)
    caller.delete(volume)
    assert caller.listed() == []
    # What is kept for the snapshot is taken.
    csi.until(room, lambda room: room == free - 32 * MIB)
    # The agent is started anew, after the node was.
    csi.stop()
    csi.serve_here()
    again = caller.call("CreateVolume", **from_it("volume-2", "cut-1")).volume.volume_id
    assert (caller.use(again) / "file").read_text() == "before"
    assert lvs(csi) == {volume, "cut-1", again}
    # Volumes that calls made have no object; what is kept, and the snapshot, are not told as such.
    assert [one["persistentVolume"] for one in csi.orphans()] == [again]
    caller.leave(again)
    caller.delete(again)
    caller.call("DeleteSnapshot", snapshot_id="cut-1")
    csi.until(lambda: lvs(csi), lambda left: not left)


def test_one_that_is_lost_is_told_and_never_handed_out(csi: LvmCsiLab) -> None:
    csi.fill_node(thin=False)
    caller = Caller(csi.kubelet)
    answer = caller.call("CreateVolume", **caller.wanted("volume-1", SIZE, block=True))
    volume = answer.volume.volume_id
    cut(caller, "cut-1", volume, "8Mi")
    content = os.urandom(32 * MIB)
    write(f"/dev/{GROUP}/{volume}", content)

    def ready() -> bool:
        csi.touch()
        return bool(caller.call("GetSnapshot", snapshot_id="cut-1").snapshot.ready_to_use)

    csi.until(ready, lambda is_ready: not is_ready)
    status, why = caller.refused("CreateVolume", **from_it("volume-2", "cut-1", block=True))
    assert status is Status.INVALID_ARGUMENT
    assert f"the content of snapshot cut-1 is lost: more of {volume} was written" in why
    assert read(f"/dev/{GROUP}/{volume}", 32 * MIB) == content
    caller.call("DeleteSnapshot", snapshot_id="cut-1")
    csi.until(lambda: lvs(csi), lambda left: left == {volume})
    caller.delete(volume)
    csi.until(lambda: lvs(csi), lambda left: not left)
