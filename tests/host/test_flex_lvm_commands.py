"""Which commands of LVM the FlexVolume driver runs, in which order, and what it makes of answers.

elastic's package `lvm`, which ran against fakes that record what they are asked. So does this: a
program in LVM's place, with answers as LVM words them, for whatever a real LVM does not do when it
is told to. That the same commands do what they should is shown with a real one
(tests/kernel/inside).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.pools import LvmConfig
from localvolume.flexvolume.driver import DriverFailed, Owned, Volume
from localvolume.flexvolume.drivers.lvm.driver import LvmDriver
from localvolume.flexvolume.drivers.lvm.group import Group
from localvolume.host.lvm.commands import (
    GroupMissing,
    LogicalVolume,
    Lvm,
    LvmFailed,
    NoSpaceInGroup,
)
from localvolume.volumes.lvtags import encode
from tests.host.support_images import run_here

# A command is answered from a file of its name, the nth time from `<name>.<n>`, if there is one;
# looking for what killed commands left finds nothing, and is not counted. Nor is what is asked of
# LVM's configuration, in which nothing is said of filters.
_PROGRAM = """#!/bin/sh
cd "$(dirname "$0")"
case "$*" in dmsetup*|*lvmconfig*) exit 0;; *--all*) echo '{"report": [{"lv": []}]}'; exit 0;; esac
echo "$*" >> asked
n=$(( $(cat "$2.count" 2>/dev/null || echo 0) + 1 ))
echo $n > "$2.count"
answer="$2"
if [ -e "$2.$n" ] || [ -e "$2.$n.fails" ]; then answer="$2.$n"; fi
if [ -e "$answer.fails" ]; then cat "$answer.fails" >&2; exit 5; fi
if [ -e "$answer" ]; then cat "$answer"; fi
"""

_numbers = count()
TAGS = {"pv-uid": "uid-1", "claim": "ns/claim", "policy": "Delete"}


def lv(name: str, **changed: str) -> dict[str, str]:
    row = {
        "lv_name": name,
        "lv_uuid": f"uuid-of-{name}",
        "lv_size": "1234",
        "lv_layout": "linear",
        "lv_role": "public",
        "lv_permissions": "writeable",
        "lv_kernel_major": "-1",
        "lv_kernel_minor": "-1",
    }
    return {**row, **changed}


POOL = {"lv_layout": "thin,pool", "lv_role": "private", "data_percent": "23.00"}
MINE = {"lv_tags": ",".join(sorted(encode({**TAGS, "owner": "flexvolume", "state": "made"})))}
GONE = {**TAGS, "state": "made", "gone-since": "2026-01-01T00:00:00Z"}


@dataclass
class Scripted:
    """A program in LVM's place. `nth`: only the nth time that a command is run."""

    where: Path
    thin_pool: str = ""
    group: str = field(default_factory=lambda: f"vg{next(_numbers)}")

    def __post_init__(self) -> None:
        program = self.where / "program"
        program.write_text(_PROGRAM)
        program.chmod(0o755)
        self.prefix = (str(program),)
        self.has()
        vg = {
            "vg_name": self.group,
            "vg_uuid": "u",
            "vg_size": "8192",
            "vg_free": "4096",
            "vg_extent_size": "512",
            "vg_missing_pv_count": "0",
            "vg_permissions": "writeable",
        }
        self._report("vgs", "vg", [vg])

    def has(self, *rows: dict[str, str], nth: int = 0) -> None:
        """The logical volumes of the group."""
        group = {"vg_name": self.group, "vg_uuid": "u"}
        self._report("lvs", "lv", [{**row, **group} for row in rows], nth)

    def fails(self, command: str, said: str = "  something bad\n", nth: int = 0) -> None:
        self._file(command, nth, ".fails").write_text(said)

    def exchanged(self, *rows: dict[str, str]) -> None:
        """The same of another group that has got the name."""
        group = {"vg_name": self.group, "vg_uuid": "another"}
        self._report("lvs", "lv", [{**row, **group} for row in rows])

    def says(self, command: str, said: str) -> None:
        self._file(command, 0).write_text(said)

    def asked(self) -> list[str]:
        """What was run since the last time; of a report, only of what."""
        path = self.where / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        # Which devices LVM is shown is this machine's affair.
        lines = [re.sub(r" --config log\{[^}]*\} devices\{[^}]*\}", "", line) for line in lines]
        words = [line.removeprefix("lvm ").split() for line in lines]
        return [
            f"{one[0]} {one[-1]}" if one[0] in ("vgs", "lvs") else " ".join(one) for one in words
        ]

    def lvm(self) -> Lvm:
        return Lvm(run_here, self.prefix)

    def config(self) -> LvmConfig:
        return LvmConfig(group=self.group, thin_pool=self.thin_pool, command_prefix=self.prefix)

    def opened(self) -> Group:
        return Group(run_here, self.config())

    def driver(self) -> LvmDriver:
        return LvmDriver(FlexVolumeConfig(lvm=self.config()), run_here)

    def _report(self, command: str, kind: str, rows: list[dict[str, str]], nth: int = 0) -> None:
        self._file(command, nth).write_text(json.dumps({"report": [{kind: rows}]}))

    def _file(self, command: str, nth: int, more: str = "") -> Path:
        return self.where / f"{command}{f'.{nth}' if nth else ''}{more}"


