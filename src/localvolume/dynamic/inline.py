"""Whether pods with volumes of their own are over: what they have mounted, and the API's answers.

A pod that still has a mount here is not asked for. An answer that it is over counts for a short
while, and is asked for anew right before anything is removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import Record
from localvolume.dynamic.preconditions import FRESH_SECONDS, NAMED_SECONDS, Superseded
from localvolume.host.mount.mounts import read_mount_table
from localvolume.kube.client import Client
from localvolume.kube.errors import NotThere
from localvolume.kube.kinds import PODS

_OVER: Final = ("Succeeded", "Failed")
_MIRROR: Final = "kubernetes.io/config.mirror"
"""On the object that stands for a static pod: the UID that the kubelet knows that by."""


def with_mounts(uids: Collection[str]) -> frozenset[str]:
    """Those pods that have any CSI volume mounted here, as far as this process can see.

    All of them while the mounts keep changing. Raises OSError, ValueError.
    """
    table = read_mount_table()
    if not table.settled:
        return frozenset(uids)
    points = [one.mount_point for one in table if "/volumes/kubernetes.io~csi/" in one.mount_point]
    return frozenset(
        uid
        for uid in uids
        if any(f"/pods/{uid}/volumes/kubernetes.io~csi/" in point for point in points)
    )


def pods_of(records: Iterable[Record]) -> frozenset[str]:
    """The UIDs of the pods whose own volumes are among these."""
    return frozenset(one.pod_uid for one in records if one.pod_uid)


@dataclass(eq=False)
class Pods:
    """Asks the API server for pods, and knows what it has said lately. `clock` gives seconds."""

    client: Client
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._told: dict[str, tuple[float, bool]] = {}

    def over(self) -> Mapping[str, bool]:
        """By the pod's UID: whether it is over, for those whose answer still counts."""
        now = self.clock()
        self._told = {
            uid: (when, is_over)
            for uid, (when, is_over) in self._told.items()
            if now - when < (FRESH_SECONDS if is_over else NAMED_SECONDS)
        }
        return {uid: is_over for uid, (_, is_over) in self._told.items()}

    async def ask(self, record: Record) -> bool:
        """Whether the pod of that volume is over; remembers it. Raises ApiError."""
        is_over = await self._is_over(record)
        self._told[record.pod_uid] = self.clock(), is_over
        return is_over

    async def check_over(self, record: Record) -> None:
        """Raise Superseded unless the pod is over even now, ApiError."""
        if not await self.ask(record):
            raise Superseded(f"pod {record.pod} is there after all")

    async def _is_over(self, record: Record) -> bool:
        namespace, _, name = record.pod.partition("/")
        try:
            pod = await self.client.get(PODS, name, namespace)
        except NotThere:
            return True
        known_as = (pod.metadata.uid, pod.metadata.annotations.get(_MIRROR))
        # The kubelet never starts a pod again that has succeeded or failed.
        return record.pod_uid not in known_as or pod.status.phase in _OVER
