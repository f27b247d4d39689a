"""The Node service of CSI on real disks: what is mounted after each call, and what is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from localvolume.backends.model import Usage
from localvolume.csi.wire import messages
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import closed_after
from tests.host.support_csi import (
    MOST,
    READER,
    SHARED,
    SINGLE,
    WRITER,
    Disks,
    Kubelet,
    kubelet_at,
    number_of,
)
from tests.host.support_devices import LoopDevice, formatted, loop_device
from tests.host.support_mounts import MS_BIND, mount, umount

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """With a directory `dir` as its one volume."""
    disks = Disks()
    place = tmp_path / "pool/dir"
    place.mkdir(parents=True)
    (place / "old").write_text("of a tenant")
    disks.add("dir", place)
    with kubelet_at(tmp_path / "kubelet", disks) as made:
        yield made


Disk = tuple[LoopDevice, str]


@pytest.fixture(params=["ext4", "xfs"])
def disk(request: pytest.FixtureRequest, kubelet: Kubelet) -> Iterator[Disk]:
    with formatted(request.param) as made:
        yield made, request.param
        kubelet.clear()


ON_DEVICES = pytest.mark.needs("loop", "ext4", "xfs")


# --- the way of a volume -------------------------------------------------------------------------


async def test_a_directory_goes_all_the_way_and_every_call_may_be_repeated(
    kubelet: Kubelet,
) -> None:
    for _ in range(2):
        staging = await kubelet.stage("dir")
    for _ in range(2):
        target = await kubelet.publish("dir")
    assert [one[0] for one in kubelet.shown()] == sorted([staging, target])
    assert Path(target, "old").read_text() == "of a tenant"
    Path(target, "new").write_text("more")
    assert Path(kubelet.disks.where["dir"], "new").read_text() == "more"
    for _ in range(2):
        await kubelet.unpublish("dir")
        assert not os.path.lexists(target)
    for _ in range(2):
        await kubelet.unstage("dir")
        assert os.listdir(staging) == []
    assert kubelet.mounts() == []
    assert sorted(os.listdir(kubelet.disks.where["dir"])) == ["new", "old"]


@ON_DEVICES
async def test_a_device_is_mounted_with_its_options(kubelet: Kubelet, disk: Disk) -> None:
    device, fs_type = disk
    name = kubelet.disks.add("disk", device, fs_type)
    flags = ["noatime", "nosuid,nodev", "dirsync", "discard"]
    staging = await kubelet.stage(name, flags=flags)
    target = await kubelet.publish(name, flags=flags)
    table = read_mount_table()
    staged, published = table.at(staging), table.at(target)
    assert staged is not None
    assert published is not None
    for one in (staged, published):
        assert (one.device, one.root) == (number_of(device.path), "/")
        assert {"rw", "noatime", "nosuid", "nodev"} == set(one.options.split(","))
    assert {"dirsync", "discard"} <= set(staged.super_options.split(","))
    before = kubelet.shown()
    await kubelet.stage(name, flags=flags)
    await kubelet.publish(name, flags=flags)
    assert kubelet.shown() == before
    await kubelet.unpublish(name)
    await kubelet.unstage(name)
    assert kubelet.mounts() == []


@pytest.mark.needs("loop", "ext4")
@pytest.mark.parametrize("flags", [["sync"], ["lazytime"], ["nodelalloc"], ["grpid", "nodiscard"]])
async def test_each_option_of_ext4_is_known_again(kubelet: Kubelet, flags: list[str]) -> None:
    with formatted("ext4") as device:
        name = kubelet.disks.add("disk", device, "ext4")
        await kubelet.stage(name, flags=flags)
        await kubelet.stage(name, flags=flags)
        plain = await kubelet.refused("NodeStageVolume", **kubelet.stage_request(name))
        await kubelet.unstage(name)
    assert plain[0] is Status.ALREADY_EXISTS
    assert flags[0] in plain[1]


@pytest.mark.needs("loop", "xfs")
@pytest.mark.parametrize("flags", [["inode32"], ["largeio"], ["swalloc"], ["wsync"], ["lazytime"]])
async def test_each_option_of_xfs_is_known_again(kubelet: Kubelet, flags: list[str]) -> None:
    with formatted("xfs") as device:
        name = kubelet.disks.add("disk", device, "xfs")
        await kubelet.stage(name, flags=flags)
        await kubelet.stage(name, flags=flags)
        plain = await kubelet.refused("NodeStageVolume", **kubelet.stage_request(name))
        await kubelet.unstage(name)
    assert plain[0] is Status.ALREADY_EXISTS
    assert flags[0] in plain[1]


@pytest.mark.needs("loop")
async def test_a_raw_device_is_bound_to_a_file(kubelet: Kubelet) -> None:
    with loop_device() as device:
        name = kubelet.disks.add("raw", device, "raw")
        await kubelet.stage(name, mode=WRITER)
        assert kubelet.mounts() == []
        for _ in range(2):
            target = await kubelet.publish(name, mode=WRITER)
        assert [one.mount_point for one in kubelet.mounts()] == [target]
        assert os.stat(target).st_rdev == os.stat(device.path).st_rdev
        with open(target, "r+b", buffering=0) as opened:
            opened.write(b"x" * 4096)
        answer = await kubelet.call("NodeGetVolumeStats", volume_id=name, volume_path=target)
        assert [(one.unit, one.total) for one in answer.usage] == [
            (messages.VolumeUsage.BYTES, 64 << 20)
        ]
        second = await kubelet.refused(
            "NodePublishVolume", **kubelet.publish_request(name, "pod-2", mode=WRITER)
        )
        assert second[0] is Status.FAILED_PRECONDITION
        assert target in second[1]
        for _ in range(2):
            await kubelet.unpublish(name)
        await kubelet.unstage(name)
        assert not os.path.lexists(target)
        with open(device.path, "rb") as read:
            assert read.read(4096) == b"x" * 4096


# --- in use --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["stage", "publish"])
async def test_what_is_in_use_for_a_moment_is_unmounted_all_the_same(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    place = await kubelet.stage("dir")
    if what == "publish":
        place = await kubelet.publish("dir")
    end = kubelet.unpublish if what == "publish" else kubelet.unstage
    held = [os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    # It is let go while the driver waits for that, however busy the machine is.
    monkeypatch.setattr(time, "sleep", lambda _: os.close(held.pop()))
    await end("dir")
    assert held == []
    assert place not in [one.mount_point for one in kubelet.mounts()]


async def test_what_stays_in_use_stays_mounted(kubelet: Kubelet) -> None:
    place = await kubelet.stage("dir")
    with closed_after(os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)):
        status, text = await kubelet.refused(
            "NodeUnstageVolume", volume_id="dir", staging_target_path=place
        )
    assert (status, "is in use" in text) == (Status.FAILED_PRECONDITION, True)
    assert [one.mount_point for one in kubelet.mounts()] == [place]
    await kubelet.unstage("dir")


# --- read-only -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [{"readonly": True}, {"flags": ["ro"]}, {"mode": READER}], ids=lambda how: str(*how)
)
async def test_what_is_read_only_takes_no_writes(kubelet: Kubelet, how: dict[str, Any]) -> None:
    more = {key: value for key, value in how.items() if key != "readonly"}
    await kubelet.stage("dir", **more)
    target = await kubelet.publish("dir", **how)
    with pytest.raises(OSError, match="Read-only"):
        Path(target, "new").write_text("")
    await kubelet.publish("dir", **how)


async def test_one_pod_reads_what_another_writes(kubelet: Kubelet) -> None:
    await kubelet.stage("dir")
    reader = await kubelet.publish("dir", "reader", readonly=True)
    writer = await kubelet.publish("dir", "writer")
    Path(writer, "new").write_text("seen")
    assert Path(reader, "new").read_text() == "seen"
    await kubelet.unpublish("dir", "writer")
    assert Path(reader, "new").read_text() == "seen"


# --- other arguments -----------------------------------------------------------------------------


async def test_the_same_target_with_other_arguments_is_refused(kubelet: Kubelet) -> None:
    await kubelet.stage("dir")
    await kubelet.publish("dir")
    before = kubelet.shown()
    for more in ({"readonly": True}, {"flags": ["noexec"]}):
        status, text = await kubelet.refused(
            "NodePublishVolume", **kubelet.publish_request("dir", **more)
        )
        assert status is Status.ALREADY_EXISTS
        assert "options are" in text
    status, _ = await kubelet.refused(
        "NodeStageVolume", **kubelet.stage_request("dir", flags=["ro"])
    )
    assert status is Status.ALREADY_EXISTS
    assert kubelet.shown() == before


@pytest.mark.parametrize("mode", [SINGLE, WRITER, READER])
async def test_a_second_target_needs_a_mode_that_shares(kubelet: Kubelet, mode: str) -> None:
    await kubelet.stage("dir", mode=mode)
    target = await kubelet.publish("dir", mode=mode)
    second = kubelet.publish_request("dir", "pod-2", mode=mode)
    status, text = await kubelet.refused("NodePublishVolume", **second)
    assert status is Status.FAILED_PRECONDITION
    assert f"{target} already" in text
    assert not os.path.lexists(second["target_path"])
    await kubelet.publish("dir", mode=mode)
    await kubelet.unpublish("dir")
    await kubelet.call("NodePublishVolume", **second)


async def test_what_lies_elsewhere_is_no_second_target(kubelet: Kubelet, tmp_path: Path) -> None:
    """A container may see the kubelet's mounts at a second place."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    await kubelet.stage("dir", mode=SINGLE)
    mount(kubelet.disks.where["dir"], str(elsewhere), flags=MS_BIND)
    try:
        await kubelet.publish("dir", mode=SINGLE)
    finally:
        umount(str(elsewhere))


