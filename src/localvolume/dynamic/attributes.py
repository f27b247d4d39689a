"""Finds out at the API server what VolumeAttributesClasses say that claims of this node name.

A class is asked for while a claim waits for it, and not watched: its parameters never change, and
once they are in a volume's record nothing more is wanted of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.config.syntax.readers import quoted
from localvolume.dynamic.model import AttributesClass
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere, TellTheAdministrator
from localvolume.kube.kinds import ATTRIBUTES_CLASSES
from localvolume.kube.objects import VolumeAttributesClass
from localvolume.volumes.attributes import BadAttributes, read

log = logging.getLogger(__name__)

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""How long until the API server is asked again, while a claim waits for the class."""


class AttributesClasses:
    """Asks for each class until nobody waits for it; `wake` is called when an answer is news."""

    def __init__(self, client: Client, wake: Callable[[], object]) -> None:
        self._client = client
        self._wake = wake
        self._told: dict[str, AttributesClass] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def look(self, names: Collection[str]) -> Mapping[str, AttributesClass]:
        """What is known of these classes; begins to ask for the rest."""
        over = {name for name, task in self._asking.items() if task.done()}
        for name in over | (self._asking.keys() - set(names)):
            self._asking.pop(name).cancel()
            self._told.pop(name, None)
        for name in set(names) - self._asking.keys():
            self._asking[name] = asyncio.create_task(self._keep_asking(name))
        return dict(self._told)

    async def stop(self) -> None:
        """Ask no more."""
        tasks = list(self._asking.values())
        self._asking.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_asking(self, name: str) -> None:
        backoff = Backoff(FIRST_WAIT, LONGEST_WAIT, spread=0.5)
        while True:
            try:
                told = await ask(self._client, name)
            except ApiError as error:
                # An unavailable API server says nothing of what it has.
                log.warning("VolumeAttributesClass %s: %s", name, error)
                await asyncio.sleep(backoff.next(error.after))
                continue
            if self._told.get(name) != told:
                self._told[name] = told
                self._wake()
            await asyncio.sleep(backoff.next())


async def ask(client: Client, name: str) -> AttributesClass:
    """What is known of the class now. Raises ApiError if that may be had soon."""
    try:
        return class_facts(await client.get(ATTRIBUTES_CLASSES, name))
    except NotThere:
        return AttributesClass(missing="there is no such class")
    except TellTheAdministrator as error:
        return AttributesClass(missing=str(error))


def class_facts(found: VolumeAttributesClass) -> AttributesClass:
    """What the class asks of volumes, or what is wrong with it."""
    if found.driver_name != CSI_DRIVER:
        problem = f"it is of the driver {quoted(found.driver_name)}, not of {CSI_DRIVER}"
        return AttributesClass(problem=problem)
    try:
        return AttributesClass(attributes=read(found.parameters, found.metadata.name))
    except BadAttributes as error:
        return AttributesClass(problem=str(error))
