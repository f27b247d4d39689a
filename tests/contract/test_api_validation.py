"""What may not be stored: the same objects refused for the same reasons."""

from typing import Any

import pytest

from tests.contract.support_api import (
    NAMESPACES,
    ApiUnderTest,
    Body,
    claim,
    pod,
    storage_class,
    volume,
)
from tests.suite.api import CLASSES, NODES, VOLUMES

LONG = "x" * 64


def meta(**fields: Any) -> Body:
    return {"metadata": {"name": "n", **fields}}


@pytest.mark.parametrize(
    ("body", "causes"),
    [
        ({"metadata": {}}, {("metadata.name", "Required")}),
        (meta(name="Upper"), {("metadata.name", "Invalid")}),
        (meta(name="-"), {("metadata.name", "Invalid")}),
        (meta(name="a_b"), {("metadata.name", "Invalid")}),
        (meta(name="a..b"), {("metadata.name", "Invalid")}),
        (meta(name="x" * 254), {("metadata.name", "Invalid")}),
        (meta(labels={"a b": ""}), {("metadata.labels", "Invalid")}),
        (meta(labels={"a": "b c"}), {("metadata.labels", "Invalid")}),
        (meta(labels={"a": LONG}), {("metadata.labels", "Invalid")}),
        (meta(labels={LONG: ""}), {("metadata.labels", "Invalid")}),
        (meta(labels={"A.b/c": ""}), {("metadata.labels", "Invalid")}),
        (meta(annotations={"a/b/c": ""}), {("metadata.annotations", "Invalid")}),
        (meta(annotations={"a": "x" * 262144}), {("metadata.annotations", "TooLong")}),
        (meta(finalizers=["plain"]), {("metadata.finalizers[0]", "Invalid")}),
        (
            meta(ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": "", "uid": ""}]),
            {
                ("metadata.ownerReferences.name", "Invalid"),
                ("metadata.ownerReferences.uid", "Invalid"),
            },
        ),
        (meta() | {"data": {"a b": "c"}}, {("data[a b]", "Invalid")}),
    ],
)
async def test_metadata(api: ApiUnderTest, body: Body, causes: set[tuple[str, str]]) -> None:
    answer = await api.post(api.config_maps, body, dryRun="All")
    assert answer.status == 422, answer.body
    assert answer.body["reason"] == "Invalid"
    assert answer.body["details"]["kind"] == "ConfigMap"
    assert answer.causes == {(field, f"FieldValue{rule}") for field, rule in causes}


@pytest.mark.parametrize(
    "body",
    [
        meta(name="a.b-c.d"),
        meta(name="0"),
        meta(labels={"example.com/Name_x.y": "", "x": "A.b_c-9"}),
        meta(annotations={"Example.com/x": "\n any text "}),
        meta(finalizers=["a.b/c", "a/b"]),
        meta() | {"data": {"Key.name_x-y": ""}},
    ],
)
async def test_metadata_that_is_fine(api: ApiUnderTest, body: Body) -> None:
    answer = await api.post(api.config_maps, body, dryRun="All")
    assert answer.status == 201, answer.body


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"capacity": {"storage": "0"}}, {("spec.capacity[storage]", "Invalid")}),
        ({"capacity": {}}, {("spec.capacity", "Required"), ("spec.capacity", "NotSupported")}),
        ({"accessModes": []}, {("spec.accessModes", "Required")}),
        ({"accessModes": ["Sometimes"]}, {("spec.accessModes", "NotSupported")}),
        (
            {"persistentVolumeReclaimPolicy": "Burn"},
            {("spec.persistentVolumeReclaimPolicy", "NotSupported")},
        ),
        ({"volumeMode": "Tape"}, {("spec.volumeMode", "NotSupported")}),
        ({"storageClassName": "A_b"}, {("spec.storageClassName", "Invalid")}),
        ({"local": {"path": ""}}, {("spec.local.path", "Required")}),
        ({"local": {"path": "/a/../b"}}, {("spec.local.path", "Invalid")}),
        ({"nodeAffinity": None}, {("spec.nodeAffinity", "Required")}),
        ({"local": None, "nodeAffinity": None}, {("spec", "Required")}),
        ({"hostPath": {"path": "/x"}}, {("spec.local", "Forbidden")}),
    ],
)
async def test_volumes(
    api: ApiUnderTest, spec: dict[str, Any], causes: set[tuple[str, str]]
) -> None:
    answer = await api.post(VOLUMES, volume(api.unique, **spec), dryRun="All")
    assert answer.status == 422, answer.body
    assert answer.causes == {(field, f"FieldValue{rule}") for field, rule in causes}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"local": {"path": "/other"}}, {("spec.persistentvolumesource", "Forbidden")}),
        ({"local": {"fsType": "xfs"}}, {("spec.persistentvolumesource", "Forbidden")}),
        ({"volumeMode": "Block"}, {("volumeMode", "Invalid")}),
        (
            {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": []}]}}},
            {("nodeAffinity", "Invalid")},
        ),
        ({"storageClassName": "other"}, None),
        ({"capacity": {"storage": "9Gi"}}, None),
        ({"persistentVolumeReclaimPolicy": "Delete"}, None),
        ({"mountOptions": ["noatime"]}, None),
        ({"accessModes": ["ReadOnlyMany"]}, None),
    ],
)
async def test_changes_of_volumes(
    api: ApiUnderTest, spec: dict[str, Any], causes: set[tuple[str, str]] | None
) -> None:
    await api.made(VOLUMES, volume(api.unique))
    answer = await api.patch(f"{VOLUMES}/{api.unique}", {"spec": spec})
    if causes is None:
        assert answer.status == 200, answer.body
        return
    assert answer.status == 422
    assert answer.causes == {(field, f"FieldValue{rule}") for field, rule in causes}


