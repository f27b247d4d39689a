"""Snapshots of thick logical volumes that stay, with a reserve: shared, filling, lost, kept."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from localvolume.backends.capacity import capacity
from localvolume.backends.lvm.survey import survey
from localvolume.backends.model import (
    BackendFailed,
    Busy,
    Fill,
    Impossible,
    NoSpace,
    NotThisVolume,
    Record,
    kept_for,
)
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from tests.host.support_devices import command
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_lvm import EXTENT, classic_snapshot
from .support_lvm_store import Pool, copied_whole, read, write
from .test_lvm_store_crashes import Lives, done
from .test_lvm_store_snapshots import Writer, uuid_of


def asked(origin: Record, name: str = "s", reserve: int = 8 * MIB) -> Record:
    return snapshot_record(origin, name, reserve, reserve_bytes=reserve)


def cut(pool: Pool, origin: Record, name: str = "s", reserve: int = 8 * MIB) -> Record:
    return pool.store.offered(pool.store.copy(asked(origin, name, reserve), origin))


def restored(pool: Pool, snapshot: Record, name: str = "c", mib: float = 0) -> Record:
    size = mib or snapshot.size_bytes / MIB
    wanted = pool.record(name, size, volume_mode=snapshot.volume_mode, full_copies=True)
    whole = copied_whole(pool.store, with_content_of(snapshot, wanted), snapshot)
    return pool.store.offered(whole)


def free(pool: Pool) -> int:
    return pool.lvm.group(pool.group).free_bytes


def fill_up(pool: Pool, name: str, mib: int) -> None:
    """Write over so much, which is more than the reserve of its snapshot takes in."""
    write(pool.node(name), os.urandom(mib * MIB))


def fill_of(pool: Pool, name: str = "s") -> Fill | None:
    return pool.store.look().fills.get(name)


def test_it_has_one_moment_and_takes_its_reserve_alone(thick: Pool) -> None:
    offered, had = thick.offer(mib=40), free(thick)
    room = capacity(thick.store.config, thick.store.look())
    with thick.mounted("pvc-1") as where:
        with (where / "file").open("w") as file:
            file.write("before")
            file.flush()
            with Writer(where / "numbers") as writer:
                assert writer.began.wait(60)
                # The journal is written over and over.
                taken = cut(thick, offered, reserve=32 * MIB)
                last = int((where / "numbers").read_text().splitlines()[-1])
            file.write(" and after")
        assert taken.state == "offered"
        assert (taken.size_bytes, taken.holds_bytes) == (40 * MIB, 32 * MIB)
        assert taken.cut_at > 0
        # What is asked for again is the same one.
        assert thick.store.copy(asked(offered, reserve=32 * MIB), offered) == taken
        assert had - free(thick) == 32 * MIB
        assert room - capacity(thick.store.config, thick.store.look()) == 32 * MIB
        assert not thick.there("s").writable
        restored(thick, taken)
        with thick.mounted("c") as again:
            assert (again / "file").read_text() == "before"
            numbers = (again / "numbers").read_text().splitlines()
            assert numbers[:20] == [str(number) for number in range(20)]
            assert int(numbers[-1]) <= last
        assert (where / "file").read_text() == "before and after"
    assert uuid_of(thick.node("c")) != uuid_of(thick.node("pvc-1"))
    report = thick.store.look()
    assert set(report.records) == {"pvc-1", "s", "c"}
    assert report.records["s"] == taken
    assert (dict(report.unreadable), list(report.orphans), list(report.warnings)) == ({}, [], [])
    # From outside the agent it looks the same.
    assert survey(thick.store.config, run_here).records == report.records


def test_a_full_reserve_loses_the_snapshot_and_never_its_volume(thick: Pool) -> None:
    offered = thick.offer(mib=40, volume_mode="Block")
    content = os.urandom(40 * MIB)
    write(thick.node("pvc-1"), content)
    taken = cut(thick, offered)
    fill = fill_of(thick)
    assert fill is not None
    assert (fill.percent < 10, fill.lost) == (True, False)
    write(thick.node("pvc-1"), content[: 7 * MIB])
    report = thick.store.look()
    assert 80 <= report.fills["s"].percent < 100
    (said,) = report.warnings
    assert said.startswith("the reserve of snapshot s is more than 80% full: once that is full")
    # It is read as it was until then.
    assert read(thick.node("s"), 40 * MIB) == content
    after = os.urandom(40 * MIB)
    write(thick.node("pvc-1"), after)
    assert read(thick.node("pvc-1"), 40 * MIB) == after
    report = thick.store.look()
    assert report.fills["s"].lost
    (said,) = report.warnings
    assert said.startswith("the content of snapshot s is lost: more of pvc-1 was written over than")
    with pytest.raises(OSError, match="Input/output"):
        read(thick.node("s"), MIB)
    # Nothing is made of it, and what was begun takes no room.
    had = free(thick)
    with pytest.raises(Impossible, match="the content of snapshot s is lost"):
        restored(thick, taken)
    assert free(thick) == had
    # So it is after a start of the node, and the volume goes on.
    command("vgchange", "--quiet", "--activate", "n", thick.group)
    assert thick.store.attach_all() == {}
    assert read(thick.node("pvc-1"), 40 * MIB) == after
    lost = fill_of(thick)
    assert lost is not None
    assert lost.lost
    thick.purge(thick.store.retire(taken))
    assert thick.lvm_names() == ["pvc-1"]
    assert read(thick.node("pvc-1"), 40 * MIB) == after
    # What it is for: another one can be cut.
    assert cut(thick, offered).state == "offered"


def test_it_is_lost_while_it_is_restored(thick: Pool) -> None:
    offered = thick.offer(mib=40, volume_mode="Block")
    taken = cut(thick, offered)
    raw = thick.record("c", 40, volume_mode="Block", full_copies=True)
    wanted = with_content_of(taken, raw)
    had = free(thick)
    with thick.in_pieces() as store:
        with pytest.raises(BackendFailed, match="is copied up to"):
            store.copy(wanted, taken)
        fill_up(thick, "pvc-1", 20)
        with pytest.raises(Impossible, match="the content of snapshot s is lost"):
            copied_whole(store, wanted, taken)
    assert thick.lvm_names() == ["pvc-1", "s"]
    assert free(thick) == had


def test_the_data_of_a_removed_volume_stays_for_its_snapshots(thick: Pool) -> None:
    offered, had = thick.offer(mib=16, volume_mode="Block"), free(thick)
    content = os.urandom(16 * MIB)
    write(thick.node("pvc-1"), content)
    taken, other = cut(thick, offered), cut(thick, offered, "t")
    write(thick.node("pvc-1"), os.urandom(4 * MIB))
    with open(thick.node("pvc-1"), "rb"), pytest.raises(Busy):
        thick.store.retire(offered)
    gone = thick.store.retire(offered)
    assert gone.state == "removed"
    assert thick.store.attach_all() == {}
    for again in range(2):
        report = thick.store.look()
        assert kept_for("pvc-1", report.records.values()) == ["s", "t"]
        assert set(report.fills) == {"s", "t"}, again
        with pytest.raises(BackendFailed, match=r"has snapshots \(s, t\): it goes once they are"):
            thick.purge(gone)
        assert restored(thick, taken, f"c{again}").size_bytes == 16 * MIB
        assert read(thick.node(f"c{again}"), 16 * MIB) == content
        thick.purge(thick.store.retire(thick.store.look().records[f"c{again}"]))
        # As after a start of the node.
        command("vgchange", "--quiet", "--activate", "n", thick.group)
        assert thick.store.attach_all() == {}
    thick.purge(thick.store.retire(taken))
    with pytest.raises(BackendFailed, match=r"has snapshots \(t\)"):
        thick.purge(gone)
    assert read(thick.node("t"), 16 * MIB) == content
    thick.purge(thick.store.retire(other))
    thick.purge(gone)
    assert thick.lvm_names() == []
    assert free(thick) == had + 16 * MIB


def test_its_volume_does_not_grow_and_goes_on_when_it_is_removed(thick: Pool) -> None:
    offered = thick.offer(mib=16)
    with thick.mounted("pvc-1") as where:
        (where / "file").write_text("content")
        taken = cut(thick, offered)
        with pytest.raises(BackendFailed, match=r"grows once its snapshots \(s\) are removed"):
            thick.store.grow(offered, 24 * MIB)
        thick.purge(thick.store.retire(taken))
        assert thick.there("pvc-1").active
        assert thick.store.grow(offered, 24 * MIB).size_bytes == 24 * MIB
        assert (where / "file").read_text() == "content"


def test_snapshots_of_others_still_hold_their_volume(thick: Pool) -> None:
    offered = thick.offer(mib=16)
    taken = cut(thick, offered)
    classic_snapshot(thick.group, "pvc-1", "foreign", EXTENT)
    with pytest.raises(BackendFailed, match=r"has snapshots \(foreign\)"):
        thick.store.retire(offered)
    assert not thick.lvm.volume(thick.group, "foreign").tags  # type: ignore[union-attr]
    thick.purge(thick.store.retire(taken))
    assert thick.lvm_names() == ["foreign", "pvc-1"]


def test_only_what_can_be_kept_is_cut(thick: Pool) -> None:
    offered = thick.offer(mib=16)
    wanted = asked(offered)
    for demanding in (replace(wanted, overwrite=True), replace(wanted, discard=True)):
        with pytest.raises(Impossible, match="not done with the reserve of a snapshot"):
            thick.store.copy(demanding, offered)
    thick.lvm.create(thick.group, "s", EXTENT)
    with pytest.raises(NotThisVolume, match="there is a volume s already"):
        thick.store.copy(asked(offered), offered)
    thick.lvm.remove(thick.there("s"))
    left = free(thick)
    with pytest.raises(NoSpace, match="bytes are needed"):
        thick.store.copy(asked(offered, reserve=left + EXTENT), offered)
    assert thick.volume("s") is None


def test_what_is_no_snapshot_any_more_is_left_alone(thick: Pool) -> None:
    offered = thick.offer(mib=16)
    taken = cut(thick, offered)
    command("lvconvert", "--yes", "--splitsnapshot", f"{thick.group}/s")
    report = thick.store.look()
    assert "only a snapshot of LVM's has a reserve" in report.unreadable["s"]
    with pytest.raises(NotThisVolume):
        thick.store.retire(taken)
    with pytest.raises(NotThisVolume):
        restored(thick, taken)
    assert thick.lvm_names() == ["pvc-1", "s"]


def test_it_survives_death_at_each_step(thick: Pool) -> None:
    lives, had = Lives(thick), free(thick)
    origin = thick.offer(mib=12)
    with thick.mounted("pvc-1") as where:
        (where / "file").write_text("tenant data")

    def readable() -> None:
        with thick.mounted("pvc-1") as where:
            assert (where / "file").read_text() == "tenant data"

    lives.check = readable
    wanted = asked(origin)
    taken = done(lives.until_done(lambda pool: pool.store.copy(wanted, origin)))
    assert (taken.state, taken.snapshot_of, taken.cut_at > 0) == ("offered", "pvc-1", True)
    assert thick.lvm_names() == ["pvc-1", "s"]
    copy = with_content_of(taken, thick.record("c", 24, full_copies=True))
    copied = done(lives.until_done(lambda pool: copied_whole(pool.store, copy, taken)))
    assert (copied.state, copied.size_bytes) == ("made", 24 * MIB)
    lives.check = lambda: None
    gone = done(lives.until_done(lambda pool: pool.store.retire(origin)))
    again = with_content_of(taken, thick.record("d", 12, full_copies=True))
    copied_whole(thick.store, again, taken)
    for name in ("c", "d"):
        with thick.mounted(name) as where:
            assert (where / "file").read_text() == "tenant data"
    dropped = done(lives.until_done(lambda pool: pool.store.retire(taken)))
    lives.until_done(lambda pool: pool.purge(dropped))
    lives.until_done(lambda pool: pool.purge(gone))
    for name in ("c", "d"):
        thick.store.take_away(thick.store.look().records[name])
    assert thick.lvm_names() == []
    assert free(thick) == had
    assert lives.deaths >= 12
