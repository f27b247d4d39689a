"""The roles of an agent: each begun by the first configuration that wants it, and then kept.

What an agent does not do, it does not carry: the code of a role is imported when it is begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.static.role import StaticRole


class Role(Protocol):
    """A part of the agent that runs until the agent ends."""

    def reconfigure(self, configuration: Configuration) -> None:
        """From now on another configuration counts."""

    async def run(self) -> None:
        """Never returns."""


class Roles:
    """The roles beside the static one, begun and reconfigured together, as `tasks`."""

    def __init__(self, shared: Shared, static: StaticRole, tasks: asyncio.TaskGroup) -> None:
        self._shared: Final = shared
        self._static: Final = static
        self._tasks: Final = tasks
        self._begun: Final[dict[str, Role]] = {}

    def configure(self, configuration: Configuration) -> None:
        """Begin what is wanted and has not begun; the others learn of the configuration."""
        for name, (wanted, begin) in _ROLES.items():
            role = self._begun.get(name)
            if role is not None:
                role.reconfigure(configuration)
            elif wanted(configuration):
                role = begin(self._shared, self._static, self._tasks, configuration)
                self._begun[name] = role
                self._tasks.create_task(role.run())


Begin = Callable[[Shared, StaticRole, asyncio.TaskGroup, Configuration], Role]


def _taint(
    shared: Shared, static: StaticRole, _: asyncio.TaskGroup, configuration: Configuration
) -> Role:
    from localvolume.agent import taint

    return taint.begin(shared, static, configuration)


def _dynamic(
    shared: Shared, _: StaticRole, tasks: asyncio.TaskGroup, configuration: Configuration
) -> Role:
    from localvolume.agent import dynamic

    return dynamic.begin(shared, tasks, configuration)


def _flexvolume(
    shared: Shared, _: StaticRole, tasks: asyncio.TaskGroup, configuration: Configuration
) -> Role:
    from localvolume.agent import flexvolume

    return flexvolume.begin(shared, tasks, configuration)


def _disks(
    shared: Shared, _: StaticRole, _tasks: asyncio.TaskGroup, configuration: Configuration
) -> Role:
    from localvolume.agent import disks

    return disks.begin(shared, configuration)


def _health(
    shared: Shared, _: StaticRole, _tasks: asyncio.TaskGroup, configuration: Configuration
) -> Role:
    from localvolume.agent import health

    return health.begin(shared, configuration)


_ROLES: Final[dict[str, tuple[Callable[[Configuration], bool], Begin]]] = {
    "taint": (lambda now: now.remove_node_not_ready_taint, _taint),
    "dynamic": (lambda now: bool(now.pools or now.served), _dynamic),
    "flexvolume": (lambda now: now.flexvolume is not None, _flexvolume),
    "disks": (lambda now: now.disks is not None, _disks),
    "health": (lambda _: True, _health),
}
