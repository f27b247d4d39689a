"""Directories as FlexVolume volumes: what is asked for that is so already, or cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localvolume.flexvolume.driver import TAG_POLICY, DriverFailed
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.host.mount import binding
from localvolume.host.mount.mounts import read_mount_table
from tests.host.support_mounts import MS_BIND, mount
from tests.host.test_flex_bindmount import NAME, record, volume

pytestmark = pytest.mark.needs("root")


def test_a_target_that_is_mounted_again_and_again_is_given_up(
    driver: BindDriver, root: Path, target: Path
) -> None:
    driver.mount(volume(), str(target))
    for _ in range(16):
        mount(str(root / NAME), str(target), flags=MS_BIND)
    with pytest.raises(DriverFailed, match=f"{target} is mounted again and again"):
        driver.unmount(NAME, str(target))
    driver.unmount(NAME, str(target))
    assert read_mount_table().at(str(target)) is None


def test_what_a_pod_still_uses_is_not_unmounted(driver: BindDriver, target: Path) -> None:
    driver.mount(volume(), str(target))
    refused = pytest.raises(DriverFailed, match=f"{target} cannot be unmounted: Device or resource")
    with (target / "file").open("w"), refused:
        driver.unmount(NAME, str(target))
    assert read_mount_table().at(str(target)) is not None
    driver.unmount(NAME, str(target))


def test_options_are_given_to_mounts_alone(target: Path) -> None:
    """What was unmounted meanwhile: the directory below it is nobody's to change."""
    with pytest.raises(OSError, match="Invalid argument") as failed:
        binding.set_options(str(target), frozenset({"nodev"}), read_only=True)
    assert failed.value.filename == str(target)


def test_what_is_noted_already_is_not_written(driver: BindDriver, root: Path, target: Path) -> None:
    driver.mount(volume(), str(target))
    before = record(root).stat()
    driver.note(NAME, {TAG_POLICY: "Delete"})
    again = record(root).stat()
    # It was read, which may count as an access: that time is not compared.
    assert (again.st_ino, again.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    driver.note(NAME, {TAG_POLICY: "Retain"})
    assert record(root).stat().st_ino != before.st_ino


def test_what_is_not_there_does_not_grow(driver: BindDriver, root: Path) -> None:
    with pytest.raises(DriverFailed, match=f"there is no volume {NAME}"):
        driver.grow(NAME, 1 << 30)
    assert not any(root.iterdir())


def test_a_group_that_has_it_already_changes_nothing(driver: BindDriver, target: Path) -> None:
    """A pod that starts again must not wake those who watch the directory."""
    driver.mount(volume(fs_group=2000), str(target))
    before = os.stat(target).st_ctime_ns
    driver.mount(volume(fs_group=2000), str(target))
    assert os.stat(target).st_ctime_ns == before