async def test_claims(api: ApiUnderTest) -> None:
    answer = await api.post(api.claims, {"metadata": {"name": api.unique}}, dryRun="All")
    assert answer.causes == {
        ("spec.accessModes", "FieldValueRequired"),
        ("spec.resources[storage]", "FieldValueRequired"),
    }
    await api.made(api.claims, claim(api.unique, api.unique))
    path = f"{api.claims}/{api.unique}"
    for spec in (
        {"storageClassName": "other"},
        {"resources": {"requests": {"storage": "2Gi"}}},
        {"accessModes": ["ReadOnlyMany"]},
    ):
        answer = await api.patch(path, {"spec": spec})
        assert (answer.status, answer.causes) == (422, {("spec", "FieldValueForbidden")})
    answer = await api.patch(path, {"spec": {"volumeMode": "Block"}})
    assert answer.causes == {("spec", "FieldValueForbidden"), ("volumeMode", "FieldValueInvalid")}
    assert (await api.patch(path, {"spec": {"volumeName": "first"}})).status == 200
    answer = await api.patch(path, {"spec": {"volumeName": "second"}})
    assert (answer.status, answer.causes) == (422, {("spec", "FieldValueForbidden")})


async def test_classes(api: ApiUnderTest) -> None:
    body = storage_class(api.unique, provisioner="")
    answer = await api.post(CLASSES, body, dryRun="All")
    assert answer.causes == {("provisioner", "FieldValueRequired")}
    assert answer.body["message"].startswith("StorageClass.storage.k8s.io ")
    body = storage_class(api.unique, reclaimPolicy="Burn", volumeBindingMode="Never")
    answer = await api.post(CLASSES, body, dryRun="All")
    assert {field for field, _ in answer.causes} == {"reclaimPolicy", "volumeBindingMode"}
    await api.made(CLASSES, storage_class(api.unique))
    changes = {
        "provisioner": "x/y",
        "parameters": {"a": "b"},
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    answer = await api.patch(f"{CLASSES}/{api.unique}", changes)
    assert answer.status == 422
    assert {field for field, _ in answer.causes} == set(changes)
    answer = await api.patch(f"{CLASSES}/{api.unique}", {"allowVolumeExpansion": True})
    assert answer.status == 200


async def test_events(api: ApiUnderTest) -> None:
    about = {"kind": "Node", "name": "x", "namespace": "elsewhere"}
    body = {"metadata": {"name": api.unique}, "involvedObject": about}
    answer = await api.post(api.events, body, dryRun="All")
    assert answer.causes == {("involvedObject.namespace", "FieldValueInvalid")}
    body["involvedObject"] = {"kind": "Node", "name": "x"}
    assert (await api.post(api.events, body, dryRun="All")).status == 201
    await api.own_namespace()
    answer = await api.post(api.events, body, dryRun="All")
    assert answer.causes == {("involvedObject.namespace", "FieldValueInvalid")}


async def test_names_of_namespaces_pods_and_jobs(api: ApiUnderTest) -> None:
    for name in ("a.b", LONG):
        answer = await api.post(NAMESPACES, {"metadata": {"name": name}}, dryRun="All")
        assert ("metadata.name", "FieldValueInvalid") in answer.causes
        # The label the server adds is too long as well.
        labels = ("metadata.labels", "FieldValueInvalid")
        assert (labels in answer.causes) == (name == LONG)
    body = pod(api.unique, containers=[])
    answer = await api.post(api.pods, body, dryRun="All")
    assert answer.causes == {("spec.containers", "FieldValueRequired")}
    jobs = api.namespaced("jobs", "batch")
    answer = await api.post(jobs, {"metadata": {"name": api.unique}, "spec": {}}, dryRun="All")
    assert answer.causes == {
        ("spec.template.spec.containers", "FieldValueRequired"),
        ("spec.template.spec.restartPolicy", "FieldValueRequired"),
    }
    answer = await api.post(NODES, {"metadata": {"name": "a_b"}}, dryRun="All")
    assert answer.causes == {("metadata.name", "FieldValueInvalid")}
