"""Mounting and unmounting logical volumes: every order of events that elastic's driver was tested
with, each half-done step, and what is refused."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localvolume.flexvolume.driver import DriverFailed
from localvolume.host.lvm.commands import Lvm
from localvolume.volumes.lvtags import encode
from tests.host.support_devices import command
from tests.suite.units import MIB

from .support_flex import TAGS, FlexLvm, volume
from .support_lvm import unknown_to_its_pool


@pytest.fixture
def flex(volume_group: str, lvm: Lvm, tmp_path: Path) -> FlexLvm:
    return FlexLvm(lvm, volume_group, tmp_path)


def made(flex: FlexLvm, **fields: Any) -> str:
    """Make pvc-1 with a file in it, unmounted; its device node."""
    flex.driver.mount(volume(**fields), flex.target())
    flex.write("tenant data")
    flex.driver.unmount("pvc-1", flex.target())
    return f"/dev/{flex.group}/pvc-1"


def keeps(flex: FlexLvm) -> None:
    """The volume mounts, and its file is there."""
    flex.driver.mount(volume(), flex.target())
    assert flex.read() == "tenant data"
    flex.driver.unmount("pvc-1", flex.target())


# --- elastic's scripted sequences of Mount -----------------------------------------------------


def test_mount_creates_a_thick_volume_and_reuses_it(flex: FlexLvm) -> None:
    """ "lvm: Mount": a new standard volume; an existing one is mounted, not made again."""
    made(flex)
    uuid = flex.lv("pvc-1").uuid
    keeps(flex)
    assert (flex.lv("pvc-1").uuid, flex.lv("pvc-1").kind) == (uuid, "thick")


def test_mount_makes_the_thin_pool_or_finds_it(flex: FlexLvm) -> None:
    """ "lvm: Mount" and GetOrCreateThinPool, both branches: of all that is free, and zeroing."""
    thin = FlexLvm(flex.lvm, flex.group, flex.where, thin_pool="tp")
    made(thin)
    assert (thin.lv("pvc-1").kind, thin.lv("pvc-1").pool) == ("thin", "tp")
    pool = thin.lv("tp")
    assert pool.zeroes
    assert thin.lvm.group(thin.group).free_bytes < 8 * MIB
    thin.driver.mount(volume("pvc-2"), thin.target("b"))
    assert (thin.lv("tp").uuid, thin.lv("pvc-2").pool) == (pool.uuid, "tp")
    thin.driver.unmount("pvc-2", thin.target("b"))
    # "lvm: ListVolumes": elastic's returned the pool itself, and its next start removed it.
    assert {one.name for one in thin.driver.list_volumes()} == {"pvc-1", "pvc-2"}


def test_a_thin_volume_that_its_pool_was_never_told_of(flex: FlexLvm) -> None:
    """lvcreate was killed: nobody had it, and it can never be activated."""
    thin = FlexLvm(flex.lvm, flex.group, flex.where, thin_pool="tp")
    made(thin)
    before = thin.lv("pvc-1").uuid
    unknown_to_its_pool(thin.group, "pvc-1", "tp")
    # Were it complete, it would be somebody's.
    with pytest.raises(DriverFailed, match="No data available"):
        thin.driver.mount(volume(), thin.target())
    assert thin.lv("pvc-1").uuid == before
    tags = thin.lv("pvc-1").tags
    thin.driver.note("pvc-1", {"state": "making"})
    with pytest.raises(DriverFailed, match="No data available"):
        thin.driver.mount(volume(must_exist=True), thin.target())
    assert thin.lv("pvc-1").tags != tags
    thin.driver.mount(volume(), thin.target())
    assert thin.lv("pvc-1").uuid != before
    thin.driver.unmount("pvc-1", thin.target())


def test_mount_that_cannot_create_makes_nothing(flex: FlexLvm) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "-v"}, "is no name of"),
        ({"size_bytes": 4 << 30}, "no room for pvc-1: 4Gi are wanted, and 508Mi are free"),
        ({"fs_type": "xfs", "size_bytes": 8 * MIB}, "at least 300Mi"),
        ({"fs_type": "btrfs"}, "ext4 or xfs"),
        ({"must_exist": True}, "no empty one is made in its place"),
    ]
    for fields, said in wrong:
        with pytest.raises(DriverFailed, match=said):
            flex.driver.mount(volume(**fields), flex.target())
        assert flex.names() == set()


def test_mount_whose_mkfs_or_mount_fails_goes_on_later(flex: FlexLvm) -> None:
    """elastic's was unmountable for good after a crash, or failure, between lvcreate and mkfs."""
    with pytest.raises(DriverFailed, match="mkfs"):
        flex.driver.mount(volume(mkfs_options=("-N", "99999999999")), flex.target())
    assert flex.noted("pvc-1")["state"] == "making"
    with pytest.raises(DriverFailed, match="cannot be mounted"):
        flex.driver.mount(volume(mount_options=("nosuchoption",)), flex.target())
    assert flex.noted("pvc-1")["state"] == "made"
    with pytest.raises(DriverFailed, match="no mount option"):
        flex.driver.mount(volume(mount_options=("remount",)), flex.target())
    flex.driver.mount(volume(mount_options=("noatime",)), flex.target())
    assert "noatime" in command("findmnt", "-no", "OPTIONS", flex.target())
    # Mounted, but the reply was lost: the same call once more.
    flex.write("tenant data")
    assert flex.driver.mount(volume(fs_group=7), flex.target()) == "successfully created the volume"
    assert os.stat(flex.target()).st_gid == 7
    flex.driver.unmount("pvc-1", flex.target())
    keeps(flex)


