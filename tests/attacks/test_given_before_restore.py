"""A volume was given to another tenant, who has written to it; then etcd is set back to before. No
pod, snapshot or clone of the first tenant gets what the second has written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from tests.attacks.support_copies import records_in
from tests.attacks.support_etcd import Backup
from tests.attacks.support_given import SIZE, give_away, merge, written
from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_groups import GroupLab, group_lab_for
from tests.cluster.support_objects import Objects
from tests.suite.api import VOLUMES

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane", "snapshots")

GIVEN_BACK = "localvolume.dev/given-back"
THEIRS = "what the second tenant has written"


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path, controller: object) -> Iterator[GroupLab]:
    with group_lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def pool(lab: GroupLab) -> MadePool:
    return lab.image_pool()


def set_back(lab: GroupLab, pool: MadePool) -> tuple[Claim, str]:
    """The first tenant's claim, as etcd has it again, and the handle of its volume."""
    lab.serve()
    claim = lab.claimed(size=SIZE)
    handle = written(lab, claim)
    volume = f"persistentvolumes/{handle}"
    backup = Backup(
        lab.plane, volume, f"persistentvolumeclaims/default/{claim['metadata']['name']}"
    )
    other = give_away(lab, claim, handle, "kube-public")
    until_noted(lab, pool, handle, other)
    (lab.caller.use(handle) / "file").write_text(THEIRS)
    lab.caller.leave(handle)
    lab.stop()
    Backup(lab.plane, f"persistentvolumeclaims/kube-public/{other['metadata']['name']}").lose()
    backup.restore()
    lab.serve()
    return claim, handle


def until_noted(lab: GroupLab, pool: MadePool, handle: str, claim: Claim) -> None:
    """Wait until the pool has on record that the claim has the volume."""
    uid = claim["metadata"]["uid"]
    lab.until(lambda: records_in(pool.directory)[handle].given, lambda given: given[-1:] == (uid,))
    lab.settle()


def told(lab: GroupLab, handle: str) -> list[str]:
    events: list[dict[str, Any]] = lab.events(handle)
    return [one["message"] for one in events if one["reason"] == "VolumeKeptFromClaim"]


def test_no_pod_gets_it_until_an_administrator_says_so(lab: GroupLab, pool: MadePool) -> None:
    claim, handle = set_back(lab, pool)
    uid = claim["metadata"]["uid"]
    (text,) = lab.until(lambda: told(lab, handle), bool)
    assert f"annotate the PersistentVolume with {GIVEN_BACK}={uid}" in text
    # Also where it is staged still, as the other tenant's pod was not let end.
    for call, fields in (
        ("NodeStageVolume", lab.caller.to_stage(handle)),
        ("NodePublishVolume", lab.caller.to_publish(handle)),
    ):
        status, why = lab.caller.refused(call, **fields)
        assert status is Status.UNAVAILABLE
        assert f"{handle} is kept from its claim: it was given to another claim since" in why
    merge(lab, f"{VOLUMES}/{handle}", {"metadata": {"annotations": {GIVEN_BACK: "somebody"}}})
    lab.settle()
    assert lab.caller.refused("NodeStageVolume", **lab.caller.to_stage(handle))
    merge(lab, f"{VOLUMES}/{handle}", {"metadata": {"annotations": {GIVEN_BACK: uid}}})
    until_noted(lab, pool, handle, claim)
    assert (lab.caller.use(handle) / "file").read_text() == THEIRS


def test_nor_a_copy_of_it(lab: GroupLab, pool: MadePool) -> None:
    claim, handle = set_back(lab, pool)
    lab.failing(lab.snapshot(claim), f"no claim of namespace default has volume {handle} any more")
    source = {"kind": "PersistentVolumeClaim", "name": claim["metadata"]["name"]}
    clone = lab.claim(claim["spec"]["storageClassName"], size=SIZE, dataSource=source)
    why = f"volume {handle} is kept from its claim: it was given to another claim since"
    lab.until(
        lambda: any(why in one["message"] for one in lab.events(clone["metadata"]["name"])), bool
    )
    assert pool.records() == [f"{handle}.json"]
