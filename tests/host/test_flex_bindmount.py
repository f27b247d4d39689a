"""Directories as FlexVolume volumes: real bind mounts, each call repeatable, strays untouched."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from localvolume.flexvolume.driver import (
    TAG_CLAIM,
    TAG_GONE_SINCE,
    TAG_ON_REMOVAL,
    TAG_POLICY,
    TAG_PV_UID,
    DriverFailed,
    Volume,
)
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.host.mount.mounts import read_mount_table
from tests.host.support_mounts import MS_BIND, mount

pytestmark = pytest.mark.needs("root")

NAME = "pvc-1"
TAGS = {TAG_PV_UID: "u1", TAG_CLAIM: "team/data", TAG_POLICY: "Delete"}


def volume(**fields: object) -> Volume:
    given: dict[str, object] = {"name": NAME, "size_bytes": 1 << 20, "tags": TAGS, **fields}
    return Volume(**given)  # type: ignore[arg-type]  # by field


def record(root: Path) -> Path:
    return root / ".localvolume" / "flexvolumes" / f"{NAME}.json"


def options(target: Path) -> list[str]:
    found = read_mount_table().at(str(target))
    assert found is not None
    return found.options.split(",")


# --- mounting: elastic's Mount and Unmount -------------------------------------------------------


def test_one_whose_making_ended_before_it_had_its_mode(
    driver: BindDriver, root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but root could enter it."""
    real = os.fchmod

    def ending(fd: int, mode: int) -> None:
        if mode == 0o755:
            raise OSError(errno.EIO, "here it ends")
        real(fd, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fchmod", ending)
        with pytest.raises(DriverFailed, match="here it ends"):
            driver.mount(volume(), str(target))
    assert stat.S_IMODE((root / NAME).stat().st_mode) == 0o700
    driver.mount(volume(), str(target))
    assert stat.S_IMODE((root / NAME).stat().st_mode) == 0o755


def test_a_volume_is_made_mounted_unmounted_and_kept(
    driver: BindDriver, root: Path, target: Path
) -> None:
    """E-FV-18, E-FV-19, E-FV-50, E-FV-51."""
    assert driver.mount(volume(), str(target)) == "successfully created the volume"
    (target / "file").write_text("of red")
    assert (root / NAME / "file").read_text() == "of red"
    assert stat.S_IMODE((root / NAME).stat().st_mode) == 0o755
    assert driver.unmount(NAME, str(target)) == "successfully removed the volume"
    assert read_mount_table().at(str(target)) is None
    assert (root / NAME / "file").exists()
    driver.mount(volume(), str(target))
    assert (target / "file").read_text() == "of red"


def test_each_call_may_come_again(driver: BindDriver, target: Path) -> None:
    """E-FV-51, W-28."""
    driver.mount(volume(), str(target))
    before = len(read_mount_table())
    for _ in range(3):
        driver.mount(volume(), str(target))
    assert len(read_mount_table()) == before, "nothing is stacked"
    for _ in range(3):
        driver.unmount(NAME, str(target))
    driver.unmount(NAME, str(target / "never there"))


def test_what_is_stacked_is_unmounted_whole(driver: BindDriver, root: Path, target: Path) -> None:
    driver.mount(volume(), str(target))
    mount(str(root / NAME), str(target), flags=MS_BIND)
    driver.unmount(NAME, str(target))
    assert read_mount_table().at(str(target)) is None


def test_something_else_mounted_there_is_left(
    driver: BindDriver, target: Path, tmp_path: Path
) -> None:
    """E-FV-50: bindmount: Mount, its errors."""
    other = tmp_path / "other"
    other.mkdir()
    mount(str(other), str(target), flags=MS_BIND)
    with pytest.raises(DriverFailed, match="something else is mounted"):
        driver.mount(volume(), str(target))
    assert os.path.samestat(os.stat(other), os.stat(target))


def test_read_only_is_read_only_and_changes_with_the_call(driver: BindDriver, target: Path) -> None:
    """W-09: elastic's driver passed over `readwrite`."""
    driver.mount(volume(), str(target))
    driver.mount(volume(read_only=True), str(target))
    with pytest.raises(OSError, match="Read-only"):
        (target / "file").touch()
    driver.mount(volume(), str(target))
    (target / "file").touch()
    driver.unmount(NAME, str(target))
    driver.mount(volume(mount_options=("ro",)), str(target))
    assert "ro" in options(target)


def test_the_options_a_directory_can_have(driver: BindDriver, target: Path) -> None:
    driver.mount(volume(mount_options=("nodev", "noexec", "nosuid", "noatime")), str(target))
    assert {"nodev", "noexec", "nosuid", "noatime", "rw"} <= set(options(target))
    driver.mount(volume(mount_options=("nodev",), read_only=True), str(target))
    assert {"nodev", "ro"} <= set(options(target))


@pytest.mark.parametrize("fields", [{"mkfs_options": ("-m", "0")}, {"mount_options": ("discard",)}])
def test_an_option_that_means_nothing_here_is_refused(
    driver: BindDriver, root: Path, target: Path, fields: dict[str, object]
) -> None:
    with pytest.raises(DriverFailed, match="driver bindmount"):
        driver.mount(volume(**fields), str(target))
    assert not any(root.iterdir()), "and nothing is made"


def test_a_group_owns_the_root_and_what_is_made_in_it(driver: BindDriver, target: Path) -> None:
    driver.mount(volume(fs_group=2000), str(target))
    found = target.stat()
    assert (found.st_gid, stat.S_IMODE(found.st_mode)) == (2000, 0o2775)
    (target / "file").touch()
    assert (target / "file").stat().st_gid == 2000


def test_a_read_only_one_keeps_its_owner(driver: BindDriver, target: Path) -> None:
    driver.mount(volume(fs_group=2000, read_only=True), str(target))
    assert target.stat().st_gid == 0


def test_without_its_root_nothing_is_made(tmp_path: Path, target: Path) -> None:
    """E-FV-50, W-18: elastic: a missing source's parent is an error."""
    with pytest.raises(DriverFailed, match="No such file"):
        BindDriver(str(tmp_path / "nowhere")).mount(volume(), str(target))
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_target_is_an_error(driver: BindDriver, target: Path) -> None:
    """E-FV-19, E-FV-50."""
    with pytest.raises(DriverFailed):
        driver.mount(volume(), str(target / "missing"))


def test_a_link_in_place_of_the_volume_is_not_followed(
    driver: BindDriver, root: Path, target: Path, tmp_path: Path
) -> None:
    driver.mount(volume(), str(target))
    driver.unmount(NAME, str(target))
    (root / NAME).rmdir()
    (root / NAME).symlink_to(tmp_path)
    with pytest.raises(DriverFailed):
        driver.mount(volume(), str(target))
    assert read_mount_table().at(str(target)) is None


# --- whose it is ---------------------------------------------------------------------------------


def test_a_directory_without_a_record_is_not_given_to_a_pod(
    driver: BindDriver, root: Path, target: Path
) -> None:
    """W-10: elastic matched by name alone."""
    (root / NAME).mkdir()
    (root / NAME / "letters").write_text("an administrator's")
    with pytest.raises(DriverFailed, match="left as it is"):
        driver.mount(volume(), str(target))
    assert not record(root).exists()
    assert driver.list_volumes() == []


def test_another_persistentvolumes_is_not_given_away(
    driver: BindDriver, root: Path, target: Path
) -> None:
    driver.mount(volume(), str(target))
    driver.unmount(NAME, str(target))
    other = {**TAGS, TAG_PV_UID: "u2", TAG_CLAIM: "other/data"}
    with pytest.raises(DriverFailed, match="earlier PersistentVolume"):
        driver.mount(volume(tags=other), str(target))
    assert driver.list_volumes()[0].tags[TAG_PV_UID] == "u1"


def test_the_same_claims_restored_object_has_it_again(driver: BindDriver, target: Path) -> None:
    driver.mount(volume(), str(target))
    driver.mount(volume(tags={**TAGS, TAG_PV_UID: "u2"}), str(target))
    assert driver.list_volumes()[0].tags[TAG_PV_UID] == "u2"


def test_what_a_claim_has_had_is_not_made_anew(
    driver: BindDriver, root: Path, target: Path
) -> None:
    """W-18: As when the filesystem of the volumes is not mounted after a reboot."""
    with pytest.raises(DriverFailed, match="is its filesystem mounted"):
        driver.mount(volume(must_exist=True), str(target))
    assert not any(root.iterdir())
    driver.mount(volume(), str(target))
    driver.unmount(NAME, str(target))
    (root / NAME).rmdir()
    with pytest.raises(DriverFailed, match="is gone"):
        driver.mount(volume(), str(target))
    assert not (root / NAME).exists()


def test_a_record_that_cannot_be_read_keeps_the_volume(
    driver: BindDriver, root: Path, target: Path
) -> None:
    driver.mount(volume(), str(target))
    driver.unmount(NAME, str(target))
    record(root).write_text("{")
    for act in (
        lambda: driver.mount(volume(), str(target)),
        lambda: driver.note(NAME, {}),
    ):
        with pytest.raises(DriverFailed, match="record"):
            act()
    (owned,) = driver.list_volumes()
    assert "record" in owned.problem
    assert (root / NAME).exists()


def test_a_pod_can_neither_see_nor_forge_a_record(
    driver: BindDriver, root: Path, target: Path
) -> None:
    driver.mount(volume(), str(target))
    assert os.listdir(target) == []
    (target / ".localvolume").mkdir()
    forged = target / ".localvolume" / "flexvolumes"
    forged.mkdir()
    (forged / "victim.json").write_text(record(root).read_text())
    assert [one.name for one in driver.list_volumes()] == [NAME]
    assert stat.S_IMODE((root / ".localvolume").stat().st_mode) == 0o700


def test_after_a_crash_between_record_and_directory_it_goes_on(
    driver: BindDriver, root: Path, target: Path
) -> None:
    driver.mount(volume(), str(target))
    driver.unmount(NAME, str(target))
    found = json.loads(record(root).read_text())
    found["tags"]["state"] = "making"
    record(root).write_text(json.dumps(found))
    (root / NAME).rmdir()
    driver.mount(volume(), str(target))
    assert driver.list_volumes()[0].tags["state"] == "made"
    # And between directory and the record that says so.
    driver.unmount(NAME, str(target))
    record(root).write_text(json.dumps(found))
    (root / NAME / "file").write_text("of red")
    driver.mount(volume(), str(target))
    assert (target / "file").read_text() == "of red"


# --- notes and the end ---------------------------------------------------------------------------


def test_notes_are_changed_together_and_taken_away(driver: BindDriver, target: Path) -> None:
    driver.mount(volume(), str(target))
    driver.note(NAME, {TAG_POLICY: "Retain", TAG_GONE_SINCE: "2026-01-01T00:00:00Z"})
    (found,) = driver.list_volumes()
    assert (found.tags[TAG_POLICY], found.tags[TAG_PV_UID]) == ("Retain", "u1")
    driver.note(NAME, {TAG_GONE_SINCE: ""})
    assert TAG_GONE_SINCE not in driver.list_volumes()[0].tags
    driver.note("pvc-of-nobody", {TAG_POLICY: "Delete"})
    assert len(driver.list_volumes()) == 1


def test_it_is_in_use_while_it_is_mounted_anywhere(
    driver: BindDriver, target: Path, tmp_path: Path
) -> None:
    driver.mount(volume(), str(target))
    assert driver.is_in_use(NAME)
    with pytest.raises(DriverFailed, match="in use"):
        driver.remove(driver.list_volumes()[0])
    driver.unmount(NAME, str(target))
    assert not driver.is_in_use(NAME)
    assert not driver.is_in_use("pvc-of-nobody")


@pytest.mark.parametrize("way", ["", "delete", "overwrite"])
def test_a_removed_one_is_gone_and_nothing_else(
    driver: BindDriver, root: Path, target: Path, way: str
) -> None:
    """W-02: elastic's collector deleted `lost+found` and every stray directory."""
    strays = [root / "lost+found", root / "backups", root / "pvc-9"]
    for stray in strays:
        stray.mkdir()
        (stray / "letters").write_text("an administrator's")
    driver.mount(volume(tags={**TAGS, TAG_ON_REMOVAL: way} if way else TAGS), str(target))
    (target / "deep" / "er").mkdir(parents=True)
    (target / "deep" / "er" / "file").write_text("of red" * 1000)
    driver.unmount(NAME, str(target))
    (owned,) = driver.list_volumes()
    driver.remove(owned)
    driver.remove(owned)
    assert driver.list_volumes() == []
    assert sorted(path.name for path in root.iterdir()) == [
        ".localvolume",
        "backups",
        "lost+found",
        "pvc-9",
    ]
    assert all((stray / "letters").exists() for stray in strays)
    assert not list((root / ".localvolume").rglob("*.json"))
    assert not list((root / ".localvolume" / "removed").iterdir())
    driver.mount(volume(tags={**TAGS, TAG_PV_UID: "u2", TAG_CLAIM: "o/d"}), str(target))
    assert os.listdir(target) == [], "the next one of that name has nothing of it"


def test_only_what_was_listed_is_removed(driver: BindDriver, root: Path, target: Path) -> None:
    driver.mount(volume(), str(target))
    driver.unmount(NAME, str(target))
    (listed,) = driver.list_volumes()
    driver.note(NAME, {TAG_POLICY: "Retain"})
    with pytest.raises(DriverFailed, match="not the one"):
        driver.remove(listed)
    driver.remove(driver.list_volumes()[0])
    driver.mount(volume(), str(target))
    driver.unmount(NAME, str(target))
    with pytest.raises(DriverFailed, match="not the one"):
        driver.remove(listed)
    assert (root / NAME).is_dir()


def test_a_removal_that_was_cut_short_is_finished_and_never_mounted(
    driver: BindDriver, root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.mount(volume(), str(target))
    (target / "file").write_text("of red")
    driver.unmount(NAME, str(target))

    def power_cut(*_args: object, **_keys: object) -> None:
        raise OSError(errno.EIO, "power cut")

    with monkeypatch.context() as cut:
        cut.setattr(os, "unlink", power_cut)
        with pytest.raises(DriverFailed, match="power cut"):
            driver.remove(driver.list_volumes()[0])
    with pytest.raises(DriverFailed, match="being removed"):
        driver.mount(volume(), str(target))
    driver.remove(driver.list_volumes()[0])
    assert driver.list_volumes() == []
    assert not list((root / ".localvolume" / "removed").iterdir())


def test_what_cannot_be_discarded_stays(driver: BindDriver, root: Path, target: Path) -> None:
    driver.mount(volume(tags={**TAGS, TAG_ON_REMOVAL: "discard"}), str(target))
    driver.unmount(NAME, str(target))
    with pytest.raises(DriverFailed, match="discarded"):
        driver.remove(driver.list_volumes()[0])
    assert (root / NAME).is_dir()


# --- elastic's -----------------------------------------------------------------------------------


def test_elastics_directories_are_adopted_by_name_and_once(
    driver: BindDriver, root: Path, target: Path
) -> None:
    (root / NAME).mkdir()
    (root / NAME / "file").write_text("from before")
    (root / "lost+found").mkdir()
    (root / "file").touch()
    (root / ".hidden").mkdir()
    assert driver.unmarked() == [NAME]
    wanted = {NAME: TAGS, "pvc-nowhere": TAGS}
    assert driver.adopt(wanted) == [NAME]
    assert driver.adopt(wanted) == []
    assert driver.unmarked() == []
    driver.mount(volume(), str(target))
    assert (target / "file").read_text() == "from before"
    assert [one.name for one in driver.list_volumes()] == [NAME]