@pytest.fixture
def host(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path)


def volume(**fields: Any) -> Volume:
    return Volume(**{"name": "pvc-1", "size_bytes": 32 << 20, "tags": TAGS, **fields})


# --- one command each ----------------------------------------------------------------------------

MAKING: dict[str, tuple[Callable[[Lvm, str], object], str]] = {
    "CreateLogicalVolume": (
        lambda lvm, group: lvm.create(group, "pvc-1", 2048),
        "lvcreate --name pvc-1 --wipesignatures y --yes --size 2048b --zero y GROUP",
    ),
    "CreateThinPool": (
        lambda lvm, group: lvm.create_pool(group, "tp", None),
        "lvcreate --type thin-pool --name tp --zero y --extents 100%FREE --yes GROUP",
    ),
    "CreateThinVolume": (
        lambda lvm, group: lvm.create(group, "pvc-1", 2048, thin_pool="tp"),
        "lvcreate --name pvc-1 --wipesignatures y --yes --thin --virtualsize 2048b GROUP/tp",
    ),
}


@pytest.mark.parametrize(("make", "argv"), MAKING.values(), ids=MAKING)
def test_what_makes_a_volume(host: Scripted, make: Callable[[Lvm, str], object], argv: str) -> None:
    """E-FV-31, E-FV-32, E-FV-33: the command, and its error in LVM's words."""
    make(host.lvm(), host.group)
    assert host.asked() == [argv.replace("GROUP", host.group)]
    host.fails("lvcreate")
    with pytest.raises(LvmFailed, match="lvcreate: something bad"):
        make(host.lvm(), host.group)


@pytest.mark.parametrize(
    ("asked", "given"), [(1, 512), (512, 512), (1000, 1024), (1024, 1024), (1 << 30, 1 << 30)]
)
@pytest.mark.parametrize("thin_pool", ["", "tp"])
def test_sizes_are_whole_sectors_and_no_more(
    host: Scripted, asked: int, given: int, thin_pool: str
) -> None:
    """W-11: elastic's roundUpTo512 gave 512 bytes more to what needed no rounding."""
    host.lvm().create(host.group, "pvc-1", asked, thin_pool=thin_pool)
    (line,) = host.asked()
    assert f"size {given}b " in line


def test_looking_for_volumes(host: Scripted) -> None:
    """E-FV-34, E-FV-35, E-FV-36, E-FV-37: all, one of many, the thin pool; and none."""
    lvm = host.lvm()
    assert lvm.volumes(host.group) == []
    assert lvm.volume(host.group, "lv") is None
    host.has(lv("lv2"), lv("tp", **POOL), lv("lv"))
    assert [one.name for one in lvm.volumes(host.group)] == ["lv2", "tp", "lv"]
    found = lvm.volume(host.group, "lv")
    assert found is not None
    assert (found.name, found.size_bytes, found.kind) == ("lv", 1234, "thick")
    pool = lvm.volume(host.group, "tp")
    assert pool is not None
    assert (pool.kind, pool.data_percent) == ("pool", 23.0)
    assert set(host.asked()) == {f"lvs {host.group}"}


