"""Gives a volume other attributes, in its record first, then on the objects. Decides nothing.

The agent may die between any two steps: what is not said yet is found out by comparing the record,
the PersistentVolume and the claim.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from localvolume.backends.model import Record
from localvolume.dynamic.called import Calls
from localvolume.dynamic.calls import Volume
from localvolume.dynamic.model import Modify, ModifyCalled, TellModify
from localvolume.dynamic.pools import Pools
from localvolume.dynamic.throttling.act import Throttle
from localvolume.kube.correlate import EventType
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import modifying
from localvolume.volumes.modifying import class_of, class_of_volume

log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Modifying:
    """One method for each action; the functions are those of ``act.Acts``."""

    pools: Pools
    calls: Calls
    throttle: Throttle
    patch_status: Callable[[PersistentVolumeClaim, Any], Awaitable[PersistentVolumeClaim]]
    patch_volume: Callable[[PersistentVolume, Any], Awaitable[PersistentVolume]]
    say: Callable[[PersistentVolumeClaim, EventType, str, str], None]

    async def modify(self, action: Modify) -> None:
        """Record the attributes, and say on both objects that the volume has them."""
        claim, volume, name = action.claim, action.volume, action.attributes.class_name
        text = f"giving volume {action.key} what VolumeAttributesClass {name} asks for"
        if not modifying.is_told(claim, name, "InProgress"):
            self.say(claim, "Normal", "VolumeModify", text)
            patch = modifying.told(claim, name, "InProgress", "", time.time())
            claim = await self.patch_status(claim, patch)
        modified = await self._record(action)
        if class_of_volume(volume) != name:
            await self.patch_volume(volume, modifying.modified_volume(volume, name))
        await self.patch_status(claim, modifying.modified_claim(claim, name))
        log.info("%s: it has the attributes %s now", action.key, modified.attributes)
        text = f"volume {action.key} has what VolumeAttributesClass {name} asks for"
        self.say(claim, "Normal", "VolumeModifySuccessful", text)

    async def called(self, action: ModifyCalled) -> None:
        """Record the attributes, and answer the call."""
        modified = await self._record(action)
        log.info("%s: it has the attributes %s now", action.key, modified.attributes)
        self.calls.answer(action.key, Volume(record=modified, pool=action.pool.name))

    async def _record(self, action: Modify | ModifyCalled) -> Record:
        """Record the attributes, and have the pods that use the volume keep to them."""
        modified = await self.pools.call(
            action.pool, action.key, lambda store: store.modify(action.record, action.attributes)
        )
        if modified.attributes.limits:
            volume = Volume(record=modified, pool=action.pool.name)
            await self.calls.use(volume, self.throttle.keep)
        return modified

    async def tell(self, action: TellModify) -> None:
        """Say on the claim how far the change is; that there is none, if nothing is to be said."""
        claim = action.claim
        if action.status is not None:
            patch = modifying.told(
                claim, class_of(claim), action.status, action.reason, time.time()
            )
            await self.patch_status(claim, patch)
            return
        await self.patch_status(claim, modifying.modified_claim(claim, class_of(claim)))
        self.say(claim, "Normal", "VolumeModifyCanceled", action.reason)
