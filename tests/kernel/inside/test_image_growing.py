"""Images with an ext4 that grows in the kernel, mounted or not: it takes CAP_SYS_RESOURCE."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.backends.fstools import may_resize_mounted
from tests.host.support_images import MIB, ImagePool, command, image_pool, mounted, run_here


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ImagePool]:
    command("/run/modprobe", "loop")
    with image_pool(tmp_path, run_here) as pool:
        yield pool


@pytest.mark.parametrize("online", [True, False])
def test_an_ext4_grows_in_the_kernel(
    pool: ImagePool, online: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert may_resize_mounted()
    record = pool.make(mib=20)
    with mounted(pool.node(record)) as where:
        (where / "file").write_bytes(b"tenant data")
    with monkeypatch.context() as patch:
        if not online:
            # Not by the tools, whose death half way has to be taken back.
            patch.setattr("localvolume.backends.imageoffline.resize_by_tool", None)
            record = pool.grow(record, 60)
    with mounted(pool.node(record)) as where:
        if online:
            record = pool.grow(record, 60)
            # What the kernel keeps to itself is reckoned anew with the next mount.
            assert 60 * MIB - 4096 <= room(where) <= 60 * MIB * 1.02
    with mounted(pool.node(record)) as where:
        assert (where / "file").read_bytes() == b"tenant data"
        assert 60 * MIB - 4096 <= room(where) <= 60 * MIB * 1.01


def room(where: Path) -> int:
    found = os.statvfs(where)
    return found.f_bavail * found.f_frsize
