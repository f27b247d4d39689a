"""A machine whose kernel has no device-mapper: looking works, making says why it does not.

And which devices are looked at: a loop device only where LVM's devices file names it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.lvm.commands import GroupMissing, Lvm, LvmFailed, LvmUnfinished
from tests.host.support_devices import command
from tests.host.support_images import run_here

pytestmark = pytest.mark.needs("root", "loop")

GROUP = "localvolume-test-missing"
CONFIGURATION = Path(__file__).parents[2] / "image/lvm.conf"


def _without_device_mapper() -> bool:
    try:
        return " device-mapper\n" not in Path("/proc/misc").read_text()
    except OSError:
        return True


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A group on a loop device, which takes no device-mapper to make. LVM is configured as in the
    image, and there is no devices file."""
    (tmp_path / "devices").mkdir()
    shutil.copyfile(CONFIGURATION, tmp_path / "lvm.conf")
    monkeypatch.setenv("LVM_SYSTEM_DIR", str(tmp_path))
    backing = tmp_path / "backing"
    with open(backing, "wb") as file:
        file.truncate(64 << 20)
    device = command("losetup", "--find", "--show", os.fspath(backing)).strip()
    try:
        command("lvm", "vgcreate", "--yes", GROUP, device)
        (tmp_path / "devices/system.devices").unlink(missing_ok=True)
        try:
            yield GROUP
        finally:
            subprocess.run(["lvm", "vgremove", "--yes", "--force", GROUP], capture_output=True)
    finally:
        command("losetup", "--detach", device)


def name_in_devices_file(group: str) -> None:
    for device in command(
        "lvm", "pvs", "--noheadings", "-o", "pv_name", "-S", f"vg_name={group}"
    ).split():
        command("lvm", "lvmdevices", "--adddev", device)


def test_a_loop_device_is_looked_at_where_the_administrator_names_it(group: str) -> None:
    """Anybody's data may be behind one."""
    lvm = Lvm(run_here)
    assert group in command("lvm", "vgs")
    assert group not in [one.name for one in lvm.groups()]
    with pytest.raises(GroupMissing, match=r"LVM is not shown .*loop.* devices file"):
        lvm.group(group)
    name_in_devices_file(group)
    assert group in [one.name for one in lvm.groups()]
    assert lvm.group(group).name == group


def test_without_device_mapper_groups_are_seen_and_volumes_are_not_made(group: str) -> None:
    name_in_devices_file(group)
    lvm = Lvm(run_here)
    assert group in [one.name for one in lvm.groups()]
    assert lvm.group(group).free_bytes == lvm.group(group).size_bytes
    assert lvm.volumes(group) == []
    if not _without_device_mapper():
        return  # what can be made is tested in the guest
    with pytest.raises(LvmFailed) as error:
        lvm.create(group, "one", 4 << 20)
    assert type(error.value) is LvmFailed
    assert "device-mapper" in str(error.value)
    assert lvm.volumes(group) == []
    with pytest.raises(LvmFailed, match="device-mapper"):
        lvm.recover(group)


def test_without_lvm_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = shutil.which("env")
    assert program is not None
    (tmp_path / "env").symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LvmFailed, match="install lvm2"):
        Lvm(run_here).groups()


@pytest.mark.parametrize("death", ["kill -9 $$", "exit 137"])
def test_a_command_that_somebody_kills_is_unfinished(death: str) -> None:
    """Also where it is a prefix that tells of it: what it left must be put right."""
    with pytest.raises(LvmUnfinished, match="ended by a signal"):
        Lvm(run_here, ("sh", "-c", death)).volumes("nosuchgroup")
