"""What the image backend refuses, and what it makes of disks, tools and kernels that fail it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.image import growing, store
from localvolume.backends.image.backend import ImageBackend
from localvolume.backends.image.links import Links
from localvolume.backends.model import BackendFailed, Impossible, NoSpace, NotThisVolume
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import Run
from tests.host.support_devices import filesystem, immutable, loop_device, mounted
from tests.host.support_images import ImagePool, image_pool, run_here
from tests.host.support_mounts import mount
from tests.host.support_privileges import (
    CAP_SYS_RESOURCE,
    in_own_mounts,
    without_capability,
)
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")

xfs = pytest.mark.needs("xfs")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ImagePool]:
    with image_pool(tmp_path, run_here) as pool:
        yield pool


def with_tools(pool: ImagePool, run: Run) -> ImagePool:
    """The same pool, whose commands are run otherwise."""
    return replace(pool, backend=ImageBackend(run, str(pool.links)))


class Tools:
    """Runs the host's tools; some of them otherwise, by their names."""

    def __init__(self, **others: Callable[[list[str]], Finished | list[str]]) -> None:
        self.others = others
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        words = list(argv)
        self.asked.append(words[0])
        other = self.others.get(words[0].replace(".", "_"))
        answer = words if other is None else other(words)
        return run_here(answer, timeout, **more) if isinstance(answer, list) else answer


def ended(code: int, said: str = "") -> Callable[[list[str]], Finished]:
    return lambda argv: Finished(tuple(argv), code, "", said, False, 0.0)


