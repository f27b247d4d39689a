"""What an ext superblock must say before its filesystem is looked into as an empty one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.host.filesystem.extempty import UNPROVEN, why_not_at_rest
from localvolume.host.filesystem.extsuper import SUPER_BYTES, parse_super
from tests.suite.units import GIB, MIB

# The fields of struct ext4_super_block by name: where, and as what.
FIELDS = {
    "inodes": (0x0, "<I"),
    "blocks": (0x4, "<I"),
    "free": (0xC, "<I"),
    "inodes_free": (0x10, "<I"),
    "first_block": (0x14, "<I"),
    "shift": (0x18, "<I"),
    "blocks_per_group": (0x20, "<I"),
    "inodes_per_group": (0x28, "<I"),
    "magic": (0x38, "<H"),
    "state": (0x3A, "<H"),
    "revision": (0x4C, "<I"),
    "first_inode": (0x54, "<I"),
    "inode_size": (0x58, "<H"),
    "compat": (0x5C, "<I"),
    "incompat": (0x60, "<I"),
    "ro_compat": (0x64, "<I"),
    "reserved_descriptors": (0xCE, "<H"),
    "journal_inode": (0xE0, "<I"),
    "journal_device": (0xE4, "<I"),
    "last_orphan": (0xE8, "<I"),
    "descriptor_size": (0xFE, "<H"),
    "journal_bytes": (0x10C + 16 * 4, "<I"),
    "errors": (0x194, "<I"),
    "orphan_inode": (0x280, "<I"),
}
# Of a device of 1 GiB, as mkfs.ext4 of e2fsprogs 1.47 leaves it.
EMPTY = {
    "inodes": 65536,
    "blocks": 262144,
    "free": 262144 - 12955,
    "inodes_free": 65536 - 11,
    "shift": 2,
    "blocks_per_group": 32768,
    "inodes_per_group": 8192,
    "magic": 0xEF53,
    "state": 1,
    "revision": 1,
    "first_inode": 11,
    "inode_size": 256,
    "compat": 0x3C,
    "incompat": 0x2C2,
    "ro_compat": 0x46B,
    "reserved_descriptors": 127,
    "journal_inode": 8,
    "descriptor_size": 64,
    "journal_bytes": 32 * MIB,
}
UNCHECKED = EMPTY["ro_compat"] & ~0x400
ORPHANS = {"compat": 0x103C, "orphan_inode": 12, "inodes_free": 65536 - 12}


def superblock(**changes: int) -> bytes:
    raw = bytearray(SUPER_BYTES)
    for name, value in (EMPTY | changes).items():
        offset, form = FIELDS[name]
        struct.pack_into(form, raw, offset, value)
    return bytes(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        ORPHANS,
        {"inodes_free": 65536 - 10},  # without lost+found
        {"ro_compat": UNCHECKED},
        {"compat": 0x38, "journal_inode": 0, "journal_bytes": 0, "free": 262144 - 12955 + 8192},
    ],
)
def test_what_mkfs_leaves_is_at_rest(changes: dict[str, int]) -> None:
    assert why_not_at_rest(superblock(**changes), GIB) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"magic": 0}, "makes no sense"),
        ({"shift": 7}, "makes no sense"),
        ({"shift": 0xFFFFFFFF}, "makes no sense"),
        ({"blocks_per_group": 0}, "makes no sense"),
        ({"inodes_per_group": 0}, "makes no sense"),
        ({"descriptor_size": 16}, "makes no sense"),
        ({"descriptor_size": 0xFFFF}, "makes no sense"),
        ({"inode_size": 64}, "makes no sense"),
        ({"inode_size": 8192}, "makes no sense"),
        ({"first_block": 1}, "makes no sense"),
        ({"free": 262145}, "makes no sense"),
        ({"inodes_free": 65537}, "makes no sense"),
        ({"revision": 0}, "makes no sense"),
        ({"first_inode": 20}, "makes no sense"),
        ({"state": 0}, "was not unmounted"),
        ({"state": 5}, "was not unmounted"),  # it was in use while orphans were removed
        ({"state": 3}, "errors on record"),
        ({"errors": 1}, "errors on record"),
        ({"incompat": 0x2C6}, "journal is to be replayed"),
        ({"last_orphan": 12}, "deleted while they were open"),
        (ORPHANS | {"ro_compat": 0x1046B}, "deleted while they were open"),
        (ORPHANS | {"orphan_inode": 13}, "list of orphans is elsewhere"),
        ({"compat": 0x23C}, "(compat 0x200)"),
        ({"incompat": 0x2D2}, "(incompat 0x10)"),
        ({"ro_compat": 0x66B}, "(ro_compat 0x200)"),
        ({"ro_compat": 0x46A}, "sparse_super"),
        ({"journal_inode": 9}, "journal is elsewhere"),
        ({"journal_device": 2049}, "journal is elsewhere"),
        ({"compat": 0x38}, "journal is elsewhere"),
        ({"blocks": 262145, "free": 0}, "larger than its device"),
        ({"blocks": 262143}, "smaller than its device"),
        ({"inodes_free": 65536 - 12}, "with 1 files or directories"),
        ({"inodes_free": 0}, "with 65525 files or directories"),
        ({"free": 262144 - 12955 - 100}, "blocks more in use"),
        ({"compat": 0x103C, "orphan_inode": 12, "inodes_free": 65536 - 13}, "with 1 files"),
    ],
)
def test_what_it_must_say(changes: dict[str, int], said: str) -> None:
    assert said in (why_not_at_rest(superblock(**changes), GIB) or "")


def test_tables_of_inodes_without_checksums_are_read_so_far_only() -> None:
    blocks = 64 * 262144
    for inodes, fits in ((UNPROVEN // 256, True), (UNPROVEN // 256 + 512, False)):
        tables = blocks // 32768 * (2 + -(-(inodes // 512) * 256 // 4096))
        raw = superblock(
            blocks=blocks,
            inodes=inodes,
            inodes_free=inodes - 11,
            inodes_per_group=inodes // 512,
            free=blocks - tables,
            ro_compat=UNCHECKED,
        )
        found = why_not_at_rest(raw, 64 * GIB)
        assert (found is None) == fits, found
        checked = bytearray(raw)
        struct.pack_into("<I", checked, 0x64, EMPTY["ro_compat"])
        assert why_not_at_rest(bytes(checked), 64 * GIB) is None


@given(
    st.dictionaries(st.sampled_from(sorted(FIELDS)), st.integers(0, 0xFFFF)),
    st.dictionaries(
        st.sampled_from([name for name, (_, form) in FIELDS.items() if form == "<I"]),
        st.integers(0, 0xFFFFFFFF),
    ),
    st.integers(0, 1 << 50),
)
def test_whatever_was_written_there_it_is_judged(
    some: dict[str, int], others: dict[str, int], device_bytes: int
) -> None:
    raw = superblock(**some, **{k: v for k, v in others.items() if k not in some})
    if why_not_at_rest(raw, device_bytes) is None:
        found = parse_super(raw)
        assert found is not None
        assert found.clean
        assert 0 <= found.inodes - found.inodes_free <= 12
        assert found.blocks * found.block_size <= device_bytes


@given(st.binary(min_size=0, max_size=SUPER_BYTES))
def test_bytes_that_are_no_superblock_are_none(raw: bytes) -> None:
    assert why_not_at_rest(raw, GIB) is not None
