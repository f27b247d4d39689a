"""Claims and volumes: binding, phases, protection."""

from typing import Any

import pytest

from tests.contract.support_api import ApiUnderTest, claim, pod, storage_class, volume
from tests.suite.api import CLASSES, NODES, VOLUMES
from tests.suite.until import until_async


async def volumes(api: ApiUnderTest, **specs: dict[str, Any]) -> None:
    """Volumes `unique-suffix`, all Available."""
    for suffix, spec in specs.items():
        body = volume(api.unique, **spec)
        body["metadata"]["name"] = f"{api.unique}-{suffix}"
        await api.made(VOLUMES, body)
    for suffix in specs:
        await api.in_phase(f"{VOLUMES}/{api.unique}-{suffix}", "Available")


async def bound(api: ApiUnderTest, name: str | None = None) -> str:
    """Which volume a claim gets, by its suffix."""
    found = await api.in_phase(f"{api.claims}/{name or api.unique}", "Bound")
    return str(found["spec"]["volumeName"].rpartition("-")[2])


async def a_node(api: ApiUnderTest) -> str:
    """A node that takes pods, the one `volume` has affinity with."""
    name = f"{api.unique}-node"
    await api.made(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    room = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": room}
    await api.patch(f"{NODES}/{name}/status", {"status": ready | {"allocatable": room}})
    await api.patch(f"{NODES}/{name}", {"spec": {"taints": None}})
    return name


async def test_binding_as_both_sides_record_it(api: ApiUnderTest) -> None:
    await volumes(api, a={"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]})
    made = await api.made(api.claims, claim(api.unique, api.unique))
    assert await bound(api) == "a"
    mine = await api.now(f"{api.claims}/{api.unique}")
    assert mine["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    assert mine["status"]["capacity"] == {"storage": "2Gi"}
    assert mine["status"]["accessModes"] == ["ReadWriteOnce"]
    theirs = await api.in_phase(f"{VOLUMES}/{api.unique}-a", "Bound")
    reference = theirs["spec"]["claimRef"]
    assert reference.pop("resourceVersion").isdecimal()
    assert reference == {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": api.namespace,
        "name": api.unique,
        "uid": made["metadata"]["uid"],
    }
    assert theirs["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}


async def test_the_smallest_that_fits(api: ApiUnderTest) -> None:
    sizes = {"a": "9Gi", "b": "1Gi", "c": "3Gi", "d": "4Gi"}
    await volumes(api, **{name: {"capacity": {"storage": size}} for name, size in sizes.items()})
    await api.made(api.claims, claim(api.unique, api.unique, "2Gi"))
    assert await bound(api) == "c"


async def test_what_does_not_fit(api: ApiUnderTest) -> None:
    await volumes(
        api,
        small={"capacity": {"storage": "512Mi"}},
        block={"volumeMode": "Block"},
        many={"accessModes": ["ReadOnlyMany"]},
        other={"storageClassName": f"{api.unique}-other"},
        labelled={"labels": {"x": "2"}},
        dying={"capacity": {"storage": "1Gi"}, "labels": {"x": "1"}},
    )
    dying = f"{VOLUMES}/{api.unique}-dying"
    held = ["kubernetes.io/pv-protection", "test.dev/x"]
    await api.patch(dying, {"metadata": {"finalizers": held}})
    await api.delete(dying)

    async def seen() -> bool:
        return bool((await api.now(dying))["metadata"]["finalizers"] == held[1:])

    # The controllers hear of volumes and of claims apart: of this deletion before of the claim.
    await until_async(seen)
    # And who binds hears of volumes one after the other: of the deletion before of this one.
    await volumes(api, good={"capacity": {"storage": "5Gi"}, "labels": {"x": "1"}})
    wanted = claim(api.unique, api.unique, selector={"matchLabels": {"x": "1"}})
    await api.made(api.claims, wanted)
    assert await bound(api) == "good"
    for suffix in ("small", "block", "many", "other", "labelled", "dying"):
        found = await api.now(f"{VOLUMES}/{api.unique}-{suffix}")
        assert found["status"]["phase"] == "Available", suffix


async def test_a_volume_kept_for_a_claim(api: ApiUnderTest) -> None:
    kept = {"namespace": api.namespace, "name": f"{api.unique}-late"}
    await volumes(api, kept={"claimRef": kept}, free={"capacity": {"storage": "3Gi"}})
    await api.made(api.claims, claim(api.unique, api.unique))
    assert await bound(api) == "free"
    late = await api.made(api.claims, claim(f"{api.unique}-late", api.unique))
    assert await bound(api, f"{api.unique}-late") == "kept"
    found = await api.in_phase(f"{VOLUMES}/{api.unique}-kept", "Bound")
    assert found["spec"]["claimRef"]["uid"] == late["metadata"]["uid"]
    assert "annotations" not in found["metadata"], "not bound by the controller"


async def test_a_claim_that_names_its_volume(api: ApiUnderTest) -> None:
    await volumes(api, a={}, b={})
    await api.made(api.claims, claim(api.unique, api.unique, volumeName=f"{api.unique}-b"))
    assert await bound(api) == "b"
    mine = await api.now(f"{api.claims}/{api.unique}")
    assert mine["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}


@pytest.mark.parametrize(
    ("policy", "annotations", "end"),
    [
        ("Retain", {}, "Released"),
        ("Delete", {"pv.kubernetes.io/provisioned-by": "test.dev/x"}, "Released"),
        ("Delete", {}, "Failed"),
    ],
)
async def test_a_claim_goes_and_its_volume_is_released(
    api: ApiUnderTest, policy: str, annotations: dict[str, str], end: str
) -> None:
    await volumes(api, a={"persistentVolumeReclaimPolicy": policy, "annotations": annotations})
    made = await api.made(api.claims, claim(api.unique, api.unique))
    assert await bound(api) == "a"
    await api.delete(f"{api.claims}/{api.unique}")
    path = f"{VOLUMES}/{api.unique}-a"
    found = await api.in_phase(path, end)
    assert found["spec"]["claimRef"]["uid"] == made["metadata"]["uid"]
    assert (await api.get(f"{api.claims}/{api.unique}")).status == 404
    # A claim of the same name is somebody else.
    await api.made(api.claims, claim(api.unique, api.unique))
    assert (await api.now(path))["status"]["phase"] == end
    # Until an administrator says that it is free again.
    if end == "Released":
        await api.patch(path, {"spec": {"claimRef": None}})

        async def free() -> bool:
            return str((await api.now(path))["status"]["phase"]) in {"Available", "Bound"}

        await until_async(free)


async def test_a_claim_whose_volume_is_gone_is_lost(api: ApiUnderTest) -> None:
    await volumes(api, a={})
    await api.made(api.claims, claim(api.unique, api.unique))
    assert await bound(api) == "a"
    path = f"{VOLUMES}/{api.unique}-a"
    await api.in_phase(path, "Bound")
    held = await api.delete(path)
    assert held.body["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    assert (await api.now(path))["status"]["phase"] == "Bound"
    await api.patch(path, {"metadata": {"finalizers": None}})
    await api.in_phase(f"{api.claims}/{api.unique}", "Lost")


async def test_a_deleted_volume_goes_with_its_claim(api: ApiUnderTest) -> None:
    await volumes(api, a={})
    await api.made(api.claims, claim(api.unique, api.unique))
    assert await bound(api) == "a"
    path = f"{VOLUMES}/{api.unique}-a"
    await api.in_phase(path, "Bound")
    await api.delete(path)
    await api.delete(f"{api.claims}/{api.unique}")

    async def gone() -> bool:
        return (await api.get(path)).status == 404

    await until_async(gone)


async def test_the_first_consumer(api: ApiUnderTest) -> None:
    await api.own_namespace()
    node = await a_node(api)
    mode = {"volumeBindingMode": "WaitForFirstConsumer"}
    await api.made(CLASSES, storage_class(api.unique, **mode))
    elsewhere = volume(f"{api.unique}x", storageClassName=api.unique)["spec"]
    await volumes(api, far=elsewhere, near={"capacity": {"storage": "3Gi"}})
    await api.made(api.claims, claim(api.unique, api.unique))

    async def told() -> list[str]:
        about = f"involvedObject.name={api.unique},involvedObject.kind=PersistentVolumeClaim"
        listed = await api.get(api.events, fieldSelector=about)
        return [item["reason"] for item in listed.body["items"]]

    assert (await until_async(told))[0] == "WaitForFirstConsumer"
    await api.made(api.pods, pod(api.unique, api.unique))
    assert await bound(api) == "near"

    async def placed() -> bool:
        found = await api.now(f"{api.pods}/{api.unique}")
        return bool(found["spec"].get("nodeName") == node)

    await until_async(placed)
    found = await api.now(f"{VOLUMES}/{api.unique}-near")
    assert found["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}

    # The claim is in use now, and waits for its pod.
    held = await api.delete(f"{api.claims}/{api.unique}")
    assert held.body["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert "deletionTimestamp" in (await api.now(f"{api.claims}/{api.unique}"))["metadata"]
    await api.delete(f"{api.pods}/{api.unique}", gracePeriodSeconds=0)
    await api.in_phase(f"{VOLUMES}/{api.unique}-near", "Released")


async def test_a_claim_in_use_stays(api: ApiUnderTest) -> None:
    await api.own_namespace()
    for name in ("used", "unscheduled"):
        await api.made(api.claims, claim(name, api.unique))
    where: dict[str, dict[str, Any]] = {
        "used": {"nodeName": f"none-{api.unique}"},
        "unscheduled": {},
    }
    for name, spec in where.items():
        await api.made(api.pods, pod(name, name, **spec))

    async def gone(name: str) -> None:
        async def check() -> bool:
            return (await api.get(f"{api.claims}/{name}")).status == 404

        await until_async(check)

    # Even a finished pod holds its claim; one without a node does not.
    done = {"status": {"phase": "Succeeded"}}
    await api.patch(f"{api.pods}/used/status", done)
    for name in where:
        await api.delete(f"{api.claims}/{name}")
    await gone("unscheduled")
    assert "deletionTimestamp" in (await api.now(f"{api.claims}/used"))["metadata"]
    await api.delete(f"{api.pods}/used", gracePeriodSeconds=0)
    await gone("used")


async def test_why_a_claim_is_pending(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await api.made(CLASSES, storage_class(api.unique))
    for name, class_name in (("no-class", f"{api.unique}-none"), ("no-volume", api.unique)):
        await api.made(api.claims, claim(name, class_name))
    await api.made(api.claims, claim("none", ""))

    async def reasons() -> dict[str, str] | None:
        items = (await api.get(api.events)).body["items"]
        found = {item["involvedObject"]["name"]: item["reason"] for item in items}
        return found if len(found) == 3 else None

    assert await until_async(reasons) == {
        "no-class": "ProvisioningFailed",
        "no-volume": "ProvisioningFailed",
        "none": "FailedBinding",
    }
