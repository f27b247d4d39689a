"""An agent that dies between any two of the steps that make, grow and remove logical volumes."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.model import BackendFailed, Record
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commands import Finished
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_lvm_store import Pool, copied_whole, pool_on, read, write

_LOOKS = frozenset({"fullreport", "lvs", "vgs", "pvs", "dmsetup"})


class Dying:
    """Runs commands; dead after so many that change something."""

    def __init__(self, left: int) -> None:
        self._left = left
        self.died = False

    def __call__(self, argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        if not self.died:
            finished = run_here(argv, timeout, **more)
            if _LOOKS.intersection(argv):
                return finished
            self._left -= 1
            self.died = self._left < 0
            if not self.died:
                return finished
        raise OSError(errno.ECANCELED, "the agent is ending")


class Lives:
    """One pool and the agents that come and go in it; `check` is asked after each death."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.deaths = 0
        self.check: Callable[[], None] = lambda: None

    @contextmanager
    def agent(self, run: Dying) -> Iterator[Pool]:
        config = self._pool.store.config
        assert config.lvm is not None
        pool = pool_on(
            self._pool.group,
            Path(self._pool.store.locks),
            thin_pool=config.lvm.thin_pool,
            run=run,
            overbook=config.overbook,
        )
        try:
            yield pool
        finally:
            pool.store.close()

    def until_done(self, act: Callable[[Pool], Record | None]) -> Record | None:
        """What `act` returns once an agent lives long enough; the next lives longer each time."""
        for left in count():
            run = Dying(left)
            with self.agent(run) as pool:
                try:
                    return act(pool)
                except BackendFailed:
                    assert run.died, "it failed though nobody died"
            self.deaths += 1
            report = self._pool.store.look()
            assert not report.problem
            assert not report.unreadable
            assert not report.orphans
            self._pool.store.close()
            self.check()
        raise AssertionError


def done(record: Record | None) -> Record:
    assert record is not None
    return record


def test_a_filesystem_survives_death_at_each_step(thin: Pool) -> None:
    lives = Lives(thin)
    wanted = thin.record(mib=10, mode=0o700)
    made = done(lives.until_done(lambda pool: pool.store.make(wanted)))
    # TopoLVM's recovery of a half made volume forgot its size, and crashed on that.
    assert (made.state, made.size_bytes) == ("made", 12 * MIB)
    offered = done(lives.until_done(lambda pool: pool.store.offered(made, "uid")))
    with thin.mounted("pvc-1") as where:
        (where / "file").write_text("tenant data")

    def readable() -> None:
        with thin.mounted("pvc-1") as where:
            assert (where / "file").read_text() == "tenant data"

    lives.check = readable
    grown = done(lives.until_done(lambda pool: pool.store.grow(offered, 20 * MIB)))
    assert grown.size_bytes == 20 * MIB
    with thin.mounted("pvc-1") as where:
        assert os.statvfs(where).f_blocks * 4096 > 14 * MIB
    lives.check = lambda: None
    gone = done(lives.until_done(lambda pool: pool.store.retire(grown)))
    assert gone.state == "removed"
    lives.until_done(lambda pool: pool.purge(gone))
    assert thin.volume("pvc-1") is None
    assert lives.deaths >= 7


