"""Looks at the pools of this host as the agent would, changes nothing, and says what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from localvolume.backends.model import PoolReport
from localvolume.backends.pool.prospect import Known, prospect
from localvolume.cli.judging import seen_here
from localvolume.config.model import Configuration
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import ClassFacts, Pool
from localvolume.dynamic.patterns import Patterns, unmatched
from localvolume.dynamic.plan.inability import inabilities
from localvolume.dynamic.plan.orphans import places_of_adopted
from localvolume.dynamic.plan.world import World, with_neighbours
from localvolume.dynamic.pools import handles_of_called, ids_by_pool
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes.capacity import quantity
from localvolume.volumes.hostdirs import misplaced

LOOK_SECONDS: Final = 60.0
"""How long the look at one pool may take: LVM is slow with many disks."""

_BY: Final = {
    "directory": "project quotas",
    "btrfs": "quota groups",
    "image": "the size of each image",
    "lvm": "the size of each logical volume",
}


async def look(
    configuration: Configuration, volumes: Collection[PersistentVolume], pod: PodMounts | None
) -> tuple[list[Pool], dict[str, str], dict[str, dict[str, str]]]:
    """The pools as the agent would find them, and why patterns of groups have none: by the pool's
    name, and by provisioner and class. `volumes` are the node's, `pod` the agent's own."""
    workers = Workers()
    try:
        patterns = Patterns(workers)
        configs = await patterns.expand(configuration.pools, list(volumes))
        found = await _reports(workers, configs, volumes, pod)
    finally:
        workers.close()
    refused = unmatched(configuration.pools, configs, patterns.problems)
    matched = {config.of for config in configs}
    without = {
        config.name: patterns.problems.get(config.name, "no volume group matches its pattern")
        for config in configuration.pools
        if config.lvm and config.lvm.pattern and config.name not in matched
    }
    pools = [Pool(config=one, report=found[one.name]) for one in configs]
    return with_neighbours(pools), without, refused


async def _reports(
    workers: Workers,
    configs: Sequence[PoolConfig],
    volumes: Collection[PersistentVolume],
    pod: PodMounts | None,
) -> dict[str, PoolReport]:
    ids, places = ids_by_pool(volumes), places_of_adopted(list(configs), volumes)

    async def report(config: PoolConfig, missing: Collection[str]) -> PoolReport:
        name = config.name
        if why := misplaced(pod, config.host_dir, config.mount_dir):
            return PoolReport(name=name, problem=why)
        # A pool of logical volumes has no directory.
        where = "" if config.lvm else seen_here(config.mount_dir, config.host_dir)
        here = replace(config, mount_dir=where) if where else config
        known = Known(ids.get(name, set()), places.get(name, set()), missing)
        try:
            return await workers.call(f"pool {name}", LOOK_SECONDS, lambda: prospect(here, known))
        except Hung as error:
            return PoolReport(name=name, problem=f"it does not answer: {error}")

    async def reports(missing: Collection[str]) -> dict[str, PoolReport]:
        made = await asyncio.gather(*(report(one, missing) for one in configs))
        return {one.name: one for one in made}

    found = await reports(())
    recorded = {
        name for one in found.values() for name in (*one.records, *one.unreadable, *one.dormant)
    }
    missing = handles_of_called(volumes) - recorded
    # While no pool has them, no pool is made anew: it may be the one that is not mounted.
    return await reports(missing) if missing else found


def pool_rows(
    pools: Sequence[Pool],
    without: Mapping[str, str],
    world: World,
    classes: Iterable[ClassFacts],
) -> list[dict[str, Any]]:
    """One row for each pool: whether it is served, what it is, and what is wrong with it."""
    unable = inabilities(pools, classes)
    rows = [_row(pool, world, unable.get(pool.config.name, "")) for pool in pools]
    for name, why in without.items():
        rows.append(_held(name, "", why))
    return rows


def _held(name: str, path: str, why: str) -> dict[str, Any]:
    reason = f"pool {name}: {why}"
    return {"class": "", "path": path, "verdict": "hold", "reason": reason, "pool": name}


def _row(pool: Pool, world: World, unable: str) -> dict[str, Any]:
    config, report = pool.config, pool.report
    name = config.name
    path = config.host_dir
    if report.problem:
        return _held(name, path, report.problem)
    room = world.capacity[name]
    facts = {
        "backend": config.backend,
        "enforced": config.enforce and report.abilities.enforce,
        "roomBytes": room,
        "totalBytes": report.total_bytes,
        "volumeCount": len(report.records),
    }
    wrong = unable or report.unwell or pool.beside.unknown
    if not wrong and room <= 0:
        wrong = f"no volume is made or grown there: no room of {quantity(report.total_bytes)} left"
    if wrong:
        return _held(name, path, wrong) | facts
    found = "found" if report.id else "the agent makes a pool of it"
    kept = f"sizes are kept by {_BY[config.backend]}"
    sizes = kept if config.enforce else "no size is enforced"
    reason = (
        f"pool {name}: {config.backend}, {found}; {quantity(room)} of room of"
        f" {quantity(report.total_bytes)}; {sizes}"
    )
    served = {"class": "", "path": path, "verdict": "serve", "reason": reason, "pool": name}
    return served | facts
