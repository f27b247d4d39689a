"""Which pool a claim gets its volume from, how room is counted, and what is promised to nobody."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.backends.capacity import promised
from localvolume.backends.model import Abilities
from localvolume.dynamic.model import Action, Facts, GiveBack, Hold, Keep, Make, Reject
from localvolume.dynamic.plan.plan import UNCOUNTED, plan
from localvolume.volumes.capacity import GIB
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
    volume,
)
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS

CANNOT_ENFORCE = Abilities(enforce=False, why_not="ext4 without project quotas")
ELSEWHERE = Abilities(enforce=True, overwrite=False)


def made_in(actions: dict[str, Action]) -> dict[str, str]:
    return {name: one.pool.name for name, one in actions.items() if isinstance(one, Make)}


def rooms(made: Facts, name: str = "local") -> tuple[int, ...]:
    return plan(made).capacity[name]


# --- the one with the most room ----------------------------------------------------------------


def test_the_pool_with_the_most_room() -> None:
    """W-33: OpenEBS: the group with the least room is chosen."""
    pools = (pool(name="a", room=2 * GIB), pool(name="b", room=3 * GIB), pool(name="c", room=GIB))
    assert made_in(planned(claim(), *pools)) == {"pvc-1": "b"}


def test_claims_of_one_plan_share_the_pools() -> None:
    """The second one sees what the first was promised: never the same room twice."""
    pools = (pool(name="a", room=3 * GIB), pool(name="b", room=2 * GIB))
    wanted = [claim(number, size="1Gi") for number in range(1, 7)]
    actions = planned(*wanted, *pools)
    assert sorted(made_in(actions).values()) == ["a", "a", "a", "b", "b"]
    assert isinstance(actions["pvc-6"], GiveBack)


@pytest.mark.parametrize(("room", "served"), [(GIB, True), (GIB - 1, False), (0, False)])
def test_to_the_last_byte(room: int, served: bool) -> None:
    answer = action(claim(size="1Gi"), pool(room=room))
    if served:
        a(Make, answer)
    else:
        assert "1Gi asked for" in a(GiveBack, answer).reason


def test_all_reasons_are_told() -> None:
    given = a(GiveBack, action(claim(), pool(room=0), pool(name="b", problem="not mounted")))
    assert "pool fast: 0 of room left, 1Gi asked for" in given.reason
    assert "pool b: not mounted" in given.reason


def test_nothing_is_overbooked_unless_the_pool_says_so() -> None:
    full = pool(record(2, size_bytes=9 * GIB), room=0)
    a(GiveBack, action(claim(), full))
    twice = pool(record(2, size_bytes=9 * GIB), room=GIB, overbook=2.0)
    a(Make, action(claim(size="8Gi"), pool(record(2), room=8 * GIB, overbook=2.0)))
    assert "of room left" in a(GiveBack, action(claim(size="12Gi"), twice)).reason


def test_what_is_reserved_is_promised_to_nobody() -> None:
    a(GiveBack, action(claim(), pool(room=2 * GIB, reserve_bytes=2 * GIB)))


# --- what is promised and not on record yet ----------------------------------------------------


def test_what_is_being_made_has_its_room() -> None:
    making = ("fast", record(2, state="making"))
    a(GiveBack, action(claim(), pool(room=GIB), promised=[making]))
    a(Make, action(claim(), pool(room=2 * GIB), promised=[making]))


def test_what_is_on_record_already_counts_once() -> None:
    one = record(2, state="making")
    a(Make, action(claim(), pool(one, room=GIB), promised=[("fast", one)]))


def test_what_is_being_grown_has_its_room() -> None:
    now, then = record(2), record(2, size_bytes=2 * GIB)
    a(GiveBack, action(claim(), pool(now, room=GIB), promised=[("fast", then)]))
    a(Make, action(claim(), pool(now, room=2 * GIB), promised=[("fast", then)]))


def test_a_claim_that_is_being_served_takes_no_more_than_it_was_promised() -> None:
    making = ("fast", record(1, state="making"))
    actions = planned(claim(1), claim(2), pool(room=2 * GIB), promised=[making], busy={"pvc-1"})
    assert made_in(actions) == {"pvc-2": "fast"}


def test_what_is_promised_in_a_pool_that_is_not_configured_any_more() -> None:
    a(Make, action(claim(), promised=[("gone", record(2))]))


# --- foreign flavours --------------------------------------------------------------------------


@pytest.mark.parametrize("provisioner", [KUTTI, LOCAL_PATH, OPENEBS])
def test_sizes_that_mean_nothing_are_not_counted(provisioner: str) -> None:
    """As with the provisioners that are replaced: a claim for more than there is was served."""
    theirs = storage_class("theirs", provisioner)
    wanted = claim(provisioner=provisioner, class_name="theirs", size="1Ei")
    here = old_pool(provisioner=provisioner, room=0)
    assert not a(Make, action(wanted, theirs, here)).record.enforced
    assert rooms(facts(theirs, here), "theirs") == (UNCOUNTED,)


def test_they_are_counted_once_they_are_enforced() -> None:
    theirs = storage_class("theirs", OPENEBS, enforce=True)
    wanted = claim(provisioner=OPENEBS, class_name="theirs", size="2Gi")
    here = old_pool(provisioner=OPENEBS, room=GIB)
    a(GiveBack, action(wanted, theirs, here))
    assert rooms(facts(theirs, here), "theirs") == (GIB,)


def test_room_is_never_less_than_none() -> None:
    """A claim that is not counted may take more than there is."""
    loose, strict = storage_class("loose", KUTTI), storage_class("strict", KUTTI, enforce=True)
    wanted = claim(provisioner=KUTTI, class_name="loose", size="2Gi")
    assert rooms(facts(wanted, loose, strict, old_pool(room=GIB)), "strict") == (0,)


def test_what_a_quota_allows_beyond_the_size_is_counted() -> None:
    """OpenEBS' graces: a tenant may write as much, so that others cannot have it."""
    theirs = storage_class("theirs", OPENEBS, enforce=True, quota_graces=(50.0, 100.0))
    wanted = [claim(number, provisioner=OPENEBS, class_name="theirs") for number in (1, 2)]
    tight, wide = (old_pool(provisioner=OPENEBS, room=size) for size in (2 * GIB - 1, 2 * GIB))
    assert "2Gi asked for" in a(GiveBack, action(wanted[0], theirs, tight)).reason
    actions = planned(*wanted, theirs, wide)
    assert sorted(type(one).__name__ for one in actions.values()) == ["GiveBack", "Make"]
    made = next(one.record for one in actions.values() if isinstance(one, Make))
    # Also while it is being made, and once it is on record.
    busy = facts(wanted[1], theirs, wide, promised=[("old", made)])
    assert rooms(busy, "theirs") == (0,)
    assert promised(old_pool(made, provisioner=OPENEBS).report) == 2 * GIB


