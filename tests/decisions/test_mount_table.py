"""The text of the mount table: escapes, odd lines, speed."""

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.host.mount.mounts import Mount, MountTable, parse_mount_table

# What fs/proc_namespace.c escapes in paths, and in types and sources as well.
ESCAPED = b" \t\n\\#"

names = st.binary(min_size=1).filter(lambda name: b"\0" not in name)
paths = st.lists(names.filter(lambda name: b"/" not in name), max_size=4).map(
    lambda parts: b"/" + b"/".join(parts)
)


def kernel_escape(text: bytes) -> bytes:
    return b"".join(b"\\%03o" % byte if byte in ESCAPED else bytes((byte,)) for byte in text)


@given(root=paths, mount_point=paths, fs_type=names, source=st.just(b"") | names)
def test_what_the_kernel_escapes_comes_back(
    root: bytes, mount_point: bytes, fs_type: bytes, source: bytes
) -> None:
    escaped = [kernel_escape(text) for text in (root, mount_point, fs_type, source)]
    line = b"36 35 98:0 %b %b rw,noatime master:1 propagate_from:2 - %b %b rw\n" % tuple(escaped)
    [mount] = parse_mount_table(line)
    decoded = (mount.root, mount.mount_point, mount.fs_type, mount.source)
    assert tuple(map(os.fsencode, decoded)) == (root, mount_point, fs_type, source)
    assert mount[:3] == (36, 35, "98:0")
    assert mount.options == "rw,noatime"
    assert mount.super_options == "rw"
    assert mount.propagation == "master:1 propagate_from:2"


@given(name=names)
def test_every_octal_escape_is_undone_not_only_todays(name: bytes) -> None:
    line = b"1 0 0:1 / /%b rw - t s rw" % b"".join(b"\\%03o" % byte for byte in name)
    assert os.fsencode(parse_mount_table(line)[0].mount_point) == b"/" + name


def test_the_example_of_the_manual_page() -> None:
    line = b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
    assert parse_mount_table(line) == [
        Mount(
            36,
            35,
            "98:0",
            "/mnt1",
            "/mnt2",
            "rw,noatime",
            "ext3",
            "/dev/root",
            "rw,errors=continue",
            "master:1",
        )
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"36 35 98:0 / /mnt rw",
        b"36 35 98:0 / - ext4 /dev/sda rw",
        b"x 35 98:0 / /mnt rw - ext4 /dev/sda rw",
        b"36 35 98:0 / /mnt rw - ext4 /dev/sda",
    ],
)
def test_a_line_of_another_form_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        parse_mount_table(b"1 0 0:1 / / rw - t s rw\n" + line + b"\n")


@pytest.mark.parametrize("path", ["", "relative", "/a/", "//", "/a//b"])
def test_a_path_that_could_never_match_is_an_error(path: str) -> None:
    table = MountTable(parse_mount_table(b"1 0 0:1 / / rw - t s rw\n"))
    with pytest.raises(ValueError):
        table.at(path)


def test_a_loop_of_parents_does_not_hang_the_lookup() -> None:
    """The root of a container is its own parent in some tables."""
    table = MountTable(parse_mount_table(b"7 7 0:1 / / rw - t root rw\n8 7 0:2 / /a rw - t a rw\n"))
    root, below = table.at("/"), table.at("/a")
    assert root is not None
    assert below is not None
    assert (root.source, below.source) == ("root", "a")


def table_of(lines: int) -> bytes:
    """As on a busy node: pods' volumes, overlays with long options, some escapes."""
    rows = (
        b"%d 1 0:%d / /var/lib/kubelet/pods/%032x/volumes/kubernetes.io~projected/token%s "
        b"rw,relatime shared:%d - tmpfs tmpfs rw,size=%dk"
        % (number, number, number, b"\\040x" if number % 10 == 0 else b"", number, number)
        for number in range(2, lines + 1)
    )
    return b"1 0 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n" + b"\n".join(rows) + b"\n"


def best_of(attempts: int, text: bytes) -> float:
    best = float("inf")
    for _ in range(attempts):
        began = time.thread_time()
        table = MountTable(parse_mount_table(text))
        assert table.at("/") is not None
        best = min(best, time.thread_time() - began)
    return best


def test_a_thousand_lines_take_a_few_milliseconds() -> None:
    assert best_of(20, table_of(1000)) < 0.05  # 2 ms, on a machine of today


def test_the_time_grows_with_the_lines_not_with_their_square() -> None:
    # By the square it were 64 times; what fills the processor's caches takes longer, too.
    assert best_of(10, table_of(8000)) < 30 * best_of(20, table_of(1000))


@pytest.mark.parametrize(
    ("path", "hears"),
    [
        ("/", True),
        ("/mnt/disks", True),  # not mounted by itself: there is nothing that would be a copy
        ("/host/shared", True),
        ("/host/shared/one", True),
        ("/host/slave", True),
        ("/host/private", False),
        ("/host/private/one", False),
        ("/host/unbindable", False),
        ("/host/slave/private", False),
    ],
)
def test_who_hears_of_the_hosts_mounts(path: str, hears: bool) -> None:
    table = MountTable(
        parse_mount_table(
            b"1 0 0:1 / / rw - overlay s rw\n"
            b"2 1 8:1 /shared /host/shared rw shared:7 - ext4 s rw\n"
            b"3 1 8:1 /slave /host/slave rw master:7 - ext4 s rw\n"
            b"4 1 8:1 /private /host/private rw - ext4 s rw\n"
            b"5 1 8:1 /unbindable /host/unbindable rw unbindable - ext4 s rw\n"
            b"6 3 8:2 / /host/slave/private rw - ext4 s rw\n"
        )
    )
    assert table.hears_of(path) is hears
