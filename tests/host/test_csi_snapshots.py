"""Snapshots, restores and clones over a real socket, as callers of the Controller see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from localvolume.backends.model import Fill
from localvolume.dynamic.calls import NotNow
from localvolume.volumes.capacity import GIB, MIB
from tests.host.support_csi_controller import CUT_AT, Caller, Records, controller

MOUNT: dict[str, Any] = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
HERE = {"segments": {"kubernetes.io/hostname": "host-1"}}
ELSEWHERE = {"segments": {"kubernetes.io/hostname": "host-2"}}
_FULL = Status.RESOURCE_EXHAUSTED
SECRET = {"key": "the-secret-word"}


@pytest.fixture
def volumes() -> Records:
    return Records()


@pytest.fixture
async def call(volumes: Records, tmp_path: Path) -> AsyncIterator[Caller]:
    async with controller(volumes, tmp_path) as caller:
        yield caller


def asks(name: str = "v", size: int = 5 * MIB, **fields: Any) -> dict[str, Any]:
    """A CreateVolumeRequest's fields; without a size if it is 0."""
    sized = {"capacity_range": {"required_bytes": size}} if size else {}
    return {"name": name, "volume_capabilities": [MOUNT], **sized, **fields}


def of_snapshot(name: str) -> dict[str, Any]:
    return {"volume_content_source": {"snapshot": {"snapshot_id": name}}}


def of_volume(name: str) -> dict[str, Any]:
    return {"volume_content_source": {"volume": {"volume_id": name}}}


async def cut(call: Caller, name: str, source: str = "v", **fields: Any) -> Any:
    return (await call("CreateSnapshot", name=name, source_volume_id=source, **fields)).snapshot


async def listed(call: Caller, **fields: Any) -> list[str]:
    answer = await call("ListSnapshots", **fields)
    assert not answer.next_token
    return [one.snapshot.snapshot_id for one in answer.entries]


async def test_a_snapshot_is_cut_once(call: Caller, volumes: Records) -> None:
    await call("CreateVolume", **asks("v", 7 * MIB))

    first = await cut(call, "s", secrets=SECRET)
    again = await cut(call, "s")

    assert first == again
    assert (first.snapshot_id, first.source_volume_id, first.size_bytes) == ("s", "v", 7 * MIB)
    when = first.creation_time
    assert when.seconds * 10**9 + when.nanos == CUT_AT
    assert first.ready_to_use
    assert [dict(one.segments) for one in first.accessible_topology] == [HERE["segments"]]
    assert not first.group_snapshot_id
    assert list(volumes.cut) == ["s"]


async def test_the_name_that_csi_snapshotter_gives_has_a_handle(call: Caller) -> None:
    await call("CreateVolume", **asks())
    name = "snapshot-6b7a0b1c-29e2-4b2f-9f0f-0d3b7d3f7a11"

    first, again, other = [await cut(call, one) for one in (name, name, name[:-1] + "2")]

    assert first.snapshot_id == again.snapshot_id != other.snapshot_id
    found = await call("GetSnapshot", snapshot_id=first.snapshot_id)
    assert found.snapshot == first


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"name": ""}, Status.INVALID_ARGUMENT),
        ({"name": "n" * 129}, Status.INVALID_ARGUMENT),
        ({"source_volume_id": ""}, Status.INVALID_ARGUMENT),
        ({"parameters": {"type": "x"}}, Status.INVALID_ARGUMENT),
        ({"source_volume_id": "w"}, Status.NOT_FOUND),
        ({"source_volume_id": "../w"}, Status.NOT_FOUND),
        ({"accessibility_requirements": {"requisite": [ELSEWHERE]}}, Status.RESOURCE_EXHAUSTED),
    ],
)
async def test_a_snapshot_that_cannot_be_cut(
    call: Caller, volumes: Records, fields: dict[str, Any], status: Status
) -> None:
    await call("CreateVolume", **asks())

    refused, _ = await call.refused(
        "CreateSnapshot", **({"name": "s", "source_volume_id": "v"} | fields)
    )

    assert refused is status
    assert not volumes.cut


async def test_a_pool_that_has_no_snapshots_says_why(call: Caller, volumes: Records) -> None:
    await call("CreateVolume", **asks())
    volumes.no_copies = "pool p: its filesystem has no reflinks"

    refused = await call.refused("CreateSnapshot", name="s", source_volume_id="v")

    assert refused == (Status.INVALID_ARGUMENT, volumes.no_copies)
    for value in ("refused", "yes"):
        fields = {"name": "s", "source_volume_id": "v", "parameters": {"fullCopies": value}}
        assert (await call.refused("CreateSnapshot", **fields))[0] is Status.INVALID_ARGUMENT
    parameters = {"fullCopies": "allowed"}
    await call("CreateSnapshot", name="s", source_volume_id="v", parameters=parameters)