def test_native_pools_are_counted_also_where_nothing_is_enforced() -> None:
    loose = storage_class(enforce=False)
    a(GiveBack, action(claim(size="2Gi"), loose, pool(room=GIB, abilities=CANNOT_ENFORCE)))


# --- what a pool cannot do ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "config", "abilities", "why"),
    [
        pytest.param({}, {}, CANNOT_ENFORCE, "ext4 without project quotas", id="enforce"),
        pytest.param(
            {"enforce": True}, {"enforce": False}, CANNOT_ENFORCE, "cannot be enforced", id="class"
        ),
        pytest.param({"fs_type": "xfs"}, {}, None, "needs the backend image", id="fs-type"),
        pytest.param(
            {"overwrite": True}, {"backend": "btrfs"}, ELSEWHERE, "overwritten", id="overwrite"
        ),
        # Whatever the volumes are made of, it is the filesystem that writes elsewhere.
        pytest.param(
            {"overwrite": True},
            {"backend": "image"},
            ELSEWHERE,
            "overwritten",
            id="overwrite-image",
        ),
        pytest.param({"overwrite": True}, {}, ELSEWHERE, "overwritten", id="overwrite-directory"),
        pytest.param({"pools": frozenset({"b"})}, {}, None, "no pool of class", id="by-name"),
        pytest.param({"host_dirs": frozenset({"/b"})}, {}, None, "no pool of", id="by-directory"),
        pytest.param({}, {"classes": ("b",)}, None, "no pool of class", id="the-pool's-classes"),
        pytest.param({}, {"provisioner": KUTTI}, None, "no pool of class", id="provisioner"),
    ],
)
def test_what_does_not_fit(
    wish: dict[str, Any], config: dict[str, Any], abilities: Abilities | None, why: str
) -> None:
    class_facts, here = storage_class(**wish), pool(abilities=abilities, **config)
    assert why in a(GiveBack, action(claim(), class_facts, here)).reason
    planned_now = plan(facts(class_facts, here))
    assert not any(planned_now.capacity.get("local", (0,)))
    # What is published beside the room says the same.
    assert all(why in text for text in planned_now.unfit.values())


