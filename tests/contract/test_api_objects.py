"""Creating, reading and replacing objects."""

import pytest

from tests.contract.support_api import NAMESPACES, ApiUnderTest, claim, pod, storage_class, volume
from tests.suite.api import CLASSES, NODES, VOLUMES


async def test_create_fills_in_what_the_server_decides(api: ApiUnderTest) -> None:
    body = {
        "metadata": {
            "name": api.unique,
            "uid": "mine",
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "deletionTimestamp": "2020-01-01T00:00:00Z",
            "labels": {},
            "annotations": None,
        },
        "data": {"a": "b"},
        "unknown": 1,
    }
    made = await api.made(api.config_maps, body)
    meta = made["metadata"]
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")
    assert len(meta["uid"]) == 36
    assert meta["creationTimestamp"] > "2026"
    assert int(meta["resourceVersion"]) > 0
    assert set(meta) == {"name", "namespace", "uid", "creationTimestamp", "resourceVersion"}
    assert set(made) == {"kind", "apiVersion", "metadata", "data"}
    assert await api.now(f"{api.config_maps}/{api.unique}") == made


async def test_the_same_name_twice(api: ApiUnderTest) -> None:
    await api.made(VOLUMES, volume(api.unique))
    again = await api.post(VOLUMES, volume(api.unique))
    assert again.status == 409
    assert again.body["reason"] == "AlreadyExists"
    assert again.body["message"] == f'persistentvolumes "{api.unique}" already exists'
    assert again.body["details"] == {"name": api.unique, "kind": "persistentvolumes"}


async def test_generated_names(api: ApiUnderTest) -> None:
    body = {"metadata": {"generateName": f"{api.unique}-"}}
    names = {(await api.made(api.config_maps, body))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert {len(name) for name in names} == {len(api.unique) + 6}
    assert all(name.startswith(f"{api.unique}-") for name in names)


async def test_what_is_not_there(api: ApiUnderTest) -> None:
    answer = await api.get(f"{CLASSES}/{api.unique}")
    assert answer.status == 404
    assert answer.body["reason"] == "NotFound"
    assert answer.body["message"] == f'storageclasses.storage.k8s.io "{api.unique}" not found'
    group = {"group": "storage.k8s.io", "kind": "storageclasses"}
    assert answer.body["details"] == {"name": api.unique, **group}


async def test_a_namespace_that_is_not_there(api: ApiUnderTest) -> None:
    api.namespace = api.unique
    answer = await api.post(api.config_maps, {"metadata": {"name": "x"}})
    assert (answer.status, answer.body["details"]["kind"]) == (404, "namespaces")
    listed = await api.get(api.config_maps)
    assert (listed.status, listed.body["items"]) == (200, [])


async def test_a_body_for_another_place(api: ApiUnderTest) -> None:
    elsewhere = {"metadata": {"name": api.unique, "namespace": "elsewhere"}}
    assert (await api.post(api.config_maps, elsewhere)).status == 400
    versioned = {"metadata": {"name": api.unique, "resourceVersion": "5"}}
    assert (await api.post(api.config_maps, versioned)).status == 500
    other_kind = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": api.unique}}
    assert (await api.post(api.config_maps, other_kind)).status == 400


async def test_new_volume(api: ApiUnderTest) -> None:
    body = volume(api.unique) | {"status": {"phase": "Failed", "message": "mine"}}
    made = await api.made(VOLUMES, body)
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert set(made["status"]) == {"phase", "lastPhaseTransitionTime"}
    assert made["status"]["phase"] == "Pending"


async def test_new_claim(api: ApiUnderTest) -> None:
    made = await api.made(api.claims, claim(api.unique, api.unique))
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert made["status"] == {"phase": "Pending"}


async def test_new_class_namespace_node_pod_and_job(api: ApiUnderTest) -> None:
    made = await api.made(CLASSES, storage_class(api.unique))
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    assert "finalizers" not in made["metadata"]

    made = await api.made(NAMESPACES, {"metadata": {"name": api.unique}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.unique}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}

    status = {"capacity": {"cpu": "4000m"}}
    made = await api.made(NODES, {"metadata": {"name": api.unique}, "status": status})
    assert made["status"]["capacity"] == {"cpu": "4"}
    assert made["status"]["allocatable"] == {"cpu": "4"}
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    assert made["spec"]["taints"] == [taint]

    made = await api.made(api.pods, pod(api.unique, nodeSelector={"no": "where"}))
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["metadata"]["generation"] == 1

    template = {"spec": {"restartPolicy": "Never", **pod("x")["spec"]}}
    job = {"metadata": {"name": api.unique}, "spec": {"template": template, "suspend": True}}
    made = await api.made(api.namespaced("jobs", "batch"), job)
    uid = made["metadata"]["uid"]
    label = "batch.kubernetes.io/controller-uid"
    assert made["spec"]["selector"] == {"matchLabels": {label: uid}}
    assert made["spec"]["template"]["metadata"]["labels"][label] == uid
    assert made["metadata"]["labels"][label] == uid
    assert (made["spec"]["completions"], made["spec"]["backoffLimit"]) == (1, 6)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("10737418240", "10737418240"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000000k", "1G"),
        ("2000", "2k"),
        ("1500m", "1500m"),
        ("12e6", "12e6"),
        ("1e3", "1e3"),
    ],
)
async def test_quantities_are_stored_in_their_canonical_spelling(
    api: ApiUnderTest, given: str, stored: str
) -> None:
    body = volume(api.unique, capacity={"storage": given})
    answer = await api.post(VOLUMES, body, dryRun="All")
    assert answer.status == 201, answer.body
    assert answer.body["spec"]["capacity"] == {"storage": stored}


