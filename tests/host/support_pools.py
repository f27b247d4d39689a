"""Pools for tests: on a filesystem of their own, with what is asked again and again of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.model import Backend, Record, Usage
from localvolume.backends.pool.pool import PoolStore
from localvolume.config.pools import PoolConfig
from tests.host.support_devices import filesystem

ON_EXT4 = pytest.mark.needs("root", "loop", "ext4")


class Numbered(DirectoryBackend):
    """Numbers its volumes as if nothing of any were on the disk yet; the numbers limit nothing."""

    def free_project(self, pool: int, record: Record, taken: Collection[int]) -> int:
        time.sleep(0.01)
        return next(one for one in range(100_000, 200_000) if one not in taken)

    def attach(self, pool: int, path: str, record: Record) -> None:
        pass

    def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
        return {}


def config_of(where: Path, **fields: Any) -> PoolConfig:
    """A pool at that directory, that enforces nothing."""
    known: dict[str, Any] = {
        "name": "pool",
        "host_dir": str(where),
        "mount_dir": str(where),
        "provisioner": "dynamic.localvolume.dev",
        "enforce": False,
        **fields,
    }
    return PoolConfig(**known)


def wish(name: str = "pvc-1", directory: str | None = None, **fields: Any) -> Record:
    """What is asked of `make`."""
    known: dict[str, Any] = {
        "name": name,
        "backend": "directory",
        "state": "making",
        "directory": name if directory is None else directory,
        "size_bytes": 1 << 20,
        "claim": f"ns/{name}",
        "claim_uid": f"uid-of-{name}",
        "enforced": False,
        **fields,
    }
    return Record(**known)


@contextmanager
def store_in(
    where: Path, *, backend: Backend | None = None, known_ids: tuple[str, ...] = (), **fields: Any
) -> Iterator[PoolStore]:
    """A pool at that directory, closed in the end."""
    store = PoolStore(
        config_of(where, **fields), backend or DirectoryBackend(), known_ids=known_ids
    )
    try:
        yield store
    finally:
        store.close()


@contextmanager
def pool_on(fstype: str = "ext4", **fields: Any) -> Iterator[tuple[PoolStore, Path]]:
    """A pool on a fresh filesystem, and where that is mounted."""
    with filesystem(fstype) as where, store_in(where, **fields) as store:
        yield store, where


def offer(store: PoolStore, record: Record) -> Record:
    """Make a volume as far as a PersistentVolume is asked for."""
    return store.offered(store.make(record))


def purge(store: PoolStore, record: Record, **fields: Any) -> None:
    """Purge it, without a stop."""
    store.purge(record, stop=fields.pop("stop", None) or threading.Event(), **fields)


def tree(where: Path) -> dict[str, str]:
    """Everything below a directory but the records' text and the pool's own constants, by path.

    The values tell what it is: `d`, `f <content>`, `l <target>`.
    """
    found: dict[str, str] = {}
    for above, directories, files in os.walk(where):
        for name in directories + files:
            path = Path(above, name)
            place = str(path.relative_to(where))
            if place in ("lost+found", ".localvolume/spare") or place.startswith(
                ".localvolume/records/"
            ):
                continue
            if path.is_symlink():
                found[place] = f"l {path.readlink()}"
            elif path.is_dir():
                found[place] = "d"
            elif not path.is_file():
                found[place] = "?"
            elif path.name != "pool.json":
                found[place] = f"f {path.read_bytes()[:64]!r}"
    for part in ("", "/records", "/making", "/images", "/trash"):
        found.pop(f".localvolume{part}", None)
    return found
