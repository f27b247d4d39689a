"""A volume was given to another tenant, who has written to it; then etcd is set back to before. No
pod, snapshot or clone of the first tenant gets what the second has written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from grpclib.const import Status

from tests.attacks.support_copies import records_in
from tests.attacks.support_etcd import Backup
from tests.attacks.support_given import (
    SECRET,
    SIZE,
    give_away,
    kept_for_its_name,
    merge,
    of_accomplice,
    write,
    written,
)
from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_groups import GroupLab, group_lab_for
from tests.cluster.support_objects import Objects
from tests.host.support_devices import immutable
from tests.suite.api import VOLUMES

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane", "snapshots")

GENERATION = "localvolume.dev/generation"
THEIRS = "what the second tenant has written"
KEPT = "is kept from its claim: its pool remembers claims that had it since"


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path, controller: object) -> Iterator[GroupLab]:
    with group_lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def pool(lab: GroupLab) -> MadePool:
    return lab.image_pool()


def stored(claim: Claim) -> str:
    meta = claim["metadata"]
    return f"persistentvolumeclaims/{meta['namespace']}/{meta['name']}"


def begun(lab: GroupLab) -> tuple[Claim, str]:
    """The first tenant's claim, and the handle of its volume."""
    lab.serve()
    claim = lab.claimed(size=SIZE)
    return claim, written(lab, claim)


def given(lab: GroupLab, pool: MadePool, claim: Claim, handle: str, text: str = THEIRS) -> Claim:
    """The claim of another tenant that the volume is given to, and that writes to it."""
    other = give_away(lab, claim, handle, "kube-public")
    until_noted(lab, pool, handle, other)
    write(lab, handle, text)
    return other


def until_noted(lab: GroupLab, pool: MadePool, handle: str, claim: Claim) -> None:
    """Wait until the pool has on record that the claim has the volume."""
    uid = claim["metadata"]["uid"]
    lab.until(lambda: on_record(pool, handle)[-1:], lambda last: last == (uid,))
    lab.settle()


def on_record(pool: MadePool, handle: str) -> tuple[str, ...]:
    found: tuple[str, ...] = records_in(pool.directory)[handle].given
    return found


def set_back(lab: GroupLab, backup: Backup, other: Claim) -> None:
    """etcd is as it was: the other tenant's claim was made after that."""
    lab.stop()
    Backup(lab.plane, stored(other)).lose()
    backup.restore()
    lab.serve()


def given_and_set_back(lab: GroupLab, pool: MadePool) -> tuple[Claim, str]:
    claim, handle = begun(lab)
    backup = Backup(lab.plane, f"persistentvolumes/{handle}", stored(claim))
    set_back(lab, backup, given(lab, pool, claim, handle))
    return claim, handle


def is_refused(lab: GroupLab, handle: str, why: str = KEPT) -> None:
    for call, fields in (
        ("NodeStageVolume", lab.caller.to_stage(handle)),
        ("NodePublishVolume", lab.caller.to_publish(handle)),
    ):
        status, text = lab.caller.refused(call, **fields)
        assert status is Status.UNAVAILABLE, text
        assert f"{handle} {why}" in text


def says(lab: GroupLab, handle: str, generation: int) -> None:
    notes = {"annotations": {GENERATION: str(generation)}}
    merge(lab, f"{VOLUMES}/{handle}", {"metadata": notes})


def told(lab: GroupLab, handle: str) -> set[str]:
    found = [one for one in lab.events(handle) if one["reason"] == "VolumeKeptFromClaim"]
    return {one["message"] for one in found}


def taken_back(lab: GroupLab, handle: str) -> list[str]:
    """What was said when it was no longer kept."""
    found = [one for one in lab.events(handle) if one["reason"] == "VolumePutRight"]
    return [one["message"] for one in found]


def test_no_pod_gets_it_until_an_administrator_says_so(lab: GroupLab, pool: MadePool) -> None:
    claim, handle = given_and_set_back(lab, pool)
    (text,) = lab.until(lambda: told(lab, handle), bool)
    assert text.endswith(f"annotate the PersistentVolume with {GENERATION}=1")
    is_refused(lab, handle)
    lab.settle()
    assert taken_back(lab, handle) == []
    says(lab, handle, 1)
    until_noted(lab, pool, handle, claim)
    assert (lab.caller.use(handle) / "file").read_text() == THEIRS
    lab.until(lambda: taken_back(lab, handle), lambda found: len(found) == 1)


def test_what_an_administrator_has_said_does_not_count_after_another_restore(
    lab: GroupLab, pool: MadePool
) -> None:
    claim, handle = given_and_set_back(lab, pool)
    says(lab, handle, 1)
    until_noted(lab, pool, handle, claim)
    backup = Backup(lab.plane, f"persistentvolumes/{handle}", stored(claim))
    set_back(lab, backup, given(lab, pool, claim, handle, "of the third"))
    is_refused(lab, handle)


