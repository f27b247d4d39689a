"""Groups of snapshots over a real socket, as callers of the GroupController see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from localvolume.volumes.capacity import MIB
from tests.host.support_csi_controller import CUT_AT, Caller, Records, controller

MOUNT: dict[str, Any] = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
HERE = {"kubernetes.io/hostname": "host-1"}


@pytest.fixture
def volumes() -> Records:
    return Records()


@pytest.fixture
async def call(volumes: Records, tmp_path: Path) -> AsyncIterator[Caller]:
    async with controller(volumes, tmp_path) as caller:
        for name in ("v", "w"):
            size = {"required_bytes": 5 * MIB}
            await caller(
                "CreateVolume", name=name, capacity_range=size, volume_capabilities=[MOUNT]
            )
        yield caller


async def cut(call: Caller, *sources: str, **fields: Any) -> Any:
    asked = {"name": "g", "source_volume_ids": sources or ("v", "w"), **fields}
    return (await call("CreateVolumeGroupSnapshot", **asked)).group_snapshot


def ids(group: Any) -> list[str]:
    return [one.snapshot_id for one in group.snapshots]


async def test_a_group_is_cut_once_and_told_with_all_its_snapshots(call: Caller) -> None:
    first = await cut(call, secrets={"key": "the-secret-word"})
    again = await cut(call, "w", "v")

    assert first == again
    assert (first.group_snapshot_id, first.ready_to_use) == ("g", True)
    assert first.creation_time.seconds * 10**9 + first.creation_time.nanos == CUT_AT
    assert {one.source_volume_id for one in first.snapshots} == {"v", "w"}
    for one in first.snapshots:
        assert (one.group_snapshot_id, one.ready_to_use, one.size_bytes) == ("g", True, 5 * MIB)
        assert one.creation_time == first.creation_time
        assert [dict(there.segments) for there in one.accessible_topology] == [HERE]
    found = await call("GetVolumeGroupSnapshot", group_snapshot_id="g", snapshot_ids=ids(first))
    assert found.group_snapshot == first


async def test_its_snapshots_are_listed_with_the_group_and_restored_alone(call: Caller) -> None:
    group = await cut(call)

    listed = (await call("ListSnapshots")).entries
    source = {"snapshot": {"snapshot_id": ids(group)[0]}}
    await call("CreateVolume", name="r", volume_capabilities=[MOUNT], volume_content_source=source)

    assert [one.snapshot for one in listed] == list(group.snapshots)


async def test_what_csi_snapshotter_adds_is_no_parameter(call: Caller) -> None:
    kinds = ("volumegroupsnapshot/name", "volumegroupsnapshot/namespace")
    more = {f"csi.storage.k8s.io/{one}": "x" for one in (*kinds, "volumegroupsnapshotcontent/name")}

    assert len(ids(await cut(call, parameters=more))) == 2


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"name": ""}, Status.INVALID_ARGUMENT),
        ({"name": "n" * 129}, Status.INVALID_ARGUMENT),
        ({"source_volume_ids": []}, Status.INVALID_ARGUMENT),
        ({"source_volume_ids": ["v", ""]}, Status.INVALID_ARGUMENT),
        ({"source_volume_ids": ["v", "v"]}, Status.INVALID_ARGUMENT),
        ({"source_volume_ids": ["v" * 129]}, Status.INVALID_ARGUMENT),
        ({"parameters": {"type": "x"}}, Status.INVALID_ARGUMENT),
        ({"source_volume_ids": ["../v"]}, Status.NOT_FOUND),
        ({"source_volume_ids": ["x"]}, Status.NOT_FOUND),
    ],
)
async def test_a_group_that_cannot_be_asked_for(
    call: Caller, volumes: Records, fields: dict[str, Any], status: Status
) -> None:
    asked = {"name": "g", "source_volume_ids": ["v", "w"]} | fields

    refused, _ = await call.refused("CreateVolumeGroupSnapshot", **asked)

    assert refused is status
    assert not volumes.cut


async def test_volumes_that_cannot_be_cut_together(call: Caller, volumes: Records) -> None:
    volumes.apart = "they are in two pools"
    asked = {"name": "g", "source_volume_ids": ["v", "w"]}

    refused = await call.refused("CreateVolumeGroupSnapshot", **asked)

    assert refused == (Status.FAILED_PRECONDITION, volumes.apart)


async def test_a_group_of_others_is_not_passed_off(call: Caller) -> None:
    await cut(call)

    status, _ = await call.refused("CreateVolumeGroupSnapshot", name="g", source_volume_ids=["v"])

    assert status is Status.ALREADY_EXISTS


async def test_one_of_a_group_is_not_deleted_alone(call: Caller, volumes: Records) -> None:
    group = await cut(call)

    status, _ = await call.refused("DeleteSnapshot", snapshot_id=ids(group)[0])

    assert status is Status.INVALID_ARGUMENT
    assert len(volumes.cut) == 2


async def test_a_list_of_other_snapshots_is_refused(call: Caller, volumes: Records) -> None:
    group = await cut(call)
    for rpc in ("GetVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"):
        for others in ([], ids(group)[:1], [*ids(group), "another"]):
            status, _ = await call.refused(rpc, group_snapshot_id="g", snapshot_ids=others)
            assert status is Status.INVALID_ARGUMENT
    assert len(volumes.cut) == 2


async def test_a_group_is_deleted_and_then_unknown(call: Caller, volumes: Records) -> None:
    group = await cut(call)
    asked = {"group_snapshot_id": "g", "snapshot_ids": ids(group)}

    await call("DeleteVolumeGroupSnapshot", **asked)
    await call("DeleteVolumeGroupSnapshot", **asked)

    assert not volumes.cut
    for unknown in ("g", "../g"):
        status, _ = await call.refused("GetVolumeGroupSnapshot", group_snapshot_id=unknown)
        assert status is Status.NOT_FOUND
    await call("DeleteVolumeGroupSnapshot", group_snapshot_id="../g")
    for rpc in ("GetVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"):
        status, _ = await call.refused(rpc)
        assert status is Status.INVALID_ARGUMENT


async def test_the_capabilities(call: Caller) -> None:
    answer = await call("GroupControllerGetCapabilities")

    # CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
    assert [one.rpc.type for one in answer.capabilities] == [1]
