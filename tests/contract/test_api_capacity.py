"""How much room a provisioner says there is: CSIDriver and CSIStorageCapacity."""

from typing import Any

import pytest

from tests.contract.support_api import TABLE, ApiUnderTest, Body
from tests.suite.api import DRIVERS, NODES
from tests.suite.until import until_async


def capacities(api: ApiUnderTest) -> str:
    return api.namespaced("csistoragecapacities", "storage.k8s.io")


def room(name: str, **fields: Any) -> Body:
    """Room for the class `name` on a node."""
    topology = {"matchLabels": {"kubernetes.io/hostname": f"{name}-node"}}
    return {
        "metadata": {"name": name},
        "storageClassName": name,
        "nodeTopology": topology,
        "capacity": "1Gi",
        "maximumVolumeSize": "1Gi",
        **fields,
    }


async def test_a_driver(api: ApiUnderTest) -> None:
    made = await api.made(DRIVERS, {"metadata": {"name": api.unique}, "spec": {}})
    assert made["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "volumeLifecycleModes": ["Persistent"],
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
    }
    path = f"{DRIVERS}/{api.unique}"
    changed = await api.patch(path, {"spec": {"storageCapacity": True}})
    assert changed.body["spec"]["storageCapacity"] is True
    for spec, field in (
        # The server's own spelling.
        ({"attachRequired": False}, "spec.attachedRequired"),
        ({"volumeLifecycleModes": ["Ephemeral"]}, "spec.volumeLifecycleModes"),
    ):
        answer = await api.patch(path, {"spec": spec})
        assert (answer.status, answer.causes) == (422, {(field, "FieldValueInvalid")})
    gone = await api.delete(path)
    assert gone.body["kind"] == "CSIDriver"
    assert (await api.get(path)).status == 404


async def test_room(api: ApiUnderTest) -> None:
    made = await api.made(capacities(api), room(api.unique, maximumVolumeSize="1024Mi"))
    assert made["capacity"] == made["maximumVolumeSize"] == "1Gi"
    path = f"{capacities(api)}/{api.unique}"
    less = {"capacity": "5Mi", "maximumVolumeSize": "4Mi"}
    changed = await api.patch(path, less)
    assert {key: changed.body[key] for key in less} == less
    async with api.watch(capacities(api), fieldSelector=f"metadata.name={api.unique}") as watching:
        assert await watching.names(1) == [("ADDED", api.unique)]
        await api.patch(path, {"capacity": "0", "maximumVolumeSize": "0"})
        kind, seen = await watching.next()
        if seen["capacity"] == "5Mi":
            # The watch may begin at a moment before the first change.
            kind, seen = await watching.next()
        assert (kind, seen["capacity"]) == ("MODIFIED", "0")
    listed = await api.get("/apis/storage.k8s.io/v1/csistoragecapacities")
    assert path.rpartition("/")[2] in {item["metadata"]["name"] for item in listed.body["items"]}


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"storageClassName": ""}, {("storageClassName", "Invalid")}),
        ({"storageClassName": "A_b"}, {("storageClassName", "Invalid")}),
        ({"capacity": "-1"}, {("capacity", "Invalid")}),
        ({"capacity": None, "maximumVolumeSize": "-1", "nodeTopology": None}, None),
    ],
)
async def test_what_is_no_room(
    api: ApiUnderTest, fields: Body, causes: set[tuple[str, str]] | None
) -> None:
    answer = await api.post(capacities(api), room(api.unique, **fields), dryRun="All")
    if causes is None:
        assert answer.status == 201, answer.body
        return
    assert answer.status == 422, answer.body
    assert answer.causes == {(field, f"FieldValue{rule}") for field, rule in causes}


@pytest.mark.parametrize(
    "change", [{"storageClassName": "other"}, {"nodeTopology": {"matchLabels": {"a": "b"}}}]
)
async def test_what_of_it_cannot_change(api: ApiUnderTest, change: Body) -> None:
    await api.made(capacities(api), room(api.unique))
    answer = await api.patch(f"{capacities(api)}/{api.unique}", change)
    assert (answer.status, answer.causes) == (
        422,
        {(next(iter(change)), "FieldValueInvalid")},
    )


async def test_it_goes_with_the_node_that_owns_it(api: ApiUnderTest) -> None:
    node = await api.made(NODES, {"metadata": {"name": api.unique}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": api.unique, "uid": node["metadata"]["uid"]}
    body = room(api.unique)
    body["metadata"]["ownerReferences"] = [owner]
    await api.made(capacities(api), body)
    await api.delete(f"{NODES}/{api.unique}")

    async def gone() -> bool:
        return (await api.get(f"{capacities(api)}/{api.unique}")).status == 404

    await until_async(gone)


async def test_rows(api: ApiUnderTest) -> None:
    spec = {"storageCapacity": True, "attachRequired": False, "podInfoOnMount": False}
    await api.made(DRIVERS, {"metadata": {"name": api.unique}, "spec": spec})
    answer = await api.call("GET", f"{DRIVERS}/{api.unique}", accept=TABLE)
    assert answer.body["rows"][0]["cells"][:-1] == [
        *(api.unique, False, False, True, "<unset>", False, "Persistent")
    ]
    await api.made(capacities(api), room(api.unique))
    answer = await api.call("GET", f"{capacities(api)}/{api.unique}", accept=TABLE)
    since = (await api.now(f"{capacities(api)}/{api.unique}"))["metadata"]["creationTimestamp"]
    assert answer.body["rows"][0]["cells"] == [api.unique, since]
