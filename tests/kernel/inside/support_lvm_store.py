"""A pool of logical volumes in the guest, and what is left of it."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import GoesOn, Record
from localvolume.config.pools import LvmConfig, PoolConfig
from localvolume.host.lvm.commands import LogicalVolume, Lvm
from localvolume.host.process.commandsync import Run
from tests.host.support_devices import mounted
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_lvm import EXTENT


@dataclass
class Pool:
    """A store, and LVM to look behind its back."""

    store: LvmStore
    lvm: Lvm
    group: str

    def record(self, name: str = "pvc-1", mib: float = 12, **fields: Any) -> Record:
        told = {"state": "making", "size_bytes": int(mib * MIB), "claim_uid": f"uid-{name}"}
        return Record(name=name, backend="lvm", directory="", **{**told, **fields})

    def offer(self, name: str = "pvc-1", mib: float = 12, **fields: Any) -> Record:
        """A volume as a tenant has it."""
        made = self.store.make(self.record(name, mib, **fields))
        return self.store.offered(made, f"pv-{name}")

    def volume(self, name: str) -> LogicalVolume | None:
        return self.lvm.volume(self.group, name)

    def there(self, name: str) -> LogicalVolume:
        found = self.volume(name)
        assert found is not None
        return found

    def lvm_names(self) -> list[str]:
        return sorted(one.name for one in self.lvm.volumes(self.group))

    def node(self, name: str) -> str:
        return f"/dev/{self.group}/{name}"

    def purge(self, record: Record) -> None:
        self.store.purge(record, stop=threading.Event())

    @contextlib.contextmanager
    def in_pieces(self, size: int = EXTENT, run: Run = run_here) -> Iterator[LvmStore]:
        """The pool's store for an agent of which each call zeroes so much, or which records that
        so much is copied."""
        self.store.close()
        zeroing = Zeroing(piece=size, seconds=0.0)
        store = LvmStore(self.store.config, run, locks=self.store.locks, zeroing=zeroing)
        try:
            yield store
        finally:
            store.close()

    def end(self) -> None:
        """Let go of it; what can be deactivated need not be taken away by force."""
        self.store.close()
        subprocess.run(["vgchange", "--activate", "n", self.group], capture_output=True)

    @contextlib.contextmanager
    def mounted(self, name: str) -> Iterator[Path]:
        with mounted(self.node(name)) as where:
            yield where


@pytest.fixture
def thick(volume_group: str, tmp_path: Path) -> Iterator[Pool]:
    """A pool of thick volumes."""
    pool = pool_on(volume_group, tmp_path)
    yield pool
    pool.end()


@pytest.fixture
def thin(volume_group: str, thin_pool: str, tmp_path: Path) -> Iterator[Pool]:
    """A pool of thin volumes, of 64 MiB."""
    pool = pool_on(volume_group, tmp_path, thin_pool=thin_pool)
    yield pool
    pool.end()


def first(kind: str) -> pytest.MarkDecorator:
    """Of tests with `either` that are dear and say the same of both: the other one soaks."""
    other = pytest.param({"thin": "thick", "thick": "thin"}[kind], marks=pytest.mark.soak)
    return pytest.mark.parametrize("either", [kind, other], indirect=True)


@pytest.fixture(params=["thick", "thin"])
def either(request: pytest.FixtureRequest) -> Pool:
    """Either."""
    found: Pool = request.getfixturevalue(request.param)
    return found


def pool_on(
    group: str, locks: Path, *, thin_pool: str = "", run: Run = run_here, **fields: Any
) -> Pool:
    lvm_fields = fields.pop("lvm", {})
    config = PoolConfig(
        name="p",
        host_dir="",
        mount_dir="",
        provisioner="x",
        backend="lvm",
        lvm=LvmConfig(group=group, thin_pool=thin_pool, **lvm_fields),
        **fields,
    )
    return Pool(LvmStore(config, run, locks=str(locks)), Lvm(run_here), group)


def copied_whole(store: LvmStore, record: Record, origin: Record) -> Record:
    """Copied part by part, as ``Pools`` has it done."""
    while True:
        with contextlib.suppress(GoesOn):
            return store.copy(record, origin)


def read(node: str, length: int, start: int = 0) -> bytes:
    """What the disk has, not what is cached."""
    fd = os.open(node, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, length, start)
    finally:
        os.close(fd)


def write(node: str, content: bytes, start: int = 0) -> None:
    fd = os.open(node, os.O_WRONLY)
    try:
        os.pwrite(fd, content, start)
        os.fsync(fd)
    finally:
        os.close(fd)
