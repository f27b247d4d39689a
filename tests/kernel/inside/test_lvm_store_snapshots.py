"""Snapshots and copies of thin logical volumes: cut at one moment, counted, independent."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.capacity import capacity
from localvolume.backends.lvm.record import fields_of
from localvolume.backends.model import BackendFailed, Impossible, NoSpace, NotThisVolume, Record
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.lvm.commands import Lvm
from localvolume.volumes.lvtags import encode
from tests.host.support_devices import command
from tests.suite.units import MIB

from .support_lvm import classic_snapshot
from .support_lvm_store import Pool, first, pool_on, read, write


@pytest.fixture
def roomy(volume_group: str, lvm: Lvm, tmp_path: Path) -> Iterator[Pool]:
    """A pool that promises more than it has: an xfs is large, and takes little."""
    lvm.create_pool(volume_group, "pool", 440 * MIB)
    pool = pool_on(volume_group, tmp_path, thin_pool="pool", overbook=5)
    yield pool
    pool.end()


def snapshot(pool: Pool, origin: Record, name: str = "s") -> Record:
    cut = pool.store.copy(snapshot_record(origin, name, origin.size_bytes), origin)
    return pool.store.offered(cut)


def clone(pool: Pool, origin: Record, name: str = "c", mib: float = 0) -> Record:
    wanted = pool.record(name, mib or origin.size_bytes / MIB, volume_mode=origin.volume_mode)
    return pool.store.offered(pool.store.copy(with_content_of(origin, wanted), origin))


def remove(pool: Pool, record: Record) -> None:
    pool.purge(pool.store.retire(record))


def uuid_of(node: str) -> str:
    return command("blkid", "-p", "-s", "UUID", "-o", "value", node).strip()


class Writer:
    """Appends numbers to a file, each synced, for as long as it is entered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.began = threading.Event()

    def _write(self) -> None:
        number = 0
        with self._path.open("w") as file:
            while not self._stop.is_set():
                file.write(f"{number}\n")
                file.flush()
                os.fsync(file.fileno())
                number += 1
                if number == 20:
                    self.began.set()

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)


def test_a_snapshot_of_a_volume_in_use_is_a_clean_filesystem(thin: Pool) -> None:
    offered = thin.offer(mib=16)
    with thin.mounted("pvc-1") as where:
        # Neither synced nor closed.
        with (where / "file").open("w") as file:
            file.write("before")
            file.flush()
            with Writer(where / "numbers") as writer:
                assert writer.began.wait(60)
                taken = snapshot(thin, offered)
            # What is tried again is the same one.
            assert thin.store.copy(snapshot_record(offered, "s", 1), offered) == taken
            file.write(" and after")
        os.sync()
        assert taken.snapshot_of == "pvc-1"
        assert taken.cut_at > 0
        thin.lvm.activate(thin.there("s"))
        # Frozen for it, so nothing is to be recovered or mended.
        assert "needs_recovery" not in command("dumpe2fs", "-h", thin.node("s"))
        command("e2fsck", "-f", "-n", thin.node("s"))
        thin.lvm.deactivate(thin.there("s"))
        clone(thin, taken)
        # Beside its origin, which is mounted.
        with thin.mounted("c") as copied:
            assert (copied / "file").read_text() == "before"
            numbers = (copied / "numbers").read_text().splitlines()
            assert numbers[:20] == [str(number) for number in range(20)]
            (copied / "file").write_text("otherwise")
        assert (where / "file").read_text() == "before and after"
    command("e2fsck", "-f", "-n", thin.node("c"))
    assert uuid_of(thin.node("c")) != uuid_of(thin.node("pvc-1"))
    report = thin.store.look()
    assert set(report.records) == {"pvc-1", "s", "c"}
    assert (dict(report.unreadable), list(report.orphans)) == ({}, [])


