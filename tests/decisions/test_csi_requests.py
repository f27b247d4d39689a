"""What a request to the Controller service asks for: names, sizes, parameters, places, pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localvolume.backends.handles import handle_of
from localvolume.backends.pool.layout import fault_of_volume_name
from localvolume.csi import requests
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import Aborted, CallFailed, InvalidArgument, NotFound, OutOfRange
from localvolume.host.lvm.commands import check_names
from localvolume.volumes.capacity import GIB, MIB
from localvolume.volumes.manifest import NodeFacts
from tests.suite.chance import examples

MOUNT = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
BLOCK = {"block": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
NODE = NodeFacts("node-1", "uid-1", "host-1")
CLAIMS = "pvc-6b7a0b1c-29e2-4b2f-9f0f-0d3b7d3f7a11"


SNAPSHOT = {"snapshot": {"snapshot_id": "s"}}
VOLUME = {"volume": {"volume_id": "w"}}


def create(**fields: Any) -> Any:
    return messages.CreateVolumeRequest(**{"name": "v", "volume_capabilities": [MOUNT]} | fields)


OURS = {"segments": {"kubernetes.io/hostname": "host-1"}}
OTHERS = {"segments": {"kubernetes.io/hostname": "host-2"}}


@pytest.mark.parametrize(
    "name", [CLAIMS, "v", "a.b-c", "csi-" + "0" * 64, "a" * 80, "csi-" + "0" * 41]
)
def test_a_name_that_every_backend_can_take_is_the_handle(name: str) -> None:
    assert handle_of(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "With Blanks",
        "sanity" * 20 + "-A1",
        "../../etc",
        ".",
        "ns/claim",
        "a" * 81,
        "a-" * 27 + "a",  # LVM doubles each "-"
        "snapshot-1",
        "pvmove0",
        "übung",
        "csi-" + "0" * 40,
    ],
)
def test_any_other_name_has_a_digest_for_a_handle(name: str) -> None:
    handle = handle_of(name)

    assert handle != name
    assert handle.startswith("csi-")
    assert len(handle) == 44
    assert handle == handle_of(name)


@settings(max_examples=examples(200))
@given(st.text(min_size=1, max_size=128) | st.from_regex(r"[a-z0-9.-]{1,128}", fullmatch=True))
def test_every_handle_is_a_name_that_every_backend_can_take(name: str) -> None:
    handle = handle_of(name)

    assert fault_of_volume_name(handle) is None
    check_names("a-group-of-25-characters", handle)


def test_no_two_names_have_the_same_handle() -> None:
    made = handle_of("With Blanks")

    assert handle_of(made) != made


@pytest.mark.parametrize(
    ("capacity_range", "size", "limit"),
    [
        (None, GIB, 0),
        ({"required_bytes": 5}, 5, 0),
        ({"required_bytes": 5, "limit_bytes": 5}, 5, 5),
        ({"limit_bytes": 320 * MIB}, 320 * MIB, 320 * MIB),
        ({"limit_bytes": 3 * GIB}, GIB, 3 * GIB),
    ],
)
def test_sizes(capacity_range: dict[str, int] | None, size: int, limit: int) -> None:
    wanted = requests.wanted(create(capacity_range=capacity_range))

    assert (wanted.size_bytes, wanted.limit_bytes) == (size, limit)


@pytest.mark.parametrize(
    ("capacity_range", "status"),
    [
        ({}, InvalidArgument),
        ({"required_bytes": -1}, InvalidArgument),
        ({"required_bytes": 1, "limit_bytes": -1}, InvalidArgument),
        ({"required_bytes": 6, "limit_bytes": 5}, OutOfRange),
    ],
)
def test_sizes_that_no_volume_has(capacity_range: dict[str, int], status: type[CallFailed]) -> None:
    with pytest.raises(status, match=r"required_bytes|negative"):
        requests.wanted(create(capacity_range=capacity_range))


def test_the_parameters_are_those_of_the_class() -> None:
    metadata = {
        f"csi.storage.k8s.io/{one}": "x" for one in ("pvc/name", "pvc/namespace", "pv/name")
    }

    wanted = requests.wanted(create(parameters={"pool": "fast", **metadata}))

    assert wanted.parameters == {"pool": "fast"}


@pytest.mark.parametrize(
    ("capability", "parameters", "fs_type"),
    [
        ("", {}, ""),
        ("xfs", {}, "xfs"),
        ("", {"fsType": "xfs"}, "xfs"),
        ("", {"csi.storage.k8s.io/fstype": "ext4"}, "ext4"),
        ("xfs", {"fsType": "xfs", "csi.storage.k8s.io/fstype": "xfs"}, "xfs"),
    ],
)
def test_the_filesystem_is_named_in_either_place(
    capability: str, parameters: dict[str, str], fs_type: str
) -> None:
    one = MOUNT | {"mount": {"fs_type": capability}}

    assert (
        requests.wanted(create(volume_capabilities=[one], parameters=parameters)).fs_type == fs_type
    )


@pytest.mark.parametrize("key", ["fsType", "csi.storage.k8s.io/fstype"])
def test_two_filesystems_are_refused(key: str) -> None:
    one = MOUNT | {"mount": {"fs_type": "ext4"}}

    with pytest.raises(InvalidArgument, match="ext4 and xfs"):
        requests.wanted(create(volume_capabilities=[one], parameters={key: "xfs"}))


def test_a_block_volume_has_no_filesystem() -> None:
    wanted = requests.wanted(create(volume_capabilities=[BLOCK], parameters={"fsType": "xfs"}))

    assert (wanted.volume_mode, wanted.fs_type) == ("Block", "")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "name is missing"),
        ({"volume_capabilities": []}, "volume_capabilities is missing"),
        ({"volume_content_source": {}}, "neither a snapshot nor a volume"),
        ({"volume_content_source": {"snapshot": {}}}, "snapshot_id is missing"),
        ({"volume_content_source": {"volume": {}}}, "volume_id is missing"),
        ({"mutable_parameters": {"readOps": "5", "burst": "1"}}, "parameter burst is not known"),
    ],
)
def test_what_is_missing_or_not_served_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        requests.wanted(create(**fields))


@pytest.mark.parametrize(
    ("content", "source", "from_snapshot"),
    [(None, "", False), (SNAPSHOT, "s", True), (VOLUME, "w", False)],
)
def test_whose_content_it_is_to_have(content: Any, source: str, from_snapshot: bool) -> None:
    wanted = requests.wanted(create(volume_content_source=content))

    assert (wanted.source, wanted.from_snapshot) == (source, from_snapshot)


@pytest.mark.parametrize("content", [SNAPSHOT, VOLUME])
@pytest.mark.parametrize(
    ("capacity_range", "size", "limit"),
    [
        (None, 0, 0),
        ({"limit_bytes": 3 * GIB}, 0, 3 * GIB),
        ({"required_bytes": 5, "limit_bytes": 6}, 5, 6),
    ],
)
def test_without_a_size_it_is_as_large_as_its_source(
    content: Any, capacity_range: Any, size: int, limit: int
) -> None:
    asked = create(volume_content_source=content, capacity_range=capacity_range)

    wanted = requests.wanted(asked)

    assert (wanted.size_bytes, wanted.limit_bytes) == (size, limit)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"snapshot": {"snapshot_id": "../s"}}, "snapshot ../s"),
        ({"volume": {"volume_id": "W"}}, "volume W"),
    ],
)
def test_a_source_that_nothing_can_be(content: Any, said: str) -> None:
    with pytest.raises(NotFound, match=said):
        requests.wanted(create(volume_content_source=content))


def snapshot(**fields: Any) -> Any:
    return messages.CreateSnapshotRequest(**{"name": "s", "source_volume_id": "v"} | fields)


def test_a_snapshot_has_its_handle_by_the_same_rule() -> None:
    named = "snapshot-6b7a0b1c-29e2-4b2f-9f0f-0d3b7d3f7a11"

    wanted = requests.wanted_snapshot(snapshot(name=named))

    assert wanted == requests.WantedSnapshot(handle_of(named), "v")
    assert wanted.name.startswith("csi-")


def test_what_names_the_objects_of_a_snapshot_is_no_parameter() -> None:
    metadata = {
        f"csi.storage.k8s.io/{one}": "x"
        for one in ("volumesnapshot/name", "volumesnapshot/namespace", "volumesnapshotcontent/name")
    }

    wanted = requests.wanted_snapshot(snapshot(parameters=metadata))

    assert wanted == requests.WantedSnapshot("s", "v")


@pytest.mark.parametrize(("value", "full"), [("allowed", True), ("refused", False)])
def test_a_snapshot_may_be_made_by_copying_all_data(value: str, full: bool) -> None:
    wanted = requests.wanted_snapshot(snapshot(parameters={"fullCopies": value}))
    assert wanted == requests.WantedSnapshot("s", "v", full)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "name is missing"),
        ({"source_volume_id": ""}, "source_volume_id is missing"),
        ({"parameters": {"type": "x", "expires": "y"}}, "expires, type"),
        ({"parameters": {"csi.storage.k8s.io/other": "x"}}, "csi.storage.k8s.io/other"),
        ({"parameters": {"fullCopies": "yes"}}, "fullCopies: must be allowed or refused"),
    ],
)
def test_what_is_wrong_with_a_snapshots_request_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        requests.wanted_snapshot(snapshot(**fields))


def test_a_snapshot_of_what_no_volume_can_be() -> None:
    with pytest.raises(NotFound, match=r"volume \.\./v"):
        requests.wanted_snapshot(snapshot(source_volume_id="../v"))


@pytest.mark.parametrize(
    ("requirement", "here"),
    [
        ({}, True),
        ({"requisite": [OURS]}, True),
        ({"requisite": [OTHERS, OURS], "preferred": [OTHERS]}, True),
        ({"preferred": [OTHERS]}, True),
        ({"requisite": [OTHERS], "preferred": [OURS]}, False),
        ({"requisite": [{"segments": {"topology.kubernetes.io/zone": "a"}}]}, False),
        ({"requisite": [{}]}, False),
        ({"requisite": [{"segments": OURS["segments"] | {"zone": "a"}}]}, False),
    ],
)
def test_where_a_volume_may_be(requirement: dict[str, Any], here: bool) -> None:
    assert requests.may_be_here(messages.TopologyRequirement(**requirement), NODE) is here


@pytest.mark.parametrize(
    ("handle", "known"),
    [
        ("v", "v"),
        ("pvc-" + "a" * 90, "pvc-" + "a" * 90),
        ("../v", None),
        ("V", None),
        ("a/b", None),
    ],
)
def test_a_handle_that_no_volume_can_have(handle: str, known: str | None) -> None:
    assert requests.handle_in(messages.DeleteVolumeRequest(volume_id=handle)) == known


def test_a_handle_is_needed() -> None:
    with pytest.raises(InvalidArgument, match="volume_id is missing"):
        requests.handle_in(messages.DeleteVolumeRequest())


@pytest.mark.parametrize("token", ["invalid-token", "after:", "3", "b"])
def test_a_token_of_another_makes_the_caller_begin_again(token: str) -> None:
    with pytest.raises(Aborted):
        requests.page(["a", "b"], messages.ListVolumesRequest(starting_token=token))


def test_a_negative_number_of_entries_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="max_entries"):
        requests.page(["a"], messages.ListVolumesRequest(max_entries=-1))


NAMES = st.sets(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?", fullmatch=True), max_size=12)


@settings(max_examples=examples(100))
@given(before=NAMES, after=NAMES, most=st.integers(0, 5))
def test_pages_hold_each_lasting_name_once(before: set[str], after: set[str], most: int) -> None:
    """Volumes come and go between the first page and the second."""
    seen: list[str] = []
    token, names = "", before
    while True:
        asked = messages.ListVolumesRequest(max_entries=most, starting_token=token)
        chosen, token = requests.page(sorted(names), asked)
        assert not most or len(chosen) <= most
        seen += chosen
        if not token:
            break
        names = after

    assert len(seen) == len(set(seen))
    assert set(seen) >= before & after
    assert set(seen) <= before | after


def refuses(act: Callable[[], object]) -> bool:
    try:
        act()
    except CallFailed as error:
        return bool(str(error))
    return False


@settings(max_examples=examples(200))
@given(required=st.integers(-3, 3), limit=st.integers(-3, 3))
def test_a_range_is_served_or_refused_and_never_bent(required: int, limit: int) -> None:
    asked = messages.CapacityRange(required_bytes=required, limit_bytes=limit)
    sound = min(required, limit) >= 0 and max(required, limit) > 0
    sound = sound and (not limit or required <= limit)

    assert refuses(lambda: requests.sizes(asked)) is not sound
    assert not sound or requests.sizes(asked) == (required, limit)
