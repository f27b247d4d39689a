"""Identity: whether what is there now is what was published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.volumes.identity import (
    compare,
    from_annotation,
    knows_more,
    may_share_data,
    tells_apart,
    to_annotation,
    unchanged,
)

EXT4 = {"kind": "filesystem", "fsType": "ext4", "root": "/", "uuid": "1111"}
EXPORT = {"kind": "filesystem", "fsType": "zfs", "root": "/", "source": "pool/one"}
DISK = {"kind": "block", "wwn": "naa.5000", "serial": "S1", "model": "Fast 3000"}
NAMELESS_DISK = {"kind": "block", "sizeBytes": "1000", "model": "Virtual"}
PARTITION = {"kind": "block", "wwn": "naa.5000", "serial": "S1", "partUuid": "p-1"}
OLD_PARTITION = {"kind": "block", "serial": "S1", "partStart": "2048", "sizeBytes": "1000"}
LOOP = {"kind": "block", "loopFile": "/srv/disk.img", "loopInode": "42"}
LOOP_PART = {**LOOP, "loopOffset": "1048576"}
RAID = {"kind": "block", "mdUuid": "aa:bb", "model": "md"}
MAPPED = {"kind": "block", "dmUuid": "LVM-1"}


def without(identity: dict[str, str], *keys: str) -> dict[str, str]:
    return {key: value for key, value in identity.items() if key not in keys}


@pytest.mark.parametrize(
    "identity",
    [EXT4, EXPORT, DISK, NAMELESS_DISK, PARTITION, OLD_PARTITION, LOOP, LOOP_PART, RAID, MAPPED],
)
def test_what_has_not_changed_is_the_same(identity: dict[str, str]) -> None:
    assert compare(identity, identity) == ("same", "")


@pytest.mark.parametrize(
    ("recorded", "observed", "named"),
    [
        pytest.param(EXT4, EXT4 | {"uuid": "2222"}, "uuid", id="another filesystem"),
        pytest.param(EXT4, EXT4 | {"root": "/a"}, "root", id="another directory of it"),
        pytest.param(EXT4, EXT4 | {"fsType": "xfs"}, "fsType", id="formatted anew"),
        pytest.param(EXT4, DISK, "kind", id="a device where a filesystem was"),
        pytest.param(DISK, EXT4, "kind", id="a filesystem where a device was"),
        pytest.param(EXPORT, EXPORT | {"source": "pool/two"}, "source", id="another dataset"),
        pytest.param(EXPORT, EXPORT | {"root": "/a"}, "root", id="another part of the dataset"),
        pytest.param(DISK, DISK | {"serial": "S2"}, "serial", id="another disk by serial"),
        pytest.param(DISK, DISK | {"wwn": "naa.6000"}, "wwn", id="another disk by WWN"),
        pytest.param(PARTITION, PARTITION | {"partUuid": "p-2"}, "partUuid", id="its neighbour"),
        pytest.param(
            OLD_PARTITION,
            OLD_PARTITION | {"partStart": "409600"},
            "partStart",
            id="its neighbour where partitions have no UUID",
        ),
        pytest.param(LOOP, LOOP | {"loopInode": "43"}, "loopInode", id="the file made anew"),
        pytest.param(LOOP, LOOP | {"loopFile": "/srv/b.img"}, "loopFile", id="another file"),
        pytest.param(
            LOOP_PART, LOOP_PART | {"loopOffset": "2097152"}, "loopOffset", id="elsewhere in it"
        ),
        pytest.param(RAID, RAID | {"mdUuid": "cc:dd"}, "mdUuid", id="another array"),
        pytest.param(MAPPED, MAPPED | {"dmUuid": "LVM-2"}, "dmUuid", id="another logical volume"),
        pytest.param(
            NAMELESS_DISK,
            NAMELESS_DISK | {"sizeBytes": "2000"},
            "sizeBytes",
            id="another size where nothing better is known",
        ),
        pytest.param(
            NAMELESS_DISK,
            NAMELESS_DISK | {"model": "Other"},
            "model",
            id="another model where nothing better is known",
        ),
    ],
)
def test_what_differs_is_another_volume_and_says_in_what(
    recorded: dict[str, str], observed: dict[str, str], named: str
) -> None:
    comparison = compare(recorded, observed)
    assert comparison.verdict == "differs"
    assert f"its {named} was {recorded[named]!r} and is {observed[named]!r}" in comparison.reason


@pytest.mark.parametrize(
    ("recorded", "hidden"),
    [
        (EXT4, "uuid"),
        (EXT4, "root"),
        (EXT4, "fsType"),
        (EXT4, "kind"),
        (EXPORT, "source"),
        (DISK, "serial"),
        (DISK, "wwn"),
        (PARTITION, "partUuid"),
        (LOOP, "loopFile"),
        (NAMELESS_DISK, "sizeBytes"),
    ],
)
def test_what_cannot_be_read_any_more_is_not_taken_for_the_same(
    recorded: dict[str, str], hidden: str
) -> None:
    comparison = compare(recorded, without(recorded, hidden))
    assert comparison.verdict == "unknown"
    assert f"its {hidden} was {recorded[hidden]!r} and cannot be read now" in comparison.reason


@pytest.mark.parametrize(
    "identity",
    [
        {},
        {"kind": "filesystem"},
        {"kind": "filesystem", "fsType": "vfat"},
        # Where in a filesystem, but not in which one.
        {"kind": "filesystem", "fsType": "vfat", "root": "/"},
        NAMELESS_DISK,
    ],
    ids=str,
)
def test_a_record_without_a_name_tells_no_two_volumes_apart(identity: dict[str, str]) -> None:
    """The caller then asks at least for the size: see the guards of the plan."""
    assert not tells_apart(identity)


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        {"kind": "filesystem"},
        {"kind": "filesystem", "fsType": "vfat"},
        {"kind": "filesystem", "fsType": "vfat", "root": "/"},
    ],
    ids=str,
)
def test_a_record_that_would_fit_any_volume_proves_nothing(recorded: dict[str, str]) -> None:
    for observed in ({"kind": "filesystem", "fsType": "vfat", "root": "/"}, recorded):
        assert compare(recorded, observed).verdict == "unknown"


@pytest.mark.parametrize("identity", [EXT4, EXPORT, DISK, PARTITION, LOOP, LOOP_PART, RAID, MAPPED])
def test_a_record_with_a_name_tells_volumes_apart(identity: dict[str, str]) -> None:
    assert tells_apart(identity)


def test_a_volume_that_grew_is_still_the_same_where_it_has_a_serial() -> None:
    assert compare(DISK, DISK | {"sizeBytes": "5000"}).verdict == "same"
    assert compare(MAPPED, MAPPED | {"sizeBytes": "5000"}).verdict == "same"


def test_what_is_seen_now_and_was_not_recorded_is_no_difference() -> None:
    assert compare(without(DISK, "wwn"), DISK).verdict == "same"


def test_a_model_counts_for_nothing_where_the_disk_has_a_serial() -> None:
    """Firmware and kernels spell it differently from one release to the next."""
    assert compare(DISK, DISK | {"model": "FAST 3000 rev 2"}).verdict == "same"


# --- two looks of one process, moments apart -----------------------------------------------------


def test_a_nameless_volume_is_unchanged_where_all_that_is_known_of_it_is_equal() -> None:
    vfat = {"kind": "filesystem", "fsType": "vfat", "root": "/"}
    assert unchanged(vfat, dict(vfat)).verdict == "same"
    assert unchanged(vfat, vfat | {"root": "/a"}).verdict != "same"
    assert unchanged(vfat, vfat | {"uuid": "1111"}).verdict != "same"
    assert unchanged({}, {}).verdict != "same"


def test_a_volume_with_a_name_is_unchanged_where_it_is_the_same() -> None:
    assert unchanged(EXT4, dict(EXT4)).verdict == "same"
    assert unchanged(DISK, DISK | {"sizeBytes": "5000"}).verdict == "same"
    assert unchanged(EXT4, EXT4 | {"uuid": "2222"}).verdict == "differs"
    assert unchanged(EXT4, without(EXT4, "uuid")).verdict == "unknown"


# --- what has data in common ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        (EXT4, dict(EXT4), True),
        (EXT4, EXT4 | {"root": "/a"}, True),
        (EXT4 | {"root": "/a"}, EXT4 | {"root": "/ab"}, False),
        (EXT4, EXT4 | {"uuid": "2222"}, False),
        (EXT4, EXT4 | {"fsType": "xfs"}, False),
        (DISK, DISK | {"kind": "filesystem"}, False),
        (DISK, PARTITION, True),
        (PARTITION, PARTITION | {"partUuid": "p-2"}, False),
        (DISK, DISK | {"serial": "S2"}, False),
        (NAMELESS_DISK, dict(NAMELESS_DISK), False),
        ({}, {}, False),
    ],
)
def test_which_identities_may_have_data_in_common(
    one: dict[str, str], other: dict[str, str], share: bool
) -> None:
    assert may_share_data(one, other) is share
    assert may_share_data(other, one) is share


# --- the annotation ------------------------------------------------------------------------------


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_down_reads_back_the_same(identity: dict[str, str]) -> None:
    assert from_annotation(to_annotation(identity)) == identity


def test_the_same_identity_is_always_written_alike() -> None:
    assert to_annotation(dict(reversed(EXT4.items()))) == to_annotation(EXT4)
    assert to_annotation(EXT4) == ('{"fsType":"ext4","kind":"filesystem","root":"/","uuid":"1111"}')


def test_without_an_annotation_nothing_was_recorded() -> None:
    assert from_annotation(None) is None


@pytest.mark.parametrize("text", ["", "not json", "[]", "null", '{"uuid":1}', '{"uuid":null}', "{"])
def test_an_unreadable_annotation_is_an_error_and_never_no_identity(text: str) -> None:
    with pytest.raises(ValueError, match="the recorded identity is unreadable"):
        from_annotation(text)


BELOW = EXT4 | {"deviceSerial": "S1", "deviceWwn": "naa.5"}
NUMBERED = NAMELESS_DISK | {"bootId": "b1", "diskSeq": "9"}


def test_a_copy_on_another_device_is_another_volume() -> None:
    comparison = compare(BELOW, BELOW | {"deviceSerial": "S2"})
    assert comparison.verdict == "differs"
    assert "its deviceSerial was 'S1' and is 'S2': it may be a copy" in comparison.reason


@pytest.mark.parametrize("observed", [EXT4, without(BELOW, "deviceWwn")])
def test_facts_of_the_device_count_where_both_have_them(observed: dict[str, str]) -> None:
    assert compare(BELOW, observed).verdict == "same"
    assert compare(observed, BELOW).verdict == "same"


@pytest.mark.parametrize(
    "observed",
    [NUMBERED | {"bootId": "b2"}, NUMBERED | {"diskSeq": "10"}, without(NUMBERED, "diskSeq")],
)
@pytest.mark.parametrize("known", [{}, {"partStart": "2048"}], ids=["a disk", "a part of it"])
def test_what_nothing_tells_apart_may_be_another_once_it_is_renumbered(
    observed: dict[str, str], known: dict[str, str]
) -> None:
    comparison = compare(NUMBERED | known, observed | known)
    assert comparison.verdict == "renumbered"
    assert "the node was restarted or the disk reattached" in comparison.reason
    assert compare(NUMBERED | known, NUMBERED | known).verdict == "same"


def test_another_size_is_another_disk_however_it_is_numbered() -> None:
    assert compare(NUMBERED, NUMBERED | {"sizeBytes": "2000", "bootId": "b2"}).verdict == "differs"


@pytest.mark.parametrize(
    ("recorded", "observed", "more"),
    [
        (EXT4, BELOW, True),
        (BELOW, EXT4, False),
        (BELOW, BELOW | {"devicePartUuid": "p"}, False),
        (NAMELESS_DISK, NUMBERED, True),
        (NUMBERED, NUMBERED | {"diskSeq": "10"}, False),
        (DISK, DISK, False),
    ],
)
def test_a_record_is_completed_once(
    recorded: dict[str, str], observed: dict[str, str], more: bool
) -> None:
    assert knows_more(recorded, observed) is more
