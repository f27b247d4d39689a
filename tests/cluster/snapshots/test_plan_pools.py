"""`localvolume plan` of pools: what the agent then does is what it said, and it changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from localvolume.cli.main import main
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_dynamic import DynamicLab, MadePool
from tests.cluster.support_groups import GroupLab
from tests.cluster.support_snapshots import handle_of
from tests.suite.names import PROVISIONER
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

Row = dict[str, Any]
Planned = Callable[..., list[Row]]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The rows of a lab's plan."""

    def planned(lab: DynamicLab, *words: str) -> list[Row]:
        monkeypatch.setenv("KUBELET_DIR", str(getattr(lab, "kubelet", "none")))
        argv = ["plan", "--config", str(lab.config_directory), "--node", lab.node, "-o", "json"]
        if not words:
            argv += ["--kubeconfig", str(lab.plane.kubeconfig)]
        capsys.readouterr()
        assert main([*argv, *words]) == 0
        rows: list[Row] = json.loads(capsys.readouterr().out)
        return rows

    return planned


def state(pool: MadePool) -> list[tuple[str, float, int]]:
    """All that is in a pool, with the time of its last change."""
    found = [pool.directory, *sorted(pool.directory.rglob("*"))]
    return [(str(one), one.lstat().st_mtime, one.lstat().st_ino) for one in found]


def of(rows: list[Row], **wanted: str) -> Row:
    """The one row that says this."""
    found = [row for row in rows if wanted.items() <= row.items()]
    assert len(found) == 1, rows
    return found[0]


def name_of(thing: dict[str, Any]) -> str:
    return f"default/{thing['metadata']['name']}"


def test_each_pool_is_served_or_held_and_nothing_is_made(csi: CsiLab, plan: Planned) -> None:
    good = csi.csi_pool("good", backend="image", size=128 * MIB)
    other = csi.pool("other", backend="btrfs")
    csi.pool("unmounted", mounted=False, mustBeMounted=True)
    away = csi.pool("away", mounted=False)
    away.directory.rmdir()
    full = csi.csi_pool("full", backend="image", size=64 * MIB, reserve="1Gi")
    csi.configure()
    before = [state(one) for one in (good, other, full)]
    for words in (["--offline"], []):
        rows = plan(csi, *words)
        assert of(rows, pool="good", verdict="serve")["backend"] == "image"
        assert "sizes are kept by the size of each image" in of(rows, pool="good")["reason"]
        assert "the agent makes a pool of it" in of(rows, pool="good")["reason"]
        assert of(rows, pool="good")["roomBytes"] > 0
        assert "not btrfs" in of(rows, pool="other", verdict="hold")["reason"]
        assert "mustBeMounted" in of(rows, pool="unmounted", verdict="hold")["reason"]
        assert "No such file" in of(rows, pool="away", verdict="hold")["reason"]
        assert "no room" in of(rows, pool="full", verdict="hold")["reason"]
    assert [state(one) for one in (good, other, full)] == before


def test_what_is_said_of_claims_is_what_the_agent_then_does(csi: CsiLab, plan: Planned) -> None:
    pool = csi.csi_pool(backend="image", size=128 * MIB)
    csi.configure()
    cls = csi.storage_class()
    small, large = csi.claim(cls, size="16Mi"), csi.claim(cls, size="1Ti")
    for claim in (small, large):
        # Nobody is asked for its volume before kube-controller-manager says whom.
        csi.until(
            lambda claim=claim: csi.read_claim(claim),  # type: ignore[misc]
            lambda found: found and PROVISIONER in found["metadata"].get("annotations", {}),
        )
    before = state(pool)
    rows = plan(csi)
    row = of(rows, claim=name_of(small), verdict="make")
    assert (row["pool"], row["capacityBytes"], row["class"]) == ("fast", 16 * MIB, cls)
    assert "1Ti" in of(rows, claim=name_of(large), verdict="give back")["reason"]
    assert state(pool) == before
    csi.start()
    volume = csi.made(small)
    assert volume["metadata"]["name"] == row["persistentVolume"]
    csi.claim_event(large, "ProvisioningFailed", "1Ti")
    csi.stop()

    csi.grow(small, "32Mi")
    before = state(pool)
    row = of(plan(csi), claim=name_of(small))
    assert (row["verdict"], row["capacityBytes"]) == ("grow", 32 * MIB)
    assert state(pool) == before
    csi.delete(small)
    csi.until(lambda: csi.phase(volume["metadata"]["name"]), lambda one: one == "Released")
    row = of(plan(csi), persistentVolume=volume["metadata"]["name"])
    assert (row["verdict"], row["reason"]) == ("delete", "its claim is gone")
    assert f"/{volume['metadata']['name']}.img" in row["path"]
    assert state(pool) == before


@pytest.mark.needs("xfs")
def test_what_is_said_of_snapshots_and_copies_is_what_the_agent_then_does(
    lab: GroupLab, plan: Planned
) -> None:
    pool = lab.image_pool()
    program = lab.serve()
    source, (other,) = lab.claimed(size="16Mi"), lab.together(1)
    done = lab.ready(lab.snapshot(source))
    program.kill()
    lab.agent = None
    snapshot, group = lab.snapshot(source), lab.group()
    ref = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}
    source_of = {**ref, "name": done["metadata"]["name"]}
    cls = other["spec"]["storageClassName"]
    again = lab.claim(cls, size="16Mi", dataSource=source_of)
    content = lab.until(lambda: lab.content_of(snapshot), bool)
    of_group = lab.until(lambda: lab.group_content(group), bool)
    assert content is not None
    assert of_group is not None
    before = state(pool)
    rows = plan(lab)
    row = of(rows, snapshotContent=content["metadata"]["name"], verdict="cut")
    assert row["pool"] == "fast"
    assert (
        of(rows, groupSnapshotContent=of_group["metadata"]["name"], verdict="cut")["pool"] == "fast"
    )
    row = of(rows, claim=name_of(again), verdict="restore")
    assert row["sourceHandle"] == handle_of(lab.content_of(done))
    assert of(rows, claim=name_of(source))["verdict"] == "keep"
    assert state(pool) == before
