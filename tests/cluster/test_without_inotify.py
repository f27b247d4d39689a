"""A node whose inotify instances are all taken: looked at now and then, until there is one."""

import errno
from dataclasses import replace

import pytest
from asyncinotify import Inotify

from tests.cluster.support_agent import Lab

pytestmark = pytest.mark.needs("root", "loop", "controlplane")


def test_what_is_put_into_a_directory_is_found(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    lab.paces = replace(lab.paces, blind=0.2)
    block = lab.add_class("block", volumeMode="Block")
    disks = [lab.raw_disk() for _ in range(3)]
    with monkeypatch.context() as taken:
        taken.setattr(Inotify, "__init__", none_left)
        lab.start()
        assert lab.logged("discovery directories are looked at every 0.2 s")
        lab.link(disks[0], block.path("one"))
        lab.published(block, "one")
        # Also of another configuration.
        other = lab.add_class("other", volumeMode="Block")
        lab.configure()
        lab.link(disks[1], other.path("two"))
        lab.published(other, "two")
        assert not lab.logged("directories are watched now")
    lab.until(lambda: lab.logged("directories are watched now"), bool)
    lab.link(disks[2], block.path("three"))
    lab.published(block, "three")
    assert sum("directories are watched now" in line for line in lab.log()) == 1
