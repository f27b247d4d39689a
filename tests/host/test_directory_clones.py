"""Clones of directories that nobody uses: all that is in them, and what is refused."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.backends.model import BackendFailed, Busy, Impossible, NoSpace, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.filesystem import reflink
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.cloning import MOST_LEVELS, TooLarge, clone_tree
from tests.host.support_devices import bind, command, filesystem, tmpfs
from tests.host.support_killed import killed
from tests.host.support_pools import offer, purge, store_in, tree, wish
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "xfs")

OLD = 1_500_000_000_123_456_789
#: An access list of one more user, in the form of linux/posix_acl_xattr.h.
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in (
        (1, 7, 0xFFFFFFFF),
        (2, 5, 1234),
        (4, 5, 0xFFFFFFFF),
        (16, 7, 0xFFFFFFFF),
        (32, 0, 0xFFFFFFFF),
    )
)
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)


@pytest.fixture
def where() -> Iterator[Path]:
    with filesystem("xfs") as where:
        yield where


@pytest.fixture
def store(where: Path) -> Iterator[PoolStore]:
    with store_in(where) as store:
        store.open()
        yield store


def clone_of(origin: Record, name: str = "pvc-2") -> Record:
    return with_content_of(origin, wish(name))


def cloned(store: PoolStore, origin: Record, name: str = "pvc-2") -> Record:
    return store.offered(store.copy(clone_of(origin, name), origin))


def filled(root: Path) -> None:
    """All that a tenant can make, and what only root can."""
    os.chown(root, 1000, 2000)
    root.chmod(0o2770)
    inside = root / "a" / "b"
    inside.mkdir(parents=True)
    (root / "file").write_bytes(b"tenant data" * 100_000)
    with (inside / "sparse").open("wb") as file:
        file.seek(50 * MIB)
        file.write(b"the end")
    os.link(root / "file", inside / "link")
    os.link(root / "file", root / "zz-link")
    (root / "dangling").symlink_to("nowhere")
    os.link(root / "dangling", inside / "dangling-too", follow_symlinks=False)
    (inside / "outside").symlink_to("/etc/passwd")
    os.lchown(inside / "outside", 5, 6)
    os.mkfifo(root / "pipe", 0o640)
    os.mknod(root / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "socket"))
    (root / "program").write_bytes(b"#!")
    os.chown(root / "program", 7, 8)
    (root / "program").chmod(0o4755)
    os.setxattr(root / "program", "security.capability", CAPABILITY)
    os.setxattr(root / "file", "user.mark", b"\0\xff")
    (root / "listed").mkdir(mode=0o700)
    (root / "listed" / "plain").write_text("has no access list")
    for name in ("access", "default"):
        os.setxattr(root / "listed", f"system.posix_acl_{name}", ACL)
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\n")).write_text("no text")
    (root / "empty").touch(0o000)
    for name in ("immutable", "appended"):
        (root / name).mkdir()
        (root / name / "file").write_text(name)
        os.link(root / name / "file", root / f"{name}-too")
    for path in (inside / "sparse", inside, root / "a", root / "listed", root / "pipe"):
        os.utime(path, ns=(OLD, OLD + 1))
    os.utime(root / "dangling", ns=(OLD, OLD), follow_symlinks=False)
    command("chattr", "+i", root / "immutable" / "file", root / "immutable")
    command("chattr", "+a", root / "appended" / "file")


def one_of_each(root: Path) -> None:
    """A little of it."""
    (root / "a").mkdir(mode=0o750)
    (root / "a" / "file").write_text("tenant data")
    os.setxattr(root / "a" / "file", "user.mark", b"1")
    os.link(root / "a" / "file", root / "link")
    (root / "points").symlink_to("a")
    os.mkfifo(root / "pipe")
    (root / "immutable").write_text("x")
    command("chattr", "+i", root / "immutable")


def told(root: Path) -> dict[bytes, tuple[object, ...]]:
    """All there is to compare, by path."""
    found: dict[bytes, tuple[object, ...]] = {}
    numbers: dict[int, bytes] = {}
    base = os.fsencode(root)
    for above, directories, files in os.walk(base):
        for name in (b".", *directories, *files):
            path = os.path.normpath(os.path.join(above, name))
            status = os.lstat(path)
            is_link = stat.S_ISLNK(status.st_mode)
            xattrs = os.listxattr(path, follow_symlinks=False)
            content: object = None
            if is_link:
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            place = os.path.relpath(path, base)
            found[place] = (
                status.st_mode,
                status.st_uid,
                status.st_gid,
                status.st_nlink,
                status.st_rdev,
                status.st_mtime_ns,
                status.st_size if not stat.S_ISDIR(status.st_mode) else 0,
                {name: os.getxattr(path, name, follow_symlinks=False) for name in xattrs},
                content,
            )
            numbers.setdefault(status.st_ino, place)
    return found


def flags_of(path: Path) -> str:
    return command("lsattr", "-d", path).split()[0]


def test_a_clone_has_all_that_its_origin_has(store: PoolStore, where: Path) -> None:
    origin = offer(store, wish())
    filled(where / "pvc-1")
    clone = cloned(store, origin)
    assert told(where / "pvc-2") == told(where / "pvc-1")
    one, other = (where / name / "a/b/link" for name in ("pvc-1", "pvc-2"))
    assert one.samefile(where / "pvc-1/file")
    assert other.samefile(where / "pvc-2/file")
    assert not one.samefile(other)
    for path in ("immutable", "immutable/file", "appended/file", "immutable-too", "appended-too"):
        flags = {flags_of(where / name / path) for name in ("pvc-1", "pvc-2")}
        assert len(flags) == 1
        assert flags != {"-" * len(min(flags))}
    with closed_after(os.open(where / "pvc-2/file", os.O_RDONLY)) as fd:
        assert reflink.shared_bytes(fd) >= 1 * MIB
    sparse = (where / "pvc-2/a/b/sparse").stat()
    assert sparse.st_blocks * 512 < MIB < sparse.st_size
    # From here on each is its own.
    (where / "pvc-2/file").write_text("changed")
    assert (where / "pvc-1/file").read_bytes() == b"tenant data" * 100_000
    gone = store.retire(origin)
    purge(store, gone)
    assert (where / "pvc-2/a/b/link").read_text() == "changed"
    again = cloned(store, clone, "pvc-3")
    assert told(where / "pvc-3") == told(where / "pvc-2")
    for record in (clone, again):
        purge(store, store.retire(record))
    assert tree(where) == {}


def test_an_empty_one_and_a_deep_one(store: PoolStore, where: Path) -> None:
    origin = offer(store, wish())
    cloned(store, origin)
    assert list((where / "pvc-2").iterdir()) == []
    deep(where / "pvc-1", 400)
    cloned(store, origin, "pvc-3")
    levels = sum(1 for _ in os.walk(where / "pvc-3"))
    assert levels == 401


def deep(root: Path, levels: int) -> None:
    fd = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        deeper = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)


# --- what is refused ---------------------------------------------------------------------------


def nothing_is_left(store: PoolStore, where: Path) -> None:
    assert not (where / "pvc-2").exists()
    assert not list((where / ".localvolume/making").iterdir())
    assert store.look().orphans == []


@pytest.mark.parametrize("use", ["mounted", "part of it mounted", "something mounted in it"])
def test_what_is_in_use_is_not_cloned(
    store: PoolStore, where: Path, tmp_path: Path, use: str
) -> None:
    origin = offer(store, wish())
    root = where / "pvc-1"
    (root / "sub").mkdir()
    uses = {
        "mounted": lambda: bind(root, tmp_path),
        "part of it mounted": lambda: bind(root / "sub", tmp_path),
        "something mounted in it": lambda: tmpfs(root / "sub"),
    }
    with uses[use](), pytest.raises(Busy, match="only cloned while nobody uses it"):
        cloned(store, origin)
    nothing_is_left(store, where)
    cloned(store, origin)


def test_there_are_no_snapshots(store: PoolStore, where: Path) -> None:
    origin = offer(store, wish())
    able = store.look().abilities
    assert not able.no_copies
    assert "no content of one moment" in able.no_snapshots
    with pytest.raises(Impossible, match="no content of one moment"):
        store.copy(snapshot_record(origin, "cut-1", MIB), origin)


@pytest.mark.parametrize(
    ("fs_type", "options"),
    [pytest.param("ext4", (), marks=pytest.mark.needs("ext4")), ("xfs", ("-m", "reflink=0"))],
)
def test_nothing_is_cloned_where_files_share_no_blocks(
    fs_type: str, options: tuple[str, ...]
) -> None:
    with filesystem(fs_type, *options) as where, store_in(where) as store:
        origin = offer(store, wish())
        assert "an xfs made with reflink=1" in store.look().abilities.no_copies
        with pytest.raises(Impossible, match="an xfs made with reflink=1"):
            cloned(store, origin)
        nothing_is_left(store, where)


def test_a_tree_with_too_many_levels_is_not_cloned(store: PoolStore, where: Path) -> None:
    origin = offer(store, wish())
    deep(where / "pvc-1", MOST_LEVELS + 2)
    with pytest.raises(Impossible, match=r"more than 1000 levels.*in a pod"):
        cloned(store, origin)
    nothing_is_left(store, where)


def test_a_tree_with_too_many_names_is_not_cloned(where: Path) -> None:
    for name in ("from", "to"):
        (where / name).mkdir()
    for number in range(21):
        (where / "from" / str(number)).touch()
    with (
        closed_after(os.open(where / "from", os.O_RDONLY)) as source,
        closed_after(os.open(where / "to", os.O_RDONLY)) as target,
        pytest.raises(TooLarge, match="more than 20 files"),
    ):
        clone_tree(source, target, most=20)


def test_a_file_that_cannot_share_its_blocks_is_named(store: PoolStore, where: Path) -> None:
    origin = offer(store, wish())
    swap = where / "pvc-1" / "swap"
    swap.write_bytes(bytes(MIB))
    swap.chmod(0o600)
    command("mkswap", swap)
    if subprocess.run(["swapon", swap], capture_output=True).returncode:
        pytest.skip("this machine takes no swap files")
    try:
        with pytest.raises(BackendFailed, match="swap"):
            cloned(store, origin)
    finally:
        command("swapoff", swap)
    nothing_is_left(store, where)


def test_a_full_pool_keeps_nothing_of_a_clone(store: PoolStore, where: Path) -> None:
    origin = offer(store, wish())
    for number in range(3000):
        (where / "pvc-1" / f"{number:0200}").touch()
    piece = bytes(MIB)
    with (where / "pvc-1" / "full").open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(piece[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    with pytest.raises(NoSpace):
        cloned(store, origin)
    nothing_is_left(store, where)
    (where / "pvc-1" / "full").unlink()
    cloned(store, origin)


# --- kill -9 -----------------------------------------------------------------------------------


def test_killed_at_any_point(where: Path) -> None:
    """The next attempt makes it whole, or takes it away; the origin is as it was."""
    with store_in(where) as store:
        store.open()
        origin = offer(store, wish())
        one_of_each(where / "pvc-1")
        before = told(where / "pvc-1")

    def clone() -> None:
        with store_in(where) as store:
            store.copy(clone_of(origin), origin)

    for step in range(2000):
        was_killed = killed(step, clone, ioctls=True)
        with store_in(where) as store:
            report = store.look()
            assert (report.problem, list(report.orphans)) == ("", [])
            if step % 2:
                made = store.copy(clone_of(origin), origin)
                assert told(where / "pvc-2") == before
            else:
                made = clone_of(origin)
            store.take_away(made)
            nothing_is_left(store, where)
            assert set(store.look().records) == {"pvc-1"}
        if not was_killed:
            break
    assert step > 30, "it was hardly watched"
    assert told(where / "pvc-1") == before