async def test_a_volume_that_is_not_staged_is_not_published(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    request = kubelet.publish_request("dir")
    status, text = await kubelet.refused("NodePublishVolume", **request)
    assert (status, "not staged" in text) == (Status.FAILED_PRECONDITION, True)
    status, text = await kubelet.refused(
        "NodePublishVolume", **{**request, "staging_target_path": ""}
    )
    assert (status, "staging_target_path" in text) == (Status.FAILED_PRECONDITION, True)
    other = tmp_path / "pool/other"
    other.mkdir()
    mount(str(other), request["staging_target_path"], flags=MS_BIND)
    for rpc in ("NodePublishVolume", "NodeStageVolume"):
        fields = request if rpc == "NodePublishVolume" else kubelet.stage_request("dir")
        status, text = await kubelet.refused(rpc, **fields)
        assert (status, "something else is mounted" in text) == (Status.FAILED_PRECONDITION, True)
    assert not os.path.lexists(request["target_path"])


async def test_something_else_at_the_target_is_neither_taken_nor_hidden(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    await kubelet.stage("dir")
    target = Path(kubelet.publish_request("dir")["target_path"])
    target.mkdir()
    (target / "file").write_text("kept")
    status, text = await kubelet.refused("NodePublishVolume", **kubelet.publish_request("dir"))
    assert (status, "no empty directory" in text) == (Status.FAILED_PRECONDITION, True)
    status, text = await kubelet.refused(
        "NodeUnpublishVolume", volume_id="dir", target_path=str(target)
    )
    assert (status, "they are kept" in text) == (Status.FAILED_PRECONDITION, True)
    assert (target / "file").read_text() == "kept"
    (target / "file").unlink()
    mount(str(tmp_path), str(target), flags=MS_BIND)
    status, text = await kubelet.refused("NodePublishVolume", **kubelet.publish_request("dir"))
    assert (status, "something else" in text) == (Status.FAILED_PRECONDITION, True)


@pytest.mark.parametrize("what", ["link", "file"])
async def test_a_link_or_file_in_place_of_a_target_is_kept(
    kubelet: Kubelet, tmp_path: Path, what: str
) -> None:
    await kubelet.stage("dir")
    target = Path(kubelet.publish_request("dir")["target_path"])
    if what == "link":
        target.symlink_to(tmp_path)
    else:
        target.write_text("kept")
    for rpc in ("NodePublishVolume", "NodeUnpublishVolume"):
        fields = kubelet.publish_request("dir")
        if rpc == "NodeUnpublishVolume":
            fields = {"volume_id": "dir", "target_path": str(target)}
        status, _ = await kubelet.refused(rpc, **fields)
        assert status is Status.FAILED_PRECONDITION
    assert os.path.lexists(target)
    assert len(kubelet.mounts()) == 1


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("relative", "absolute"),
        ("/", "absolute"),
        ("/tmp/../etc", "absolute"),
        ("{root}/plugins_registry/x", "sockets"),
        ("{root}/plugins/csi.localvolume.dev/x", "sockets"),
        ("{pool}/x", "pool"),
        ("{pool}/deep/x", "pool"),
    ],
)
async def test_paths_that_are_never_the_kubelets(
    kubelet: Kubelet, tmp_path: Path, path: str, says: str
) -> None:
    pool = tmp_path / "pool"
    (pool / ".localvolume").mkdir()
    (pool / "deep").mkdir()
    for one in ("plugins_registry", "plugins/csi.localvolume.dev"):
        (kubelet.root / one).mkdir(parents=True)
    await kubelet.stage("dir")
    full = path.format(root=kubelet.root, pool=pool)
    requests: dict[str, dict[str, Any]] = {
        "NodeStageVolume": {**kubelet.stage_request("dir"), "staging_target_path": full},
        "NodePublishVolume": {**kubelet.publish_request("dir"), "target_path": full},
        "NodeUnstageVolume": {"volume_id": "dir", "staging_target_path": full},
        "NodeUnpublishVolume": {"volume_id": "dir", "target_path": full},
    }
    for rpc, fields in requests.items():
        status, text = await kubelet.refused(rpc, **fields)
        assert (rpc, status, says in text) == (rpc, Status.INVALID_ARGUMENT, True)
    assert len(kubelet.mounts()) == 1


