"""Which volume is taken over for an object that was made anew for the CSI driver, and which not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.dynamic.model import Action, Hold, Keep, Pool, TakeOver
from localvolume.kube.objects import CSISource, PersistentVolume
from localvolume.volumes import marks
from tests.decisions.support_dynamic import a, action, bound, lv, pool, record, volume

OURS = {marks.DYNAMIC_PROVISIONER, marks.CSI_DRIVER}


def anew(was: str | None = "volume-1", fs_type: str | None = None, **fields: Any) -> Any:
    """The object of volume 1 for the driver, in the place of that whose UID is `was`."""
    notes = {} if was is None else {marks.MOVED_ANNOTATION: was}
    given = {"uid": "volume-anew", "provisioner": marks.CSI_DRIVER, "annotations": notes, **fields}
    made = volume(**given)
    csi = CSISource(driver=marks.CSI_DRIVER, volume_handle="pvc-1", fs_type=fs_type)
    return replace(made, spec=replace(made.spec, local=None, csi=csi))


def judged(one: PersistentVolume, home: Pool) -> Action:
    return action(one, bound(), home, provisioners=frozenset(OURS))


def test_it_is_taken_over() -> None:
    assert a(TakeOver, judged(anew(), pool(record()))).record == record()


def test_the_rest_is_done_after_a_crash() -> None:
    """The record was written, and the object still says whose place it took."""
    done = record(volume_uid="volume-anew", driver=marks.CSI_DRIVER)
    a(TakeOver, judged(anew(), pool(done)))
    a(Keep, judged(anew(was=None), pool(done)))


def test_a_record_that_an_agent_had_no_time_to_complete() -> None:
    """It was killed after it had made the object, and moved before another one was started."""
    begun = record(volume_uid="")
    assert a(TakeOver, judged(anew(), pool(begun))).record == begun
    assert "another claim's" in a(Hold, judged(anew(claim_uid="9"), pool(begun))).reason


def test_the_last_claim_counts() -> None:
    a(TakeOver, judged(anew(claim_uid="2"), pool(record(given=("2",)))))
    assert "another claim's" in a(Hold, judged(anew(), pool(record(given=("2",))))).reason


@pytest.mark.parametrize(
    ("object_", "home", "why"),
    [
        pytest.param({"was": "other"}, pool(record()), "'other'", id="another-object"),
        pytest.param({"was": ""}, pool(record(volume_uid="")), "''", id="no-object"),
        pytest.param({"claim_uid": None}, pool(record()), "another claim's", id="no-claim"),
        pytest.param({"claim_uid": "9"}, pool(record()), "another claim's", id="another-claim"),
        pytest.param({}, pool(), "no record", id="no-record"),
        pytest.param({}, pool(record(state="making")), "making", id="not-complete"),
        pytest.param({}, pool(record(state="removed", trash="t")), "removed", id="removed"),
        pytest.param({}, pool(record(driver="x.y")), "another kind", id="another-driver"),
        pytest.param({}, pool(record(snapshot_of="pvc-2")), "another kind", id="snapshot"),
        pytest.param({}, pool(record(adopted=True)), "another kind", id="adopted"),
        pytest.param({}, pool(record(volume_mode="Block")), "Block", id="another-mode"),
        pytest.param({"fs_type": "xfs"}, pool(record()), "of its pool", id="no-filesystem"),
        pytest.param({}, pool(lv(fs_type="xfs"), backend="lvm"), "xfs", id="another-filesystem"),
    ],
)
def test_what_is_not_the_volume_on_record(object_: dict[str, Any], home: Pool, why: str) -> None:
    hold = a(Hold, judged(anew(**object_), home))
    assert why in hold.reason
    assert hold.event == "VolumeNotMoved"
    assert hold.volume is not None


def test_a_pool_that_is_away_says_nothing() -> None:
    answer = a(Hold, judged(anew(), pool(record(), problem="it is not mounted")))
    assert "not mounted" in answer.reason


def test_without_the_annotation_it_is_an_earlier_object_s() -> None:
    """Nobody makes such an object by accident."""
    answer = a(Hold, judged(anew(was=None), pool(record())))
    assert "an earlier object of that name" in answer.reason


def test_only_objects_of_the_driver_are_taken_over() -> None:
    notes = {marks.MOVED_ANNOTATION: "volume-1"}
    answer = action(volume(uid="volume-anew", annotations=notes), bound(), pool(record()))
    assert "an earlier object of that name" in a(Hold, answer).reason
