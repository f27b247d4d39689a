"""Project quotas of xfs and ext4, on a kernel that has them: what is promised is enforced."""

import contextlib
import ctypes
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvolume.host.filesystem import projectquota
from localvolume.host.filesystem.inodeflags import read_attributes, write_attributes
from localvolume.host.filesystem.projectquota import ProjectUsage
from tests.kernel.inside.support_quota import DISKS, EXACT, as_tenant, fill, formatted
from tests.suite.units import MIB
from tests.suite.until import until

LIMIT = 20 * MIB
NOTHING = ProjectUsage(0, 0, 0, 0)

NewVolume = Callable[..., tuple[int, int]]


@pytest.fixture(scope="module", params=["xfs", "ext4"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def pool(kind: str) -> Iterator[Path]:
    with formatted(kind, DISKS[kind]) as where:
        yield where


_projects = itertools.count(1001)


@pytest.fixture
def new_volume(pool: Path) -> Iterator[NewVolume]:
    """Make a directory in a project of its own: its descriptor and the project."""
    with contextlib.ExitStack() as stack:

        def make(limit: int | None = LIMIT, soft: int | None = None) -> tuple[int, int]:
            project = next(_projects)
            path = pool / f"volume-{project}"
            path.mkdir()
            path.chmod(0o777)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(shutil.rmtree, path)
            stack.callback(os.close, fd)
            projectquota.assign(fd, project)
            projectquota.set_limits(fd, project, soft_bytes=soft, hard_bytes=limit)
            return fd, project

        yield make


@pytest.fixture
def volume(new_volume: NewVolume) -> tuple[int, int]:
    return new_volume()


def settled(fd: int, project: int, wanted: Callable[[ProjectUsage], bool]) -> ProjectUsage:
    """What is read once it is as wanted: xfs frees in the background."""
    return until(lambda: projectquota.read(fd, project), wanted, check=os.sync)


def probed(where: Path) -> str | None:
    fd = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return projectquota.probe(fd)
    finally:
        os.close(fd)


def test_a_limit_is_said_to_be_enforced(pool: Path) -> None:
    assert probed(pool) is None


def test_a_directory_of_one_project_has_no_room_for_others(volume: tuple[int, int]) -> None:
    assert f"project {volume[1]} itself" in str(projectquota.probe(volume[0]))


def test_writing_stops_at_the_limit(volume: tuple[int, int]) -> None:
    fd, project = volume
    assert fill(fd) == pytest.approx(LIMIT, rel=EXACT)
    assert projectquota.read(fd, project).used_bytes == pytest.approx(LIMIT, rel=EXACT)


def test_root_is_stopped_by_xfs_alone(volume: tuple[int, int], kind: str) -> None:
    if kind == "xfs":
        assert fill(volume[0], tenant=False) == pytest.approx(LIMIT, rel=EXACT)
    else:
        with pytest.raises(AssertionError, match="nothing stopped"):
            fill(volume[0], tenant=False, most=2 * LIMIT)


def test_what_is_made_below_counts_too(volume: tuple[int, int]) -> None:
    fd, project = volume
    with as_tenant():
        os.mkdir("below", dir_fd=fd)
    below = os.open("below", os.O_RDONLY | os.O_CLOEXEC, dir_fd=fd)
    try:
        assert projectquota.membership(below).project == project
        assert fill(below) == pytest.approx(LIMIT, rel=EXACT)
    finally:
        os.close(below)


def test_df_shows_the_limit_and_what_is_left_of_it(volume: tuple[int, int]) -> None:
    fd, _ = volume
    shown = os.fstatvfs(fd)
    assert shown.f_blocks * shown.f_frsize == LIMIT
    fill(fd)
    left = os.fstatvfs(fd)
    assert left.f_bavail * left.f_frsize < EXACT * LIMIT


def test_more_can_be_written_once_the_limit_has_grown(volume: tuple[int, int]) -> None:
    fd, project = volume
    first = fill(fd)
    projectquota.set_limits(fd, project, soft_bytes=None, hard_bytes=2 * LIMIT)
    assert first + fill(fd) == pytest.approx(2 * LIMIT, rel=EXACT)
    assert projectquota.read(fd, project).hard_bytes == 2 * LIMIT


def test_a_limit_below_what_is_used_keeps_the_data_and_stops_the_writing(
    volume: tuple[int, int],
) -> None:
    fd, project = volume
    written = fill(fd)
    projectquota.set_limits(fd, project, soft_bytes=None, hard_bytes=LIMIT // 2)
    assert fill(fd) == 0
    assert os.stat("filling", dir_fd=fd).st_size == written


def test_soft_and_hard_limits_are_read_as_they_were_set(new_volume: NewVolume) -> None:
    fd, project = new_volume(limit=3 * MIB, soft=2 * MIB)
    found = projectquota.read(fd, project)
    assert (found.soft_bytes, found.hard_bytes) == (2 * MIB, 3 * MIB)
    assert found.used_inodes == 1


def test_a_limit_is_rounded_up_never_down(new_volume: NewVolume) -> None:
    fd, project = new_volume(limit=5 * MIB + 1)
    assert 5 * MIB + 1 <= projectquota.read(fd, project).hard_bytes <= 5 * MIB + 4096


def test_a_project_freed_is_as_if_it_had_never_been(pool: Path, new_volume: NewVolume) -> None:
    other, _ = new_volume()
    path, project = pool / "freed", next(_projects)
    path.mkdir(0o777)
    path.chmod(0o777)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        projectquota.assign(fd, project)
        projectquota.set_limits(fd, project, soft_bytes=None, hard_bytes=LIMIT)
        fill(fd)
    finally:
        os.close(fd)
    (path / "filling").unlink()
    path.rmdir()
    projectquota.set_limits(other, project, soft_bytes=None, hard_bytes=None)
    assert settled(other, project, lambda found: found == NOTHING) == NOTHING


def test_an_unknown_project_holds_nothing(volume: tuple[int, int]) -> None:
    assert projectquota.read(volume[0], 424242) == NOTHING
    assert projectquota.read(volume[0], projectquota.HIGHEST_PROJECT) == NOTHING


def test_two_projects_do_not_disturb_each_other(new_volume: NewVolume) -> None:
    one, _ = new_volume()
    other, other_project = new_volume(limit=LIMIT // 2)
    fill(one)
    assert projectquota.read(other, other_project).used_bytes <= 4096
    assert fill(other) == pytest.approx(LIMIT // 2, rel=EXACT)


def test_nothing_is_moved_in_from_another_project(new_volume: NewVolume) -> None:
    one, _ = new_volume()
    other, _ = new_volume()
    with as_tenant(), open("file", "xb", opener=lambda n, f: os.open(n, f, dir_fd=one)) as file:
        file.write(b"tenant data")
    for move in (os.rename, os.link):
        with pytest.raises(OSError) as refused:
            move("file", "file", src_dir_fd=one, dst_dir_fd=other)
        assert refused.value.errno == errno.EXDEV


def test_a_directory_that_holds_something_is_not_put_into_a_project(pool: Path) -> None:
    path = pool / "full"
    path.mkdir()
    (path / "uncounted").write_text("data")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with pytest.raises(OSError) as refused:
            projectquota.assign(fd, 77)
        assert refused.value.errno == errno.ENOTEMPTY
        assert projectquota.membership(fd).project == 0
        (path / "uncounted").unlink()
        projectquota.assign(fd, 77)
        (path / "counted").write_text("data")
        projectquota.assign(fd, 77)
        assert projectquota.membership(fd).project == 77
    finally:
        os.close(fd)


def test_limits_that_the_kernel_would_ignore_are_refused(volume: tuple[int, int]) -> None:
    fd, project = volume
    with pytest.raises(ValueError, match="exceeds"):
        projectquota.set_limits(fd, project, soft_bytes=2 * LIMIT, hard_bytes=LIMIT)
    with pytest.raises(ValueError, match="not the id"):
        projectquota.set_limits(fd, 0, soft_bytes=None, hard_bytes=LIMIT)
    assert projectquota.read(fd, project).hard_bytes == LIMIT


def test_a_kernel_older_than_quotactl_fd_is_asked_by_the_device(
    pool: Path, new_volume: NewVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A number that no kernel has: the answer is the true ENOSYS.
    monkeypatch.setattr(projectquota, "_NR_QUOTACTL_FD", 4000)
    buffer = ctypes.create_string_buffer(160)
    fd, project = new_volume()
    with pytest.raises(OSError) as refused:
        projectquota._by_descriptor(fd, 0x5808, 0, buffer)
    assert refused.value.errno == errno.ENOSYS
    assert probed(pool) is None
    assert projectquota.read(fd, project).hard_bytes == LIMIT
    assert fill(fd) == pytest.approx(LIMIT, rel=EXACT)


def test_without_privilege_it_is_said(pool: Path, volume: tuple[int, int]) -> None:
    fd = os.open(pool, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with as_tenant():
            assert "CAP_SYS_ADMIN" in str(projectquota.probe(fd))
            with pytest.raises(PermissionError):
                projectquota.set_limits(fd, volume[1], soft_bytes=None, hard_bytes=None)
    finally:
        os.close(fd)


def test_who_owns_a_file_can_take_it_out_of_its_project(volume: tuple[int, int]) -> None:
    """What projectquota's first lines own up to: it is the kernel's rule, not ours to change."""
    fd, project = volume
    with as_tenant():
        fill(fd)
        os.chmod("filling", 0o644, dir_fd=fd)
        file = os.open("filling", os.O_RDONLY | os.O_CLOEXEC, dir_fd=fd)
        try:
            assert projectquota.membership(file).project == project
            flags, extent, extents, _, cow = read_attributes(file)
            write_attributes(file, (flags, extent, extents, 0, cow))
            assert projectquota.membership(file).project == 0
        finally:
            os.close(file)


@pytest.mark.parametrize(
    ("kind", "projects", "options", "reason"),
    [
        ("xfs", False, "noquota", "project quotas are off"),
        ("xfs", False, "uquota", "project quotas are off"),
        ("xfs", False, "pqnoenforce", "not enforced"),
        ("ext4", False, "defaults", "project quotas are off"),
        ("ext4", True, "noquota", "not enforced"),
        ("ext4", True, "defaults", "not enforced"),
    ],
)
def test_a_filesystem_that_enforces_nothing_says_why(
    kind: str, projects: bool, options: str, reason: str
) -> None:
    with formatted(kind, DISKS["spare"], projects=projects, options=options) as where:
        assert reason in str(probed(where))