async def test_a_directory_that_should_be_there_is_named(kubelet: Kubelet) -> None:
    request = kubelet.stage_request("dir")
    os.rmdir(request["staging_target_path"])
    status, text = await kubelet.refused("NodeStageVolume", **request)
    assert (status, "there is no directory" in text) == (Status.FAILED_PRECONDITION, True)
    await kubelet.stage("dir")
    request = kubelet.publish_request("dir")
    os.rmdir(os.path.dirname(request["target_path"]))
    status, text = await kubelet.refused("NodePublishVolume", **request)
    assert (status, "there is no directory" in text) == (Status.FAILED_PRECONDITION, True)
    await kubelet.unpublish("dir")


async def test_links_on_the_way_to_a_path_are_followed(kubelet: Kubelet) -> None:
    """A node may have its kubelet's directory on another disk, with a link to it."""
    link = kubelet.root.parent / "link"
    link.symlink_to(kubelet.root)
    await kubelet.stage("dir")
    request = kubelet.publish_request("dir")
    path = request["target_path"].replace(str(kubelet.root), str(link))
    for _ in range(2):
        await kubelet.call("NodePublishVolume", **{**request, "target_path": path})
    assert len(kubelet.mounts()) == 2
    await kubelet.call("NodeUnpublishVolume", volume_id="dir", target_path=path)
    assert len(kubelet.mounts()) == 1


