"""What must never happen to logical volumes, whatever is found, said or answered."""

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.capacity import capacity
from localvolume.backends.lvm import removal
from localvolume.backends.model import BackendFailed, GoesOn, Impossible, NoSpace, NotThisVolume
from localvolume.backends.pool.survey import survey
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commands import Finished
from tests.host.support_devices import command
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_lvm import clear, unknown_to_its_pool
from .support_lvm_store import Pool, first, pool_on, read, write

# --- what is found -------------------------------------------------------------------------------


@first("thin")
def test_an_inactive_volume_is_activated_never_taken_for_gone_or_corrupted(either: Pool) -> None:
    """OpenEBS calls it deleted, Azure's driver corrupted, and removes it."""
    offered = either.offer(volume_mode="Block")
    write(either.node("pvc-1"), b"tenant data")
    either.store.close()
    command("vgchange", "--quiet", "--activate", "n", either.group)
    assert not os.path.lexists(either.node("pvc-1"))
    after = pool_on(
        either.group,
        Path(either.store.locks),
        thin_pool=either.store.config.lvm.thin_pool if either.store.config.lvm else "",
    )
    report = after.store.look()
    assert not report.problem
    assert report.records == {"pvc-1": offered}
    assert after.store.attach_all() == {}
    assert read(after.node("pvc-1"), 11) == b"tenant data"
    # Somebody deactivates it behind our back: the next look brings it back.
    command("lvchange", "--quiet", "--activate", "n", f"{after.group}/pvc-1")
    after.store.look()
    assert read(after.node("pvc-1"), 11) == b"tenant data"
    # And whoever asks for it to be made gets the same one.
    command("lvchange", "--quiet", "--activate", "n", f"{after.group}/pvc-1")
    assert after.store.make(after.record(volume_mode="Block")) == offered
    assert read(after.node("pvc-1"), 11) == b"tenant data"
    after.end()


def test_a_thin_volume_that_its_pool_was_never_told_of_is_made_anew(thin: Pool) -> None:
    """lvcreate was killed: nobody had it, and it can never be activated."""
    made = thin.store.make(thin.record(volume_mode="Block"))
    before = thin.there("pvc-1").uuid
    pool = thin.store.config.lvm.thin_pool if thin.store.config.lvm else ""
    unknown_to_its_pool(thin.group, "pvc-1", pool)
    # Were it complete, it would be somebody's.
    with pytest.raises(BackendFailed, match="No data available"):
        thin.store.make(thin.record(volume_mode="Block"))
    volume = thin.there("pvc-1")
    state = {"localvolume.dev/state=made"}, {"localvolume.dev/state=making"}
    thin.lvm.retag(volume, *state)
    with pytest.raises(GoesOn, match="made anew"):
        thin.store.make(thin.record(volume_mode="Block"))
    assert "pvc-1" not in thin.lvm_names()
    assert thin.store.make(thin.record(volume_mode="Block")) == made
    assert thin.there("pvc-1").uuid != before
    assert read(thin.node("pvc-1"), 12 * MIB) == bytes(12 * MIB)


def test_a_suspended_volume_goes_on_and_hangs_no_look(thick: Pool) -> None:
    thick.offer()
    thick.store.attach_all()
    command("dmsetup", "suspend", f"{thick.group}-pvc--1")
    assert not thick.store.look().problem
    assert not thick.there("pvc-1").suspended
    with thick.mounted("pvc-1") as where:
        (where / "file").write_text("written")


def test_foreign_volumes_are_never_touched(thick: Pool) -> None:
    """elastic removes every volume of the group that has no PersistentVolume, pools included."""
    thick.lvm.create(thick.group, "pvc-1", 4 * MIB)
    thick.lvm.create_pool(thick.group, "pool", 16 * MIB)
    thick.lvm.create(thick.group, "pvc-2", 8 * MIB, thin_pool="pool")
    before = {one.name: (one.uuid, one.tags) for one in thick.lvm.volumes(thick.group)}
    for name in before:
        record = thick.record(name)
        with pytest.raises(NotThisVolume, match="already, and it is not this one"):
            thick.store.make(record)
        for call in (thick.store.offered, thick.store.retire):
            with pytest.raises(NotThisVolume):
                call(record)
        with pytest.raises(NotThisVolume):
            thick.store.grow(record, 64 * MIB)
        with pytest.raises(NotThisVolume):
            thick.store.copy(snapshot_record(record, "s", 0), record)
        thick.store.take_away(record)
        thick.store.forget(record)
        thick.purge(record)
    report = thick.store.look()
    assert (dict(report.records), list(report.orphans)) == ({}, [])
    assert report.available_bytes == thick.lvm.group(thick.group).free_bytes
    assert {one.name: (one.uuid, one.tags) for one in thick.lvm.volumes(thick.group)} == before


