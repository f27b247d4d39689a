"""A pool that is taken out of the configuration while volumes and snapshots lie in it: no call and
no content is told that one of them is gone, and all goes on once the pool is back."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib.const import Status

from tests.attacks.support_csi import stock_volume
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import Caller
from tests.cluster.support_dynamic import MadePool
from tests.cluster.support_groups import GroupLab
from tests.cluster.support_snapshots import Content, Snapshot, handle_of
from tests.suite.api import VOLUMES
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def configured(lab: CsiLab, pools: dict[str, Any]) -> None:
    """Have the running agent use these pools alone."""

    def reloads() -> float:
        return lab.metric("localvolume_config_reloads_total", result="valid") or 0

    before = reloads()
    lab.settings["pools"] = pools
    lab.configure()
    lab.until(reloads, lambda count: count > before)
    lab.settle()


def pool_of_two(lab: GroupLab) -> MadePool:
    """A pool for what is to be away, beside another; the agent runs."""
    pool = lab.image_pool()
    lab.csi_pool("other", backend="image", size=64 * MIB)
    lab.serve_here()
    return pool


def cut(lab: GroupLab) -> tuple[Snapshot, Content]:
    """A snapshot that is ready, and its content."""
    snapshot = lab.ready(lab.snapshot(lab.claimed(size="16Mi")))
    content = lab.content_of(snapshot)
    assert content is not None
    return snapshot, content


def test_a_volume_is_gone_only_if_its_pool_says_so(csi: CsiLab) -> None:
    csi.csi_pool("other", backend="image", size=64 * MIB)
    pool = csi.csi_pool("away", backend="image", size=256 * MIB)
    parameters = {"pool": "away"}
    csi.serve_here()
    caller = Caller(csi.kubelet)
    wanted = caller.wanted(f"{csi.unique}-volume")
    handle = caller.call("CreateVolume", **wanted, parameters=parameters).volume.volume_id
    name = stock_volume(csi, handle, f"{csi.unique}-by-hand")
    csi.settle()
    both = dict(csi.settings["pools"])
    configured(csi, {"other": both["other"]})
    status, why = caller.refused("DeleteVolume", volume_id=handle)
    assert status is Status.UNAVAILABLE
    assert name in why
    assert pool.records() == [f"{handle}.json"]
    # One that never was is gone.
    caller.delete(f"{csi.unique}-never")
    configured(csi, both)
    caller.delete(handle)
    # A caller that has not heard the answer asks again, and again.
    csi.settle()
    caller.delete(handle)
    assert pool.records() == [f"{handle}.json"]
    csi.plane.request("DELETE", f"{VOLUMES}/{name}")
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))
    caller.delete(handle)


def test_nothing_is_said_to_be_missing_whose_pool_is_away(csi: CsiLab) -> None:
    csi.csi_pool("other", backend="image", size=64 * MIB)
    csi.csi_pool("away", backend="image", size=256 * MIB)
    csi.serve_here()
    caller = Caller(csi.kubelet)
    wanted = caller.wanted(f"{csi.unique}-volume")
    made = caller.call("CreateVolume", **wanted, parameters={"pool": "away"})
    handle = made.volume.volume_id
    name = stock_volume(csi, handle, f"{csi.unique}-by-hand")
    csi.settle()
    both = dict(csi.settings["pools"])
    (caller.use(handle) / "file").write_text("kept")
    grown = {"capacity_range": {"required_bytes": 64 * MIB}}
    target = str(caller.target(handle))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("NodeStageVolume", caller.to_stage(handle)),
        ("NodePublishVolume", caller.to_publish(handle)),
        ("NodeGetVolumeStats", {"volume_id": handle, "volume_path": target}),
        ("NodeExpandVolume", {"volume_id": handle, "volume_path": target, **grown}),
        ("ControllerExpandVolume", {"volume_id": handle, **grown}),
        ("ControllerGetVolume", {"volume_id": handle}),
        ("CreateSnapshot", {"name": f"{csi.unique}-cut", "source_volume_id": handle}),
    ]
    configured(csi, {"other": both["other"]})
    for rpc, fields in calls:
        status, why = caller.refused(rpc, **fields)
        assert status is Status.UNAVAILABLE, (rpc, why)
        assert f"PersistentVolume {name} is of it: bring its pool back" in why
    # There is none that no object tells of.
    never = f"{csi.unique}-never"
    assert caller.refused("NodeStageVolume", **caller.to_stage(never))[0] is Status.NOT_FOUND
    # The pod goes on, and may end.
    assert (caller.target(handle) / "file").read_text() == "kept"
    caller.leave(handle)
    assert caller.mounts() == []
    configured(csi, both)
    caller.grow(handle, 64 * MIB)
    assert (caller.use(handle) / "file").read_text() == "kept"
    caller.leave(handle)


@pytest.mark.needs("xfs")
def test_a_snapshot_is_gone_only_if_its_pool_says_so(lab: GroupLab) -> None:
    pool = pool_of_two(lab)
    snapshot, content = cut(lab)
    handle, name = handle_of(content), content["metadata"]["name"]
    both = dict(lab.settings["pools"])
    configured(lab, {"other": both["other"]})
    lab.delete_snapshot(snapshot)
    said = f"no pool that is configured here has it, and snapshot content {name} is of it"
    lab.event(name, "SnapshotDeleteError", said)
    status, why = lab.caller.refused("DeleteSnapshot", snapshot_id=handle)
    assert status is Status.UNAVAILABLE
    assert said in why
    assert lab.content(name) is not None
    assert f"{handle}.json" in pool.records()
    configured(lab, both)
    lab.until(lambda: lab.content(name), lambda found: found is None)
    lab.until(pool.records, lambda names: f"{handle}.json" not in names)
    lab.caller.call("DeleteSnapshot", snapshot_id=handle)


@pytest.mark.needs("xfs")
def test_a_snapshot_whose_pool_never_comes_back_is_let_go_by_its_policy(lab: GroupLab) -> None:
    pool = pool_of_two(lab)
    snapshot, content = cut(lab)
    handle, name = handle_of(content), content["metadata"]["name"]
    configured(lab, {"other": lab.settings["pools"]["other"]})
    lab.delete_snapshot(snapshot)
    lab.event(name, "SnapshotDeleteError", "the deletion policy Retain")
    lab.patch_content(content, {"spec": {"deletionPolicy": "Retain"}})
    lab.until(lambda: lab.content(name), lambda found: found is None)
    assert f"{handle}.json" in pool.records()


@pytest.mark.needs("xfs")
def test_a_group_is_gone_only_if_its_pool_says_so(lab: GroupLab) -> None:
    pool = pool_of_two(lab)
    lab.together()
    group = lab.group_ready(lab.group())
    content = lab.group_tidy(group)
    name, before = content["metadata"]["name"], pool.records()
    both = dict(lab.settings["pools"])
    configured(lab, {"other": both["other"]})
    lab.delete_group(group)
    lab.event(name, "GroupSnapshotDeleteError", f"group snapshot content {name} is of it")
    assert lab.group_content_named(name) is not None
    assert pool.records() == before
    configured(lab, both)
    lab.until(lambda: lab.group_content_named(name), lambda found: found is None)
    lab.until(lambda: len(pool.records()), lambda left: left == 2)