# --- the order of checks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rpc", "path"),
    [
        ("NodeStageVolume", "staging_target_path"),
        ("NodePublishVolume", "target_path"),
        ("NodeUnstageVolume", "staging_target_path"),
        ("NodeUnpublishVolume", "target_path"),
        ("NodeGetVolumeStats", "volume_path"),
        ("NodeExpandVolume", "volume_path"),
    ],
)
async def test_what_is_missing_is_said_first(kubelet: Kubelet, rpc: str, path: str) -> None:
    status, text = await kubelet.refused(rpc)
    assert (status, text) == (Status.INVALID_ARGUMENT, "volume_id is missing")
    status, text = await kubelet.refused(rpc, volume_id="unknown")
    assert (status, text) == (Status.INVALID_ARGUMENT, f"{path} is missing")
    if rpc in ("NodeStageVolume", "NodePublishVolume"):
        status, text = await kubelet.refused(rpc, volume_id="unknown", **{path: "/a/b"})
        assert (status, text) == (Status.INVALID_ARGUMENT, "volume_capability is missing")


@pytest.mark.parametrize("name", ["unknown", "no/name at all"])
async def test_an_unknown_volume_is_not_found(kubelet: Kubelet, name: str) -> None:
    capability = kubelet.capability("unknown")
    requests: dict[str, dict[str, Any]] = {
        "NodeStageVolume": {"staging_target_path": "/a/b", "volume_capability": capability},
        "NodePublishVolume": {
            "staging_target_path": "/a/b",
            "target_path": "/a/c",
            "volume_capability": capability,
        },
        "NodeGetVolumeStats": {"volume_path": "some/path"},
        "NodeExpandVolume": {"volume_path": "some/path"},
        "NodeGetVolumeHealth": {},
    }
    for rpc, fields in requests.items():
        status, text = await kubelet.refused(rpc, volume_id=name, **fields)
        assert (rpc, status, text) == (rpc, Status.NOT_FOUND, f"there is no volume {name}")


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"volume_mount_group": "1"}, Status.INVALID_ARGUMENT, "volume_mount_group"),
        ({"mode": "MULTI_NODE_MULTI_WRITER"}, Status.INVALID_ARGUMENT, "one node"),
        ({"mode": "UNKNOWN"}, Status.INVALID_ARGUMENT, "access_mode"),
        ({"flags": ["context=x"]}, Status.INVALID_ARGUMENT, "container runtime labels"),
        ({"flags": ["discard"]}, Status.INVALID_ARGUMENT, "discard"),
        ({"fs_type": "ext4"}, Status.FAILED_PRECONDITION, "ext4"),
    ],
)
async def test_capabilities_that_the_volume_lacks(
    kubelet: Kubelet, more: dict[str, Any], status: Status, says: str
) -> None:
    found, text = await kubelet.refused("NodeStageVolume", **kubelet.stage_request("dir", **more))
    assert (found, says in text) == (status, True)
    await kubelet.stage("dir")
    request = kubelet.publish_request("dir", **more)
    found, text = await kubelet.refused("NodePublishVolume", **request)
    assert (found, says in text) == (status, True)
    assert not os.path.lexists(request["target_path"])