def test_mount_and_unmount_touch_only_their_own(flex: FlexLvm) -> None:
    """ "lvm: Unmount" ok and err, and what else may be at the target."""
    os.mkdir(flex.target())
    command("mount", "-t", "tmpfs", "foreign", flex.target())
    with pytest.raises(DriverFailed, match="something else is mounted already: foreign"):
        flex.driver.mount(volume(), flex.target())
    assert flex.names() == set()
    with pytest.raises(DriverFailed, match="something else"):
        flex.driver.unmount("pvc-1", flex.target())
    command("umount", flex.target())
    flex.driver.mount(volume(), flex.target())
    with pytest.raises(DriverFailed, match="something else"):
        flex.driver.unmount("pvc-2", flex.target())
    with pytest.raises(DriverFailed, match="something else"):
        flex.driver.mount(volume("pvc-2"), flex.target())
    with open(f"{flex.target()}/held", "w"), pytest.raises(DriverFailed, match="busy"):
        flex.driver.unmount("pvc-1", flex.target())
    command("mount", "--bind", flex.target(), flex.target())  # twice, as a retry might
    flex.driver.unmount("pvc-1", flex.target())
    assert not os.path.ismount(flex.target())
    assert flex.driver.unmount("pvc-1", flex.target()) == "successfully unmounted the volume"
    assert flex.driver.unmount("pvc-1", flex.target("none")) == "successfully unmounted the volume"
    os.symlink(flex.target(), flex.target("link"))
    with pytest.raises(DriverFailed, match="leads elsewhere"):
        flex.driver.mount(volume(), flex.target("link"))


# --- whose it is -------------------------------------------------------------------------------


def test_a_volume_of_others_is_refused_and_left_alone(flex: FlexLvm) -> None:
    """elastic's matched by the name alone."""
    flex.lvm.create(flex.group, "pvc-1", 20 * MIB)
    node = f"/dev/{flex.group}/pvc-1"
    command("mkfs.ext4", "-q", "-F", node)
    for tags in ((), encode({"owner": "pool", "state": "made"}), encode({"owner": "x"})):
        before = flex.lv("pvc-1")
        flex.lvm.retag(before, before.tags, tags)
        before = flex.lv("pvc-1")
        with pytest.raises(DriverFailed, match="left as it is"):
            flex.driver.mount(volume(), flex.target())
        flex.driver.note("pvc-1", {"policy": "Delete"})
        assert flex.driver.adopt({"pvc-1": TAGS} if tags else {}) == []
        assert flex.lv("pvc-1") == before
    flex.lvm.create_pool(flex.group, "pvc-3", 16 * MIB)
    with pytest.raises(DriverFailed, match="it is a pool"):
        flex.driver.mount(volume("pvc-3"), flex.target())
    thin = FlexLvm(flex.lvm, flex.group, flex.where, thin_pool="pvc-1")
    with pytest.raises(DriverFailed, match="is no thin pool"):
        thin.driver.mount(volume("pvc-4"), flex.target())


