"""A cluster of the user's: reached, and asked about before anything is made in it."""

from __future__ import annotations

import asyncio
import os

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError
from localvolume.kube.kinds import STORAGE_CLASSES
from localvolume_lab.demo.cluster import TAINT, Names
from localvolume_lab.demo.narrator import Narrator


def reach(kubeconfig: str) -> str:
    """Which server and context that is, once it has answered. Raises AccessInvalid."""
    if not os.path.isfile(kubeconfig):
        raise AccessInvalid(f"{kubeconfig} is not a file (one file only, no list of them)")
    return asyncio.run(_reach(kubeconfig))


async def _reach(kubeconfig: str) -> str:
    access = find_access(kubeconfig)
    server = f"{access.server} ({access.source})"
    async with Client(access, user_agent="localvolume-demo", timeout=10.0) as client:
        try:
            await client.list_page(STORAGE_CLASSES, limit=1)
        except ApiError as error:
            raise AccessInvalid(f"{server}: {error}") from error
    return server


def introduce(narrator: Narrator, server: str, names: Names) -> None:
    """Say what will be made there, before asking."""
    narrator.title("This cluster of yours:")
    narrator.plain(f"   {server}")
    narrator.title("The demo makes these in it, and removes them at its end, even if interrupted:")
    narrator.plain(f"   Node {names.node}: an object without a machine; the taint {TAINT} keeps")
    narrator.plain("      pods away, but a DaemonSet that tolerates every taint may make a pod for")
    narrator.plain("      it, which never runs and which the cluster removes after the Node")
    narrator.plain(f"   StorageClasses {names.files}, -raw, -made and -kept")
    narrator.plain(f"   Namespace {names.namespace} with up to 3 PersistentVolumeClaims at a time")
    narrator.plain("      and 2 CSIStorageCapacities, which say what room the Node has")
    narrator.plain("   up to 5 PersistentVolumes of these classes, and Events about them")
    narrator.title("The disks are on this machine, made for it. Nothing else is touched.")
