"""Where a command runs: the node, and the pod if it is an agent's."""

from __future__ import annotations

import os

from localvolume.config.variables import MY_NAMESPACE, MY_NODE_NAME, MY_POD_NAME
from localvolume.kube.client import Client
from localvolume.kube.errors import TellTheAdministrator
from localvolume.kube.ownpod import read_pod
from localvolume.kube.podmounts import PodMounts


def own_node() -> str:
    """The node's name from the environment, else the host's name."""
    return MY_NODE_NAME.text(os.environ) or os.uname().nodename


def own_namespace() -> str:
    return MY_NAMESPACE.text(os.environ)


async def own_pod(client: Client) -> PodMounts | None:
    """What the pod named in the environment has mounted; None if none is named, or if we may not
    read it. Raises ApiError."""
    if not (name := MY_POD_NAME.text(os.environ)):
        return None
    try:
        return await read_pod(client, own_namespace(), name)
    except TellTheAdministrator:
        return None
