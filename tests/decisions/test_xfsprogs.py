"""A mkfs.xfs is told to leave out what older kernels cannot mount, as far as it knows the words."""

import pytest

from localvolume.host.filesystem.xfsprogs import for_older_kernels

RMAP = ["-m", "rmapbt=0"]
METADATA = ["-m", "reflink=1", *RMAP]
EXTENTS = ["-i", "nrext64=0"]


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("mkfs.xfs version 5.13.0\n", METADATA),
        ("mkfs.xfs version 5.18.0\n", METADATA),
        ("mkfs.xfs version 5.19.0-rc1\n", METADATA + EXTENTS),
        ("mkfs.xfs version 6.1.0\n", METADATA + EXTENTS),
        ("mkfs.xfs version 6.13.0\n", METADATA + EXTENTS),
        ("mkfs.xfs version 10.2.0\n", METADATA + EXTENTS),
        ("", METADATA),
        ("mkfs.xfs of somebody's own\n", METADATA),
    ],
)
def test_a_version_is_told_what_it_knows(version: str, told: list[str]) -> None:
    assert for_older_kernels(version, ()) == told


def test_what_somebody_chose_is_left_to_them() -> None:
    """mkfs.xfs takes -m and -i more than once, and refuses to be told of one feature twice."""
    version = "mkfs.xfs version 6.13.0\n"
    assert for_older_kernels(version, ("-m", "crc=0")) == RMAP + EXTENTS
    assert for_older_kernels(version, ("-m", "crc=1,rmapbt=1")) == EXTENTS
    assert for_older_kernels(version, ("-i", "size=1024")) == METADATA + EXTENTS
    assert for_older_kernels(version, ("-i", "size=1024,nrext64=1")) == METADATA
    assert for_older_kernels(version, ("-m", "reflink=0", "-i", "nrext64=0")) == RMAP
