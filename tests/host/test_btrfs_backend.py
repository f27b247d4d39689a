"""Volumes as btrfs subvolumes: made, limited, measured, grown, moved and removed."""

import dataclasses
import errno
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.backends.model import BackendFailed, Impossible, NotThisVolume, Record
from localvolume.host.btrfs import limits, quota, subvolumes
from tests.host.support_btrfs import PATIENT, SIZE, Pool, fill, identity_of, pool
from tests.host.support_devices import (
    bind,
    command,
    filesystem,
    flush,
    formatted,
    immutable,
    loop_device,
    mounted,
)
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "btrfs")


@pytest.fixture
def here() -> Iterator[Pool]:
    with pool() as one:
        yield one


class TestAbilities:
    def test_a_fresh_filesystem_gets_quotas_and_can_all(self, here: Pool) -> None:
        assert not quota.read_quotas(here.fd).on
        found = here.backend.abilities(here.fd, here.path)
        assert (found.enforce, found.why_not, found.filesystem) == (True, "", True)
        assert not found.block
        assert not found.overwrite
        assert quota.read_quotas(here.fd).consistent

    def test_a_pool_open_by_path_alone_is_enough(self, here: Pool) -> None:
        place = os.open(here.root, os.O_PATH | os.O_DIRECTORY)
        try:
            assert here.backend.abilities(place, here.path).enforce
            assert (
                here.backend.make(place, here.path, here.record("a")).inode >= subvolumes.FIRST_ID
            )
        finally:
            os.close(place)

    @pytest.mark.needs("ext4")
    def test_another_filesystem_is_named_as_the_reason(self) -> None:
        with filesystem("ext4") as root:
            fd = os.open(root, os.O_RDONLY)
            try:
                found = BtrfsBackend().abilities(fd, str(root))
                assert not found.enforce
                assert not found.filesystem
                assert "not btrfs" in found.why_not
                record = Record(
                    name="a", backend="btrfs", state="making", directory="a", size_bytes=SIZE
                )
                with pytest.raises(Impossible, match="not btrfs"):
                    BtrfsBackend().make(fd, str(root), record)
            finally:
                os.close(fd)

    def test_read_only_is_named_as_the_reason(self, here: Pool) -> None:
        command("mount", "-o", "remount,ro", here.root)
        found = here.backend.abilities(here.fd, here.path)
        assert not found.enforce
        assert "Read-only" in found.why_not

    def test_counts_out_of_step_are_counted_anew(self, here: Pool) -> None:
        volume = here.make("a")
        fill(here.root / "a/file", 4 * MIB)
        command("btrfs", "subvolume", "snapshot", here.root / "a", here.root / "snapshot")
        # What shares data cannot be moved between groups: the kernel gives up counting.
        command("btrfs", "qgroup", "create", "7/7", here.root)
        snapshot = f"0/{identity_of(here.root / 'snapshot')}"
        command("btrfs", "qgroup", "assign", "--no-rescan", snapshot, "7/7", here.root)
        subvolumes.commit(here.fd)
        assert not quota.read_quotas(here.fd).consistent
        assert limits.look(here.fd, {volume.inode: SIZE}) == {}
        assert here.backend.abilities(here.fd, here.path).enforce
        assert here.usage(volume).used_bytes is not None


