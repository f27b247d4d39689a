"""What holds for every plan of dynamic volumes, whatever the facts: no loss, no doubling, no crash.

The facts are drawn from few names, pools and places, so that they often collide. What counts as
held, as room or as a conflict is said here a second time, apart from the code under test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from localvolume.backends.capacity import capacity
from localvolume.backends.model import Record
from localvolume.dynamic.model import (
    Action,
    Ask,
    Delete,
    Facts,
    GiveBack,
    Grow,
    Hold,
    Keep,
    Make,
    MarkReleased,
    Pool,
    Publish,
    Purge,
    Reject,
    Remember,
    Retire,
    Secure,
    TakeAway,
    TellGrown,
    TellInfeasible,
)
from localvolume.dynamic.plan.plan import plan
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import marks
from localvolume.volumes.capacity import GIB, MIB
from tests.decisions.support_dynamic import (
    A_MINUTE_AGO,
    IN_A_MINUTE,
    Thing,
    claim,
    facts,
    in_terms,
    lv,
    lvm_pool,
    old_pool,
    pool,
    record,
    storage_class,
    volume,
)
from tests.suite.chance import examples
from tests.suite.names import KUTTI

NUMBERS = st.integers(1, 4)
POOLS = ("fast", "slow", "old", "vg")
BY_NAME = "{{ .PVC.Namespace }}/{{ .PVC.Name }}"
CLASSES = (
    storage_class(),
    storage_class("loose", enforce=False, directory=BY_NAME),
    storage_class("shared", directory="all", unsafe_directory=True),
    storage_class("theirs", KUTTI),
    storage_class("bad", problem="bad"),
)
MANY = settings(
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * (3 * len(others)) + list(others))


# What there is of a volume at each stage of its life: claim, PersistentVolume and record.
BOUND = {"phase": "Bound", "has": "1Gi"}
STAGES: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None, dict[str, Any] | None]] = {
    "asked": ({}, None, None),
    "begun": ({}, None, {"state": "making"}),
    "made": ({}, None, {"state": "made"}),
    "offered": ({}, None, {"volume_uid": ""}),
    "created": ({}, {}, {"volume_uid": ""}),
    "bound": (BOUND, {}, {}),
    "unsecured": (BOUND, {"finalizers": ()}, {}),
    "growing": (BOUND | {"size": "2Gi"}, {}, {}),
    "grown": (BOUND | {"size": "2Gi"}, {}, {"size_bytes": 2 * GIB}),
    "released": (None, {"phase": "Released"}, {}),
    "waiting": (
        None,
        {"phase": "Released", "since": A_MINUTE_AGO, "until": IN_A_MINUTE},
        {},
    ),
    "classless": (None, {"phase": "Released", "class_name": "none"}, {}),
    "misread": (None, {"phase": "Released", "class_name": "bad"}, {}),
    "deleted": (None, {"phase": "Released", "deleted": True}, {}),
    "removed": (None, {"phase": "Released", "deleted": True}, {"state": "removed"}),
    "purged": (None, None, {"state": "removed"}),
    "left": (None, None, {"state": "made"}),
    "orphan": (None, None, {}),
}
FLAWS: dict[str, list[dict[str, Any]]] = {
    "claim": [
        {"node": ""},
        {"node": "node-2"},
        {"provisioner": None},
        {"class_name": "loose"},
        {"class_name": "shared"},
        {"class_name": "bad"},
        {"class_name": "none"},
        {"size": "3Gi"},
        {"size": f"{3 * GIB + 1}"},
        {"size": "-1Gi"},
        {"volume": "pvc-1"},
        {"volume": ""},
        {"phase": "Lost"},
        {"phase": "Pending"},
        {"deleted": True},
        {"created": "2027-01-15T06:00:00Z"},
    ],
    "volume": [
        *(
            {"phase": phase}
            for phase in ("", "Pending", "Available", "Bound", "Released", "Failed")
        ),
        {"policy": "Retain"},
        {"provisioner": "x.example/y"},
        {"pool": "fast/another"},
        {"pool": "gone/x"},
        {"pool": "slow/id-of-slow"},
        {"uid": "restored"},
        {"claim_uid": None},
        {"claim_uid": "2"},
        {"size": "2Gi"},
        {"deleted": True},
        {"finalizers": ()},
        {"since": A_MINUTE_AGO},
        {"since": None},
        {"until": A_MINUTE_AGO},
        {"until": IN_A_MINUTE},
        {"until": "whenever"},
        {"class_name": "bad"},
        {"class_name": "none"},
        {"path": "/pools/old/all"},
        {"path": "/pools/old/ns/data-1"},
        {"affinity": in_terms("host-2")},
    ],
    "record": [
        *({"state": state} for state in ("making", "made", "offered", "removed")),
        {"directory": "ns/data-2"},
        {"directory": "all"},
        {"volume_uid": ""},
        {"adopted": True},
        {"claim_uid": "9"},
        {"size_bytes": 2 * GIB},
    ],
}


@st.composite
def lives(draw: st.DrawFn, number: int) -> tuple[str, list[Any], Record | None]:
    """One volume at one stage, right but for two things at most: in which pool, objects, record."""
    where = draw(mostly("fast", "slow", "old", "vg"))
    stage = STAGES[draw(st.sampled_from(sorted(STAGES)))]
    parts = dict(zip(FLAWS, (None if one is None else dict(one) for one in stage), strict=True))
    if (asks := parts["claim"]) is not None and parts["volume"] is not None:
        asks["volume"] = f"pvc-{number}"
    if where == "old":
        theirs = {"provisioner": KUTTI, "class_name": "theirs"}
        places = {"pool": None, "path": f"/pools/old/pvc-{number}"}
        ends = "finalizers" not in (parts["volume"] or {}) and draw(st.booleans())
        parts["claim"] = None if asks is None else theirs | asks
        if (there := parts["volume"]) is not None:
            kept = (marks.FINALIZER,) if ends or there.get("deleted") else ()
            parts["volume"] = theirs | places | {"finalizers": kept} | there
            parts["record"] = {**(parts["record"] or {}), "adopted": True} if ends else None
    elif (there := parts["volume"]) is not None:
        there.setdefault("pool", f"{where}/id-of-{where}")
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        what = draw(st.sampled_from(sorted(FLAWS)))
        part = parts[what]
        if part is not None and draw(mostly(True, False)):
            parts[what] = part | draw(st.sampled_from(FLAWS[what]))
        elif part is not None:
            parts[what] = None
    objects: list[Any] = []
    if (asked := parts["claim"]) is not None:
        objects.append(claim(number, **asked))
    if (made := parts["volume"]) is not None:
        objects.append(volume(number, **made))
    written = parts["record"]
    if written is None:
        return where, objects, None
    if where == "vg":
        # Whatever it is written to have, a logical volume is a little larger.
        size = written.get("size_bytes", GIB) + 4 * MIB
        return where, objects, lv(number, **(written | {"size_bytes": size}))
    return where, objects, record(number, **written)


@st.composite
def worlds(draw: st.DrawFn) -> Facts:
    things: list[Thing] = [*CLASSES]
    lying: dict[str, dict[str, Record]] = {name: {} for name in POOLS}
    for number in draw(st.sets(NUMBERS, min_size=1)):
        where, objects, written = draw(lives(number))
        things += objects
        if written is not None:
            lying[where][written.name] = written
            if draw(mostly(False, True)):
                lying["slow"][written.name] = written
    for name in POOLS:
        changes: dict[str, Any] = {
            "room": draw(st.sampled_from([0, GIB, 3 * GIB, 100 * GIB])),
            "problem": draw(mostly("", "", "not mounted")),
            "undo_seconds": draw(st.sampled_from([0.0, 100.0])),
        }
        if draw(mostly(False, True)):
            torn = f"pvc-{draw(NUMBERS)}"
            lying[name].pop(torn, None)
            changes["unreadable"] = {torn: "torn"}
        kinds: dict[str, Callable[..., Pool]] = {"old": old_pool, "vg": lvm_pool}
        build: Callable[..., Pool] = kinds.get(name, pool)
        if draw(mostly(True, True, False)):
            things.append(build(*lying[name].values(), **({"name": name} | changes)))
    heard = st.sets(NUMBERS)
    promised = record(draw(NUMBERS), "making", size_bytes=2 * GIB)
    return facts(
        *things,
        gone={str(one) for one in draw(heard)} | draw(mostly(set(), {""})),
        absent={f"pvc-{one}" for one in draw(heard)},
        busy={f"pvc-{one}" for one in draw(mostly(set(), {1}))},
        promised=[(draw(st.sampled_from(POOLS)), promised)] if draw(mostly(False, True)) else [],
    )


# --- nothing is lost ---------------------------------------------------------------------------


def holders(world: Facts, name: str) -> list[PersistentVolumeClaim]:
    """The claims that are bound to the PersistentVolume of that name, in any way that can be."""
    there = world.volumes.get(name)
    ref = there.spec.claim_ref if there else None
    return [
        one
        for one in world.claims.values()
        if (ref is not None and ref.uid == one.metadata.uid)
        or (one.spec.volume_name == name and f"pvc-{one.metadata.uid}" == name)
        or (there is None and one.spec.volume_name == name and one.status.phase == "Bound")
    ]


def destroys(action: Action) -> bool:
    return isinstance(action, TakeAway | Purge | Delete) or (
        isinstance(action, Retire) and not action.keep
    )


@MANY
@given(worlds())
def test_nothing_that_a_claim_has_is_removed(world: Facts) -> None:
    for action in plan(world).actions:
        # A spare of what a claim has lies in another pool (see the test below).
        if destroys(action) and not (isinstance(action, TakeAway) and action.spare):
            assert not holders(world, action.key), action


@MANY
@given(worlds())
def test_an_object_goes_only_released_and_a_volume_only_after_it(world: Facts) -> None:
    for action in plan(world).actions:
        there = world.volumes.get(action.key)
        if isinstance(action, Delete):
            assert there is not None
            assert there.status.phase == "Released"
            assert there.spec.persistent_volume_reclaim_policy == "Delete"
            assert there.spec.claim_ref is not None
            assert there.spec.claim_ref.uid
        if isinstance(action, Retire):
            assert there is action.volume
            assert there.metadata.deletion_timestamp
            assert marks.FINALIZER in there.metadata.finalizers
            assert there.status.phase != "Bound"
            policy = there.spec.persistent_volume_reclaim_policy
            assert action.keep or policy == "Delete"
        if isinstance(action, Purge) or (isinstance(action, TakeAway) and not action.spare):
            assert there is None


@MANY
@given(worlds())
def test_what_was_promised_is_kept(world: Facts) -> None:
    for action in plan(world).actions:
        if isinstance(action, Delete):
            name = action.volume.spec.storage_class_name
            notes = action.volume.metadata.annotations
            told = notes.get(marks.KEPT_ANNOTATION, f"{A_MINUTE_AGO} 1").split()[0]
            assert told == A_MINUTE_AGO
            assert name != "bad"
            # Without its class it goes by what was promised, or by what an older provisioner did.
            ours = marks.POOL_ANNOTATION in notes
            assert name != "none" or not ours or marks.KEPT_ANNOTATION in notes


@MANY
@given(worlds())
def test_only_what_was_never_offered_is_taken_away_and_both_say_so(world: Facts) -> None:
    for action in plan(world).actions:
        if isinstance(action, TakeAway) and action.spare:
            others = [other for other in world.pools if other.config != action.pool]
            assert any(action.record.name in other.report.records for other in others)
            if action.record.state == "offered":
                assert not action.record.volume_uid
                there = world.volumes[action.record.name]
                assert not there.metadata.annotations[marks.POOL_ANNOTATION].startswith(
                    f"{action.pool.name}/"
                )
            else:
                assert action.record.state in ("making", "made")
        elif isinstance(action, TakeAway):
            one = action.record
            assert one.name in world.absent
            assert one.claim_uid in world.gone
            assert not one.adopted
            assert one.state in ("making", "made") or (
                one.state == "offered" and not one.volume_uid
            )
        if isinstance(action, Purge):
            assert action.record.state == "removed"


@MANY
@given(worlds())
def test_nothing_is_done_in_a_pool_that_is_not_surely_the_one(world: Facts) -> None:
    pools = {one.config.name: one for one in world.pools}
    for action in plan(world).actions:
        where = getattr(action, "pool", None)
        if where is not None:
            here = pools[where.name]
            assert not here.report.problem, action
            assert action.key not in here.report.unreadable, action
        if isinstance(action, Delete | Retire):
            said = action.volume.metadata.annotations.get(marks.POOL_ANNOTATION)
            known = {f"{one.config.name}/{one.report.id}" for one in world.pools}
            assert said is None or said in known
            found = [
                one.report.records[action.key]
                for one in world.pools
                if action.key in one.report.records
            ]
            # What is in the trash already may have got there before its object was known.
            fits = [one.volume_uid or one.state == "removed" for one in found]
            uids = {one.volume_uid for one in found if one.volume_uid}
            assert not found or any(fits)
            assert action.volume.metadata.uid in (uids or {action.volume.metadata.uid})


@MANY
@given(worlds())
def test_nothing_goes_with_an_adopted_volume(world: Facts) -> None:
    for action in plan(world).actions:
        if (
            not isinstance(action, Retire)
            or action.keep
            or action.pool is None
            or not action.directory
        ):
            continue
        (here,) = (one for one in world.pools if one.config == action.pool)
        others = [
            f"/pools/{action.pool.name}/{one.directory}"
            for one in here.report.records.values()
            if one.name != action.key and one.state != "removed"
        ]
        others += [
            one.spec.local.path
            for name, one in world.volumes.items()
            if name != action.key
            and one.spec.local
            and one.metadata.annotations.get(marks.PROVISIONED_BY_ANNOTATION) == KUTTI
        ]
        own = f"/pools/{action.pool.name}/{action.directory}/"
        for other in others:
            assert not own.startswith(f"{other}/"), (own, other)
            assert not f"{other}/".startswith(own), (own, other)


# --- nothing is doubled ------------------------------------------------------------------------


@MANY
@given(worlds())
def test_one_step_for_each_name_and_none_for_what_is_under_way(world: Facts) -> None:
    actions = plan(world).actions
    assert not [name for name, many in Counter(one.key for one in actions).items() if many > 1]
    assert not {one.key for one in actions} & set(world.busy)
    named = {one.key for one in actions} | set(world.busy)
    assert set(world.volumes) <= named
    assert {name for one in world.pools for name in one.report.records} <= named
    for one in world.claims.values():
        assert (one.spec.volume_name or f"pvc-{one.metadata.uid}") in named


def in_extents(here: Pool, size: int) -> int:
    """What LVM takes for it, in actions of 4 MiB; nobody else rounds."""
    return size if here.config.lvm is None else (size + 4 * MIB - 1) // (4 * MIB) * (4 * MIB)


@MANY
@given(worlds())
def test_no_more_is_promised_than_there_is_room(world: Facts) -> None:
    for here in world.pools:
        if here.config.flavor != "native":
            continue
        left = capacity(here.config, here.report)
        for name, one in world.promised:
            known = here.report.records.get(one.name)
            if name == here.config.name:
                size = in_extents(here, one.size_bytes)
                left -= max(0, size - (known.size_bytes if known else 0))
        planned = 0
        for action in plan(world).actions:
            if isinstance(action, Make) and action.fresh and action.pool == here.config:
                planned += in_extents(here, action.record.size_bytes)
            if isinstance(action, Grow) and action.pool == here.config:
                planned += in_extents(here, action.size_bytes) - action.record.size_bytes
        assert planned == 0 or planned <= left


@MANY
@given(worlds())
def test_no_two_volumes_have_the_same_place(world: Facts) -> None:
    actions = plan(world).actions
    for here in world.pools:
        name = here.config.name
        new = [
            one.record.directory
            for one in actions
            if isinstance(one, Make) and one.fresh and one.pool == here.config
        ]
        if here.config.lvm:
            assert not any(new)  # the names of its volumes are all that it has
            continue
        others = [one.directory for one in here.report.records.values() if one.state != "removed"]
        others += [one.directory for where, one in world.promised if where == name]
        others += [
            one.spec.local.path.removeprefix("/pools/old/")
            for one in world.volumes.values()
            if name == "old"
            and one.spec.local
            and marks.POOL_ANNOTATION not in one.metadata.annotations
        ]
        pairs = [*combinations(new, 2), *((one, other) for one in new for other in others)]
        for one, other in pairs:
            inside = f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
            assert not inside, (one, other)


@MANY
@given(worlds())
def test_no_volume_is_made_beside_one_that_is_there(world: Facts) -> None:
    for action in plan(world).actions:
        if isinstance(action, Make | Publish):
            assert action.key not in world.volumes
            assert action.claim.metadata.deletion_timestamp is None
            assert not action.claim.spec.volume_name
            assert action.claim.metadata.uid == action.record.claim_uid
        if isinstance(action, Make) and action.fresh:
            assert action.record.size_bytes > 0
            for here in world.pools:
                assert action.key not in here.report.records
                assert action.key not in here.report.unreadable


# --- the plan is the same for the same facts ---------------------------------------------------


@MANY
@given(worlds(), st.randoms(use_true_random=False))
def test_the_same_facts_make_the_same_plan(world: Facts, chance: Any) -> None:
    """Whatever order the caches have things in."""

    def shuffled(things: Any) -> dict[str, Any]:
        items = list(things.items())
        chance.shuffle(items)
        return dict(items)

    one = plan(world)
    assert plan(world) == one
    other = replace(world, claims=shuffled(world.claims), volumes=shuffled(world.volumes))
    assert plan(other) == one


@MANY
@given(worlds())
def test_planning_again_while_it_is_done_promises_nothing_more(world: Facts) -> None:
    """What is planned is under way, and promised, when the next plan is made."""
    first = plan(world)
    making = [(one.pool.name, one.record) for one in first.actions if isinstance(one, Make)]
    busy = {one.key for one in first.actions if not isinstance(one, Keep | Hold | Reject)}
    again = replace(
        world, busy={*world.busy, *busy}, promised=[*world.promised, *making], claims=world.claims
    )
    for action in plan(again).actions:
        # With what is under way out of the way, only a better reason may come.
        assert not destroys(action) or action.key not in busy
        assert not (isinstance(action, Make) and action.key in busy)


# --- the worlds are worth it -------------------------------------------------------------------


def test_every_kind_of_step_comes_up() -> None:
    seen: set[type[Action]] = set()

    # The same worlds in the soak, too: what others hold is up to chance.
    @settings(MANY, max_examples=600, phases=[Phase.generate], derandomize=True)
    @given(worlds())
    def look(world: Facts) -> None:
        seen.update(type(one) for one in plan(world).actions)

    look()
    assert seen >= {
        *(Ask, Delete, GiveBack, Grow, Hold, Keep, Make, MarkReleased, Publish, Purge),
        *(Remember, Retire, Secure, TakeAway, TellGrown, TellInfeasible),
    }
