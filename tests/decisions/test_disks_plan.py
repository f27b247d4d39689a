"""The digest of a plan: what it covers, when it counts as approved, and what was done under it."""

from dataclasses import replace
from typing import Any

import pytest

from localvolume.config.disks import DiskMatch
from localvolume.disks.model import Claim, Disk
from localvolume.disks.plan.naming import best_link, entry_name, link_entry_name, stable, uuid_of
from tests.decisions.support_disks import disk, inside, judged, planned, wanted
from tests.suite.units import GIB

ONE, TWO, THREE = disk("sda"), disk("sdb"), disk("sdc")


def formatted(made: Disk, digest: str, *, mounted: bool = True, **keys: Any) -> Disk:
    mounts = (f"/seen/fast/{entry_name(made)}",) if mounted else ()
    uuid = uuid_of(digest, made, wanted())
    fields = {"fs_type": "ext4", "fs_uuid": uuid, "fs_label": "localvolume", "mounts": mounts}
    return inside(made, **{**fields, **keys})


def begun(made: Disk, digest: str, **keys: Any) -> Disk:
    claim = Claim(digest, uuid_of(digest, made, wanted()), stable(made.identity))
    return inside(made, claim=claim, data_at=0, **keys)


class TestDigest:
    def test_it_is_of_what_is_done_and_not_of_the_order(self) -> None:
        found = planned(ONE, TWO)
        assert found.digest.startswith("sha256:")
        assert planned(TWO, ONE).digest == found.digest
        assert not found.approved
        assert "naa.5000sda" in found.text
        assert '"/mnt/fast/wwn-naa.5000sda"' in found.text

    @pytest.mark.parametrize(
        "other",
        [
            lambda: planned(ONE),
            lambda: planned(ONE, TWO, THREE),
            lambda: planned(ONE, TWO, node="node-2"),
            lambda: planned(ONE, replace(TWO, size_bytes=101 * GIB)),
            lambda: planned(ONE, replace(TWO, identity={"wwn": "naa.5001"})),
            lambda: planned(ONE, TWO, filters=[wanted(name="others")]),
            lambda: planned(ONE, TWO, filters=[wanted(class_name="slow")]),
            lambda: planned(ONE, TWO, filters=[wanted(host_dir="/mnt/else")]),
            lambda: planned(ONE, TWO, filters=[wanted(fs_type="xfs")]),
            lambda: planned(ONE, TWO, filters=[wanted(fs_type="")]),
            lambda: planned(ONE, TWO, filters=[wanted(mkfs_options=("-m", "0"))]),
            lambda: planned(
                ONE, TWO, filters=[wanted(match=DiskMatch(transport="sata", model="S*"))]
            ),
        ],
    )
    def test_whatever_else_is_done_has_another(self, other: Any) -> None:
        assert other().digest != planned(ONE, TWO).digest

    def test_what_a_reboot_changes_is_not_in_it(self) -> None:
        renamed = replace(ONE, name="sdx", node="/dev/sdx", device="65:1", sequence="99")
        assert planned(renamed).digest == planned(ONE).digest

    def test_disks_that_are_left_alone_are_not_in_it(self) -> None:
        used = inside(TWO, signature="xfs")
        assert planned(ONE, used).digest == planned(ONE).digest

    def test_nothing_to_do_has_none(self) -> None:
        assert planned(inside(ONE, signature="xfs")).digest == ""

    def test_the_link_of_a_raw_disk_is_in_it(self) -> None:
        filters = [wanted(fs_type="", class_name="raw")]
        found = planned(ONE, filters=filters)
        assert found.rows[0].verdict == "link"
        assert '"wwn-0x5000sda"' in found.text
        moved = replace(ONE, links=("ata-SAMSUNG_sda",))
        assert planned(moved, filters=filters).digest != found.digest


