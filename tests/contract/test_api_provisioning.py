"""Claims whose volumes somebody makes for them: who is asked, what is bound to whom, growth."""

from typing import Any

import pytest

from tests.contract.support_api import STRATEGIC, ApiUnderTest, Body, claim, storage_class, volume
from tests.suite.api import CLASSES, VOLUMES
from tests.suite.until import until_async

PROVISIONER = "disks.example.com"
ASKED = {
    "volume.kubernetes.io/storage-provisioner": PROVISIONER,
    "volume.beta.kubernetes.io/storage-provisioner": PROVISIONER,
}
FORBIDDEN = "only dynamically provisioned pvc can be resized"


async def reasons(api: ApiUnderTest, name: str) -> dict[str, Body]:
    """The Events about one claim by their reasons."""
    about = f"involvedObject.name={name},involvedObject.kind=PersistentVolumeClaim"
    items = (await api.get(api.events, fieldSelector=about)).body["items"]
    return {item["reason"]: item for item in items}


async def told(api: ApiUnderTest, name: str, reason: str) -> Body:
    return (await until_async(lambda: reasons(api, name), lambda found: reason in found))[reason]


async def asked(api: ApiUnderTest, name: str) -> Body:
    """The claim once a provisioner is asked to serve it."""
    return await until_async(
        lambda: api.now(f"{api.claims}/{name}"),
        lambda found: ASKED.items() <= found["metadata"].get("annotations", {}).items(),
    )


async def provided(api: ApiUnderTest, size: str = "1Gi", **fields: Any) -> Body:
    """A claim of a class with a provisioner, bound to the volume made for it; the volume."""
    await api.made(CLASSES, storage_class(api.unique, provisioner=PROVISIONER, **fields))
    await api.made(api.claims, claim(api.unique, api.unique, size))
    mine = (await asked(api, api.unique))["metadata"]
    body = volume(
        api.unique,
        capacity={"storage": size},
        persistentVolumeReclaimPolicy="Delete",
        annotations={"pv.kubernetes.io/provisioned-by": PROVISIONER},
        claimRef={
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": api.namespace,
            "name": api.unique,
            "uid": mine["uid"],
            "resourceVersion": mine["resourceVersion"],
        },
    )
    await api.made(VOLUMES, body)
    await api.in_phase(f"{api.claims}/{api.unique}", "Bound")
    return await api.in_phase(f"{VOLUMES}/{api.unique}", "Bound")


async def grows(api: ApiUnderTest, size: str) -> None:
    """The claim asks for more; a real server hears late that its class allows that."""

    async def allowed() -> bool:
        # As kubectl patch sends it.
        return (await api.patch(f"{api.claims}/{api.unique}", asks(size), STRATEGIC)).status == 200

    await until_async(allowed)


def asks(amount: str) -> Body:
    return {"spec": {"resources": {"requests": {"storage": amount}}}}


