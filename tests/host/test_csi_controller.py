"""The Controller service over a real socket: each of its calls, and what csi-sanity asks of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from localvolume.csi.wire import messages
from localvolume.dynamic.calls import NotNow
from localvolume.volumes.attributes import Attributes
from localvolume.volumes.capacity import GIB, MIB
from tests.host.support_csi_controller import Caller, Records, controller

WRITER = {"mode": "SINGLE_NODE_WRITER"}
MOUNT: dict[str, Any] = {"mount": {}, "access_mode": WRITER}
BLOCK: dict[str, Any] = {"block": {}, "access_mode": WRITER}
SHARED: dict[str, Any] = {"mount": {}, "access_mode": {"mode": "MULTI_NODE_MULTI_WRITER"}}
HERE = {"segments": {"kubernetes.io/hostname": "host-1"}}
ELSEWHERE = {"segments": {"kubernetes.io/hostname": "host-2"}}
SECRET = {"key": "the-secret-word"}


@pytest.fixture
def volumes() -> Records:
    return Records()


@pytest.fixture
async def call(volumes: Records, tmp_path: Path) -> AsyncIterator[Caller]:
    async with controller(volumes, tmp_path) as caller:
        yield caller


async def make(call: Caller, name: str = "v", size: int = GIB, **fields: Any) -> Any:
    asked = {
        "name": name,
        "capacity_range": {"required_bytes": size},
        "volume_capabilities": [MOUNT],
    }
    return (await call("CreateVolume", **(asked | fields))).volume


async def test_what_it_can_do_is_said(call: Caller) -> None:
    told = await call("ControllerGetCapabilities")

    kinds = messages.ControllerServiceCapability.RPC.Type
    assert {kinds.Name(one.rpc.type) for one in told.capabilities} == {
        "CREATE_DELETE_VOLUME",
        "LIST_VOLUMES",
        "GET_CAPACITY",
        "EXPAND_VOLUME",
        "GET_VOLUME",
        "SINGLE_NODE_MULTI_WRITER",
        "GET_VOLUME_HEALTH",
        "LIST_VOLUME_HEALTH",
        "CREATE_DELETE_SNAPSHOT",
        "LIST_SNAPSHOTS",
        "GET_SNAPSHOT",
        "CLONE_VOLUME",
        "MODIFY_VOLUME",
    }


@pytest.mark.parametrize(
    "rpc",
    [
        "ControllerPublishVolume",
        "ControllerUnpublishVolume",
    ],
)
async def test_what_it_cannot_do_is_not_served(call: Caller, rpc: str) -> None:
    status, _ = await call.refused(rpc)

    assert status is Status.UNIMPLEMENTED


async def test_a_volume_is_made_once(call: Caller, volumes: Records) -> None:
    first = await make(call, "pvc-1", secrets=SECRET)
    again = await make(call, "pvc-1")

    assert first == again
    assert (first.volume_id, first.capacity_bytes) == ("pvc-1", GIB)
    assert [dict(one.segments) for one in first.accessible_topology] == [HERE["segments"]]
    assert not first.volume_context
    assert list(volumes.known) == ["pvc-1"]


async def test_a_name_that_no_volume_can_have_gets_a_handle(call: Caller) -> None:
    name = "sanity-controller-create-maxlen-60B6".ljust(128, "a")

    first, again = await make(call, name), await make(call, name)
    other = await make(call, name[:-1] + "b")

    assert first.volume_id == again.volume_id
    assert first.volume_id.startswith("csi-")
    assert other.volume_id != first.volume_id


@pytest.mark.parametrize(
    "changed",
    [
        {"capacity_range": {"required_bytes": 2 * GIB, "limit_bytes": 2 * GIB}},
        {"volume_capabilities": [BLOCK]},
        {"parameters": {"pool": "other"}},
    ],
)
async def test_another_request_of_the_same_name_is_refused(
    call: Caller, volumes: Records, changed: dict[str, Any]
) -> None:
    await make(call)
    before = dict(volumes.known)

    asked = {"name": "v", "capacity_range": {"required_bytes": GIB}, "volume_capabilities": [MOUNT]}
    status, _ = await call.refused("CreateVolume", **(asked | changed))

    assert status is Status.ALREADY_EXISTS
    assert volumes.known == before


async def test_a_volume_that_has_outgrown_its_request_is_not_passed_off_for_it(
    call: Caller,
) -> None:
    asked = {
        "name": "v",
        "capacity_range": {"required_bytes": GIB, "limit_bytes": GIB},
        "volume_capabilities": [MOUNT],
    }
    await call("CreateVolume", **asked)
    await call("ControllerExpandVolume", volume_id="v", capacity_range={"required_bytes": 2 * GIB})

    status, text = await call.refused("CreateVolume", **asked)

    assert status is Status.ALREADY_EXISTS
    assert str(2 * GIB) in text


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"name": ""}, Status.INVALID_ARGUMENT),
        ({"volume_capabilities": []}, Status.INVALID_ARGUMENT),
        ({"volume_capabilities": [SHARED]}, Status.INVALID_ARGUMENT),
        ({"name": "n" * 129}, Status.INVALID_ARGUMENT),
        ({"parameters": {"nonsense": "1"}}, Status.INVALID_ARGUMENT),
        ({"mutable_parameters": {"readOps": "none"}}, Status.INVALID_ARGUMENT),
        ({"volume_content_source": {}}, Status.INVALID_ARGUMENT),
        ({"capacity_range": {"required_bytes": 2, "limit_bytes": 1}}, Status.OUT_OF_RANGE),
        ({"capacity_range": {"required_bytes": 1, "limit_bytes": 1}}, Status.OUT_OF_RANGE),
        ({"capacity_range": {"required_bytes": 20 * GIB}}, Status.RESOURCE_EXHAUSTED),
        ({"accessibility_requirements": {"requisite": [ELSEWHERE]}}, Status.RESOURCE_EXHAUSTED),
    ],
)
async def test_a_volume_that_cannot_be_made(
    call: Caller, volumes: Records, changed: dict[str, Any], status: Status
) -> None:
    asked = {"name": "v", "capacity_range": {"required_bytes": GIB}, "volume_capabilities": [MOUNT]}

    refused, _ = await call.refused("CreateVolume", **(asked | changed))

    assert refused is status
    assert not volumes.known


async def test_a_volume_is_made_where_it_is_asked_for(call: Caller) -> None:
    made = await make(call, accessibility_requirements={"requisite": [ELSEWHERE, HERE]})

    assert [dict(one.segments) for one in made.accessible_topology] == [HERE["segments"]]


async def test_a_call_before_the_node_is_known_is_to_be_repeated(
    call: Caller, volumes: Records
) -> None:
    known, volumes.facts = volumes.facts, NotNow("the node is not known yet")
    status, text = await call.refused("CreateVolume", name="v", volume_capabilities=[MOUNT])
    volumes.facts = known

    assert (status, text) == (Status.UNAVAILABLE, "the node is not known yet")
    assert not volumes.known
    assert await make(call)


async def test_a_volume_is_removed_once(call: Caller, volumes: Records) -> None:
    await make(call)

    for _ in range(2):
        await call("DeleteVolume", volume_id="v", secrets=SECRET)
    await call("DeleteVolume", volume_id="../No Handle")

    assert not volumes.known


async def test_a_volume_in_use_is_kept(call: Caller, volumes: Records) -> None:
    await make(call)
    volumes.used.add("v")

    status, _ = await call.refused("DeleteVolume", volume_id="v")

    assert status is Status.FAILED_PRECONDITION
    assert "v" in volumes.known


@pytest.mark.parametrize(
    "rpc",
    [
        "DeleteVolume",
        "ValidateVolumeCapabilities",
        "ControllerGetVolume",
        "ControllerExpandVolume",
        "ControllerGetVolumeHealth",
    ],
)
async def test_a_call_for_no_volume_is_refused(call: Caller, rpc: str) -> None:
    status, text = await call.refused(rpc)

    assert status is Status.INVALID_ARGUMENT
    assert "volume_id" in text


@pytest.mark.parametrize("handle", ["fake-vol-id-1234", "../No Handle"])
@pytest.mark.parametrize(
    ("rpc", "fields"),
    [
        ("ValidateVolumeCapabilities", {"volume_capabilities": [MOUNT]}),
        ("ControllerGetVolume", {}),
        ("ControllerExpandVolume", {"capacity_range": {"required_bytes": 1}}),
        ("ControllerGetVolumeHealth", {}),
    ],
)
async def test_a_volume_that_is_not_there(
    call: Caller, rpc: str, fields: dict[str, Any], handle: str
) -> None:
    status, text = await call.refused(rpc, volume_id=handle, **fields)

    assert status is Status.NOT_FOUND
    assert handle in text


async def test_capabilities_that_a_volume_has_are_confirmed(call: Caller) -> None:
    await make(call)
    context = {"storage.kubernetes.io/csiProvisionerIdentity": "1-1-csi.localvolume.dev"}
    asked = [MOUNT, {"mount": {"fs_type": "ext4"}, "access_mode": WRITER}]

    told = await call(
        "ValidateVolumeCapabilities",
        volume_id="v",
        volume_capabilities=asked,
        volume_context=context,
    )

    assert list(told.confirmed.volume_capabilities) == [
        messages.VolumeCapability(**one) for one in asked
    ]
    assert dict(told.confirmed.volume_context) == context
    assert not told.message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"volume_capabilities": [BLOCK]}, "Filesystem, not Block"),
        ({"volume_capabilities": [MOUNT, BLOCK]}, "either mounted or a block device"),
        ({"volume_capabilities": [SHARED]}, "on one node"),
        ({"volume_capabilities": [{"mount": {"fs_type": "xfs"}, "access_mode": WRITER}]}, "ext4"),
        ({"volume_context": {"path": "/etc"}}, "path"),
        ({"parameters": {"pool": "p"}}, "parameters"),
        ({"mutable_parameters": {"readOps": "1"}}, "parameters"),
    ],
)
async def test_what_a_volume_does_not_have_is_not_confirmed(
    call: Caller, fields: dict[str, Any], said: str
) -> None:
    await make(call)

    told = await call(
        "ValidateVolumeCapabilities",
        **({"volume_id": "v", "volume_capabilities": [MOUNT]} | fields),
    )

    assert not told.HasField("confirmed")
    assert said in told.message
    assert len(told.message.encode()) <= 128


async def test_malformed_capabilities_are_refused(call: Caller) -> None:
    await make(call)

    wrongs: tuple[list[Any], ...] = ([], [{"mount": {}}])
    for wrong in wrongs:
        status, _ = await call.refused(
            "ValidateVolumeCapabilities", volume_id="v", volume_capabilities=wrong
        )
        assert status is Status.INVALID_ARGUMENT


async def test_volumes_are_listed_in_pages(call: Caller, volumes: Records) -> None:
    for name in ("b", "a", "c"):
        await make(call, name, 5 * MIB)

    first = await call("ListVolumes", max_entries=2)
    await call("DeleteVolume", volume_id="b")
    second = await call("ListVolumes", max_entries=2, starting_token=first.next_token)
    everything = await call("ListVolumes")

    assert [one.volume.volume_id for one in first.entries] == ["a", "b"]
    assert [one.volume.volume_id for one in second.entries] == ["c"]
    assert (second.next_token, everything.next_token) == ("", "")
    assert [one.volume.volume_id for one in everything.entries] == ["a", "c"]
    assert everything.entries[0].volume == (await call("ControllerGetVolume", volume_id="a")).volume
    assert everything.entries[0].volume.capacity_bytes == 5 * MIB


@pytest.mark.parametrize("rpc", ["ListVolumes", "ControllerListVolumeHealth"])
async def test_a_page_that_cannot_be_had(call: Caller, rpc: str) -> None:
    token, _ = await call.refused(rpc, starting_token="invalid-token")
    number, _ = await call.refused(rpc, max_entries=-1)

    assert (token, number) == (Status.ABORTED, Status.INVALID_ARGUMENT)


async def test_the_capacity_is_that_of_the_class(call: Caller, volumes: Records) -> None:
    await make(call)

    plain = await call("GetCapacity")
    of_class = await call(
        "GetCapacity",
        parameters={"pool": "p"},
        volume_capabilities=[{"mount": {"fs_type": "xfs"}, "access_mode": WRITER}],
        accessible_topology=HERE,
    )
    block = await call("GetCapacity", volume_capabilities=[BLOCK])

    for told in (plain, of_class, block):
        assert (told.available_capacity, told.maximum_volume_size.value) == (9 * GIB, 8 * GIB)
    assert volumes.asked == [
        ({}, "Filesystem", ""),
        ({"pool": "p"}, "Filesystem", "xfs"),
        ({}, "Block", ""),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"accessible_topology": ELSEWHERE},
        {"accessible_topology": {"segments": {}}},
        {"volume_capabilities": [SHARED]},
        {"volume_capabilities": [MOUNT, BLOCK]},
    ],
)
async def test_there_is_no_capacity_elsewhere_or_for_what_cannot_be_made(
    call: Caller, fields: dict[str, Any]
) -> None:
    told = await call("GetCapacity", **fields)

    assert told.available_capacity == 0
    assert told.HasField("maximum_volume_size")
    assert told.maximum_volume_size.value == 0


@pytest.mark.parametrize(
    "fields", [{"parameters": {"nonsense": "1"}}, {"volume_capabilities": [{"mount": {}}]}]
)
async def test_no_capacity_is_told_of_a_class_that_is_wrong(
    call: Caller, fields: dict[str, Any]
) -> None:
    status, _ = await call.refused("GetCapacity", **fields)

    assert status is Status.INVALID_ARGUMENT


async def test_a_volume_gets_what_a_call_names_and_keeps_the_rest(
    call: Caller, volumes: Records
) -> None:
    parameters = {"readOps": "500", "writeBytesPerSecond": "20Mi"}
    asked = {"name": "v", "volume_capabilities": [MOUNT], "mutable_parameters": parameters}
    await call("CreateVolume", **asked)
    assert volumes.wanted["v"].attributes == Attributes(read_ops=500, write_bytes=20 * MIB)
    changed = {"readOps": "max", "writeOps": "7"}
    for _ in range(2):
        await call("ControllerModifyVolume", volume_id="v", mutable_parameters=changed)
    has = Attributes(read_ops=0, write_ops=7, write_bytes=20 * MIB)
    assert volumes.known["v"].attributes == has
    for id_, wrong, status in (
        ("v", {"readOps": "1", "iops": "1"}, Status.INVALID_ARGUMENT),
        ("v", {"readOps": "0"}, Status.INVALID_ARGUMENT),
        ("", changed, Status.INVALID_ARGUMENT),
        ("other", changed, Status.NOT_FOUND),
    ):
        refused, _ = await call.refused(
            "ControllerModifyVolume", volume_id=id_, mutable_parameters=wrong
        )
        assert refused is status
    assert volumes.known["v"].attributes == has


async def test_a_volume_is_grown(call: Caller, volumes: Records) -> None:
    await make(call)
    asked = {"volume_id": "v", "capacity_range": {"required_bytes": 2 * GIB}, "secrets": SECRET}

    grown = [await call("ControllerExpandVolume", **asked) for _ in range(2)]
    smaller = await call(
        "ControllerExpandVolume", volume_id="v", capacity_range={"required_bytes": GIB}
    )
    limited = await call(
        "ControllerExpandVolume", volume_id="v", capacity_range={"limit_bytes": 3 * GIB}
    )

    answers = [(one.capacity_bytes, one.node_expansion_required) for one in grown]
    assert answers == [(2 * GIB, False)] * 2
    assert (smaller.capacity_bytes, limited.capacity_bytes) == (2 * GIB, 2 * GIB)
    assert volumes.known["v"].size_bytes == 2 * GIB


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, Status.INVALID_ARGUMENT),
        ({"capacity_range": {}}, Status.INVALID_ARGUMENT),
        ({"capacity_range": {"required_bytes": -1}}, Status.INVALID_ARGUMENT),
        ({"capacity_range": {"limit_bytes": 5}}, Status.OUT_OF_RANGE),
        ({"capacity_range": {"required_bytes": 3, "limit_bytes": 2}}, Status.OUT_OF_RANGE),
        ({"capacity_range": {"required_bytes": 99 * GIB}}, Status.RESOURCE_EXHAUSTED),
        (
            {"capacity_range": {"required_bytes": 2 * GIB}, "volume_capability": BLOCK},
            Status.INVALID_ARGUMENT,
        ),
    ],
)
async def test_a_volume_that_cannot_be_grown_stays_as_it_is(
    call: Caller, volumes: Records, fields: dict[str, Any], status: Status
) -> None:
    await make(call)

    refused, _ = await call.refused("ControllerExpandVolume", volume_id="v", **fields)

    assert refused is status
    assert volumes.known["v"].size_bytes == GIB


async def test_what_is_wrong_with_a_volume_is_told(call: Caller, volumes: Records) -> None:
    for name in ("a", "b", "c"):
        await make(call, name, 5 * MIB)
    volumes.wrong = {"a": [("DeviceGone", "its disk is gone")], "c": [("PoolFull", "no room")]}

    gone = await call("ControllerGetVolumeHealth", volume_id="a", secrets=SECRET)
    well = await call("ControllerGetVolumeHealth", volume_id="b")
    first = await call("ControllerListVolumeHealth", max_entries=1)
    second = await call(
        "ControllerListVolumeHealth", max_entries=1, starting_token=first.next_token
    )

    (entry,) = gone.volume_health.health_statuses
    assert (entry.status, entry.reason) == (messages.INACCESSIBLE, "DeviceGone")
    assert entry.message == "its disk is gone"
    assert well.volume_health == messages.VolumeHealth(volume_id="b")
    assert list(first.entries) == [gone.volume_health]
    assert [one.volume_id for one in second.entries] == ["c"]
    assert second.next_token == ""


async def test_no_secret_is_logged_or_answered(
    call: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    _, text = await call.refused("CreateVolume", secrets=SECRET, parameters={"nonsense": "1"})

    assert SECRET["key"] not in text
    assert SECRET["key"] not in caplog.text
