"""Shared by the tests on real disks: what several files of a subject begin with."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.host.mount.mounts import read_mount_table
from tests.host.support_disks import Bench, bench
from tests.host.support_lvm_told import Told, told_pool
from tests.host.support_mounts import MNT_DETACH, umount


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def made(tmp_path: Path, stack: contextlib.ExitStack) -> Iterator[Bench]:
    """Where disks become volumes. They are unmounted before what the stack holds is detached."""
    with bench(tmp_path) as made:
        yield made


@pytest.fixture
def thin(tmp_path: Path) -> Iterator[Told]:
    """A pool of an LVM that is told what to answer."""
    with told_pool(tmp_path) as told:
        yield told


@pytest.fixture
def thick(tmp_path: Path) -> Iterator[Told]:
    with told_pool(tmp_path, thin=False) as told:
        yield told


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the directories of a FlexVolume driver are."""
    made = tmp_path / "volumes"
    made.mkdir()
    return made


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    """Where a kubelet would have it mount one."""
    made = tmp_path / "target"
    made.mkdir()
    yield made
    while read_mount_table().at(str(made)) is not None:
        umount(str(made), MNT_DETACH)


@pytest.fixture
def driver(root: Path) -> BindDriver:
    return BindDriver(str(root))