class TestNames:
    def test_what_is_no_name_has_no_link(self, tmp_path: Path) -> None:
        links = Links(str(tmp_path))
        for pool_id, name in (("..", "pvc-1"), ("a/b", "pvc-1"), ("id", ".."), ("id", "")):
            for deed in (links.target, links.remove):
                with pytest.raises(ValueError, match="not a name"):
                    deed(pool_id, name)
            with pytest.raises(ValueError, match="not a name"):
                links.lead(pool_id, name, "/dev/loop0")
        assert list(tmp_path.iterdir()) == []

    def test_something_else_where_a_link_is_to_be(self, tmp_path: Path) -> None:
        """A file is replaced by the link; what cannot even be looked at is told."""
        links = Links(str(tmp_path))
        (tmp_path / "id").mkdir()
        (tmp_path / "id/pvc-1").write_text("a file")
        assert links.target("id", "pvc-1") == ""
        links.lead("id", "pvc-1", "/dev/loop0")
        assert links.target("id", "pvc-1") == "/dev/loop0"
        (tmp_path / "file").write_text("where a directory should be")
        with pytest.raises(NotADirectoryError):
            links.target("file", "pvc-1")

    @pytest.mark.parametrize(
        "marker", ['{"version": 1, "id": "../elsewhere", "backend": "image"}', ""]
    )
    def test_a_pool_whose_id_is_no_name(self, pool: ImagePool, marker: str) -> None:
        place = pool.root / ".localvolume/pool.json"
        place.unlink()
        if marker:
            place.write_text(marker)
        with pytest.raises(BackendFailed, match="the pool's id cannot be read"):
            pool.make(mib=1, volume_mode="Block")
        assert not pool.links.exists()

    def test_an_image_that_appears_right_before_its_making(self, pool: ImagePool) -> None:
        pool.image(pool.record()).write_text("somebody's")
        images = os.open(pool.images, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with pytest.raises(NotThisVolume, match="is there already"):
                store.begin(images, pool.record())
        finally:
            os.close(images)
        assert os.listdir(pool.images) == ["pvc-1.img"]


class TestMaking:
    def test_where_there_are_no_loop_devices(self, pool: ImagePool) -> None:
        """A container without the host's /dev."""

        def without() -> None:
            mount("tmpfs", "/dev", "tmpfs")
            abilities = pool.backend.abilities(pool.fd, pool.path)
            assert abilities.enforce is abilities.filesystem is abilities.block is False
            assert "there is no /dev/loop-control" in abilities.why_not
            with pytest.raises(Impossible, match="there is no /dev/loop-control"):
                pool.make()

        in_own_mounts(without)
        assert os.listdir(pool.images) == []

    def test_a_size_of_nothing(self, pool: ImagePool) -> None:
        for mib in (0, -1):
            with pytest.raises(Impossible, match="at least one byte"):
                pool.make(mib=mib, volume_mode="Block")
        assert os.listdir(pool.images) == []

    def test_a_filesystem_that_reserves_no_room(self) -> None:
        """An ext2: what is promised there could be taken by anybody."""
        with filesystem("ext2") as where, image_pool(where, run_here) as pool:
            with pytest.raises(Impossible, match="reserves no room: use sparse"):
                pool.make(mib=1, volume_mode="Block", sparse=False)
            assert os.listdir(pool.images) == []
            pool.make(mib=1, volume_mode="Block")

    def test_a_disk_that_fails_in_another_way(self, pool: ImagePool) -> None:
        """Not as if there were no room: nobody would look at the disk."""

        def lock(argv: list[str]) -> Finished:
            done = run_here(argv, 60)
            stack.enter_context(immutable(pool.image(pool.record())))
            return done

        with contextlib.ExitStack() as stack, pytest.raises(PermissionError):
            with_tools(pool, Tools(debugfs=lock)).make(sparse=False)
        # What it left is known for what it is.
        pool.make(sparse=False)

    @pytest.mark.parametrize("mib", [1, 7.3, 16, 100, 128, 511, 1024, 10240, 102400])
    def test_an_ext4_is_made_with_few_commands(self, pool: ImagePool, mib: float) -> None:
        """Its size is known before: each command takes as long as all the rest."""
        tools = Tools()
        with_tools(pool, tools).make(mib=mib)
        assert tools.asked == ["mkfs.ext4", "debugfs"]

    def test_an_ext4_that_never_has_the_promised_room(self, pool: ImagePool) -> None:
        def small(argv: list[str]) -> list[str]:
            return [*argv, "4096"]

        tools = Tools(mkfs_ext4=small)
        with pytest.raises(BackendFailed, match="no ext4"):
            with_tools(pool, tools).make(mib=32)
        assert 2 < tools.asked.count("mkfs.ext4") < 10
        assert os.listdir(pool.images) == []

    @xfs
    def test_an_xfs_that_has_not_the_promised_room_at_first(self, pool: ImagePool) -> None:
        """It is made again, larger; and not for ever."""
        smaller = 1

        def small(argv: list[str]) -> list[str]:
            nonlocal smaller
            smaller -= 1
            return [*argv[:-1], "-d", "size=310m", argv[-1]] if smaller >= 0 else argv

        tools = Tools(mkfs_xfs=small)
        failing = with_tools(pool, tools)
        record = failing.make(mib=320, fs_type="xfs")
        assert tools.asked.count("mkfs.xfs") > 1
        with mounted(pool.node(record)) as where:
            found = os.statvfs(where)
            assert found.f_bavail * found.f_frsize >= 320 * MIB
        smaller = 100
        with pytest.raises(BackendFailed, match="no xfs"):
            failing.make("pvc-2", mib=320, fs_type="xfs")
        assert os.listdir(pool.images) == ["pvc-1.img"]

    def test_a_root_directory_that_has_not_its_owner(self, pool: ImagePool) -> None:
        """debugfs ends well whatever happened."""
        with pytest.raises(BackendFailed, match="debugfs did not set the owner and mode"):
            with_tools(pool, Tools(debugfs=ended(0))).make(mode=0o700)
        assert os.listdir(pool.images) == []


class TestGrowing:
    @pytest.mark.parametrize("mends", [True, False])
    def test_resize2fs_fails(self, pool: ImagePool, mends: bool) -> None:
        """No link leads to what is half resized: somebody would mount it."""
        record = pool.make()
        undo = pool.images / "pvc-1.img.undo"
        tools = Tools(resize2fs=ended(1, "resize2fs: it broke"))
        if not mends:

            def half(argv: list[str]) -> Finished:
                undo.write_bytes(b"of a resizing that broke half way")
                tools.others["e2fsck"] = ended(4, "e2fsck: errors that it does not mend")
                return ended(1)(argv)

            tools.others["resize2fs"] = half
        failing = with_tools(pool, tools)
        with without_capability(CAP_SYS_RESOURCE):
            with pytest.raises(BackendFailed, match="it broke" if mends else "e2fsck"):
                failing.grow(record, 64)
            assert undo.exists() != mends
            assert pool.link(record).is_symlink() == mends
            # Nor does the next attempt lead there, until it is mended.
            if not mends:
                with pytest.raises(BackendFailed, match="e2fsck"):
                    failing.attach(record)
                assert not pool.link(record).is_symlink()
        pool.attach(record)
        assert not undo.exists()
        assert pool.grow(record, 64).size_bytes == 64 * MIB

    def test_a_filesystem_that_reserves_no_room(self) -> None:
        """Not as if it were full: making room would help nobody."""
        with filesystem("ext2") as where, image_pool(where, run_here) as pool:
            record = replace(pool.make(mib=1, volume_mode="Block"), sparse=False)
            with pytest.raises(OSError, match="not supported") as error:
                pool.grow(record, 2)
            assert not isinstance(error.value, NoSpace)
            assert pool.image(record).stat().st_size == MIB

    def test_of_what_holds_no_filesystem_nobody_knows_how_far_it_had_grown(
        self, pool: ImagePool
    ) -> None:
        record = pool.record(fs_type="xfs", state="made")
        with pool.image(record).open("w+b") as file:
            file.truncate(64 * MIB)
            assert growing.begun_bytes(file.fileno(), record) == 0


class TestEnding:
    def test_two_loop_devices_on_one_image(self, pool: ImagePool) -> None:
        """Somebody put another one on it: whichever stays, no link may lead to the wrong one."""
        record = pool.make()
        with loop_device(backing=pool.image(record)) as other:
            holder = os.open(other.path, os.O_RDONLY | os.O_EXCL)
            try:
                with pytest.raises(BackendFailed, match="in use"):
                    pool.retire(record)
            finally:
                os.close(holder)
            assert not pool.link(record).is_symlink()
            assert pool.image(record).exists()
        # Whoever starts next leads it right.
        pool.attach(record)
        pool.retire(record)

    def test_stopped_in_the_midst_of_overwriting(self, pool: ImagePool) -> None:
        """What is left is overwritten later; it is never deleted before."""
        gone = pool.retire(pool.make(mib=12, volume_mode="Block", sparse=False, overwrite=True))
        trash = pool.trash / gone.trash
        trash.write_bytes(b"tenant" * (12 * MIB // 6))
        stop = threading.Event()
        with pytest.raises(BackendFailed, match="stopped while it was overwritten"):
            pool.purge(gone, stop=stop, progress=lambda files, count: stop.set())
        held = trash.read_bytes()
        assert held.startswith(bytes(4 * MIB))
        assert b"tenant" in held
        pool.purge(gone)
        assert not trash.exists()
