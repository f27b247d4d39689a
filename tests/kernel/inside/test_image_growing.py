"""Images with an ext4 that grows in the kernel, mounted or not: it takes CAP_SYS_RESOURCE."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.fstools import may_resize_mounted
from localvolume.host.process.commands import Finished
from tests.host.support_images import ImagePool, command, image_pool, mounted, run_here
from tests.suite.units import MIB


@pytest.fixture
def programs() -> list[str]:
    """Those that the pool has run."""
    return []


@pytest.fixture
def pool(tmp_path: Path, programs: list[str]) -> Iterator[ImagePool]:
    def run(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        programs.append(argv[0])
        return run_here(argv, timeout, **more)

    command("/run/modprobe", "loop")
    with image_pool(tmp_path, run) as pool:
        yield pool


@pytest.mark.parametrize("online", [True, False])
def test_an_ext4_grows_in_the_kernel(pool: ImagePool, online: bool, programs: list[str]) -> None:
    assert may_resize_mounted()
    record = pool.make(mib=20)
    with mounted(pool.node(record)) as where:
        (where / "file").write_bytes(b"tenant data")
    programs.clear()
    if not online:
        record = pool.grow(record, 60)
    with mounted(pool.node(record)) as where:
        if online:
            record = pool.grow(record, 60)
            # What the kernel keeps to itself is reckoned anew with the next mount.
            assert 60 * MIB - 4096 <= room(where) <= 60 * MIB * 1.02
    with mounted(pool.node(record)) as where:
        assert (where / "file").read_bytes() == b"tenant data"
        assert 60 * MIB - 4096 <= room(where) <= 60 * MIB * 1.01
    # Not by the tools, whose death half way has to be taken back.
    assert "resize2fs" not in programs


def room(where: Path) -> int:
    found = os.statvfs(where)
    return found.f_bavail * found.f_frsize
