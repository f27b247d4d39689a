"""D5: a volume that was made for a claim is nobody else's, though a link leads to its device from a
discovery directory."""

from __future__ import annotations

import pytest

from localvolume.host.lvm.commands import Lvm
from tests.cluster.support_agent import Class
from tests.suite.units import MIB

from .support_lvm_dynamic import LvmLab, lab

__all__ = ["lab"]


@pytest.fixture
def raw(lab: LvmLab) -> Class:
    lab.settings["storageClassMap"] = {}
    made = lab.add_class("raw", volumeMode="Block")
    lab.class_names.add(made.name)
    return made


def test_a_volume_of_a_pool_is_never_an_entry(
    lab: LvmLab, raw: Class, volume_group: str, lvm: Lvm
) -> None:
    """One that an administrator made in the same group is."""
    lab.group(volume_group)
    cls = lab.storage_class()
    lvm.create(volume_group, "by-hand", 8 * MIB)
    # What earlier tests have left on the disk would make it one that holds data.
    with open(f"/dev/{volume_group}/by-hand", "r+b") as file:
        file.write(bytes(8 * MIB))
    lab.start()
    claimed = lab.made(lab.claim(cls, size="8Mi", volumeMode="Block"))
    device = claimed["spec"]["local"]["path"]
    (raw.directory / "theirs").symlink_to(device)
    # Device mapper has another name for it, with each "-" twice.
    mapped = f"{volume_group}-{claimed['metadata']['name'].replace('-', '--')}"
    (raw.directory / "again").symlink_to(f"/dev/mapper/{mapped}")
    (raw.directory / "ours").symlink_to(f"/dev/{volume_group}/by-hand")
    lab.touch()
    lab.until(lambda: lab.volumes_at(raw, "ours"), bool)
    lab.until(lambda: lab.logged("which was made for a claim"), bool)
    lab.settle()
    offered = [
        volume["spec"]["local"]["path"]
        for volume in lab.volumes()
        if volume["spec"]["storageClassName"] == raw.name
    ]
    assert offered == [raw.host_path("ours")]
    lab.stop()
