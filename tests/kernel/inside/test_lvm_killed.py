"""Killed LVM commands: whatever they leave in the kernel, recovery makes the group usable again.

The states that deaths were seen to leave (``recovery`` says how they were found) are made here
one by one; and commands are killed early and late, in the soak at any moment.
"""

import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from localvolume.host.lvm.commands import LogicalVolume, Lvm, LvmFailed
from tests.host.support_devices import command
from tests.suite.chance import SEED, rounds

from .support_lvm import EXTENT, classic_snapshot, devices


def found(lvm: Lvm, group: str, name: str) -> LogicalVolume:
    volume = lvm.volume(group, name)
    assert volume is not None
    return volume


def whole(lvm: Lvm, group: str) -> None:
    """Every volume can be activated and read, and is as large as on record."""
    # One command for all: it fails where one of them cannot be.
    command("vgchange", "--activate", "y", "--ignoreactivationskip", group)
    for volume in lvm.volumes(group):
        assert not volume.suspended
        if volume.path:
            with open(volume.path, "rb") as file:
                file.read(4096)
                if volume.kind != "snapshot":
                    assert file.seek(0, os.SEEK_END) == volume.size_bytes


def usable(lvm: Lvm, group: str, pool: str = "") -> None:
    """Volumes can be made and removed, and all that is there, too."""
    lvm.create(group, "another", EXTENT, thin_pool=pool)
    lvm.remove(found(lvm, group, "another"))
    for kinds in ({"snapshot"}, {"thin", "thick"}, {"pool"}):
        for volume in lvm.volumes(group):
            if volume.kind in kinds:
                lvm.remove(volume)
    assert devices(group) == []


def test_a_group_in_order_is_left_as_it_is(lvm: Lvm, volume_group: str, thin_pool: str) -> None:
    lvm.create(volume_group, "one", EXTENT, thin_pool=thin_pool)
    lvm.create(volume_group, "two", EXTENT)
    # With more room than its origin has.
    classic_snapshot(volume_group, "two", "then", 2 * EXTENT)
    before = lvm.volumes(volume_group)
    assert lvm.recover(volume_group) == ()
    command("vgchange", "--activate", "n", volume_group)
    assert lvm.recover(volume_group) == ()
    whole(lvm, volume_group)
    assert [one.uuid for one in lvm.volumes(volume_group)] == [one.uuid for one in before]


def test_a_suspended_volume_goes_on(lvm: Lvm, volume_group: str) -> None:
    lvm.create(volume_group, "one", EXTENT)
    command("dmsetup", "suspend", "vg0-one")
    assert lvm.recover(volume_group) == ("resumed vg0-one", "refreshed one")
    whole(lvm, volume_group)
    assert lvm.recover(volume_group) == ()


@pytest.mark.parametrize("part", ["tdata", "tmeta"])
def test_a_suspended_part_of_a_pool_goes_on(
    lvm: Lvm, volume_group: str, thin_pool: str, part: str
) -> None:
    """LVM refreshes no hidden part, but the whole that it belongs to."""
    lvm.create(volume_group, "one", EXTENT, thin_pool=thin_pool)
    command("dmsetup", "suspend", f"vg0-pool_{part}")
    assert lvm.recover(volume_group) == (f"resumed vg0-pool_{part}", "refreshed pool")
    whole(lvm, volume_group)
    assert lvm.recover(volume_group) == ()
    usable(lvm, volume_group, thin_pool)