async def test_a_snapshot_whose_reserve_was_full_is_not_ready(
    call: Caller, volumes: Records
) -> None:
    await call("CreateVolume", **asks())
    made = await cut(call, "s", parameters={"snapshotReserve": "50%"})
    assert made.ready_to_use
    record = volumes.cut["s"]
    assert record.reserve_bytes == record.size_bytes // 2

    volumes.fills["s"] = Fill(percent=100, lost=True)

    assert not (await call("GetSnapshot", snapshot_id="s")).snapshot.ready_to_use
    (listed,) = (await call("ListSnapshots")).entries
    assert not listed.snapshot.ready_to_use
    assert listed.snapshot.size_bytes == record.size_bytes


async def test_a_snapshot_is_cut_where_its_volume_is(call: Caller) -> None:
    await call("CreateVolume", **asks())

    made = await cut(
        call, "s", accessibility_requirements={"requisite": [ELSEWHERE, HERE], "preferred": [HERE]}
    )

    assert [dict(one.segments) for one in made.accessible_topology] == [HERE["segments"]]


async def test_a_snapshot_of_another_volume_is_not_passed_off(call: Caller) -> None:
    await call("CreateVolume", **asks("v"))
    await call("CreateVolume", **asks("w"))
    await cut(call, "s", "v")

    status, _ = await call.refused("CreateSnapshot", name="s", source_volume_id="w")

    assert status is Status.ALREADY_EXISTS


async def test_a_call_before_the_node_is_known_is_to_be_repeated(
    call: Caller, volumes: Records
) -> None:
    await call("CreateVolume", **asks())
    volumes.facts = NotNow("the node is not known yet")

    status, _ = await call.refused("CreateSnapshot", name="s", source_volume_id="v")

    assert status is Status.UNAVAILABLE
    assert not volumes.cut


async def test_a_snapshot_outlives_its_volume(call: Caller) -> None:
    await call("CreateVolume", **asks())
    made = await cut(call, "s")

    await call("DeleteVolume", volume_id="v")

    assert (await call("GetSnapshot", snapshot_id="s")).snapshot == made
    assert await listed(call, source_volume_id="v") == ["s"]
    restored = await call("CreateVolume", **asks("r", **of_snapshot("s")))
    assert restored.volume.content_source.snapshot.snapshot_id == "s"


async def test_a_removed_snapshot_is_gone(call: Caller, volumes: Records) -> None:
    await call("CreateVolume", **asks())
    await cut(call, "s")

    for _ in range(2):
        await call("DeleteSnapshot", snapshot_id="s", secrets=SECRET)

    assert await listed(call) == []
    assert "v" in volumes.known
    status, text = await call.refused("GetSnapshot", snapshot_id="s")
    assert (status, text) == (Status.NOT_FOUND, "there is no snapshot s")


async def test_a_volume_is_not_removed_for_a_snapshot(call: Caller, volumes: Records) -> None:
    await call("CreateVolume", **asks())
    await cut(call, "s")

    for handle in ("v", "none", "../v"):
        await call("DeleteSnapshot", snapshot_id=handle)
    await call("DeleteVolume", volume_id="s")

    assert (list(volumes.known), list(volumes.cut)) == (["v"], ["s"])


@pytest.mark.parametrize("rpc", ["DeleteSnapshot", "GetSnapshot"])
async def test_a_handle_is_needed(call: Caller, rpc: str) -> None:
    assert await call.refused(rpc) == (Status.INVALID_ARGUMENT, "snapshot_id is missing")


@pytest.mark.parametrize("handle", ["s", "v", "../s", "S"])
async def test_a_snapshot_that_is_not_there(call: Caller, handle: str) -> None:
    await call("CreateVolume", **asks())

    status, text = await call.refused("GetSnapshot", snapshot_id=handle)

    assert status is Status.NOT_FOUND
    assert handle in text
    assert await listed(call, snapshot_id=handle) == []


async def test_snapshots_are_listed_by_what_is_asked_for(call: Caller) -> None:
    for name in ("v", "w"):
        await call("CreateVolume", **asks(name))
    for name, source in (("b", "v"), ("a", "w"), ("c", "v")):
        await cut(call, name, source)

    assert await listed(call) == ["a", "b", "c"]
    assert await listed(call, source_volume_id="v") == ["b", "c"]
    assert await listed(call, snapshot_id="a", secrets=SECRET) == ["a"]
    assert await listed(call, snapshot_id="a", source_volume_id="w") == ["a"]
    assert await listed(call, snapshot_id="a", source_volume_id="v") == []
    assert await listed(call, source_volume_id="none") == []
    everything = await call("ListSnapshots")
    found = await call("GetSnapshot", snapshot_id="a")
    assert everything.entries[0].snapshot == found.snapshot


