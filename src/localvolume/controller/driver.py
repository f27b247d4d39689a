"""The CSIDriver object of our provisioner: without it, the scheduler heeds no room that we publish.

It names no driver that runs: volumes are of the kind `local`, and nothing is attached or mounted
through it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, NoReturn

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.election.lease import NotLeading
from localvolume.kube.errors import AlreadyThere, ApiError, NotThere, TellTheAdministrator
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import KubeObject, Trimmed
from localvolume.volumes.marks import DYNAMIC_PROVISIONER

log = logging.getLogger(__name__)

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0


class DriverSpec(Trimmed, frozen=True, kw_only=True):
    storage_capacity: bool | None = None


class Driver(KubeObject, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSIDriver: of all of it, only whether the scheduler heeds capacities."""

    spec: DriverSpec = DriverSpec()


DRIVERS: Final = Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, Driver)

MANIFEST: Final[dict[str, Any]] = {
    "metadata": {"name": DYNAMIC_PROVISIONER},
    "spec": {
        "attachRequired": False,
        "podInfoOnMount": False,
        "storageCapacity": True,
        "volumeLifecycleModes": ["Persistent"],
    },
}


async def keep_driver(client: Client, period: float) -> NoReturn:
    """See to it now and every `period` seconds. Whatever fails is said once, and tried again."""
    backoff, said = Backoff(FIRST_WAIT, LONGEST_WAIT), ""
    while True:
        try:
            text = await ensure_driver(client)
            backoff.reset()
            wait = period
        except ApiError as error:
            refused = isinstance(error, TellTheAdministrator)
            text = f"there may be no CSIDriver {DYNAMIC_PROVISIONER}: {error}"
            wait = min(period, LONGEST_WAIT) if refused else backoff.next()
        except NotLeading:
            text, wait = said, backoff.next()  # either this ends now, or it is proved again
        if text and text != said:
            log.warning("%s", text)
        said = text
        await asyncio.sleep(wait)


async def ensure_driver(client: Client) -> str:
    """Create it if it is not there; one that is there stays as it is. What is wrong, "" if nothing.

    Raises ApiError.
    """
    try:
        driver = await client.get(DRIVERS, DYNAMIC_PROVISIONER)
    except NotThere:
        try:
            driver = await client.create(DRIVERS, MANIFEST)
            log.info("created the CSIDriver %s", DYNAMIC_PROVISIONER)
        except AlreadyThere:
            driver = await client.get(DRIVERS, DYNAMIC_PROVISIONER)
    if driver.spec.storage_capacity:
        return ""
    return (
        f"somebody's CSIDriver {DYNAMIC_PROVISIONER} does not have storageCapacity: true: "
        "the scheduler does not heed how much room nodes have"
    )
