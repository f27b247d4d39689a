"""What lies in a pool without a PersistentVolume: ended, taken away, purged, or an orphan."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.backends.model import Record
from localvolume.dynamic.model import (
    Ask,
    Hold,
    Keep,
    Make,
    Publish,
    Purge,
    Remember,
    Retire,
    TakeAway,
)
from localvolume.dynamic.plan.orphans import Orphan, orphans_of
from tests.decisions.support_dynamic import (
    a,
    action,
    adopted,
    bound,
    claim,
    facts,
    old_pool,
    planned,
    pool,
    record,
    storage_class,
    unwanted,
    volume,
)
from tests.suite.names import LOCAL_PATH

UNPUBLISHED = [
    pytest.param(record(state="making"), id="making"),
    pytest.param(record(state="made"), id="made"),
    pytest.param(record(volume_uid=""), id="offered-and-perhaps-never-published"),
]


# --- nobody wants it ---------------------------------------------------------------------------


@pytest.mark.parametrize("left", UNPUBLISHED)
def test_nothing_is_taken_away_on_the_word_of_a_cache(left: Any) -> None:
    assert a(Ask, action(pool(left))).record == left


@pytest.mark.parametrize("left", UNPUBLISHED)
def test_both_must_have_been_heard(left: Any) -> None:
    """That the claim is gone, and that there is no PersistentVolume."""
    a(Ask, action(pool(left), gone={"1"}))
    a(Ask, action(pool(left), absent={"pvc-1"}))
    a(Ask, action(pool(left), gone={"2"}, absent={"pvc-1"}))
    a(Ask, action(pool(left), gone={"1"}, absent={"pvc-2"}))
    take = a(TakeAway, action(pool(left), **unwanted(1)))
    assert (take.pool.name, take.record) == ("fast", left)


@pytest.mark.parametrize("left", UNPUBLISHED)
@pytest.mark.parametrize(
    "claimed",
    [
        pytest.param(claim(node="node-2"), id="went-to-another-node"),
        pytest.param(claim(node=""), id="given-back"),
        pytest.param(claim(deleted=True), id="L24-being-deleted"),
    ],
)
def test_a_claim_that_is_not_served_here(left: Any, claimed: Any) -> None:
    """L27: what was begun for it is taken away, once that was heard from the API server."""
    a(Ask, action(claimed, pool(left)))
    a(TakeAway, action(claimed, pool(left), **unwanted(1)))


@pytest.mark.parametrize("left", UNPUBLISHED)
def test_a_claim_that_came_back(left: Any) -> None:
    """What was heard before does not count against the claim that is here."""
    a(Make if left.state == "making" else Publish, action(claim(), pool(left), **unwanted(1)))


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(record(), id="published"),
        pytest.param(record(adopted=True), id="adopted"),
        pytest.param(record(adopted=True, volume_uid=""), id="adopted-unknown"),
    ],
)
def test_what_may_hold_data_is_an_orphan(left: Any) -> None:
    """Not even asked about: whatever the answer, it stays."""
    for heard in ({}, unwanted(1), {"gone": {"", "1"}, "absent": {"pvc-1"}}):
        held = a(Hold, action(pool(left), **heard))
        assert "may hold data" in held.reason
        assert held.event == ""


@pytest.mark.parametrize("left", UNPUBLISHED)
def test_a_volume_that_is_not_in_sight(left: Any) -> None:
    """It was found when asked for: nothing is taken away, nor is it asked for without end."""
    held = a(Hold, action(pool(left), named={"pvc-1"}, **unwanted(1)))
    assert "which this node does not see" in held.reason
    a(Ask, action(pool(left), named={"pvc-2"}))


# --- what was removed --------------------------------------------------------------------------


def test_the_trash_is_emptied_once_the_object_is_gone() -> None:
    assert a(Purge, action(pool(record(state="removed")))).record.state == "removed"
    a(Purge, action(pool(record(state="removed", adopted=True))))
    a(Purge, action(pool(record(state="removed")), claim(deleted=True)))


# --- somebody wants it after all ---------------------------------------------------------------


@pytest.mark.parametrize("state", ["making", "made", "offered", "removed"])
@pytest.mark.parametrize(
    "holder",
    [
        pytest.param(bound(), id="bound"),
        pytest.param(bound(phase="Lost"), id="lost"),
        pytest.param(bound(phase="Pending"), id="its-claim-before-the-binder-said-so"),
        pytest.param(bound(2, volume="pvc-1"), id="another-claim-bound-by-hand"),
        pytest.param(bound(2, volume="pvc-1", phase="Lost"), id="another-that-lost-it"),
        pytest.param(bound(deleted=True), id="being-deleted"),
    ],
)
def test_a_claim_is_bound_to_it(state: str, holder: Any) -> None:
    """Its PersistentVolume is not in sight (its label may be gone): the volume stays."""
    held = a(Hold, action(holder, pool(record(state=state)), **unwanted(1)))
    assert "is bound to it" in held.reason


def test_a_claim_that_only_asks_for_the_name_keeps_nothing() -> None:
    """Else anybody could keep volumes from being removed."""
    other = claim(2, volume="pvc-1")
    a(Purge, action(other, pool(record(state="removed"))))


@pytest.mark.parametrize("first", ["offered", "removed"])
def test_two_pools_have_a_record_of_it(first: str) -> None:
    twice = (pool(record(state=first, volume_uid="")), pool(record(state="offered"), name="b"))
    for pools in (twice, twice[::-1]):
        assert "two pools" in a(Hold, action(*pools, **unwanted(1))).reason


@pytest.mark.parametrize("spare", ["making", "made"])
@pytest.mark.parametrize("other", ["offered", "removed"])
def test_what_was_begun_in_a_pool_that_was_away(spare: str, other: str) -> None:
    """Nobody was ever told of it, and its claim has its volume in another pool."""
    twice = (pool(record(state=spare), name="b"), pool(record(state=other)))
    for pools in (twice, twice[::-1]):
        taken = a(TakeAway, action(*pools, volume()))
        assert (taken.pool.name, taken.record.state, taken.spare) == ("b", spare, True)


def test_what_was_offered_in_a_pool_that_was_away() -> None:
    """Its PersistentVolume names another pool, which knows it: nobody can ever have had this."""
    twice = (pool(record(volume_uid=""), name="b"), pool(record()))
    for pools in (twice, twice[::-1]):
        taken = a(TakeAway, action(*pools, volume()))
        assert (taken.pool.name, taken.record.state, taken.spare) == ("b", "offered", True)


@pytest.mark.parametrize(
    ("there", "home"),
    [
        pytest.param(record(volume_uid="other"), record(), id="was-published"),
        pytest.param(record(volume_uid="", adopted=True), record(), id="adopted"),
        pytest.param(record(volume_uid="", state="removed"), record(), id="removed"),
    ],
)
def test_what_may_have_been_somebodys_stays(there: Record, home: Record) -> None:
    for pools in ((pool(there, name="b"), pool(home)), (pool(home), pool(there, name="b"))):
        assert not isinstance(action(*pools, volume()), TakeAway)


def test_first_the_one_that_counts_is_remembered() -> None:
    twice = (pool(record(volume_uid=""), name="b"), pool(record(volume_uid="")))
    for pools in (twice, twice[::-1]):
        assert a(Remember, action(*pools, volume())).pool.name == "fast"


def test_of_two_that_were_offered_one_is_published() -> None:
    twice = (pool(record(volume_uid=""), name="b"), pool(record(volume_uid="")))
    for pools in (twice, twice[::-1]):
        assert a(Publish, action(claim(), *pools)).pool.name == "fast"
        taken = a(TakeAway, action(*pools, **unwanted(1)))
        assert not taken.spare


def test_never_what_the_volume_itself_names() -> None:
    twice = (pool(record(state="making")), pool(record(state="offered", volume_uid=""), name="b"))
    a(Hold, action(*twice, volume()))


def test_also_where_one_of_them_has_a_problem() -> None:
    broken = pool(record(state="made"), name="b", problem="not mounted")
    fine = pool(record(state="removed"))
    assert isinstance(action(broken, fine, **unwanted(1)), Hold | Keep)
    assert isinstance(action(fine, broken, **unwanted(1)), Hold | Keep)


def test_each_name_is_judged_for_itself() -> None:
    left = pool(record(1, state="made"), record(2, state="removed"), record(3))
    actions = planned(left, **unwanted(1))
    assert [type(actions[f"pvc-{one}"]) for one in (1, 2, 3)] == [TakeAway, Purge, Hold]


# --- orphans -----------------------------------------------------------------------------------


def test_what_no_record_explains_is_an_orphan() -> None:
    found = orphans_of([pool(orphans=["x", ".localvolume/trash/y"])], {}, ())
    assert found == [Orphan("fast", ".localvolume/trash/y"), Orphan("fast", "x")]


def test_a_volume_whose_object_is_gone_is_one() -> None:
    (orphan,) = orphans_of([pool(record(directory="ns/a"))], {}, ())
    assert (orphan.place, orphan.name, orphan.claim) == ("ns/a", "pvc-1", "ns/data-1")
    (image,) = orphans_of([pool(record(directory=""))], {}, ())
    assert image.place == ".localvolume/images/pvc-1.img"


def test_a_volume_with_an_object_is_none() -> None:
    assert orphans_of([pool(record())], {"pvc-1": volume()}, ()) == []


@pytest.mark.parametrize("state", ["making", "made", "removed"])
def test_what_ends_by_itself_is_none(state: str) -> None:
    assert orphans_of([pool(record(state=state))], {}, ()) == []


def test_what_was_perhaps_published_and_is_not_is_one() -> None:
    """Where it may hold data it is not taken away, and nobody else tells of it."""
    left = pool(record(volume_uid=""))
    (orphan,) = orphans_of([left], {}, [claim(2)])
    assert (orphan.place, orphan.name, orphan.claim) == ("pvc-1", "pvc-1", "ns/data-1")
    # It is being published; its claim has it; or its claim has another one's.
    assert orphans_of([left], {}, [claim()]) == []
    assert orphans_of([left], {"pvc-1": volume()}, [bound()]) == []
    assert orphans_of([left], {"pvc-1": adopted()}, ()) == []
    elsewhere = {"pvc-1": volume(pool="fast/of-another-node")}
    assert len(orphans_of([left], elsewhere, [bound()])) == 1
    # A pool that has lost its id has not lost what lies in it.
    assert orphans_of([pool(record())], elsewhere, [bound()]) == []


def test_a_record_that_cannot_be_read_is_one_unless_there_is_an_object() -> None:
    here = pool(unreadable={"pvc-1": "torn"})
    assert orphans_of([here], {}, ()) == [Orphan("fast", "record of pvc-1", "pvc-1")]
    assert orphans_of([here], {"pvc-1": volume()}, ()) == []


def test_a_pool_that_cannot_be_read_has_none() -> None:
    assert orphans_of([pool(record(), orphans=["x"], problem="not mounted")], {}, ()) == []


def test_what_an_older_provisioner_made_is_none() -> None:
    """No record tells of it, but its PersistentVolume does; also of the directories above it."""
    there = adopted(1, LOCAL_PATH, path="/pools/old/ns/data-1")
    here = old_pool(provisioner=LOCAL_PATH, orphans=["ns", "nsx", "ns/other"])
    assert [one.place for one in orphans_of([here], {"pvc-1": there}, ())] == ["ns/other", "nsx"]
    elsewhere = pool(orphans=["ns"])
    assert len(orphans_of([elsewhere, here], {"pvc-1": there}, ())) == 3


def test_orphans_are_only_told_of() -> None:
    assert planned(pool(orphans=["pvc-1", ".localvolume/trash/pvc-2.x"])) == {}
    assert not facts(storage_class()).volumes


def test_a_spare_that_stays_does_not_keep_its_volume_from_being_removed() -> None:
    """D9: it is tried when nothing else is to be done, and what is removed goes all the same."""
    spare = pool(record(state="made"), name="b")
    for pools in ((spare, pool(record())), (pool(record()), spare)):
        a(Retire, action(*pools, volume(phase="Released", deleted=True)))
    for pools in ((spare, pool(record(state="removed"))), (pool(record(state="removed")), spare)):
        purged = a(Purge, action(*pools, **unwanted(1)))
        assert purged.record.state == "removed"
