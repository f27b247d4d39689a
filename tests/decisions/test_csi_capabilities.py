"""What volume capabilities mean, how large fields may be, and how CSI calls what is wrong."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from localvolume.backends.model import BackendName, Record
from localvolume.csi import capabilities, limits
from localvolume.csi.capabilities import Kind, NotHad, kind_of
from localvolume.csi.healthstatus import status_of, volume_health
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import InvalidArgument
from localvolume.health.model import REASONS

ONE_NODE = {
    "SINGLE_NODE_WRITER",
    "SINGLE_NODE_READER_ONLY",
    "SINGLE_NODE_SINGLE_WRITER",
    "SINGLE_NODE_MULTI_WRITER",
}
MODES = messages.VolumeCapability.AccessMode.Mode


def mount(fs_type: str = "", mode: str | int = "SINGLE_NODE_WRITER", **more: Any) -> Any:
    mounted = {"fs_type": fs_type, **more}
    return messages.VolumeCapability(mount=mounted, access_mode={"mode": mode})


def block(mode: str = "SINGLE_NODE_WRITER") -> Any:
    return messages.VolumeCapability(block={}, access_mode={"mode": mode})


def record(backend: BackendName, **fields: Any) -> Record:
    basis: dict[str, Any] = {"name": "v", "state": "made", "directory": "", "size_bytes": 1}
    return Record(backend=backend, **(basis | fields))


@pytest.mark.parametrize("mode", sorted(set(MODES.keys()) - {"UNKNOWN"}))
def test_access_modes_of_one_node_are_served(mode: str) -> None:
    if mode in ONE_NODE:
        assert kind_of([mount(mode=mode)]) == Kind("Filesystem")
        assert kind_of([block(mode)]) == Kind("Block")
    else:
        with pytest.raises(NotHad, match=f"{mode} .*the volume is on one node"):
            kind_of([mount(), mount(mode=mode)])


def test_an_access_mode_of_a_later_version_is_refused() -> None:
    with pytest.raises(NotHad, match="99"):
        kind_of([mount(mode=99)])


def test_all_capabilities_are_of_one_kind() -> None:
    every = [mount(mode=mode) for mode in sorted(ONE_NODE)]

    assert kind_of(every) == Kind("Filesystem")
    assert kind_of([mount("xfs"), mount()]) == Kind("Filesystem", "xfs")
    with pytest.raises(NotHad, match="either mounted or a block device"):
        kind_of([mount(), block()])
    with pytest.raises(NotHad, match="ext4 and xfs"):
        kind_of([mount("xfs"), mount("ext4")])


@pytest.mark.parametrize(
    "malformed",
    [
        messages.VolumeCapability(),
        messages.VolumeCapability(mount={}),
        messages.VolumeCapability(block={}, access_mode={"mode": "UNKNOWN"}),
        messages.VolumeCapability(access_mode={"mode": "SINGLE_NODE_WRITER"}),
    ],
)
def test_a_malformed_capability_is_told_from_one_that_cannot_be_had(malformed: Any) -> None:
    # Beside one that cannot be had, too.
    with pytest.raises(InvalidArgument) as caught:
        kind_of([mount(mode="MULTI_NODE_MULTI_WRITER"), malformed])

    assert not isinstance(caught.value, NotHad)


def test_a_group_of_the_mount_is_refused() -> None:
    with pytest.raises(NotHad, match="volume_mount_group"):
        kind_of([mount(volume_mount_group="5")])


@pytest.mark.parametrize("backend", get_args(BackendName))
@pytest.mark.parametrize("fs_type", ["", "ext4", "xfs", "btrfs"])
def test_only_a_device_has_a_filesystem_that_can_be_named(
    backend: BackendName, fs_type: str
) -> None:
    has = {"image": "ext4", "lvm": "ext4"}.get(backend, "")
    fits = not capabilities.misfit(Kind("Filesystem", fs_type), record(backend))

    assert fits is (fs_type in ("", has))


def test_the_filesystem_is_the_one_on_record() -> None:
    made = record("image", fs_type="xfs")

    assert not capabilities.misfit(Kind("Filesystem", "xfs"), made)
    assert "xfs, not ext4" in capabilities.misfit(Kind("Filesystem", "ext4"), made)


def test_a_volume_mode_is_not_changed() -> None:
    made = record("lvm", volume_mode="Block")

    assert not capabilities.misfit(Kind("Block"), made)
    assert "is Block, not Filesystem" in capabilities.misfit(Kind("Filesystem"), made)
    assert "is Filesystem, not Block" in capabilities.misfit(Kind("Block"), record("lvm"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": "a" * 129}, "name"),
        ({"name": "ä" * 65}, "name"),
        ({"parameters": {"k": "v" * 4096}}, "parameters"),
        ({"volume_capabilities": [{"mount": {"mount_flags": ["o" * 129]}}]}, "mount_flags"),
        ({"volume_capabilities": [{"mount": {"fs_type": "f" * 129}}]}, "fs_type"),
        (
            {"accessibility_requirements": {"preferred": [{"segments": {"k": "v" * 4096}}]}},
            "segments",
        ),
        ({"volume_content_source": {"volume": {"volume_id": "v" * 129}}}, "volume_id"),
    ],
)
def test_a_field_that_is_too_large_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{named} has [0-9]+ bytes"):
        limits.check(messages.CreateVolumeRequest(**fields))


@pytest.mark.parametrize(
    "message",
    [
        messages.CreateVolumeRequest(name="ä" * 64, parameters={"k": "v" * 4095}),
        messages.CreateVolumeRequest(secrets={"key": "s" * 9000}),
        messages.NodePublishVolumeRequest(target_path="/" + "p" * 400),
    ],
)
def test_what_may_be_that_large_is_let_through(message: Any) -> None:
    limits.check(message)


@pytest.mark.parametrize("text", ["", "a" * 128, "ä" * 64, "a" * 129, "ä" * 200, "a" + "€" * 50])
def test_what_we_say_fits_its_field(text: str) -> None:
    said = limits.short(text)

    assert len(said.encode()) <= 128
    assert said == text or (said.endswith("…") and text.startswith(said[:-1]))
    assert (said == text) is (len(text.encode()) <= 128)


def test_every_reason_has_a_status() -> None:
    said = {reason: status_of(reason) for reason in REASONS}

    assert said == dict.fromkeys(REASONS, "DEGRADED") | {"DeviceGone": "INACCESSIBLE"}
    assert status_of("SomethingNew") == "DEGRADED"


def test_a_reason_is_told_once() -> None:
    """CSI forbids two entries of the same status and reason."""
    told = volume_health("v", [("IOErrors", "one"), ("DeviceGone", "two"), ("IOErrors", "three")])

    entries = [(one.status, one.reason, one.message) for one in told.health_statuses]
    assert entries == [
        (messages.DEGRADED, "IOErrors", "one"),
        (messages.INACCESSIBLE, "DeviceGone", "two"),
    ]
    assert told.volume_id == "v"
    assert not volume_health("v", []).health_statuses