def test_a_second_table_is_dropped(lvm: Lvm, volume_group: str) -> None:
    """As of a growth killed before it was committed."""
    lvm.create(volume_group, "one", EXTENT)
    table = command("dmsetup", "table", "vg0-one").split()
    table[1] = str(2 * EXTENT // 512)
    command("dmsetup", "load", "vg0-one", "--table", " ".join(table))
    command("dmsetup", "suspend", "vg0-one")
    lvm.recover(volume_group)
    whole(lvm, volume_group)
    assert lvm.recover(volume_group) == ()


def test_a_device_smaller_than_its_volume_is_made_as_large(lvm: Lvm, volume_group: str) -> None:
    """As of a growth killed after it was committed."""
    lvm.create(volume_group, "one", 2 * EXTENT)
    table = command("dmsetup", "table", "vg0-one").split()
    table[1] = str(EXTENT // 512)
    command("dmsetup", "load", "vg0-one", "--table", " ".join(table))
    command("dmsetup", "suspend", "vg0-one")
    command("dmsetup", "resume", "vg0-one")
    assert lvm.recover(volume_group) == ("refreshed one",)
    whole(lvm, volume_group)


def test_an_empty_device_is_removed(lvm: Lvm, volume_group: str) -> None:
    """As of an activation killed between the making of the device and its table."""
    lvm.create(volume_group, "one", EXTENT)
    uuid = command("dmsetup", "info", "-c", "--noheadings", "-o", "uuid", "vg0-one").strip()
    lvm.deactivate(found(lvm, volume_group, "one"))
    command("dmsetup", "create", "vg0-one", "--uuid", uuid, "--notable")
    assert lvm.recover(volume_group) == ("removed the empty vg0-one",)
    whole(lvm, volume_group)


def test_a_volume_to_which_no_path_leads_gets_one(
    lvm: Lvm, volume_group: str, thin_pool: str
) -> None:
    """As of an lvcreate, or an activation, killed when the kernel had the device: nothing that asks
    for the volume by its path would ever find it."""
    lvm.create(volume_group, "one", EXTENT)
    lvm.create(volume_group, "two", EXTENT, thin_pool=thin_pool)
    for path in ("/dev/vg0/one", "/dev/mapper/vg0-two"):
        os.unlink(path)
    assert lvm.recover(volume_group) == ("refreshed one", "refreshed two")
    whole(lvm, volume_group)
    assert lvm.recover(volume_group) == ()


def test_parts_of_a_pool_without_the_pool_are_removed(
    lvm: Lvm, volume_group: str, thin_pool: str
) -> None:
    lvm.create(volume_group, "one", EXTENT, thin_pool=thin_pool)
    for device in ("vg0-one", "vg0-pool", "vg0-pool-tpool"):
        command("dmsetup", "remove", device)
    with pytest.raises(LvmFailed, match="prohibited while logical volume"):
        lvm.activate(found(lvm, volume_group, "one"))
    done = lvm.recover(volume_group)
    assert {*done} == {"removed the idle vg0-pool_tmeta", "removed the idle vg0-pool_tdata"}
    whole(lvm, volume_group)
    usable(lvm, volume_group, thin_pool)


@pytest.mark.parametrize("made", [True, False])
def test_a_pool_that_is_one_change_behind(
    lvm: Lvm, volume_group: str, thin_pool: str, made: bool, tmp_path: Path
) -> None:
    lvm.create(volume_group, "one", EXTENT, thin_pool=thin_pool)
    lvm.create(volume_group, "two", EXTENT, thin_pool=thin_pool)
    one, two = (found(lvm, volume_group, name) for name in ("one", "two"))
    Path(one.path).write_bytes(b"tenant data")
    lvm.deactivate(two)
    # As lvcreate commits it, before it has told the kernel all, or anything.
    command("dmsetup", "message", "vg0-pool-tpool", "0", "set_transaction_id 2 1")
    if not made:
        command("dmsetup", "message", "vg0-pool-tpool", "0", "delete 2")
    backup = tmp_path / "backup"
    command("vgcfgbackup", "--file", str(backup), volume_group)
    number = "\t\t\t\ttransaction_id = 2\n"
    text = backup.read_text()
    assert text.count(number) == 1
    queued = number + '\t\t\t\tmessage1 {\n\t\t\t\t\tcreate = "two"\n\t\t\t\t}\n'
    backup.write_text(text.replace(number, queued))
    command("vgcfgrestore", "--force", "--yes", "--file", str(backup), volume_group)
    done = ["finished the making of two in pool"] if made else []
    assert lvm.recover(volume_group) == (*done, "told pool of earlier changes")
    whole(lvm, volume_group)
    with open(one.path, "rb") as file:
        assert file.read(11) == b"tenant data"
    assert lvm.recover(volume_group) == ()
    usable(lvm, volume_group, thin_pool)


def test_a_classic_snapshot_half_removed(lvm: Lvm, volume_group: str, tmp_path: Path) -> None:
    """LVM makes it a volume of its own first: on record it is, the kernel knows nothing of it."""
    lvm.create(volume_group, "one", EXTENT)
    Path(found(lvm, volume_group, "one").path).write_bytes(b"tenant data")
    classic_snapshot(volume_group, "one", "then", EXTENT)
    backup = tmp_path / "backup"
    command("vgcfgbackup", "--file", str(backup), volume_group)
    text = backup.read_text()
    first = text.index("snapshot0 {")
    last = text.index("\n\t\t}\n", first) + len("\n\t\t}\n")
    text = text[:first] + text[last:]
    text = text.replace('status = ["READ", "WRITE"]', 'status = ["READ", "WRITE", "VISIBLE"]')
    backup.write_text(text)
    command("vgcfgrestore", "--force", "--yes", "--file", str(backup), volume_group)
    for device in ("vg0-one", "vg0-one-real", "vg0-then", "vg0-then-cow"):
        command("dmsetup", "suspend", device)
    lvm.recover(volume_group)
    whole(lvm, volume_group)
    with open(found(lvm, volume_group, "one").path, "rb") as file:
        assert file.read(11) == b"tenant data"
    assert lvm.recover(volume_group) == ()
    usable(lvm, volume_group)


def test_devices_of_another_group_are_left_alone(
    lvm: Lvm, volume_group: str, second_group: str
) -> None:
    lvm.create(volume_group, "one", EXTENT)
    lvm.create(second_group, "one", EXTENT)
    command("dmsetup", "suspend", "vg1-one")
    assert lvm.recover(volume_group) == ()
    assert found(lvm, second_group, "one").suspended
    assert lvm.recover(second_group)


# --- killed commands --------------------------------------------------------------------------

_MADE = ["--yes", "--addtag", "state=making", "--name", "new"]
_COMMANDS: dict[str, Sequence[str]] = {
    "make thick": ["lvcreate", *_MADE, "--size", "8m", "vg0"],
    "make thin": ["lvcreate", *_MADE, "--thin", "--virtualsize", "8m", "vg0/pool"],
    "snapshot thin": ["lvcreate", *_MADE, "--snapshot", "-kn", "vg0/thin"],
    "snapshot thick": ["lvcreate", *_MADE, "--snapshot", "--size", "4m", "vg0/thick"],
    "grow thick": ["lvextend", "--size", "+4m", "vg0/thick"],
    "grow thin": ["lvextend", "--size", "+4m", "vg0/thin"],
    "remove thick": ["lvremove", "--yes", "vg0/old"],
    "remove thin": ["lvremove", "--yes", "vg0/oldthin"],
    "retag": ["lvchange", "--deltag", "state=making", "--addtag", "state=made", "vg0/thick"],
    "deactivate": ["lvchange", "--activate", "n", "--yes", "vg0/old"],
    "activate": ["lvchange", "--activate", "y", "--yes", "vg0/old"],
}


def _killed(argv: Sequence[str], after: float) -> None:
    process = subprocess.Popen(
        ["lvm", *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(after)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _old(lvm: Lvm, group: str) -> None:
    names = {one.name for one in lvm.volumes(group)}
    if "old" not in names:
        lvm.create(group, "old", EXTENT)
    if "oldthin" not in names:
        lvm.create(group, "oldthin", EXTENT, thin_pool="pool")


def test_each_command_killed_early_or_late(lvm: Lvm, volume_group: str, thin_pool: str) -> None:
    early_and_late = itertools.cycle((0.6, 1.5))
    _kill_commands(
        lvm, volume_group, thin_pool, zip(sorted(_COMMANDS), early_and_late, strict=False)
    )


@pytest.mark.soak
def test_commands_killed_at_any_moment(lvm: Lvm, volume_group: str, thin_pool: str) -> None:
    chance = random.Random(SEED)
    drawn = ((chance.choice(sorted(_COMMANDS)), chance.uniform(0.3, 3)) for _ in rounds())
    _kill_commands(lvm, volume_group, thin_pool, drawn)


def _kill_commands(
    lvm: Lvm, volume_group: str, thin_pool: str, deaths: Iterable[tuple[str, float]]
) -> None:
    """Each by its name, after so many times what a look at the groups takes."""
    lvm.create(volume_group, "thick", EXTENT, tags=["state=making"])
    lvm.create(volume_group, "thin", EXTENT, thin_pool=thin_pool)
    content = {name: os.urandom(4096) for name in ("thick", "thin")}
    for name, data in content.items():
        Path(f"/dev/vg0/{name}").write_bytes(data)
    _old(lvm, volume_group)
    began = time.monotonic()
    lvm.groups()
    once = time.monotonic() - began
    for name, times in deaths:
        _killed(_COMMANDS[name], times * once)
        done = lvm.recover(volume_group)
        told = f"{name} after {times:.2f}: {done}"
        for volume in lvm.volumes(volume_group):
            # What the agent does with what it never handed out.
            if volume.name == "new":
                assert volume.tags == {"state=making"}, told
                lvm.remove(volume)
        whole(lvm, volume_group)
        for kept, data in content.items():
            with open(f"/dev/vg0/{kept}", "rb") as file:
                assert file.read(4096) == data, told
        assert found(lvm, volume_group, "thick").tags in ({"state=making"}, {"state=made"})
        assert lvm.recover(volume_group) == (), told
        _old(lvm, volume_group)
    usable(lvm, volume_group, thin_pool)
