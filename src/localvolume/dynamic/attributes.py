"""Finds out at the API server what VolumeAttributesClasses say that claims of this node name.

A class is asked for while a claim waits for it, and not watched: its parameters never change, and
once they are in a volume's record nothing more is wanted of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.config.syntax.readers import quoted
from localvolume.dynamic.asking import Asking, Question
from localvolume.dynamic.model import AttributesClass
from localvolume.kube.client import Client
from localvolume.kube.errors import NotThere, TellTheAdministrator
from localvolume.kube.kinds import ATTRIBUTES_CLASSES
from localvolume.kube.objects import VolumeAttributesClass
from localvolume.volumes.attributes import BadAttributes, read


class AttributesClasses:
    """Asks for each class until nobody waits for it; `wake` is called when an answer is news."""

    def __init__(self, client: Client, wake: Callable[[], object]) -> None:
        self._client = client
        self._asking = Asking[AttributesClass](wake)

    def look(self, names: Collection[str]) -> Mapping[str, AttributesClass]:
        """What is known of these classes; begins to ask for the rest."""
        return self._asking.look(
            {
                name: Question(f"VolumeAttributesClass {name}", partial(ask, self._client, name))
                for name in names
            }
        )

    async def stop(self) -> None:
        """Ask no more."""
        await self._asking.stop()


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
