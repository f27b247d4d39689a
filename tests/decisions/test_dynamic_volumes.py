"""When a PersistentVolume is deleted, when its volume goes, when both stay, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic import patches
from localvolume.dynamic.model import (
    Action,
    Delete,
    Hold,
    Keep,
    MarkReleased,
    Purge,
    Remember,
    Retire,
    Secure,
)
from localvolume.dynamic.plan.given import NOBODY
from localvolume.dynamic.plan.plan import plan
from localvolume.dynamic.plan.undoing import marks_of
from localvolume.kube.objects import CSISource, PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.patches import secured, without_finalizer
from localvolume.volumes.periods import Moment, Witnessed
from tests.decisions.support_dynamic import (
    A_MINUTE_AGO,
    IN_A_MINUTE,
    NOW,
    Thing,
    a,
    action,
    bound,
    claim,
    facts,
    pool,
    record,
    reserved,
    storage_class,
    volume,
)

UPSTREAMS = "external-provisioner.volume.kubernetes.io/finalizer"


# --- shouldDelete ------------------------------------------------------------------------------


def test_released_and_delete() -> None:
    """L59, L64, L77, L05, L35: the object is deleted first; our finalizer holds it."""
    delete = a(Delete, action(volume(phase="Released"), pool(record())))
    assert delete.volume.metadata.uid == "volume-1"


@pytest.mark.parametrize("phase", ["Bound", "Available", "Pending", ""])
def test_not_released(phase: str) -> None:
    """L08, L61, L79"""
    a(Keep, action(volume(phase=phase), pool(record())))


@pytest.mark.parametrize("policy", ["Retain", "Recycle", None])
def test_another_policy(policy: str | None) -> None:
    """L09, L62, L80: any but Delete keeps object and volume."""
    assert (
        "policy" in a(Keep, action(volume(phase="Released", policy=policy), pool(record()))).reason
    )


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_failed(policy: str) -> None:
    """L60: nothing is deleted; with Delete it is said that somebody must look."""
    answer = action(volume(phase="Failed", policy=policy), pool(record()))
    if policy == "Delete":
        assert a(Hold, answer).event == "VolumeFailedDelete"
    else:
        a(Keep, answer)


def test_its_claim_is_still_there() -> None:
    """A phase may be behind: with the claim in sight nothing is deleted."""
    a(Keep, action(volume(phase="Released"), bound(), pool(record())))
    a(Keep, action(volume(phase="Released", deleted=True), bound(), pool(record())))
    a(Keep, action(volume(phase="Released"), bound(deleted=True), pool(record())))
    a(Delete, action(volume(phase="Released"), bound(2), pool(record())))


@pytest.mark.parametrize(
    "emptied",
    [
        pytest.param(volume(phase="Released", claim_uid=None), id="no-claimRef"),
        pytest.param(reserved(phase="Released"), id="no-uid"),
    ],
)
def test_its_claim_ref_was_emptied(emptied: Any) -> None:
    """People do that to have it again; until a controller saw it, the phase is still Released."""
    assert "claimRef" in a(Keep, action(emptied, pool(record()))).reason


def test_the_pool_has_no_record_of_it() -> None:
    """Then the object goes, and what may lie in the pool is left where it is."""
    a(Delete, action(volume(phase="Released"), pool()))
    retire = a(Retire, action(volume(phase="Released", deleted=True), pool()))
    assert (retire.pool, retire.record, retire.keep) == (None, None, True)


# --- being deleted -----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Released", "Available", "Failed"])
def test_deleted_and_held_by_our_finalizer(phase: str) -> None:
    """L36, L78: the volume goes to the trash. Also when people delete it unclaimed, or Failed: to
    delete the object of a Delete volume is to say so.
    """
    one = reserved(phase=phase, deleted=True)
    retire = a(Retire, action(one, pool(record())))
    assert (retire.keep, retire.record, retire.pool) == (False, record(), pool(record()).config)


@pytest.mark.parametrize("finalizers", [(), (UPSTREAMS,), ("kubernetes.io/pv-protection",)])
def test_deleted_without_our_finalizer(finalizers: tuple[str, ...]) -> None:
    """L34, L63: the finalizer is not added any more, and the volume is not touched."""
    one = volume(phase="Released", deleted=True, finalizers=finalizers)
    a(Keep, action(one, pool(record())))


@pytest.mark.parametrize(
    ("phase", "claimed"),
    [("Bound", "1"), ("Available", "1"), ("Pending", "1"), ("", "1"), ("Bound", None)],
)
def test_deleted_and_held_by_a_claim(phase: str, claimed: str | None) -> None:
    """L79: whoever deletes the object of a bound volume waits for its claim."""
    one = volume(phase=phase, deleted=True, claim_uid=claimed)
    assert "once its claim is gone" in a(Keep, action(one, pool(record()))).reason


@pytest.mark.parametrize("policy", ["Retain", "Recycle", None])
@pytest.mark.parametrize("claimed", ["1", None])
def test_deleted_and_to_be_kept(policy: str | None, claimed: str | None) -> None:
    """L33, L80: the object is let go and the data stays, also where claimRef was emptied.

    Upstream strips its finalizer from Retain volumes; ours stays, so that the record is ended.
    """
    phase = "Released" if claimed else "Available"
    one = volume(phase=phase, policy=policy, deleted=True, claim_uid=claimed)
    assert a(Retire, action(one, pool(record()))).keep


@pytest.mark.parametrize(("policy", "kept"), [("Delete", False), ("Retain", True)])
def test_in_the_trash_already(policy: str, kept: bool) -> None:
    """L38: after a crash before the finalizer went. Whoever has set Retain since wants the data:
    its record goes, and what is in the trash is listed as an orphan and never purged."""
    one = volume(phase="Released", policy=policy, deleted=True)
    retire = a(Retire, action(one, pool(record(state="removed"))))
    assert retire.keep is kept
    assert retire.record is not None


def test_removed_again_and_again_until_it_is() -> None:
    """L11, L13, L37: a failure changes nothing of what is decided."""
    one = facts(volume(phase="Released", deleted=True), pool(record()))
    assert plan(one).actions == plan(one).actions
    a(Retire, plan(one).actions[0])


# --- our finalizer -----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
@pytest.mark.parametrize("phase", ["Bound", "Available", "Pending"])
def test_the_finalizer_is_given_back(policy: str, phase: str) -> None:
    """L39, L40, L41: Bound volumes get it. L32, L33: unlike upstream's it cannot be switched off,
    and Retain volumes have it too.
    """
    a(Secure, action(volume(phase=phase, policy=policy, finalizers=()), pool(record())))
    a(Keep, action(volume(phase=phase, policy=policy), pool(record())))


@pytest.mark.parametrize(
    ("there", "then"),
    [
        pytest.param((), [marks.FINALIZER], id="L87-L88-none"),
        pytest.param(("a", "b"), ["a", "b", marks.FINALIZER], id="L89-others"),
    ],
)
def test_adding_it_keeps_the_others(there: tuple[str, ...], then: list[str]) -> None:
    """L86 (it is there already) is no action at all."""
    patch = secured(volume(finalizers=there)).body["metadata"]
    assert patch == {"uid": "volume-1", "resourceVersion": "7", "finalizers": then}


@pytest.mark.parametrize(
    ("there", "at"),
    [
        pytest.param((marks.FINALIZER,), 0, id="L81-the-only-one"),
        pytest.param(("a", marks.FINALIZER, "b"), 1, id="L83-among-others"),
    ],
)
def test_removing_it_keeps_the_others(there: tuple[str, ...], at: int) -> None:
    patch = without_finalizer(volume(finalizers=there))
    assert patch.body[-1] == {"op": "remove", "path": f"/metadata/finalizers/{at}"}


@pytest.mark.parametrize("there", [pytest.param(("a",), id="L82"), pytest.param((), id="L84-L85")])
def test_removing_what_is_not_there(there: tuple[str, ...]) -> None:
    """No action asks for it, and no patch can be made for it."""
    one = volume(phase="Released", deleted=True, finalizers=there)
    a(Keep, action(one, pool(record())))
    with pytest.raises(ValueError, match="not in tuple"):
        without_finalizer(one)


# --- the record follows the object -------------------------------------------------------------


@pytest.mark.parametrize("state", ["made", "offered"])
def test_the_record_learns_of_the_object(state: str) -> None:
    """L12, L25: the object was created, and the agent died before it wrote that down."""
    remember = a(Remember, action(volume(), pool(record(state=state, volume_uid=""))))
    assert remember.volume.metadata.uid == "volume-1"


def test_before_anything_is_deleted() -> None:
    a(Remember, action(volume(phase="Released"), pool(record(volume_uid=""))))
    a(Remember, action(volume(phase="Released", deleted=True), pool(record(volume_uid=""))))


def test_an_object_whose_volume_is_not_complete() -> None:
    """Nothing of ours makes such a one: somebody must look."""
    held = a(Hold, action(volume(phase="Released"), pool(record(state="making"))))
    assert held.event == "VolumeFailedDelete"


@pytest.mark.parametrize("phase", ["Pending", "Available"])
def test_deleted_before_it_was_bound(phase: str) -> None:
    """Else the claim would wait for the object's end, and the object for the claim's."""
    going = volume(phase=phase, deleted=True)
    a(Retire, action(going, claim(), pool(record())))
    a(Keep, action(going, bound(), pool(record())))
    # A claim that is not in sight may have it by now.
    a(Keep, action(going, pool(record())))


# --- undo --------------------------------------------------------------------------------------

PERIOD = pool(record(), undo_seconds=100.0)


def test_the_claim_is_missed_first() -> None:
    mark = a(MarkReleased, action(volume(phase="Released"), PERIOD))
    assert (mark.again, mark.period) == (False, 100.0)
    assert mark.reason.endswith(" after 1m40s")
    # What is left of what was promised is no whole number.
    left = a(MarkReleased, action(volume(phase="Released"), pool(record(), undo_seconds=99.7)))
    assert left.reason == mark.reason


def test_what_is_written_of_an_earlier_claim_counts_no_more() -> None:
    """Bound and released again while the agent was down: the time begins anew."""
    earlier = {marks.RELEASED_ANNOTATION: "2020-01-01T00:00:00Z an-earlier-claim"}
    a(MarkReleased, action(volume(phase="Released", annotations=earlier), PERIOD))


def test_it_can_still_be_undone() -> None:
    held = a(Hold, action(volume(phase="Released", since=A_MINUTE_AGO), PERIOD))
    assert (held.again_seconds, held.event) == (40.0, "")


@pytest.mark.parametrize(("later", "over"), [(39.5, False), (40.0, True), (86400.0, True)])
def test_the_period_is_over(later: float, over: bool) -> None:
    answer = action(volume(phase="Released", since=A_MINUTE_AGO), PERIOD, now=NOW + later)
    a(Delete if over else Hold, answer)


YEAR = 365 * 86400.0
SEEN_NOTHING = {"volume-1": Witnessed(0.0, NOW)}


@pytest.mark.parametrize(
    ("now", "witnessed", "said"),
    [
        pytest.param(Moment(NOW + YEAR, NOW), SEEN_NOTHING, "this machine's clock", id="here"),
        pytest.param(Moment(NOW, NOW + YEAR), SEEN_NOTHING, "the API server's is", id="there"),
        pytest.param(Moment(NOW + YEAR, NOW + YEAR), SEEN_NOTHING, "", id="both"),
        pytest.param(Moment(NOW + YEAR, None), SEEN_NOTHING, "", id="no-answer-yet"),
        pytest.param(Moment(NOW + YEAR, NOW + YEAR), {}, "", id="not-looked-at-yet"),
    ],
)
def test_a_clock_that_jumps_ends_no_period(
    now: Moment, witnessed: dict[str, Witnessed], said: str
) -> None:
    one = volume(phase="Released", since=A_MINUTE_AGO)
    held = a(Hold, action(one, PERIOD, now=now, witnessed=witnessed))
    assert held.event == ("VolumeFailedDelete" if said else "")
    assert f"can still be undone: {said}" in held.reason if said else ":" not in held.reason
    assert held.again_seconds is not None
    assert 0 < held.again_seconds <= 100.0
    # All of it has been seen.
    a(Delete, action(one, PERIOD, now=now, witnessed={"volume-1": Witnessed(100.0)}))


def test_nothing_calls_for_a_look_where_nobody_can_tell_when() -> None:
    """Marked without a beginning: it is looked at again with everything else."""
    one = volume(phase="Released", until=IN_A_MINUTE)
    held = a(Hold, action(one, pool(record()), now=Moment(NOW, None)))
    assert held.again_seconds is None


def test_a_clock_that_is_ahead_takes_nothing_off_what_was_promised() -> None:
    one = volume(phase="Released", until="2027-01-15T09:00:00Z")
    mark = a(MarkReleased, action(one, PERIOD, now=Moment(NOW + YEAR, NOW)))
    assert mark.period == 3600.0


def test_beginnings_are_told_apart_by_volume_and_by_what_is_written() -> None:
    released = volume(phase="Released", since=A_MINUTE_AGO)
    earlier = {marks.RELEASED_ANNOTATION: "2020-01-01T00:00:00Z an-earlier-claim"}
    others = [volume(), volume(phase="Bound", since=A_MINUTE_AGO), volume(phase="Released")]
    others.append(volume(phase="Released", annotations=earlier))
    assert marks_of(others) == {}
    assert marks_of([released]) == {"volume-1": f"{A_MINUTE_AGO} 1"}


def test_a_time_that_cannot_be_read_is_written_anew() -> None:
    a(MarkReleased, action(volume(phase="Released", since="yesterday"), PERIOD))


@pytest.mark.parametrize(
    ("wished", "then"), [(0.0, Delete), (30.0, Delete), (200.0, Hold), (None, Hold)]
)
def test_the_class_says_how_long(wished: float | None, then: type[Action]) -> None:
    """Before the pool does; None: as the pool says."""
    class_facts = storage_class(undo_seconds=wished)
    a(then, action(volume(phase="Released", since=A_MINUTE_AGO), class_facts, PERIOD))


# What was promised when the volume was marked.
TOLD: dict[str, Any] = {"phase": "Released", "since": A_MINUTE_AGO, "until": IN_A_MINUTE}


@pytest.mark.parametrize("wished", [0.0, 30.0, 100.0])
@pytest.mark.parametrize("kept_by", [pool(record()), PERIOD])
def test_a_shorter_period_takes_nothing_back(wished: float, kept_by: Any) -> None:
    """A class is deleted and made anew to change it: its parameters cannot be changed."""
    for class_facts in (storage_class(undo_seconds=wished), storage_class()):
        held = a(Hold, action(volume(**TOLD), class_facts, kept_by))
        assert (held.again_seconds, held.event) == (60.0, "")
    a(Delete, action(volume(**TOLD), storage_class(undo_seconds=wished), kept_by, now=NOW + 60.0))


def test_a_longer_period_counts() -> None:
    held = a(Hold, action(volume(**TOLD), storage_class(undo_seconds=200.0), PERIOD))
    assert held.again_seconds == 140.0


@pytest.mark.parametrize("kept_by", [pool(record()), PERIOD, pool(record(), undo_seconds=1e6)])
def test_what_was_promised_outlives_the_class(kept_by: Any) -> None:
    one = volume(class_name="gone", **TOLD)
    assert a(Hold, action(one, kept_by)).again_seconds == 60.0
    a(Delete, action(one, kept_by, now=NOW + 60.0))


@pytest.mark.parametrize("since", [None, A_MINUTE_AGO])
@pytest.mark.parametrize("kept_by", [pool(record()), PERIOD])
def test_a_class_that_was_gone_before_anything_was_promised(
    since: str | None, kept_by: Any
) -> None:
    """Nobody can tell what it said; also where the mark is of an agent that wrote no end."""
    one = volume(phase="Released", class_name="gone", since=since)
    held = a(Hold, action(one, kept_by, now=NOW + 1e9))
    assert held.event == "VolumeFailedDelete"
    assert "create the class again, or delete the PersistentVolume" in held.reason


@pytest.mark.parametrize("since", [None, A_MINUTE_AGO])
def test_a_class_that_is_not_valid_ends_no_period(since: str | None) -> None:
    """Nothing that could be read of it counts, least of all that it says no period."""
    bad = storage_class(problem="parameter undoPeriod: '1d' has the unknown unit 'd'")
    held = a(Hold, action(volume(phase="Released", since=since), bad, PERIOD, now=NOW + 1e9))
    assert held.event == "VolumeFailedDelete"
    assert "parameter undoPeriod" in held.reason
    # Before that was over it was not to be removed in any case.
    assert a(Hold, action(volume(**TOLD), bad, PERIOD)).event == ""
    assert a(Hold, action(volume(**TOLD), bad, PERIOD, now=NOW + 1e9)).event == "VolumeFailedDelete"


@pytest.mark.parametrize(
    "written", ["", " ", "tomorrow 1", "1800000060 1", "2027-01-15T08:01:00Z", "2027-01-15 1"]
)
@pytest.mark.parametrize("class_name", ["local", "gone"])
def test_a_promise_that_cannot_be_read(written: str, class_name: str) -> None:
    there = {marks.KEPT_ANNOTATION: written}
    for since in (None, A_MINUTE_AGO):
        one = volume(phase="Released", since=since, class_name=class_name, annotations=there)
        held = a(Hold, action(one, pool(record()), now=NOW + 1e9))
        assert held.event == "VolumeFailedDelete"
        assert "not a time and the UID of a claim" in held.reason


def test_what_an_earlier_claim_was_promised_counts_no_more() -> None:
    earlier = {marks.KEPT_ANNOTATION: "2099-01-01T00:00:00Z an-earlier-claim"}
    a(Delete, action(volume(phase="Released", annotations=earlier), pool(record())))
    one = volume(phase="Released", since=A_MINUTE_AGO, annotations=earlier)
    assert a(Hold, action(one, PERIOD)).again_seconds == 40.0


def test_marking_it_anew_takes_nothing_back() -> None:
    told = {**TOLD, "since": "yesterday"}
    assert a(MarkReleased, action(volume(**told), PERIOD)).period == 100.0
    short = pool(record(), undo_seconds=5.0)
    assert a(MarkReleased, action(volume(**told), short)).period == 60.0
    assert a(Hold, action(volume(**told), pool(record()))).again_seconds == 60.0


def test_what_is_written_down() -> None:
    """In whole seconds, none too few."""
    patch = patches.released(volume(phase="Released"), NOW + 0.9, 60.0)
    assert patch.body["metadata"]["annotations"] == {
        marks.RELEASED_ANNOTATION: "2027-01-15T08:00:00Z 1",
        marks.KEPT_ANNOTATION: "2027-01-15T08:01:01Z 1",
    }
    longest = patches.released(volume(), NOW, 292 * 365.0 * 86400.0).body["metadata"]
    assert longest["annotations"][marks.KEPT_ANNOTATION].startswith("2318-")


@pytest.mark.parametrize("patch", [patches.released(volume(), None), patches.undone(volume())])
def test_what_is_forgotten(patch: Any) -> None:
    forgotten = {marks.RELEASED_ANNOTATION: None, marks.KEPT_ANNOTATION: None}
    assert patch.body["metadata"]["annotations"] == forgotten


@pytest.mark.parametrize("phase", ["Bound", "Available", "Pending"])
def test_a_promise_is_forgotten_too(phase: str) -> None:
    assert a(MarkReleased, action(volume(phase=phase, until=IN_A_MINUTE), PERIOD)).again


@pytest.mark.parametrize("phase", ["Bound", "Available", "Pending"])
def test_claimed_again(phase: str) -> None:
    """It is forgotten, so that the next period begins anew."""
    mark = a(MarkReleased, action(volume(phase=phase, since=A_MINUTE_AGO), PERIOD))
    assert mark.again


@pytest.mark.parametrize("policy", ["Retain", "Recycle"])
def test_the_policy_was_changed_meanwhile(policy: str) -> None:
    kept = action(volume(phase="Released", since=A_MINUTE_AGO, policy=policy), PERIOD, now=NOW + 99)
    a(Keep, kept)


def test_who_deletes_the_object_does_not_wait() -> None:
    a(Retire, action(volume(phase="Released", deleted=True, since=A_MINUTE_AGO), PERIOD))
    a(Retire, action(volume(deleted=True, **TOLD), PERIOD))
    a(Retire, action(volume(phase="Released", deleted=True, class_name="gone"), PERIOD))
    a(Retire, action(volume(phase="Released", deleted=True), storage_class(problem="bad"), PERIOD))


# --- one name, several things ------------------------------------------------------------------


def test_an_object_is_judged_before_its_record() -> None:
    a(Hold, action(volume(pool="gone/id"), pool(record(state="removed"))))
    a(Keep, action(volume(), pool(record()), gone={"1"}, absent={"pvc-1"}))


def test_a_new_claim_does_not_save_an_old_volume() -> None:
    actions = plan(facts(volume(phase="Released"), claim(2), pool(record()))).actions
    assert [type(one).__name__ for one in actions] == ["Delete", "Make"]


def test_what_is_under_way_is_left_alone() -> None:
    busy = {"pvc-1"}
    assert not plan(facts(volume(phase="Released"), pool(record()), busy=busy)).actions
    assert not plan(facts(pool(record(state="removed")), busy=busy)).actions
    a(Purge, action(pool(record(state="removed"))))


# --- given again -------------------------------------------------------------------------------


def test_whom_it_is_given_to_is_remembered() -> None:
    known = pool(record())
    remember = a(Remember, action(volume(claim_uid="2"), known))
    assert (remember.given, remember.reason) == ("2", "another claim has it")
    assert a(Remember, action(reserved(phase="Available"), known)).given == NOBODY
    twice = pool(record(given=(NOBODY, "2")))
    assert not isinstance(action(volume(claim_uid="2"), twice), Remember)
    assert not isinstance(
        action(reserved(phase="Available"), pool(record(given=(NOBODY,)))), Remember
    )
    # With its claim: the API server has been set back, and the claim has it once more.
    assert a(Remember, action(volume(), bound(), twice)).given == "1"
    assert not isinstance(action(volume(), twice), Remember)


@pytest.mark.parametrize("said", [None, "1", "-2", "2x", "", "9" * 4000])
def test_a_volume_of_the_driver_is_kept_by_an_object_from_before(said: str | None) -> None:
    """The kubelet asks us for it: the API server was set back, and the data is another's."""
    known = pool(record(given=("2", "3"), generation=2))
    notes = {} if said is None else {marks.GENERATION_ANNOTATION: said}
    named = [driven(annotations=notes, claim_uid=uid) for uid in ("1", "2", "3", "4")]
    for found in (*named, driven(annotations=notes, phase="Available")):
        for things in ([bound()], []):
            is_kept(of_driver(found, *things, known), until=2)
    is_kept(of_driver(driven(annotations=notes, phase="Released"), known), until=2)
    # It goes once its claim is gone; until then, pods wait.
    for uid in ("1", "3"):
        going = driven(annotations=notes, claim_uid=uid, deleted=True)
        is_kept(of_driver(going, bound(uid), known), until=2)
    # Who deletes the object means it.
    a(Retire, of_driver(driven(annotations=notes, phase="Released", deleted=True), known))


