"""The CSIDriver objects of our provisioners: made if missing, never changed.

Without its CSIDriver, the scheduler ignores the capacities published for a provisioner. No driver
runs by the name of the first: its volumes are of the type `local`, and nothing is attached or
mounted through it. The second is served by agents with `--csi`; its object says to the kubelet how.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.election.lease import NotLeading
from localvolume.kube.errors import AlreadyThere, ApiError, NotThere, TellTheAdministrator
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import KubeObject, Strings, Trimmed
from localvolume.reconcile.loop import CannotLook, Loop
from localvolume.volumes.marks import CSI_DRIVER, DYNAMIC_PROVISIONER

log = logging.getLogger(__name__)

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""Bounds of the time between two attempts; a server may ask for more."""


class DriverSpec(Trimmed, frozen=True, kw_only=True):
    """Absent fields are as the API server fills them in."""

    storage_capacity: bool | None = None
    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    se_linux_mount: bool | None = None
    volume_lifecycle_modes: Strings = ()


class Driver(KubeObject, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSIDriver, with only the fields that volumes of ours depend on."""

    spec: DriverSpec = DriverSpec()


DRIVERS: Final = Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, Driver)

MANIFESTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "metadata": {"name": DYNAMIC_PROVISIONER},
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": False,
            "storageCapacity": True,
            "volumeLifecycleModes": ["Persistent"],
        },
    },
    {
        "metadata": {"name": CSI_DRIVER},
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": True,
            "storageCapacity": True,
            "fsGroupPolicy": "File",
            "seLinuxMount": False,
            "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        },
    },
)


def keeping(client: Client, manifest: dict[str, Any], period: float) -> Loop:
    """A loop that ensures it at once and every `period` seconds, and says once what is wrong."""
    backoff, name = Backoff(FIRST_WAIT, LONGEST_WAIT), manifest["metadata"]["name"]

    async def look() -> float:
        try:
            text = await ensure(client, manifest)
        except NotLeading:
            return backoff.next()  # either this ends now, or leadership is proved again
        except ApiError as error:
            refused = isinstance(error, TellTheAdministrator)
            wait = min(period, LONGEST_WAIT) if refused else backoff.next(error.after)
            text = f"there may be no CSIDriver {name}: {error}"
            raise CannotLook(text, wait) from error
        backoff.reset()
        if text:
            raise CannotLook(text, period)
        return period

    return Loop("CSIDriver", look)


async def ensure(client: Client, manifest: dict[str, Any]) -> str:
    """Create it if it does not exist; never change it. Returns what is wrong, "" if nothing.

    Raises ApiError.
    """
    name = manifest["metadata"]["name"]
    try:
        driver = await client.get(DRIVERS, name)
    except NotThere:
        try:
            driver = await client.create(DRIVERS, manifest)
            log.info("created the CSIDriver %s", name)
        except AlreadyThere:
            driver = await client.get(DRIVERS, name)
    faults = faults_of(driver)
    return f"somebody's CSIDriver {name} {'; it '.join(faults)}" if faults else ""


def faults_of(driver: Driver) -> list[str]:
    """What somebody has made differently so that our volumes suffer, each with what comes of it."""
    spec, found = driver.spec, []
    if not spec.storage_capacity:
        found.append(
            "does not have storageCapacity: true: the scheduler ignores how much room nodes have"
        )
    if driver.metadata.name != CSI_DRIVER:
        return found
    if spec.attach_required is not False:
        found.append(
            "does not have attachRequired: false: "
            "pods wait for an attachment that nobody makes; delete it, and it is made anew"
        )
    if spec.se_linux_mount:
        found.append(
            "has seLinuxMount: true: pods with SELinux labels cannot mount their volumes, "
            "because the driver refuses that mount option"
        )
    if spec.volume_lifecycle_modes and "Persistent" not in spec.volume_lifecycle_modes:
        found.append(
            "does not have Persistent among its volumeLifecycleModes: "
            "the kubelet mounts no volume of a claim; delete it, and it is made anew"
        )
    if "Ephemeral" not in spec.volume_lifecycle_modes:
        found.append(
            "does not have Ephemeral among its volumeLifecycleModes: "
            "the kubelet refuses volumes in pods' own specs; delete it, and it is made anew"
        )
    if not spec.pod_info_on_mount:
        found.append(
            "does not have podInfoOnMount: true: "
            "the driver is not told whose the volumes in pods' own specs are, and makes none"
        )
    return found
