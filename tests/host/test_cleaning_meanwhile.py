"""What changes on the node while a cleaning looks or works, and machines that are otherwise."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

from localvolume.cleaning import priority
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import CleaningFailed, CleaningRefused, Progress
from localvolume.cleaning.target import Target
from localvolume.host.block.blockdev import set_direct
from localvolume.host.syscalls import mount_id
from tests.host.support_cleaning import DELETE_FILES, mount_target, run_clean
from tests.host.support_mounts import Mounts, mount_namespace
from tests.host.test_cleaning_files import slow_deletion

PER_LINUX32 = 8  # linux/personality.h


@pytest.mark.needs("root")
async def test_a_mount_that_comes_while_files_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not entered; and what is gone already is not said to be untouched."""
    slow_deletion(monkeypatch, 0.02)
    with Mounts() as mounts:
        where = Path(mounts.tmpfs(str(tmp_path.resolve() / "volume")))
        for number in range(1000):  # more than go before it is looked at
            (where / str(number)).touch()
        inside = where / "inside"

        def told(progress: Progress) -> None:
            if progress.done_files and not inside.exists():
                mounts.tmpfs(str(inside))
                (inside / "letter").write_text("of somebody else")

        paces = CleaningPaces(first_slice=0.0, progress=0.0)
        with pytest.raises(CleaningFailed, match=str(inside)) as failed:
            await run_clean(mount_target(where), DELETE_FILES, progress=told, paces=paces)
        assert failed.value.touched
        assert not isinstance(failed.value, CleaningRefused)
        assert (inside / "letter").exists()


@pytest.mark.needs("root", "mount")
async def test_a_mount_that_only_others_see_is_not_emptied(tmp_path: Path) -> None:
    """Its path leads there through another process, and the mount table has nothing of it."""
    where = tmp_path.resolve() / "volume"
    where.mkdir()
    with mount_namespace(f"mount -t tmpfs none {where}; echo data > {where}/letter") as pid:
        path = f"/proc/{pid}/root{where}"
        fd = os.open(path, os.O_RDONLY)
        try:
            number, found = mount_id(fd), os.fstat(fd).st_dev
        finally:
            os.close(fd)
        device = f"{os.major(found)}:{os.minor(found)}"
        target = Target("filesystem", path, device, number, identity={"kind": "filesystem"})
        with pytest.raises(CleaningRefused, match=f"the mount {number} is gone"):
            await run_clean(target, DELETE_FILES)
        assert Path(path, "letter").exists()


def test_what_takes_no_direct_reads_is_read_through_the_cache() -> None:
    """Which was dropped right before."""
    with open("/proc/self/status", "rb") as file:
        assert not set_direct(file.fileno(), True)
        assert file.read(4)


def test_on_a_machine_whose_calls_have_unknown_numbers_it_works_at_its_priority() -> None:
    seen: list[object] = []

    def work() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.personality(PER_LINUX32)  # of this thread: the kernel gives another machine's name
        seen.append(priority.current())
        seen.append(priority.at_idle(lambda text: f"{text} done", "work"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, "work done"]
