"""What a pool of logical volumes makes of an LVM that does not do as it is told."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.lvm.record import GROWTH, KIND, OF
from localvolume.backends.model import BackendFailed, GoesOn, Impossible, NotThisVolume
from localvolume.host.lvm.commands import Lvm
from localvolume.volumes.lvtags import OWNER, POOL_OWNER, encode
from tests.host.support_lvm_told import Told, at_look, raw, snapshot, told_pool
from tests.suite.units import MIB


class TestNotDone:
    """LVM says that it did something, and did not; or it fails."""

    def test_making(self, thin: Told) -> None:
        store, lvm = thin
        lvm.ignored = {"lvcreate"}
        with pytest.raises(BackendFailed, match="made pvc-1, and does not report it"):
            store.make(raw())

    @pytest.mark.parametrize("kind", ["thin", "thick"])
    def test_activating_what_was_begun(self, kind: str, tmp_path: Path) -> None:
        """Of a thin one the pool may not know: it goes, and is made anew. No other ever goes."""
        with told_pool(tmp_path, thin=kind == "thin") as (store, lvm):
            lvm.holds(raw())
            lvm.down("pvc-1")
            lvm.failing = {"--ignoreactivationskip": "No data available"}
            with pytest.raises(GoesOn if kind == "thin" else BackendFailed) as error:
                store.make(raw())
            assert isinstance(error.value, GoesOn) == (kind == "thin")
            assert ("pvc-1" in lvm.rows) == (kind == "thick")

    def test_activating_without_a_word(self, thin: Told) -> None:
        store, lvm = thin
        made = store.make(raw())
        lvm.down("pvc-1")
        lvm.ignored = {"--ignoreactivationskip"}
        with pytest.raises(BackendFailed, match="cannot be activated"):
            store.make(raw())
        assert store.attach_all() == {"pvc-1": f"{lvm.group}/pvc-1 cannot be activated"}
        lvm.ignored = set()
        assert store.make(raw()) == made

    def test_growing(self, thin: Told) -> None:
        """The tags stay: no more than there is was promised."""
        store, lvm = thin
        made = store.make(raw())
        lvm.ignored = {"lvextend"}
        with pytest.raises(BackendFailed, match="says that it extended pvc-1, and did not"):
            store.grow(made, 20 * MIB)
        assert store.look().records["pvc-1"].size_bytes == 12 * MIB

    def test_removing(self, thin: Told) -> None:
        store, lvm = thin
        gone = store.retire(store.make(raw()))
        lvm.ignored = {"lvremove"}
        with pytest.raises(BackendFailed, match="says LVM, and it is still there"):
            store.purge(gone, stop=threading.Event())
        assert store.look().records == {"pvc-1": gone}


class TestMeanwhile:
    """Between the look and the deed."""

    def test_what_was_begun_otherwise_is_made_anew(self, thin: Told) -> None:
        store, lvm = thin
        lvm.holds(raw(size_bytes=8 * MIB), 8 * MIB)
        with pytest.raises(GoesOn, match="is to be made anew"):
            store.make(raw())
        assert "pvc-1" not in lvm.rows
        assert store.make(raw()).size_bytes == 12 * MIB

    def test_one_that_is_gone_is_purged(self, thin: Told) -> None:
        store, lvm = thin
        gone = store.retire(store.make(raw()))
        at_look(lvm, 2, lambda: lvm.rows.pop("pvc-1"))
        lvm.asked.clear()
        store.purge(gone, stop=threading.Event())
        assert not any("lvremove" in line for line in lvm.asked)

    @pytest.mark.parametrize("uuid", ["lv_uuid", "vg_uuid"])
    def test_another_of_its_name_is_left_alone(self, thin: Told, uuid: str) -> None:
        """Also where the group is another: a copy of a disk has volumes of the same UUIDs."""
        store, lvm = thin
        made = store.make(raw())
        before = lvm.tags("pvc-1")
        at_look(lvm, 2, lambda: lvm.rows["pvc-1"].update({uuid: "another"}))
        with pytest.raises(NotThisVolume, match="not the volume any more that it was"):
            store.forget(made)
        assert lvm.tags("pvc-1") == before

    @pytest.mark.parametrize("uuid", ["lv_uuid", "vg_uuid"])
    def test_another_of_its_name_is_not_removed(self, thin: Told, uuid: str) -> None:
        store, lvm = thin
        gone = store.retire(store.make(raw()))
        at_look(lvm, 2, lambda: lvm.rows["pvc-1"].update({uuid: "another"}))
        with pytest.raises(NotThisVolume, match="is another volume: it is left alone"):
            store.purge(gone, stop=threading.Event())
        assert "pvc-1" in lvm.rows

    @pytest.mark.parametrize("down", ["inactive", "suspended"])
    def test_what_nobody_can_use_is_removed_all_the_same(self, thin: Told, down: str) -> None:
        """As a killed command, or an administrator, left it."""
        store, lvm = thin
        made = store.make(raw())

        def changed() -> None:
            if down == "inactive":
                lvm.down("pvc-1")
            else:
                lvm.rows["pvc-1"]["lv_suspended"] = "suspended"

        def refreshed() -> bool:
            """LVM would wait for ever for the I/O of a suspended one."""
            words, lvm.asked[:] = " ".join(lvm.asked), []
            return "--refresh" in words

        changed()
        gone = store.retire(made)
        assert refreshed() == (down == "suspended")
        changed()
        store.purge(gone, stop=threading.Event())
        assert refreshed() == (down == "suspended")
        assert "pvc-1" not in lvm.rows

    def test_what_is_removed_meanwhile_is_not_brought_up(self, thin: Told) -> None:
        store, lvm = thin
        store.make(raw())
        store.attach_all()
        lvm.down("pvc-1")
        gone = lvm.rows["pvc-1"]["lv_tags"].replace("state=made", "state=removed")
        at_look(lvm, 2, lambda: lvm.rows["pvc-1"].update(lv_tags=gone))
        assert not store.look().warnings
        assert not lvm.rows["pvc-1"]["lv_active"]

    def test_what_cannot_be_brought_up_is_told_unless_somebody_works_on_it(
        self, thin: Told
    ) -> None:
        store, lvm = thin
        for name in ("a", "b"):
            store.make(raw(name))
        store.attach_all()
        for name in ("a", "b"):
            lvm.down(name)
        lvm.failing = {"--ignoreactivationskip": "No data available"}
        assert [said.split(":")[0] for said in store.look().warnings] == [
            "a cannot be activated",
            "b cannot be activated",
        ]
        # While b grows, say: whoever does that has it up, and is told why it fails.
        working, over = threading.Event(), threading.Event()

        def work() -> None:
            with store._session.using("b"):
                working.set()
                over.wait(120)

        other = threading.Thread(target=work)

        def before(words: list[str]) -> None:
            if "--ignoreactivationskip" in words and not working.is_set():
                other.start()
                working.wait(120)

        lvm.before = before
        try:
            assert [said.split(":")[0] for said in store.look().warnings] == [
                "a cannot be activated"
            ]
        finally:
            over.set()
            other.join()


class TestKinds:
    def test_a_raw_volume_that_is_neither_linear_nor_striped_does_not_grow(
        self, thick: Told
    ) -> None:
        store, lvm = thick
        record = raw(state="offered")
        lvm.holds(record, lv_layout="raid,raid1")
        with pytest.raises(Impossible, match="neither linear nor striped"):
            store.grow(record, 20 * MIB)
        assert list(lvm.rows) == ["pvc-1"]

    def test_a_raw_volume_grows_by_just_what_was_zeroed(self, thick: Told) -> None:
        """More would have been somebody's, and its user would read it."""
        store, lvm = thick
        record = raw(state="offered")
        lvm.holds(record)
        lvm.unit = 64 * MIB
        with pytest.raises(BackendFailed, match="cannot grow by just"):
            store.grow(record, 20 * MIB)
        assert lvm.rows["pvc-1"]["lv_size"] == str(12 * MIB)

    def test_a_thin_pool_is_never_taken_for_room_to_grow_by(self, thick: Told) -> None:
        """Whatever its tags say: all volumes in it would go with it."""
        store, lvm = thick
        gone = raw(state="removed")
        lvm.holds(gone)
        tags = encode({OWNER: POOL_OWNER, KIND: GROWTH, OF: "pvc-1"})
        lvm.has("pvc-1.growing", tags=sorted(tags), lv_layout="thin,pool")
        with pytest.raises(NotThisVolume, match="is a thin pool: it is left alone"):
            store.purge(gone, stop=threading.Event())
        assert sorted(lvm.rows) == ["pvc-1", "pvc-1.growing"]


