"""The whole life of FlexVolume volumes as logical volumes: thick and thin, ext4 and xfs."""

import os
from pathlib import Path

import pytest

from localvolume.flexvolume.driver import DriverFailed
from localvolume.host.lvm.commands import Lvm
from tests.host.support_devices import command
from tests.suite.units import MIB

from .support_flex import FlexLvm, gone, volume
from .support_lvm import group_on


@pytest.fixture
def flex(request: pytest.FixtureRequest, volume_group: str, lvm: Lvm, tmp_path: Path) -> FlexLvm:
    kind = getattr(request, "param", "thick")
    return FlexLvm(lvm, volume_group, tmp_path, thin_pool="tp" if kind == "thin" else "")


@pytest.mark.parametrize(
    ("flex", "fs_type", "size"),
    [
        ("thick", "ext4", 20 * MIB),
        ("thin", "xfs", 300 * MIB),
        pytest.param("thin", "ext4", 20 * MIB, marks=pytest.mark.soak),
        pytest.param("thick", "xfs", 300 * MIB, marks=pytest.mark.soak),
    ],
    indirect=["flex"],
)
def test_a_volume_is_made_mounted_grown_and_removed(flex: FlexLvm, fs_type: str, size: int) -> None:
    one = volume(fs_type=fs_type, size_bytes=size, fs_group=2000)
    assert flex.driver.mount(one, flex.target()) == "successfully created the volume"
    assert flex.noted("pvc-1") == {
        **one.tags,
        "state": "made",
        "fs": fs_type,
        "size": str(flex.lv("pvc-1").size_bytes),
    }
    root = os.stat(flex.target())
    assert (root.st_gid, root.st_mode & 0o7777) == (2000, 0o2775)
    flex.write("tenant data")
    assert flex.driver.unmount("pvc-1", flex.target()) == "successfully unmounted the volume"
    assert not os.path.ismount(flex.target())

    flex.driver.mount(one, flex.target())
    assert flex.read() == "tenant data"
    before = flex.room()
    assert flex.driver.grow("pvc-1", size + 21 * MIB) == size + 24 * MIB  # whole extents
    assert flex.room() > before + 15 * MIB
    assert flex.read() == "tenant data"
    # Once more changes nothing, and a smaller size neither.
    assert flex.driver.grow("pvc-1", size) == size + 24 * MIB

    flex.driver.note("pvc-1", gone())
    with pytest.raises(DriverFailed, match=f"in use: it is mounted at {flex.target()}"):
        flex.driver.remove(flex.owned("pvc-1"))
    flex.driver.unmount("pvc-1", flex.target())
    flex.driver.remove(flex.owned("pvc-1"))
    assert flex.driver.list_volumes() == []
    assert flex.names() == ({"tp"} if flex.thin_pool else set())


def test_a_group_that_was_deactivated_as_by_a_reboot(
    volume_group: str, lvm: Lvm, tmp_path: Path
) -> None:
    """W-35: Azure's removed what it found inactive, OpenEBS' took it for removed."""
    flex = FlexLvm(lvm, volume_group, tmp_path, thin_pool="tp")
    flex.driver.mount(volume(), flex.target())
    flex.write("tenant data")
    flex.driver.unmount("pvc-1", flex.target())
    command("vgchange", "--quiet", "--activate", "n", flex.group)
    assert not flex.lv("pvc-1").active
    (listed,) = flex.driver.list_volumes()
    assert listed.name == "pvc-1"
    assert not flex.driver.is_in_use("pvc-1")
    flex.driver.mount(volume(), flex.target())
    assert flex.read() == "tenant data"
    flex.driver.unmount("pvc-1", flex.target())
    # Suspended, as by a killed command of LVM: refreshed.
    command("dmsetup", "suspend", f"{flex.group}-pvc--1")
    flex.driver.mount(volume(), flex.target())
    assert not flex.lv("pvc-1").suspended
    flex.driver.unmount("pvc-1", flex.target())
    # What is to be removed goes also while it is inactive.
    command("vgchange", "--quiet", "--activate", "n", flex.group)
    flex.driver.note("pvc-1", gone())
    flex.driver.remove(flex.owned("pvc-1"))
    assert "pvc-1" not in flex.names()


def test_two_pods_have_one_volume_and_one_of_them_may_not_write(
    volume_group: str, lvm: Lvm, tmp_path: Path
) -> None:
    """W-09: elastic's driver never heard of read-only."""
    flex = FlexLvm(lvm, volume_group, tmp_path)
    flex.driver.mount(volume(), flex.target("a"))
    flex.driver.mount(volume(read_only=True), flex.target("b"))
    flex.write("seen", "a")
    assert flex.read("b") == "seen"
    with pytest.raises(OSError, match="Read-only"):
        flex.write("no", "b")
    flex.driver.unmount("pvc-1", flex.target("a"))
    assert flex.read("b") == "seen"
    # The other way round: read-only first.
    flex.driver.mount(volume(), flex.target("a"))
    flex.write("again", "a")
    flex.driver.unmount("pvc-1", flex.target("a"))
    flex.driver.unmount("pvc-1", flex.target("b"))


def test_groups_and_lvm_that_are_not_there(lvm: Lvm, tmp_path: Path) -> None:
    flex = FlexLvm(lvm, "nosuchvg", tmp_path)
    with pytest.raises(DriverFailed, match="nosuchvg"):
        flex.driver.mount(volume(), flex.target())
    with pytest.raises(DriverFailed, match="nosuchvg"):
        flex.driver.list_volumes()
    assert flex.driver.is_in_use("pvc-1")  # nobody can tell
    assert flex.driver.unmount("pvc-1", flex.target()) == "successfully unmounted the volume"
    none = FlexLvm(lvm, "vg0", tmp_path, prefix=("nosuchprogram",))
    with pytest.raises(DriverFailed, match="install lvm2"):
        none.driver.mount(volume(), none.target())


def test_a_group_of_which_a_disk_is_missing(tmp_path: Path, lvm: Lvm) -> None:
    with group_on("/dev/ubdd", "vg0") as group:
        command("vgextend", "--quiet", "--yes", group, "/dev/ubde")
        flex = FlexLvm(lvm, group, tmp_path)
        flex.driver.mount(volume(), flex.target())
        flex.write("tenant data")
        command("wipefs", "--quiet", "--all", "--force", "/dev/ubde")
        with pytest.raises(DriverFailed, match="1 of its physical volumes are missing"):
            flex.driver.mount(volume("pvc-2"), flex.target("b"))
        flex.driver.unmount("pvc-1", flex.target())
        flex.driver.mount(volume(), flex.target())
        assert flex.read() == "tenant data"
        flex.driver.unmount("pvc-1", flex.target())
