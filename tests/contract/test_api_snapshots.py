"""Snapshots: what a snapshot-controller makes of them, the sandbox's as the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_snapshots import snapshot_controller
from tests.contract.support_api import ApiUnderTest, Body, claim, storage_class, volume
from tests.suite.api import CLASSES, MERGE, VOLUMES
from tests.suite.until import until_async

GROUP = "snapshot.storage.k8s.io"
SNAPSHOT_CLASSES = f"/apis/{GROUP}/v1/volumesnapshotclasses"
CONTENTS = f"/apis/{GROUP}/v1/volumesnapshotcontents"
DRIVER = "disks.example.com"
_AS_SOURCE = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection"
_BOUND = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
FINALIZERS = {"Delete": {_AS_SOURCE, _BOUND}, "Retain": {_AS_SOURCE}}
BEING_DELETED = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"

pytestmark = pytest.mark.parametrize(
    "plane_under_test",
    ["sandbox", pytest.param("real", marks=pytest.mark.needs("controlplane", "snapshots"))],
    indirect=True,
)


@pytest.fixture
async def cluster(
    api: ApiUnderTest, plane_under_test: ControlPlane | None, tmp_path: Path
) -> AsyncIterator[ApiUnderTest]:
    """A server with the kinds of snapshots and who serves them, and a namespace of the test's."""
    if plane_under_test is None:
        await api.own_namespace()
        yield api
        return
    serving = snapshot_controller(plane_under_test, tmp_path)
    await asyncio.to_thread(serving.__enter__)
    try:
        await api.own_namespace()
        yield api
    finally:
        await asyncio.to_thread(serving.__exit__, None, None, None)


def _snapshots(api: ApiUnderTest) -> str:
    return api.namespaced("volumesnapshots", GROUP)


def _of_kind(kind: str, name: str, **fields: Any) -> Body:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, **fields}


async def _bound(api: ApiUnderTest) -> None:
    """A claim with a volume of the driver's."""
    await api.made(CLASSES, storage_class(api.unique))
    body = volume(api.unique, csi={"driver": DRIVER, "volumeHandle": f"handle-{api.unique}"})
    del body["spec"]["local"]
    await api.made(VOLUMES, body)
    await api.made(api.claims, claim(api.unique, api.unique))
    await until_async(
        lambda: api.now(f"{api.claims}/{api.unique}"),
        lambda found: found["status"].get("phase") == "Bound",
    )


async def _class(api: ApiUnderTest, policy: str = "Delete") -> None:
    body = _of_kind("VolumeSnapshotClass", api.unique, driver=DRIVER, deletionPolicy=policy)
    await api.made(SNAPSHOT_CLASSES, body)


async def _asked(api: ApiUnderTest) -> Body:
    spec = {
        "volumeSnapshotClassName": api.unique,
        "source": {"persistentVolumeClaimName": api.unique},
    }
    return await api.made(_snapshots(api), _of_kind("VolumeSnapshot", api.unique, spec=spec))


async def _content(api: ApiUnderTest, snapshot: Body) -> Body:
    """The content of the VolumeSnapshot, once the latter is bound to it, and it stays until it is
    seen to: a real controller does the one and the other apart."""
    path = f"{CONTENTS}/snapcontent-{snapshot['metadata']['uid']}"
    await until_async(
        lambda: api.get(path), lambda answer: answer.status == 200 and answer.body["spec"]
    )
    api.remember(path)
    name = path.rpartition("/")[2]
    await _status(api, lambda told: told.get("boundVolumeSnapshotContentName") == name)
    return await until_async(
        lambda: api.now(path), lambda found: found["metadata"].get("finalizers")
    )


async def _status(api: ApiUnderTest, wanted: Any) -> Body:
    async def status() -> Body:
        found = await api.now(f"{_snapshots(api)}/{api.unique}")
        return dict(found.get("status", {}))

    return await until_async(status, wanted)


async def _protected(api: ApiUnderTest, policy: str = "Delete") -> None:
    """Wait until the VolumeSnapshot does not go before it is seen to.

    The controller adds the second finalizer when it next looks at one that is bound: maybe only
    after its content has changed.
    """
    await until_async(
        lambda: api.now(f"{_snapshots(api)}/{api.unique}"),
        lambda found: set(found["metadata"].get("finalizers", ())) == FINALIZERS[policy],
    )


