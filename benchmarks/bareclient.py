"""A client that creates PersistentVolumes and does nothing else: the limit of a cold start.

`python -m benchmarks.bareclient KUBECONFIG PREFIX COUNT` is a process, as an agent is: its start
and its imports count for both.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.volumes.marks import NODE_LABEL

IN_FLIGHT = 16
"""Creates at a time: more make it no faster."""


async def create_bare(client: Client, host: str, number: int) -> float:
    """Create an object like an agent's, of a node that is not there; the seconds that it took."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
    body: dict[str, Any] = {
        "metadata": {"name": f"{host}-{number}", "labels": {NODE_LABEL: host}},
        "spec": {
            "capacity": {"storage": "16Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": f"{host}-disks",
            "volumeMode": "Filesystem",
            "local": {"path": f"/mnt/disks/bare-{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
    began = time.monotonic()
    await client.create(PERSISTENT_VOLUMES, body)
    return time.monotonic() - began


async def _create_all(kubeconfig: str, host: str, count: int) -> None:
    async with Client(find_access(kubeconfig), user_agent="bare", concurrency=IN_FLIGHT) as client:
        await asyncio.gather(*(create_bare(client, host, number) for number in range(count)))


if __name__ == "__main__":
    asyncio.run(_create_all(sys.argv[1], sys.argv[2], int(sys.argv[3])))