def is_kept(found: Action, *, until: int) -> None:
    hold = a(Hold, found)
    assert hold.event == "VolumeKeptFromClaim"
    assert hold.reason.endswith(f"with localvolume.dev/generation={until}")


@pytest.mark.parametrize("said", ["2", "3"])
def test_a_volume_of_the_driver_is_its_claims_by_an_object_of_the_last_hand_over(said: str) -> None:
    """Three: the agent was killed before the record said so too."""
    known, notes = pool(record(given=("2", "3"), generation=2)), {marks.GENERATION_ANNOTATION: said}
    a(Keep, of_driver(driven(annotations=notes, claim_uid="3"), known))
    # An administrator had it name an earlier claim again, or a new one.
    for uid in ("1", "4"):
        assert a(Remember, of_driver(driven(annotations=notes, claim_uid=uid), known)).given == uid
    # Somebody deletes the object, and its claim goes on.
    going = driven(annotations=notes, claim_uid="4", deleted=True)
    assert a(Remember, of_driver(going, known)).given == "4"


def test_a_record_from_before_hand_overs_were_counted_has_the_claims_alone() -> None:
    known = pool(record(given=("2",)))
    is_kept(of_driver(driven(), bound(), known), until=1)
    a(Keep, of_driver(driven(claim_uid="2"), known))
    said = {marks.GENERATION_ANNOTATION: "1"}
    assert a(Remember, of_driver(driven(annotations=said), known)).given == "1"


