"""Only the right pool is touched: mounted, ours, known by its id, nobody else's just now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.model import BackendFailed, NotThisVolume
from localvolume.backends.pool.pool import PoolStore
from localvolume.backends.pool.root import PoolRoot, PoolTaken, why_not_mounted
from localvolume.backends.pool.session import Session
from localvolume.host.mount.mounts import MountTable, parse_mount_table
from tests.host.support_devices import (
    bind,
    command,
    filesystem,
    formatted,
    mounted,
    tmpfs,
    unmount,
)
from tests.host.support_pools import ON_EXT4, config_of, offer, pool_on, store_in, wish

pytestmark = ON_EXT4


def problem(store: PoolStore) -> str:
    """The problem with a pool; nothing may be done in it then, and nothing is told of it."""
    report = store.look()
    assert report.problem
    assert (report.records, report.orphans, report.total_bytes, report.id) == ({}, (), 0, "")
    with pytest.raises(BackendFailed):
        store.make(wish("pvc-forbidden"))
    with pytest.raises(BackendFailed):
        store.attach_all()
    return report.problem


class TestMounted:
    def test_a_directory_of_the_root_filesystem_is_no_pool(self, tmp_path: Path) -> None:
        # Where the tests' own directory is a mount the root must be made one.
        text = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        assert why_not_mounted(MountTable(parse_mount_table(text)), "/pool", "/pool")
        if os.stat(tmp_path).st_dev == os.stat("/").st_dev:
            with store_in(tmp_path) as store:
                assert "mustBeMounted: false" in problem(store)
            assert os.listdir(tmp_path) == []

    def test_unless_that_is_asked_for(self, tmp_path: Path) -> None:
        with store_in(tmp_path, must_be_mounted=False) as store:
            assert store.look().problem == ""

    def test_a_disk_mounted_later_is_found(self, tmp_path: Path) -> None:
        with formatted("ext4") as device, store_in(tmp_path) as store:
            if os.stat(tmp_path).st_dev == os.stat("/").st_dev:
                assert problem(store)
            with mounted(device, tmp_path):
                assert store.look().problem == ""
                store.close()

    def test_unmounted_under_our_feet(self) -> None:
        with formatted("ext4") as device, mounted(device) as where, store_in(where) as store:
            record = offer(store, wish())
            command("umount", "--lazy", where)
            assert os.listdir(where) == []
            assert "has taken its place" in store.look().problem
            # From now on only the pool that was there is the right one.
            with tmpfs(where, options="mode=755"):
                assert "its disk is not mounted, or this is another disk" in problem(store)
                assert os.listdir(where) == []
            with mounted(device, where):
                assert store.look().records == {"pvc-1": record}
                store.close()

    def test_nothing_is_made_below_a_mount_point_that_lost_its_disk(self, tmp_path: Path) -> None:
        with formatted("ext4") as device:
            with mounted(device, tmp_path), store_in(tmp_path) as store:
                pool_id = store.open()
                offer(store, wish())
            with store_in(tmp_path, known_ids=(pool_id,), must_be_mounted=False) as store:
                assert "its disk is not mounted" in problem(store)
            assert os.listdir(tmp_path) == []


class TestIdentity:
    def test_another_disk(self) -> None:
        with pool_on() as (store, where):
            here = store.open()
            store.close()
            other = str(uuid.uuid4())
            with store_in(where, known_ids=(other,)) as wrong:
                told = problem(wrong)
                assert here in told
                assert other in told
            with store_in(where, known_ids=(other, here)) as right:
                assert right.look().id == here

    def test_known_ids_can_be_told_later(self) -> None:
        with filesystem("ext4") as where, store_in(where) as store:
            store.know({str(uuid.uuid4())})
            assert "its disk is not mounted" in problem(store)
            assert set(os.listdir(where)) == {"lost+found"}
            store.know(())
            assert store.look().problem == ""

    def test_none_is_made_while_a_volume_is_missing(self) -> None:
        """A call made the volume, so its object does not say in which pool it lies."""
        with filesystem("ext4") as where:
            with store_in(where) as store:
                store.know((), (), {"pvc-1"})
                assert "no pool has the volume of the handle pvc-1" in problem(store)
                assert set(os.listdir(where)) == {"lost+found"}
                store.know(())
                here = store.look().id
            # One that is there already is no other's fault.
            with store_in(where) as store:
                store.know((), (), {"pvc-1"})
                assert store.look().id == here

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            '{"version":1,"id":"x","backend":"directory"}',
            '{"version":1,"backend":"directory"}',
            '{"version":2,"id":"7ad3d4a2-5ef0-4b4b-a1b0-c0ffee000001","backend":"directory"}',
        ],
    )
    def test_a_marker_that_cannot_be_read(self, text: str) -> None:
        with pool_on() as (store, where):
            store.open()
            store.close()
            marker = where / ".localvolume/pool.json"
            marker.write_text(text)
            assert "pool.json" in problem(store)
            assert marker.read_text() == text

    def test_a_marker_that_is_missing_though_there_are_volumes(self) -> None:
        with pool_on() as (store, where):
            offer(store, wish())
            store.close()
            (where / ".localvolume/pool.json").unlink()
            with store_in(where) as again:
                assert "pool.json is missing" in problem(again)
            assert not (where / ".localvolume/pool.json").exists()

    def test_another_backend(self) -> None:
        with pool_on() as (store, where):
            store.open()
            store.close()
            marker = where / ".localvolume/pool.json"
            told = json.loads(marker.read_text())
            assert set(told) == {"version", "id", "backend"}
            marker.write_text(json.dumps({**told, "backend": "image"}))
            assert "image, and directory is configured" in problem(store)

    def test_no_pool_there_at_all(self, tmp_path: Path) -> None:
        with store_in(tmp_path / "none", must_be_mounted=False) as store:
            assert "No such file" in problem(store)
        (tmp_path / "file").write_text("x")
        with store_in(tmp_path / "file", must_be_mounted=False) as store:
            assert "Not a directory" in problem(store)


class TestOwner:
    @pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o757])
    def test_others_may_write(self, mode: int) -> None:
        with pool_on() as (store, where):
            where.chmod(mode)
            assert f"chmod go-w {where}" in problem(store)
            where.chmod(0o755)
            assert store.look().problem == ""

    def test_somebody_elses(self) -> None:
        with pool_on() as (store, where):
            os.chown(where, 1000, 1000)
            assert f"chown 0:0 {where}" in problem(store)

    @pytest.mark.parametrize("kind", ["link", "file", "theirs", "writable"])
    def test_our_own_directory_is_somebody_elses(self, kind: str, tmp_path: Path) -> None:
        with pool_on() as (store, where):
            ours = where / ".localvolume"
            if kind == "link":
                ours.symlink_to(tmp_path)
            elif kind == "file":
                ours.write_text("x")
            else:
                ours.mkdir(mode=0o755)
                if kind == "theirs":
                    os.chown(ours, 1000, 1000)
                else:
                    ours.chmod(0o777)
            assert problem(store)
            assert os.listdir(tmp_path) == []

    def test_a_link_among_our_own_directories(self, tmp_path: Path) -> None:
        with pool_on() as (store, where):
            store.open()
            store.close()
            (where / ".localvolume/making").rmdir()
            (where / ".localvolume/making").symlink_to(tmp_path)
            assert problem(store)
            assert os.listdir(tmp_path) == []

    def test_a_filesystem_mounted_among_our_own_directories(self) -> None:
        with pool_on() as (store, where):
            store.open()
            store.close()
            with tmpfs(where / ".localvolume/trash"):
                assert problem(store)
            assert store.look().problem == ""


class TestOnlyOne:
    def test_two_stores_on_one_pool(self) -> None:
        with pool_on() as (store, where):
            pool_id = store.open()
            with store_in(where, known_ids=(pool_id,)) as second:
                assert "another agent" in problem(second)
                store.close()
                assert second.look().problem == ""
                assert "another agent" in problem(store)

    def test_two_processes(self) -> None:
        with pool_on() as (store, where):
            store.open()
            text = (
                "import sys\n"
                "from pathlib import Path\n"
                "from tests.host.support_pools import store_in\n"
                "with store_in(Path(sys.argv[1])) as store:\n"
                "    print(store.look().problem)\n"
            )
            argv = [sys.executable, "-c", text, str(where)]
            told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
            assert "another agent" in told.stdout
            store.close()
            told = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
            assert told.stdout == "\n"

    def test_what_is_under_way_keeps_the_pool(self) -> None:
        class Slow(DirectoryBackend):
            def attach(self, pool: int, path: str, record: object) -> None:
                begun.set()
                assert end.wait(120)

        begun, end = threading.Event(), threading.Event()
        with filesystem("ext4") as where:
            with store_in(where) as first:
                offer(first, wish())
            store = PoolStore(config_of(where), Slow())
            thread = threading.Thread(target=store.attach_all)
            thread.start()
            assert begun.wait(120)
            store.close()
            with store_in(where) as second:
                assert "another agent" in second.look().problem
                end.set()
                thread.join()
                assert second.look().problem == ""

    def test_what_is_closed_while_it_is_opened_is_waited_for(self) -> None:
        """Were it a problem like others, volumes would be made in another pool meanwhile."""

        def closing(*args: Any) -> PoolRoot:
            if not closed:
                closed.append(True)
                session.close()
            return PoolRoot(*args)

        closed: list[bool] = []
        with filesystem("ext4") as where:
            session = Session(config_of(where), (), closing)
            with pytest.raises(BackendFailed, match="closed meanwhile") as told, session.using():
                pass
            assert isinstance(told.value.__cause__, PoolTaken)
            with session.using() as using:
                assert using.root.id
            session.close()

    def test_two_things_at_once_with_one_volume(self) -> None:
        class Slow(DirectoryBackend):
            def is_untouched(self, pool: int, path: str, record: object) -> bool:
                begun.set()
                return end.wait(120)

        begun, end = threading.Event(), threading.Event()
        with filesystem("ext4") as where, store_in(where, backend=Slow()) as store:
            record = offer(store, wish())
            other = offer(store, wish("pvc-2"))
            thread = threading.Thread(target=store.take_away, args=(record,))
            thread.start()
            assert begun.wait(120)
            with pytest.raises(BackendFailed, match="something else is being done"):
                store.grow(record, 2 << 20)
            assert store.grow(other, 2 << 20).size_bytes == 2 << 20
            end.set()
            thread.join()
            assert not (where / "pvc-1").exists()


class TestSickFilesystems:
    def test_read_only(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish())
            command("mount", "-o", "remount,ro", where)
            assert "read-only" in problem(store)
            command("mount", "-o", "remount,rw", where)
            assert store.look().records == {"pvc-1": record}

    def test_read_only_by_the_mount_alone(self) -> None:
        with (
            filesystem("ext4") as there,
            bind(there, read_only=True) as where,
            store_in(where) as store,
        ):
            assert "read-only" in problem(store)

    def test_gone(self) -> None:
        with formatted("ext4") as device, mounted(device) as where:
            with store_in(where) as store:
                store.open()
            unmount(where)
            with store_in(where) as store:
                assert store.look().problem or os.stat(where).st_dev != os.stat("/").st_dev


class TestRecords:
    @pytest.mark.parametrize(
        "change",
        [
            {"directory": "../outside"},
            {"directory": "/etc"},
            {"directory": ".localvolume/records"},
            {"directory": ""},
            {"name": "pvc-2"},
            {"state": "lost"},
            {"state": "removed"},
            {"trash": "../../x"},
            {"trash": "pvc-2.00000000"},
            {"size_bytes": -1},
            {"size_bytes": "5"},
            {"backend": "tape"},
        ],
    )
    def test_what_no_agent_wrote_is_left_alone(self, change: dict[str, object]) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish())
            file = where / ".localvolume/records/pvc-1.json"
            told = json.loads(file.read_text())
            told["record"].update(change)
            file.write_text(json.dumps(told))
            report = store.look()
            assert (report.problem, report.records, report.orphans) == ("", {}, [])
            assert set(report.unreadable) == {"pvc-1"}
            for deed in (
                lambda: store.make(wish()),
                lambda: store.grow(record, 9 << 20),
                lambda: store.take_away(record),
                lambda: store.forget(record),
                lambda: store.retire(record),
                lambda: store.purge(record, stop=threading.Event()),
            ):
                with pytest.raises(NotThisVolume, match="left alone"):
                    deed()
            assert (where / "pvc-1").is_dir()
            assert json.loads(file.read_text()) == told

    @pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"version":7}'])
    def test_torn_or_foreign_text(self, text: bytes) -> None:
        with pool_on() as (store, where):
            offer(store, wish())
            (where / ".localvolume/records/pvc-1.json").write_bytes(text)
            (where / ".localvolume/records/README").write_text("by hand")
            (where / ".localvolume/records/pvc-l.json").symlink_to("pvc-1.json")
            report = store.look()
            assert set(report.unreadable) == {"pvc-1", "pvc-l", "README"}
            assert (report.problem, report.records) == ("", {})

    def test_a_record_put_back_by_hand(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish())
            file = where / ".localvolume/records/pvc-1.json"
            text = file.read_bytes()
            file.unlink()
            report = store.look()
            assert (report.records, report.orphans) == ({}, ["pvc-1"])
            file.write_bytes(text)
            report = store.look()
            assert (report.records, report.orphans) == ({"pvc-1": record}, [])

    def test_a_full_disk_leaves_nothing_half(self) -> None:
        with pool_on() as (store, where):
            keeps = offer(store, wish("pvc-keeps", claim="x" * 200_000))
            _fill(where)
            for name in ("pvc-1", "pvc-2"):
                with pytest.raises(BackendFailed, match="No space left"):
                    store.make(wish(name, claim="x" * 200_000))
            report = store.look()
            assert (report.problem, report.records) == ("", {"pvc-keeps": keeps})
            assert report.orphans == ["filler"]
            names = os.listdir(where / ".localvolume/records")
            assert names == ["pvc-keeps.json"]
            with pytest.raises(BackendFailed, match="No space left"):
                store.retire(keeps)
            assert store.look().records == {"pvc-keeps": keeps}
            (where / "filler").unlink()
            assert store.retire(keeps).state == "removed"

    def test_names_that_no_file_can_have(self) -> None:
        with pool_on() as (store, _):
            for name in ("a" * 241, "../x", ".hidden", "UPPER", "", "a/b"):
                with pytest.raises(BackendFailed, match="name"):
                    store.make(wish(name, "fine"))
            assert store.make(wish("a" * 240, "fine")).state == "made"


def _fill(where: Path) -> None:
    fd = os.open(where / "filler", os.O_CREAT | os.O_WRONLY)
    piece = 1 << 20
    while piece >= 512:
        try:
            os.write(fd, b"x" * piece)
        except OSError:
            piece //= 2
    os.close(fd)
