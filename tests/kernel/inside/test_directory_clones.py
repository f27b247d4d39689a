"""Clones of directories whose size a project quota enforces: each has a limit of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.model import NoSpace, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.host.filesystem import projectquota
from localvolume.host.syscalls import closed_after
from tests.kernel.inside.support_quota import DISKS, EXACT, TENANT, charge, fill, formatted
from tests.kernel.inside.test_directory_backend import pool_at, record
from tests.suite.units import MIB

SIZE = 20 * MIB


@pytest.fixture
def where() -> Iterator[Path]:
    with formatted("xfs", DISKS["xfs"]) as path:
        pool = path / "pool"
        pool.mkdir(0o755)
        yield pool


@pytest.fixture
def pool(where: Path) -> Iterator[PoolStore]:
    with pool_at(where) as store:
        yield store


def made(pool: PoolStore) -> Record:
    return pool.offered(pool.make(record(size=SIZE, mode=0o777, uid=TENANT)))


def clone_of(origin: Record, size: int = SIZE) -> Record:
    return with_content_of(origin, record("pvc-2", size))


def project_of(path: Path) -> int:
    with closed_after(os.open(path, os.O_RDONLY)) as fd:
        return projectquota.membership(fd).project


def used(pool: PoolStore, name: str) -> int:
    found = pool.look().usage[name].used_bytes
    assert found is not None
    return found


def test_a_clone_is_counted_and_limited_by_itself(pool: PoolStore, where: Path) -> None:
    origin = made(pool)
    (where / "pvc-1/a/b").mkdir(parents=True)
    (where / "pvc-1/a/b/file").write_bytes(os.urandom(10 * MIB))
    clone = pool.copy(clone_of(origin), origin)
    assert origin.project != clone.project
    for path in ("", "a", "a/b", "a/b/file"):
        assert project_of(where / "pvc-2" / path) == clone.project
        assert project_of(where / "pvc-1" / path) == origin.project
    # What they share counts for both: each may write it anew.
    for name in ("pvc-1", "pvc-2"):
        assert used(pool, name) == pytest.approx(10 * MIB, rel=0.02)
    with closed_after(os.open(where / "pvc-2", os.O_RDONLY)) as fd:
        os.fchmod(fd, 0o777)
        assert fill(fd) == pytest.approx(10 * MIB, rel=3 * EXACT)
    assert used(pool, "pvc-1") == pytest.approx(10 * MIB, rel=0.02)
    pool.take_away(replace(clone, state="made"))
    assert not (where / "pvc-2").exists()
    with closed_after(os.open(where, os.O_RDONLY)) as fd:
        assert not projectquota.read(fd, clone.project).hard_bytes
        assert not projectquota.read(fd, clone.project).used_inodes


def test_what_a_tenant_charged_to_others_is_charged_to_the_clone(
    pool: PoolStore, where: Path
) -> None:
    origin = made(pool)
    escaped = where / "pvc-1/escaped"
    escaped.write_bytes(os.urandom(5 * MIB))
    os.chown(escaped, TENANT, TENANT)
    with closed_after(os.open(escaped, os.O_RDONLY)) as fd:
        charge(fd, 4711)
    assert project_of(escaped) == 4711
    clone = pool.copy(clone_of(origin), origin)
    assert project_of(where / "pvc-2/escaped") == clone.project
    assert used(pool, "pvc-2") == pytest.approx(5 * MIB, rel=0.02)


def test_a_tenant_who_holds_more_than_its_limit_gets_no_clone(pool: PoolStore, where: Path) -> None:
    origin = made(pool)
    for number in range(3):
        escaped = where / "pvc-1" / str(number)
        escaped.touch()
        os.chown(escaped, TENANT, TENANT)
        with closed_after(os.open(escaped, os.O_RDONLY)) as fd:
            charge(fd, 4711)
        escaped.write_bytes(os.urandom(10 * MIB))
    with pytest.raises(NoSpace):
        pool.copy(clone_of(origin), origin)
    assert not list((where / ".localvolume/making").iterdir())
    (where / "pvc-1/0").unlink()
    (where / "pvc-1/1").unlink()
    pool.copy(clone_of(origin), origin)
