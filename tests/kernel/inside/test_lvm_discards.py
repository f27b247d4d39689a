"""A host whose LVM discards what it removes: the zeroed room that a raw volume grows by stays."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.suite.units import MIB

from .support_lvm import DISKS
from .support_lvm_store import Pool, read, write


@pytest.fixture
def discarding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """LVM as the guest has it, and with `issue_discards=1` in its lvm.conf."""
    told = Path(os.environ["LVM_SYSTEM_DIR"], "lvm.conf").read_text()
    system = tmp_path / "lvm"
    system.mkdir()
    (system / "lvm.conf").write_text(f"{told}devices/issue_discards=1\n")
    with monkeypatch.context() as patched:
        patched.setenv("LVM_SYSTEM_DIR", str(system))
        yield


def discards() -> int:
    """How many the group's disk was ever given."""
    # Documentation/block/stat.rst: the twelfth field.
    name = Path(DISKS[0]).name
    return int(Path(f"/sys/block/{name}/stat").read_text().split()[11])


def test_the_room_that_a_raw_volume_grows_by_is_not_discarded(
    thick: Pool, discarding: None
) -> None:
    # An ordinary removal is discarded: so is told what is not.
    thick.lvm.create(thick.group, "ordinary", 24 * MIB)
    before = discards()
    thick.lvm.deactivate(thick.there("ordinary"))
    thick.lvm.remove(thick.there("ordinary"))
    assert discards() > before
    offered = thick.offer(mib=8, volume_mode="Block")
    write(thick.node("pvc-1"), b"tenant data")
    before = discards()
    offered = thick.store.grow(offered, 20 * MIB)
    assert offered.size_bytes == 20 * MIB
    assert discards() == before
    content = read(thick.node("pvc-1"), 20 * MIB)
    assert content == b"tenant data".ljust(20 * MIB, b"\0")
