"""What a support bundle says about the host it is made on: mounts, disks, the agent's plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from localvolume.cli import plan
from localvolume.cli.ownpod import own_pod
from localvolume.cli.plan_disks import disk_plan, disk_rows
from localvolume.config.loading import load
from localvolume.config.model import Configuration, ConfigurationInvalid
from localvolume.host.block import sysfs
from localvolume.host.process.workers import Hung
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.kube.objects import PersistentVolume

Volumes = Mapping[str, PersistentVolume] | None

_BLOCK: Final = f"{sysfs.SYS}/class/block"
_MOUNTS: Final = "/proc/self/mountinfo"


async def planned(
    client: Client, configuration: Configuration, node: str, namespace: str, volumes: Volumes
) -> list[dict[str, Any]]:
    """What `localvolume plan -o json` says about this host, including raw disks.

    Raises plan.Unknown and ApiError.
    """
    pod = await own_pod(client)
    rows = await plan.online_rows(client, configuration, node, namespace, pod)
    try:
        disks = await disk_plan(configuration, node, (volumes or {}).values(), pod)
    except (OSError, ValueError, Hung) as error:
        raise plan.Unknown(f"the disks cannot be looked at: {error}") from error
    return rows + disk_rows(disks)


class Host:
    """Calls `unread` with what could not be read, and why."""

    def __init__(self, unread: Callable[[str, str], object]) -> None:
        self._unread = unread

    def mounts(self) -> str:
        """The mount table as this process sees it; in a pod, the pod's."""
        try:
            with open(_MOUNTS, encoding="utf-8", errors="backslashreplace") as file:
                return file.read()
        except OSError as error:
            self._unread(_MOUNTS, str(error))
            return ""

    def disks(self) -> list[dict[str, Any]]:
        """Block devices as the kernel describes them: name, number, size, holders, model."""
        found = []
        for name in sysfs.listing(_BLOCK):
            base = sysfs.real(f"{_BLOCK}/{name}")
            sectors = sysfs.read(f"{base}/size") or ""
            disk = sysfs.disk_of(base)
            found.append(
                {
                    "name": name,
                    "number": sysfs.read(f"{base}/dev"),
                    "capacityBytes": int(sectors) * 512 if sectors.isdigit() else None,
                    "readOnly": sysfs.read(f"{base}/ro") == "1",
                    "rotational": sysfs.read(f"{disk}/queue/rotational") == "1",
                    "model": sysfs.read(f"{disk}/device/model"),
                    "disk": os.path.basename(disk) if disk != base else None,
                    "holders": sysfs.listing(f"{base}/holders"),
                    "backingFile": sysfs.read(f"{base}/loop/backing_file"),
                }
            )
        return found

    async def plan(
        self, client: Client, config: str, node: str, namespace: str, volumes: Volumes
    ) -> Any:
        """The rows of `localvolume plan`; None if it cannot be made."""
        try:
            return await planned(client, load(config), node, namespace, volumes)
        except ConfigurationInvalid as invalid:
            self._unread("plan", "; ".join(map(str, invalid.problems)))
        except (plan.Unknown, ApiError, OSError) as error:
            self._unread("plan", str(error))
        return None
