"""The mount table is read whole while others mount and unmount."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.mount.mounts import read_mount_table
from tests.host.support_mounts import Mounts, restless

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    with Mounts() as made:
        yield made


def test_no_mount_is_missed_while_others_come_and_go(mounts: Mounts, tmp_path: Path) -> None:
    """The file is read in pages; one that loses a line between two would make a volume vanish."""
    place = os.path.realpath(tmp_path)
    lasting = [mounts.tmpfs(f"{place}/lasting-{number:03}-{'x' * 80}") for number in range(60)]
    churned = [f"{place}/churned-{number}" for number in range(5)]
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            for path in churned:
                mounts.tmpfs(path)
            for path in churned:
                mounts.umount(path)

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(40):
            table = read_mount_table()
            if table.settled:
                assert all(table.at(path) is not None for path in lasting)
    finally:
        done.set()
        churning.join()
    settled = read_mount_table()
    assert settled.settled
    assert all(settled.at(path) is not None for path in lasting)
    assert all(settled.at(path) is None for path in churned)


def test_a_change_during_the_reading_is_noticed_and_read_again(
    mounts: Mounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = os.path.realpath(tmp_path)
    real_read = os.read
    left = [2]

    def read_and_mount(descriptor: int, size: int) -> bytes:
        data = real_read(descriptor, size)
        if not data and left[0]:
            left[0] -= 1
            mounts.tmpfs(f"{place}/late-{left[0]}")
        return data

    monkeypatch.setattr(os, "read", read_and_mount)
    table = read_mount_table()
    assert table.settled
    assert left[0] == 0
    assert table.at(f"{place}/late-0") is not None, "mounted after the first and second reading"

    with restless(f"{place}/restless"):
        assert not read_mount_table().settled