@pytest.mark.parametrize("more", [0, 8])
def test_a_filesystem_as_a_block_volume(thin: Pool, more: int) -> None:
    """Byte by byte, its identity too, and nothing behind it."""
    offered = thin.offer(mib=16)
    with thin.mounted("pvc-1") as where:
        (where / "file").write_text("content")
    taken = snapshot(thin, offered)
    whole = read(thin.node("pvc-1"), 16 * MIB)
    wanted = thin.record("c", 16 + more, volume_mode="Block")
    blocks = thin.store.offered(thin.store.copy(with_content_of(taken, wanted), taken))
    assert (blocks.volume_mode, blocks.size_bytes) == ("Block", (16 + more) * MIB)
    assert read(thin.node("c"), (16 + more) * MIB) == whole + bytes(more * MIB)
    assert thin.store.look().records["c"] == blocks
    assert thin.store.use(blocks, lambda source: source.fs_type) == ""
    back = thin.record("f", 16 + more, volume_mode="Filesystem")
    with pytest.raises(Impossible, match="is never mounted as a filesystem"):
        thin.store.copy(with_content_of(blocks, back), blocks)
    assert thin.lvm_names() == ["c", "pool", "pvc-1", "s"]


def test_a_snapshot_has_no_device(thin: Pool) -> None:
    taken = snapshot(thin, thin.offer(mib=8))
    assert thin.store.attach_all() == {}
    assert not thin.store.look().warnings
    # As a node does when it starts.
    command("vgchange", "--activate", "n", thin.group)
    command("vgchange", "--activate", "y", thin.group)
    assert thin.there("pvc-1").active
    assert not thin.there("s").active
    assert not os.path.exists(thin.node("s"))
    with pytest.raises(NotThisVolume, match="nobody uses it"):
        thin.store.use(taken, lambda source: None)


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
@pytest.mark.parametrize("mounted", [False, True], ids=["unused", "in use"])
def test_a_larger_copy_stands_beside_its_origin(roomy: Pool, fs: str, mounted: bool) -> None:
    mib, larger = (300, 340) if fs == "xfs" else (16, 48)
    offered = roomy.offer(mib=mib, fs_type=fs, mode=0o2751)
    with roomy.mounted("pvc-1") as where:
        (where / "file").write_text("content")
        os.chown(where, 7, 8)
        if mounted:
            copied = clone(roomy, offered, mib=larger)
    if not mounted:
        copied = clone(roomy, snapshot(roomy, offered), mib=larger)
    assert copied.size_bytes == larger * MIB
    assert uuid_of(roomy.node("c")) != uuid_of(roomy.node("pvc-1"))
    with roomy.mounted("pvc-1"), roomy.mounted("c") as where:
        assert (where / "file").read_text() == "content"
        assert (where.stat().st_uid, where.stat().st_gid) == (7, 8)
        found = os.statvfs(where)
        assert found.f_blocks * found.f_frsize > 0.75 * larger * MIB
    grown = roomy.store.grow(copied, (larger + 16) * MIB)
    assert grown.size_bytes == (larger + 16) * MIB


def test_a_later_write_is_in_no_copy_without_the_earlier_one(roomy: Pool) -> None:
    offered = roomy.offer(mib=8, volume_mode="Block")
    stop, begun = threading.Event(), threading.Event()

    def write_pairs() -> None:
        fd = os.open(roomy.node("pvc-1"), os.O_WRONLY | os.O_SYNC)
        number = 0
        while not stop.is_set():
            number += 1
            os.pwrite(fd, f"{number:08}".encode(), 0)
            os.pwrite(fd, f"{number:08}".encode(), 4 * MIB)
            if number == 3:
                begun.set()
        os.close(fd)

    writer = threading.Thread(target=write_pairs)
    writer.start()
    try:
        assert begun.wait(60)
        copies = [clone(roomy, offered, f"c{number}").name for number in range(3)]
    finally:
        stop.set()
        writer.join()
    for name in copies:
        earlier, later = int(read(roomy.node(name), 8)), int(read(roomy.node(name), 8, 4 * MIB))
        assert earlier - 1 <= later <= earlier


@pytest.mark.parametrize("order", ["osc", "sco", "cos"])
def test_deleting_any_of_them_harms_no_other(thin: Pool, order: str) -> None:
    content = os.urandom(8 * MIB)
    origin = thin.offer("o", mib=8, volume_mode="Block", overwrite=True)
    write(thin.node("o"), content)
    records = {"o": origin, "s": (taken := snapshot(thin, origin)), "c": clone(thin, taken)}
    for number, name in enumerate(order, 1):
        remove(thin, records[name])
        for left in order[number:]:
            thin.lvm.activate(thin.there(left))
            assert read(thin.node(left), 8 * MIB) == content, (name, left)
            if left == "s":
                thin.lvm.deactivate(thin.there("s"))
    assert thin.lvm_names() == ["pool"]
    assert thin.store.look().available_bytes == 64 * MIB