def test_tags_that_cannot_be_read_are_left_alone(thick: Pool) -> None:
    offered = thick.offer(volume_mode="Block")
    gone = thick.store.retire(offered)
    command("lvchange", "--quiet", "--addtag", "localvolume.dev/state=made", f"{thick.group}/pvc-1")
    report = thick.store.look()
    assert not report.problem
    assert "not the only one of its key" in report.unreadable["pvc-1"]
    for call in (thick.purge, thick.store.take_away, thick.store.forget, thick.store.make):
        with pytest.raises(NotThisVolume, match="left alone"):
            call(gone)
    assert thick.lvm_names() == ["pvc-1"]


def test_a_volume_of_another_claim_is_not_handed_over(thick: Pool) -> None:
    offered = thick.offer()
    with pytest.raises(NotThisVolume, match="made for another claim"):
        thick.store.make(thick.record(claim_uid="another"))
    assert thick.store.look().records == {"pvc-1": offered}


def test_removing_proves_what_it_removes(thick: Pool) -> None:
    gone = thick.store.retire(thick.offer(volume_mode="Block"))
    seen = thick.there("pvc-1")
    thick.lvm.remove(seen)
    # Another one has got its name since it was looked at, tags and all.
    thick.lvm.create(thick.group, "pvc-1", 12 * MIB, tags=seen.tags)
    with pytest.raises(NotThisVolume, match="left alone"):
        removal.remove(thick.store.tools, seen, removal.in_state("removed"))
    again = thick.there("pvc-1")
    with pytest.raises(NotThisVolume, match="left alone"):
        removal.remove(thick.store.tools, again, removal.in_state("making"))
    # Somebody has it open, for all that our tags say.
    fd = os.open(thick.node("pvc-1"), os.O_RDONLY)
    try:
        with pytest.raises(BackendFailed, match="in use"):
            thick.purge(gone)
    finally:
        os.close(fd)
    assert thick.lvm_names() == ["pvc-1"]


@first("thin")
def test_only_what_nobody_ever_had_is_taken_away(either: Pool) -> None:
    made = either.store.make(either.record())
    either.store.take_away(made)
    assert either.volume("pvc-1") is None
    untouched = either.store.offered(either.store.make(either.record()))
    either.store.take_away(untouched)
    assert either.volume("pvc-1") is None
    touched = either.store.offered(either.store.make(either.record()))
    with either.mounted("pvc-1"), pytest.raises(NotThisVolume, match="may hold data"):
        either.store.take_away(touched)
    with pytest.raises(NotThisVolume, match="may hold data"):
        either.store.take_away(touched)
    raw = either.offer("pvc-2", 4, volume_mode="Block")
    with pytest.raises(NotThisVolume, match="may hold data"):
        either.store.take_away(raw)
    with pytest.raises(NotThisVolume, match="may hold data"):
        either.store.take_away(either.store.retire(raw))
    assert set(either.lvm_names()) >= {"pvc-1", "pvc-2"}


# --- what is said --------------------------------------------------------------------------------


