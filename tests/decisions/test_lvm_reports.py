"""LVM's reports and complaints are read for what they say, and for nothing that they do not."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.host.lvm import commands as lvm_module
from localvolume.host.lvm.commands import (
    BadReport,
    Lvm,
    LvmFailed,
    check_name,
    check_names,
    device_path,
)
from localvolume.host.lvm.errors import failed
from localvolume.host.lvm.recovery import pools_with_messages, read_devices, read_parts
from localvolume.host.lvm.report import read_groups, read_volumes, read_whole
from tests.host.support_images import run_here

_VOLUME = {
    "lv_name": "one",
    "lv_uuid": "927puM-JvFs-HwaS-S9IJ-aY6f-xJHi-NMbJft",
    "vg_name": "vg0",
    "lv_size": "8388608",
    "lv_layout": "linear",
    "lv_role": "public",
    "lv_tags": "",
    "lv_active": "active",
    "lv_device_open": "",
    "lv_suspended": "",
    "lv_path": "/dev/vg0/one",
    "pool_lv": "",
    "origin": "",
    "data_percent": "",
    "metadata_percent": "",
    "lv_health_status": "",
    "zero": "unknown",
    "lv_permissions": "writeable",
    "lv_kernel_major": "254",
    "lv_kernel_minor": "0",
    "lv_snapshot_invalid": "",
}
_GROUP = {
    "vg_name": "vg0",
    "vg_uuid": "CkiKnn-oOoA-0jOk-rtxJ-ouKD-b1uY-Axrh6q",
    "vg_size": "532676608",
    "vg_free": "432013312",
    "vg_extent_size": "4194304",
    "vg_tags": "",
    "vg_missing_pv_count": "0",
    "vg_permissions": "writeable",
    "vg_exported": "",
}


def report(kind: str, *rows: Mapping[str, str]) -> str:
    return json.dumps({"report": [{kind: list(rows)}], "log": [{"log_seq_num": 1}]})


def volume(**changed: str) -> lvm_module.LogicalVolume:
    return read_volumes(report("lv", {**_VOLUME, **changed}))[0]


# --- volumes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({}, "thick"),
        ({"lv_layout": "striped"}, "thick"),
        ({"lv_role": "public,origin,thickorigin"}, "thick"),
        ({"lv_layout": "thin,sparse", "pool_lv": "pool"}, "thin"),
        (
            {
                "lv_layout": "thin,sparse",
                "pool_lv": "pool",
                "origin": "t",
                "lv_role": "public,snapshot,thinsnapshot",
            },
            "thin",
        ),
        ({"lv_layout": "thin,pool", "lv_role": "private"}, "pool"),
        ({"lv_role": "public,snapshot,thicksnapshot", "origin": "a"}, "snapshot"),
        ({"lv_layout": "raid,raid1"}, "other"),
        ({"lv_layout": "cache,pool"}, "other"),
        ({"lv_layout": "thin,sparse"}, "other"),
        ({"lv_layout": "vdo,pool"}, "other"),
        ({"lv_layout": ""}, "other"),
    ],
)
def test_a_volume_is_of_the_kind_that_its_layout_says(changed: dict[str, str], kind: str) -> None:
    assert volume(**changed).kind == kind


def test_what_an_inactive_volume_does_not_say_is_not_so() -> None:
    found = volume(
        lv_active="",
        lv_device_open="unknown",
        lv_suspended="unknown",
        lv_kernel_major="-1",
        lv_kernel_minor="-1",
    )
    assert (found.active, found.open, found.suspended) == (False, False, False)
    assert (found.device, found.data_percent) == ("", None)


def test_what_an_active_volume_says_is_so() -> None:
    found = volume(
        lv_device_open="open",
        lv_suspended="suspended",
        lv_permissions="read-only",
        lv_tags="a,b=c",
        data_percent="12.34",
        metadata_percent="100.00",
        lv_health_status="partial",
        lv_role="public,origin,thickorigin",
        zero="zero",
    )
    assert found.active
    assert found.open
    assert found.suspended
    assert not found.writable
    assert found.tags == {"a", "b=c"}
    assert (found.data_percent, found.metadata_percent) == (12.34, 100.0)
    assert (found.health, found.device, found.full_name) == ("partial", "254:0", "vg0/one")
    assert found.has_snapshots
    assert found.zeroes


def test_a_full_snapshot_is_invalid() -> None:
    assert volume(lv_snapshot_invalid="snapshot invalid").health == "invalid"
    assert volume(lv_snapshot_invalid="unknown").health == ""


def test_a_volume_of_several_segments_is_one() -> None:
    other = {**_VOLUME, "lv_name": "two", "lv_uuid": "other"}
    found = read_volumes(report("lv", _VOLUME, _VOLUME, other))
    assert [one.name for one in found] == ["one", "two"]


def test_a_hidden_part_of_several_segments_is_one_and_has_no_brackets() -> None:
    part = {**_VOLUME, "lv_name": "[pool_tdata]", "transaction_id": "", "lv_kernel_major": "-1"}
    found = read_parts(report("lv", part, part))
    assert [(one.name, one.device_bytes, one.pool_transaction) for one in found] == [
        ("pool_tdata", 0, None)
    ]


#: Of LVM 2.03.16, shortened: the volumes of two pools, one of which is called as a message.
_METADATA = """  metadata text at 30208 crc 0xee6546d3 # vgname vg0 seqno 11
  ---
