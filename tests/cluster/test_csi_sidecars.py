"""The stock sidecars at the agent's socket, in the place of what our own roles do.

A claim that nobody has routed to the node is none of the agent's, so only the sidecar serves it; no
more is a snapshot's content that says that it belongs to another node.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.cluster.support_snapshots import (
    Content,
    Snapshot,
    SnapshotLab,
    handle_of,
    kinds_of_snapshots,
    snapshot_controller,
    snapshot_lab_for,
    until_removed,
)
from tests.cluster.test_attributes import agrees, change, has, kind
from tests.suite import csitools
from tests.suite.conditions import conditions_of
from tests.suite.names import CSI, HOSTNAME, NODE_LABEL, PROVISIONED_BY, SELECTED
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane", "csi-sidecars")


@contextlib.contextmanager
def _sidecar(lab: CsiLab, name: str, *arguments: str) -> Iterator[Program]:
    """A sidecar beside the agent, as in the agent's pod."""
    argv = [str(csitools.provide(name)), f"--csi-address={lab.socket}", "--v=4", *arguments]
    argv += [f"--kubeconfig={lab.plane.kubeconfig}"]
    program = Program(argv, {"NODE_NAME": lab.node}, lab.directory / f"{name}.log")
    try:
        yield program
        program.check()
    finally:
        program.stop()


@contextlib.contextmanager
def _provisioner(lab: CsiLab) -> Iterator[Program]:
    with _sidecar(lab, "csi-provisioner", "--node-deployment", "--strict-topology") as program:
        yield program


@pytest.fixture
def pool(csi: CsiLab) -> MadePool:
    return csi.csi_pool(backend="image", size=512 * MIB)


def _claim(lab: CsiLab, class_name: str) -> Claim:
    """A claim whose pod the scheduler has put on the node."""
    return lab.claim(class_name, size="32Mi", node=None, annotations={SELECTED: lab.node})


