"""A volume of an older provisioner has no record and no inode: only its path tells which it is.
What lies at that path when its claim goes may be something else."""

from __future__ import annotations

import shutil

import pytest

from tests.cluster.support_dynamic import Claim, DynamicLab, Volume
from tests.cluster.support_replaced import (
    KINDS,
    PROVISIONERS,
    Kind,
    in_place_of,
    left_behind,
    root,
)
from tests.host.support_devices import command

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _pair(lab: DynamicLab, kind: Kind) -> tuple[Claim, Volume, Volume]:
    """A claim with its volume, and the volume of a neighbour; the agent serves both."""
    pool = root(lab)
    cls = lab.storage_class("old", provisioner=PROVISIONERS[kind])
    claim, volume = left_behind(lab, kind, cls, pool)
    _, neighbour = left_behind(lab, kind, cls, pool)
    lab.start(others=in_place_of(lab, kind, pool))
    lab.settle()
    return claim, volume, neighbour


def _stays(lab: DynamicLab, volume: Volume) -> None:
    """The object is there, and says why."""
    name = volume["metadata"]["name"]

    def said() -> bool:
        return any(one["reason"] == "VolumeFailedDelete" for one in lab.events(name))

    lab.until(lambda: said() or lab.volume(name) is None, bool)
    assert lab.volume(name) is not None, "it was removed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_to_the_neighbour(dynamic: DynamicLab, kind: Kind) -> None:
    claim, volume, neighbour = _pair(dynamic, kind)
    here, there = dynamic.path_of(volume), dynamic.path_of(neighbour)
    shutil.rmtree(here)
    here.symlink_to(there)
    dynamic.delete(claim)
    _stays(dynamic, volume)
    assert (there / "rows").read_text() == "precious"


def test_the_neighbour_is_mounted_there(dynamic: DynamicLab) -> None:
    claim, volume, neighbour = _pair(dynamic, "kutti")
    here, there = dynamic.path_of(volume), dynamic.path_of(neighbour)
    command("mount", "--bind", there, here)
    try:
        dynamic.delete(claim)
        _stays(dynamic, volume)
        assert (there / "rows").read_text() == "precious"
    finally:
        command("umount", here)
    # Once it is what it was, it goes, and it alone.
    dynamic.gone(volume)
    assert not here.exists()
    assert (there / "rows").read_text() == "precious"


def test_a_container_that_nobody_knows_of_has_it_mounted(dynamic: DynamicLab) -> None:
    claim, volume, _ = _pair(dynamic, "openebs")
    here = dynamic.path_of(volume)
    used = dynamic.directory / "in-a-pod"
    used.mkdir()
    command("mount", "--bind", here, used)
    try:
        dynamic.delete(claim)
        _stays(dynamic, volume)
        assert (used / "rows").read_text() == "precious"
    finally:
        command("umount", used)
    dynamic.gone(volume)
