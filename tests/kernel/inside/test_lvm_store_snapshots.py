"""Snapshots of logical volumes: consistent, counted, and in the way of their origin's end."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.lvm.record import KIND, MAKING, OF, SNAPSHOT, STATE
from localvolume.backends.model import BackendFailed, Impossible, NotThisVolume
from localvolume.host.process.commands import Finished
from localvolume.volumes.lvtags import OWNER, POOL_OWNER, encode
from tests.host.support_devices import command, mounted
from tests.host.support_images import run_here
from tests.suite.units import MIB

from .support_lvm_store import Pool, first, pool_on, read, write


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


@first("thin")
def test_a_snapshot_of_a_volume_in_use_is_a_clean_filesystem(either: Pool) -> None:
    offered = either.offer(mib=16)
    with either.mounted("pvc-1") as where:
        (where / "file").write_text("before")
        with Writer(where / "numbers") as writer:
            assert writer.began.wait(60)
            taken = either.store.snapshot(offered, "s1")
        assert either.store.snapshot(offered, "s1").name == "s1"
        (where / "file").write_text("after")
        os.sync()
    assert (taken.origin, taken.full) == ("pvc-1", False)
    node = either.node("s1")
    # Frozen for it, so nothing is to be recovered or mended.
    features = command("dumpe2fs", "-h", node)
    assert "needs_recovery" not in features
    command("e2fsck", "-f", "-n", node)
    with mounted(node) as where:
        assert (where / "file").read_text() == "before"
        numbers = (where / "numbers").read_text().splitlines()
        assert numbers[:20] == [str(number) for number in range(20)]
    assert [one.name for one in either.store.snapshots()] == ["s1"]
    report = either.store.look()
    assert set(report.records) == {"pvc-1"}
    assert not report.unreadable
    assert not report.orphans
    with pytest.raises(BackendFailed, match=r"has snapshots \(s1\)"):
        either.store.retire(offered)
    assert either.store.look().records["pvc-1"].state == "offered"
    with mounted(node), pytest.raises(BackendFailed, match="in use"):
        either.store.remove_snapshot("s1")
    assert set(either.lvm_names()) >= {"pvc-1", "s1"}
    either.store.remove_snapshot("s1")
    either.store.remove_snapshot("s1")
    either.purge(either.store.retire(offered))
    assert either.volume("pvc-1") is None


def test_a_classic_snapshot_takes_room_and_may_be_lost(thick: Pool) -> None:
    offered = thick.offer(mib=16, volume_mode="Block")
    free = thick.store.look().available_bytes
    small = thick.store.snapshot(offered, "small", 4 * MIB)
    assert thick.store.look().available_bytes == free - 4 * MIB
    whole = thick.store.snapshot(offered, "whole")
    with pytest.raises(BackendFailed, match="snapshots"):
        thick.store.grow(offered, 32 * MIB)
    write(thick.node("pvc-1"), b"x" * (16 * MIB))
    assert read(thick.node("whole"), MIB) == bytes(MIB)
    full = {one.name: one.full for one in thick.store.snapshots()}
    assert full == {small.name: True, whole.name: False}
    assert [text for text in thick.store.look().warnings if "small is full" in text]
    for name in full:
        thick.store.remove_snapshot(name)
    assert thick.store.look().available_bytes == free
    assert thick.store.grow(offered, 32 * MIB).size_bytes == 32 * MIB


@first("thick")
def test_a_snapshot_goes_while_its_volume_is_in_use(either: Pool) -> None:
    """LVM takes a classic one's origin down along with it."""
    offered = either.offer(mib=16)
    with either.mounted("pvc-1") as where:
        either.store.snapshot(offered, "s1")
        (where / "file").write_text("since then")
        os.sync()
        either.store.remove_snapshot("s1")
    either.store.snapshot(offered, "s2")
    either.store.remove_snapshot("s2")
    assert either.there("pvc-1").active
    with either.mounted("pvc-1") as where:
        assert (where / "file").read_text() == "since then"
    assert not either.store.snapshots()


def half_made(pool: Pool, name: str, origin: str) -> None:
    """As a killed lvcreate leaves a classic snapshot before it is joined to its origin."""
    tags = encode({OWNER: POOL_OWNER, KIND: SNAPSHOT, OF: origin})
    pool.lvm.create(pool.group, name, 16 * MIB, tags=tags)


