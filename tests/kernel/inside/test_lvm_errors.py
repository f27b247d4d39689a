"""What LVM refuses is told apart: no room, taken, missing, in use, not all there."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from localvolume.host.lvm.commands import (
    GroupMissing,
    LogicalVolume,
    Lvm,
    LvmFailed,
    NameTaken,
    NoSpaceInGroup,
    VolumeInUse,
    VolumeMissing,
)
from tests.host.support_devices import command, mounted
from tests.suite.units import MIB

from .support_lvm import DISKS, EXTENT

ABSENT = LogicalVolume(name="none", uuid="x" * 38, group="vg0", size_bytes=1, kind="thick")


@pytest.fixture
def one(lvm: Lvm, volume_group: str) -> LogicalVolume:
    lvm.create(volume_group, "one", 16 * MIB)
    volume = lvm.volume(volume_group, "one")
    assert volume is not None
    return volume


def test_no_room(lvm: Lvm, volume_group: str, thin_pool: str, one: LogicalVolume) -> None:
    before = lvm.volumes(volume_group)
    with pytest.raises(NoSpaceInGroup, match="insufficient free space"):
        lvm.create(volume_group, "two", 600 * MIB)
    with pytest.raises(NoSpaceInGroup):
        lvm.create_pool(volume_group, "two", 600 * MIB)
    with pytest.raises(NoSpaceInGroup):
        lvm.extend(one, 600 * MIB)
    with pytest.raises(NoSpaceInGroup):
        lvm.extend(before[-1], 600 * MIB)
    command("lvcreate", "--yes", "--extents", "100%FREE", "--name", "rest", volume_group)
    assert {*lvm.volumes(volume_group)} >= {*before}


def test_a_thin_pool_that_is_full(lvm: Lvm, volume_group: str, thin_pool: str) -> None:
    lvm.create(volume_group, "one", 100 * MIB, thin_pool=thin_pool)
    command("lvchange", "--errorwhenfull", "y", f"{volume_group}/{thin_pool}")
    fill = ("dd", "if=/dev/zero", "of=/dev/vg0/one", "bs=1M", "count=80", "oflag=direct")
    with pytest.raises(AssertionError, match="No space left"):
        command(*fill)
    full = next(one for one in lvm.volumes(volume_group) if one.kind == "pool")
    assert (full.data_percent, full.health) == (100.0, "out_of_data")
    with pytest.raises(NoSpaceInGroup, match="threshold"):
        lvm.create(volume_group, "two", EXTENT, thin_pool=thin_pool)
    lvm.extend(full, 128 * MIB)
    lvm.create(volume_group, "two", EXTENT, thin_pool=thin_pool)


def test_a_name_that_is_taken(
    lvm: Lvm, volume_group: str, thin_pool: str, one: LogicalVolume
) -> None:
    with pytest.raises(NameTaken):
        lvm.create(volume_group, "one", EXTENT)
    with pytest.raises(NameTaken):
        lvm.create(volume_group, "one", EXTENT, thin_pool=thin_pool)
    with pytest.raises(NameTaken):
        lvm.create_pool(volume_group, thin_pool, EXTENT)
    lvm.create(volume_group, "thin", EXTENT, thin_pool=thin_pool)
    with pytest.raises(NameTaken):
        lvm.snapshot(volume_group, "thin", "one", active=True)


def test_a_volume_that_is_not_there(lvm: Lvm, volume_group: str) -> None:
    assert lvm.volume(volume_group, "none") is None
    for call in (lvm.activate, lvm.deactivate, lvm.refresh):
        with pytest.raises(VolumeMissing):
            call(ABSENT)
    with pytest.raises(VolumeMissing):
        lvm.extend(ABSENT, EXTENT)
    with pytest.raises(VolumeMissing):
        lvm.retag(ABSENT, [], ["a"])
    with pytest.raises(VolumeMissing):
        lvm.snapshot(volume_group, "none", "then", active=True)
    with pytest.raises(VolumeMissing):
        lvm.create(volume_group, "one", EXTENT, thin_pool="none")
    lvm.remove(ABSENT)  # as it should be


def test_a_group_that_is_not_there(lvm: Lvm) -> None:
    assert [group.name for group in lvm.groups()] == []
    calls = (lvm.group, lvm.volumes, lvm.whole, lvm.recover, lambda name: lvm.volume(name, "one"))
    for call in calls:
        with pytest.raises(GroupMissing):
            call("vg0")
    with pytest.raises(GroupMissing):
        lvm.create("vg0", "one", EXTENT)
    with pytest.raises(GroupMissing):
        lvm.remove(ABSENT)  # nothing is known of what was in it


def test_a_volume_in_use_stays(lvm: Lvm, volume_group: str, one: LogicalVolume) -> None:
    command("mkfs.ext4", "-q", one.path)
    with mounted(one.path, fstype="ext4") as where:
        (where / "file").write_bytes(b"tenant data")
        for call in (lvm.remove, lvm.deactivate):
            with pytest.raises(VolumeInUse, match="filesystem in use"):
                call(one)
        assert (where / "file").read_bytes() == b"tenant data"
    with open(one.path, "rb"):
        for call in (lvm.remove, lvm.deactivate):
            with pytest.raises(VolumeInUse, match="in use"):
                call(one)
    command("dmsetup", "create", "holder", "--table", f"0 8 linear {one.path} 0")
    try:
        with pytest.raises(VolumeInUse):
            lvm.remove(one)
    finally:
        command("dmsetup", "remove", "holder")
    lvm.remove(one)


def test_no_thin_pool_at_all(lvm: Lvm, volume_group: str, one: LogicalVolume) -> None:
    with pytest.raises(LvmFailed, match="not a thin pool"):
        lvm.create(volume_group, "two", EXTENT, thin_pool="one")
    with pytest.raises(LvmFailed, match="stripes"):
        lvm.create(volume_group, "two", 2 * EXTENT, stripes=2)


@pytest.fixture
def without_its_second_disk(volume_group: str, lvm: Lvm) -> str:
    """The group, of which a disk has vanished: `one` was on the first, `two` on the second."""
    command("vgextend", "--quiet", "--yes", volume_group, DISKS[1])
    lvm.create(volume_group, "one", EXTENT, options=[])
    command("lvcreate", "--yes", "--size", "4m", "--name", "two", volume_group, DISKS[1])
    command("vgchange", "--activate", "n", volume_group)
    command("wipefs", "--quiet", "--all", DISKS[1])
    return volume_group


def test_a_group_of_which_a_disk_has_vanished(lvm: Lvm, without_its_second_disk: str) -> None:
    group = without_its_second_disk
    assert lvm.group(group).missing == 1
    one, two = lvm.volumes(group)
    told, volumes = lvm.whole(group)
    assert (replace(told, free=None, disks=()), volumes) == (lvm.group(group), [one, two])
    assert (one.health, two.health) == ("", "partial")
    # It is not gone: it only cannot be changed.
    with pytest.raises(LvmFailed, match="PVs are missing") as error:
        lvm.create(group, "three", EXTENT)
    assert type(error.value) is LvmFailed
    with pytest.raises(LvmFailed, match="partial"):
        lvm.activate(two)
    lvm.activate(one)
    assert Path(one.path).exists()


def test_two_groups_of_one_name_are_not_touched(
    lvm: Lvm, volume_group: str, one: LogicalVolume
) -> None:
    lvm.deactivate(one)  # LVM makes no group whose directory in /dev is there
    unseen = f'devices{{filter=["r|{DISKS[0]}|"]}}'
    command("vgcreate", "--quiet", "--yes", "--config", unseen, volume_group, DISKS[1])
    try:
        assert [group.name for group in lvm.groups()] == [volume_group] * 2
        looks = (lvm.group, lvm.whole)
        calls = [partial(look, volume_group) for look in looks]
        for call in (*calls, lambda: lvm.remove(one)):
            with pytest.raises(LvmFailed, match="same name") as error:
                call()
            assert type(error.value) is LvmFailed
    finally:
        command("wipefs", "--quiet", "--all", DISKS[1])
    assert [volume.uuid for volume in lvm.volumes(volume_group)] == [one.uuid]


def test_an_exported_group_is_not_writable(lvm: Lvm, volume_group: str) -> None:
    command("vgexport", "--quiet", volume_group)
    try:
        assert not lvm.group(volume_group).writable
        with pytest.raises(LvmFailed, match="exported"):
            lvm.create(volume_group, "one", EXTENT)
    finally:
        command("vgimport", "--quiet", volume_group)
