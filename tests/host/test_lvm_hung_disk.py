"""A disk of a volume group hangs: what reads LVM's headers from it takes one thread, not all."""

from __future__ import annotations

import threading

import pytest

from localvolume.backends.lvm.kept import Kept
from localvolume.backends.lvm.view import View
from localvolume.host.lvm.report import VolumeGroup
from tests.suite.units import MIB
from tests.suite.until import until

from .support_dead import dead_disk

pytestmark = pytest.mark.needs("root", "loop", "fuse")


def test_only_one_waits_for_a_disk_that_hangs() -> None:
    with dead_disk() as disk:
        group = VolumeGroup(
            name="group",
            uuid="uuid",
            size_bytes=16 * MIB,
            free_bytes=0,
            extent_bytes=4 * MIB,
            disks=(disk.device.number,),
        )
        seen = View(id="pool-1", group=group, pool=None, volumes={})
        kept = Kept(group.name)
        # LVM tells which disks the group has; the next one who looks reads them.
        assert kept.look(lambda: seen) is seen
        asked: list[int] = []

        def look(number: int) -> None:
            kept.look(lambda: seen)
            asked.append(number)

        threads = [threading.Thread(target=look, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: len(asked), lambda count: count >= 4)
        assert len(asked) == 4
        disk.answer()
        for thread in threads:
            thread.join()
        assert len(asked) == 5
