"""Deletion: preconditions, finalizers, dependents, collections."""

import pytest

from tests.contract.support_api import NAMESPACES, ApiUnderTest, Body, pod, storage_class, volume
from tests.suite.api import CLASSES, NODES, VOLUMES
from tests.suite.until import until_async


async def test_uid_and_version_preconditions(api: ApiUnderTest) -> None:
    made = await api.made(VOLUMES, volume(api.unique, labels={"x": "1"}))
    path, uid = f"{VOLUMES}/{api.unique}", made["metadata"]["uid"]
    wrong = await api.delete(path, {"preconditions": {"uid": "other"}})
    assert (wrong.status, wrong.body["reason"]) == (409, "Conflict")
    assert (
        f"the UID in the precondition (other) does not match the UID in record ({uid})"
        in (wrong.body["message"])
    )
    stale = await api.delete(path, {"preconditions": {"uid": uid, "resourceVersion": "1"}})
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    assert "the ResourceVersion in the precondition (1) does not match" in stale.body["message"]
    assert "deletionTimestamp" not in (await api.now(path))["metadata"]
    right = await api.delete(path, {"preconditions": {"uid": uid}})
    assert right.status == 200
    absent = await api.delete(f"{path}-none", {"preconditions": {"uid": uid}})
    assert absent.status == 404