@pytest.mark.parametrize(
    ("wish", "config"),
    [
        ({"enforce": False}, {"abilities": CANNOT_ENFORCE}),
        ({"fs_type": "xfs"}, {"backend": "image"}),
        ({"overwrite": True}, {}),
        ({"overwrite": False}, {"abilities": ELSEWHERE}),
        ({"pools": frozenset({"fast"})}, {}),
        ({"host_dirs": frozenset({"/pools/fast"})}, {}),
        ({}, {"classes": ("local",)}),
    ],
)
def test_what_fits(wish: dict[str, Any], config: dict[str, Any]) -> None:
    a(Make, action(claim(), storage_class(**wish), pool(**config)))


def test_what_the_class_asks_for_is_on_record() -> None:
    class_facts = storage_class(
        mode="0750",
        uid="1000",
        gid="2000",
        fs_type="xfs",
        overwrite=True,
        quota_graces=(50.0, None),
    )
    made = a(Make, action(claim(), class_facts, pool(backend="image", sparse=True))).record
    assert (made.mode, made.uid, made.gid) == (0o750, 1000, 2000)
    assert (made.fs_type, made.overwrite, made.sparse) == ("xfs", True, True)
    assert (made.soft_bytes, made.hard_bytes) == (GIB * 3 // 2, None)
    assert (made.directory, made.backend) == ("", "image")


def test_a_claims_name_that_makes_no_owner() -> None:
    asks = storage_class(uid="{{ .PVC.Name }}")
    assert "owner" in a(Reject, action(claim(), asks)).reason


# --- places ------------------------------------------------------------------------------------

BY_NAME: dict[str, Any] = {"directory": "{{ .PVC.Namespace }}/{{ .PVC.Name }}"}
SHARED: dict[str, Any] = {"directory": "all", "unsafe_directory": True}


def test_no_place_is_given_twice() -> None:
    actions = planned(claim(1), claim(2), storage_class(**SHARED))
    assert isinstance(actions["pvc-1"], Make)
    assert "another volume's" in a(Reject, actions["pvc-2"]).reason


@pytest.mark.parametrize("directory", ["ns/data-1", "ns", "ns/data-1/deeper"])
def test_a_place_that_a_record_has(directory: str) -> None:
    taken = pool(record(2, directory=directory))
    assert "another volume's" in a(Reject, action(claim(), storage_class(**BY_NAME), taken)).reason
    a(Make, action(claim(), storage_class(**BY_NAME), pool(record(2, directory="ns/data-10"))))


def test_a_place_that_was_left() -> None:
    left = pool(record(2, state="removed", directory="ns/data-1"))
    a(Make, action(claim(), storage_class(**BY_NAME), left))


def test_a_place_that_is_promised() -> None:
    promised = [("fast", record(2, state="making", directory="ns/data-1"))]
    a(Reject, action(claim(), storage_class(**BY_NAME), promised=promised))


def test_a_place_that_an_older_provisioner_gave() -> None:
    """No record tells of it; its PersistentVolume does."""
    theirs = storage_class("theirs", LOCAL_PATH, **BY_NAME)
    here = old_pool(provisioner=LOCAL_PATH)
    wanted = claim(provisioner=LOCAL_PATH, class_name="theirs")
    there = adopted(2, LOCAL_PATH, phase="Released", policy="Retain", path="/pools/old/ns/data-1")
    assert "another volume's" in a(Reject, action(wanted, theirs, here, there)).reason
    a(Make, action(wanted, theirs, here))


# --- what is published -------------------------------------------------------------------------


def test_the_room_that_is_published_is_what_is_left() -> None:
    pools = (pool(name="a", room=3 * GIB), pool(name="b", room=2 * GIB))
    assert rooms(facts(claim(), *pools)) == (2 * GIB, 2 * GIB)


def test_a_class_without_pools_here_publishes_nothing() -> None:
    assert "local" not in plan(facts(pool(classes=("other",)))).capacity


def test_a_class_or_a_pool_with_a_problem_has_no_room() -> None:
    assert rooms(facts(storage_class(problem="bad"))) == (0,)
    assert rooms(facts(pool(problem="not mounted"), pool(name="b"))) == (0, 100 * GIB)


# --- a pool with a problem ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(pool(problem="/pools/fast is not mounted"), id="not-mounted"),
        pytest.param(pool(record(), problem="it does not answer"), id="hung"),
        pytest.param(pool(record(), pool_id="another"), id="another-pool"),
        pytest.param(pool(record(), pool_id=""), id="no-id"),
        pytest.param(pool(unreadable={"pvc-1": "torn"}), id="unreadable-record"),
        pytest.param(pool(record(), name="slow"), id="unknown-pool"),
    ],
)
@pytest.mark.parametrize(
    ("phase", "deleted"), [("Released", False), ("Released", True), ("Available", True)]
)
def test_nothing_is_removed_from_a_pool_with_a_problem(
    broken: Any, phase: str, deleted: bool
) -> None:
    held = a(Hold, action(volume(phase=phase, deleted=deleted), broken, **deny()))
    assert held.event == "VolumeFailedDelete"
    assert held.volume is not None