async def _told(api: ApiUnderTest, content: Body, **status: Any) -> None:
    """What the driver's sidecar writes."""
    path = f"{CONTENTS}/{content['metadata']['name']}/status"
    answer = await api.patch(path, {"status": status}, MERGE)
    assert answer.status == 200, answer.body


async def _gone(api: ApiUnderTest, path: str) -> None:
    await until_async(lambda: api.get(path), lambda answer: answer.status == 404)


async def test_a_content_is_made_and_its_status_told(cluster: ApiUnderTest) -> None:
    api = cluster
    await _bound(api)
    await _class(api)
    snapshot = await _asked(api)
    content = await _content(api, snapshot)
    spec, reference = content["spec"], content["spec"]["volumeSnapshotRef"]
    reference.pop("resourceVersion")
    assert spec == {
        "deletionPolicy": "Delete",
        "driver": DRIVER,
        "source": {"volumeHandle": f"handle-{api.unique}"},
        "sourceVolumeMode": "Filesystem",
        "volumeSnapshotClassName": api.unique,
        "volumeSnapshotRef": {
            "apiVersion": f"{GROUP}/v1",
            "kind": "VolumeSnapshot",
            "name": api.unique,
            "namespace": api.namespace,
            "uid": snapshot["metadata"]["uid"],
        },
    }
    assert content["metadata"]["finalizers"] == [
        "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
    ]
    why = {"message": "the disk is full", "time": "2026-11-01T00:00:00Z"}
    await _told(api, content, error=why, readyToUse=False)
    told = await _status(api, lambda told: "error" in told)
    assert "the disk is full" in told["error"]["message"]
    assert told["readyToUse"] is False
    await _told(
        api,
        content,
        snapshotHandle="cut",
        creationTime=1_790_000_000_123_456_789,
        restoreSize=16 << 20,
        readyToUse=True,
        error=None,
    )
    assert await _status(api, lambda told: told.get("readyToUse")) == {
        "boundVolumeSnapshotContentName": content["metadata"]["name"],
        "creationTime": "2026-09-21T14:13:20Z",
        "readyToUse": True,
        "restoreSize": "16Mi",
    }
    await _protected(api)


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_a_snapshot_goes_after_its_content_or_without_it(
    cluster: ApiUnderTest, policy: str
) -> None:
    api = cluster
    await _bound(api)
    await _class(api, policy)
    snapshot = await _asked(api)
    content = await _content(api, snapshot)
    await _told(api, content, snapshotHandle="cut", creationTime=1, restoreSize=1, readyToUse=True)
    await _status(api, lambda told: told.get("readyToUse"))
    await _protected(api, policy)
    path = f"{_snapshots(api)}/{api.unique}"
    assert (await api.delete(path)).status == 200
    there = f"{CONTENTS}/{content['metadata']['name']}"
    if policy == "Retain":
        await _gone(api, path)
        assert "deletionTimestamp" not in (await api.now(there))["metadata"]
        return
    leaving = await until_async(
        lambda: api.now(there), lambda found: "deletionTimestamp" in found["metadata"]
    )
    assert leaving["metadata"]["annotations"][BEING_DELETED] == "yes"
    assert "deletionTimestamp" in (await api.now(path))["metadata"]
    # The sidecar has removed the snapshot, and lets its content go.
    assert (await api.patch(there, {"metadata": {"finalizers": None}}, MERGE)).status == 200
    await _gone(api, there)
    await _gone(api, path)


async def test_what_it_cannot_serve_it_says_until_it_can(cluster: ApiUnderTest) -> None:
    api = cluster
    await _class(api)
    snapshot = await _asked(api)
    # A real controller may hear of the snapshot before it hears of the class.
    why = "cannot get claim from snapshot"
    told = await _status(api, lambda told: why in told.get("error", {}).get("message", ""))
    assert told["readyToUse"] is False
    await _bound(api)
    content = await _content(api, snapshot)
    await _told(api, content, snapshotHandle="cut", creationTime=1, restoreSize=1, readyToUse=True)
    assert "error" not in await _status(api, lambda told: told.get("readyToUse"))
