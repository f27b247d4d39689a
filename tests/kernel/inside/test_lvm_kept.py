"""A look at a pool is kept while nothing has changed, and whatever anybody changes is seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from localvolume.backends.lvm.kept import Kept
from localvolume.backends.model import NotThisVolume, PoolReport
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from tests.host.support_devices import command
from tests.suite.units import MIB
from tests.suite.until import until

from .support_lvm_counts import Counted, counted
from .support_lvm_store import Pool, read, write

__all__ = ["counted"]


def seen(pool: Pool) -> PoolReport:
    report = pool.store.look()
    assert not report.problem
    return report


def keep(pool: Pool, counted: Counted) -> PoolReport:
    """The report once it is kept: what was written a moment ago may still be on its way."""
    until(lambda: counted.of(lambda: seen(pool)), lambda took: not took)
    return seen(pool)


def test_what_has_not_changed_is_not_asked_for(either: Pool, counted: Counted) -> None:
    either.offer()
    before = keep(either, counted)
    # Reading changes nothing.
    read(either.node("pvc-1"), MIB)
    assert not counted.of(lambda: seen(either))
    assert seen(either) == before


def made_by_another(pool: Pool) -> None:
    pool.lvm.create(pool.group, "foreign", 8 * MIB, thin_pool=pool.store.tools.of.thin_pool)


def renamed(pool: Pool) -> None:
    command("lvrename", "--quiet", pool.group, "pvc-1", "pvc-2")


def tagged(pool: Pool) -> None:
    command("lvchange", "--quiet", "--addtag", "localvolume.dev/state=lost", f"{pool.group}/pvc-1")


def removed(pool: Pool) -> None:
    pool.lvm.remove(pool.there("pvc-1"))


def given_away(pool: Pool) -> None:
    """No tag of ours is left."""
    ours = [word for tag in pool.there("pvc-1").tags for word in ("--deltag", tag)]
    command("lvchange", "--quiet", *ours, f"{pool.group}/pvc-1")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (made_by_another, lambda report: (report.available_bytes, report.foreign_bytes)),
        (renamed, lambda report: (sorted(report.records), sorted(report.unreadable))),
        (tagged, lambda report: sorted(report.unreadable)),
        (removed, lambda report: sorted(report.records)),
    ],
)
def test_what_others_change_is_seen(
    either: Pool, counted: Counted, change: Callable[[Pool], None], what: Callable[[Any], object]
) -> None:
    either.offer()
    before = keep(either, counted)
    change(either)
    assert what(seen(either)) != what(before)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (renamed, "is not there"),
        (tagged, "is left alone"),
        (removed, "is not there"),
        (given_away, "is not there"),
    ],
)
def test_who_mounts_a_volume_sees_what_others_change_while_somebody_writes(
    either: Pool, counted: Counted, change: Callable[[Pool], None], why: str
) -> None:
    offered, busy = either.offer(), either.offer("busy", volume_mode="Block")
    keep(either, counted)

    def use() -> str:
        write(either.node(busy.name), os.urandom(4096))
        return either.store.use(offered, lambda source: source.device)

    assert not counted.of(use)
    assert use() == either.node("pvc-1")
    # That writes nothing to a disk.
    command("lvchange", "--quiet", "--activate", "n", f"{either.group}/pvc-1")
    assert use() == either.node("pvc-1")
    until(lambda: counted.of(use), lambda took: not took)
    change(either)
    with pytest.raises(NotThisVolume, match=why):
        use()


def test_what_is_written_into_a_thin_pool_is_seen(thin: Pool, counted: Counted) -> None:
    thin.offer(mib=40, volume_mode="Block")
    before = keep(thin, counted)
    write(thin.node("pvc-1"), os.urandom(16 * MIB))
    assert (seen(thin).data_percent or 0) > (before.data_percent or 0) + 20


def test_a_volume_that_is_deactivated_is_seen_and_activated(either: Pool, counted: Counted) -> None:
    """That writes nothing to a disk."""
    either.offer()
    assert either.store.attach_all() == {}
    keep(either, counted)
    command("lvchange", "--quiet", "--activate", "n", f"{either.group}/pvc-1")
    assert not os.path.exists(either.node("pvc-1"))
    seen(either)
    assert os.path.exists(either.node("pvc-1"))


def test_what_is_kept_is_dropped_after_a_change_of_ours(either: Pool) -> None:
    either.offer()
    kept = Kept(either.group)
    until(lambda: (kept.look(either.store.tools.read), kept.view())[1])
    kept.changed()
    assert kept.view() is None


def test_what_is_kept_is_dropped_in_time(either: Pool) -> None:
    """The kernel does not tell all that LVM does."""
    either.offer()
    kept = Kept(either.group, seconds=0.0)
    for _ in range(3):
        kept.look(either.store.tools.read)
        assert kept.view() is None


def test_how_full_a_reserve_is_is_asked_for_where_somebody_writes(
    thick: Pool, counted: Counted
) -> None:
    origin = thick.offer(mib=24, volume_mode="Block")
    asked = snapshot_record(origin, "s", 12 * MIB, reserve_bytes=12 * MIB)
    thick.store.offered(thick.store.copy(asked, origin))
    before = keep(thick, counted).fills["s"].percent
    assert not counted.of(lambda: seen(thick))
    write(thick.node("pvc-1"), os.urandom(6 * MIB))
    assert seen(thick).fills["s"].percent > before + 40