class TestApproval:
    def test_the_digest_of_just_that_approves_it(self) -> None:
        digest = planned(ONE, TWO).digest
        found = planned(ONE, TWO, approved=[digest, "sha256:" + "0" * 64])
        assert found.approved
        assert found.digest == digest
        assert [row.disk.name for row in found.todo] == ["sda", "sdb"]

    @pytest.mark.parametrize("disks", [(ONE,), (ONE, TWO, THREE), (ONE, THREE)])
    def test_a_disk_added_gone_or_changed_stops_all_of_it(self, disks: tuple[Disk, ...]) -> None:
        digest = planned(ONE, TWO).digest
        assert not planned(*disks, approved=[digest]).approved

    def test_an_interrupted_plan_is_finished_under_its_own_digest(self) -> None:
        digest = planned(ONE, TWO, THREE).digest
        now = (formatted(ONE, digest), begun(TWO, digest), THREE)
        found = planned(*now, approved=[digest])
        assert (found.approved, found.digest) == (True, digest)
        assert [row.disk.name for row in found.todo] == ["sdb", "sdc"]
        assert [row.begun for row in found.todo] == [True, False]

    def test_an_interrupted_plan_with_one_disk_more_is_not(self) -> None:
        digest = planned(ONE, TWO).digest
        found = planned(formatted(ONE, digest), TWO, THREE, approved=[digest])
        assert not found.approved
        assert found.partly == (digest,)
        # Approving what is left approves just that.
        again = planned(formatted(ONE, digest), TWO, THREE, approved=[digest, found.digest])
        assert again.approved
        assert [row.disk.name for row in again.todo] == ["sdb", "sdc"]

    def test_an_interrupted_plan_whose_approval_was_withdrawn_is_not(self) -> None:
        digest = planned(ONE, TWO).digest
        found = planned(begun(ONE, digest), TWO)
        assert not found.approved
        assert [row.verdict for row in found.rows] == ["format", "format"]

    def test_a_plan_that_is_done_leaves_new_disks_to_the_next(self) -> None:
        digest = planned(ONE).digest
        found = planned(formatted(ONE, digest), TWO, approved=[digest])
        assert [row.verdict for row in found.rows] == ["done", "format"]
        assert not found.approved
        assert found.digest == planned(TWO).digest
        assert found.partly == ()


class TestDone:
    digest = planned(ONE).digest

    def test_mounted_where_it_belongs(self) -> None:
        row = judged(formatted(ONE, self.digest), approved=[self.digest])
        assert (row.verdict, row.digest) == ("done", self.digest)

    def test_not_mounted_after_a_restart(self) -> None:
        row = judged(formatted(ONE, self.digest, mounted=False), approved=[self.digest])
        assert (row.verdict, row.digest) == ("mount", self.digest)

    def test_a_raw_volume_is_not_mounted(self) -> None:
        """Its tenant can write there whatever looks like ours."""
        made = replace(formatted(ONE, self.digest, mounted=False), offered=("/disks/raw",))
        row = judged(made, approved=[self.digest])
        assert (row.verdict, row.code) == ("hold", "elsewhere")
        assert "/disks/raw" in row.reason

    @pytest.mark.parametrize("keys", [{"mounts": ("/data",)}, {"in_use": "by somebody"}])
    def test_used_elsewhere(self, keys: dict[str, Any]) -> None:
        made = formatted(ONE, self.digest, mounted=False, **keys)
        row = judged(made, approved=[self.digest])
        assert (row.verdict, row.code, row.digest) == ("hold", "elsewhere", self.digest)

    def test_not_under_a_plan_that_is_not_approved_any_more(self) -> None:
        row = judged(formatted(ONE, self.digest, mounted=False, signature="ext4"))
        assert (row.verdict, row.code) == ("hold", "signature")
        assert "not approved any more" in row.reason

    def test_not_on_a_copy_of_the_disk(self) -> None:
        copied = formatted(ONE, self.digest, mounted=False, signature="ext4").inside
        row = judged(replace(TWO, inside=copied), approved=[self.digest])
        assert (row.verdict, row.code) == ("hold", "signature")

    def test_not_for_another_class(self) -> None:
        made = formatted(ONE, self.digest, mounted=False, signature="ext4")
        row = judged(made, filters=[wanted(class_name="slow")], approved=[self.digest])
        assert row.verdict == "hold"

    def test_not_while_it_is_marked_as_unfinished(self) -> None:
        made = begun(ONE, self.digest, fs_type="ext4", signature="ext4")
        assert made.inside is not None
        uuid = uuid_of(self.digest, ONE, wanted())
        made = replace(made, inside=replace(made.inside, fs_uuid=uuid))
        row = judged(made, approved=[self.digest])
        assert (row.verdict, row.begun) == ("format", True)

    def test_a_link(self) -> None:
        filters = [wanted(fs_type="")]
        digest = planned(ONE, filters=filters).digest
        place = f"/seen/fast/{link_entry_name(ONE, digest)}"
        row = judged(replace(ONE, offered=(place,)), filters=filters, approved=[digest])
        assert (row.verdict, row.digest) == ("done", digest)
        row = judged(replace(ONE, offered=("/seen/fast/x",)), filters=filters, approved=[digest])
        assert (row.verdict, row.code) == ("hold", "offered")


