"""Merge, JSON, strategic merge and apply patches."""

import pytest

from tests.contract.support_api import APPLY, JSON_PATCH, STRATEGIC, ApiUnderTest, Body, volume
from tests.suite.api import MERGE, NODES, VOLUMES


async def made(api: ApiUnderTest, **fields: object) -> str:
    """A config map with labels and finalizers to patch; its path."""
    meta = {"name": api.unique, "labels": {"a": "1", "b": "2"}, "finalizers": ["test.dev/one"]}
    await api.made(api.config_maps, {"metadata": meta, "data": {"x": "y"}, **fields})
    return f"{api.config_maps}/{api.unique}"


async def test_merge_adds_changes_and_removes(api: ApiUnderTest) -> None:
    path = await made(api)
    answer = await api.patch(path, {"metadata": {"labels": {"a": None, "b": "3", "c": "4"}}})
    assert answer.status == 200
    assert answer.body["metadata"]["labels"] == {"b": "3", "c": "4"}
    assert answer.body["data"] == {"x": "y"}
    # Lists are replaced, whatever they merge by elsewhere.
    answer = await api.patch(path, {"metadata": {"finalizers": ["test.dev/two"]}, "data": None})
    assert answer.body["metadata"]["finalizers"] == ["test.dev/two"]
    assert "data" not in answer.body


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
async def test_a_resource_version_in_a_patch_is_a_lock(
    api: ApiUnderTest, content_type: str
) -> None:
    path = await made(api)
    first = (await api.now(path))["metadata"]["resourceVersion"]
    locked = {"metadata": {"resourceVersion": first, "labels": {"a": "9"}}}
    answer = await api.patch(path, locked, content_type)
    assert answer.status == 200
    assert answer.body["metadata"]["resourceVersion"] != first
    stale = await api.patch(path, locked, content_type)
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")


async def test_what_a_patch_cannot_change(api: ApiUnderTest) -> None:
    path = await made(api)
    before = await api.now(path)
    silently = {"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 9}
    answer = await api.patch(path, {"metadata": silently})
    assert (answer.status, answer.body) == (200, before)
    for meta, field in (
        ({"uid": "other"}, "metadata.uid"),
        ({"deletionTimestamp": "2020-01-01T00:00:00Z"}, "metadata.deletionTimestamp"),
    ):
        answer = await api.patch(path, {"metadata": meta})
        assert answer.status == 422
        assert answer.causes == {(field, "FieldValueInvalid")}
    for meta in ({"name": "other"}, {"namespace": "other"}):
        assert (await api.patch(path, {"metadata": meta})).status == 400
    assert await api.now(path) == before


async def test_json_patch(api: ApiUnderTest) -> None:
    path = await made(api)
    operations = [
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/a", "value": "9"},
        {"op": "add", "path": "/metadata/labels/k8s.io~1name", "value": "n"},
        {"op": "remove", "path": "/metadata/labels/b"},
        {"op": "replace", "path": "/metadata/labels/not-there", "value": "added"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "test.dev/last"},
        {"op": "add", "path": "/metadata/finalizers/0", "value": "test.dev/first"},
        {"op": "copy", "from": "/data/x", "path": "/data/copied"},
        {"op": "move", "from": "/data/x", "path": "/data/moved"},
    ]
    answer = await api.patch(path, operations, JSON_PATCH)
    assert answer.status == 200, answer.body
    assert answer.body["metadata"]["labels"] == {
        "a": "9",
        "k8s.io/name": "n",
        "not-there": "added",
    }
    finalizers = ["test.dev/first", "test.dev/one", "test.dev/last"]
    assert answer.body["metadata"]["finalizers"] == finalizers
    assert answer.body["data"] == {"copied": "y", "moved": "y"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/labels/a", "value": "2"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "remove", "path": "/metadata/labels/none"},
        {"op": "replace", "path": "/metadata/annotations/none", "value": "x"},
        {"op": "replace", "path": "/metadata/finalizers/7", "value": "test.dev/x"},
        {"op": "add", "path": "/metadata/annotations/none", "value": "x"},
        {"op": "add", "path": "/metadata/finalizers/7", "value": "test.dev/x"},
        {"op": "unheard-of", "path": "/data"},
    ],
)
async def test_json_patch_that_does_not_apply(api: ApiUnderTest, operation: Body) -> None:
    path = await made(api)
    before = await api.now(path)
    both = [{"op": "add", "path": "/data/z", "value": "z"}, operation]
    answer = await api.patch(path, both, JSON_PATCH)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert await api.now(path) == before


async def test_a_json_patch_may_hold_the_lock_too(api: ApiUnderTest) -> None:
    path = await made(api)
    operations = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "add", "path": "/data/z", "value": "z"},
    ]
    assert (await api.patch(path, operations, JSON_PATCH)).status == 409


