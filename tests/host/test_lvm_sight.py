"""A device with a loop device on it is a Block volume in use: LVM is not shown it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.lvm import devicefilter
from tests.host.support_devices import loop_device

pytestmark = pytest.mark.needs("root", "loop")


@pytest.mark.parametrize("in_sight", [True, False])
def test_what_a_loop_device_stands_on_is_given(
    in_sight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kubelet puts it there, also where its own node is not to be seen."""
    with loop_device() as disk:
        assert disk.number not in devicefilter.given([])
        with loop_device(backing=Path(disk.path)) as upon:
            real = os.open

            def hidden(path: Any, *arguments: Any, **options: Any) -> int:
                if path == upon.path and not in_sight:
                    raise FileNotFoundError(path)
                return real(path, *arguments, **options)

            monkeypatch.setattr(os, "open", hidden)
            assert disk.number in devicefilter.given([])
            assert upon.number not in devicefilter.given([])
            monkeypatch.undo()


def test_what_a_directory_offers_is_given(tmp_path: Path) -> None:
    """By a link, or by a node of its own."""
    with loop_device() as disk, loop_device() as other:
        (tmp_path / "link").symlink_to(disk.path)
        os.mknod(tmp_path / "node", stat.S_IFBLK | 0o600, os.stat(other.path).st_rdev)
        assert devicefilter.given([str(tmp_path)]) >= {disk.number, other.number}
        assert not devicefilter.given([str(tmp_path / "none")]) & {disk.number, other.number}


def test_all_devices_of_the_machine_are_found() -> None:
    with loop_device() as disk:
        (found,) = [one for one in devicefilter.blocks() if one.name == disk.name]
        assert found == (disk.name, disk.path, disk.number, "", ())
        first, second = disk.partition("8M", "8M")
        parts = {one.node: one.made_of for one in devicefilter.blocks() if one.made_of}
        assert parts[first] == parts[second] == (disk.name,)


def test_a_device_that_goes_while_it_is_looked_at_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link in sysfs is there for one system call, and gone for the next."""
    read_link, gone = os.readlink, set[str]()

    def readlink(path: str) -> str:
        if path.startswith("/sys/class/block/"):
            gone.add(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return read_link(path)

    monkeypatch.setattr(os, "readlink", readlink)
    assert {one.name for one in devicefilter.blocks()} <= {os.path.basename(path) for path in gone}
    assert gone