def test_nor_the_next_claim_of_its_name(lab: GroupLab, pool: MadePool) -> None:
    """What etcd is set back to names nobody: the removal was undone then."""
    claim, handle = begun(lab)
    kept_for_its_name(lab, claim, handle)
    lab.until(lambda: on_record(pool, handle), bool)
    backup = Backup(lab.plane, f"persistentvolumes/{handle}")
    cls = claim["spec"]["storageClassName"]
    other = of_accomplice(lab, cls, "theirs", "kube-public", volumeName=handle)
    names(lab, handle, other)
    until_noted(lab, pool, handle, other)
    write(lab, handle, THEIRS)
    set_back(lab, backup, other)
    again = of_accomplice(lab, cls, "again", volumeName=handle)
    names(lab, handle, again)
    is_refused(lab, handle)
    assert on_record(pool, handle)[-1] == other["metadata"]["uid"]


def names(lab: GroupLab, handle: str, claim: Claim) -> None:
    """Have the PersistentVolume name the claim, and wait until that has it."""
    meta = claim["metadata"]
    ref = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    merge(lab, f"{VOLUMES}/{handle}", {"spec": {"claimRef": {**ref, "resourceVersion": None}}})
    lab.until(lambda: lab.phase(handle), lambda phase: phase == "Bound")


def test_nobody_gets_it_while_it_cannot_be_noted(lab: GroupLab, pool: MadePool) -> None:
    """Else the pool would not remember who has written there."""
    claim, handle = begun(lab)
    with immutable(pool.directory / ".localvolume" / "records"):
        other = give_away(lab, claim, handle, "kube-public")
        (text,) = lab.until(lambda: told(lab, handle), bool)
        assert "its pool cannot note which claim has it now, so pods wait" in text
        is_refused(lab, handle, "has another claim is not noted in its pool yet")
        assert taken_back(lab, handle) == []
    until_noted(lab, pool, handle, other)
    assert (lab.caller.use(handle) / "file").read_text() == SECRET
    lab.until(lambda: taken_back(lab, handle), lambda found: len(found) == 1)


@pytest.mark.parametrize("several", [False, True])
def test_an_object_that_is_made_anew_needs_an_administrators_word(
    lab: GroupLab, pool: MadePool, several: bool
) -> None:
    """As by a backup tool: it has another UID, and so has its claim."""
    claim, handle = begun(lab)
    cls, text = claim["spec"]["storageClassName"], SECRET
    if several:
        claim, text = given(lab, pool, claim, handle), THEIRS
    before = lab.volume(handle)
    assert before is not None
    Backup(lab.plane, f"persistentvolumes/{handle}", stored(claim)).lose()
    again = of_accomplice(lab, cls, "again", "kube-public", volumeName=handle)
    meta = {key: before["metadata"][key] for key in ("name", "labels", "annotations", "finalizers")}
    lab.plane.request("POST", VOLUMES, {"metadata": meta, "spec": before["spec"]})
    names(lab, handle, again)
    (said,) = lab.until(lambda: told(lab, handle), bool)
    is_refused(lab, handle, "is kept from its claim: it is another object than its pool has")
    says(lab, handle, int(said.rpartition("=")[2]))
    until_noted(lab, pool, handle, again)
    assert (lab.caller.use(handle) / "file").read_text() == text


def test_what_only_the_object_says_is_not_said_twice(lab: GroupLab, pool: MadePool) -> None:
    """The pool could not note one tenant's claim, and the next one is given it at once."""
    claim, handle = begun(lab)
    with immutable(pool.directory / ".localvolume" / "records"):
        other = give_away(lab, claim, handle, "kube-public")
        lab.until(lambda: told(lab, handle), bool)
        lab.stop()
    backup = Backup(lab.plane, f"persistentvolumes/{handle}", stored(other))
    third = of_accomplice(lab, claim["spec"]["storageClassName"], "third", volumeName=handle)
    names(lab, handle, third)
    lab.serve()
    until_noted(lab, pool, handle, third)
    write(lab, handle, THEIRS)
    set_back(lab, backup, third)
    is_refused(lab, handle)


def test_nor_a_copy_of_it(lab: GroupLab, pool: MadePool) -> None:
    claim, handle = given_and_set_back(lab, pool)
    lab.failing(lab.snapshot(claim), f"volume {handle} {KEPT}")
    source = {"kind": "PersistentVolumeClaim", "name": claim["metadata"]["name"]}
    clone = lab.claim(claim["spec"]["storageClassName"], size=SIZE, dataSource=source)
    lab.event(clone["metadata"]["name"], "ProvisioningFailed", f"volume {handle} {KEPT}")
    # The stock sidecars name no namespace.
    status, why = lab.caller.refused("CreateSnapshot", name="cut", source_volume_id=handle)
    assert (status, f"volume {handle} {KEPT}" in why) == (Status.UNAVAILABLE, True), why
    content = {"volume": {"volume_id": handle}}
    wanted = lab.caller.wanted("pvc-copy", 16 << 20)
    status, why = lab.caller.refused("CreateVolume", volume_content_source=content, **wanted)
    assert (status, f"volume {handle} {KEPT}" in why) == (Status.UNAVAILABLE, True), why
    assert pool.records() == [f"{handle}.json"]