async def test_bodies_that_are_no_patches(api: ApiUnderTest) -> None:
    path = await made(api)
    for body, content_type in (
        ([1], MERGE),
        (b"{", MERGE),
        ({"op": "add"}, JSON_PATCH),
        (b"[", JSON_PATCH),
        ([1], STRATEGIC),
    ):
        answer = await api.patch(path, body, content_type)
        assert (answer.status, answer.body["reason"]) == (400, "BadRequest"), (body, answer)
    answer = await api.patch(path, {}, "application/json")
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")


async def test_a_patch_that_leads_to_nonsense(api: ApiUnderTest) -> None:
    path = await made(api)
    answer = await api.patch(path, {"metadata": {"labels": {"a": 1}}})
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    answer = await api.patch(path, {"unknown": 1}, fieldValidation="Strict")
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert (await api.patch(f"{api.config_maps}/none-{api.unique}", {})).status == 404


async def test_strategic_merge_of_keyed_lists(api: ApiUnderTest) -> None:
    await api.made(NODES, {"metadata": {"name": api.unique}})
    path = f"{NODES}/{api.unique}/status"
    conditions = [{"type": kind, "status": "True", "reason": kind} for kind in "ABC"]
    await api.patch(path, {"status": {"conditions": conditions}})
    patch: Body = {
        "status": {
            "conditions": [
                {"type": "D", "status": "True"},
                {"type": "A", "status": "False"},
                {"type": "B", "$patch": "delete"},
            ]
        }
    }
    answer = await api.patch(path, patch, STRATEGIC)
    assert answer.status == 200, answer.body
    found = {
        item["type"]: (item["status"], item.get("reason"))
        for item in answer.body["status"]["conditions"]
    }
    assert found == {"A": ("False", "A"), "C": ("True", "C"), "D": ("True", None)}
    patch = {"status": {"conditions": [{"$patch": "replace"}, {"type": "E", "status": "True"}]}}
    answer = await api.patch(path, patch, STRATEGIC)
    assert [item["type"] for item in answer.body["status"]["conditions"]] == ["E"]


async def test_strategic_merge_of_sets_and_maps(api: ApiUnderTest) -> None:
    path = await made(api)
    patch: Body = {"metadata": {"finalizers": ["test.dev/two"], "labels": {"a": None}}}
    answer = await api.patch(path, patch, STRATEGIC)
    meta = answer.body["metadata"]
    assert set(meta["finalizers"]) == {"test.dev/one", "test.dev/two"}
    assert meta["labels"] == {"b": "2"}
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["test.dev/one"]}}
    answer = await api.patch(path, patch, STRATEGIC)
    assert answer.body["metadata"]["finalizers"] == ["test.dev/two"]
    patch = {"data": {"$patch": "replace", "only": "this"}}
    answer = await api.patch(path, patch, STRATEGIC)
    assert answer.body["data"] == {"only": "this"}


async def test_strategic_merge_replaces_other_lists(api: ApiUnderTest) -> None:
    await api.made(VOLUMES, volume(api.unique, mountOptions=["a", "b"]))
    path = f"{VOLUMES}/{api.unique}"
    answer = await api.patch(path, {"spec": {"mountOptions": ["c"]}}, STRATEGIC)
    assert answer.body["spec"]["mountOptions"] == ["c"]

    await api.made(NODES, {"metadata": {"name": api.unique}})
    path = f"{NODES}/{api.unique}"
    for key in ("a", "b"):
        taints = [{"key": key, "effect": "NoSchedule"}]
        answer = await api.patch(path, {"spec": {"taints": taints}}, STRATEGIC)
        assert answer.body["spec"]["taints"] == taints


async def test_apply_creates_and_sets(api: ApiUnderTest) -> None:
    path = f"{api.config_maps}/{api.unique}"
    typed = {"apiVersion": "v1", "kind": "ConfigMap"}
    answer = await api.patch(path, typed | {"metadata": {"name": api.unique}}, APPLY)
    assert answer.status == 422, "a field manager is required"
    assert answer.causes == {("fieldManager", "FieldValueRequired")}
    as_yaml = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {api.unique}}}\ndata: {{a: b}}\n"
    answer = await api.patch(path, as_yaml.encode(), APPLY, fieldManager="test")
    api.remember(path)
    assert (answer.status, answer.body["data"]) == (201, {"a": "b"})
    more = typed | {"metadata": {"name": api.unique}, "data": {"a": "c", "d": "e"}}
    answer = await api.patch(path, more, APPLY, fieldManager="test")
    assert (answer.status, answer.body["data"]) == (200, {"a": "c", "d": "e"})
    untyped = await api.patch(path, {"data": {}}, APPLY, fieldManager="test")
    assert untyped.status == 400