def test_another_object_of_the_name_gets_it_only_for_the_same_claim(flex: FlexLvm) -> None:
    made(flex)
    flex.driver.note("pvc-1", {"gone-since": "2026-01-01T00:00:00Z"})
    other = {**TAGS, "pv-uid": "uid-2", "claim": "ns/other", "claim-uid": "c-2"}
    with pytest.raises(DriverFailed, match="another PersistentVolume's, of the claim ns/claim"):
        flex.driver.mount(volume(tags=other), flex.target())
    assert flex.noted("pvc-1")["pv-uid"] == "uid-1"
    restored = {**TAGS, "pv-uid": "uid-2", "claim-uid": "c-2"}
    flex.driver.mount(volume(tags=restored), flex.target())
    assert flex.read() == "tenant data"
    noted = flex.noted("pvc-1")
    assert (noted["pv-uid"], noted["claim-uid"]) == ("uid-2", "c-2")
    assert "gone-since" not in noted
    flex.driver.unmount("pvc-1", flex.target())


def test_what_elastic_made_is_adopted(flex: FlexLvm) -> None:
    """By its PersistentVolume's name; what is in it decides whether it is mounted."""
    for name in ("pvc-ext4", "pvc-blank", "pvc-swap", "pvc-garbage", "foreign"):
        command("lvcreate", "-qq", "-y", "--size", "20000256b", "--name", name, flex.group)
        command("blkdiscard", "--zeroout", f"/dev/{flex.group}/{name}")
    dev = f"/dev/{flex.group}"
    command("lvchange", "--addtag", "backup", f"{flex.group}/pvc-ext4")
    command("mkfs.ext4", "-q", f"{dev}/pvc-ext4")
    command("mkswap", f"{dev}/pvc-swap")
    garbage = f"of={dev}/pvc-garbage"
    command("dd", "if=/dev/urandom", garbage, "bs=4k", "count=1", "seek=9", "conv=fsync")
    every = dict.fromkeys(flex.names() - {"foreign"}, TAGS)
    assert set(flex.driver.unmarked()) == every.keys() | {"foreign"}
    assert set(flex.driver.adopt({**every, "pvc-9": TAGS})) == every.keys()
    assert flex.driver.adopt({"pvc-ext4": {**TAGS, "pv-uid": "x"}}) == []
    assert flex.driver.unmarked() == ["foreign"]
    # What can be seen to hold a filesystem must hold one from now on.
    made = {"pvc-ext4": {**TAGS, "state": "made", "fs": "ext4"}}
    for one in flex.driver.list_volumes():
        assert dict(one.tags) == made.get(one.name, TAGS)
    for content in ("swap", "garbage"):
        before = command("sha256sum", f"{dev}/pvc-{content}")
        with pytest.raises(DriverFailed, match=r"holds (swap|something).*left as it is"):
            flex.driver.mount(volume(f"pvc-{content}"), flex.target())
        assert command("sha256sum", f"{dev}/pvc-{content}") == before
    with pytest.raises(DriverFailed, match="is empty, and its claim has had it"):
        flex.driver.mount(volume("pvc-blank", must_exist=True), flex.target())
    for content, asked in (("ext4", "xfs"), ("blank", "ext4")):
        flex.driver.mount(volume(f"pvc-{content}", fs_type=asked), flex.target())
        noted = flex.noted(f"pvc-{content}")
        assert noted == {**TAGS, "state": "made", "fs": "ext4", "size": str(20 * MIB)}
        flex.driver.unmount(f"pvc-{content}", flex.target())
    assert "backup" in flex.lv("pvc-ext4").tags


# --- sizes -------------------------------------------------------------------------------------


def test_the_size_is_compared_and_never_shrinks(flex: FlexLvm) -> None:
    """elastic's compared none, and added 512 bytes to exact multiples of 512 (roundUpTo512)."""
    made(flex)
    assert flex.lv("pvc-1").size_bytes == 20 * MIB
    flex.driver.mount(volume(size_bytes=30_000_000), flex.target())
    assert flex.lv("pvc-1").size_bytes == 32 * MIB
    assert flex.room() > 25 * MIB
    assert flex.read() == "tenant data"
    flex.driver.unmount("pvc-1", flex.target())
    keeps(flex)
    assert flex.lv("pvc-1").size_bytes == 32 * MIB
    # Where there is no room for it, what is in it still counts.
    flex.driver.mount(volume(size_bytes=4 << 30), flex.target())
    assert flex.read() == "tenant data"
    with pytest.raises(DriverFailed, match="has 32Mi, and there is no room for 4Gi"):
        flex.driver.grow("pvc-1", 4 << 30)
    flex.driver.unmount("pvc-1", flex.target())