@pytest.mark.parametrize(("given", "count"), [((), 0), ((NOBODY, "2"), 2)])
def test_an_object_made_anew_for_another_claim_waits_for_a_word(
    given: tuple[str, ...], count: int
) -> None:
    known = pool(record(given=given, generation=count))
    said = {marks.GENERATION_ANNOTATION: str(count)}
    for things in ({"claim_uid": "4"}, {"phase": "Available", "claim_uid": None}):
        found = driven(uid="anew", annotations=said, **things)
        is_kept(of_driver(found, known), until=count + 1)
    word = {marks.GENERATION_ANNOTATION: str(count + 1)}
    taken = a(Remember, of_driver(driven(uid="anew", annotations=word, claim_uid="4"), known))
    assert (taken.volume.metadata.uid, taken.given) == ("anew", "4")
    # One for the same claim is let to its pods, and removes nothing.
    same = driven(uid="anew", annotations=said, claim_uid="2" if given else "1")
    assert a(Hold, of_driver(same, known)).event == ""


def test_a_volume_that_the_kubelet_mounts_itself_is_kept_from_nobody() -> None:
    known = pool(record(given=("2",), generation=1))
    assert a(Remember, action(volume(), bound(), known)).given == "1"


def driven(**changes: Any) -> PersistentVolume:
    """The same volume of our CSI driver."""
    made = volume(provisioner=CSI_DRIVER, **changes)
    source = CSISource(driver=CSI_DRIVER, volume_handle=made.metadata.name)
    return structs.replace(made, spec=structs.replace(made.spec, local=None, csi=source))


def of_driver(*things: Thing) -> Action:
    return action(*things, provisioners=frozenset({CSI_DRIVER}))


def test_nothing_is_written_of_what_goes() -> None:
    """It must go where there is no room to write anything."""
    a(Retire, action(volume(phase="Released", claim_uid="2", deleted=True), pool(record())))
    a(Delete, action(volume(phase="Released", claim_uid="2"), pool(record())))
    a(Retire, action(reserved(phase="Available", deleted=True), pool(record())))


@pytest.mark.parametrize("given", [("2",), (NOBODY,), ("1", "2"), (NOBODY, "2")])
def test_the_end_of_an_earlier_claim_removes_nothing(given: tuple[str, ...]) -> None:
    hold = a(Hold, action(volume(phase="Released"), pool(record(given=given))))
    assert hold.event == "VolumeFailedDelete"
    assert "may have been set back" in hold.reason
    a(Delete, action(volume(phase="Released"), pool(record(given=(*given, "1")))))
    # Who deletes the object means it.
    a(Retire, action(volume(phase="Released", deleted=True), pool(record(given=given))))
