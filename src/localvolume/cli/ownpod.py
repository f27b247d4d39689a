"""The pod that a command is run in, where it is an agent's."""

from __future__ import annotations

import os

from localvolume.config.environment import DEFAULT_NAMESPACE, POD_VARIABLE
from localvolume.kube.client import Client
from localvolume.kube.errors import TellTheAdministrator
from localvolume.kube.ownpod import read_pod
from localvolume.kube.podmounts import PodMounts


async def own_pod(client: Client) -> PodMounts | None:
    """What the environment's pod has mounted; None where it names none, or where that may not be
    known. Raises ApiError."""
    name = os.environ.get(POD_VARIABLE)
    if not name:
        return None
    try:
        return await read_pod(client, os.environ.get("MY_NAMESPACE") or DEFAULT_NAMESPACE, name)
    except TellTheAdministrator:
        return None