def test_a_snapshot_that_was_killed_is_made_anew_or_removed(thick: Pool) -> None:
    first, second = thick.offer("pvc-1"), thick.offer("pvc-2")
    half_made(thick, "s1", "pvc-1")
    half_made(thick, "s2", "pvc-1")
    assert not thick.store.snapshots()
    with pytest.raises(NotThisVolume, match="no snapshot of ours"):
        thick.store.snapshot(second, "s1")
    assert thick.store.snapshot(first, "s1").origin == "pvc-1"
    assert thick.there("s1").origin == "pvc-1"
    thick.store.remove_snapshot("s2")
    assert thick.lvm_names() == ["pvc-1", "pvc-2", "s1"]
    # Somebody's volume by that name has not our tags.
    thick.lvm.create(thick.group, "s3", 4 * MIB)
    with pytest.raises(NotThisVolume, match="no snapshot of ours"):
        thick.store.snapshot(first, "s3")
    with pytest.raises(NotThisVolume, match="no snapshot of ours"):
        thick.store.remove_snapshot("s3")
    assert thick.volume("s3") is not None


def test_a_thin_snapshot_that_was_killed_is_taken_anew(thin: Pool) -> None:
    """Nobody was told of it, and nobody knows when the volume was as it has it."""
    offered = thin.offer("pvc-1")
    tags = {OWNER: POOL_OWNER, KIND: SNAPSHOT, OF: "pvc-1"}
    half = encode({**tags, STATE: MAKING})
    thin.lvm.snapshot(thin.group, "pvc-1", "s", size_bytes=None, tags=half)
    with thin.mounted("pvc-1") as where:
        (where / "file").write_text("later")
    assert not thin.store.snapshots()
    thin.store.snapshot(offered, "s")
    assert thin.there("s").tags == encode(tags)
    with thin.mounted("s") as where:
        assert (where / "file").read_text() == "later"


def test_a_look_meanwhile_does_not_take_it_for_half_made(
    volume_group: str, thin_pool: str, tmp_path: Path
) -> None:
    warnings: list[list[str]] = []

    def looking(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        if any("--deltag" in word for word in argv) and "lvchange" in argv:
            names = [one.name for one in pool.lvm.volumes(pool.group)]
            warnings.append(list(pool.store.look().warnings) if "s" in names else [])
        return run_here(argv, timeout, **more)

    pool = pool_on(volume_group, tmp_path, thin_pool=thin_pool, run=looking)
    try:
        pool.store.snapshot(pool.offer("pvc-1"), "s")
        assert warnings.pop() == []
        assert pool.store.snapshots()
    finally:
        pool.end()


def test_a_thin_snapshot_that_somebody_deactivated_is_there_as_it_was(thin: Pool) -> None:
    offered = thin.offer("pvc-1")
    thin.store.snapshot(offered, "s")
    thin.lvm.deactivate(thin.there("s"))
    with thin.mounted("pvc-1") as where:
        (where / "file").write_text("later")
    assert thin.store.snapshot(offered, "s").origin == "pvc-1"
    with thin.mounted("s") as where:
        assert not (where / "file").exists()


def test_what_is_no_snapshot_of_that_volume(thin: Pool) -> None:
    first, second = thin.offer("pvc-1", 4), thin.offer("pvc-2", 4)
    with pytest.raises(Impossible, match="no room of its own"):
        thin.store.snapshot(first, "s", 4 * MIB)
    thin.store.snapshot(first, "s")
    with pytest.raises(NotThisVolume, match="of pvc-1"):
        thin.store.snapshot(second, "s")
    with pytest.raises(NotThisVolume, match="no snapshot of ours"):
        thin.store.snapshot(second, "pvc-1")
    with pytest.raises(NotThisVolume, match="no snapshot of ours"):
        thin.store.remove_snapshot("pvc-1")
    # Thin snapshots may come to hold all that their origin does.
    assert thin.store.look().foreign_bytes == 4 * MIB
    # Somebody takes one of what is removed already: that waits, and is told of.
    gone = thin.store.retire(second)
    thin.lvm.snapshot(thin.group, "pvc-2", "backup", size_bytes=None)
    with pytest.raises(BackendFailed, match=r"has snapshots \(backup\)"):
        thin.purge(gone)
    assert {"pvc-2", "backup"} <= set(thin.lvm_names())