async def test_a_number_is_a_quantity_too(api: ApiUnderTest) -> None:
    made = await api.made(VOLUMES, volume(api.unique, capacity={"storage": 1073741824}))
    assert made["spec"]["capacity"] == {"storage": "1073741824"}


async def test_dry_run_stores_nothing(api: ApiUnderTest) -> None:
    path = f"{api.config_maps}/{api.unique}"
    body = {"metadata": {"name": api.unique}, "data": {"a": "b"}}
    answer = await api.post(api.config_maps, body, dryRun="All")
    assert answer.status == 201
    assert "resourceVersion" not in answer.body["metadata"]
    assert (await api.get(path)).status == 404
    made = await api.made(api.config_maps, body)
    patched = await api.patch(path, {"data": {"a": "c"}}, dryRun="All")
    assert patched.body["data"] == {"a": "c"}
    assert (await api.delete(path, dryRun="All")).status == 200
    assert await api.now(path) == made


async def test_strict_field_validation(api: ApiUnderTest) -> None:
    body = {"metadata": {"name": api.unique}, "unknown": 1}
    answer = await api.post(api.config_maps, body, fieldValidation="Strict")
    assert answer.status == 400
    assert 'strict decoding error: unknown field "unknown"' in answer.body["message"]
    deep = volume(api.unique)
    deep["spec"]["local"]["pth"] = "/x"
    answer = await api.post(VOLUMES, deep, fieldValidation="Strict")
    assert answer.status == 400
    assert 'unknown field "spec.local.pth"' in answer.body["message"]


async def test_wrong_types(api: ApiUnderTest) -> None:
    for body in (
        {"metadata": {"name": api.unique}, "data": {"a": 1}},
        {"metadata": {"name": api.unique, "labels": {"a": True}}},
        {"metadata": {"name": api.unique, "finalizers": "x/y"}},
        {"metadata": "x"},
    ):
        answer = await api.post(api.config_maps, body)
        assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
        assert "json: cannot unmarshal" in answer.body["message"]
    bad = volume(api.unique, capacity={"storage": "much"})
    answer = await api.post(VOLUMES, bad)
    assert answer.status == 400
    assert "quantities must match" in answer.body["message"]