def deny() -> dict[str, Any]:
    """All that could speak for removing it."""
    return {"gone": {"1"}, "absent": {"pvc-1"}}


@pytest.mark.parametrize("state", ["making", "made", "offered", "removed"])
def test_nor_by_its_records(state: str) -> None:
    broken = pool(record(state=state), problem="not mounted")
    assert "not mounted" in a(Keep, action(broken, **deny())).reason


def test_a_bound_volume_in_a_pool_with_a_problem_is_not_complained_about_each_time() -> None:
    held = a(Hold, action(volume(), bound(), pool(problem="not mounted")))
    assert held.event == ""


# --- what an earlier agent of this node has not let go of ---------------------------------------

TAKEN: dict[str, Any] = {"problem": "another agent works there", "taken": True}


def test_a_claim_in_the_hands_of_an_earlier_agent_waits_for_it() -> None:
    """That one may just be making its volume: no other pool is taken, nothing is given back."""
    held = a(Hold, action(claim(), pool(**TAKEN), pool(name="b")))
    assert (held.reason, held.event) == ("pool fast: another agent works there", "")
    assert held.claim == claim()


def test_a_pool_that_is_not_for_the_claim_holds_nobody_up() -> None:
    actions = planned(claim(), old_pool(**TAKEN), pool())
    assert made_in(actions) == {"pvc-1": "fast"}


def test_a_volume_that_an_earlier_agent_works_at_does_not_grow_and_nobody_complains() -> None:
    held = a(Hold, action(bound(size="3Gi"), volume(), pool(**TAKEN)))
    assert (held.reason, held.event) == ("pool fast: another agent works there", "")


def test_nor_is_it_removed_and_nobody_complains() -> None:
    held = a(Hold, action(volume(phase="Released"), pool(**TAKEN), **deny()))
    assert (held.reason, held.event) == ("pool fast: another agent works there", "")
