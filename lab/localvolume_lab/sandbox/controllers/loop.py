"""The loop that runs the controllers: each change in the store wakes those it concerns.

Level-triggered: a controller is told which object changed and looks at everything again. A change
it makes comes back as the next one, so the store settles without sleeping in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.controllers.binder import Binder
from localvolume_lab.sandbox.controllers.garbage import Garbage
from localvolume_lab.sandbox.controllers.nodes import Nodes
from localvolume_lab.sandbox.controllers.protection import Protection
from localvolume_lab.sandbox.controllers.snapshots import Snapshots
from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    CONFIG_MAPS,
    CSI_DRIVERS,
    DAEMON_SETS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    SNAPSHOT_CLASSES,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Resource,
)
from localvolume_lab.sandbox.refusals import Refusal
from localvolume_lab.sandbox.store import Change, Watcher

_log = logging.getLogger(__name__)
#: everything but events, which nothing here decides by
_WATCHED = (
    NAMESPACES,
    NODES,
    STORAGE_CLASSES,
    PERSISTENT_VOLUMES,
    CLAIMS,
    PODS,
    JOBS,
    LEASES,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    CSI_DRIVERS,
    STORAGE_CAPACITIES,
    DAEMON_SETS,
    REPLICA_SETS,
    SNAPSHOT_CLASSES,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
)
#: changes looked at before other tasks get a turn
_BATCH = 8


class Controller(Protocol):
    """One controller."""

    def look(self, resource: Resource, change: Change) -> None:
        """Something changed; do what has to be done now."""


def _look(controller: Controller, resource: Resource, change: Change) -> None:
    """One odd object (pods and jobs are stored nearly unchecked) must not stop all the others."""
    try:
        controller.look(resource, change)
    except (Refusal, AttributeError, KeyError, TypeError, ValueError):
        _log.exception("%s on %s %s", type(controller).__name__, resource.plural, change.key)


class Controllers:
    """All controllers over one Api. `pods`: also schedule pods and play their kubelets."""

    def __init__(self, api: Api, *, pods: bool = True) -> None:
        self._store = api.store
        self._watcher = Watcher(0)
        self._controllers: list[Controller] = [
            Binder(api),
            Protection(api),
            Garbage(api),
            Snapshots(api),
        ]
        if pods:
            self._controllers.append(Nodes(api))

    def _changes(self) -> Iterable[tuple[Resource, Change]]:
        cursor = self._watcher.cursor
        found = [
            (change.number, resource, change)
            for resource in _WATCHED
            for change in self._store[resource].since(cursor)
        ]
        for number, resource, change in sorted(found, key=lambda item: item[0]):
            self._watcher.cursor = number
            yield resource, change

    async def run(self) -> None:
        """Work until cancelled."""
        for resource in _WATCHED:
            self._store[resource].watchers.add(self._watcher)
        try:
            while True:
                self._watcher.bell.clear()
                for seen, (resource, change) in enumerate(self._changes(), 1):
                    for controller in self._controllers:
                        _look(controller, resource, change)
                    if seen % _BATCH == 0:
                        await asyncio.sleep(0)
                await self._watcher.bell.wait()
        finally:
            for resource in _WATCHED:
                self._store[resource].watchers.discard(self._watcher)
