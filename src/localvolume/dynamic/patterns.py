"""Finds the volume groups that the pools' patterns match on this node: asks LVM at each look."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from localvolume.config.pools import PoolConfig, expanded
from localvolume.dynamic.plan.world import pool_of
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.objects import PersistentVolume

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""How long LVM may take to list its volume groups."""

Asked = tuple[tuple[str, ...], tuple[str, ...]]
"""The words before a command of LVM, and the directories whose devices it is not shown."""


def unmatched(
    configs: Sequence[PoolConfig], pools: Sequence[PoolConfig], problems: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Why classes have no pool here because its pattern matches nothing, by provisioner and class
    ("": any other). `problems` are those of Patterns."""
    found: dict[str, dict[str, str]] = {}
    matched = {pool.of for pool in pools}
    for config in configs:
        if config.lvm and config.lvm.pattern and config.name not in matched:
            tagged = f" and has the tag {config.lvm.tag}" if config.lvm.tag else ""
            why = f"no volume group matches {config.lvm.pattern!r} of pool {config.name}{tagged}"
            if problem := problems.get(config.name):
                why = f"pool {config.name}: {problem}"
            for class_name in config.classes or ("",):
                known = found.setdefault(config.provisioner, {})
                known[class_name] = "; ".join(filter(None, (known.get(class_name), why)))
    return found


class Patterns:
    """Use from one event loop. If LVM cannot be asked, its last answer stays in force."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._known: dict[Asked, dict[str, frozenset[str]]] = {}
        self.problems: Mapping[str, str] = {}
        """Why LVM could not be asked for a pattern, by the pool's name."""

    async def expand(
        self, configs: Sequence[PoolConfig], volumes: Sequence[PersistentVolume]
    ) -> tuple[PoolConfig, ...]:
        """Returns one pool for each group that matches, or that volumes say they lie in.

        So a missing group stays a pool, with a problem, as long as volumes name it.
        """
        by_way: dict[Asked, list[PoolConfig]] = {}
        for config in configs:
            if config.lvm and config.lvm.pattern:
                way = config.lvm.command_prefix, config.lvm.discovery
                by_way.setdefault(way, []).append(config)
        problems: dict[str, str] = {}
        for way, pools in by_way.items():
            if why := await self._ask(way):
                problems |= dict.fromkeys((pool.name for pool in pools), why)
        for name, why in problems.items():
            if self.problems.get(name) != why:
                log.error("pool %s: %s", name, why)
        self.problems = problems
        if not by_way:
            return tuple(configs)
        groups: dict[str, frozenset[str]] = {}
        for way in by_way:
            groups |= self._known.get(way, {})
        said = [home[0] for volume in volumes if (home := pool_of(volume)) is not None]
        for before in (f"{pool.name}." for pools in by_way.values() for pool in pools):
            for name in said:
                if name.startswith(before):
                    groups.setdefault(name.removeprefix(before), frozenset())
        return expanded(configs, groups, said)

    async def _ask(self, way: Asked) -> str:
        """Bring `_known` up to date; returns why that was not possible, or ""."""
        # Imported as needed: most agents have no logical volumes.
        from localvolume.host.lvm.commands import BadReport, Lvm, LvmFailed
        from localvolume.host.process.commandsync import on_loop

        prefix, discovery = way
        lvm = Lvm(on_loop(asyncio.get_running_loop()), prefix, discovery=discovery)
        key = " ".join(("volume groups", *prefix))
        try:
            groups = await self._workers.call(key, LOOK_SECONDS, lvm.groups)
        except (Hung, OSError, LvmFailed, BadReport) as error:
            return f"LVM does not list its volume groups: {error}"
        self._known[way] = {group.name: group.tags for group in groups}
        return ""
