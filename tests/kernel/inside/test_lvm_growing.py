"""Growing and making that end early: what they have taken of the group is known, told and used."""

from pathlib import Path

import pytest

from localvolume.backends.capacity import capacity
from localvolume.backends.lvm.record import growth_name
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import BackendFailed, GoesOn, NoSpace, Record
from localvolume.host.lvm.commands import Lvm
from tests.host.support_devices import command
from tests.host.support_privileges import CAP_SYS_RESOURCE, without_capability
from tests.suite.units import MIB

from .support_lvm import EXTENT, clear
from .support_lvm_dynamic import LvmLab, lab
from .support_lvm_store import Pool, pool_on, read

__all__ = ["lab"]


def begin(pool: Pool, record: Record, mib: int) -> None:
    """Begin to let a raw volume grow, and end early."""
    with pool.in_pieces(MIB) as store, pytest.raises(GoesOn):
        store.grow(record, mib * MIB)


def begun(pool: Pool) -> int:
    """The MiB that the volume has to grow by, as the pool's report tells."""
    usage = pool.store.look().usage.get("pvc-1")
    return usage.begun_bytes // MIB if usage else 0


def left(pool: Pool) -> int:
    """The MiB that may still be promised."""
    return capacity(pool.store.config, pool.store.look()) // MIB


def keep(pool: Pool, mib: int) -> None:
    """Leave so much room in the group."""
    free = pool.lvm.group(pool.group).free_bytes
    pool.lvm.create(pool.group, "full", free - mib * MIB)


def test_what_is_set_aside_for_a_raw_volume_is_told(thick: Pool) -> None:
    offered = thick.offer(mib=8, volume_mode="Block")
    keep(thick, 12)
    assert (begun(thick), left(thick)) == (0, 12)
    begin(thick, offered, 16)
    assert (begun(thick), left(thick)) == (8, 4)
    # Less is wanted after all, and then more: what it gave back is room again at once.
    begin(thick, offered, 12)
    assert (begun(thick), left(thick)) == (4, 8)
    begin(thick, offered, 20)
    assert (begun(thick), left(thick)) == (12, 0)
    with pytest.raises(NoSpace):
        thick.store.grow(offered, 24 * MIB)
    grown = thick.store.grow(offered, 20 * MIB)
    assert (begun(thick), grown.size_bytes) == (0, 20 * MIB)
    assert read(thick.node("pvc-1"), 20 * MIB) == bytes(20 * MIB)
    assert set(thick.lvm_names()) == {"full", "pvc-1"}


def test_what_a_filesystem_has_not_grown_into_is_told(either: Pool) -> None:
    offered = either.offer(mib=12)
    before = left(either)
    with (
        without_capability(CAP_SYS_RESOURCE),
        pytest.raises(BackendFailed, match="takes CAP_SYS_RESOURCE"),
    ):
        either.store.grow(offered, 24 * MIB)
    assert (begun(either), left(either)) == (12, before - 12)
    usage = either.store.look().usage["pvc-1"]
    assert usage.used_bytes is not None
    assert either.store.grow(offered, 24 * MIB).size_bytes == 24 * MIB
    assert (begun(either), left(either)) == (0, before - 12)


def test_a_growth_at_which_another_agent_was_killed_is_not_taken_for_done(thick: Pool) -> None:
    """LVM has the new size on record, and the kernel's device is as small as before."""
    offered = thick.offer(mib=8)
    thick.store.close()
    thick.lvm.extend(thick.there("pvc-1"), 16 * MIB)
    device = f"{thick.group}-pvc--1"
    table = command("dmsetup", "table", device).split()
    table[1] = str(8 * MIB // 512)
    command("dmsetup", "load", device, "--table", " ".join(table))
    command("dmsetup", "suspend", device)
    command("dmsetup", "resume", device)
    assert thick.store.grow(offered, 16 * MIB).size_bytes == 16 * MIB
    assert len(read(thick.node("pvc-1"), 17 * MIB)) == 16 * MIB


def test_what_is_let_go_of_keeps_no_room_to_grow_by(thick: Pool) -> None:
    offered = thick.offer(mib=8, volume_mode="Block")
    begin(thick, offered, 16)
    # Others' of that name is nobody's business; ours of another volume neither.
    theirs = growth_name("pvc-2")
    thick.lvm.create(thick.group, theirs, EXTENT)
    thick.store.forget(offered)
    assert set(thick.lvm_names()) == {"pvc-1", theirs}
    assert list(thick.store.look().orphans) == ["pvc-1"]
    thick.store.forget(thick.offer("pvc-2", mib=8, volume_mode="Block"))
    assert set(thick.lvm_names()) == {"pvc-1", "pvc-2", theirs}


def test_a_raw_volume_of_no_whole_extents_goes_on_as_it_is_reported(thick: Pool) -> None:
    size = 9 * MIB + 1
    wanted = thick.record(mib=size / MIB, volume_mode="Block")
    assert wanted.size_bytes == size
    found = []
    with thick.in_pieces() as store:
        for _ in range(2):
            with pytest.raises(GoesOn, match="zeroed up to"):
                store.make(wanted)
            # As the plan has it from then on.
            wanted = store.look().records["pvc-1"]
            found.append(thick.there("pvc-1").uuid)
        made = store.make(wanted)
    assert (made.state, made.size_bytes) == ("made", 12 * MIB)
    assert {*found} == {thick.there("pvc-1").uuid}


def test_the_room_of_striped_volumes_is_what_they_can_have(
    second_group: str, tmp_path: Path
) -> None:
    command("vgextend", "--quiet", "--yes", second_group, "/dev/ubdc")
    try:
        pool = pool_on(second_group, tmp_path, lvm={"stripes": 2, "stripe_bytes": 65536})
        command("lvcreate", "--quiet", "--yes", "--name", "full", "--extents", "251", second_group)
        assert pool.store.look().available_bytes == 3 * EXTENT
        assert left(pool) == 8
        with pytest.raises(NoSpace):
            pool.store.make(pool.record(mib=9))
        pool.end()
    finally:
        clear(second_group, "/dev/ubdc")


def test_an_agent_ends_what_was_begun_in_the_room_that_is_left(
    lab: LvmLab, volume_group: str, lvm: Lvm
) -> None:
    """Zeroed an extent at a time, of no whole extents, and growing into all that is left."""
    lvm.create(volume_group, "full", lvm.group(volume_group).free_bytes - 24 * MIB)
    lab.group(volume_group)
    cls = lab.storage_class()
    lab.hurry_dynamic(zeroing=Zeroing(piece=EXTENT, seconds=0.0))
    lab.start()
    claim = lab.claim(cls, size=str(9 * MIB + 1), volumeMode="Block")
    volume = lab.made(claim)
    made = lab.lv(volume)
    assert made is not None
    assert made.size_bytes == 12 * MIB
    lab.grow(claim, str(21 * MIB))
    lab.until(lambda: lab.has(claim), lambda size: size == "24Mi")
    lab.stop()
    assert read(f"/dev/{volume_group}/{volume['metadata']['name']}", 24 * MIB) == bytes(24 * MIB)
    assert {one["type"] for one in lab.events(claim["metadata"]["name"])} == {"Normal"}