@pytest.mark.parametrize("command", ["vgs", "lvs"])
def test_an_error_is_never_none(host: Scripted, command: str) -> None:
    """E-FV-30, E-FV-34: the error in its words.

    W-30, W-32: OpenEBS takes an error for "there is none", and makes, or forgets, on that.
    """
    host.fails(command)
    lvm = host.lvm()
    looks: list[Callable[[], object]] = [
        lambda: lvm.volumes(host.group),
        lambda: lvm.volume(host.group, "pvc-1"),
        lambda: host.driver().list_volumes(),
        lambda: host.driver().unmarked(),
        lambda: host.driver().adopt({"pvc-1": TAGS}),
    ]
    if command == "vgs":
        looks = [lambda: lvm.group(host.group)]
    for look in looks:
        with pytest.raises((LvmFailed, DriverFailed), match=f"{command}: something bad"):
            look()
    assert host.driver().is_in_use("pvc-1") is (command == "lvs"), "nobody can tell"
    assert {line.split()[0] for line in host.asked()} == (
        {"lvs"} if command == "lvs" else {"vgs", "lvs"}
    )


def test_a_group_is_looked_up(host: Scripted) -> None:
    """E-FV-30: name and room; missing in the report, and missing by LVM's own words."""
    assert host.lvm().group(host.group).free_bytes == 4096
    assert host.asked() == [f"vgs {host.group}"]
    with pytest.raises(GroupMissing):
        host.lvm().group("another")
    host.fails("vgs", '  Volume group "x" not found\n')
    with pytest.raises(GroupMissing, match='"x" not found'):
        host.lvm().group(host.group)


def test_a_device_is_where_lvm_says_and_is_that_volume(host: Scripted, tmp_path: Path) -> None:
    """E-FV-39: the path; none there; and a path that leads elsewhere, which elastic believed."""
    opened = host.opened()

    def of(path: str, device: str) -> LogicalVolume:
        return LogicalVolume(
            name="pvc-1",
            uuid="u",
            group=host.group,
            size_bytes=1,
            kind="thick",
            path=path,
            device=device,
        )

    with pytest.raises(DriverFailed, match="is not there: No such file"):
        opened.device(of(str(tmp_path / "none"), "254:0"))
    for path in ("/dev/null", str(tmp_path), ""):
        with pytest.raises(DriverFailed, match=r"does not lead to|is not there"):
            opened.device(of(path, "1:3"))


def test_one_is_removed_by_its_uuid(host: Scripted) -> None:
    """E-FV-40: `lvremove`, of just that one whatever has its name by now."""
    host.has(lv("pvc-1"))
    (found,) = host.lvm().volumes(host.group)
    host.asked()
    host.says("lvremove", '  Logical volume "pvc-1" successfully removed.\n')
    host.lvm().remove(found)
    (line,) = host.asked()
    assert line == (
        "lvremove --yes --select lv_uuid=uuid-of-pvc-1 && lv_role!={thickorigin} " + host.group
    )
    host.says("lvremove", "")
    with pytest.raises(LvmFailed, match="without a word"):
        host.lvm().remove(found)
    host.has()
    host.lvm().remove(found)
    host.fails("lvremove")
    with pytest.raises(LvmFailed, match="lvremove: something bad"):
        host.lvm().remove(found)


# --- making a volume -----------------------------------------------------------------------------


def kinds(host: Scripted) -> list[str]:
    """What was run, in a word each."""
    words = {"--thin": "thin", "thin-pool": "pool", "--size": "thick"}
    return [
        next((word for flag, word in words.items() if flag in line.split()), line.split()[0])
        for line in host.asked()
    ]


def test_thick_where_no_pool_is_named(host: Scripted) -> None:
    """E-FV-43, E-FV-44: one lvcreate, with the tags that say whose it is."""
    host.has(lv("pvc-1", **MINE), nth=1)
    assert host.opened().make(volume(), []).name == "pvc-1"
    vgs, line, lvs = host.asked()
    assert (vgs, lvs) == (f"vgs {host.group}", f"lvs {host.group}")
    assert line.startswith("lvcreate --name pvc-1 ")
    assert "--size 33554432b" in line
    for tag in encode({**TAGS, "owner": "flexvolume", "state": "making", "fs": "ext4"}):
        assert f"--addtag {tag} " in line


def test_nothing_goes_on_where_the_group_was_exchanged_meanwhile(host: Scripted) -> None:
    """What is there by that name is somebody else's."""
    opened = host.opened()
    host.exchanged(lv("pvc-1", **MINE))
    with pytest.raises(DriverFailed, match="was u, and is another now: its disks were exchanged"):
        opened.make(volume(), [])


