"""The mount table against real mounts: names of any bytes, stacks, shadows, namespaces."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.mount.mounts import read_mount_table
from tests.host.support_mounts import MS_RDONLY, MS_REMOUNT, Mounts, mount, mount_namespace

pytestmark = pytest.mark.needs("root")

AWKWARD_NAMES = {
    "spaces": b"a disk  with spaces ",
    "tab and newline": b"a\tb\nc",
    "backslashes": b"back\\slash\\040\\\\",
    "unicode": "Größe-磁盘-🖴".encode(),
    "not UTF-8": b"\xff\xfe-\xe4\x80",
    "line separators that are not newlines": "a\rb\x0bc\x0cd\x1ce\x85f\u2028g".encode(),
    "the separator of the table": b"x - tmpfs tmpfs rw",
    "a hash": b"#1",
}


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    with Mounts() as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> str:
    return os.path.realpath(tmp_path)


@pytest.mark.parametrize("name", AWKWARD_NAMES.values(), ids=AWKWARD_NAMES.keys())
def test_any_name_is_found_as_the_directory_lists_it(
    mounts: Mounts, place: str, name: bytes
) -> None:
    target = os.path.join(place, os.fsdecode(name))
    mounts.tmpfs(target)
    [listed] = os.listdir(place)
    found = read_mount_table().at(os.path.join(place, listed))
    assert found is not None
    assert found.mount_point == target
    assert found.fs_type == "tmpfs"
    assert found.device == f"{os.major(os.stat(target).st_dev)}:{os.minor(os.stat(target).st_dev)}"


def test_roots_of_bind_mounts_are_decoded_too(mounts: Mounts, place: str) -> None:
    filesystem = mounts.tmpfs(f"{place}/fs")
    source = os.path.join(filesystem, os.fsdecode(b"the \\source\n\xff"))
    os.mkdir(source)
    target = mounts.bind(source, f"{place}/target")
    found = read_mount_table().at(target)
    assert found is not None
    assert found.root == source.removeprefix(filesystem)
    whole = read_mount_table().at(filesystem)
    assert whole is not None
    assert (whole.root, whole.device) == ("/", found.device)


def test_a_bound_directory_removed_since_is_told(mounts: Mounts, place: str) -> None:
    filesystem = mounts.tmpfs(f"{place}/fs")
    os.mkdir(f"{filesystem}/gone")
    target = mounts.bind(f"{filesystem}/gone", f"{place}/target")
    os.rmdir(f"{filesystem}/gone")
    found = read_mount_table().at(target)
    assert found is not None
    assert found.root == "/gone//deleted"


@pytest.mark.parametrize("source", ["", "two words", "back\\slash", "#", "LABEL=Größe", " - x y"])
def test_a_source_is_any_text(mounts: Mounts, place: str, source: str) -> None:
    target = mounts.tmpfs(f"{place}/m", source=source)
    found = read_mount_table().at(target)
    assert found is not None
    assert found.source == source
    assert found.fs_type == "tmpfs"
    assert "size=1024k" in found.super_options.split(",")


def test_a_plain_directory_is_not_a_mount_point(mounts: Mounts, place: str) -> None:
    mounts.tmpfs(f"{place}/m")
    os.mkdir(f"{place}/m/inside")
    table = read_mount_table()
    assert table.at(f"{place}/m/inside") is None
    assert table.at(f"{place}/missing") is None
    holding = table.holding(f"{place}/m/inside/deeper")
    assert holding is not None
    assert holding.mount_point == f"{place}/m"


def test_an_unmounted_one_is_gone_and_a_lazily_unmounted_one_too(
    mounts: Mounts, place: str
) -> None:
    target = mounts.tmpfs(f"{place}/m")
    device = read_mount_table().at(target)
    assert device is not None
    with open(f"{target}/busy", "w"):
        with pytest.raises(OSError, match="busy"):
            mounts.umount(target)
        assert read_mount_table().at(target) is not None
        mounts.umount(target, lazily=True)
        assert read_mount_table().at(target) is None
        assert read_mount_table().of_device(device.device) == []


def test_the_last_of_a_stack_is_the_one_that_counts(mounts: Mounts, place: str) -> None:
    target = f"{place}/m"
    for source in ("first", "second", "third"):
        mounts.tmpfs(target, source=source)
    table = read_mount_table()
    found = table.at(target)
    assert found is not None
    assert found.source == "third"
    assert [mount.source for mount in table if mount.mount_point == target] == [
        "first",
        "second",
        "third",
    ]
    assert [mount.source for mount in table.below(place)] == ["third"]
    mounts.umount(target)
    found = read_mount_table().at(target)
    assert found is not None
    assert found.source == "second"


def test_a_mount_moved_onto_another_is_on_top_although_it_is_older(
    mounts: Mounts, place: str
) -> None:
    older = mounts.tmpfs(f"{place}/older", source="older")
    target = mounts.tmpfs(f"{place}/m", source="newer")
    mounts.move(older, target)
    Path(f"{target}/whose").write_text("older")
    table = read_mount_table()
    found = table.at(target)
    assert found is not None
    assert found.source == "older"
    assert table.at(older) is None


def test_what_a_later_mount_hides_is_not_there(mounts: Mounts, place: str) -> None:
    os.mkdir(f"{place}/disks")
    volume = mounts.tmpfs(f"{place}/disks/v1", source="volume")
    nested = mounts.tmpfs(f"{volume}/nested", source="nested")
    table = read_mount_table()
    assert [mount.source for mount in table.below(f"{place}/disks")] == ["volume", "nested"]
    assert [mount.source for mount in table.below(volume)] == ["nested"]
    hidden = table.at(volume)
    assert hidden is not None

    mounts.tmpfs(f"{place}/disks", source="over")
    os.mkdir(volume)
    table = read_mount_table()
    assert table.at(volume) is None, "it is listed, but no path leads to it"
    assert table.at(nested) is None
    assert table.below(f"{place}/disks") == []
    assert [mount.source for mount in table.of_device(hidden.device)] == ["volume"]

    mounts.tmpfs(volume, source="again")
    found = read_mount_table().at(volume)
    assert found is not None
    assert found.source == "again"


def test_below_is_strictly_below_and_by_whole_names(mounts: Mounts, place: str) -> None:
    for name in ("a", "ab", "a/in", "a/in/deep"):
        mounts.tmpfs(f"{place}/{name}")
    below = [mount.mount_point for mount in read_mount_table().below(f"{place}/a")]
    assert below == [f"{place}/a/in", f"{place}/a/in/deep"]
    everything = read_mount_table().below("/")
    assert f"{place}/ab" in {mount.mount_point for mount in everything}
    assert "/" not in {mount.mount_point for mount in everything}


def test_read_only_by_the_mount_or_by_the_filesystem(mounts: Mounts, place: str) -> None:
    writable = mounts.tmpfs(f"{place}/writable")
    bound = mounts.bind(writable, f"{place}/bound")
    mount("", bound, flags=MS_REMOUNT | MS_RDONLY | 4096)
    whole = mounts.tmpfs(f"{place}/whole", flags=MS_RDONLY)
    table = read_mount_table()
    assert [found.read_only for path in (writable, bound, whole) if (found := table.at(path))] == [
        False,
        True,
        True,
    ]


def test_propagation_is_told(mounts: Mounts, place: str) -> None:
    target = mounts.tmpfs(f"{place}/m")
    mounts.shared(target)
    found = read_mount_table().at(target)
    assert found is not None
    assert found.propagation.startswith("shared:")


@pytest.mark.needs("mount")
def test_another_namespace_has_its_own_table(mounts: Mounts, place: str) -> None:
    target = f"{place}/inside"
    os.mkdir(target)
    with mount_namespace(f"mount -t tmpfs theirs '{target}'") as pid:
        assert read_mount_table().at(target) is None
        theirs = read_mount_table(f"/proc/{pid}/mountinfo").at(target)
        assert theirs is not None
        assert theirs.source == "theirs"


def test_a_process_with_another_root_sees_paths_from_there(mounts: Mounts, place: str) -> None:
    """In a chroot below a mount, no line of the table is for ``/``."""
    root = mounts.tmpfs(f"{place}/fs")
    os.mkdir(f"{root}/jail")
    mounts.tmpfs(f"{root}/jail/disk", source="jailed")
    jailed = "import os, sys; os.chroot(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", jailed, f"{root}/jail"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        table = read_mount_table(f"/proc/{child.pid}/mountinfo")
        assert table.at("/") is None
        found = table.at("/disk")
        assert found is not None
        assert found.source == "jailed"
        child.kill()


def test_a_missing_table_is_an_error_not_an_empty_one() -> None:
    with pytest.raises(FileNotFoundError):
        read_mount_table("/proc/self/no-such-table")