class TestMaking:
    def test_owned_limited_and_empty(self, here: Pool) -> None:
        before = os.umask(0o077)
        try:
            record = here.make("a", mode=0o2771, uid=1234, gid=4321)
        finally:
            os.umask(before)
        found = os.stat(here.root / "a")
        assert stat.S_IMODE(found.st_mode) == 0o2771
        assert (found.st_uid, found.st_gid, found.st_ino) == (1234, 4321, 256)
        assert record.inode == identity_of(here.root / "a")
        assert here.backend.is_untouched(here.fd, here.path, record)
        usage = here.usage(record)
        assert usage.used_bytes == 16384
        assert usage.available_bytes == SIZE - 16384
        assert usage.problem == ""

    def test_made_again_after_a_crash_at_any_step(self, here: Pool) -> None:
        record = here.backend.make(here.fd, here.path, here.record("a"))
        again = here.backend.make(here.fd, here.path, here.record("a"))
        assert again.inode != record.inode
        # Crashed between the subvolume and its limit.
        making = os.open(here.root / ".localvolume/making", os.O_RDONLY)
        try:
            subvolumes.create_subvolume(making, "b")
        finally:
            os.close(making)
        made = here.make("b")
        assert here.usage(made).available_bytes == SIZE - 16384

    def test_unmade_leaves_nothing(self, here: Pool) -> None:
        record = here.record("a")
        here.backend.unmake(here.fd, here.path, record)
        here.backend.make(here.fd, here.path, record)
        here.backend.unmake(here.fd, here.path, record)
        here.backend.unmake(here.fd, here.path, record)
        assert os.listdir(here.root / ".localvolume/making") == []
        here.has_groups(set())

    def test_what_is_no_subvolume_is_left_alone(self, here: Pool) -> None:
        other = here.root / ".localvolume/making/a"
        other.mkdir()
        (other / "file").touch()
        for act in (here.backend.make, here.backend.unmake):
            with pytest.raises(NotThisVolume):
                act(here.fd, here.path, here.record("a"))
        other = here.root / ".localvolume/making/b"
        other.symlink_to(here.root)
        for act in (here.backend.make, here.backend.unmake):
            with pytest.raises(NotThisVolume):
                act(here.fd, here.path, here.record("b"))
        assert (here.root / ".localvolume/making/a/file").exists()

    @pytest.mark.parametrize(
        ("asked", "reason"),
        [
            ({"overwrite": True}, "overwritten"),
            ({"volume_mode": "Block"}, "block device"),
            ({"soft_bytes": SIZE}, "soft limits"),
            ({"size_bytes": 4096}, "at least"),
        ],
    )
    def test_what_can_never_be_is_refused(
        self, here: Pool, asked: dict[str, object], reason: str
    ) -> None:
        with pytest.raises(Impossible, match=reason):
            here.backend.make(here.fd, here.path, here.record("a", **asked))
        assert os.listdir(here.root / ".localvolume/making") == []

    def test_a_size_that_is_not_enforced_is_no_limit(self, here: Pool) -> None:
        record = here.make("a", enforced=False, size_bytes=2 * MIB)
        assert fill(here.root / "a/file", 8 * MIB) == (8 * MIB, 0)
        usage = here.usage(record)
        assert usage.problem == ""
        assert usage.available_bytes is not None
        assert usage.available_bytes > 100 * MIB

    def test_identity_is_no_ordinary_directorys(self, here: Pool) -> None:
        (here.root / "directory").mkdir()
        fd = os.open(here.root / "directory", os.O_RDONLY)
        try:
            assert here.backend.identity(fd) == -1
        finally:
            os.close(fd)

    def test_what_somebody_wrote_to_is_left_alone(self, here: Pool) -> None:
        """Nobody should have been able to; if somebody was, the data is more than the record."""
        record = here.record("a")
        here.backend.make(here.fd, here.path, record)
        (here.root / ".localvolume/making/a/file").touch()
        for act in (here.backend.make, here.backend.unmake):
            with pytest.raises(BackendFailed, match="not empty"):
                act(here.fd, here.path, record)
        assert (here.root / ".localvolume/making/a/file").exists()

    def test_another_hard_limit_than_the_size(self, here: Pool) -> None:
        record = here.make("a", hard_bytes=SIZE // 2)
        assert here.usage(record).available_bytes == SIZE // 2 - 16384
        grown = here.backend.grow(here.fd, here.path, record, 2 * SIZE)
        assert grown.hard_bytes == SIZE
        assert here.usage(record).available_bytes == SIZE - 16384

    def test_a_power_cut_afterwards_leaves_it_limited(self, tmp_path: Path) -> None:
        with formatted("btrfs", size=512 * MIB) as device, mounted(device) as root:
            os.makedirs(root / ".localvolume/making", 0o700)
            fd = os.open(root, os.O_RDONLY)
            try:
                backend = BtrfsBackend(counting=PATIENT)
                record = Record(
                    name="a", backend="btrfs", state="making", directory="a", size_bytes=SIZE
                )
                assert backend.abilities(fd, str(root)).enforce
                record = backend.make(fd, str(root), record)
                before = tmp_path / "before"
                command("cp", "--sparse=always", device.backing, before)
                backend.grow(fd, str(root), record, 2 * SIZE)
                after = tmp_path / "after"
                command("cp", "--sparse=always", device.backing, after)
            finally:
                os.close(fd)
        for disk, limit in ((before, SIZE), (after, 2 * SIZE)):
            with loop_device(backing=disk) as device, mounted(device) as root:
                made = root / ".localvolume/making/a"
                assert stat.S_IMODE(os.stat(made).st_mode) == 0o777
                assert identity_of(made) == record.inode
                fd = os.open(root, os.O_RDONLY)
                try:
                    assert quota.read_limit(fd, record.inode) == limit
                finally:
                    os.close(fd)


class TestLimit:
    @pytest.mark.parametrize("simple", [False, True])
    @pytest.mark.parametrize("size", [8 * MIB, SIZE])
    def test_reached_at_the_size_even_by_root(self, size: int, simple: bool) -> None:
        with pool(simple=simple) as here:
            record = here.make("a", size_bytes=size)
            written, error = fill(here.root / "a/file", 2 * size)
            assert error == errno.EDQUOT
            assert size * 0.99 <= written <= size
            usage = here.usage(record)
            assert usage.used_bytes is not None
            assert size * 0.99 <= usage.used_bytes <= size * 1.01
            assert usage.available_bytes is not None
            assert usage.available_bytes <= size * 0.01

    def test_many_small_files_are_counted_too(self, here: Pool) -> None:
        here.make("a", size_bytes=8 * MIB)
        written, error = 0, 0
        while not error and written < 20 * MIB:
            more, error = fill(here.root / f"a/{written}", 16 << 10)
            written += more
        subvolumes.commit(here.fd)
        assert error == errno.EDQUOT
        assert written <= 8 * MIB

    def test_room_comes_back_when_files_go(self, here: Pool) -> None:
        record = here.make("a")
        fill(here.root / "a/file", 2 * SIZE)
        (here.root / "a/file").unlink()

        def used() -> int | None:
            flush(here.root)
            return here.usage(record).used_bytes

        # Who writes the file out at that moment holds it, and its end comes after a flush.
        until(used, lambda count: count == 16384)
        assert fill(here.root / "a/file", SIZE // 2) == (SIZE // 2, 0)

    def test_a_full_neighbour_disturbs_nobody(self, here: Pool) -> None:
        here.make("a")
        other = here.make("b")
        assert fill(here.root / "a/file", 2 * SIZE)[1] == errno.EDQUOT
        assert fill(here.root / "b/file", SIZE // 2) == (SIZE // 2, 0)
        assert here.usage(other).used_bytes == pytest.approx(SIZE // 2, rel=0.01)

    def test_grows_while_in_use(self, here: Pool) -> None:
        record = here.make("a")
        fill(here.root / "a/file", 2 * SIZE)
        grown = here.backend.grow(here.fd, here.path, record, 2 * SIZE)
        assert grown == dataclasses.replace(record, size_bytes=2 * SIZE)
        assert here.backend.grow(here.fd, here.path, grown, 2 * SIZE) == grown
        written, error = fill(here.root / "a/file", 2 * SIZE)
        assert error == errno.EDQUOT
        assert SIZE * 0.98 <= written <= SIZE * 1.02
        with pytest.raises(Impossible, match="smaller"):
            here.backend.grow(here.fd, here.path, grown, SIZE)

    def test_measured_with_a_record_from_before(self, here: Pool) -> None:
        record = here.make("a")
        here.backend.grow(here.fd, here.path, record, 2 * SIZE)
        assert here.usage(record).available_bytes == 2 * SIZE - 16384
        assert quota.read_limit(here.fd, record.inode) == 2 * SIZE

    def test_one_that_is_gone_does_not_grow(self, here: Pool) -> None:
        record = here.make("a")
        command("btrfs", "subvolume", "delete", here.root / "a")
        with pytest.raises(NotThisVolume):
            here.backend.grow(here.fd, here.path, record, 2 * SIZE)

    def test_a_pool_without_room_leaves_no_more_than_that(self) -> None:
        with pool(size=256 * MIB) as here:
            record = here.make("a", size_bytes=1 << 40)
            usage = here.usage(record)
            assert usage.available_bytes is not None
            assert usage.available_bytes < 256 * MIB

    def test_limits_lost_with_the_quotas_come_back(self, here: Pool) -> None:
        record = here.make("a")
        command("btrfs", "quota", "disable", here.root)
        assert here.backend.abilities(here.fd, here.path).enforce
        assert quota.read_limit(here.fd, record.inode) is None
        here.usage(record)
        assert quota.read_limit(here.fd, record.inode) == SIZE
        command("btrfs", "quota", "disable", here.root)
        here.backend.attach(here.fd, here.path, record)
        here.backend.attach(here.fd, here.path, record)
        assert here.usage(record).problem == ""
        assert fill(here.root / "a/file", 2 * SIZE)[1] == errno.EDQUOT

    def test_another_limit_than_recorded_is_put_right(self, here: Pool) -> None:
        record = here.make("a")
        command("btrfs", "qgroup", "limit", "1G", here.root / "a")
        here.backend.attach(here.fd, here.path, record)
        assert quota.read_limit(here.fd, record.inode) == SIZE
        os.rename(here.root / "a", here.root / "b")
        with pytest.raises(NotThisVolume):
            here.backend.attach(here.fd, here.path, record)

    def test_one_that_is_gone_has_no_usage(self, here: Pool) -> None:
        record = here.make("a")
        command("btrfs", "subvolume", "delete", here.root / "a")
        subvolumes.commit(here.fd)
        assert here.backend.usage(here.fd, here.path, [record]) == {}


class TestRemoving:
    def test_to_the_trash(self, here: Pool) -> None:
        record = here.make("a", directory="ns/claim")
        (here.root / "ns/claim/file").write_text("tenant's")
        removed = here.retire(record)
        here.backend.retire(here.fd, here.path, removed)
        assert not (here.root / "ns/claim").exists()
        trash = here.root / ".localvolume/trash" / removed.trash
        assert (trash / "file").read_text() == "tenant's"
        assert not here.backend.is_untouched(here.fd, here.path, record)
        # Until it is purged, it counts.
        assert here.usage(removed).used_bytes

    def test_purged_with_its_group(self, here: Pool) -> None:
        record = here.make("a")
        kept = here.make("b")
        fill(here.root / "a/file", 2 * SIZE)
        removed = here.retire(record)
        here.purge(removed)
        here.purge(removed)
        assert os.listdir(here.root / ".localvolume/trash") == []
        here.has_groups({kept.inode})
        assert fill(here.root / "b/file", 2 * SIZE)[1] == errno.EDQUOT

    def test_another_subvolume_in_its_place_is_left_alone(self, here: Pool) -> None:
        record = here.make("a")
        os.rename(here.root / "a", here.root / "b")
        command("btrfs", "subvolume", "create", here.root / "a")
        with pytest.raises(NotThisVolume):
            here.retire(record)
        removed = dataclasses.replace(record, state="removed", trash="a.12345678")
        os.rename(here.root / "a", here.root / ".localvolume/trash/a.12345678")
        with pytest.raises(NotThisVolume):
            here.purge(removed)
        assert (here.root / ".localvolume/trash/a.12345678").exists()
        assert (here.root / "b").exists()

    def test_an_ordinary_directory_with_that_number_is_left_alone(self, here: Pool) -> None:
        record = here.make("a")
        os.rename(here.root / "a", here.root / "b")
        (here.root / "a").mkdir()
        inode = os.stat(here.root / "a").st_ino
        with pytest.raises(NotThisVolume):
            here.retire(dataclasses.replace(record, inode=inode))

    def test_one_in_use_stays(self, here: Pool, tmp_path: Path) -> None:
        record = here.make("a")
        with bind(here.root / "a"), pytest.raises(BackendFailed, match="in use"):
            here.retire(record)
        removed = here.retire(record)
        with (
            bind(here.root / f".localvolume/trash/{removed.trash}"),
            pytest.raises(BackendFailed, match="in use"),
        ):
            here.purge(removed)
        here.purge(removed)

    def test_one_that_is_read_only_and_immutable_goes(self, here: Pool) -> None:
        record = here.make("a")
        (here.root / "a/directory").mkdir()
        command("btrfs", "subvolume", "create", here.root / "a/directory/inner")
        command("chattr", "+i", here.root / "a/directory")
        command("btrfs", "property", "set", here.root / "a", "ro", "true")
        here.purge(here.retire(record))
        here.has_groups(set())
        other = here.make("b")
        with immutable(here.root / "b"):
            here.purge(here.retire(other))
        here.has_groups(set())

    def test_read_only_again_in_the_trash(self, here: Pool) -> None:
        removed = here.retire(here.make("a"))
        trash = here.root / f".localvolume/trash/{removed.trash}"
        command("btrfs", "subvolume", "create", trash / "inner")
        command("btrfs", "property", "set", trash, "ro", "true")
        here.purge(removed)
        assert not trash.exists()

    def test_open_files_do_not_keep_it(self, here: Pool) -> None:
        record = here.make("a")
        with open(here.root / "a/file", "w") as file:
            file.write("x")
            file.flush()
            removed = here.retire(record)
            # As long as they are open, the kernel does not free them.
            backend = BtrfsBackend(gone_seconds=0.5)
            backend.purge(here.fd, here.path, removed, stop=threading.Event())
        assert os.listdir(here.root / ".localvolume/trash") == []
        # The next one takes its group along.
        here.purge(here.retire(here.make("b")))
        here.has_groups(set())

    def test_stopped_before_it_begins(self, here: Pool) -> None:
        removed = here.retire(here.make("a"))
        stop = threading.Event()
        stop.set()
        with pytest.raises(BackendFailed, match="stopped"):
            here.backend.purge(here.fd, here.path, removed, stop=stop)
        assert (here.root / f".localvolume/trash/{removed.trash}").exists()

    def test_many_files_go_fast(self, here: Pool) -> None:
        record = here.make("a", size_bytes=500 * MIB)
        for number in range(50):
            directory = here.root / f"a/{number}"
            directory.mkdir()
            for file in range(1000):
                (directory / str(file)).touch()
        began = time.monotonic()
        removed = here.retire(record)
        retired = time.monotonic() - began
        here.purge(removed)
        print(f"retired in {retired:.3f} s, purged in {time.monotonic() - began - retired:.3f} s")
        assert time.monotonic() - began < 120
        here.has_groups(set())


def test_the_path_of_a_volume(here: Pool) -> None:
    record = here.record("a", directory="ns/claim")
    assert here.backend.host_path("/srv/pool", "id", record) == "/srv/pool/ns/claim"