async def test_replace(api: ApiUnderTest) -> None:
    path = f"{api.config_maps}/{api.unique}"
    made = await api.made(api.config_maps, {"metadata": {"name": api.unique}, "data": {"a": "b"}})
    current = {"name": api.unique, "resourceVersion": made["metadata"]["resourceVersion"]}
    labelled = {"metadata": current | {"labels": {"x": "y"}}, "data": {"c": "d"}}
    replaced = await api.put(path, labelled)
    assert replaced.status == 200
    assert replaced.body["data"] == {"c": "d"}
    assert replaced.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert replaced.body["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(replaced.body["metadata"]["resourceVersion"]) > int(current["resourceVersion"])

    stale = await api.put(path, labelled)
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    assert stale.body["message"].endswith(
        "please apply your changes to the latest version and try again"
    )
    assert stale.body["details"] == {"name": api.unique, "kind": "configmaps"}

    unconditional = await api.put(path, {"metadata": {"name": api.unique}})
    assert unconditional.status == 200
    assert "data" not in unconditional.body
    wrong_uid = await api.put(path, {"metadata": {"name": api.unique, "uid": "other"}})
    assert (wrong_uid.status, wrong_uid.body["reason"]) == (409, "Conflict")
    assert (await api.put(path, {"metadata": {"name": "other"}})).status == 400
    assert (await api.put(path, {"metadata": {}})).status == 400


async def test_replace_what_is_not_there(api: ApiUnderTest) -> None:
    body = {"metadata": {"name": api.unique}}
    assert (await api.put(f"{api.config_maps}/{api.unique}", body)).status == 404
    leases = api.namespaced("leases", "coordination.k8s.io")
    created = await api.put(f"{leases}/{api.unique}", body | {"spec": {"holderIdentity": "me"}})
    api.remember(f"{leases}/{api.unique}")
    assert created.status == 201
    unconditional = await api.put(f"{leases}/{api.unique}", body)
    assert (unconditional.status, unconditional.body["reason"]) == (422, "Invalid")
    assert unconditional.causes == {("metadata.resourceVersion", "FieldValueInvalid")}


async def test_a_write_that_changes_nothing_makes_no_version(api: ApiUnderTest) -> None:
    made = await api.made(api.config_maps, {"metadata": {"name": api.unique}, "data": {"a": "b"}})
    path = f"{api.config_maps}/{api.unique}"
    for answer in (
        await api.patch(path, {"data": {"a": "b"}}),
        await api.put(path, made),
        await api.patch(path, {"unknown": 1, "metadata": {"labels": {}}}),
    ):
        assert answer.status == 200
        assert answer.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_status_is_written_apart(api: ApiUnderTest) -> None:
    await api.made(NODES, {"metadata": {"name": api.unique}})
    path = f"{NODES}/{api.unique}"
    both = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"unschedulable": True},
        "status": {"phase": "Running"},
    }
    main = (await api.patch(path, both)).body
    assert main["spec"]["unschedulable"] is True
    assert "phase" not in main["status"]
    spec = {"unschedulable": None}
    status = (await api.patch(f"{path}/status", both | {"spec": spec})).body
    assert status["spec"]["unschedulable"] is True
    assert status["status"]["phase"] == "Running"
    assert (await api.now(f"{path}/status"))["status"]["phase"] == "Running"
    replaced = await api.put(path, {"metadata": {"name": api.unique}})
    assert replaced.body["status"]["phase"] == "Running"


async def test_status_of_a_volume(api: ApiUnderTest) -> None:
    # A claimRef with a UID of nobody keeps the real controller from calling it Available.
    await api.made(VOLUMES, volume(api.unique))
    path = f"{VOLUMES}/{api.unique}"
    answer = await api.patch(f"{path}/status", {"status": {"message": "m", "reason": "r"}})
    assert answer.body["status"]["message"] == "m"
    assert answer.body["spec"]["capacity"] == {"storage": "1Gi"}
    # The real controller may write the phase at any time, and a message with it; never a reason.
    ignored = await api.patch(path, {"status": {"reason": "n"}})
    assert ignored.status == 200
    assert ignored.body["status"]["reason"] == "r"


async def test_events_have_two_names(api: ApiUnderTest) -> None:
    about = {"kind": "PersistentVolume", "name": api.unique, "namespace": api.namespace}
    body = {
        "metadata": {"name": api.unique},
        "involvedObject": about,
        "reason": "R",
        "message": "m",
        "type": "Normal",
        "source": {"component": "c", "host": "h"},
        "count": 2,
        "firstTimestamp": "2026-01-01T00:00:00Z",
    }
    made = await api.made(api.events, body)
    assert (made["lastTimestamp"], made["eventTime"], made["reportingInstance"]) == (None, None, "")
    new = await api.now(f"{api.namespaced('events', 'events.k8s.io')}/{api.unique}")
    assert new["apiVersion"] == "events.k8s.io/v1"
    assert new["regarding"] == about
    assert (new["note"], new["reason"], new["deprecatedCount"]) == ("m", "R", 2)
    assert new["deprecatedSource"] == {"component": "c", "host": "h"}
    fields = {"fieldSelector": f"regarding.name={api.unique}"}
    listed = await api.get(api.namespaced("events", "events.k8s.io"), **fields)
    assert [item["note"] for item in listed.body["items"]] == ["m"]

    newer = {
        "metadata": {"name": f"{api.unique}-2"},
        "regarding": about,
        "note": "n",
        "reason": "R",
        "type": "Warning",
        "action": "Act",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c/d",
        "reportingInstance": "i",
    }
    await api.made(api.namespaced("events", "events.k8s.io"), newer)
    old = await api.now(f"{api.events}/{api.unique}-2")
    assert (old["message"], old["involvedObject"], old["action"]) == ("n", about, "Act")
    assert old["reportingComponent"] == "c/d"
