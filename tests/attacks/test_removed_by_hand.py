"""D13: an administrator has removed a volume's directory. Its PersistentVolume can go all the same,
and other volumes are none the worse for it."""

from __future__ import annotations

import os
import shutil

import pytest

from localvolume.backends.pool.layout import trash_name
from localvolume.backends.pool.records import decode
from tests.cluster.support_dynamic import DynamicLab

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
]


def test_a_volume_that_was_removed_by_hand_is_let_go(dynamic: DynamicLab) -> None:
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    lost, other = dynamic.claim(cls), dynamic.claim(cls)
    volume, kept = dynamic.made(lost), dynamic.made(other)
    (dynamic.path_of(kept) / "rows").write_text("a tenant's")
    shutil.rmtree(dynamic.path_of(volume))
    dynamic.delete(lost)
    dynamic.gone(volume)
    name = volume["metadata"]["name"]
    dynamic.until(pool.records, lambda found: f"{name}.json" not in found)
    assert dynamic.logged("there is nothing to remove")
    assert pool.trash() == []
    assert (dynamic.path_of(kept) / "rows").read_text() == "a tenant's"


def test_one_in_whose_place_something_else_lies_stays(dynamic: DynamicLab) -> None:
    dynamic.pool()
    dynamic.start()
    claim = dynamic.claim(dynamic.storage_class())
    volume = dynamic.made(claim)
    path = dynamic.path_of(volume)
    # Made first, so that it has another inode.
    os.mkdir(f"{path}-other")
    os.rename(path, f"{path}-away")
    os.rename(f"{path}-other", path)
    dynamic.delete(claim)
    dynamic.event(volume["metadata"]["name"], "VolumeFailedDelete", "another directory")
    assert dynamic.volume(volume["metadata"]["name"]) is not None
    os.rmdir(path)
    os.rename(f"{path}-away", path)
    dynamic.gone(volume)


def test_one_in_whose_place_in_the_trash_something_else_lies_stays(dynamic: DynamicLab) -> None:
    """Nothing in its own place is no proof: it may have been moved there by hand."""
    pool = dynamic.pool()
    dynamic.start()
    claim = dynamic.claim(dynamic.storage_class())
    volume = dynamic.made(claim)
    name, path = volume["metadata"]["name"], dynamic.path_of(volume)
    ours = pool.directory / ".localvolume"
    record = decode(name, (ours / "records" / f"{name}.json").read_bytes())
    in_trash = ours / "trash" / trash_name(record)
    in_trash.mkdir()
    os.rename(path, f"{path}-away")
    dynamic.delete(claim)
    dynamic.event(name, "VolumeFailedDelete", "another directory")
    assert dynamic.volume(name) is not None
    in_trash.rmdir()
    os.rename(f"{path}-away", path)
    dynamic.gone(volume)
