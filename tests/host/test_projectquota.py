"""Project quotas where the machine has none: it is said before anything is promised."""

import os
from pathlib import Path

import pytest

from localvolume.host.filesystem import projectquota
from tests.host.support_devices import filesystem


def probed(where: Path) -> str:
    fd = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return str(projectquota.probe(fd))
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("ext4", marks=pytest.mark.needs("root", "loop", "ext4")),
        pytest.param("xfs", marks=pytest.mark.needs("root", "loop", "xfs")),
    ],
)
def test_a_filesystem_mounted_without_project_quotas_names_the_option(kind: str) -> None:
    with filesystem(kind) as where:
        if not projectquota.kernel_has_quotactl():
            assert "kernel was built without" in probed(where)
        else:
            assert "project quotas are off" in probed(where)
            assert "prjquota" in probed(where)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("tmpfs", marks=pytest.mark.needs("root")),
        pytest.param("btrfs", marks=pytest.mark.needs("root", "loop", "btrfs")),
        pytest.param("ext2", marks=pytest.mark.needs("root", "loop", "ext4")),
    ],
)
def test_another_filesystem_is_told_apart(kind: str) -> None:
    with filesystem(kind) as where:
        # The kernel's ext4 serves ext2, too, which has no room for projects.
        assert ("off" if kind == "ext2" else "only xfs and ext4") in probed(where)


@pytest.mark.needs("root", "loop", "ext4")
def test_a_directory_is_in_no_project_and_none_can_be_given_to_it() -> None:
    with filesystem("ext4") as where:
        (where / "volume").mkdir()
        fd = os.open(where / "volume", os.O_RDONLY | os.O_CLOEXEC)
        try:
            assert projectquota.membership(fd).project == 0
            with pytest.raises(OSError):
                projectquota.assign(fd, 7)
            with pytest.raises(OSError):
                projectquota.set_limits(fd, 7, soft_bytes=None, hard_bytes=1 << 20)
            with pytest.raises(OSError):
                projectquota.read(fd, 7)
        finally:
            os.close(fd)


@pytest.mark.parametrize("project", [-1, 0, 0xFFFFFFFF])
def test_no_id_but_a_projects_is_taken(tmp_path: Path, project: int) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with pytest.raises(ValueError, match="not the id"):
            projectquota.assign(fd, project)
        with pytest.raises(ValueError, match="not the id"):
            projectquota.set_limits(fd, project, soft_bytes=None, hard_bytes=1 << 20)
        with pytest.raises(ValueError, match="not the id"):
            projectquota.read(fd, project)
    finally:
        os.close(fd)