async def test_a_directory_is_no_block_device(kubelet: Kubelet) -> None:
    request = kubelet.stage_request("dir")
    request["volume_capability"] = {"access_mode": {"mode": SHARED}, "block": {}}
    status, text = await kubelet.refused("NodeStageVolume", **request)
    assert (status, "Filesystem" in text) == (Status.FAILED_PRECONDITION, True)


# --- looking at it -------------------------------------------------------------------------------


async def test_what_the_node_says_of_itself(kubelet: Kubelet) -> None:
    info = await kubelet.call("NodeGetInfo")
    assert info.node_id == "node-1"
    assert info.max_volumes_per_node == MOST
    assert dict(info.accessible_topology.segments) == {"kubernetes.io/hostname": "host-1"}
    served = await kubelet.call("NodeGetCapabilities")
    assert sorted(one.rpc.type for one in served.capabilities) == [1, 2, 3, 5, 7, 8]


async def test_what_a_directory_holds_is_what_its_limit_says(kubelet: Kubelet) -> None:
    await kubelet.stage("dir")
    target = await kubelet.publish("dir")

    async def told() -> list[tuple[int, int, int, int]]:
        answer = await kubelet.call("NodeGetVolumeStats", volume_id="dir", volume_path=target)
        return [(one.unit, one.used, one.available, one.total) for one in answer.usage]

    found = os.statvfs(target)
    assert (await told())[0][3] == found.f_blocks * found.f_frsize
    kubelet.disks.measured["dir"] = Usage(used_bytes=30, available_bytes=70)
    assert await told() == [(1, 30, 70, 100)]
    kubelet.disks.measured["dir"] = Usage(
        used_bytes=30, available_bytes=70, used_inodes=2, available_inodes=8
    )
    assert await told() == [(1, 30, 70, 100), (2, 2, 8, 10)]


