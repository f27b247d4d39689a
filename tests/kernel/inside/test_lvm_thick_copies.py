"""Snapshots and copies of thick logical volumes, of which all is copied, as of one moment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from localvolume.backends.model import (
    BackendFailed,
    Busy,
    GoesOn,
    Impossible,
    NoSpace,
    NotThisVolume,
    Record,
)
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commands import Finished
from localvolume.volumes.lvtags import decode
from tests.host.support_devices import command
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_lvm import EXTENT
from .support_lvm_store import Pool, copied_whole, read, write
from .test_lvm_store_crashes import Dying
from .test_lvm_store_snapshots import Writer, uuid_of

SECRET = b"what another tenant has written"


def snapshot_of(origin: Record, name: str = "s") -> Record:
    return snapshot_record(origin, name, origin.size_bytes, full_copies=True)


def clone_of(pool: Pool, origin: Record, name: str = "c", mib: float = 0) -> Record:
    size = mib or origin.size_bytes / MIB
    wanted = pool.record(name, size, volume_mode=origin.volume_mode, full_copies=True)
    return with_content_of(origin, wanted)


def copied(pool: Pool, record: Record, origin: Record) -> Record:
    return pool.store.offered(copied_whole(pool.store, record, origin))


def begin(pool: Pool, record: Record, origin: Record) -> None:
    """By an agent that dies with a piece more than it has recorded: the copy and its cut, or their
    devices, and the record of a piece are its changes."""
    died = pytest.raises(BackendFailed, match="the agent is ending")
    with pool.in_pieces(run=Dying(3)) as store, died:
        copied_whole(store, record, origin)


@pytest.fixture
def used(volume_group: str, lvm: Lvm) -> None:
    """The group's disk was another tenant's."""
    lvm.create(volume_group, "old", 400 * MIB)
    whole = SECRET * (MIB // len(SECRET))
    with open(f"/dev/{volume_group}/old", "wb") as disk:
        disk.writelines([whole] * 400)
    found = lvm.volume(volume_group, "old")
    assert found
    lvm.remove(found)


def test_a_snapshot_of_a_volume_in_use_is_of_one_moment(thick: Pool) -> None:
    offered = thick.offer(mib=40)
    with thick.mounted("pvc-1") as where:
        # Neither synced nor closed.
        with (where / "file").open("w") as file:
            file.write("before")
            file.flush()
            with Writer(where / "numbers") as writer:
                assert writer.began.wait(60)
                begin(thick, snapshot_of(offered), offered)
                last = int((where / "numbers").read_text().splitlines()[-1])
                file.write(" and after")
                file.flush()
                taken = copied(thick, snapshot_of(offered), offered)
        assert taken.snapshot_of == "pvc-1"
        assert (taken.holds_bytes, taken.state) == (40 * MIB, "offered")
        assert taken.cut_at > 0
        # What is asked for again is the same one.
        assert thick.store.copy(snapshot_of(offered), offered) == taken
        # Its cut is gone, and nobody has a device of it, also after the node has started anew.
        assert thick.lvm_names() == ["pvc-1", "s"]
        assert not thick.there("pvc-1").has_snapshots
        command("vgchange", "--activate", "y", thick.group)
        assert not thick.there("s").active
        copied(thick, clone_of(thick, taken), taken)
        assert not thick.there("s").active
        with thick.mounted("c") as again:
            assert (again / "file").read_text() == "before"
            numbers = (again / "numbers").read_text().splitlines()
            assert numbers[:20] == [str(number) for number in range(20)]
            # The first agent cut it.
            assert int(numbers[-1]) <= last
            (again / "file").write_text("otherwise")
        assert (where / "file").read_text() == "before and after"
    command("e2fsck", "-f", "-n", thick.node("c"))
    assert uuid_of(thick.node("c")) != uuid_of(thick.node("pvc-1"))
    report = thick.store.look()
    assert set(report.records) == {"pvc-1", "s", "c"}
    assert (dict(report.unreadable), list(report.orphans), list(report.warnings)) == ({}, [], [])


@pytest.mark.usefixtures("used")
def test_a_filesystem_is_never_had_as_blocks(thick: Pool) -> None:
    """It has written over a little of what another tenant had there."""
    offered = thick.offer(mib=40)
    assert SECRET in read(thick.node("pvc-1"), 40 * MIB)
    taken = copied(thick, snapshot_of(offered), offered)
    wanted = replace(clone_of(thick, taken), volume_mode="Block")
    with pytest.raises(Impossible, match="may be what other tenants had"):
        thick.store.copy(wanted, taken)
    assert thick.lvm_names() == ["pvc-1", "s"]


def test_a_volume_is_used_between_two_parts_of_its_copy(thick: Pool) -> None:
    """As by pods that start; only what would take its content away is refused."""
    offered = thick.offer(mib=24, volume_mode="Block")
    content, asked = os.urandom(24 * MIB), snapshot_of(offered)
    write(thick.node("pvc-1"), content)
    with thick.in_pieces() as store:
        for part in range(1, 6):
            done = f"pvc-1 is copied up to {part * EXTENT} of {24 * MIB} bytes, to s"
            with pytest.raises(GoesOn, match=done):
                store.copy(asked, offered)
            assert store.use(offered, lambda source: source.record) == offered
            write(thick.node("pvc-1"), os.urandom(MIB), part * EXTENT)
            with pytest.raises(BackendFailed, match=r"snapshots \(s\.cut\)"):
                store.retire(offered)
            assert store.look().records["s"].state == "making"
        taken = store.offered(store.copy(asked, offered))
    copied(thick, clone_of(thick, taken), taken)
    assert read(thick.node("c"), 24 * MIB) == content
    assert thick.lvm_names() == ["c", "pvc-1", "s"]


def test_a_larger_raw_copy_shows_nothing_of_others(used: None, thick: Pool) -> None:
    offered = thick.offer(mib=16, volume_mode="Block")
    content = os.urandom(16 * MIB)
    write(thick.node("pvc-1"), content)
    made = copied(thick, clone_of(thick, offered, mib=28), offered)
    assert made.size_bytes == 28 * MIB
    assert read(thick.node("c"), 16 * MIB) == content
    assert read(thick.node("c"), 12 * MIB, 16 * MIB) == bytes(12 * MIB)


def test_a_larger_filesystem_is_grown(thick: Pool) -> None:
    offered = thick.offer(mib=16, mode=0o2751)
    with thick.mounted("pvc-1") as where:
        (where / "file").write_text("content")
        os.chown(where, 7, 8)
    made = copied(thick, clone_of(thick, offered, mib=48), offered)
    assert made.size_bytes == 48 * MIB
    with thick.mounted("pvc-1"), thick.mounted("c") as where:
        assert (where / "file").read_text() == "content"
        assert (where.stat().st_uid, where.stat().st_gid) == (7, 8)
        found = os.statvfs(where)
        assert found.f_blocks * found.f_frsize > 0.75 * 48 * MIB


def test_only_what_its_class_allows_is_copied(thick: Pool) -> None:
    offered = thick.offer()
    for wanted in (snapshot_of(offered), clone_of(thick, offered)):
        with pytest.raises(Impossible, match="share no blocks: use a thin pool"):
            thick.store.copy(replace(wanted, full_copies=False), offered)
        for demanding in (replace(wanted, overwrite=True), replace(wanted, discard=True)):
            with pytest.raises(Impossible, match="overwritten or discarded at its end"):
                thick.store.copy(demanding, offered)
    assert thick.lvm_names() == ["pvc-1"]


def test_if_too_much_is_written_meanwhile_the_copy_is_dropped(thick: Pool) -> None:
    offered = thick.offer(mib=100, volume_mode="Block")
    begin(thick, snapshot_of(offered), offered)
    # More than the 64 MiB that are set aside.
    content = os.urandom(80 * MIB)
    write(thick.node("pvc-1"), content)
    # Found when it is gone on with, and then begun anew.
    with pytest.raises(Busy, match="64 MiB that were set aside for that: the copy was dropped"):
        thick.store.copy(snapshot_of(offered), offered)
    assert thick.lvm_names() == ["pvc-1"]
    taken = copied(thick, snapshot_of(offered), offered)
    copied(thick, clone_of(thick, taken), taken)
    assert read(thick.node("c"), 80 * MIB) == content


def test_if_too_much_is_written_between_two_pieces_the_copy_is_dropped(thick: Pool) -> None:
    offered = thick.offer(mib=100, volume_mode="Block")
    content = os.urandom(80 * MIB)
    left = 3

    def run(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        nonlocal left
        if "lvchange" in argv:
            left -= 1
            if not left:
                write(thick.node("pvc-1"), content)
        return run_here(argv, timeout, **more)

    with thick.in_pieces(run=run) as store:
        with pytest.raises(Busy, match="64 MiB that were set aside for that: the copy was dropped"):
            copied_whole(store, snapshot_of(offered), offered)
        assert store.look().records.keys() == {"pvc-1"}
    assert thick.lvm_names() == ["pvc-1"]
    assert read(thick.node("pvc-1"), 80 * MIB) == content


def test_a_copy_goes_on_where_an_agent_has_left_it(thick: Pool) -> None:
    offered = thick.offer(mib=24, volume_mode="Block")
    content = os.urandom(24 * MIB)
    write(thick.node("pvc-1"), content)
    before = 0
    for _ in range(3):
        begin(thick, clone_of(thick, offered), offered)
        done = int(decode(thick.there("c").tags)["copied"])
        assert before < done < 24 * MIB
        before = done
        write(thick.node("pvc-1"), os.urandom(24 * MIB))
        # As after a restart of the node.
        command("vgchange", "--quiet", "--activate", "n", thick.group)
        assert thick.store.attach_all() == {}
    copied(thick, clone_of(thick, offered), offered)
    assert read(thick.node("c"), 24 * MIB) == content


@pytest.mark.parametrize("lost", ["c", "c.cut"])
def test_without_its_other_half_a_copy_is_begun_anew(thick: Pool, lost: str) -> None:
    offered = thick.offer(mib=24, volume_mode="Block")
    begin(thick, clone_of(thick, offered), offered)
    content = os.urandom(24 * MIB)
    write(thick.node("pvc-1"), content)
    thick.lvm.remove(thick.there(lost))
    # A cut whose copy somebody has removed is told of.
    assert list(thick.store.look().orphans) == (["c.cut"] if lost == "c" else [])
    copied(thick, clone_of(thick, offered), offered)
    assert read(thick.node("c"), 24 * MIB) == content
    assert thick.lvm_names() == ["c", "pvc-1"]


def test_what_was_begun_is_taken_away_with_its_cut(thick: Pool) -> None:
    offered = thick.offer(mib=24, volume_mode="Block")
    free = thick.lvm.group(thick.group).free_bytes
    begin(thick, clone_of(thick, offered), offered)
    # Its origin goes once it is not copied any more, and does not grow until then.
    for act in (thick.store.retire, lambda record: thick.store.grow(record, 32 * MIB)):
        with pytest.raises(BackendFailed, match=r"snapshots \(c\.cut\)"):
            act(offered)
    thick.store.take_away(thick.store.look().records["c"])
    assert thick.lvm_names() == ["pvc-1"]
    assert thick.lvm.group(thick.group).free_bytes == free


def test_the_whole_room_is_there_before(thick: Pool) -> None:
    """That of the copy, and what is set aside for its cut."""
    offered = thick.offer(mib=200, volume_mode="Block")
    free = thick.lvm.group(thick.group).free_bytes
    thick.lvm.create(thick.group, "foreign", free - 260 * MIB)
    with pytest.raises(NoSpace, match=f"{264 * MIB} bytes are needed, and {260 * MIB} are left"):
        thick.store.copy(snapshot_of(offered), offered)
    assert thick.lvm_names() == ["foreign", "pvc-1"]
    thick.lvm.remove(thick.there("foreign"))
    copied(thick, snapshot_of(offered), offered)
    assert thick.lvm.group(thick.group).free_bytes == free - 200 * MIB


def test_names_of_others_are_left_alone(thick: Pool) -> None:
    offered = thick.offer(volume_mode="Block")
    for name in ("c", "c.cut"):
        thick.lvm.create(thick.group, name, EXTENT)
        with pytest.raises(NotThisVolume, match=f"there is a volume {name} already"):
            thick.store.copy(clone_of(thick, offered), offered)
        assert thick.lvm_names() == [name, "pvc-1"]
        thick.lvm.remove(thick.there(name))


def test_a_snapshot_that_was_left_with_a_device_has_none_after_a_start(thick: Pool) -> None:
    offered = thick.offer(mib=16, volume_mode="Block")
    taken = copied(thick, snapshot_of(offered), offered)
    begin(thick, clone_of(thick, taken), taken)
    assert thick.there("s").active
    assert thick.store.attach_all() == {}
    assert not thick.there("s").active
    copied(thick, clone_of(thick, taken), taken)
    assert not thick.there("s").active


def test_snapshots_outlive_their_volume_and_go_like_one(thick: Pool) -> None:
    offered = thick.offer(mib=12)
    free = thick.lvm.group(thick.group).free_bytes + 12 * MIB
    with thick.mounted("pvc-1") as where:
        (where / "file").write_text("content")
    taken = copied(thick, snapshot_of(offered), offered)
    thick.purge(thick.store.retire(offered))
    made = copied(thick, clone_of(thick, taken), taken)
    thick.purge(thick.store.retire(taken))
    with thick.mounted("c") as where:
        assert (where / "file").read_text() == "content"
    thick.purge(thick.store.retire(made))
    assert thick.lvm_names() == []
    assert thick.lvm.group(thick.group).free_bytes == free
