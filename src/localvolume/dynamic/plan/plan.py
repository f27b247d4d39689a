"""What should happen about the dynamic volumes of one node, and why: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    Ask,
    Call,
    ClassFacts,
    CutGroupCall,
    Facts,
    Hold,
    InlineCall,
    Keep,
    Plan,
    Pool,
    RemoveGroupCall,
    RemoveInlineCall,
    Unprotect,
)
from localvolume.dynamic.plan.calls.groups import judge_group_call
from localvolume.dynamic.plan.calls.judging import judge_call
from localvolume.dynamic.plan.claims import judge_claim
from localvolume.dynamic.plan.fullness import PoolSize
from localvolume.dynamic.plan.inline import judge_inline
from localvolume.dynamic.plan.placing import is_counted, is_for, unfit
from localvolume.dynamic.plan.records import judge_record, judge_spares
from localvolume.dynamic.plan.volumes import judge_volume, why_over
from localvolume.dynamic.plan.world import World
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import claims

UNCOUNTED = 1 << 60
"""The capacity that is published where none is accounted for: as much as any claim may ask for."""


def plan(facts: Facts) -> Plan:
    """Returns one action for each name that a claim, PersistentVolume, record or call has, without
    those that are under way (`busy`). Older claims are served first, and calls last.
    """
    world = World(facts)
    actions: dict[str, Action] = {}
    # Volumes are judged first: what an object says counts before what a claim wants.
    for name, volume in facts.volumes.items():
        actions[name] = judge_volume(world, volume)
    over = over_of_volumes(world, actions)
    for claim in sorted(facts.claims.values(), key=_age):
        if _name_of(claim) in facts.busy:
            continue
        action = judge_claim(world, claim)
        of_volume = actions.get(action.key, action)
        # A volume that is held does not hold its claim, of which a clone was being made.
        lets_go = isinstance(of_volume, Hold) and isinstance(action, Unprotect)
        if of_volume is action or isinstance(of_volume, Keep) or lets_go:
            actions[action.key] = action
    for found in world.all_records():
        name = found.record.name
        # If nobody here wants what the record tells of, the claim went to another node.
        idle = isinstance(actions.get(name), Keep)
        if name not in actions or (idle and name not in facts.volumes):
            actions[name] = judge_record(world, found)
    for name, action in list(actions.items()):
        # A spare never replaces what is to be done: if it cannot be taken away, it would block it.
        idle = isinstance(action, Ask | Hold | Keep)
        if idle and (spare := judge_spares(world, name)) is not None:
            actions[name] = spare
    for call in facts.calls:
        if call.key in facts.busy:
            continue
        action, before = _judge(world, call), actions.get(call.key)
        if isinstance(action, AnswerCall) and not isinstance(before, Keep | None):
            # What an answer takes the place of is still to be done, and nothing else tells of it.
            action = replace(action, look_again=True)
        actions[call.key] = action
    chosen = [actions[name] for name in sorted(actions) if name not in facts.busy]
    return Plan(
        chosen,
        capacity_of_classes(world),
        largest_of_classes(world),
        unfit_of_classes(world),
        sizes_of_classes(world),
        over,
    )


def over_of_volumes(world: World, judged: Mapping[str, Action]) -> dict[str, str]:
    """The PersistentVolumes of which a Warning is to be taken back, and why, by name. Nobody knows
    what comes of an action that is under way, and nothing was said of another object."""
    found = {}
    for name, uid in world.facts.warned.items():
        volume = world.facts.volumes.get(name)
        if volume is None or volume.metadata.uid != uid or name in world.facts.busy:
            continue
        if why := why_over(world, volume, judged[name]):
            found[name] = why
    return found


def _judge(world: World, call: Call) -> Action:
    if isinstance(call, InlineCall | RemoveInlineCall):
        return judge_inline(world, call)
    if isinstance(call, CutGroupCall | RemoveGroupCall):
        return judge_group_call(world, call)
    return judge_call(world, call)


def capacity_of_classes(world: World) -> dict[str, tuple[int, ...]]:
    """For each class that this node has pools for: the capacity of each of them, in bytes.

    Pools on one filesystem share one capacity, which is listed once.
    """
    return _by_class(world, lambda pool, _: world.capacity[pool.config.name])


def largest_of_classes(world: World) -> dict[str, int]:
    """For each of the same classes: the largest volume that fits into any of them, in bytes."""
    fits = _by_class(world, lambda pool, wanted: world.fits(pool, wanted.wish.option_class))
    return {name: max(sizes) for name, sizes in fits.items()}


def _by_class(
    world: World, counted: Callable[[Pool, ClassFacts], int]
) -> dict[str, tuple[int, ...]]:
    capacity: dict[str, tuple[int, ...]] = {}
    for name, class_facts, pools in _with_pools(world):
        capacities: dict[str, int] = {}
        for pool in pools:
            if class_facts.problem or unfit(pool, class_facts, None):
                size = 0
            elif is_counted(pool, class_facts):
                size = max(0, counted(pool, class_facts))
            else:
                size = UNCOUNTED
            place = pool.report.filesystem or f"pool {pool.config.name}"
            capacities[place] = max(size, capacities.get(place, 0))
        capacity[name] = tuple(capacities.values())
    return capacity


def sizes_of_classes(world: World) -> dict[str, dict[str, PoolSize]]:
    """For each of the same classes: how large its pools without a problem are, by name.

    Only the first class of a pool tells how full that is: this takes the fewest writes.
    """
    found: dict[str, dict[str, PoolSize]] = {}
    told: set[str] = set()
    for name, _, pools in _with_pools(world):
        found[name] = {}
        for pool in pools:
            report, called = pool.report, pool.config.name
            if report.total_bytes and not report.problem:
                used = None if called in told else report.used_bytes
                found[name][called] = PoolSize(report.total_bytes, used)
                told.add(called)
    return found


def unfit_of_classes(world: World) -> dict[str, str]:
    """For each of the same classes: why some of its pools cannot serve it, "" if all can."""
    found: dict[str, str] = {}
    for name, class_facts, pools in _with_pools(world):
        whys = [
            f"pool {pool.config.name}: {why}"
            for pool in pools
            if (why := unfit(pool, class_facts, None))
        ]
        if class_facts.problem:
            whys = [f"class {name}: {class_facts.problem}"]
        found[name] = "; ".join(whys)
    return found


def _with_pools(world: World) -> Iterator[tuple[str, ClassFacts, Sequence[Pool]]]:
    """The classes that this node has pools for, by name, each with these pools."""
    for name, class_facts in sorted(world.facts.classes.items()):
        pools = [pool for pool in world.facts.pools if is_for(pool, class_facts)]
        if pools:
            yield name, class_facts, pools


def _age(claim: PersistentVolumeClaim) -> tuple[str, str]:
    return claim.metadata.creation_timestamp or "", claim.metadata.uid


def _name_of(claim: PersistentVolumeClaim) -> str:
    return claim.spec.volume_name or claims.volume_name(claim.metadata.uid)
