"""What the FlexVolume driver finds when it looks at a logical volume once more: others of this node
have ended its making, are at it, activated it, or removed it.

The device is a loop device; a program in LVM's place says what is on record, so that it can change
between two looks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.flexvolume.driver import DriverFailed, Owned
from localvolume.flexvolume.drivers.lvm.content import Device
from localvolume.flexvolume.drivers.lvm.driver import LvmDriver, Steps
from localvolume.flexvolume.drivers.lvm.marks import POOL_TAGS
from localvolume.host.locks import lock_device
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.volumes.lvtags import encode
from tests.host.support_devices import LoopDevice, loop_device
from tests.host.support_images import run_here
from tests.host.support_mounts import mount, umount
from tests.host.test_flex_lvm_commands import (
    GONE,
    POOL,
    TAGS,
    Scripted,
    gone_row,
    lv,
    owned,
    volume,
)
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.fixture
def host(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path)


@pytest.fixture
def device() -> Iterator[LoopDevice]:
    with loop_device(16 * MIB) as made:
        yield made


def tagged(**more: str) -> dict[str, str]:
    return {"lv_tags": ",".join(sorted(encode({**TAGS, "owner": "flexvolume", **more})))}


def active(device: LoopDevice, **more: str) -> dict[str, str]:
    """What LVM says of the device of an active volume."""
    major, minor = device.number.split(":")
    return {
        "lv_active": "active",
        "lv_path": device.path,
        "lv_kernel_major": major,
        "lv_kernel_minor": minor,
        **more,
    }


def seen(host: Scripted) -> LogicalVolume:
    (found,) = (one for one in host.opened().volumes() if one.name == "pvc-1")
    host.asked()
    return found


def steps(host: Scripted) -> Steps:
    return Steps(run_here, host.opened())


def on(device: LoopDevice) -> Device:
    return Device(device.path, device.number)


# --- its filesystem ------------------------------------------------------------------------------


def test_what_another_agent_has_made_meanwhile_is_not_made_again(
    host: Scripted, device: LoopDevice
) -> None:
    """A pod may have written to it since."""
    host.has(lv("pvc-1", **active(device, **tagged(state="making"))), nth=1)
    host.has(lv("pvc-1", **active(device, **tagged(state="made", fs="ext4"))))
    device.format("ext4")
    _, fs_type = steps(host).filled(seen(host), volume(), on(device))
    assert (fs_type, host.asked()) == ("ext4", [f"lvs {host.group}"])


def test_what_has_a_filesystem_and_no_state_is_noted_as_made(
    host: Scripted, device: LoopDevice
) -> None:
    """Adopted while it was not active, so that nobody could look."""
    host.has(lv("pvc-1", **active(device, **tagged())))
    device.format("ext4")
    _, fs_type = steps(host).filled(seen(host), volume(fs_type="xfs"), on(device))
    assert fs_type == "ext4"
    (noted,) = [line for line in host.asked() if line.startswith("lvchange")]
    assert all(tag in noted for tag in encode({"state": "made", "fs": "ext4"}))


def test_while_another_process_makes_the_filesystem_nobody_else_does(
    host: Scripted, device: LoopDevice
) -> None:
    host.has(lv("pvc-1", **active(device, **tagged(state="making"))))
    found = seen(host)
    lock = lock_device(device.path)
    assert lock is not None
    try:
        with pytest.raises(DriverFailed, match="another process is making the filesystem on"):
            steps(host).filled(found, volume(), on(device))
    finally:
        os.close(lock)
    assert host.asked() == []
    assert not any(Path(device.path).read_bytes())


def test_what_was_made_and_is_blank_now_is_never_formatted(
    host: Scripted, device: LoopDevice
) -> None:
    """elastic's driver made a filesystem where it found none."""
    host.has(lv("pvc-1", **active(device, **tagged(state="made", fs="ext4"))))
    with pytest.raises(DriverFailed, match="had an ext4 and is all zeros at its ends: left"):
        steps(host).filled(seen(host), volume(), on(device))
    assert not any(Path(device.path).read_bytes())


def test_a_failure_in_a_full_pool_is_explained_by_that(tmp_path: Path) -> None:
    """The kernel only says "I/O error"."""
    host = Scripted(tmp_path, thin_pool="tp")
    thin = {"lv_layout": "thin,sparse", "pool_lv": "tp", **tagged(state="making")}
    host.has(lv("pvc-1", **thin), lv("tp", **{**POOL, "data_percent": "100.00"}))
    found = seen(host)
    said = r"the thin pool .*/tp is full \(data 100.0 %.* \(Input/output error\)"
    with pytest.raises(DriverFailed, match=said), steps(host).explained(found):
        raise OSError("Input/output error")
    host.has(lv("pvc-1", **thin), lv("tp", **POOL))
    said = r"^Input/output error$"
    with pytest.raises(DriverFailed, match=said), steps(host).explained(found):
        raise OSError("Input/output error")