def test_a_snapshot_counts_with_what_it_holds(thin: Pool) -> None:
    offered = thin.offer(mib=16, volume_mode="Block")
    write(thin.node("pvc-1"), b"x" * (8 * MIB))
    before = capacity(thin.store.config, thin.store.look())
    taken = snapshot(thin, offered)
    assert taken.holds_bytes == 8 * MIB
    report = thin.store.look()
    assert report.foreign_bytes == 0
    assert capacity(thin.store.config, report) == before - 8 * MIB
    assert report.usage["s"].used_bytes == 8 * MIB
    # 40 MiB are left: a copy counts with all of its size.
    with pytest.raises(NoSpace):
        clone(thin, taken, "large", mib=44)
    assert "large" not in thin.lvm_names()
    clone(thin, taken, mib=40)
    # All that was promised can be written: nothing is shared any more then.
    for name, mib in (("pvc-1", 16), ("c", 40)):
        for at in range(0, mib, 4):
            write(thin.node(name), os.urandom(4 * MIB), at * MIB)
    thin.lvm.activate(thin.there("s"))
    assert read(thin.node("s"), 8 * MIB) == b"x" * (8 * MIB)


def test_thick_volumes_have_none(thick: Pool) -> None:
    offered = thick.offer(mib=8)
    assert "use a thin pool" in thick.store.look().abilities.no_copies
    with pytest.raises(Impossible, match="use a thin pool"):
        snapshot(thick, offered)
    with pytest.raises(Impossible, match="use a thin pool"):
        clone(thick, offered)
    assert thick.lvm_names() == ["pvc-1"]


@first("thick")
def test_somebody_s_classic_snapshot_is_in_the_way_and_a_thin_one_is_not(either: Pool) -> None:
    offered = either.offer(mib=8, volume_mode="Block")
    if either.store.config.lvm and either.store.config.lvm.thin_pool:
        either.lvm.snapshot(either.group, "pvc-1", "backup", active=True)
        # It may come to hold all that its origin does.
        assert either.store.look().foreign_bytes == 8 * MIB
        remove(either, offered)
        assert either.volume("pvc-1") is None
        assert either.there("backup").origin == ""
        return
    classic_snapshot(either.group, "pvc-1", "backup", 4 * MIB)
    with pytest.raises(BackendFailed, match=r"has snapshots \(backup\)"):
        either.store.retire(offered)
    with pytest.raises(BackendFailed, match="snapshots"):
        either.store.grow(offered, 16 * MIB)
    either.lvm.remove(either.there("backup"))
    gone = either.store.retire(offered)
    # Somebody takes one of what is removed already: that waits, and is told of.
    either.lvm.activate(either.there("pvc-1"))
    classic_snapshot(either.group, "pvc-1", "backup", 4 * MIB)
    with pytest.raises(BackendFailed, match=r"has snapshots \(backup\)"):
        either.purge(gone)
    assert {"pvc-1", "backup"} <= set(either.lvm_names())


def test_one_that_was_killed_is_cut_anew(thin: Pool) -> None:
    """Nobody was told of it, and nobody knows when the volume was as it has it."""
    offered = thin.offer("pvc-1")
    half = replace(snapshot_record(offered, "s", 0), claim_uid="")
    thin.lvm.snapshot(thin.group, "pvc-1", "s", active=True, tags=encode(fields_of(half)))
    assert thin.store.look().records["s"].state == "making"
    with thin.mounted("pvc-1") as where:
        (where / "file").write_text("later")
    taken = snapshot(thin, offered)
    clone(thin, taken)
    with thin.mounted("c") as where:
        assert (where / "file").read_text() == "later"


def test_of_a_volume_that_is_not_active(thin: Pool) -> None:
    offered = thin.offer(mib=8, volume_mode="Block")
    write(thin.node("pvc-1"), b"content")
    command("vgchange", "--activate", "n", thin.group)
    taken = snapshot(thin, offered)
    assert 0 < taken.holds_bytes < MIB
    command("vgchange", "--activate", "n", thin.group)
    clone(thin, taken)
    assert read(thin.node("c"), 7) == b"content"


def test_without_room_none_is_cut(thin: Pool) -> None:
    offered = thin.offer(mib=40, volume_mode="Block")
    write(thin.node("pvc-1"), os.urandom(28 * MIB))
    with pytest.raises(NoSpace):
        snapshot(thin, offered)
    assert thin.lvm_names() == ["pool", "pvc-1"]
