"""D4: tenants have filled the pool's disk, its blocks or its inodes. What is removed gives room
back, and nothing is offered where nothing can be made."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from localvolume.backends.capacity import capacity
from tests.host.support_pools import config_of, offer, pool_on, purge, wish
from tests.suite.units import MIB

pytestmark = [pytest.mark.needs("root", "loop", "ext4")]


def fill_blocks(where: Path) -> None:
    """To the last one, also those kept for root."""
    for size in (MIB, 4096, 1):
        with contextlib.suppress(OSError), (where / f"fill-{size}").open("wb", 0) as file:
            while True:
                file.write(b"x" * size)


def fill_inodes(where: Path) -> None:
    with contextlib.suppress(OSError):
        for number in range(1 << 20):
            os.close(os.open(where / f"file-{number}", os.O_CREAT | os.O_WRONLY))
    assert os.statvfs(where).f_ffree == 0


@pytest.mark.parametrize("fill", [fill_blocks, fill_inodes])
def test_volumes_are_removed_where_a_tenant_has_taken_all(fill: object) -> None:
    assert callable(fill)
    with pool_on() as (store, where):
        for name in ("pvc-1", "pvc-2", "pvc-3"):
            offer(store, wish(name))
        fill(where / "pvc-1")
        report = store.look()
        assert report.problem == ""
        assert capacity(config_of(where), report) == 0
        # One after the other, while nothing is purged yet.
        for name in ("pvc-2", "pvc-3", "pvc-1"):
            assert store.retire(wish(name)).state == "removed"
            assert not (where / name).exists()
        for removed in store.look().records.values():
            purge(store, removed)
        assert not store.look().records
        assert capacity(config_of(where), store.look()) > 0
        # The reserve is there again for the next time.
        assert (where / ".localvolume" / "spare").stat().st_size == 4096