def test_without_a_volume_group_there_is_no_such_driver() -> None:
    with pytest.raises(ValueError, match="need a volume group"):
        LvmDriver(FlexVolumeConfig(driver="lvm", lvm=None), run_here)


# --- what is made anew ---------------------------------------------------------------------------


def test_a_thin_volume_that_somebody_ends_meanwhile_is_not_made_anew(tmp_path: Path) -> None:
    """Its pool did not know of it, until another agent had made it, or its filesystem."""
    host = Scripted(tmp_path, thin_pool="tp")
    thin = {"lv_layout": "thin,sparse", "pool_lv": "tp"}
    pool = lv("tp", **POOL)
    for nth in (1, 2):
        host.has(lv("pvc-1", **thin, **tagged(state="making")), pool, nth=nth)
    host.has(lv("pvc-1", **thin, **tagged(state="made", fs="ext4")), pool)
    host.fails("lvchange", "  device-mapper: reload ioctl failed: No data available\n")
    with pytest.raises(DriverFailed, match="has changed meanwhile: ask again"):
        host.driver().mount(volume(), str(tmp_path / "target"))
    assert not any(line.startswith(("lvremove", "lvcreate")) for line in host.asked())


def test_half_of_a_thin_pool_that_somebody_ends_meanwhile_stays(
    tmp_path: Path, device: LoopDevice
) -> None:
    host = Scripted(tmp_path, thin_pool="tp")
    half = {"lv_tags": ",".join(sorted(POOL_TAGS))}
    for nth in (1, 2):
        host.has(lv("tp", **active(device, **half)), nth=nth)
    host.has(lv("tp", **{**POOL, **half}))
    with pytest.raises(DriverFailed, match="has changed meanwhile: ask again"):
        host.driver().mount(volume(), str(tmp_path / "target"))
    assert not any(line.startswith(("lvremove", "lvcreate")) for line in host.asked())


# --- its removal ---------------------------------------------------------------------------------


def test_what_somebody_else_removes_meanwhile_is_removed(host: Scripted) -> None:
    host.has(gone_row(), nth=1)
    host.has()
    host.driver().remove(owned())
    assert host.asked() == [f"lvs {host.group}"] * 2


def test_what_somebody_activates_meanwhile_stays(host: Scripted) -> None:
    """Whoever does that is about to use it."""
    host.has(gone_row(), nth=1)
    host.has(gone_row(lv_active="active"))
    with pytest.raises(DriverFailed, match="was activated meanwhile: left as it is"):
        host.driver().remove(owned())
    assert host.asked() == [f"lvs {host.group}"] * 2


def test_by_a_way_that_is_not_known_nothing_is_removed(host: Scripted) -> None:
    """Whoever asked for it wanted more than that the data is gone."""
    tags = {**GONE, "on-removal": "shred"}
    encoded = ",".join(sorted(encode({**tags, "owner": "flexvolume"})))
    host.has(lv("pvc-1", lv_tags=encoded))
    with pytest.raises(DriverFailed, match="to be removed in a way that is not known"):
        host.driver().remove(Owned(name="pvc-1", size_bytes=1234, tags=tags, id="uuid-of-pvc-1"))
    assert host.asked() == [f"lvs {host.group}"]


def test_a_device_that_takes_no_discards_is_removed_without(
    host: Scripted,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are advice to the disk, which has nothing to give back then."""
    tags = {**GONE, "on-removal": "discard"}
    listed = Owned(name="pvc-1", size_bytes=1234, tags=tags, id="uuid-of-pvc-1")
    below = tmp_path / "below"
    below.mkdir()
    mount("ramfs", str(below), "ramfs")  # knows of no holes
    request.addfinalizer(lambda: umount(str(below)))
    with loop_device(8 * MIB, backing=below / "disk") as device:
        now = {**tags, "state": "removing", "wiped": str(8 * MIB), "owner": "flexvolume"}
        host.has(lv("pvc-1", lv_tags=",".join(sorted(encode(now)))))
        begun = ",".join(sorted(encode({**tags, "owner": "flexvolume"})))
        host.has(lv("pvc-1", **active(device, lv_tags=begun)), nth=1)
        host.has(nth=3)
        host.says("lvremove", "  successfully removed\n")
        host.driver().remove(listed)
    assert "takes no discards: it is removed without" in caplog.text
    noted = [set(re.findall(r"--addtag (\S+)", line)) for line in host.asked() if "addtag" in line]
    assert noted == [encode({"state": "removing"}), encode({"wiped": str(8 * MIB)})]
