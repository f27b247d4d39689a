"""Takes over what elastic's driver made: volumes without a mark whose PersistentVolume exists.

The API server is asked about each by name. What it does not know as this node's stays as it is,
unmarked: nobody here ever removes or mounts that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.driver import Driver, DriverFailed
from localvolume.flexvolume.plan.absence import is_proven
from localvolume.flexvolume.plan.binding import tags_of, why_not
from localvolume.flexvolume.protocol import Refused
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.volumes.manifest import NodeFacts

LOOK_SECONDS: Final = 90.0
TAG_SECONDS: Final = 120.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Adopted:
    """`names` are marked now. Not `complete`: something failed, and is to be tried again."""

    names: list[str] = field(default_factory=list)
    complete: bool = True


@dataclass(eq=False)
class Adoption:
    """`node` is what is known of this node, or why that is nothing."""

    client: Client
    driver: Driver
    workers: Workers
    turns: Turns
    binding: Binding
    _: KW_ONLY
    names: Collection[str]
    node: Callable[[], NodeFacts | str]

    async def run(self) -> Adopted:
        """Look once at all that carries no mark. Never raises for what a host or API server does.

        At the first error of the API server nothing more is done.
        """
        node = self.node()
        if isinstance(node, str):
            log.warning("nothing is adopted: %s", node)
            return Adopted(complete=False)
        try:
            unmarked = await self.workers.call(
                "flexvolume unmarked", LOOK_SECONDS, self.driver.unmarked
            )
        except (DriverFailed, Hung, OSError) as error:
            log.warning("nothing is adopted: %s", error)
            return Adopted(complete=False)
        names: list[str] = []
        complete = True
        for name in unmarked:
            try:
                if await self._adopt(name, node):
                    names.append(name)
            except ApiError as error:
                log.warning("not adopted: %s", error, extra={"persistentvolume": name})
                return Adopted(names, complete=False)
            except (DriverFailed, Refused, Hung, OSError) as error:
                log.warning("not adopted: %s", error, extra={"persistentvolume": name})
                complete = False
        return Adopted(names, complete)

    async def _adopt(self, name: str, node: NodeFacts) -> bool:
        try:
            live = await self.client.get(PERSISTENT_VOLUMES, name)
        except NotThere as error:
            if not is_proven(error):
                raise
            return False
        if reason := why_not(live, self.names, node):
            log.info("left as it is: %s", reason, extra={"persistentvolume": name})
            return False
        async with self.turns.of(name, TAG_SECONDS) as turn:
            # The object first: a mark without our finalizer would not hear of its deletion.
            live = await self.binding.adopt(live)
            adopted: list[str] = await turn.call(self.driver.adopt, {name: tags_of(live)})
        if adopted:
            log.info("adopted from elastic's driver", extra={"persistentvolume": name})
        return bool(adopted)