def test_external_provisioner_makes_a_volume_and_removes_it(csi: CsiLab, pool: MadePool) -> None:
    cls = csi.storage_class(provisioner=CSI, waits=True)
    csi.serve()
    with _provisioner(csi):
        claim = _claim(csi, cls)
        volume = csi.made(claim)
        found = csi.read_claim(claim)
        assert found is not None
        assert NODE_LABEL not in found["metadata"].get("labels", {})
        source, name = volume["spec"]["csi"], f"pvc-{claim['metadata']['uid']}"
        assert (source["driver"], source["volumeHandle"]) == (CSI, name)
        # Of ours it has no attributes; this one tells who made the object.
        assert [*source["volumeAttributes"]] == ["storage.kubernetes.io/csiProvisionerIdentity"]
        assert volume["metadata"]["annotations"][PROVISIONED_BY] == CSI
        assert volume["spec"]["capacity"] == {"storage": "32Mi"}
        term = {"key": HOSTNAME, "operator": "In", "values": [csi.node]}
        required = volume["spec"]["nodeAffinity"]["required"]
        assert required == {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        assert [record for record in pool.records() if name in record]
        csi.settle()
        assert [record for record in pool.records() if name in record]
        csi.delete(claim)
        csi.gone(volume)
        csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


@pytest.mark.needs("throttling")
def test_external_resizer_modifies_a_volume(csi: CsiLab, pool: MadePool) -> None:
    cls = csi.storage_class(provisioner=CSI, waits=True)
    slow = kind(csi, "slow", {"writeBytesPerSecond": "20Mi"})
    bad = kind(csi, "bad", {"iops": "5"})
    csi.serve("--cgroup-dir=/sys/fs/cgroup")
    with _provisioner(csi), _sidecar(csi, "csi-resizer"):
        claim = _claim(csi, cls)
        volume = csi.made(claim)
        change(csi, claim, slow)
        agrees(csi, claim, slow)
        (name,) = pool.records()
        record = pool.directory / ".localvolume/records" / name
        assert json.loads(record.read_text())["record"]["attributes"] == {"write_bytes": 20 * MIB}
        change(csi, claim, bad)
        csi.claim_event(claim, "VolumeModifyFailed", "parameter iops is not known")
        infeasible = {"targetVolumeAttributesClassName": bad, "status": "Infeasible"}
        csi.until(lambda: has(csi, claim)[2], lambda found: found == infeasible)
        csi.delete(claim)
        csi.gone(volume)
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


def test_external_resizer_grows_a_volume(csi: CsiLab, pool: MadePool) -> None:
    cls = csi.storage_class(provisioner=CSI, waits=True)
    csi.serve()
    with _provisioner(csi), _sidecar(csi, "csi-resizer"):
        claim = _claim(csi, cls)
        volume = csi.made(claim)
        csi.grow(claim, "64Mi")
        grown = csi.until(
            lambda: csi.read_claim(claim),
            lambda found: found and found["status"]["capacity"] == {"storage": "64Mi"},
        )
        assert grown is not None
        assert not conditions_of(grown)
        found = csi.volume(volume["metadata"]["name"])
        assert found is not None
        assert found["spec"]["capacity"] == {"storage": "64Mi"}
        csi.delete(claim)
        csi.gone(volume)
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


@pytest.fixture
def snapshots(
    control_plane: ControlPlane, objects: Objects, unique: str, tmp_path: Path
) -> Iterator[SnapshotLab]:
    """A lab in a cluster that knows snapshots, and has nobody yet who sees to them."""
    with (
        kinds_of_snapshots(control_plane),
        snapshot_lab_for(objects, unique, tmp_path) as lab,
    ):
        yield lab


def _content_for(lab: SnapshotLab, snapshot: Snapshot, volume: str, **marks: str) -> Content:
    """What the snapshot-controller would make for it, with these annotations."""
    meta = snapshot["metadata"]
    return lab.make_content(
        f"snapcontent-{meta['uid']}",
        annotations=marks,
        volumeSnapshotClassName=snapshot["spec"]["volumeSnapshotClassName"],
        source={"volumeHandle": volume},
        volumeSnapshotRef={key: meta[key] for key in ("name", "namespace", "uid")},
    )


@pytest.mark.needs("btrfs", "snapshots")
def test_external_snapshotter_cuts_a_snapshot_and_removes_it(snapshots: SnapshotLab) -> None:
    lab = snapshots
    pool = lab.copying_pool()
    lab.serve()
    claim = lab.claimed(size="16Mi")
    volume = lab.made(claim)["spec"]["csi"]["volumeHandle"]
    (pool.directory / volume / "file").write_text("before")
    made, ours = lab.snapshot(claim), lab.snapshot(claim)
    name = _content_for(lab, made, volume, **{NODE_LABEL: "elsewhere"})["metadata"]["name"]
    # The agent serves what is asked for later: it has seen the other, and left it alone.
    _content_for(lab, ours, volume)
    own = handle_of(lab.until_content(ours, lambda one: one.get("status", {}).get("readyToUse")))
    assert sorted(pool.records()) == sorted([f"{volume}.json", f"{own}.json"])
    with (
        snapshot_controller(lab.plane, lab.directory),
        _sidecar(lab, "csi-snapshotter"),
    ):
        snapshot = lab.ready(made)
        assert snapshot["status"]["boundVolumeSnapshotContentName"] == name
        assert snapshot["status"]["restoreSize"] == "16Mi"
        found = lab.content(name)
        assert found is not None
        assert found["metadata"]["annotations"][NODE_LABEL] == "elsewhere"
        handle = handle_of(found)
        assert f"{handle}.json" in pool.records()
        assert (pool.directory / handle / "file").read_text() == "before"
        lab.take_away(snapshot)
        lab.until(lambda: lab.content(name), lambda left: left is None)
        until_removed(lab, pool, handle)
        assert sorted(pool.records()) == sorted([f"{volume}.json", f"{own}.json"])