def test_from_an_unreadable_report_nothing_is_concluded(thick: Pool) -> None:
    """OpenEBS takes an error of LVM for "there is none"."""
    offered = thick.offer(volume_mode="Block")
    said: str | None = None

    def run(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        if said is not None and "fullreport" in argv:
            return Finished(tuple(argv), 0 if said else 5, said, "", False, 0.0)
        return run_here(argv, timeout, **more)

    thick.store.close()
    pool = pool_on(thick.group, Path(thick.store.locks), run=run)
    assert pool.store.look().records == {"pvc-1": offered}
    # While nothing changes, LVM is not asked at all.
    thick.lvm.create(thick.group, "of-another", 4 * MIB)
    group = '"vg": [{"vg_name": "vg0"}]'
    for said in ("", "garbage", f'{{"report": [{{{group}, "lv": [], "seg": []}}]}}'):
        report = pool.store.look()
        assert report.problem, said
        assert not report.records
        for call in (pool.store.make, pool.purge, pool.store.take_away, pool.store.retire):
            with pytest.raises(BackendFailed):
                call(offered)
    said = None
    assert pool.store.look().records == {"pvc-1": offered}
    pool.store.close()


def test_a_group_that_is_not_whole_is_a_problem(volume_group: str, tmp_path: Path) -> None:
    command("vgextend", "--quiet", "--yes", volume_group, "/dev/ubdc")
    try:
        pool = pool_on(volume_group, tmp_path)
        offered = pool.offer(volume_mode="Block")
        command("dd", "if=/dev/zero", "of=/dev/ubdc", "bs=1M", "count=1", "conv=fsync")
        report = pool.store.look()
        assert "1 physical volumes of vg0 are missing" in report.problem
        assert not report.records
        with pytest.raises(BackendFailed, match="missing"):
            pool.store.make(pool.record("pvc-2"))
        with pytest.raises(BackendFailed, match="missing"):
            pool.store.retire(offered)
        pool.end()
    finally:
        clear(volume_group, "/dev/ubdc")


def test_a_thin_pool_that_hands_out_old_blocks_is_a_problem(thin: Pool) -> None:
    thin.store.look()
    command("lvchange", "--quiet", "--zero", "n", f"{thin.group}/pool")
    assert "lvchange --zero y vg0/pool" in thin.store.look().problem
    with pytest.raises(BackendFailed, match="zero"):
        thin.store.make(thin.record())


def test_another_group_of_the_same_name_is_not_the_pool(thick: Pool, tmp_path: Path) -> None:
    pool_id = thick.store.open()
    thick.store.close()
    other = pool_on(thick.group, tmp_path)
    other.store.know({"some-other-id"})
    assert pool_id in other.store.look().problem
    other.store.know({pool_id})
    assert not other.store.look().problem
    other.store.close()


def test_one_agent_at_a_time_works_in_a_pool(thick: Pool, tmp_path: Path) -> None:
    thick.store.open()
    other = pool_on(thick.group, tmp_path)
    report = other.store.look()
    assert report.taken
    assert "another agent" in report.problem
    with pytest.raises(BackendFailed, match="another agent"):
        other.store.make(other.record())
    thick.store.close()
    assert not other.store.look().problem
    other.store.close()


# --- room ----------------------------------------------------------------------------------------


def test_what_is_to_be_spared_is_spared(volume_group: str, tmp_path: Path) -> None:
    """TopoLVM's lvmd makes volumes of the room that it was told to spare."""
    free = Lvm(run_here).group(volume_group).free_bytes
    pool = pool_on(volume_group, tmp_path, reserve_bytes=free - 20 * MIB)
    assert capacity(pool.store.config, pool.store.look()) == 20 * MIB
    with pytest.raises(NoSpace, match="20971520 are left"):
        pool.store.make(pool.record(mib=21))
    offered = pool.offer(mib=9)
    assert offered.size_bytes == 12 * MIB
    with pytest.raises(NoSpace):
        pool.store.grow(offered, 21 * MIB)
    assert pool.store.look().records["pvc-1"].size_bytes == 12 * MIB
    assert pool.store.grow(offered, 20 * MIB).size_bytes == 20 * MIB
    assert pool.lvm_names() == ["pvc-1"]
    pool.end()


def test_a_thin_pool_is_promised_as_often_as_it_may_be(volume_group: str, tmp_path: Path) -> None:
    Lvm(run_here).create_pool(volume_group, "pool", 64 * MIB)
    pool = pool_on(volume_group, tmp_path, thin_pool="pool", overbook=1.5)
    pool.lvm.create(volume_group, "foreign", 16 * MIB, thin_pool="pool")
    offered = pool.offer(mib=60, volume_mode="Block")
    assert capacity(pool.store.config, pool.store.look()) == 20 * MIB
    with pytest.raises(NoSpace):
        pool.store.make(pool.record("pvc-2", 24))
    # Full, as far as is safe: people are warned, and nothing is promised any more.
    for start in range(0, 53, 4):
        write(pool.node("pvc-1"), b"x" * (4 * MIB), start * MIB)
    report = pool.store.look()
    assert [text for text in report.warnings if "more than 80% full" in text]
    for start in range(56, 60, 4):
        write(pool.node("pvc-1"), b"x" * (4 * MIB), start * MIB)
    write(pool.node("foreign"), b"x" * MIB)
    report = pool.store.look()
    assert [text for text in report.warnings if "more than 95% full" in text]
    assert capacity(pool.store.config, report) == 0
    with pytest.raises(NoSpace):
        pool.store.make(pool.record("pvc-2", 4))
    # Removing is what helps, so it works.
    pool.purge(pool.store.retire(offered))
    assert not pool.store.look().warnings
    assert pool.store.make(pool.record("pvc-2", 4)).state == "made"
    pool.end()


# --- its end -------------------------------------------------------------------------------------


def on_disk(secret: bytes) -> bool:
    """Whether the secret is anywhere on the part of the group's disk that has volumes."""
    with open("/dev/ubdd", "rb") as disk:
        os.posix_fadvise(disk.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = b""
        while disk.tell() < 128 * MIB and (piece := disk.read(4 * MIB)):
            if secret in before + piece:
                return True
            before = piece[-len(secret) :]
    return False


@pytest.mark.parametrize(("kind", "overwrite"), [("thick", True), ("thick", False), ("thin", True)])
def test_what_is_to_be_overwritten_is(
    request: pytest.FixtureRequest, kind: str, overwrite: bool
) -> None:
    pool: Pool = request.getfixturevalue(kind)
    # Others' are on the disk, too.
    secret = os.urandom(32)
    offered = pool.offer(mib=8, volume_mode="Block", overwrite=overwrite)
    write(pool.node("pvc-1"), secret, 5 * MIB)
    gone = pool.store.retire(offered)
    done: list[int] = []
    stop = threading.Event()
    stop.set()
    with pytest.raises(BackendFailed, match="stopped"):
        pool.store.purge(gone, stop=stop)
    assert pool.volume("pvc-1")
    stop.clear()
    pool.store.purge(gone, stop=stop, progress=lambda _, size: done.append(size))
    assert pool.volume("pvc-1") is None
    assert done[-1] == 8 * MIB
    assert on_disk(secret) is not overwrite


def test_a_volume_is_discarded_before_it_goes(thick: Pool) -> None:
    offered = thick.offer(mib=8, volume_mode="Block", discard=True)
    assert thick.store.look().records["pvc-1"].discard
    thick.purge(thick.store.retire(offered))
    assert thick.volume("pvc-1") is None


def test_a_kept_volume_says_whose_it_was(thick: Pool) -> None:
    offered = thick.offer(claim="ns/data", volume_mode="Block")
    write(thick.node("pvc-1"), b"tenant data")
    thick.store.forget(offered)
    thick.store.forget(offered)
    assert read(thick.node("pvc-1"), 11) == b"tenant data"
    for report in (thick.store.look(), survey(thick.store.config)):
        assert not report.problem
        assert (dict(report.records), list(report.orphans)) == ({}, ["pvc-1"])
    assert "localvolume.dev/claim=ns/data" in thick.there("pvc-1").tags
    # It is nobody's: nothing of ours removes it, and nothing is made in its place.
    thick.purge(offered)
    thick.store.take_away(offered)
    with pytest.raises(NotThisVolume):
        thick.store.make(thick.record(volume_mode="Block"))
    assert thick.lvm_names() == ["pvc-1"]


def test_what_cannot_be_made_is_said_before_anything_is(thick: Pool) -> None:
    for record in (
        thick.record(mib=8, fs_type="xfs"),
        thick.record(mib=8, fs_type="btrfs"),
        thick.record("snapshot-1"),
        thick.record(option_class="none"),
        replace(thick.record(), directory="x"),
        replace(thick.record(), size_bytes=0),
        thick.record(claim="x" * 2000),
    ):
        with pytest.raises(Impossible):
            thick.store.make(record)
    with pytest.raises(Impossible, match="adopts nothing"):
        thick.store.adopt("pvc-1", "dir")
    assert thick.lvm_names() == []
