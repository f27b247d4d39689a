"""Pools on real btrfs, and what tenants do in them."""

import contextlib
import dataclasses
import fcntl
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.backends.model import Record, Usage
from localvolume.backends.pool import directories
from localvolume.host.btrfs import quota, subvolumes
from tests.host.support_devices import filesystem
from tests.suite.clock import LONG
from tests.suite.units import MIB
from tests.suite.until import until

SIZE = 50 * MIB
#: That the kernel has counted all is waited for, however busy the machine is.
PATIENT = (LONG, LONG)
_ENABLE_SIMPLE = 4


@dataclasses.dataclass
class Pool:
    """A pool as the pool store lays it out, and the backend."""

    root: Path
    fd: int
    backend: BtrfsBackend

    @property
    def path(self) -> str:
        return str(self.root)

    def record(self, name: str, **more: object) -> Record:
        asked: dict[str, object] = {
            "name": name,
            "backend": "btrfs",
            "state": "making",
            "directory": name,
            "size_bytes": SIZE,
            **more,
        }
        return Record(**asked)  # type: ignore[arg-type]

    def make(self, name: str, **more: object) -> Record:
        """Make a volume and put it into its place."""
        record = self.backend.make(self.fd, self.path, self.record(name, **more))
        directories.put_into_place(self.fd, record, self.backend.identity)
        return dataclasses.replace(record, state="made")

    def usage(self, record: Record) -> Usage:
        """What it holds by now."""
        subvolumes.commit(self.fd)
        return self.backend.usage(self.fd, self.path, [record])[record.name]

    def retire(self, record: Record) -> Record:
        removed = dataclasses.replace(record, state="removed", trash=f"{record.name}.12345678")
        self.backend.retire(self.fd, self.path, removed)
        return removed

    def purge(self, removed: Record) -> None:
        self.backend.purge(self.fd, self.path, removed, stop=threading.Event())

    def groups(self) -> set[int]:
        """The numbers of all quota groups but the top level's."""
        subvolumes.commit(self.fd)
        return set(quota.read_quotas(self.fd).groups) - {5}

    def has_groups(self, wanted: set[int]) -> None:
        """Once the kernel is through: a purge waits for it, but not for long."""
        until(self.groups, lambda found: found == wanted, seconds=120)


@contextlib.contextmanager
def pool(*, size: int = 1024 * MIB, simple: bool = False) -> Iterator[Pool]:
    """A pool on a fresh btrfs; `simple`: with the kernel's simple quotas switched on before."""
    with filesystem("btrfs", size=size) as root:
        for part in ("making", "trash", "images", "records"):
            os.makedirs(root / ".localvolume" / part, 0o700)
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if simple:
                quota_ctl = quota._IOC_QUOTA_CTL
                fcntl.ioctl(fd, quota_ctl, struct.pack("=2Q", _ENABLE_SIMPLE, 0))
            yield Pool(root, fd, BtrfsBackend(counting=PATIENT))
        finally:
            os.close(fd)


def fill(path: Path, most: int) -> tuple[int, int]:
    """Write until `most` bytes or an error: the bytes that are on disk then, and the errno or 0."""
    written = 0
    try:
        with open(path, "ab", buffering=0) as file:
            while written < most:
                written += file.write(bytes(min(64 << 10, most - written)))
            os.fsync(file.fileno())
    except OSError as error:
        return written, error.errno or -1
    return written, 0


#: Python that goes on as the user nobody, who may not read our modules: they are loaded before.
AS_NOBODY = """
import array, fcntl, os, struct, sys
from localvolume.host.btrfs import subvolumes
os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


def as_nobody(code: str, *words: object) -> str:
    """Run Python in another process as the user nobody, with `words` in sys.argv."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY + code, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


#: As nobody: make argv[2] in argv[1], charged to the groups argv[3:] besides its own.
MAKE_CHARGED_TO = """
groups = [int(one) for one in sys.argv[3:]]
inherit = array.array("Q", [0, len(groups), 0, 0, 0, 0, 0, 0, 0, *groups])
request = bytearray(4096)
struct.pack_into("=QQQ", request, 16, 4, len(inherit) * 8, inherit.buffer_info()[0])
request[56 : 56 + len(sys.argv[2])] = sys.argv[2].encode()
directory = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(directory, subvolumes._IOC_SUBVOL_CREATE_V2, request)
"""


def identity_of(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = subvolumes.subvolume_id(fd)
    finally:
        os.close(fd)
    assert found is not None
    return found
