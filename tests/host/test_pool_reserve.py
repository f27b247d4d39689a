"""The file that a pool has in reserve to record removals on a full disk: one fills it at once."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.pool.layout import trash_name
from localvolume.backends.pool.records import Records, decode
from localvolume.host.tree.trees import TEMPORARY
from tests.host.support_pools import wish

MOMENT = 0.5


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    (tmp_path / "records").mkdir()
    ours = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    directory = os.open(tmp_path / "records", os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Records(directory, ours)
    finally:
        os.close(directory)
        os.close(ours)


def test_who_fills_it_does_not_write_over_the_record_that_it_became(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two removals end at once, and a third is recorded with what they fill."""
    real_open, real_write = os.open, os.pwrite
    wanted = wish()
    gone = replace(wanted, state="removed", inode=7, trash=trash_name(replace(wanted, inode=7)))
    for name in ("pvc-1", "pvc-2", "pvc-3"):
        records.write(wish(name))
    others: list[threading.Thread] = []

    def full(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path).startswith(TEMPORARY):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real_open(path, flags, mode, dir_fd=dir_fd)

    def meanwhile() -> None:
        records.delete("pvc-3")
        records.write(gone, reserved=True)

    def filling(fd: int, data: Any, start: int) -> int:
        if not others:
            others.append(threading.Thread(target=meanwhile))
            others[0].start()
            # They wait until this is written, or are done long before.
            others[0].join(MOMENT)
        return real_write(fd, data, start)

    monkeypatch.setattr(os, "open", full)
    monkeypatch.setattr(os, "pwrite", filling)
    records.delete("pvc-2")
    (other,) = others
    other.join()
    assert decode("pvc-1", (tmp_path / "records" / "pvc-1.json").read_bytes()) == gone
    records.refresh()
    assert records.all() == {"pvc-1": gone}
