"""Tenants who leave more pieces behind than fit into memory: the agent looks at one at a time."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from localvolume.backends.pool import directories
from localvolume.host.filesystem.allocation import overwrite
from localvolume.host.syscalls import closed_after
from tests.host.support_devices import filesystem
from tests.host.support_pools import offer, store_in, wish
from tests.suite.units import MIB

PIECES = 40_000


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """Whatever is done within may take no more than so many bytes at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.needs("root", "loop", "ext4")
def test_an_image_in_many_pieces_is_overwritten() -> None:
    with (
        filesystem("ext4", "-b", "1024", size=128 * MIB) as where,
        closed_after(os.open(where / "image", os.O_RDWR | os.O_CREAT)) as fd,
    ):
        for piece in range(PIECES):
            os.pwrite(fd, b"of red".ljust(1024), piece * 2048)
        os.fsync(fd)
        with little_memory(8 * MIB):
            overwrite(fd, lambda _: None)
        os.lseek(fd, 0, os.SEEK_SET)
        while content := os.read(fd, MIB):
            assert not any(content)


@pytest.mark.needs("root", "loop", "ext4")
def test_a_directory_with_many_names_is_not_empty() -> None:
    with filesystem("ext4", "-i", "1024") as where, store_in(where) as store:
        record = offer(store, wish())
        for name in range(PIECES):
            os.mkfifo(where / "pvc-1" / str(name))
        with (
            closed_after(os.open(where, os.O_RDONLY)) as pool,
            little_memory(MIB),
        ):
            assert not directories.is_empty(pool, record, directories.inode_of)
