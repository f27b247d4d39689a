"""The life of logical volumes in a pool: made, offered, grown, removed."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.backends.model import GoesOn
from localvolume.volumes.capacity import bytes_of
from tests.host.support_devices import command
from tests.pages import REPOSITORY
from tests.suite.units import MIB

from .support_lvm import LARGE_DISK, clear, group_on
from .support_lvm_store import Pool, pool_on, read, write


def room(where: Path) -> int:
    found = os.statvfs(where)
    return found.f_blocks * found.f_frsize


def test_the_life_of_a_filesystem(either: Pool) -> None:
    made = either.store.make(either.record(mib=10, mode=0o2770, uid=1000, gid=70000))
    assert made.state == "made"
    assert made.size_bytes == 12 * MIB == either.there("pvc-1").size_bytes
    offered = either.store.offered(made, "pv-uid")
    assert either.store.host_path(offered) == "/dev/vg0/pvc-1"
    with either.mounted("pvc-1") as where:
        found = where.stat()
        assert stat.S_IMODE(found.st_mode) == 0o2770
        assert (found.st_uid, found.st_gid) == (1000, 70000)
        (where / "file").write_bytes(b"tenant data")
        before = room(where)
        # Journal and inode tables come out of the size: docs/pools.md says so.
        assert 7 * MIB < before < 12 * MIB
        offered = either.store.grow(offered, 20 * MIB)
        assert offered.size_bytes == 20 * MIB
        assert before + 7 * MIB < room(where) < 20 * MIB
    # And while it is mounted nowhere.
    offered = either.store.grow(offered, 29 * MIB)
    assert offered.size_bytes == 32 * MIB
    # As one that is moved to the CSI driver.
    offered = either.store.offered(offered, "pv-uid-2", driver="csi.localvolume.dev")
    assert (offered.volume_uid, offered.driver) == ("pv-uid-2", "csi.localvolume.dev")
    report = either.store.look()
    assert not report.problem
    assert not report.warnings
    assert report.records == {"pvc-1": offered}
    usage = report.usage["pvc-1"]
    assert usage.used_bytes is not None
    assert usage.used_bytes < MIB
    with either.mounted("pvc-1") as where:
        assert (where / "file").read_bytes() == b"tenant data"
        assert 24 * MIB < room(where) < 32 * MIB
        with pytest.raises(Exception, match="in use"):
            either.store.retire(offered)
        assert either.store.look().records["pvc-1"].state == "offered"
    gone = either.store.retire(offered)
    assert gone.state == "removed"
    assert not os.path.lexists("/dev/vg0/pvc-1")
    assert either.store.retire(offered) == gone
    either.purge(gone)
    assert either.volume("pvc-1") is None
    either.purge(gone)


def test_the_life_of_an_xfs(thick: Pool) -> None:
    offered = thick.offer(mib=300, fs_type="xfs", mode=0o750, uid=7)
    assert offered.size_bytes == 300 * MIB
    with thick.mounted("pvc-1") as where:
        assert (stat.S_IMODE(where.stat().st_mode), where.stat().st_uid) == (0o750, 7)
        (where / "file").write_bytes(b"tenant data")
        before = room(where)
        offered = thick.store.grow(offered, 340 * MIB)
        assert room(where) == before + 40 * MIB
    offered = thick.store.grow(offered, 400 * MIB)
    with thick.mounted("pvc-1") as where:
        assert room(where) == before + 100 * MIB
        assert (where / "file").read_bytes() == b"tenant data"
        usage = thick.store.look().usage["pvc-1"]
        assert usage.available_bytes is not None
        assert usage.available_bytes > 300 * MIB


def promised() -> Iterator[tuple[tuple[str, int], list[int]]]:
    """What docs/pools.md says is left of a size, all in MiB: by filesystem and size, what df shows
    and what of that is available."""
    text = (REPOSITORY / "docs" / "pools.md").read_text()
    table = text[text.index("| a logical volume of |") :].partition("\n\n")[0]
    heads, _, *rows = [row.strip("| ").split("|") for row in table.splitlines()]
    for fs, *cells in rows:
        for head, cell in zip(heads[1:], cells, strict=True):
            size = bytes_of(head.strip(" `"))
            assert size
            if cell.strip():
                numbers = [int(number) for number in re.findall(r"\d+", cell)]
                yield (fs.strip(), size // MIB), numbers


@pytest.mark.soak
def test_what_is_left_of_a_size_is_what_the_page_says(tmp_path: Path) -> None:
    told, left = dict(promised()), {}
    assert len(told) == 5
    with group_on(LARGE_DISK, "large") as group:
        pool = pool_on(group, tmp_path)
        for fs, mib in told:
            offered = pool.offer(mib=mib, fs_type=fs)
            assert offered.size_bytes == mib * MIB
            with pool.mounted("pvc-1") as where:
                found = os.statvfs(where)
            shown = (found.f_blocks, found.f_bavail)
            left[fs, mib] = [blocks * found.f_frsize // MIB for blocks in shown]
            pool.purge(pool.store.retire(offered))
        pool.end()
    # mkfs of another release may choose a little differently.
    assert left == {size: pytest.approx(numbers, rel=0.02) for size, numbers in told.items()}


GARBAGE = b"what another tenant wrote, and nobody else may read.\n" * 20165


def litter(pool: Pool, mib: int) -> None:
    """Leave a tenant's data in the extents that are given to the next volume."""
    pool.lvm.create(pool.group, "litter", mib * MIB)
    for start in range(0, mib * MIB, MIB):
        write(pool.node("litter"), GARBAGE[:MIB], start)
    litter = pool.there("litter")
    pool.lvm.deactivate(litter)
    pool.lvm.remove(litter)


