"""Discovery directories holding everything a filesystem can hold; nothing of it is ever opened."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.tree.entries import Classified, EntryKind, classify, device_number, scan
from tests.host.support_mounts import Mounts


@pytest.fixture
def place(tmp_path: Path) -> str:
    return os.path.realpath(tmp_path)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    with Mounts() as made:
        yield made


def test_all_names_in_the_order_of_their_bytes(place: str) -> None:
    names = [b"b", b"a", b"B", b".hidden", b"with space", b"line\nbreak", b"\xff\xfe", b"\xc3\xa4",
             b"\xee\x80\x80", b"back\\slash", b"*", b"-rf", b"x" * 255]  # fmt: skip
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(place), name))).touch()
    entries = scan(place)
    assert [os.fsencode(entry.name) for entry in entries] == sorted(names)
    for entry in entries:
        assert entry.path == os.path.join(place, entry.name)
        assert classify(entry.path).kind is EntryKind.REGULAR


def test_one_level_only(place: str) -> None:
    os.makedirs(f"{place}/a/b/c")
    assert [entry.name for entry in scan(place)] == ["a"]
    assert scan(f"{place}/a/b/c") == []


def test_a_link_to_the_directory_is_followed(place: str) -> None:
    os.mkdir(f"{place}/real")
    Path(f"{place}/real/v1").touch()
    os.symlink("real", f"{place}/link")
    assert scan(f"{place}/link") == [("v1", f"{place}/link/v1")]


def test_a_directory_that_cannot_be_listed_is_an_error_not_an_empty_one(place: str) -> None:
    Path(f"{place}/file").touch()
    with pytest.raises(FileNotFoundError):
        scan(f"{place}/missing")
    with pytest.raises(NotADirectoryError):
        scan(f"{place}/file")


def test_the_kinds_that_need_no_privilege(place: str) -> None:
    os.mkdir(f"{place}/directory")
    Path(f"{place}/regular").touch()
    os.mkfifo(f"{place}/fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/socket")
        assert {entry.name: classify(entry.path).kind for entry in scan(place)} == {
            "directory": EntryKind.DIRECTORY,
            "regular": EntryKind.REGULAR,
            "fifo": EntryKind.FIFO,
            "socket": EntryKind.SOCKET,
        }


def test_a_link_is_what_it_leads_to(place: str) -> None:
    os.mkdir(f"{place}/directory")
    os.mkfifo(f"{place}/fifo")
    os.symlink("directory", f"{place}/one")
    os.symlink("one", f"{place}/two")
    os.symlink("fifo", f"{place}/to-fifo")
    straight = classify(f"{place}/directory")
    assert not straight.is_symlink
    assert classify(f"{place}/one") == straight._replace(is_symlink=True)
    assert classify(f"{place}/two") == straight._replace(is_symlink=True)
    assert classify(f"{place}/to-fifo").kind is EntryKind.FIFO


@pytest.mark.parametrize(
    "target",
    ["missing", "missing/deeper", "file/below", "self", "circle", "/dev/no-such-disk", "x" * 255],
)
def test_a_link_that_leads_nowhere(place: str, target: str) -> None:
    Path(f"{place}/file").touch()
    os.symlink("circle2", f"{place}/circle")
    os.symlink("circle", f"{place}/circle2")
    os.symlink(target, f"{place}/self")
    found = classify(f"{place}/self")
    itself = os.lstat(f"{place}/self")
    assert found == Classified(
        EntryKind.DANGLING, device_number(itself.st_dev), itself.st_ino, True
    )


def test_what_is_not_there_at_all_is_an_error(place: str) -> None:
    with pytest.raises(FileNotFoundError):
        classify(f"{place}/missing")


@pytest.mark.needs("root")
def test_a_link_whose_target_may_not_be_looked_at_is_unknown_not_dangling(place: str) -> None:
    """Answered as nobody: root may look everywhere."""
    os.mkdir(f"{place}/closed", 0o700)
    os.mkdir(f"{place}/closed/inside")
    os.symlink("closed/inside", f"{place}/link")
    above = Path(place)
    while above != Path("/") and not above.stat().st_mode & stat.S_IXOTH:
        above.chmod(above.stat().st_mode | stat.S_IXOTH)
        above = above.parent
    script = (
        "import os, sys; from localvolume.host.tree.entries import classify\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: print(classify(sys.argv[1]).kind)\n"
        "except PermissionError: print('not allowed')\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, f"{place}/link"], capture_output=True, text=True
    )
    assert said.stdout == "not allowed\n", said.stderr


@pytest.mark.needs("root")
def test_device_nodes_and_links_to_them(place: str) -> None:
    # Numbers that no driver has: were these opened, it would fail.
    os.mknod(f"{place}/block", 0o600 | stat.S_IFBLK, os.makedev(4000, 1_000_000))
    os.mknod(f"{place}/char", 0o600 | stat.S_IFCHR, os.makedev(4001, 7))
    os.symlink("block", f"{place}/by-id")
    device = device_number(os.stat(place).st_dev)
    assert classify(f"{place}/block")[:2] == (EntryKind.BLOCK, device)
    assert classify(f"{place}/char").kind is EntryKind.CHAR
    linked = classify(f"{place}/by-id")
    assert (linked.kind, linked.is_symlink) == (EntryKind.BLOCK, True)


@pytest.mark.needs("root")
def test_a_mount_point_belongs_to_what_is_mounted_on_it(place: str, mounts: Mounts) -> None:
    os.mkdir(f"{place}/volume")
    before = classify(f"{place}/volume")
    mounts.tmpfs(f"{place}/volume")
    after = classify(f"{place}/volume")
    assert after.kind is EntryKind.DIRECTORY
    assert after.device != before.device
    assert after.device == device_number(os.stat(f"{place}/volume").st_dev)