class TestCopies:
    def test_one_that_is_cut_is_the_same_when_asked_for_again(self, thin: Told) -> None:
        store, lvm = thin
        origin = raw(state="offered")
        lvm.holds(origin)
        taken = store.copy(snapshot(origin), origin)
        assert (taken.state, taken.snapshot_of) == ("offered", origin.name)
        assert taken.cut_at > 0
        store.attach_all()
        lvm.asked.clear()
        assert store.copy(snapshot(origin), origin) == taken
        assert store.look().records["s"] == taken
        # It never gets a device.
        assert not any("lvcreate" in line or "--activate" in line for line in lvm.asked)

    def test_one_that_was_begun_is_cut_anew(self, thin: Told) -> None:
        """Nobody was told of it, and nobody knows when its volume was so."""
        store, lvm = thin
        origin = raw(state="offered")
        lvm.holds(origin)
        lvm.holds(snapshot(origin))
        before = lvm.rows["s"]["lv_uuid"]
        assert store.copy(snapshot(origin), origin).state == "offered"
        assert lvm.rows["s"]["lv_uuid"] != before

    def test_what_the_pool_has_under_its_number_goes_before(self, thin: Told) -> None:
        store, lvm = thin
        origin = raw(state="offered")
        lvm.holds(origin)
        lvm.mapped = "4096 9"
        assert store.copy(snapshot(origin), origin).holds_bytes == 2 * MIB
        done = [line.split()[0] for line in lvm.asked]
        first, second = (at for at, word in enumerate(done) if word == "lvcreate")
        assert "--snapshot" not in lvm.asked[first]
        assert "lvremove" in done[first:second]
        assert "--snapshot" in lvm.asked[second]

    def test_another_s_volume_of_that_name_is_left_alone(self, thin: Told) -> None:
        store, lvm = thin
        origin = raw(state="offered")
        lvm.holds(origin)
        lvm.has("s")
        with pytest.raises(NotThisVolume, match="already, and it is not this one"):
            store.copy(snapshot(origin), origin)
        lvm.holds(replace(snapshot(origin, "gone"), state="removed"))
        with pytest.raises(NotThisVolume, match="not purged yet"):
            store.copy(snapshot(origin, "gone"), origin)
        lvm.holds(raw("theirs", state="made", claim_uid="other"))
        with pytest.raises(NotThisVolume, match="for another claim"):
            store.copy(replace(raw("theirs", claim_uid="mine"), made_from=origin.name), origin)
        assert not any("lvcreate" in line for line in lvm.asked)

    def test_what_lvm_makes_otherwise_is_not_taken_for_it(self, thin: Told) -> None:
        store, lvm = thin
        origin = raw(state="offered")
        lvm.holds(origin)

        def other(words: list[str]) -> None:
            if words[0] == "lvs" and "s" in lvm.rows:
                lvm.rows["s"]["origin"] = "another"

        lvm.before = other
        with pytest.raises(BackendFailed, match="says that it made a snapshot"):
            store.copy(snapshot(origin), origin)
        assert store.look().records["s"].state == "making"

    def test_thick_volumes_have_none(self, thick: Told) -> None:
        store, lvm = thick
        origin = raw(state="offered")
        lvm.holds(origin)
        assert "use a thin pool" in store.look().abilities.no_copies
        with pytest.raises(Impossible, match="use a thin pool"):
            store.copy(snapshot(origin), origin)
        assert list(lvm.rows) == [origin.name]

    def test_a_reserve_is_only_had_by_what_is_a_snapshot_of_a_thick_volume(
        self, thick: Told
    ) -> None:
        store, lvm = thick
        origin = raw(state="offered")
        lvm.holds(origin, lv_layout="raid,raid1")
        asked = replace(snapshot(origin), reserve_bytes=4 * MIB)
        with pytest.raises(Impossible, match="neither linear nor striped: no snapshot stays"):
            store.copy(asked, origin)
        lvm.holds(origin)
        # Here LVM is one that makes a thin one.
        with pytest.raises(BackendFailed, match="says that it made a snapshot"):
            store.copy(asked, origin)
        assert store.look().records.keys() == {"pvc-1"}

    def test_nobody_uses_a_snapshot_and_no_copy_is_taken_for_untouched(self, thin: Told) -> None:
        store, lvm = thin
        taken = replace(snapshot(raw(state="offered")), state="offered")
        copied = replace(raw("c", state="offered"), made_from="s")
        for one in (taken, copied):
            lvm.holds(one)
            with pytest.raises(NotThisVolume, match="may hold data"):
                store.take_away(one)
        with pytest.raises(NotThisVolume, match="nobody uses it"):
            store.use(taken, lambda source: None)


def test_what_is_freed_for_a_raw_volume_to_grow_onto_is_not_discarded(thick: Told) -> None:
    """D15: the host's LVM may be told to discard the blocks of what is removed."""
    _, lvm = thick
    real = Lvm(lvm)
    for name, keep_blocks in (("growth", True), ("other", False)):
        lvm.has(name)
        volume = real.volume(lvm.group, name)
        assert volume is not None
        real.remove(volume, keep_blocks=keep_blocks)
        (asked,) = [line for line in lvm.asked if line.startswith("lvremove")]
        lvm.asked.clear()
        assert ("issue_discards=0" in asked) == keep_blocks
