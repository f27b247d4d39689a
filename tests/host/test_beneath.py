"""Opening below a directory and nowhere else, with openat2 and without it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host import syscalls
from localvolume.host.syscalls import mount_id
from localvolume.host.tree import beneath
from localvolume.host.tree.beneath import LeadsOutside, open_beneath
from tests.host.support_devices import bind, tmpfs
from tests.suite.until import until


@pytest.fixture(params=["openat2", "step by step"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beneath, "_openat2_works", None)
    if request.param != "openat2":

        def refused(*args: object) -> int:
            raise OSError(errno.EPERM, "an old seccomp profile")

        monkeypatch.setattr(syscalls, "openat2", refused)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("inside")
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "a/here").symlink_to("b")
    (tmp_path / "out").symlink_to("/etc")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def content(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def test_what_is_below_is_opened(root: int) -> None:
    assert content(open_beneath(root, "a/b/file", os.O_RDONLY)) == b"inside"
    fd = open_beneath(root, "a/b", os.O_RDONLY | os.O_DIRECTORY)
    assert os.listdir(fd) == ["file"]
    assert os.get_inheritable(fd) is False
    os.close(fd)


def test_files_can_be_made(root: int, tmp_path: Path) -> None:
    os.close(open_beneath(root, "a/new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
    assert (tmp_path / "a/new").stat().st_mode & 0o777 == 0o640 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("path", ["out/passwd", "a/up/a/b/file", "a/here/file", "a/here", "out"])
def test_symbolic_links_are_not_followed(root: int, path: str) -> None:
    with pytest.raises(LeadsOutside) as caught:
        open_beneath(root, path, os.O_RDONLY)
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(LeadsOutside):
        open_beneath(root, path, os.O_PATH)


def test_a_link_itself_can_be_looked_at(root: int) -> None:
    fd = open_beneath(root, "out", os.O_PATH | os.O_NOFOLLOW)
    assert os.readlink("", dir_fd=fd) == "/etc"
    os.close(fd)


@pytest.mark.parametrize("path", ["", "/etc", "..", "a/../..", "a//b", "./a", "a/"])
def test_only_names_make_a_path(root: int, path: str) -> None:
    with pytest.raises(ValueError, match="not a path of names"):
        open_beneath(root, path, os.O_RDONLY)


def test_other_errors_are_themselves(root: int) -> None:
    with pytest.raises(FileNotFoundError):
        open_beneath(root, "a/nothing", os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        open_beneath(root, "a/b/file/x", os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        open_beneath(root, "a/here", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def test_paths_longer_than_the_kernel_takes(root: int, tmp_path: Path) -> None:
    names = ["n" * 200 for _ in range(60)]
    fd = os.open(tmp_path, os.O_PATH)
    for name in names:
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = deeper
    expected = os.fstat(fd).st_ino
    os.close(fd)
    fd = open_beneath(root, "/".join(names), os.O_RDONLY | os.O_DIRECTORY)
    assert os.fstat(fd).st_ino == expected
    os.close(fd)


def test_names_of_any_bytes(root: int, tmp_path: Path) -> None:
    for name in (b"\xff\xfe", b"line\nbreak", b"back\\slash", "\u202e".encode()):
        (tmp_path / os.fsdecode(name)).write_text("x")
        assert content(open_beneath(root, os.fsdecode(name), os.O_RDONLY)) == b"x"


@pytest.mark.needs("root")
@pytest.mark.parametrize("kind", ["tmpfs", "bind", "file"])
def test_other_mounts_are_not_entered(root: int, tmp_path: Path, kind: str) -> None:
    here = tmp_path / "a/b"
    if kind == "tmpfs":
        mount = tmpfs(here)
    elif kind == "bind":
        mount = bind(tmp_path / "a", here)
    else:
        (tmp_path / "other").write_text("")
        here = here / "file"
        mount = bind(tmp_path / "other", here)
    path = os.path.relpath(here, tmp_path)
    with mount:
        for flags in (os.O_RDONLY, os.O_PATH):
            with pytest.raises(LeadsOutside) as caught:
                open_beneath(root, path, flags)
            assert caught.value.errno == errno.EXDEV
        if kind == "bind":
            with pytest.raises(LeadsOutside):
                open_beneath(root, "a/b/here", os.O_PATH | os.O_NOFOLLOW)
    os.close(open_beneath(root, path, os.O_RDONLY))


@pytest.mark.needs("root")
def test_what_is_mounted_there_is_not_even_opened(root: int, tmp_path: Path) -> None:
    """Opening a device may do something to it, and opening a FIFO waits for its other end."""
    os.mkfifo(tmp_path / "fifo")
    # Opened so, a FIFO that nobody reads is ENXIO.
    with bind(tmp_path / "fifo", tmp_path / "a/b/file"), pytest.raises(LeadsOutside):
        open_beneath(root, "a/b/file", os.O_WRONLY | os.O_NONBLOCK)


def test_no_descriptors_are_left(root: int) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for path in ("out/passwd", "a/here/file", "a/nothing/x", "a/b/file/x"):
        with pytest.raises(OSError):
            open_beneath(root, path, os.O_RDONLY)
    # Fewer may be: what an earlier test left to the garbage collector is closed at any time.
    until(lambda: set(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.needs("root")
def test_mount_ids_without_statx(root: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Without:
        """A libc without statx, as musl once was."""

    with tmpfs() as where:
        other = os.open(where, os.O_PATH)
        known = mount_id(root), mount_id(other)
        assert known[0] != known[1]
        monkeypatch.setattr(syscalls, "_libc", Without())
        assert (mount_id(root), mount_id(other)) == known
        os.close(other)
