"""An agent that cuts thin volumes in use together, by the calls of CSI, and removes the group."""

from __future__ import annotations

from grpclib.const import Status

from tests.cluster.support_csicalls import Caller
from tests.host.support_copies import Writer, last_of
from tests.suite.units import MIB

from .support_lvm_csi import GROUP, LvmCsiLab, csi
from .support_lvm_groups import nesting, still_writable

__all__ = ["csi"]

SIZE = 32 * MIB


@nesting
def test_a_group_is_cut_restored_and_removed(csi: LvmCsiLab) -> None:
    csi.fill_node(thin=True)
    caller = Caller(csi.kubelet)
    handles = [caller.create(f"volume-{one}", SIZE) for one in "abc"]
    places = [caller.use(one) for one in handles]
    asked = {"name": "group-1", "source_volume_ids": handles}
    with Writer([where / "log" for where in places]):
        group = caller.call("CreateVolumeGroupSnapshot", **asked).group_snapshot
    assert group.ready_to_use
    still_writable(places)
    # Told of again, and not cut again.
    assert caller.call("CreateVolumeGroupSnapshot", **asked).group_snapshot == group
    taken = {one.source_volume_id: one.snapshot_id for one in group.snapshots}
    assert set(taken) == set(handles)
    found = []
    for number, handle in enumerate(handles):
        wanted = caller.wanted(f"copy-{number}", SIZE)
        source = {"snapshot": {"snapshot_id": taken[handle]}}
        made = caller.call("CreateVolume", **wanted, volume_content_source=source)
        found.append(last_of(caller.use(made.volume.volume_id) / "log"))
    assert found[0] in (found[-1], found[-1] + 1)
    assert found == sorted(found, reverse=True)
    status, why = caller.refused("DeleteSnapshot", snapshot_id=taken[handles[0]])
    assert status is Status.INVALID_ARGUMENT, why
    for handle in handles:
        caller.leave(handle)
        caller.delete(handle)
    gone = {"group_snapshot_id": group.group_snapshot_id, "snapshot_ids": list(taken.values())}
    caller.call("DeleteVolumeGroupSnapshot", **gone)
    csi.until(
        lambda: {one.name for one in csi.lvm.volumes(GROUP)},
        lambda left: not left & {*taken.values(), *handles},
    )


def test_thick_volumes_are_not_cut_together(csi: LvmCsiLab) -> None:
    csi.fill_node(thin=False)
    caller = Caller(csi.kubelet)
    handles = [caller.create(f"volume-{one}", SIZE) for one in "ab"]
    status, why = caller.refused(
        "CreateVolumeGroupSnapshot", name="group-1", source_volume_ids=handles
    )
    assert status is Status.FAILED_PRECONDITION
    assert "thick logical volumes share no blocks" in why
    assert {one.name for one in csi.lvm.volumes(GROUP)} == set(handles)