class TestBegun:
    digest = planned(ONE).digest
    uuid = uuid_of(digest, ONE, wanted())

    @pytest.mark.parametrize(
        "keys",
        [
            {},
            {"fs_type": "ext4", "fs_uuid": uuid, "signature": "ext4"},
            {"fs_type": "ext4", "fs_uuid": uuid, "signature": "ext2"},
            {"fs_type": "xfs", "fs_uuid": uuid, "signature": "xfs"},
        ],
    )
    def test_what_only_mkfs_left_is_begun_again(self, keys: dict[str, Any]) -> None:
        row = judged(begun(ONE, self.digest, **keys))
        assert (row.verdict, row.begun) == ("format", True)

    @pytest.mark.parametrize(
        "keys",
        [
            {"signature": "LVM2_member"},
            {"fs_type": "ext4", "fs_uuid": "another", "signature": "ext4"},
            {"fs_type": "ext4", "fs_uuid": uuid, "signature": "ambivalent"},
            {"fs_type": "ext4", "fs_uuid": uuid, "signature": "ext4", "fs_was_mounted": True},
        ],
    )
    def test_what_somebody_wrote_since_is_left_alone(self, keys: dict[str, Any]) -> None:
        row = judged(begun(ONE, self.digest, **keys))
        assert (row.verdict, row.code) == ("hold", "signature")

    def test_a_copy_of_a_disk_that_was_begun_is_left_alone(self) -> None:
        row = judged(replace(TWO, inside=begun(ONE, self.digest).inside))
        assert (row.verdict, row.code) == ("hold", "claim")

    def test_a_raw_disk_is_never_begun(self) -> None:
        row = judged(begun(ONE, self.digest), filters=[wanted(fs_type="")])
        assert (row.verdict, row.code) == ("hold", "claim")


class TestNames:
    def test_the_least_that_tells_a_disk_from_others(self) -> None:
        assert stable({"wwn": "naa.5", "serial": "S", "model": "M"}) == {"wwn": "naa.5"}
        assert stable({"serial": "S", "model": "M"}) == {"serial": "S", "model": "M"}
        assert stable({"wwn": "naa.5", "partUuid": "P"}) == {"wwn": "naa.5", "partUuid": "P"}
        assert stable({"model": "M", "sizeBytes": "5"}) == {}

    def test_a_loop_device_is_told_by_its_file_and_where_that_begins(self) -> None:
        there = {"loopFile": "/srv/disk.img", "loopInode": "42", "loopOffset": "4096"}
        assert stable(there | {"model": "M"}) == there
        assert stable({"loopFile": "/srv/disk.img"}) == {"loopFile": "/srv/disk.img"}
        assert stable(there | {"serial": "S"}) == {"serial": "S"}
        named = [entry_name(disk(identity={**there, "loopInode": inode})) for inode in "12"]
        assert all(name.startswith("loop-_srv_disk.img-") for name in named)
        assert named[0] != named[1], "another file at the same path is another disk"

    def test_names_that_are_made_fit_stay_different(self) -> None:
        one, two = (disk(identity={"wwn": f"t10.A{sign}B"}) for sign in "/:")
        assert entry_name(one) != entry_name(two)
        assert "/" not in entry_name(one)
        assert len(entry_name(disk(identity={"wwn": "t10." + "x" * 500}))) < 255

    def test_the_link_that_says_most_of_the_disk(self) -> None:
        assert best_link(disk(links=("ata-A", "wwn-0x5", "lvm-pv-uuid-x"))) == "wwn-0x5"
        assert best_link(disk(links=("other-b", "other-a"))) == "other-a"
        assert best_link(disk(links=())) == ""

    def test_the_uuid_is_of_the_plan_the_disk_and_the_class(self) -> None:
        uuids = {
            uuid_of("sha256:a", ONE, wanted()),
            uuid_of("sha256:b", ONE, wanted()),
            uuid_of("sha256:a", TWO, wanted()),
            uuid_of("sha256:a", ONE, wanted(class_name="slow")),
        }
        assert len(uuids) == 4
        assert uuid_of("sha256:a", ONE, wanted()) in uuids


def test_a_disk_that_cannot_be_read_is_never_taken_for_ours() -> None:
    digest = planned(ONE).digest
    made = formatted(ONE, digest, mounted=False)
    assert made.inside is not None
    row = judged(replace(made, inside=replace(made.inside, unknown="EIO")), approved=[digest])
    assert (row.verdict, row.code) == ("hold", "unknown")