@pytest.mark.parametrize("fs", ["ext4", pytest.param("xfs", marks=pytest.mark.soak)])
def test_copies_survive_death_at_each_step(
    volume_group: str, lvm: Lvm, tmp_path: Path, fs: str
) -> None:
    # An xfs is large, and takes little.
    lvm.create_pool(volume_group, "pool", 440 * MIB)
    thin = pool_on(volume_group, tmp_path, thin_pool="pool", overbook=5)
    lives = Lives(thin)
    mib, larger = (300, 340) if fs == "xfs" else (12, 24)
    origin = thin.offer(mib=mib, fs_type=fs)
    with thin.mounted("pvc-1") as where:
        (where / "file").write_text("tenant data")

    def readable() -> None:
        with thin.mounted("pvc-1") as where:
            assert (where / "file").read_text() == "tenant data"

    lives.check = readable
    asked = snapshot_record(origin, "s", origin.size_bytes)
    cut = done(lives.until_done(lambda pool: pool.store.copy(asked, origin)))
    assert (cut.state, cut.snapshot_of) == ("offered", "pvc-1")
    assert not thin.there("s").active
    wanted = with_content_of(cut, thin.record("c", larger))
    copied = done(lives.until_done(lambda pool: pool.store.copy(wanted, cut)))
    assert (copied.state, copied.size_bytes) == ("made", larger * MIB)
    with thin.mounted("pvc-1"), thin.mounted("c") as where:
        assert (where / "file").read_text() == "tenant data"
        assert os.statvfs(where).f_blocks * 4096 > 0.7 * larger * MIB
    assert thin.lvm_names() == ["c", "pool", "pvc-1", "s"]
    gone = done(lives.until_done(lambda pool: pool.store.retire(cut)))
    lives.until_done(lambda pool: pool.purge(gone))
    lives.until_done(lambda pool: pool.store.take_away(copied))
    assert thin.lvm_names() == ["pool", "pvc-1"]
    assert lives.deaths >= 15
    thin.end()


def test_full_copies_survive_death_at_each_step(thick: Pool) -> None:
    lives = Lives(thick)
    origin = thick.offer(mib=12)
    with thick.mounted("pvc-1") as where:
        (where / "file").write_text("tenant data")

    def readable() -> None:
        with thick.mounted("pvc-1") as where:
            assert (where / "file").read_text() == "tenant data"

    lives.check = readable
    asked = snapshot_record(origin, "s", origin.size_bytes, full_copies=True)
    cut = done(lives.until_done(lambda pool: copied_whole(pool.store, asked, origin)))
    assert (cut.state, cut.snapshot_of, cut.cut_at > 0) == ("offered", "pvc-1", True)
    assert not thick.there("s").active
    wanted = with_content_of(cut, thick.record("c", 24, full_copies=True))
    copied = done(lives.until_done(lambda pool: copied_whole(pool.store, wanted, cut)))
    assert (copied.state, copied.size_bytes) == ("made", 24 * MIB)
    assert not thick.there("s").active
    # The same beside writers: a clone of the volume itself.
    cloned = with_content_of(origin, thick.record("d", 12, full_copies=True))
    done(lives.until_done(lambda pool: copied_whole(pool.store, cloned, origin)))
    for name in ("c", "d"):
        with thick.mounted("pvc-1"), thick.mounted(name) as where:
            assert (where / "file").read_text() == "tenant data"
    assert thick.lvm_names() == ["c", "d", "pvc-1", "s"]
    gone = done(lives.until_done(lambda pool: pool.store.retire(cut)))
    lives.until_done(lambda pool: pool.purge(gone))
    lives.until_done(lambda pool: pool.store.take_away(copied))
    assert thick.lvm_names() == ["d", "pvc-1"]
    assert lives.deaths >= 20


def test_a_raw_volume_survives_death_at_each_step(thick: Pool) -> None:
    lives = Lives(thick)
    wanted = thick.record(mib=8, volume_mode="Block")
    made = done(lives.until_done(lambda pool: pool.store.make(wanted)))
    write(thick.node("pvc-1"), b"tenant data")

    def readable() -> None:
        assert read(thick.node("pvc-1"), 11) == b"tenant data"

    lives.check = readable
    grown = done(lives.until_done(lambda pool: pool.store.grow(made, 16 * MIB)))
    assert grown.size_bytes == 16 * MIB
    assert read(thick.node("pvc-1"), 16 * MIB) == b"tenant data".ljust(16 * MIB, b"\0")
    assert thick.lvm_names() == ["pvc-1"]
    lives.check = lambda: None
    lives.until_done(lambda pool: pool.store.take_away(grown))
    assert thick.lvm_names() == []
    assert lives.deaths >= 5
