"""Which devices LVM is shown: a list made of what the kernel has and what tenants are given."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.pools import LvmConfig
from localvolume.config.sources import Others, loader
from localvolume.host.lvm import devicefilter
from localvolume.host.lvm.commands import Lvm, LvmFailed
from localvolume.host.lvm.devicefilter import (
    Block,
    accepting,
    explained,
    free_filter,
    hidden,
    shown,
)
from tests.host.support_images import run_here


def block(name: str, *made_of: str, device: str = "", uuid: str = "") -> Block:
    return Block(name, f"/dev/{name}", device or f"{name}'s number", uuid, made_of)


#: A node with a bit of everything. Of one disk a partition is the group's; another is in two
#: paths, and one is encrypted; a RAID has two more.
NODE = [
    block("sda"),
    block("sda1", "sda"),
    block("sda2", "sda"),
    block("sdb"),
    block("sdc"),
    block("dm-0", "sdb", "sdc", uuid="mpath-36000c29"),
    block("dm-1", "dm-0", uuid="part1-mpath-36000c29"),
    block("sdd"),
    block("dm-2", "sdd", uuid="CRYPT-LUKS2-1234-luks-1234"),
    block("sde"),
    block("sdf"),
    block("md127", "sde", "sdf"),
    block("md127p1", "md127"),
    block("nvme0n1"),
    Block("cciss!c0d0", "/dev/cciss/c0d0", "104:0"),
]


def see(*more: Block, given: tuple[str, ...] = ()) -> set[str]:
    blocks = [*NODE, *more]
    away = hidden(blocks, {f"{name}'s number" for name in given})
    return set(shown(blocks, away))


ALL = {one.node for one in NODE}


def test_disks_and_what_administrators_make_of_them_are_shown() -> None:
    """Partitions, multipath devices, LUKS, RAID."""
    assert see() == ALL


@pytest.mark.parametrize(
    "name", ["loop0", "loop12", "nbd0", "rbd3", "drbd1000", "zd16", "loop0p1", "zd16p2"]
)
def test_what_is_handed_out_is_not_shown(name: str) -> None:
    assert see(block(name)) == ALL


def test_logical_volumes_are_not_shown_and_nothing_on_them() -> None:
    """On a tenant's, the host may have activated what the tenant wrote there."""
    volume = block("dm-7", "sda2", uuid="LVM-aaaa")
    on_it = block("dm-8", "dm-7", uuid="LVM-bbbb")
    mapped = block("dm-9", "dm-7", uuid="CRYPT-LUKS2-x")
    assert see(volume, on_it, mapped, block("md5", "dm-9")) == ALL


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ("nvme0n1", {"nvme0n1"}),
        ("sda", {"sda", "sda1", "sda2"}),
        ("sda2", {"sda2"}),
        ("sdd", {"sdd", "dm-2"}),
        ("dm-0", {"dm-0", "dm-1"}),
        ("sde", {"sde", "md127", "md127p1"}),
    ],
)
def test_what_a_tenant_is_given_is_not_shown_and_nothing_made_of_it(
    given: str, gone: set[str]
) -> None:
    assert see(given=(given,)) == ALL - {f"/dev/{name}" for name in gone}


def test_a_name_that_would_mean_something_in_a_pattern_is_not_shown() -> None:
    odd = Block("x", '/dev/a|".*', "1:1")
    assert see(odd) == ALL


def test_the_list_is_all_that_lvm_looks_at() -> None:
    assert accepting(["/dev/sda1", "/dev/sdb"], "filter") == (
        'devices{hints="none" filter=["a|^/dev/sda1$|","a|^/dev/sdb$|","r|.*|"]}'
    )
    assert accepting([], "global_filter") == 'devices{hints="none" global_filter=["r|.*|"]}'


FILTER = 'devices {\n\tfilter=["r|/dev/sdz|"]\n}\n'
GLOBAL = 'devices {\n\tglobal_filter=["r|/dev/sdz|"]\n\tscan_lvs=0\n}\n'


@pytest.mark.parametrize(
    ("configuration", "free"),
    [("", "global_filter"), (FILTER, "global_filter"), (GLOBAL, "filter"), (FILTER + GLOBAL, "")],
)
def test_the_administrators_filter_stays_in_force(configuration: str, free: str) -> None:
    assert free_filter(configuration) == free


def test_where_both_filters_are_in_use_nothing_is_run(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $2 >>{tmp_path}/ran\necho '{FILTER}{GLOBAL}'\n")
    program.chmod(0o755)
    with pytest.raises(LvmFailed, match="both devices/filter and devices/global_filter"):
        Lvm(run_here, [str(program)]).groups()
    assert (tmp_path / "ran").read_text() == "lvmconfig\n"


def test_who_misses_a_group_is_told_what_lvm_is_not_shown() -> None:
    volume = block("dm-7", uuid="LVM-aaaa")
    assert explained(hidden([*NODE, volume], set())) == ""
    loops = [block(f"loop{number}") for number in range(7)]
    text = explained(hidden([*NODE, volume, *loops], set()))
    assert "loop0, loop1, loop2, loop3, loop4 and 2 more:" in text
    assert "devices file" in text


def test_what_offers_devices_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not there yet offers nothing; one that cannot be read may offer anything."""
    (tmp_path / "mounted").mkdir()
    (tmp_path / "gone").symlink_to("/dev/no-such-disk")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "file").touch()
    before = devicefilter.given([])
    assert devicefilter.given([str(tmp_path), str(tmp_path / "none"), f"{tmp_path}/file"]) == before
    real = os.stat

    def broken(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("/gone"):
            raise OSError(errno.EIO, "Input/output error")
        assert not str(path).endswith("/mounted"), "a filesystem that hangs would be waited for"
        return real(path, **options)

    monkeypatch.setattr(os, "stat", broken)
    with pytest.raises(OSError, match="Input/output"):
        devicefilter.given([str(tmp_path)])


def test_every_user_of_lvm_knows_the_directories_that_offer_devices(tmp_path: Path) -> None:
    """As the host sees them and as the agent does: people's commands run on the host."""
    config, lvmd = tmp_path / "config", tmp_path / "lvmd.yaml"
    config.mkdir()
    (config / "storageClassMap").write_text(
        "raw: {hostDir: /mnt/raw, mountDir: /seen/raw, volumeMode: Block}\n"
        "files: {hostDir: /mnt/files, mountDir: /mnt/files}\n"
    )
    (config / "pools").write_text(
        "fast: {backend: lvm, volumeGroup: vg0}\nslow: {hostDir: /mnt/slow}\n"
    )
    lvmd.write_text("device-classes:\n- {name: ssd, volume-group: vg1, default: true}\n")
    elastic = FlexVolumeConfig(lvm=LvmConfig(group="vg2"))
    found = loader(Others(lvmd=str(lvmd), flexvolume=elastic), "node")(str(config))
    directories = ("/mnt/files", "/mnt/raw", "/seen/raw")
    told = {one.name: one.lvm.discovery for one in found.pools if one.lvm}
    assert told == {"fast": directories, "ssd": directories}
    assert found.flexvolume
    assert found.flexvolume.lvm == LvmConfig(group="vg2", discovery=directories)


def test_more_may_be_said_of_the_same_section() -> None:
    """Two sections of one name would be one too many for LVM."""
    assert accepting(["/dev/sdb"], "filter", "issue_discards=0") == (
        'devices{hints="none" issue_discards=0 filter=["a|^/dev/sdb$|","r|.*|"]}'
    )