def test_thin_in_the_pool_that_there_is_or_is_made(tmp_path: Path) -> None:
    """E-FV-38, E-FV-42, E-FV-44: GetOrCreateThinPool, both branches, and a thin volume in it."""
    host = Scripted(tmp_path, thin_pool="tp")
    host.has(lv("tp", **POOL), lv("pvc-1", **MINE))
    opened = host.opened()
    there = opened.volumes()
    host.asked()
    opened.make(volume(), there)
    assert kinds(host) == ["vgs", "thin", "lvs"]
    opened.make(volume(), [])
    assert kinds(host) == ["vgs", "pool", "thin", "lvs"]
    host.fails("lvcreate")
    with pytest.raises(LvmFailed, match="something bad"):
        opened.make(volume(), [])
    assert kinds(host) == ["vgs", "pool"], "without a pool no volume is tried"


@pytest.mark.parametrize(
    ("thin_pool", "said"),
    [
        ("", "  Volume group has insufficient free space (8 extents): 65536 required.\n"),
        ("tp", "  Insufficient suitable allocatable extents for logical volume tp\n"),
    ],
)
def test_no_room(tmp_path: Path, thin_pool: str, said: str) -> None:
    """E-FV-43, E-FV-44: not enough room left, in words.

    We differ: LVM is asked to, rather than its free bytes compared before. Only it knows what
    extents, stripes and mirrors take; and somebody else may take the room in between.
    """
    host = Scripted(tmp_path, thin_pool=thin_pool)
    host.fails("lvcreate", said)
    with pytest.raises(
        DriverFailed, match=r"no room for (pvc-1: 32Mi are wanted, and 4Ki|the thi)"
    ):
        host.opened().make(volume(), [])
    with pytest.raises(NoSpaceInGroup):
        host.lvm().create(host.group, "pvc-1", 1)


# --- mounting ------------------------------------------------------------------------------------


def looking(host: Scripted) -> str:
    host.fails("lvs", f'  Volume group "{host.group}" not found\n')
    return "not found"


def looking_at_the_group(host: Scripted) -> str:
    host.fails("vgs")
    return "vgs: something bad"


def creating(host: Scripted) -> str:
    host.fails("lvcreate")
    return "lvcreate: something bad"


def vanishing(host: Scripted) -> str:
    return "made pvc-1, and does not report it"


def activating(host: Scripted) -> str:
    host.has(nth=1)
    host.has(lv("pvc-1", **MINE))
    host.fails("lvchange")
    return "lvchange: something bad"


def sleeping(host: Scripted) -> str:
    host.has(nth=1)
    host.has(lv("pvc-1", **MINE))
    return "cannot be activated"


def finding_the_device(host: Scripted) -> str:
    active = {"lv_active": "active", "lv_kernel_major": "1", "lv_kernel_minor": "3"}
    host.has(nth=1)
    host.has(lv("pvc-1", lv_path="/dev/no/such", **active, **MINE))
    return "the device /dev/no/such is not there"


@pytest.mark.parametrize(
    "going_wrong",
    [
        looking,
        looking_at_the_group,
        creating,
        vanishing,
        activating,
        sleeping,
        finding_the_device,
    ],
)
def test_mount_ends_at_the_first_step_that_fails(
    host: Scripted, tmp_path: Path, going_wrong: Callable[[Scripted], str]
) -> None:
    """E-FV-45: elastic's sequences that fail before mkfs, and ours; nothing is removed, formatted
    or mounted then. Those of mkfs, mount and success are shown with a real LVM."""
    said = going_wrong(host)
    with pytest.raises(DriverFailed, match=said):
        host.driver().mount(volume(), str(tmp_path / "target"))
    ran = {line.split()[0] for line in host.asked()}
    assert ran <= {"vgs", "lvs", "lvcreate", "lvchange"}
    assert ("lvcreate" in ran) is (going_wrong not in (looking, looking_at_the_group))
    assert not os.path.lexists(tmp_path / "target")


def test_where_nothing_is_mounted_lvm_is_not_even_asked(host: Scripted, tmp_path: Path) -> None:
    """E-FV-46: an unmount is done where there is nothing to do, also while LVM fails."""
    host.fails("lvs")
    told = host.driver().unmount("pvc-1", str(tmp_path))
    assert (told, host.asked()) == ("successfully unmounted the volume", [])


# --- purging -------------------------------------------------------------------------------------


def owned() -> Owned:
    return Owned(name="pvc-1", size_bytes=1234, tags=GONE, id="uuid-of-pvc-1")


def gone_row(uid: str = "uid-1", **changed: str) -> dict[str, str]:
    tags = ",".join(sorted(encode({**GONE, "pv-uid": uid, "owner": "flexvolume"})))
    return {**lv("pvc-1", lv_tags=tags), **changed}


