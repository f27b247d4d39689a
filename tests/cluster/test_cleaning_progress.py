"""How far a cleaning is, told while it runs, and not after it."""

import threading

import pytest

from localvolume.cleaning.paces import CleaningPaces
from localvolume.host.block import blockdev
from tests.cluster.support_agent import Lab
from tests.cluster.support_frozen import OVERWRITE, OVERWRITTEN_BYTES, OVERWRITTEN_PASSES

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

WRITES = 5
"""So many go through before the disk stalls, of some for each pass."""


def test_bytes_done_and_to_be_done(lab: Lab) -> None:
    """Of a disk that stalls in the midst of it."""
    goes_on = threading.Event()
    lab.stack.callback(goes_on.set)
    writes: list[int] = []

    def set_direct(fd: int, on: bool) -> bool:
        # Asked before each write, and after it.
        if on:
            writes.append(fd)
            assert len(writes) <= WRITES or goes_on.wait(120)
        return blockdev.set_direct(fd, on)

    lab.hurry(cleaning=CleaningPaces(progress=0.0))
    lab.ask_kernel(set_direct=set_direct)
    cls = lab.add_class("block", volumeMode="Block", blockCleanerCommand=OVERWRITE)
    lab.link(lab.raw_disk(OVERWRITTEN_BYTES), cls.path("stalls"))
    lab.start()
    volume = lab.published(cls, "stalls")
    about = {"persistentvolume": volume["metadata"]["name"]}
    lab.delete_claim(lab.bound(volume))
    done = lab.until(lambda: lab.metric("localvolume_cleaning_done_bytes", **about) or 0, bool)
    # Said after what is done, and answered by a thread that may come in between.
    total = lab.until(lambda: lab.metric("localvolume_cleaning_total_bytes", **about), bool)
    # The last pass is of zeros.
    assert total == (OVERWRITTEN_PASSES + 1) * OVERWRITTEN_BYTES
    assert done < total
    goes_on.set()
    lab.published(cls, "stalls", unlike=volume["metadata"]["uid"])
    for name in ("done", "total"):
        assert lab.metric(f"localvolume_cleaning_{name}_bytes", **about) is None
