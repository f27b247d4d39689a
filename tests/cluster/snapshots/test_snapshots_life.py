"""Snapshots from the VolumeSnapshot to the pool and back, with the real snapshot-controller."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.support_dynamic import MadePool
from tests.cluster.support_snapshots import (
    BEING_CREATED,
    SnapshotLab,
    handle_of,
    until_removed,
)
from tests.suite.names import NODE_LABEL
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "btrfs", "controlplane", "snapshots")


def inside(pool: MadePool, name: str) -> Path:
    return pool.directory / name


def test_a_snapshot_is_cut_and_removed_with_its_object(lab: SnapshotLab) -> None:
    pool = lab.copying_pool()
    lab.serve()
    claim = lab.claimed(size="16Mi")
    volume = lab.made(claim)["spec"]["csi"]["volumeHandle"]
    (inside(pool, volume) / "file").write_text("before")
    before = time.time_ns()
    snapshot = lab.ready(lab.snapshot(claim))
    (inside(pool, volume) / "file").write_text("after")
    assert snapshot["status"]["restoreSize"] == "16Mi"
    assert "error" not in snapshot["status"]
    content = lab.until_content(
        snapshot, lambda one: BEING_CREATED not in one["metadata"].get("annotations", {})
    )
    assert content["metadata"]["annotations"][NODE_LABEL] == lab.node
    status, handle = content["status"], handle_of(content)
    assert (status["readyToUse"], status["restoreSize"]) == (True, 16 * MIB)
    assert before < status["creationTime"] < time.time_ns()
    assert sorted(pool.records()) == sorted([f"{volume}.json", f"{handle}.json"])
    assert (inside(pool, handle) / "file").read_text() == "before"
    states = "localvolume_snapshot_contents"
    lab.until(lambda: lab.metric(states, state="ready"), lambda count: count == 1)
    lab.take_away(snapshot)
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)
    until_removed(lab, pool, handle)
    assert pool.records() == [f"{volume}.json"]


def test_a_retained_snapshot_stays_and_is_offered_again_by_its_handle(lab: SnapshotLab) -> None:
    pool = lab.copying_pool()
    lab.serve()
    claim = lab.claimed()
    snapshot = lab.ready(lab.snapshot(claim, lab.snapshot_class("Retain")))
    content = lab.content_of(snapshot)
    assert content is not None
    handle, cut_at = handle_of(content), content["status"]["creationTime"]
    lab.take_away(snapshot)
    # The snapshot-controller keeps the content; a person deletes it.
    lab.delete_content(content)
    assert f"{handle}.json" in pool.records()

    name = f"{lab.unique}-again"
    ref = {"name": name, "namespace": "default"}
    lab.make_content(name, source={"snapshotHandle": handle}, volumeSnapshotRef=ref)
    again = lab.make_snapshot(name, source={"volumeSnapshotContentName": name})
    assert lab.ready(again)["status"]["restoreSize"] == "8Mi"
    found = lab.content(name)
    assert found is not None
    assert (handle_of(found), found["status"]["creationTime"]) == (handle, cut_at)
    assert found["metadata"]["annotations"][NODE_LABEL] == lab.node
    lab.take_away(again)
    lab.until(lambda: lab.content(name), lambda left: left is None)
    until_removed(lab, pool, handle)


def test_a_snapshot_outlives_its_volume(lab: SnapshotLab) -> None:
    pool = lab.copying_pool()
    lab.serve()
    claim = lab.claimed()
    volume = lab.made(claim)
    handle = volume["spec"]["csi"]["volumeHandle"]
    (inside(pool, handle) / "file").write_text("kept")
    snapshot = lab.ready(lab.snapshot(claim))
    lab.delete(claim)
    lab.gone(volume)
    cut = handle_of(lab.content_of(snapshot))
    lab.until(pool.records, lambda names: names == [f"{cut}.json"])
    assert (inside(pool, cut) / "file").read_text() == "kept"
    lab.take_away(snapshot)
    lab.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


def test_a_snapshot_that_another_content_stands_for_is_not_removed(lab: SnapshotLab) -> None:
    pool = lab.copying_pool()
    lab.serve()
    snapshot = lab.ready(lab.snapshot(lab.claimed()))
    handle = handle_of(lab.content_of(snapshot))
    name = f"{lab.unique}-second"
    ref = {"name": name, "namespace": "default"}
    second = lab.make_content(name, source={"snapshotHandle": handle}, volumeSnapshotRef=ref)
    lab.until(lambda: lab.content(name), lambda one: one and one.get("status"))
    lab.delete_content(second)
    assert f"{handle}.json" in pool.records()
    lab.take_away(snapshot)
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)
    until_removed(lab, pool, handle)


def test_what_a_backend_cannot_is_said_on_the_content_and_the_snapshot(lab: SnapshotLab) -> None:
    lab.csi_pool(backend="directory")
    lab.serve()
    snapshot = lab.snapshot(lab.claimed())
    lab.failing(snapshot, "pool fast: ")
    # The error is final: nothing is under way that a deletion would have to wait for. While it is
    # tried again, something is for a moment.
    content = lab.until_content(
        snapshot, lambda one: BEING_CREATED not in one["metadata"].get("annotations", {})
    )
    assert content["status"]["readyToUse"] is False
    assert "snapshotHandle" not in content["status"]
    why = content["status"]["error"]["message"]
    assert "pool fast: " in why
    lab.event(content["metadata"]["name"], "SnapshotCreationFailed", why)
    lab.until(
        lambda: lab.read_snapshot(snapshot),
        lambda found: found and why in found.get("status", {}).get("error", {}).get("message", ""),
    )
    lab.take_away(snapshot)
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)


def test_a_class_with_unknown_parameters_is_refused_until_it_is_mended(lab: SnapshotLab) -> None:
    lab.copying_pool()
    lab.serve()
    cls = lab.snapshot_class(parameters={"speed": "high"})
    snapshot = lab.snapshot(lab.claimed(), cls)
    lab.failing(snapshot, f"VolumeSnapshotClass {cls} has parameters that are not known: speed")
    lab.change_class(cls, {"parameters": None})
    lab.ready(snapshot)
    content = lab.content_of(snapshot)
    assert content is not None
    assert "error" not in content["status"]


def test_a_handle_that_is_nowhere_is_nobodys(lab: SnapshotLab) -> None:
    lab.copying_pool()
    lab.serve()
    name = f"{lab.unique}-nowhere"
    ref = {"name": name, "namespace": "default"}
    made = lab.make_content(name, source={"snapshotHandle": "nowhere"}, volumeSnapshotRef=ref)
    # What is made later is done, and so it has been looked at.
    lab.ready(lab.snapshot(lab.claimed()))
    found = lab.content(name)
    assert found is not None
    assert "status" not in found
    assert NODE_LABEL not in found["metadata"].get("annotations", {})
    # It is let go by whoever sees that nothing can go with it.
    lab.patch_content(made, {"spec": {"deletionPolicy": "Retain"}})
    lab.delete_content(made)