async def test_snapshots_are_no_volumes_in_lists(call: Caller) -> None:
    await call("CreateVolume", **asks())
    await cut(call, "s")

    told = await call("ListVolumes")

    assert [one.volume.volume_id for one in told.entries] == ["v"]


async def test_snapshots_are_listed_in_pages(call: Caller) -> None:
    await call("CreateVolume", **asks())
    for name in ("a", "b", "c", "d"):
        await cut(call, name)

    first = await call("ListSnapshots", max_entries=2, source_volume_id="v")
    await call("DeleteSnapshot", snapshot_id="b")
    rest = await call("ListSnapshots", starting_token=first.next_token, source_volume_id="v")

    assert [one.snapshot.snapshot_id for one in first.entries] == ["a", "b"]
    assert [one.snapshot.snapshot_id for one in rest.entries] == ["c", "d"]
    assert rest.next_token == ""


async def test_a_page_that_cannot_be_had(call: Caller) -> None:
    token, _ = await call.refused("ListSnapshots", starting_token="invalid-token")
    number, _ = await call.refused("ListSnapshots", max_entries=-1)

    assert (token, number) == (Status.ABORTED, Status.INVALID_ARGUMENT)


async def test_a_copy_says_whose_content_it_has(call: Caller, volumes: Records) -> None:
    await call("CreateVolume", **asks("v", 7 * MIB))
    await cut(call, "s")

    restored = asks("r", 9 * MIB, **of_snapshot("s"))
    cloned = asks("c", 7 * MIB, **of_volume("v"))
    first = [(await call("CreateVolume", **one)).volume for one in (restored, cloned)]
    again = [(await call("CreateVolume", **one)).volume for one in (restored, cloned)]

    assert first == again
    assert [one.capacity_bytes for one in first] == [9 * MIB, 7 * MIB]
    assert first[0].content_source.snapshot.snapshot_id == "s"
    assert first[1].content_source.volume.volume_id == "v"
    assert (volumes.known["r"].made_from, volumes.known["c"].made_from) == ("s", "v")


async def test_an_empty_volume_has_nobodys_content(call: Caller) -> None:
    made = await call("CreateVolume", **asks())

    assert not made.volume.HasField("content_source")


@pytest.mark.parametrize("of", [of_snapshot("s"), of_volume("v")])
async def test_a_copy_has_the_size_of_its_source(call: Caller, of: dict[str, Any]) -> None:
    await call("CreateVolume", **asks("v", 7 * MIB))
    await cut(call, "s")

    made = await call("CreateVolume", **asks("r", 0, **of))

    assert made.volume.capacity_bytes == 7 * MIB


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        (of_snapshot("none"), Status.NOT_FOUND),
        (of_volume("none"), Status.NOT_FOUND),
        (of_snapshot("../s"), Status.NOT_FOUND),
        (of_snapshot("v"), Status.NOT_FOUND),
        (of_volume("s"), Status.NOT_FOUND),
        (of_snapshot("s") | {"capacity_range": {"required_bytes": MIB}}, Status.OUT_OF_RANGE),
        (of_volume("v") | {"capacity_range": {"limit_bytes": MIB}}, Status.OUT_OF_RANGE),
        (of_snapshot("s") | {"capacity_range": {"required_bytes": 20 * GIB}}, _FULL),
        ({"volume_content_source": {}}, Status.INVALID_ARGUMENT),
        (of_snapshot(""), Status.INVALID_ARGUMENT),
        (of_volume(""), Status.INVALID_ARGUMENT),
    ],
)
async def test_a_copy_that_cannot_be_made(
    call: Caller, volumes: Records, changed: dict[str, Any], status: Status
) -> None:
    await call("CreateVolume", **asks())
    await cut(call, "s")

    refused, _ = await call.refused("CreateVolume", **(asks("r") | changed))

    assert refused is status
    assert list(volumes.known) == ["v"]


async def test_another_source_is_another_request(call: Caller) -> None:
    await call("CreateVolume", **asks())
    await cut(call, "s")
    await call("CreateVolume", **asks("r", **of_snapshot("s")))

    for other in ({}, of_volume("v")):
        status, _ = await call.refused("CreateVolume", **asks("r", **other))
        assert status is Status.ALREADY_EXISTS


async def test_no_secret_is_logged_or_answered(
    call: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    asked = {"name": "s", "source_volume_id": "none", "secrets": SECRET}
    _, text = await call.refused("CreateSnapshot", **asked)

    assert "none" in caplog.text
    assert SECRET["key"] not in text
    assert SECRET["key"] not in caplog.text