async def test_finalizers_hold_an_object(api: ApiUnderTest) -> None:
    meta = {"name": api.unique, "finalizers": ["test.dev/one", "test.dev/two"]}
    await api.made(api.config_maps, {"metadata": meta})
    path = f"{api.config_maps}/{api.unique}"
    first = await api.delete(path)
    assert first.status == 200
    held = first.body["metadata"]
    assert held["finalizers"] == meta["finalizers"]
    assert held["deletionGracePeriodSeconds"] == 0
    assert held["deletionTimestamp"] >= held["creationTimestamp"]
    # A second deletion changes nothing.
    assert (await api.delete(path)).body == first.body

    added = {"finalizers": [*meta["finalizers"], "test.dev/three"]}
    refused = await api.patch(path, {"metadata": added})
    assert (refused.status, refused.causes) == (
        422,
        {("metadata.finalizers", "FieldValueForbidden")},
    )
    lived_on = await api.patch(path, {"data": {"a": "b"}, "metadata": {"deletionTimestamp": None}})
    assert lived_on.status == 200
    assert lived_on.body["metadata"]["deletionTimestamp"] == held["deletionTimestamp"]
    fewer = await api.patch(path, {"metadata": {"finalizers": ["test.dev/two"]}})
    assert fewer.status == 200
    last = await api.patch(path, {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert "finalizers" not in last.body["metadata"]
    assert (await api.get(path)).status == 404


@pytest.mark.parametrize(
    ("resource", "answers_with"),
    [
        ("configmap", "Status"),
        ("class", "StorageClass"),
        ("node", "Node status"),
        ("lease", "Status"),
        ("event", "Status"),
        ("account", "ServiceAccount"),
    ],
)
async def test_what_a_final_deletion_answers(
    api: ApiUnderTest, resource: str, answers_with: str
) -> None:
    meta = {"metadata": {"name": api.unique}}
    collection, body = {
        "configmap": (api.config_maps, meta),
        "class": (CLASSES, storage_class(api.unique)),
        "node": (NODES, meta),
        "lease": (api.namespaced("leases", "coordination.k8s.io"), meta),
        "event": (api.events, meta),
        "account": (api.namespaced("serviceaccounts"), meta),
    }[resource]
    made = await api.made(collection, body)
    answer = await api.delete(f"{collection}/{api.unique}")
    assert answer.status == 200
    if answers_with.endswith("tatus"):
        assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
        details = answer.body["details"]
        assert (details["name"], details["uid"]) == (api.unique, made["metadata"]["uid"])
        assert details["kind"] == collection.rpartition("/")[2]
    else:
        assert answer.body["kind"] == answers_with
        assert answer.body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_bad_options(api: ApiUnderTest) -> None:
    path = f"{api.config_maps}/{api.unique}"
    await api.made(api.config_maps, {"metadata": {"name": api.unique}})
    answer = await api.delete(path, {"propagationPolicy": "Sideways"})
    assert (answer.status, answer.causes) == (
        422,
        {("propagationPolicy", "FieldValueNotSupported")},
    )
    answer = await api.delete(path, {"propagationPolicy": "Orphan", "orphanDependents": True})
    assert (answer.status, answer.causes) == (422, {("propagationPolicy", "FieldValueInvalid")})
    assert (await api.get(path)).status == 200


def owned(name: str, owner: Body, **fields: bool) -> Body:
    """A config map of an owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **fields,
    }
    return {"metadata": {"name": name, "ownerReferences": [reference]}}


async def gone(api: ApiUnderTest, path: str) -> None:
    async def check() -> bool:
        return (await api.get(path)).status == 404

    await until_async(check)


async def test_dependents_follow_their_owner(api: ApiUnderTest) -> None:
    owner = await api.made(api.config_maps, {"metadata": {"name": api.unique}})
    await api.made(api.config_maps, owned(f"{api.unique}-owned", owner))
    await api.delete(f"{api.config_maps}/{api.unique}", {"propagationPolicy": "Background"})
    await gone(api, f"{api.config_maps}/{api.unique}-owned")


async def test_volumes_follow_the_node_that_owns_them(api: ApiUnderTest) -> None:
    node = await api.made(NODES, {"metadata": {"name": api.unique}})
    body = volume(api.unique)
    body["metadata"] |= owned("", node)["metadata"] | {"name": api.unique}
    await api.made(VOLUMES, body)
    await api.delete(f"{NODES}/{api.unique}")
    await gone(api, f"{VOLUMES}/{api.unique}")


async def test_orphaned_dependents_stay(api: ApiUnderTest) -> None:
    owner = await api.made(api.config_maps, {"metadata": {"name": api.unique}})
    await api.made(api.config_maps, owned(f"{api.unique}-owned", owner))
    path = f"{api.config_maps}/{api.unique}"
    answer = await api.delete(path, {"propagationPolicy": "Orphan"})
    assert answer.body["metadata"]["finalizers"] == ["orphan"]
    await gone(api, path)
    left = await api.now(f"{path}-owned")
    assert "ownerReferences" not in left["metadata"]


async def test_a_foreground_deletion_waits_for_dependents(api: ApiUnderTest) -> None:
    owner = await api.made(api.config_maps, {"metadata": {"name": api.unique}})
    body = owned(f"{api.unique}-owned", owner, blockOwnerDeletion=True)
    body["metadata"]["finalizers"] = ["test.dev/hold"]
    await api.made(api.config_maps, body)
    path = f"{api.config_maps}/{api.unique}"
    answer = await api.delete(path, {"propagationPolicy": "Foreground"})
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]

    async def dependent_goes() -> bool:
        return "deletionTimestamp" in (await api.now(f"{path}-owned"))["metadata"]

    await until_async(dependent_goes)
    assert (await api.get(path)).status == 200
    await api.patch(f"{path}-owned", {"metadata": {"finalizers": None}})
    await gone(api, path)


async def test_jobs_orphan_unless_told(api: ApiUnderTest) -> None:
    jobs = api.namespaced("jobs", "batch")
    template = {"spec": {"restartPolicy": "Never", **pod("x")["spec"]}}
    job = {"metadata": {"name": api.unique}, "spec": {"template": template, "suspend": True}}
    await api.made(jobs, job)
    answer = await api.delete(f"{jobs}/{api.unique}")
    assert (answer.body["kind"], answer.body["metadata"]["finalizers"]) == ("Job", ["orphan"])
    await gone(api, f"{jobs}/{api.unique}")


async def test_a_collection(api: ApiUnderTest) -> None:
    for i in range(3):
        meta = {"name": f"{api.unique}-{i}", "labels": {"test": api.unique, "odd": str(i % 2)}}
        await api.made(api.config_maps, {"metadata": meta})
    answer = await api.delete(api.config_maps, labelSelector=f"test={api.unique},odd=0")
    assert (answer.status, answer.body["kind"]) == (200, "ConfigMapList")
    assert len(answer.body["items"]) == 2
    left = await api.get(api.config_maps, labelSelector=f"test={api.unique}")
    assert [item["metadata"]["name"] for item in left.body["items"]] == [f"{api.unique}-1"]


async def test_a_namespace_takes_everything_along(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await api.made(api.config_maps, {"metadata": {"name": "held", "finalizers": ["test.dev/hold"]}})
    path = f"{NAMESPACES}/{api.unique}"
    answer = await api.delete(path)
    assert answer.body["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in answer.body["metadata"]
    refused = await api.post(api.config_maps, {"metadata": {"name": "late"}})
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")

    async def held_goes() -> bool:
        return "deletionTimestamp" in (await api.now(f"{api.config_maps}/held"))["metadata"]

    await until_async(held_goes)
    assert (await api.get(path)).status == 200
    await api.patch(f"{api.config_maps}/held", {"metadata": {"finalizers": None}})
    if not api.real:  # the real controller looks again only after some 15 seconds
        await gone(api, path)


async def test_pods_on_a_node_get_time_to_stop(api: ApiUnderTest) -> None:
    # On a node that does not exist there is no kubelet, on either side.
    await api.own_namespace()
    await api.made(api.pods, pod(api.unique, nodeName=f"none-{api.unique}"))
    path = f"{api.pods}/{api.unique}"
    answer = await api.delete(path, gracePeriodSeconds=20)
    assert answer.status == 200
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 20
    assert "deletionTimestamp" in (await api.now(path))["metadata"]
    assert (await api.delete(path, gracePeriodSeconds=0)).status == 200
    assert (await api.get(path)).status == 404
