"""Volumes of LVM made, looked at, grown, tagged and removed, by LVM itself."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.host.block.sysfs import block_number
from localvolume.host.lvm.commands import HasSnapshots, LogicalVolume, Lvm
from localvolume.volumes import lvtags
from tests.host.support_devices import command, mounted
from tests.suite.units import MIB

from .support_lvm import DISKS, EXTENT, classic_snapshot


def found(lvm: Lvm, group: str, name: str) -> LogicalVolume:
    volume = lvm.volume(group, name)
    assert volume is not None
    return volume


def test_a_thick_volume_from_its_making_to_its_removal(lvm: Lvm, volume_group: str) -> None:
    before = lvm.group(volume_group)
    assert (before.extent_bytes, before.missing, before.writable) == (EXTENT, 0, True)
    assert before.free_bytes == before.size_bytes == 127 * EXTENT
    lvm.create(volume_group, "one", 5 * MIB, tags=["b=2", "a=1"])
    made = found(lvm, volume_group, "one")
    assert (made.size_bytes, made.kind, made.tags) == (
        2 * EXTENT,
        "thick",
        frozenset({"a=1", "b=2"}),
    )
    assert (made.active, made.open, made.suspended, made.writable) == (True, False, False, True)
    assert (made.health, made.data_percent, made.has_snapshots) == ("", None, False)
    number = os.stat(made.path).st_rdev
    assert made.device == f"{os.major(number)}:{os.minor(number)}"
    assert lvm.group(volume_group).free_bytes == before.free_bytes - 2 * EXTENT
    with open(made.path, "rb"):
        assert found(lvm, volume_group, "one").open
    lvm.extend(made, 9 * MIB)
    lvm.extend(made, 9 * MIB)  # from the older look: it is as large as that by now
    grown = found(lvm, volume_group, "one")
    assert grown.size_bytes == 3 * EXTENT
    lvm.extend(grown, 12 * MIB)
    assert found(lvm, volume_group, "one") == grown
    lvm.deactivate(grown)
    lvm.deactivate(grown)
    asleep = found(lvm, volume_group, "one")
    assert (asleep.active, asleep.open, asleep.device) == (False, False, "")
    assert not Path(made.path).exists()
    lvm.activate(asleep)
    lvm.activate(asleep)
    assert found(lvm, volume_group, "one") == grown
    lvm.remove(grown)
    lvm.remove(grown)
    assert lvm.volumes(volume_group) == []
    assert lvm.group(volume_group) == before


def test_what_an_older_volume_has_left_is_wiped(lvm: Lvm, volume_group: str) -> None:
    lvm.create(volume_group, "one", 8 * MIB)
    command("mkfs.ext4", "-q", found(lvm, volume_group, "one").path)
    lvm.remove(found(lvm, volume_group, "one"))
    lvm.create(volume_group, "two", 8 * MIB)
    path = found(lvm, volume_group, "two").path
    assert subprocess.run(["blkid", "-p", path], capture_output=True).stdout == b""


def test_a_volume_of_several_pieces_is_one(lvm: Lvm, volume_group: str) -> None:
    lvm.create(volume_group, "one", EXTENT)
    lvm.create(volume_group, "two", EXTENT)
    lvm.extend(found(lvm, volume_group, "one"), 3 * EXTENT)
    told = command("lvs", "--noheadings", "-o", "lv_name,segtype", volume_group).split()
    assert told.count("one") == 2
    assert [one.name for one in lvm.volumes(volume_group)] == ["one", "two"]
    assert found(lvm, volume_group, "one").size_bytes == 3 * EXTENT


def test_a_group_is_told_at_once_as_it_is_in_parts(
    lvm: Lvm, volume_group: str, thin_pool: str
) -> None:
    empty = lvm.whole(volume_group)[0]
    # `vgs` does not tell of its physical volumes.
    assert empty.disks == (block_number(DISKS[0]),)
    assert replace(empty, free=None, disks=()) == lvm.group(volume_group)
    lvm.create(volume_group, "one", EXTENT, tags=["a", "b"])
    lvm.create(volume_group, "two", EXTENT, thin_pool=thin_pool)
    lvm.extend(found(lvm, volume_group, "one"), 3 * EXTENT)
    classic_snapshot(volume_group, "one", "then", EXTENT)
    lvm.deactivate(found(lvm, volume_group, "two"))
    group, volumes = lvm.whole(volume_group)
    assert replace(group, free=None, disks=()) == lvm.group(volume_group)
    assert volumes == lvm.volumes(volume_group)
    assert {one.name: one.zeroes for one in volumes}[thin_pool]


def test_stripes_and_mirrors_over_two_disks(lvm: Lvm, volume_group: str) -> None:
    command("vgextend", "--quiet", "--yes", volume_group, DISKS[1])
    try:
        lvm.create(volume_group, "s", 5 * MIB, stripes=2, stripe_bytes=64 << 10)
        told = command("lvs", "--noheadings", "-o", "stripes,stripe_size", f"{volume_group}/s")
        assert told.split() == ["2", "64.00k"]
        options = ["--type", "raid1", "--mirrors", "1"]
        lvm.create(volume_group, "r", 4 * MIB, options=options)
        kinds = {one.name: (one.kind, one.size_bytes) for one in lvm.volumes(volume_group)}
        assert kinds == {"s": ("thick", 2 * EXTENT), "r": ("other", EXTENT)}
        lvm.remove(found(lvm, volume_group, "r"))
    finally:
        command("vgchange", "--activate", "n", volume_group)
        command("wipefs", "--quiet", "--all", DISKS[1])
    # The second disk has vanished.
    assert lvm.group(volume_group).missing == 1
    assert found(lvm, volume_group, "s").health == "partial"


def test_a_thin_volume_from_its_making_to_its_removal(
    lvm: Lvm, volume_group: str, thin_pool: str
) -> None:
    assert lvm.volumes(volume_group)[0].kind == "pool"
    lvm.create(volume_group, "one", 500 * MIB, thin_pool=thin_pool, tags=["a=1"])
    made = found(lvm, volume_group, "one")
    assert (made.size_bytes, made.kind, made.pool) == (500 * MIB, "thin", thin_pool)
    assert (made.active, made.open, made.tags) == (True, False, frozenset({"a=1"}))
    assert made.data_percent == 0.0
    command("dd", "if=/dev/urandom", f"of={made.path}", "bs=1M", "count=32", "oflag=direct")
    pool = found(lvm, volume_group, thin_pool)
    assert (pool.kind, pool.size_bytes, pool.zeroes) == ("pool", 64 * MIB, True)
    assert pool.data_percent == 50.0
    assert pool.metadata_percent is not None
    assert 0 < pool.metadata_percent < 50
    assert found(lvm, volume_group, "one").data_percent == 6.4
    lvm.extend(made, 501 * MIB)
    assert found(lvm, volume_group, "one").size_bytes == 504 * MIB
    lvm.extend(pool, 72 * MIB)
    assert found(lvm, volume_group, thin_pool).size_bytes == 72 * MIB
    lvm.remove(made)
    assert [one.name for one in lvm.volumes(volume_group)] == [thin_pool]
    command("lvchange", "--zero", "n", f"{volume_group}/{thin_pool}")
    assert not found(lvm, volume_group, thin_pool).zeroes


def test_a_pool_of_all_the_room_there_is(lvm: Lvm, volume_group: str) -> None:
    lvm.create_pool(volume_group, "all", None)
    assert lvm.group(volume_group).free_bytes < 2 * EXTENT
    assert found(lvm, volume_group, "all").size_bytes >= 120 * EXTENT


def test_thin_snapshots(lvm: Lvm, volume_group: str, thin_pool: str) -> None:
    lvm.create(volume_group, "one", 8 * MIB, thin_pool=thin_pool)
    one = found(lvm, volume_group, "one")
    Path(one.path).write_bytes(b"as it was")
    lvm.snapshot(volume_group, "one", "then", active=True, tags=["t=1"])
    lvm.snapshot(volume_group, "one", "asleep", active=False)
    assert not found(lvm, volume_group, "asleep").active
    Path(one.path).write_bytes(b"otherwise")
    then = found(lvm, volume_group, "then")
    assert (then.kind, then.origin, then.pool) == ("thin", "one", thin_pool)
    assert then.tags == {"t=1"}
    assert (then.active, then.writable, then.size_bytes) == (True, True, 8 * MIB)
    with open(then.path, "rb") as file:
        assert file.read(9) == b"as it was"
    # It is a volume of its own: its origin may go.
    assert not found(lvm, volume_group, "one").has_snapshots
    lvm.remove(found(lvm, volume_group, "one"))
    lvm.deactivate(then)
    lvm.activate(then)
    assert found(lvm, volume_group, "then").active


def test_classic_snapshots_go_before_their_origin(lvm: Lvm, volume_group: str) -> None:
    lvm.create(volume_group, "one", 8 * MIB)
    one = found(lvm, volume_group, "one")
    classic_snapshot(volume_group, "one", "then", 4 * MIB)
    then = found(lvm, volume_group, "then")
    assert (then.kind, then.origin, then.data_percent, then.health) == ("snapshot", "one", 0.0, "")
    assert found(lvm, volume_group, "one").has_snapshots
    for _ in range(2):  # active, and not
        with pytest.raises(HasSnapshots, match="one has snapshots"):
            lvm.remove(one)
        assert len(lvm.volumes(volume_group)) == 2
        lvm.deactivate(one)
    lvm.extend(one, 12 * MIB)  # which it may while it is inactive
    lvm.activate(one)
    with pytest.raises(HasSnapshots, match="inactive"):
        lvm.extend(one, 20 * MIB)
    # More changes than it has room for.
    command("dd", "if=/dev/urandom", f"of={one.path}", "bs=1M", "count=8", "oflag=direct")
    assert found(lvm, volume_group, "then").health == "invalid"
    lvm.remove(found(lvm, volume_group, "then"))
    assert not found(lvm, volume_group, "one").has_snapshots
    lvm.remove(one)


def test_another_volume_that_has_got_the_name_is_not_removed(lvm: Lvm, volume_group: str) -> None:
    lvm.create(volume_group, "one", EXTENT)
    old = found(lvm, volume_group, "one")
    lvm.remove(old)
    lvm.create(volume_group, "one", EXTENT)
    lvm.remove(old)
    assert found(lvm, volume_group, "one").uuid != old.uuid


def test_tags_are_changed_all_at_once_and_come_back_as_they_were(
    lvm: Lvm, volume_group: str
) -> None:
    fields = {"owner": "pool", "claim": "ns/ä b,c&d@e", "size": str(1 << 40)}
    lvm.create(volume_group, "one", EXTENT, tags=[*lvtags.encode(fields), "backup"])
    one = found(lvm, volume_group, "one")
    assert lvtags.decode(one.tags) == fields
    written = command("vgs", "--noheadings", "-o", "vg_seqno", volume_group)
    now = {**fields, "state": "made", "claim": ""}
    lvm.retag(one, *lvtags.change(one.tags, now))
    # One version of LVM's metadata later.
    assert int(command("vgs", "--noheadings", "-o", "vg_seqno", volume_group)) == int(written) + 1
    after = found(lvm, volume_group, "one")
    assert lvtags.decode(after.tags) == {"owner": "pool", "size": str(1 << 40), "state": "made"}
    assert "backup" in after.tags
    lvm.retag(after, ["never-there"], ["backup"])
    assert found(lvm, volume_group, "one").tags == after.tags


def test_a_tag_as_long_as_we_write_them_is_taken(lvm: Lvm, volume_group: str) -> None:
    tags = lvtags.encode({"k": "v" * (1024 - len(lvtags.PREFIX) - 2)})
    lvm.create(volume_group, "one", EXTENT, tags=tags)
    assert found(lvm, volume_group, "one").tags == tags


def test_a_suspended_volume_is_seen_and_let_go_on(lvm: Lvm, volume_group: str) -> None:
    lvm.create(volume_group, "one", EXTENT)
    command("dmsetup", "suspend", f"{volume_group}-one")
    asleep = found(lvm, volume_group, "one")
    assert asleep.suspended
    lvm.refresh(asleep)
    assert not found(lvm, volume_group, "one").suspended


def test_the_names_of_volumes_that_kubernetes_gives(lvm: Lvm, volume_group: str) -> None:
    for name in ("pvc-7ae0f2f0-1111-4222-8333-944444444444", "x" * 115):
        lvm.create(volume_group, name, EXTENT)
        classic_snapshot(volume_group, name, "s", EXTENT)
        lvm.remove(found(lvm, volume_group, "s"))
        lvm.remove(found(lvm, volume_group, name))


def test_a_filesystem_in_a_volume_grows_while_it_is_mounted(lvm: Lvm, volume_group: str) -> None:
    lvm.create(volume_group, "one", 16 * MIB)
    one = found(lvm, volume_group, "one")
    command("mkfs.ext4", "-q", one.path)
    with mounted(one.path, fstype="ext4") as where:
        (where / "file").write_bytes(b"tenant data")
        lvm.extend(one, 32 * MIB)
        command("resize2fs", one.path)
        assert os.statvfs(where).f_blocks * os.statvfs(where).f_frsize > 24 * MIB
        assert (where / "file").read_bytes() == b"tenant data"


def test_hundreds_of_volumes_are_reported_whole(
    lvm: Lvm, volume_group: str, thin_pool: str
) -> None:
    """Their metadata is written at once: to make each by itself takes LVM half a minute here."""
    lvm.create(volume_group, "one", EXTENT, thin_pool=thin_pool)
    lvm.remove(found(lvm, volume_group, "one"))
    tags = [f"localvolume.dev/claim-{n}=" + "x" * 200 for n in range(3)]
    backup = Path("/run/tmp/many")
    command("vgcfgbackup", "--file", str(backup), volume_group)
    text = backup.read_text()
    end = text.rindex("\n\t}\n") + 1
    quoted = ", ".join(f'"{tag}"' for tag in tags)
    volumes = "".join(
        f'\n\t\tmany{n} {{\n\t\t\tid = "{_uuid(n)}"\n'
        f'\t\t\tstatus = ["READ", "WRITE", "VISIBLE"]\n\t\t\ttags = [{quoted}]\n'
        f"\t\t\tsegment_count = 1\n\t\t\tsegment1 {{\n\t\t\t\tstart_extent = 0\n"
        f'\t\t\t\textent_count = 1\n\t\t\t\ttype = "thin"\n\t\t\t\tthin_pool = "{thin_pool}"\n'
        f"\t\t\t\ttransaction_id = 0\n\t\t\t\tdevice_id = {n + 10}\n\t\t\t}}\n\t\t}}\n"
        for n in range(400)
    )
    backup.write_text(text[:end] + volumes + text[end:])
    command("vgcfgrestore", "--force", "--yes", "--file", str(backup), volume_group)
    found_now = lvm.volumes(volume_group)
    assert len(found_now) == 401
    assert all(one.tags == set(tags) for one in found_now if one.kind == "thin")


def _uuid(number: int) -> str:
    digits = f"{number:032d}"
    return "-".join((digits[:6], *(digits[n : n + 4] for n in range(6, 26, 4)), digits[26:]))
