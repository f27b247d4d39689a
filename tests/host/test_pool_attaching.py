"""Attaching all volumes of a pool while something else is done with one of them."""

from __future__ import annotations

import threading

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.model import BackendFailed, Record
from tests.host.support_devices import filesystem
from tests.host.support_pools import ON_EXT4, offer, store_in, wish

pytestmark = ON_EXT4


class Slow(DirectoryBackend):
    """Attaches nothing until it is told to go on."""

    def __init__(self) -> None:
        self.seen: list[Record] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def attach(self, pool: int, path: str, record: Record) -> None:
        self.seen.append(record)
        self.begun.set()
        assert self.go_on.wait(60)


def test_one_that_grows_meanwhile_is_attached_as_it_is_then() -> None:
    with filesystem("ext4") as where:
        with store_in(where) as before:
            records = {name: offer(before, wish(name)) for name in ("pvc-1", "pvc-2")}
        slow = Slow()
        with store_in(where, backend=slow) as store:
            thread = threading.Thread(target=store.attach_all)
            thread.start()
            assert slow.begun.wait(60)
            first = slow.seen[0].name
            (second,) = records.keys() - {first}
            # Of the one whose limit is being set, nobody else sets it: the other would be lost.
            with pytest.raises(BackendFailed, match="something else is being done"):
                store.grow(records[first], 5 << 20)
            store.grow(records[second], 5 << 20)
            slow.go_on.set()
            thread.join()
            assert [one.size_bytes for one in slow.seen] == [1 << 20, 5 << 20]


def test_one_that_goes_meanwhile_is_not_attached_and_is_no_failure() -> None:
    with filesystem("ext4") as where:
        with store_in(where) as before:
            records = {name: offer(before, wish(name)) for name in ("pvc-1", "pvc-2")}
        slow = Slow()
        failed: dict[str, str] = {}
        with store_in(where, backend=slow) as store:
            thread = threading.Thread(target=lambda: failed.update(store.attach_all()))
            thread.start()
            assert slow.begun.wait(60)
            (second,) = records.keys() - {slow.seen[0].name}
            store.retire(records[second])
            slow.go_on.set()
            thread.join()
            assert failed == {}
            assert len(slow.seen) == 1
