"""Tenants who make their volume immutable or append-only: it can be removed and copied all the
same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.host.btrfs.subvolumes import snapshot_subvolume
from localvolume.host.syscalls import closed_after
from tests.host.support_devices import filesystem, immutable
from tests.host.support_pools import offer, pool_on, purge, store_in, tree, wish
from tests.host.test_flex_bindmount import volume

LOCKS = pytest.mark.parametrize("flag", ["+i", "+a"])


@LOCKS
@pytest.mark.parametrize(
    "fstype",
    [
        pytest.param("ext4", marks=pytest.mark.needs("root", "loop", "ext4")),
        pytest.param("xfs", marks=pytest.mark.needs("root", "loop", "xfs")),
    ],
)
def test_a_directory_goes(fstype: str, flag: str) -> None:
    with pool_on(fstype) as (store, where):
        record = offer(store, wish())
        (where / "pvc-1/file").write_text("of red")
        with immutable(where / "pvc-1", flag):
            gone = store.retire(record)
        purge(store, gone)
        assert tree(where) == {}


@LOCKS
@pytest.mark.needs("root", "loop", "ext4")
def test_a_directory_of_flexvolume_goes(tmp_path: Path, flag: str) -> None:
    with filesystem("ext4") as root:
        driver, target = BindDriver(str(root)), tmp_path / "target"
        target.mkdir()
        driver.mount(volume(), str(target))
        (target / "file").write_text("of red")
        driver.unmount("pvc-1", str(target))
        with immutable(root / "pvc-1", flag):
            driver.remove(driver.list_volumes()[0])
        assert not (root / "pvc-1").exists()
        assert not list((root / ".localvolume" / "removed").iterdir())


@LOCKS
@pytest.mark.needs("root", "loop", "btrfs")
def test_a_copy_left_by_an_agent_that_was_killed_goes(flag: str) -> None:
    """It was killed between the cut, which takes over the flags, and its next step."""
    with (
        filesystem("btrfs", size=512 << 20) as root,
        store_in(root, backend=BtrfsBackend(), enforce=True) as store,
    ):
        origin = offer(store, wish("a", backend="btrfs", size_bytes=16 << 20, enforced=True))
        (root / "a/file").write_text("of red")
        making = root / ".localvolume/making"
        with (
            immutable(root / "a", flag),
            closed_after(os.open(making, os.O_RDONLY)) as directory,
            closed_after(os.open(root / "a", os.O_RDONLY)) as source,
        ):
            snapshot_subvolume(directory, "s", source)
            made = store.copy(snapshot_record(origin, "s", origin.size_bytes), origin)
        assert (root / "s/file").read_text() == "of red"
        purge(store, store.retire(store.offered(made)))
        assert os.listdir(making) == []