async def test_the_provisioner_of_the_class_is_asked(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await api.made(CLASSES, storage_class(api.unique, provisioner=PROVISIONER))
    await api.made(api.claims, claim(api.unique, api.unique))
    found = await asked(api, api.unique)
    assert found["metadata"]["annotations"] == ASKED
    assert found["status"] == {"phase": "Pending"}
    event = await told(api, api.unique, "ExternalProvisioning")
    assert event["type"] == "Normal"
    assert PROVISIONER in event["message"]


async def test_a_claim_that_waits_asks_once_a_node_is_selected(api: ApiUnderTest) -> None:
    await api.own_namespace()
    mode = {"volumeBindingMode": "WaitForFirstConsumer"}
    await api.made(CLASSES, storage_class(api.unique, provisioner=PROVISIONER, **mode))
    await api.made(api.claims, claim(api.unique, api.unique))
    await told(api, api.unique, "WaitForFirstConsumer")
    path = f"{api.claims}/{api.unique}"
    assert "annotations" not in (await api.now(path))["metadata"]
    node = {"volume.kubernetes.io/selected-node": "some-node"}
    await api.patch(path, {"metadata": {"annotations": node}})
    assert (await asked(api, api.unique))["metadata"]["annotations"] == ASKED | node


async def test_a_claim_that_finds_a_volume_asks_nobody(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await api.made(CLASSES, storage_class(api.unique, provisioner=PROVISIONER))
    await api.made(VOLUMES, volume(api.unique))
    await api.in_phase(f"{VOLUMES}/{api.unique}", "Available")
    await api.made(api.claims, claim(api.unique, api.unique))
    found = await api.in_phase(f"{api.claims}/{api.unique}", "Bound")
    assert not ASKED.items() & found["metadata"]["annotations"].items()


async def test_a_volume_made_for_a_claim_is_bound_to_it(api: ApiUnderTest) -> None:
    await api.own_namespace()
    made = await provided(api)
    # The claim was named beforehand: that is nothing the controller may take back.
    assert made["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": PROVISIONER}
    mine = await api.now(f"{api.claims}/{api.unique}")
    assert mine["spec"]["volumeName"] == api.unique
    assert mine["status"]["capacity"] == {"storage": "1Gi"}
    bound = {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    assert mine["metadata"]["annotations"] == ASKED | bound


async def test_a_volume_of_a_provisioner_stays_released(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await provided(api)
    await api.delete(f"{api.claims}/{api.unique}")
    path = f"{VOLUMES}/{api.unique}"
    await api.in_phase(path, "Released")
    await api.patch(path, {"metadata": {"finalizers": ["kubernetes.io/pv-protection", "a.b/c"]}})
    await api.delete(path)

    async def held() -> bool:
        return bool((await api.now(path))["metadata"]["finalizers"] == ["a.b/c"])

    await until_async(held)
    assert (await api.now(path))["status"]["phase"] == "Released"
    await api.patch(path, {"metadata": {"finalizers": None}})
    assert (await api.get(path)).status == 404


async def test_a_released_volume_can_be_kept_for_its_claims_successor(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await provided(api)
    await api.delete(f"{api.claims}/{api.unique}")
    path = f"{VOLUMES}/{api.unique}"
    await api.in_phase(path, "Released")
    await api.patch(path, {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}})
    await api.in_phase(path, "Available")
    other = await api.made(api.claims, claim(f"{api.unique}-other", api.unique))
    await asked(api, other["metadata"]["name"])
    again = await api.made(api.claims, claim(api.unique, api.unique))
    assert (await api.in_phase(path, "Bound"))["spec"]["claimRef"]["uid"] == (
        again["metadata"]["uid"]
    )
    assert (await api.now(f"{api.claims}/{api.unique}-other"))["status"]["phase"] == "Pending"


async def test_only_bound_claims_of_classes_that_allow_it_grow(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await provided(api)
    path = f"{api.claims}/{api.unique}"
    refused = await api.patch(path, asks("2Gi"))
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert FORBIDDEN in refused.body["message"]
    await api.patch(f"{CLASSES}/{api.unique}", {"allowVolumeExpansion": True})
    await grows(api, "2Gi")
    found = await api.now(path)
    assert found["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    assert found["status"]["capacity"] == {"storage": "1Gi"}
    event = await told(api, api.unique, "ExternalExpanding")
    assert (event["type"], event["source"]["component"]) == ("Normal", "volume_expand")
    assert "waiting for an external controller" in event["message"]


@pytest.mark.parametrize(("size", "status"), [("1536Mi", 200), ("1Gi", 422), ("512Mi", 422)])
async def test_a_request_is_taken_back_down_to_what_there_is(
    api: ApiUnderTest, size: str, status: int
) -> None:
    await api.own_namespace()
    await provided(api, allowVolumeExpansion=True)
    path = f"{api.claims}/{api.unique}"
    await grows(api, "2Gi")
    answer = await api.patch(path, asks(size), STRATEGIC)
    assert answer.status == status, answer.body
    if status == 422:
        assert answer.causes == {("spec.resources.requests.storage", "FieldValueForbidden")}


async def test_who_made_it_grow_says_so_on_both(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await provided(api, allowVolumeExpansion=True)
    path = f"{api.claims}/{api.unique}"
    await grows(api, "2Gi")
    condition = {"type": "Resizing", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    said = await api.patch(f"{path}/status", {"status": {"conditions": [condition]}})
    [found] = said.body["status"]["conditions"]
    assert condition.items() <= found.items()
    await api.patch(f"{VOLUMES}/{api.unique}", {"spec": {"capacity": {"storage": "2Gi"}}})
    # The claim's status is the provisioner's to write: nobody copies the volume's capacity.
    assert (await api.now(path))["status"]["capacity"] == {"storage": "1Gi"}
    status = {"capacity": {"storage": "2Gi"}, "conditions": []}
    said = await api.patch(f"{path}/status", {"spec": {"volumeName": "x"}, "status": status})
    assert said.status == 200, said.body
    assert said.body["status"]["capacity"] == {"storage": "2Gi"}
    assert "conditions" not in said.body["status"]
    assert said.body["spec"]["volumeName"] == api.unique
    assert (await api.now(path))["status"] == said.body["status"]
