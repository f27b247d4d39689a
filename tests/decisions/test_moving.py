"""The next step of `localvolume move-to-csi` for one volume, what it refuses, and what it makes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from localvolume.cli.moving.model import PROTECTION, Facts, Former, replacement
from localvolume.cli.moving.plan import next_step
from localvolume.kube.objects import CSISource, OwnerReference, PersistentVolume
from localvolume.volumes import marks
from tests.decisions.support_dynamic import NODE, bound, claim, volume

SERVING = frozenset({NODE.name})
BOTH = (marks.FINALIZER, PROTECTION)


def former(one: PersistentVolume) -> Former:
    return Former(one, msgspec.json.decode(msgspec.json.encode(one)))


def facts(one: PersistentVolume | None = None, **fields: Any) -> Facts:
    """Everything is as it should be, unless a test says otherwise."""
    given = {"volume": one, "claim": bound(), "serving": SERVING, **fields}
    return Facts(name="pvc-1", **given)


def begun(one: PersistentVolume) -> PersistentVolume:
    """After the command has set Retain."""
    notes = {**one.metadata.annotations, marks.MOVING_ANNOTATION: "Delete"}
    return replace(one, metadata=replace(one.metadata, annotations=notes))


def for_driver(one: PersistentVolume, moved: bool) -> PersistentVolume:
    notes = {**one.metadata.annotations, **({marks.MOVED_ANNOTATION: "x"} if moved else {})}
    csi = CSISource(driver=marks.CSI_DRIVER, volume_handle="pvc-1")
    return replace(
        one,
        metadata=replace(one.metadata, annotations=notes),
        spec=replace(one.spec, local=None, csi=csi),
    )


def test_the_steps_in_their_order() -> None:
    was = volume(finalizers=BOTH)
    kept = former(was)
    retained = begun(volume(finalizers=BOTH, policy="Retain"))
    going = begun(volume(finalizers=BOTH, policy="Retain", deleted=True))
    assert next_step(facts(was)).kind == "keep"
    assert next_step(facts(was, former=kept)).kind == "retain"
    assert next_step(facts(retained, former=kept)).kind == "delete"
    assert next_step(facts(going, former=kept)).kind == "let go"
    create = next_step(facts(former=kept))
    assert (create.kind, create.policy) == ("create", "Delete")
    assert next_step(facts(for_driver(was, moved=True), former=kept)).kind == "wait"
    assert next_step(facts(for_driver(was, moved=False), former=kept)).kind == "forget"
    assert next_step(facts(for_driver(was, moved=False))).kind == "done"


def test_what_people_changed_since_is_written_down_anew() -> None:
    """Or the new object would undo what somebody did to save the data."""
    kept = former(volume(finalizers=BOTH))
    saved = volume(finalizers=BOTH, policy="Retain")
    assert next_step(facts(saved, former=kept)).kind == "keep"
    assert next_step(facts(saved, former=former(saved))).kind == "delete"
    assert next_step(facts(former=former(saved))).policy == "Retain"
    ours = begun(saved)
    grown = replace(ours, spec=replace(ours.spec, capacity={"storage": "2Gi"}))
    assert next_step(facts(ours, former=kept)).kind == "delete"
    assert next_step(facts(grown, former=kept)).kind == "keep"
    assert next_step(facts(former=former(grown))).policy == "Delete"
    assert marks.MOVING_ANNOTATION not in str(replacement(former(grown), "Delete"))


@pytest.mark.parametrize("deleted", [True, False])
def test_a_policy_that_a_person_sets_meanwhile_is_the_new_objects(deleted: bool) -> None:
    """Also on an object that goes already; who takes the note of the former policy away says so."""
    kept = former(volume(finalizers=BOTH))
    saved = volume(finalizers=BOTH, policy="Retain", deleted=deleted)
    notes = {**saved.metadata.annotations, marks.MOVING_ANNOTATION: "Retain"}
    for one in (saved, replace(saved, metadata=replace(saved.metadata, annotations=notes))):
        assert next_step(facts(one, former=kept)).kind == "keep"
        assert next_step(facts(one, former=former(one))).kind in ("delete", "let go")
        assert next_step(facts(former=former(one))).policy == "Retain"
    ours = begun(saved)
    assert next_step(facts(ours, former=kept)).kind == ("let go" if deleted else "delete")


def test_the_policy_is_what_it_was() -> None:
    kept = former(volume(policy="Retain"))
    assert next_step(facts(former=kept)).policy == "Retain"


@pytest.mark.parametrize("gone", [None, bound(deleted=True)], ids=["gone", "going"])
def test_without_its_claim_the_data_is_kept(gone: Any) -> None:
    step = next_step(facts(former=former(volume()), claim=gone))
    assert (step.kind, step.policy) == ("create", "Retain")


WRONG: list[Any] = [
    pytest.param(volume(provisioner="x.y"), {}, "not made by dynamic", id="another-provisioner"),
    pytest.param(volume(pool=None), {}, "not made by dynamic", id="adopted"),
    pytest.param(volume(host_path=True), {}, "not of the kind local", id="host-path"),
    pytest.param(volume(finalizers=("a/b",)), {}, "the finalizer a/b", id="finalizer"),
    pytest.param(volume(claim_uid=None), {}, "no claim has it", id="no-claim"),
    pytest.param(volume(phase="Released"), {}, "it is Released", id="released"),
    pytest.param(volume(), {"claim": None}, "its claim is gone", id="claim-gone"),
    pytest.param(volume(), {"claim": bound(deleted=True)}, "being deleted", id="claim-going"),
    pytest.param(volume(), {"claim": claim()}, "its claim names the volume ''", id="not-bound"),
    pytest.param(volume(), {"pods": ("a", "b")}, "use its claim: a, b", id="pods"),
    pytest.param(volume(), {"serving": frozenset({"x"})}, "does not know", id="no-driver"),
]


@pytest.mark.parametrize(("one", "changes", "why"), WRONG)
def test_what_is_refused(one: PersistentVolume, changes: dict[str, Any], why: str) -> None:
    step = next_step(facts(one, **changes))
    assert step.kind == "refuse"
    assert why in step.reason


def test_a_pod_s_own_claim() -> None:
    own = bound()
    owner = OwnerReference(kind="Pod", name="p", uid="1")
    own = replace(own, metadata=replace(own.metadata, owner_references=(owner,)))
    assert "a pod's own" in next_step(facts(volume(), claim=own)).reason


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("mount_options", ("bind",), "its mount options"),
        ("access_modes", ("ReadWriteMany",), "the access mode ReadWriteMany"),
    ],
)
def test_what_the_driver_would_refuse(field: str, value: Any, why: str) -> None:
    one = volume()
    one = replace(one, spec=replace(one.spec, **{field: value}))
    reason = next_step(facts(one)).reason
    assert why in reason
    assert "is begun" not in reason


def test_a_device_has_no_mount_options() -> None:
    one = volume()
    for mode, kind in (("Block", "keep"), ("Filesystem", "refuse")):
        spec = replace(one.spec, mount_options=("bind",), volume_mode=mode)
        assert next_step(facts(replace(one, spec=spec))).kind == kind


def test_an_unlabelled_one() -> None:
    one = volume()
    one = replace(one, metadata=replace(one.metadata, labels={}))
    assert "no label localvolume.dev/node" in next_step(facts(one)).reason


def test_it_is_begun_and_a_pod_came() -> None:
    step = next_step(facts(volume(deleted=True), former=former(volume()), pods=("a",)))
    assert step.kind == "refuse"
    assert step.reason.endswith("goes on when you run this again")


@pytest.mark.parametrize(
    "other", [volume(pool="fast/id-of-another-node"), volume(claim_uid="9"), volume(claim_uid=None)]
)
@pytest.mark.parametrize("moved", [True, False])
def test_an_object_that_somebody_made_meanwhile(other: PersistentVolume, moved: bool) -> None:
    """An agent of another node may offer a volume of its own to any claim, by this name too."""
    step = next_step(facts(for_driver(other, moved=moved), former=former(volume())))
    assert step.kind == "refuse"
    assert "object of another volume" in step.reason


def test_what_was_kept_is_of_another() -> None:
    step = next_step(facts(volume(uid="second"), former=former(volume())))
    assert (step.kind, step.reason.split()[-1]) == ("refuse", "name")
    assert next_step(facts()).reason == "there is no such PersistentVolume"


@pytest.mark.parametrize("was", [volume(host_path=True), volume(2), volume(provisioner="x.y")])
def test_what_was_kept_is_nothing_that_is_made_anew(was: PersistentVolume) -> None:
    """Who may write ConfigMaps there has no object made for them."""
    assert next_step(facts(former=former(was))).kind == "refuse"


def test_the_new_object_has_another_source_and_nothing_else_of_what_was_kept() -> None:
    was = volume(annotations={"team": "red"})
    body = msgspec.json.decode(msgspec.json.encode(was))
    body["spec"]["hostPath"] = {"path": "/"}
    body["spec"]["csi"] = {"driver": "x.y", "nodeStageSecretRef": {"name": "s"}}
    body["metadata"]["ownerReferences"] = [{"kind": "Node"}]
    made = replacement(Former(was, body), "Retain")
    assert made["spec"].keys() == {
        *("capacity", "storageClassName", "nodeAffinity", "persistentVolumeReclaimPolicy"),
        *("claimRef", "csi"),
    }
    assert made["spec"]["csi"]["driver"] == marks.CSI_DRIVER
    assert made["spec"]["csi"].keys() == {"driver", "volumeHandle", "volumeAttributes"}
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert made["spec"]["claimRef"]["uid"] == "1"
    notes = made["metadata"]["annotations"]
    assert notes["team"] == "red"
    assert notes[marks.MOVED_ANNOTATION] == "volume-1"
    assert notes[marks.PROVISIONED_BY_ANNOTATION] == marks.CSI_DRIVER
    assert made["metadata"].keys() == {"name", "labels", "annotations", "finalizers"}