def test_purging(host: Scripted) -> None:
    """E-FV-48: looked at, looked at again, removed, seen to be gone; missing is done; each
    error in its words.

    We differ where the group is missing: for elastic that was success. A disk that is not there
    just now proves nothing, and the volume stays on the list.
    """
    driver = host.driver()
    host.has(gone_row())
    host.has(nth=3)
    host.says("lvremove", "  successfully removed\n")
    driver.remove(owned())
    assert [line.split()[0] for line in host.asked()] == ["lvs", "lvs", "lvremove", "lvs"]
    with pytest.raises(DriverFailed, match="was removed, says LVM, and it is still there"):
        driver.remove(owned())
    host.fails("lvremove")
    with pytest.raises(DriverFailed, match="lvremove: something bad"):
        driver.remove(owned())
    host.asked()
    host.has(lv("other"))
    driver.remove(owned())
    assert host.asked() == [f"lvs {host.group}"]
    for said in ("  something bad\n", f'  Volume group "{host.group}" not found\n'):
        host.fails("lvs", said)
        with pytest.raises(DriverFailed, match=r"something bad|not found"):
            driver.remove(owned())
        assert host.asked() == [f"lvs {host.group}"]


@pytest.mark.parametrize(
    "row",
    [
        gone_row(lv_uuid="another"),
        gone_row(lv_tags=""),
        gone_row(lv_layout="thin,pool"),
        gone_row(lv_role="public,origin,thickorigin"),
        gone_row(lv_device_open="open", lv_active="active"),
        gone_row(lv_suspended="suspended", lv_active="active"),
        lv("pvc-1", **MINE),
        gone_row("uid-2"),
    ],
    ids=[
        "another",
        "nobody's",
        "a pool",
        "with snapshots",
        "open",
        "suspended",
        "not gone",
        "another object's by now",
    ],
)
@pytest.mark.parametrize("looks", [1, 2], ids=["at once", "meanwhile"])
def test_what_is_not_certainly_it_stays(host: Scripted, row: dict[str, str], looks: int) -> None:
    """W-01: elastic's daemon ran `lvremove -f` on whatever had no PersistentVolume."""
    host.has(row)
    if looks == 2:
        host.has(gone_row(), nth=1)
    with pytest.raises(DriverFailed):
        host.driver().remove(owned())
    assert host.asked() == [f"lvs {host.group}"] * looks


def test_only_what_is_ours_is_listed(host: Scripted) -> None:
    """E-FV-47, W-01: elastic's listed the thin pool itself, and every other volume."""
    host.has(lv("tp", **POOL), lv("root"), lv("pvc-9", lv_tags="backup"), lv("pvc-1", **MINE))
    assert [one.name for one in host.driver().list_volumes()] == ["pvc-1"]


# --- a thin volume on record of which its pool has never been told -------------------------------

THIN = {"lv_layout": "thin,sparse", "pool_lv": "tp"}
HALF = {"lv_tags": ",".join(sorted(encode({**TAGS, "owner": "flexvolume", "state": "making"})))}


@pytest.mark.parametrize(
    ("now", "changed", "removed"),
    [
        pytest.param({**THIN, **HALF}, {}, True, id="nobody-had-it"),
        pytest.param({**THIN, **MINE}, {}, False, id="ended-meanwhile"),
        pytest.param(HALF, {}, False, id="thick"),
        pytest.param({**THIN, **HALF, "lv_uuid": "other"}, {}, False, id="another-one-now"),
        pytest.param({**THIN, **HALF}, {"must_exist": True}, False, id="its-claim-had-it"),
    ],
)
def test_what_cannot_be_activated_is_made_anew_only_if_nobody_had_it(
    host: Scripted, now: dict[str, str], changed: dict[str, Any], removed: bool
) -> None:
    host.thin_pool = "tp"
    pool = lv("tp", **POOL)
    host.has(lv("pvc-1", **now), pool)
    host.has(lv("pvc-1", **{**now, "lv_uuid": "uuid-of-pvc-1", **HALF}), pool, nth=1)
    host.fails("lvchange", "  reload ioctl failed: No data available\n")
    host.fails("lvcreate")
    with pytest.raises(DriverFailed):
        host.driver().mount(volume(**changed), str(host.where / "target"))
    assert any(line.startswith("lvremove") for line in host.asked()) == removed
