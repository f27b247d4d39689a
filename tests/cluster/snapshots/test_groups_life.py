"""Groups of snapshots from the VolumeGroupSnapshot to the pools and back, with the controller."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.support_groups import GROUP_BEING_CREATED, GroupLab, group_lab_for
from tests.cluster.support_objects import Objects
from tests.host.support_copies import Writer, last_of
from tests.suite.names import CSI, NODE_LABEL
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane", "snapshots")


def test_a_group_is_cut_while_it_is_written_to_restored_and_removed(lab: GroupLab) -> None:
    pool = lab.image_pool()
    lab.serve()
    claims = lab.together(2)
    handles = [lab.handle(one) for one in claims]
    places = [lab.caller.use(one, f"pod-{number}") for number, one in enumerate(handles)]
    before = time.time_ns()
    with ExitStack() as stack:
        writer = stack.enter_context(Writer([where / "log" for where in places]))
        least = writer.turn - 1
        group = lab.group()
        lab.group_ready(group)
        most = writer.turn
    content = lab.group_tidy(group)
    status = content["status"]
    assert content["metadata"]["annotations"][NODE_LABEL] == lab.node
    told = {one["volumeHandle"]: one for one in status["volumeSnapshotInfoList"]}
    assert set(told) == set(handles)
    for one in told.values():
        assert (one["readyToUse"], one["restoreSize"]) == (True, 16 * MIB)
        assert before < one["creationTime"] < time.time_ns()
    assert len({one["creationTime"] for one in told.values()}) == 1
    # The snapshot-controller makes an object of each, and the agent says where it is.
    members = lab.members(group)
    assert set(members) == {one["metadata"]["name"] for one in claims}
    for claim in claims:
        snapshot = members[claim["metadata"]["name"]]
        name = snapshot["status"]["boundVolumeSnapshotContentName"]
        found = lab.until(
            lambda name=name: lab.content(name),  # type: ignore[misc]
            lambda one: one and NODE_LABEL in one["metadata"].get("annotations", {}),
        )
        assert found is not None
        assert found["status"]["snapshotHandle"] == told[lab.handle(claim)]["snapshotHandle"]
    # What was written to the one and then to the other is in the snapshots in that order.
    found_in = [
        last_of(lab.restored(members[one["metadata"]["name"]], one) / "log") for one in claims
    ]
    assert found_in[0] in (found_in[1], found_in[1] + 1)
    assert least <= found_in[1] <= found_in[0] <= most
    lab.until(
        lambda: lab.metric("localvolume_group_snapshot_contents", state="ready"),
        lambda count: count == 1,
    )
    lab.take_group_away(group)
    lab.until(lambda: lab.group_content(group), lambda left: left is None)
    snapshots = {f"{one['snapshotHandle']}.json" for one in told.values()}
    lab.until(lambda: snapshots & set(pool.records()), lambda left: not left)
    for snapshot in members.values():
        lab.until(lambda one=snapshot: lab.read_snapshot(one), lambda left: left is None)  # type: ignore[misc]
    lab.until(pool.trash, lambda left: left == [])


def test_one_of_a_group_goes_only_with_it(lab: GroupLab) -> None:
    pool = lab.image_pool()
    lab.serve()
    lab.together(2)
    group = lab.group()
    lab.group_ready(group)
    member = next(iter(lab.members(group).values()))
    name = member["status"]["boundVolumeSnapshotContentName"]
    # A person deletes both objects of it, which the snapshot-controller does not go along with.
    lab.delete_snapshot(member)
    path = f"/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/{name}"
    lab.plane.request("DELETE", path)
    lab.settle()
    assert len(pool.records()) == 4
    lab.take_group_away(group)
    lab.until(lambda: lab.content(name), lambda left: left is None)
    lab.until(lambda: (len(pool.records()), pool.trash()), lambda left: left == (2, []))


def test_a_retained_group_stays_and_is_offered_again_by_its_handles(lab: GroupLab) -> None:
    pool = lab.image_pool()
    lab.serve()
    claims = lab.together(2)
    group = lab.group(lab.group_class("Retain"))
    lab.group_ready(group)
    members = lab.members(group)
    content = lab.group_tidy(group)
    handles = [one["snapshotHandle"] for one in content["status"]["volumeSnapshotInfoList"]]
    group_handle = content["status"]["volumeGroupSnapshotHandle"]
    lab.take_group_away(group)
    for snapshot in members.values():
        lab.until(lambda one=snapshot: lab.read_snapshot(one), lambda left: left is None)  # type: ignore[misc]
        name = snapshot["status"]["boundVolumeSnapshotContentName"]
        found = lab.content(name)
        assert found is not None
        lab.delete_content(found)
    path = "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/"
    lab.plane.request("DELETE", path + content["metadata"]["name"])
    lab.until(lambda: lab.group_content(group), lambda left: left is None)
    assert len(pool.records()) == 4

    name = f"{lab.unique}-again"
    ref = {"name": name, "namespace": "default"}
    there = {"volumeGroupSnapshotHandle": group_handle, "volumeSnapshotHandles": handles}
    lab.make_group_content(name, source={"groupSnapshotHandles": there}, volumeGroupSnapshotRef=ref)
    again = lab.group(name=name, volumeGroupSnapshotContentName=name)
    lab.group_ready(again)
    # Its snapshots are offered one by one, as a person knows them.
    first = {"snapshotHandle": handles[0]}
    lab.make_content(f"{name}-0", source=first, volumeSnapshotRef={**ref, "name": f"{name}-0"})
    one = lab.make_snapshot(f"{name}-0", source={"volumeSnapshotContentName": f"{name}-0"})
    lab.ready(one)
    told = lab.content(f"{name}-0")
    assert told is not None
    assert told["status"]["volumeGroupSnapshotHandle"] == group_handle
    assert lab.restored(one, claims[0]).is_dir()
    lab.take_group_away(again)
    lab.until(lambda: lab.group_content_named(name), lambda left: left is None)
    lab.until(lambda: [h for h in handles if f"{h}.json" in pool.records()], lambda left: not left)


def test_a_group_stays_while_another_namespace_is_offered_a_snapshot_of_it(lab: GroupLab) -> None:
    pool = lab.image_pool()
    lab.serve()
    lab.together(2)
    group = lab.group()
    lab.group_ready(group)
    content = lab.group_tidy(group)
    handle = content["status"]["volumeSnapshotInfoList"][0]["snapshotHandle"]
    name = f"{lab.unique}-given"
    ref = {"name": name, "namespace": "kube-system"}
    source = {"snapshotHandle": handle}
    given = lab.make_content(name, deletionPolicy="Retain", source=source, volumeSnapshotRef=ref)
    lab.until(lambda: lab.content(name), lambda one: one and "status" in one)
    lab.delete_group(group)
    text = f"{name} offers a snapshot of it elsewhere: delete that first"
    lab.event(content["metadata"]["name"], "GroupSnapshotDeleteError", text)
    assert len(pool.records()) == 4
    lab.delete_content(given)
    lab.until(lambda: lab.group_content(group), lambda left: left is None)
    lab.until(lambda: (len(pool.records()), pool.trash()), lambda left: left == (2, []))


def says_why(lab: GroupLab, text: str) -> None:
    """A group cannot be cut, and all who look for the reason find it; then it goes."""
    group = lab.group()
    lab.group_failing(group, text)
    # The error is final: nothing is under way that a deletion would have to wait for. While it is
    # tried again, something is for a moment.
    content = lab.until_group_content(
        group, lambda one: GROUP_BEING_CREATED not in one["metadata"].get("annotations", {})
    )
    assert text in content["status"]["error"]["message"]
    assert content["status"]["readyToUse"] is False
    assert "volumeGroupSnapshotHandle" not in content["status"]
    lab.event(content["metadata"]["name"], "GroupSnapshotCreationFailed", text)
    lab.until(
        lambda: lab.read_group(group),
        lambda found: found and text in found.get("status", {}).get("error", {}).get("message", ""),
    )
    lab.take_group_away(group)
    lab.until(lambda: lab.group_content(group), lambda left: left is None)


def test_volumes_in_two_pools_are_not_cut_together(lab: GroupLab) -> None:
    pools = [lab.image_pool(name) for name in ("fast", "slow")]
    lab.serve()
    for name in ("fast", "slow"):
        cls = lab.storage_class(f"of-{name}", provisioner=CSI, parameters={"pool": name})
        lab.made(lab.claim(cls, labels={"app": f"{lab.unique}-db"}))
    says_why(lab, f"they are in the pools fast, slow of node {lab.node}")
    assert [len(pool.records()) for pool in pools] == [1, 1]


@pytest.mark.needs("btrfs")
def test_a_backend_that_cuts_none_together_says_so(lab: GroupLab) -> None:
    pool = lab.copying_pool()
    lab.serve()
    lab.together(2)
    says_why(lab, "pool fast: btrfs cuts each subvolume at a moment of its own")
    assert len(pool.records()) == 2


def test_volumes_on_two_nodes_are_not_cut_together(
    lab: GroupLab, objects: Objects, unique: str, tmp_path: Path
) -> None:
    below = tmp_path / "second"
    below.mkdir()
    with group_lab_for(objects, f"{unique}b", below) as second:
        pools = [one.image_pool() for one in (lab, second)]
        for one in (lab, second):
            one.serve()
        for one in (lab, second):
            one.together(1, labels={"app": f"{lab.unique}-db"})
        says_why(lab, "the volumes of a group must be on one node")
        assert [len(pool.records()) for pool in pools] == [1, 1]
        second.stop()


def test_a_class_with_unknown_parameters_is_refused(lab: GroupLab) -> None:
    lab.image_pool()
    lab.serve()
    lab.together(1)
    cls = lab.group_class(parameters={"speed": "high"})
    group = lab.group(cls)
    lab.group_failing(group, f"VolumeGroupSnapshotClass {cls} has parameters that are not known")
    lab.take_group_away(group)
