"""What is to be mounted at the kubelet's paths, and which options that may have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from localvolume.csi.staging import options, plan
from localvolume.csi.staging.options import Options, differences, of_device, on_top_of, read
from localvolume.csi.staging.places import fault_of
from localvolume.csi.wire.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from localvolume.host.mount.inuse import Held
from localvolume.host.mount.mounts import Mount, MountTable

HELD = Held("7:1", "/")
KUBELET = "/var/lib/kubelet"
STAGING = f"{KUBELET}/plugins/kubernetes.io/csi/d/x/globalmount"
TARGET = f"{KUBELET}/pods/a/volumes/kubernetes.io~csi/pv/mount"


def mount(
    at: str = STAGING,
    device: str = "7:1",
    root: str = "/",
    shown: str = "rw,relatime",
    super_options: str = "rw",
) -> Mount:
    return Mount(1, 0, device, root, at, shown, "ext4", "/dev/loop1", super_options)


# --- options -------------------------------------------------------------------------------------


def test_options_are_told_apart() -> None:
    found = read(
        ["noatime,discard", "nosuid", "rw", "defaults", "nodelalloc"], "ext4", read_only=True
    )
    assert found.mount == {"ro", "nosuid", "noatime"}
    assert found.filesystem == {"discard", "nodelalloc"}
    assert found.asked == ("discard", "nodelalloc")
    assert found.attributes == 0x1 | 0x2 | 0x10
    assert found.cleared == 0x70


def test_an_option_that_is_off_is_asked_for_and_not_shown() -> None:
    found = read(["nodiscard", "nodiscard"], "xfs", read_only=False)
    assert (found.filesystem, found.asked) == (frozenset(), ("nodiscard",))
    assert (found.attributes, found.cleared) == (0, 0)


@pytest.mark.parametrize(
    ("flags", "fs_type", "says"),
    [
        (["bind"], "ext4", "bind"),
        (["nonsense"], "ext4", "nonsense"),
        (["noatime,nonsense"], "", "nonsense"),
        (["discard"], "", "directory cannot be mounted with"),
        (["inode32"], "ext4", "inode32"),
        (["nodelalloc"], "xfs", "nodelalloc"),
        (["context=system_u:object_r:x:s0"], "xfs", "runtime labels"),
        (["nobarrier"], "ext4", "lose data"),
        (["data=writeback"], "ext4", "lose data"),
        (["norecovery"], "xfs", "lose data"),
        (["errors=panic"], "ext4", "whole node"),
        (["usrjquota=/etc/x"], "ext4", "usrjquota"),
        (["discard", "nodiscard"], "ext4", "exclude each other"),
        (["noatime", "relatime"], "", "exclude each other"),
        (["a b"], "ext4", "a b"),
        (["noatime"] * 65, "", "no more than"),
    ],
)
def test_what_is_not_allowed_is_named(flags: Sequence[str], fs_type: str, says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(flags, fs_type, read_only=False)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "below", "shown"),
    [
        ([], "rw,nosuid,noatime", "rw,nosuid,noatime"),
        (["noexec"], "rw,nosuid,relatime", "rw,nosuid,noexec,relatime"),
        (["relatime"], "rw,noatime", "rw,relatime"),
        (["strictatime"], "rw,relatime", "rw"),
        ([], "ro,relatime", "ro,relatime"),
        (["ro"], "rw,relatime", "ro,relatime"),
    ],
)
def test_a_bind_mount_has_the_options_below_and_its_own(
    flags: Sequence[str], below: str, shown: str
) -> None:
    wanted = on_top_of(mount(shown=below), read(flags, "", read_only=False))
    assert differences(mount(shown=shown), wanted) == ""
    assert differences(mount(shown=shown + ",nodiratime"), wanted) != ""


def test_a_device_is_mounted_with_the_kernels_default() -> None:
    plain = of_device(read([], "ext4", read_only=False))
    assert differences(mount(), plain, "ext4") == ""
    assert "rw,noatime" in differences(mount(shown="rw,noatime"), plain, "ext4")
    assert of_device(read(["noatime"], "ext4", read_only=False)).mount == {"noatime"}


def test_options_of_the_filesystem_count_where_it_is_staged() -> None:
    wanted = of_device(read(["discard", "dirsync"], "ext4", read_only=False))
    assert differences(mount(super_options="rw,dirsync,discard"), wanted, "ext4") == ""
    assert "dirsync" in differences(mount(super_options="rw,discard"), wanted, "ext4")
    # Its device may have no discard: then the filesystem leaves it out.
    assert differences(mount(super_options="rw,dirsync"), wanted, "ext4") == ""
    plain = of_device(Options(frozenset()))
    assert "discard" in differences(mount(super_options="rw,discard"), plain, "ext4")
    assert differences(mount(super_options="rw,discard"), plain) == ""


def test_a_device_node_is_never_mounted_nodev() -> None:
    wanted = options.without_nodev(on_top_of(mount(shown="rw,nosuid,nodev"), Options(frozenset())))
    assert wanted.mount == {"nosuid"}


# --- what is to be mounted -----------------------------------------------------------------------


def test_what_is_not_there_is_mounted_and_what_is_there_is_not() -> None:
    wanted = Options(frozenset({"relatime"}))
    assert plan.to_stage(None, STAGING, HELD, wanted, "ext4")
    assert not plan.to_stage(mount(), STAGING, HELD, wanted, "ext4")
    assert plan.to_publish(None, TARGET, HELD, wanted)
    assert not plan.to_publish(mount(TARGET), TARGET, HELD, wanted)


def test_other_options_are_refused() -> None:
    with pytest.raises(AlreadyExists):
        plan.to_stage(mount(), STAGING, HELD, Options(frozenset({"noatime"})), "ext4")


@pytest.mark.parametrize("other", [mount(device="7:2"), mount(root="/deeper")])
def test_something_else_is_refused(other: Mount) -> None:
    with pytest.raises(FailedPrecondition, match="something else"):
        plan.to_stage(other, STAGING, HELD, Options(frozenset({"relatime"})), "ext4")
    with pytest.raises(FailedPrecondition, match="something else"):
        plan.staged(other, STAGING, HELD)
    assert not plan.is_at(other, HELD)


def test_what_is_not_staged() -> None:
    with pytest.raises(FailedPrecondition, match="not staged"):
        plan.staged(None, STAGING, HELD)
    assert not plan.is_at(None, HELD)
    assert plan.staged(mount(), STAGING, HELD) == mount()


@pytest.mark.parametrize(
    ("elsewhere", "within", "is_second"),
    [
        (f"{KUBELET}/pods/b/mount", KUBELET, True),
        (f"{KUBELET}/pods/b/mount", "/", True),
        (f"/host{KUBELET}/pods/b/mount", KUBELET, False),
        (f"{KUBELET}-other/mount", KUBELET, False),
        (f"/host{KUBELET}/pods/b/mount", "/", True),
        (TARGET, KUBELET, False),
    ],
)
def test_what_counts_as_a_second_target(elsewhere: str, within: str, is_second: bool) -> None:
    table = MountTable([mount(), mount(elsewhere), mount(f"{KUBELET}/x", root="/part")])
    here = (TARGET, STAGING)
    plan.check_alone(table, HELD, plan.SHARED_MODE, here, within)
    if not is_second:
        plan.check_alone(table, HELD, "SINGLE_NODE_WRITER", here, within)
        return
    with pytest.raises(FailedPrecondition, match="allows one target"):
        plan.check_alone(table, HELD, "SINGLE_NODE_WRITER", here, within)


@pytest.mark.parametrize(
    "path", ["", "a", "/", "//a", "/a/", "/a/../b", "/a//b", "/a\0", "/" + "a" * 4095]
)
def test_paths_with_faults(path: str) -> None:
    assert fault_of(path)
    assert not fault_of("/a/b")
