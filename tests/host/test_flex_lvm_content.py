"""What a logical volume holds is seen right before it would be formatted, whatever was known of it.

LVM is scripted; the device is a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.flexvolume.driver import DriverFailed
from localvolume.flexvolume.drivers.lvm.content import Device, content_of
from localvolume.flexvolume.drivers.lvm.driver import Steps
from tests.host.support_devices import LoopDevice, loop_device, mounted
from tests.host.support_images import run_here
from tests.host.test_flex_lvm_commands import HALF, MINE, Scripted, lv, volume
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.fixture
def disk() -> Iterator[LoopDevice]:
    with loop_device(16 * MIB) as made:
        yield made


def device(disk: LoopDevice) -> Device:
    return Device(disk.path, disk.number)


def test_only_zeros_are_taken_for_nothing(disk: LoopDevice) -> None:
    assert content_of(run_here, device(disk)) is None


@pytest.mark.parametrize("at", [64 << 10, 16 * MIB - 6], ids=["at the beginning", "at the end"])
def test_data_without_a_signature_is_somebodys(disk: LoopDevice, at: int) -> None:
    with open(disk.path, "r+b") as file:
        file.seek(at)
        file.write(b"tenant")
    with pytest.raises(DriverFailed, match="holds something"):
        content_of(run_here, device(disk))


def test_what_another_agent_has_formatted_meanwhile_is_not_formatted_again(
    disk: LoopDevice, tmp_path: Path
) -> None:
    host = Scripted(tmp_path)
    host.has(lv("pvc-1", **HALF), nth=1)
    host.has(lv("pvc-1", **MINE))
    opened = host.opened()
    begun = opened.look("pvc-1")
    assert begun is not None
    disk.format("ext4")
    with mounted(disk) as where:
        (where / "file").write_text("tenant data")
    made, fs_type = Steps(run_here, opened).filled(begun, volume(fs_type="ext4"), device(disk))
    assert (made.tags, fs_type) == (frozenset(MINE["lv_tags"].split(",")), "ext4")
    with mounted(disk) as where:
        assert (where / "file").read_text() == "tenant data"