vg0 {
id = "P6miZ1-1qfT-zsFv-UlWr-ATLO-1s78-5mklOC"
seqno = 11

physical_volumes {

pv0 {
id = "YmKR2U-p5zX-nTzR-Rrsk-2dlW-S9UW-rZqXSZ"
}
}

logical_volumes {

pool {
segment_count = 1

segment1 {
type = "thin-pool"
transaction_id = 4
zero_new_blocks = 1
%s}
}

message1 {
tags = ["a={"]

segment1 {
type = "thin-pool"
transaction_id = 1
}
}
}

}
# Generated by LVM2 version 2.03.16(2) (2022-05-18): Thu Nov 26 11:07:11 2026

description = "Write from lvremove vg0/bb."
  ---
"""


@pytest.mark.parametrize(
    ("messages", "pools"),
    [
        ("", []),
        ("\nmessage1 {\ndelete = 2\n}\n", ["pool"]),
        ('\nmessage1 {\ncreate = "two"\n}\n\nmessage2 {\ndelete = 2\n}\n', ["pool"]),
    ],
)
def test_what_a_pool_is_still_to_be_told_is_read(messages: str, pools: list[str]) -> None:
    assert pools_with_messages(_METADATA % messages) == pools


@pytest.mark.parametrize("text", ["", "{", "}", "vg0 {\n}", "No such command."])
def test_what_is_no_metadata_says_nothing_of_pools(text: str) -> None:
    with pytest.raises(BadReport):
        pools_with_messages(text)


# --- groups ----------------------------------------------------------------------------------


def test_a_group_is_read() -> None:
    (found,) = read_groups(report("vg", {**_GROUP, "vg_tags": "x,y", "vg_missing_pv_count": "1"}))
    assert (found.name, found.size_bytes, found.free_bytes) == ("vg0", 532676608, 432013312)
    assert (found.extent_bytes, found.missing, found.writable) == (4194304, 1, True)
    assert found.tags == {"x", "y"}


@pytest.mark.parametrize("changed", [{"vg_permissions": "read-only"}, {"vg_exported": "exported"}])
def test_a_group_that_takes_no_changes_is_not_writable(changed: dict[str, str]) -> None:
    (found,) = read_groups(report("vg", {**_GROUP, **changed}))
    assert not found.writable


def test_no_groups_and_no_volumes_are_none() -> None:
    assert read_groups(report("vg")) == []
    assert read_volumes('{"report": [{"lv": []}]}') == []


# --- groups with their volumes ---------------------------------------------------------------


def run(uuid: str, extents: str, kind: str = "free", may: str = "allocatable") -> dict[str, str]:
    """A segment of a physical volume."""
    return {"pv_uuid": uuid, "pvseg_size": extents, "segtype": kind, "pv_allocatable": may}


def pv(major: str, minor: str) -> dict[str, str]:
    return {"pv_major": major, "pv_minor": minor}


def whole(**changed: list[dict[str, str]]) -> str:
    """As LVM 2.03.16 reports: what nobody asked for stands beside it."""
    lvs = [{key: value for key, value in _VOLUME.items() if key != "zero"}]
    segments = [{"lv_uuid": _VOLUME["lv_uuid"], "zero": "zero"}] * 2
    parts = {"vg": [_GROUP], "pv": [pv("8", "0")], "lv": lvs, "seg": segments}
    parts["pvseg"] = [run("A", "2", "linear"), run("A", "30")]
    return json.dumps({"report": [{**parts, **changed}]})


def test_a_group_is_read_with_its_volumes() -> None:
    ((group, volumes),) = read_whole(whole())
    assert group.name == "vg0"
    assert [(one.name, one.zeroes) for one in volumes] == [("one", True)]
    assert read_whole('{"report": []}') == []


@pytest.mark.parametrize(
    ("told", "disks"),
    [
        ([pv("8", "16"), pv("253", "0")], ("253:0", "8:16")),
        ([pv("8", "16"), pv("-1", "-1")], ()),  # it is missing
        ([pv("8", ""), pv("8", "16")], ()),
        ([{}], ()),
        ([], ()),
    ],
)
def test_a_groups_disks_are_told_if_all_are_known(
    told: list[dict[str, str]], disks: tuple[str, ...]
) -> None:
    ((group, _),) = read_whole(whole(pv=told))
    assert group.disks == disks


def test_what_is_free_is_told_of_each_physical_volume_that_may_be_used() -> None:
    told = [
        *(run("A", "2", "linear"), run("A", "30"), run("B", "7", may=""), run("C", "4")),
        *(run("A", "8", "striped"), run("A", "5"), run("D", "9", "linear")),
    ]
    ((group, _),) = read_whole(whole(pvseg=told, vg=[_GROUP | {"vg_allocation_policy": "cling"}]))
    assert group.free == ((30, 5), (4,))
    assert group.allocation == "cling"
    with pytest.raises(BadReport, match="pvseg_size"):
        read_whole(whole(pvseg=[run("A", "many")]))


def test_a_volume_without_segments_hands_out_nothing_zeroed() -> None:
    ((_, volumes),) = read_whole(whole(seg=[]))
    assert [(one.name, one.zeroes) for one in volumes] == [("one", False)]


@pytest.mark.parametrize("part", ["vg", "lv", "seg", "pvseg"])
def test_a_group_of_which_a_part_is_not_reported_is_a_bad_report(part: str) -> None:
    """Without volumes would say that there are none."""
    report = json.loads(whole())
    del report["report"][0][part]
    with pytest.raises(BadReport, match=f"reports no {part}"):
        read_whole(json.dumps(report))


# --- bad reports -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "No such command.", '{"report": 1}', '{"log": []}', '{"report":[1]}'],
)
@pytest.mark.parametrize("read", [read_groups, read_volumes, read_whole, read_parts])
def test_what_is_no_report_is_not_an_empty_one(read: Callable[[str], Any], text: str) -> None:
    with pytest.raises(BadReport):
        read(text)


@pytest.mark.parametrize("key", ["lv_name", "lv_uuid", "vg_name", "lv_size"])
@pytest.mark.parametrize("value", ["", None])
def test_a_volume_without_its_essentials_is_a_bad_report(key: str, value: str | None) -> None:
    row = {**_VOLUME, key: value or ""}
    if value is None:
        del row[key]
    with pytest.raises(BadReport, match=key):
        read_volumes(report("lv", row))


@pytest.mark.parametrize("size", ["8.00m", "-1", "1e9", "٣", "8388608B"])
def test_a_size_that_is_no_number_of_bytes_is_a_bad_report(size: str) -> None:
    with pytest.raises(BadReport, match="lv_size"):
        volume(lv_size=size)
    with pytest.raises(BadReport, match="vg_free"):
        read_groups(report("vg", {**_GROUP, "vg_free": size}))


def test_a_percentage_that_is_no_number_is_a_bad_report() -> None:
    with pytest.raises(BadReport, match="data_percent"):
        volume(data_percent="much")


@given(st.text())
def test_any_text_is_read_or_is_a_bad_report(text: str) -> None:
    for read in (read_groups, read_volumes, read_whole, read_parts, pools_with_messages):
        try:
            read(text)
        except BadReport:
            continue


@given(st.dictionaries(st.sampled_from(sorted(_VOLUME)), st.text(max_size=20)))
def test_any_row_is_read_or_is_a_bad_report(changed: dict[str, str]) -> None:
    try:
        found = volume(**changed)
    except BadReport:
        return
    assert found.size_bytes >= 0
    assert found.name
    assert found.uuid


# --- the kernel's devices --------------------------------------------------------------------

_VG, _LV = "20WzbXvaz6qlzFH270nllM148DgDokB7", "ncQ28NRJevDlWL1FYdgsZa5iKsCnu6a3"


@pytest.mark.parametrize(
    ("line", "half"),
    [
        (f"vg0-a/LVM-{_VG}{_LV}/Active/Live/0", False),
        (f"vg0-a/LVM-{_VG}{_LV}/Suspended/Live/1", True),
        (f"vg0-a/LVM-{_VG}{_LV}/Active/Both/1", True),
        (f"vg0-a/LVM-{_VG}{_LV}/Active/None/0", True),
        (f"vg0-pool/LVM-{_VG}{_LV}-pool/Active/Live/0", False),
        (f"vg0-pool-tpool/LVM-{_VG}{_LV}-tpool/Active/Live/2", False),
        (f"vg0-pool-tpool/LVM-{_VG}{_LV}-tpool/Active/Live/0", True),
        (f"vg0-pool_tdata/LVM-{_VG}{_LV}-tdata/Active/Live/0", True),
        (f"vg0-a-real/LVM-{_VG}{_LV}-real/Active/Live/what", False),
    ],
)
def test_a_device_is_half_made_or_not(line: str, half: bool) -> None:
    (device,) = read_devices([line])
    assert device.half is half
    assert (device.group_uuid, device.volume_uuid) == (_VG, _LV)


@pytest.mark.parametrize("line", ["", "No devices found", "luks/CRYPT-x/Suspended/Live/0", "a/b"])
def test_devices_of_others_are_left_alone(line: str) -> None:
    assert list(read_devices([line])) == []


# --- complaints ------------------------------------------------------------------------------

_COMPLAINTS = {
    "NoSpaceInGroup": [
        'Volume group "vg0" has insufficient free space (127 extents): 150 required.',
        "Insufficient free space: 209 extents needed, but only 103 available",
        "Insufficient suitable allocatable extents for logical volume rr: 6 more required",
        "Cannot create new thin volume, free space in thin pool vg0/pool reached threshold.",
    ],
    "NameTaken": [
        'Logical Volume "a" already exists in volume group "vg0"',
        "Logical volume pool already exists in Volume group vg0.",
    ],
    "VolumeMissing": [
        'Failed to find logical volume "vg0/none"',
        "Logical volume none not found in volume group vg0.",
        "Snapshot origin LV none not found in Volume group vg0.",
        "Pool nopool not found in Volume group vg0.",
    ],
    "GroupMissing": ['Volume group "none" not found\n  Cannot process volume group none'],
    "VolumeInUse": [
        "Logical volume vg0/a in use.",
        "Logical volume vg0/t1 contains a filesystem in use.",
        "Logical volume vg0/t1 is used by another device.",
        "device-mapper: remove ioctl on vg0-a (254:0) failed: Device or resource busy",
    ],
    "HasSnapshots": [
        "Snapshot origin volumes can be resized only while inactive: try lvchange -an."
    ],
    "LvmFailed": [
        # None of these may be taken for something that is gone, or full.
        "Cannot change VG vg0 while PVs are missing.\n  Cannot process volume group vg0",
        "Multiple VGs found with the same name: skipping vg0",
        "Volume group vg0 is exported",
        "Logical volume vg0/a is not a thin pool.",
        "Number of stripes (2) must not exceed number of physical volumes (1)",
        "Refusing activation of partial LV vg0/b.",
        "device-mapper: create ioctl on vg0-a failed: Device or resource busy",
        "/dev/mapper/control: open failed: No such device",
        "",
    ],
}


@pytest.mark.parametrize(
    ("kind", "said"), [(kind, said) for kind, all_of in _COMPLAINTS.items() for said in all_of]
)
@pytest.mark.parametrize("code", [1, 3, 5])
def test_a_complaint_is_told_by_its_words_whatever_the_status(
    kind: str, said: str, code: int
) -> None:
    """E-FV-29, W-05."""
    beside = "  Please remove the lvm.conf filter, it is ignored with the devices file.\n"
    beside += "  WARNING: not backed up, insufficient free\n"
    error = failed("lvcreate", code, f"{beside}  {said}\n")
    # Not even a warning about room makes it a lack of room.
    assert type(error).__name__ == kind
    if said:
        assert said.splitlines()[0] in str(error)
        assert "WARNING" not in str(error)
        assert "lvm.conf" not in str(error)


def test_a_complaint_in_many_words_is_cut() -> None:
    assert len(str(failed("lvs", 5, "word " * 10_000))) < 2100


# --- commands --------------------------------------------------------------------------------


def saying(tmp_path: Path, *, out: str = "", err: str = "", code: int = 0) -> Lvm:
    """LVM whose programs say just that; what they were asked is in `asked`."""
    (tmp_path / "out").write_text(out)
    (tmp_path / "err").write_text(err)
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\nos.chdir({str(tmp_path)!r})\n"
        # Of LVM's configuration, which says nothing of filters.
        "if 'lvmconfig' in sys.argv: sys.exit(0)\n"
        "open('asked', 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "open('environment', 'w').write(os.environ['LC_ALL'])\n"
        f"sys.stderr.write(open('err').read()); sys.stdout.write(open('out').read())\n"
        f"sys.exit({code})\n"
    )
    program.chmod(0o755)
    return Lvm(run_here, [str(program)])


def asked_of(tmp_path: Path) -> str:
    """All but which devices of this machine it may look at."""
    return re.sub(r" devices\{[^}]*\}", "", (tmp_path / "asked").read_text())


def test_a_report_is_asked_for_as_json_in_bytes_and_plain_english(tmp_path: Path) -> None:
    lvm = saying(tmp_path, out=report("vg", _GROUP), err="  WARNING: PV /dev/x is old.\n")
    assert lvm.group("vg0").size_bytes == 532676608
    asked = asked_of(tmp_path)
    # LVM of 2025 would write errors into that report.
    config = "--config log{report_command_log=0}"
    how = "--reportformat json --units b --nosuffix"
    assert asked.startswith(f"lvm vgs {config} {how} --options vg_name,")
    assert asked.endswith(" vg0\n")
    assert (tmp_path / "environment").read_text() == "C"


def test_a_group_that_is_not_in_the_report_is_missing(tmp_path: Path) -> None:
    with pytest.raises(lvm_module.GroupMissing):
        saying(tmp_path, out=report("vg")).group("vg0")


def test_a_report_of_megabytes_is_read_whole(tmp_path: Path) -> None:
    many = [{**_VOLUME, "lv_name": f"v{n}", "lv_uuid": str(n)} for n in range(5000)]
    found = saying(tmp_path, out=report("lv", *many)).volumes("vg0")
    assert len(found) == 5000


def test_garbage_with_success_is_a_bad_report(tmp_path: Path) -> None:
    """E-FV-29: lvm: RunLVMCmd, JSON, four sentinels, what is unknown."""
    with pytest.raises(BadReport):
        saying(tmp_path, out="all is well").volumes("vg0")


def test_an_unknown_complaint_is_handed_on_in_its_own_words(tmp_path: Path) -> None:
    """E-FV-24, E-FV-29, W-06."""
    with pytest.raises(LvmFailed, match="lvs: something never seen"):
        saying(tmp_path, err="  something never seen\n", code=5).volumes("vg0")
    with pytest.raises(LvmFailed, match="lvs: said aloud"):
        saying(tmp_path, out="said aloud", code=5).volumes("vg0")


def test_lvm_that_is_not_installed_is_said_so() -> None:
    """E-FV-27: cmdutil: an unknown program."""
    with pytest.raises(LvmFailed, match=r"LVM is not there.*install lvm2"):
        Lvm(run_here, ["/no/such/program"]).groups()


def test_growth_that_somebody_else_has_made_is_made(tmp_path: Path) -> None:
    matches = "  New size (2 extents) matches existing size (2 extents).\n"
    saying(tmp_path, err=matches, code=5).extend(volume(), 9 << 20)
    larger = "  New size given (5 extents) not larger than existing size (8 extents)\n"
    saying(tmp_path, err=larger, code=5).extend(volume(), 9 << 20)
    saying(tmp_path, err="  No size change.\n", code=5).extend(volume(), 9 << 20)  # of 2025
    (tmp_path / "asked").unlink()
    saying(tmp_path, code=5).extend(volume(), 8 << 20)
    assert not (tmp_path / "asked").exists()  # it is as large already


def test_tags_change_in_one_command_and_only_if_there_are_any(tmp_path: Path) -> None:
    lvm = saying(tmp_path)
    lvm.retag(volume(), [], [])
    assert not (tmp_path / "asked").exists()
    lvm.retag(volume(), ["a", "b"], ["c"])
    asked = asked_of(tmp_path).replace("--config log{report_command_log=0} ", "")
    assert asked == "lvm lvchange --deltag a --deltag b --addtag c vg0/one\n"


# --- names -----------------------------------------------------------------------------------

GOOD = ["a", "pvc-7ae0f2f0-1111-4222-8333-944444444444", "A_+.9", ".hidden", "x" * 127]
BAD = [
    "",
    "-a",
    ".",
    "..",
    "a b",
    "a/b",
    "a@b",
    "ä",
    "a\n",
    "a\0",
    "x" * 128,
    "snapshot1",
    "pvmove0",
    "a_tmeta",
    "b_rimage_0",
    "vg0/a",
    "--yes",
]


@pytest.mark.parametrize("name", GOOD)
def test_good_names_are_taken(name: str) -> None:
    """E-FV-41: lvm: ValidateLogicalVolumeName."""
    assert check_name(name) == name


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    """E-FV-31, E-FV-32, E-FV-33, E-FV-41."""
    lvm = saying(tmp_path)
    for call in (
        lambda: check_name(name),
        lambda: device_path("vg0", name),
        lambda: lvm.group(name),
        lambda: lvm.volumes(name),
        lambda: lvm.volume("vg0", name),
        lambda: lvm.create("vg0", name, 1),
        lambda: lvm.create(name, "one", 1),
        lambda: lvm.create("vg0", "one", 1, thin_pool=name or "-"),
        lambda: lvm.create_pool("vg0", name, None),
        lambda: lvm.snapshot("vg0", "one", name, active=True),
        lambda: lvm.snapshot("vg0", name, "one", active=True),
        lambda: lvm.recover(name),
    ):
        with pytest.raises(lvm_module.BadName):
            call()
    assert not (tmp_path / "asked").exists()


def test_two_names_that_the_kernel_cannot_join_are_refused() -> None:
    check_names("vg0", "x" * 115)
    for group, name in (("vg0", "x" * 116), ("v-0", "x" * 115), ("vg0", "-".join("x" * 58) + "x")):
        with pytest.raises(lvm_module.BadName):
            check_names(group, name)