@ON_DEVICES
async def test_what_a_device_holds_is_what_its_filesystem_says(
    kubelet: Kubelet, disk: Disk
) -> None:
    name = kubelet.disks.add("disk", *disk)
    kubelet.disks.measured["disk"] = Usage(used_bytes=1, available_bytes=1)
    staging = await kubelet.stage(name)
    answer = await kubelet.call("NodeGetVolumeStats", volume_id=name, volume_path=staging)
    found = os.statvfs(staging)
    assert [(one.unit, one.available, one.total) for one in answer.usage] == [
        (1, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize),
        (2, found.f_ffree, found.f_files),
    ]


@pytest.mark.parametrize("rpc", ["NodeGetVolumeStats", "NodeExpandVolume"])
async def test_a_volume_that_is_not_at_a_path_is_not_found_there(
    kubelet: Kubelet, tmp_path: Path, rpc: str
) -> None:
    other = tmp_path / "pool/other"
    other.mkdir()
    kubelet.disks.add("other", other)
    await kubelet.stage("dir")
    theirs = await kubelet.stage("other")
    for path in ("some/path", str(tmp_path), "/nowhere/at/all", theirs):
        status, text = await kubelet.refused(rpc, volume_id="dir", volume_path=path)
        assert (path, status) == (path, Status.NOT_FOUND)
        assert "not mounted at" in text
    await kubelet.call(rpc, volume_id="dir", volume_path=kubelet.staging("dir"))


async def test_a_volume_grows_unless_it_has_the_size(kubelet: Kubelet) -> None:
    await kubelet.stage("dir")
    path = await kubelet.publish("dir")

    def expand(**capacity: int) -> dict[str, Any]:
        return {"volume_id": "dir", "volume_path": path, "capacity_range": capacity}

    assert (await kubelet.call("NodeExpandVolume", **expand(required_bytes=1))).capacity_bytes == (
        1 << 20
    )
    assert kubelet.disks.grown == []
    answer = await kubelet.call(
        "NodeExpandVolume", **expand(required_bytes=2 << 20, limit_bytes=3 << 20)
    )
    assert answer.capacity_bytes == 2 << 20
    assert kubelet.disks.grown == [("dir", 2 << 20, 3 << 20)]
    status, _ = await kubelet.refused("NodeExpandVolume", **expand(limit_bytes=1))
    assert status is Status.OUT_OF_RANGE


async def test_what_is_wrong_with_a_volume_and_with_pools(kubelet: Kubelet) -> None:
    answer = await kubelet.call("NodeGetVolumeHealth", volume_id="dir")
    assert answer.volume_health.volume_id == "dir"
    assert list(answer.volume_health.health_statuses) == []
    kubelet.disks.wrong["dir"] = [("DeviceGone", "its disk is gone")]
    long = f"{kubelet.root}/" + "x" * 200
    answer = await kubelet.call("NodeGetVolumeHealth", volume_id="dir", volume_publish_path=long)
    (one,) = answer.volume_health.health_statuses
    assert (one.status, one.reason) == (messages.INACCESSIBLE, "DeviceGone")
    assert list((await kubelet.call("NodeGetStorageHealth")).backend_health) == []
    kubelet.disks.pools = [
        ("PoolUnreachable", "pool a: no disk"),
        ("PoolUnreachable", "pool b: no disk"),
        ("PoolDegraded", "pool c: unwell"),
    ]
    answer = await kubelet.call("NodeGetStorageHealth")
    assert [(one.status, one.reason, one.message) for one in answer.backend_health] == [
        (messages.STORAGE_UNREACHABLE, "PoolUnreachable", "pool a: no disk"),
        (messages.STORAGE_DEGRADED, "PoolDegraded", "pool c: unwell"),
    ]