def test_a_raw_volume_shows_nobody_what_was_in_its_extents(thick: Pool) -> None:
    litter(thick, 24)
    offered = thick.offer(mib=5, volume_mode="Block")
    assert offered.size_bytes == 8 * MIB
    assert read(thick.node("pvc-1"), 8 * MIB) == bytes(8 * MIB)
    write(thick.node("pvc-1"), b"tenant data")
    # While its pod has it open, too: it never sees what it grows by before that is zeros.
    fd = os.open(thick.node("pvc-1"), os.O_RDONLY)
    try:
        offered = thick.store.grow(offered, 17 * MIB)
    finally:
        os.close(fd)
    assert offered.size_bytes == 20 * MIB
    content = read(thick.node("pvc-1"), 20 * MIB)
    assert content == b"tenant data".ljust(20 * MIB, b"\0")
    assert set(thick.lvm_names()) == {"pvc-1"}


def test_zeroing_goes_on_where_it_was_left(thick: Pool) -> None:
    litter(thick, 12)
    wanted = thick.record(mib=12, volume_mode="Block")
    with (
        thick.in_pieces(4 * MIB) as store,
        pytest.raises(GoesOn, match="zeroed up to 4194304 of 12582912 bytes"),
    ):
        store.make(wanted)
    report = thick.store.look()
    assert report.records["pvc-1"].state == "making"
    write(thick.node("pvc-1"), b"zeroed before")
    made = thick.store.make(wanted)
    assert (made.state, made.size_bytes) == ("made", 12 * MIB)
    content = read(thick.node("pvc-1"), 12 * MIB)
    assert content == b"zeroed before".ljust(12 * MIB, b"\0")


def test_growing_a_raw_volume_is_ended_by_the_next_attempt(thick: Pool) -> None:
    litter(thick, 24)
    offered = thick.offer(mib=8, volume_mode="Block")
    with thick.in_pieces(MIB) as store, pytest.raises(GoesOn):
        store.grow(offered, 16 * MIB)
    # What has been set aside is no volume, nobody's orphan, and its room is taken.
    report = thick.store.look()
    assert (set(report.records), list(report.orphans)) == ({"pvc-1"}, [])
    assert report.records["pvc-1"].size_bytes == 8 * MIB
    grown = thick.store.grow(offered, 20 * MIB)
    assert grown.size_bytes == 20 * MIB
    assert read(thick.node("pvc-1"), 20 * MIB) == bytes(20 * MIB)
    # And it goes with its volume.
    with thick.in_pieces(MIB) as store, pytest.raises(GoesOn):
        store.grow(offered, 24 * MIB)
    thick.purge(thick.store.retire(grown))
    assert thick.lvm_names() == []


def test_a_thin_raw_volume(thin: Pool) -> None:
    offered = thin.offer(mib=8, volume_mode="Block")
    write(thin.node("pvc-1"), b"x" * MIB, 4 * MIB)
    offered = thin.store.grow(offered, 16 * MIB)
    content = read(thin.node("pvc-1"), 16 * MIB)
    assert content.strip(b"\0") == b"x" * MIB
    assert thin.store.look().usage["pvc-1"].used_bytes == pytest.approx(MIB, rel=0.1)


def test_a_volume_that_is_on_several_disks(second_group: str, tmp_path: Path) -> None:
    command("vgextend", "--quiet", "--yes", second_group, "/dev/ubdc")
    try:
        pool = pool_on(second_group, tmp_path, lvm={"stripes": 2, "stripe_bytes": 65536})
        offered = pool.offer(mib=5, volume_mode="Block")
        assert offered.size_bytes == 8 * MIB
        offered = pool.store.grow(offered, 9 * MIB)
        assert offered.size_bytes == 16 * MIB
        assert read(pool.node("pvc-1"), 16 * MIB) == bytes(16 * MIB)
        pool.end()
    finally:
        clear(second_group, "/dev/ubdc")
