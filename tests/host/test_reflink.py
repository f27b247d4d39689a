"""Files that share blocks: how much of a file is shared, and what counts if nobody tells."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.filesystem import reflink

from .support_devices import filesystem

pytestmark = pytest.mark.needs("root", "loop", "xfs")


@pytest.fixture
def where() -> Iterator[Path]:
    with filesystem("xfs") as where:
        yield where


def test_shared_bytes_are_those_that_a_write_needs_anew(where: Path) -> None:
    one, other = (where / name for name in ("one", "other"))
    # Written in pieces far apart: several calls of the kernel's are needed to see them all.
    with one.open("w+b") as first, other.open("w+b") as second:
        for number in range(2500):
            first.seek(number * 16384)
            first.write(b"1" * 4096)
        first.flush()
        os.fsync(first.fileno())
        assert reflink.shared_bytes(first.fileno()) == 0
        reflink.clone(second.fileno(), first.fileno())
        assert reflink.shared_bytes(second.fileno()) == 2500 * 4096
        for number in range(0, 2500, 2):
            second.seek(number * 16384)
            second.write(b"2" * 4096)
        second.flush()
        os.fsync(second.fileno())
        assert reflink.shared_bytes(first.fileno()) == 1250 * 4096
        assert reflink.shared_bytes(second.fileno()) == 1250 * 4096


def test_what_is_not_looked_at_counts_as_shared(where: Path) -> None:
    with (where / "one").open("w+b") as file:
        for number in range(10):
            os.posix_fallocate(file.fileno(), number * 16384, 4096)
        for most in (1, 2, 9, 10):
            shared = reflink.shared_bytes(file.fileno(), most=most)
            assert shared == (0 if most == 10 else (10 - most) * 4096)


def test_a_filesystem_that_does_not_tell_shares_all() -> None:
    with filesystem("tmpfs") as where, (where / "one").open("w+b") as file:
        file.write(bytes(8192))
        file.flush()
        assert reflink.shared_bytes(file.fileno()) == 8192