def test_a_growth_that_ended_half_way_is_ended_later(flex: FlexLvm) -> None:
    made(flex)
    flex.lvm.extend(flex.lv("pvc-1"), 40 * MIB)
    flex.driver.mount(volume(), flex.target())
    assert flex.room() > 32 * MIB
    assert flex.noted("pvc-1")["size"] == str(40 * MIB)
    flex.lvm.extend(flex.lv("pvc-1"), 60 * MIB)
    assert flex.driver.grow("pvc-1", 24 * MIB) == 60 * MIB
    assert flex.room() > 50 * MIB
    assert flex.read() == "tenant data"
    assert flex.noted("pvc-1")["size"] == str(60 * MIB)
    flex.driver.unmount("pvc-1", flex.target())


def test_growth_of_what_is_not_there_or_not_made(flex: FlexLvm) -> None:
    with pytest.raises(DriverFailed, match="no logical volume"):
        flex.driver.grow("pvc-1", MIB)
    flex.lvm.create(flex.group, "pvc-1", 20 * MIB)
    with pytest.raises(DriverFailed, match="left as it is"):
        flex.driver.grow("pvc-1", 40 * MIB)
    assert flex.lv("pvc-1").size_bytes == 20 * MIB
    flex.lvm.retag(flex.lv("pvc-1"), (), encode({**TAGS, "owner": "flexvolume", "state": "making"}))
    assert flex.driver.grow("pvc-1", 40 * MIB) == 40 * MIB
    flex.driver.mount(volume(), flex.target())
    assert flex.room() > 32 * MIB
    flex.driver.unmount("pvc-1", flex.target())


# --- what is damaged ---------------------------------------------------------------------------


def debugfs(*requests: str) -> Callable[[str], object]:
    def act(node: str) -> None:
        for request in requests:
            command("debugfs", "-w", "-R", request, node)

    return act


def wipe(sector: int) -> Callable[[str], object]:
    def act(node: str) -> None:
        where = ("bs=512", f"seek={sector}", "count=1", "conv=fsync,notrunc")
        command("dd", "if=/dev/zero", f"of={node}", *where)

    return act


def test_what_e2fsck_is_sure_of_is_put_right_before_a_mount(flex: FlexLvm) -> None:
    """elastic's never checked."""
    node = made(flex)
    debugfs("set_super_value state 2", "set_super_value free_blocks_count 7")(node)
    keeps(flex)
    # A mount alone says that it has errors, and leaves them.
    (state,) = re.findall(r"Filesystem state: +(.*)", command("dumpe2fs", "-h", node))
    assert state == "clean"


@pytest.mark.parametrize(
    ("fs_type", "size", "damages"),
    [
        (
            "ext4",
            20 * MIB,
            [
                (debugfs("set_super_value state 2", "clri <2>"), "to repair it: e2fsck -f /dev"),
                (wipe(2), "no volume is formatted twice.*e2fsck -b 32768 /dev"),
            ],
        ),
        (
            "xfs",
            300 * MIB,
            [
                (wipe(1), "to repair it: xfs_repair /dev"),
                (wipe(0), "no volume is formatted twice.*xfs_repair /dev"),
            ],
        ),
    ],
    ids=["ext4", "xfs"],
)
def test_what_is_corrupt_is_never_formatted(
    flex: FlexLvm, fs_type: str, size: int, damages: list[tuple[Callable[[str], object], str]]
) -> None:
    node = made(flex, fs_type=fs_type, size_bytes=size)
    for damage, said in damages:
        damage(node)
        with pytest.raises(DriverFailed, match=f"(?s){said}"):
            flex.driver.mount(volume(fs_type=fs_type, size_bytes=MIB), flex.target())
    assert flex.noted("pvc-1")["state"] == "made"
    assert b"tenant data" in Path(node).read_bytes()
