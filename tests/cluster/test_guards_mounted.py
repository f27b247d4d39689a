"""Only what is mounted, and is of the kind it was published as, is ever cleaned."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.host.support_devices import command, mounted, unmount

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

FAILED = "local_volume_provisioner_persistentvolume_delete_failed_total"


def test_a_directory_whose_filesystem_is_unmounted_is_never_emptied(lab: Lab) -> None:
    """Upstream empties what lies below, deletes the volume, and later offers the old data."""
    fs = lab.add_class("fs")
    path = fs.path("one")
    path.mkdir()
    (path / "below").write_text("on the system disk")
    disk = lab.disk()
    lab.mount(disk, path)
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    (path / "secret").write_text("tenant")
    volume = lab.released(volume)
    command("umount", path)

    lab.start()
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "is not a valid mount point")
    lab.stays(volume)
    assert (path / "below").exists()
    assert (lab.metric(FAILED, mode="Filesystem", type="process") or 0) >= 1

    command("mount", disk.path, path)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (path / "secret").exists()
    unmount(path)
    assert (path / "below").exists()


def test_it_is_unmounted_in_the_last_moment(
    lab: Lab, before_cleaning: list[Callable[[], object]]
) -> None:
    fs = lab.add_class("fs")
    path = fs.path("one")
    path.mkdir()
    (path / "below").write_text("on the system disk")
    disk = lab.disk()
    lab.mount(disk, path)
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    (path / "secret").write_text("tenant")
    before_cleaning.append(lambda: unmount(path))
    lab.delete_claim(claim)
    lab.event(name, "VolumeFailedDelete", "is no longer the mount")
    lab.settle()
    assert (path / "below").exists()
    # Its deletion was asked for already; the finalizer holds the object.
    held = lab.volume(name)
    assert held is not None
    assert held["metadata"]["uid"] == volume["metadata"]["uid"]
    command("mount", disk.path, path)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (path / "secret").exists()


def test_a_pod_that_was_deleted_by_force_still_has_it(lab: Lab) -> None:
    """It goes on running, and writing, though its claim is gone."""
    fs = lab.add_class("fs")
    path, disk = fs.path("one"), lab.disk()
    lab.mount(disk, path)
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    (path / "secret").write_text("tenant")
    claim = lab.bound(volume)
    pod = lab.directory / "pods/uid/volumes/kubernetes.io~local-volume" / name
    pod.mkdir(parents=True)
    with mounted(disk, pod):
        lab.delete_claim(claim)
        lab.event(name, "VolumeFailedDelete", f"a pod still has it mounted: {pod}")
        lab.settle()
        assert (pod / "secret").read_text() == "tenant"
        assert lab.volumes_at(fs, "one")[0]["metadata"]["uid"] == volume["metadata"]["uid"]
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (path / "secret").exists()


def test_a_block_volume_whose_path_has_become_a_filesystem(lab: Lab) -> None:
    """The volume's own mode decides how it is cleaned, never what lies at its path today."""
    block = lab.add_class("block", volumeMode="Block")
    path = block.path("one")
    device = lab.raw_disk()
    lab.link(device, path)
    lab.start()
    volume = lab.published(block, "one")
    lab.stop()
    volume = lab.released(volume)
    Path(device.path).write_bytes(b"tenant" * 1000)
    path.unlink()
    with mounted(lab.disk(), _made(path)):
        (path / "precious").write_text("somebody's")
        lab.start()
        lab.event(
            volume["metadata"]["name"],
            "VolumeFailedDelete",
            "published as a block device and is a filesystem",
        )
        lab.stays(volume)
        assert (path / "precious").exists()
    # The same by a link to a directory: that is no mount point at all.
    path.rmdir()
    elsewhere = _made(lab.directory / "elsewhere")
    (elsewhere / "precious").write_text("somebody's")
    path.symlink_to(elsewhere)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "is not a valid mount point")
    lab.stays(volume)
    assert (elsewhere / "precious").exists()

    path.unlink()
    path.symlink_to(device.path)
    lab.published(block, "one", unlike=volume["metadata"]["uid"])
    assert not any(Path(device.path).read_bytes())


def test_a_filesystem_volume_whose_path_has_become_a_device(lab: Lab) -> None:
    fs = lab.add_class("fs")
    path = fs.path("one")
    disk = lab.disk()
    lab.mount(disk, path)
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    volume = lab.released(volume)
    command("umount", path)
    path.rmdir()
    other = lab.disk()
    before = Path(other.path).read_bytes()
    lab.link(other, path)
    lab.start()
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "not the volume that was published")
    lab.stays(volume)
    assert Path(other.path).read_bytes() == before


def _made(path: Path) -> Path:
    path.mkdir()
    return path
