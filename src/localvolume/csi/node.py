"""The Node service of CSI: mounts volumes where the kubelet wants them, and looks at them there."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from localvolume.backends.model import Record, Source
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.csi import capabilities, inline, limits, requests, stats
from localvolume.csi.healthstatus import volume_health
from localvolume.csi.staging import act
from localvolume.csi.staging.act import Asked, Paths
from localvolume.csi.staging.places import fault_of
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    OutOfRange,
)
from localvolume.dynamic.calls import Volume, Volumes
from localvolume.dynamic.plan.throttling import pod_of
from localvolume.dynamic.throttling.act import Throttle
from localvolume.host.process.workers import Workers
from localvolume.host.syscalls import closed_after

Handler = Callable[[Any], Awaitable[Any]]

SERVED: Final = (
    "STAGE_UNSTAGE_VOLUME",
    "GET_VOLUME_STATS",
    "EXPAND_VOLUME",
    "SINGLE_NODE_MULTI_WRITER",
    "GET_VOLUME_HEALTH",
    "GET_STORAGE_HEALTH",
)
UNMOUNT_SECONDS: Final = 120.0
"""What is still to be written is written first."""

_MODES: Final = messages.VolumeCapability.AccessMode.Mode
_READ_ONLY_MODE: Final = "SINGLE_NODE_READER_ONLY"
_UNREACHABLE: Final = frozenset({"PoolUnreachable"})
_OUR_DIRECTORIES: Final = (f"plugins/{CSI_DRIVER}", "plugins_registry")


class NodeService:
    """Reads the requests, mounts what `volumes` has, and answers.

    `check_claim` is asked before a pod gets a volume, and raises calls.Refused if its claim must
    not have it now. `most_volumes` is how many the scheduler may give to pods of this node, 0 for
    any number. Raises CallFailed, calls.Refused, OSError, Hung.
    """

    def __init__(
        self,
        volumes: Volumes,
        kubelet_directory: str,
        workers: Workers,
        throttle: Throttle,
        check_claim: Callable[[Record], Awaitable[None]],
        *,
        most_volumes: int = 0,
    ) -> None:
        self._check_claim = check_claim
        self._most_volumes = most_volumes
        self._volumes = volumes
        self._throttle = throttle
        self._workers = workers
        kubelet = os.path.realpath(kubelet_directory)
        self._paths = Paths(kubelet, tuple(f"{kubelet}/{one}" for one in _OUR_DIRECTORIES))
        self.handlers: Final[Mapping[str, Handler]] = {
            "NodeGetInfo": self._info,
            "NodeGetCapabilities": self._capabilities,
            "NodeStageVolume": self._stage,
            "NodeUnstageVolume": self._unstage,
            "NodePublishVolume": self._publish,
            "NodeUnpublishVolume": self._unpublish,
            "NodeGetVolumeStats": self._stats,
            "NodeExpandVolume": self._expand,
            "NodeGetVolumeHealth": self._health,
            "NodeGetStorageHealth": self._storage,
        }

    async def _info(self, _request: Any) -> Any:
        node = self._volumes.node()
        return messages.NodeGetInfoResponse(
            node_id=node.name,
            max_volumes_per_node=self._most_volumes,
            accessible_topology=requests.topology_of(node),
        )

    async def _capabilities(self, _request: Any) -> Any:
        return messages.NodeGetCapabilitiesResponse(
            capabilities=[{"rpc": {"type": name}} for name in SERVED]
        )

    # --- mounting ------------------------------------------------------------------------------

    async def _stage(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request)
        path = _path_in(request, "staging_target_path")
        asked = _asked(request, read_only=False)
        volume = await self._for_pods(name, request)
        await self._volumes.use(volume, lambda one: act.stage(one, asked, path, self._paths))
        return messages.NodeStageVolumeResponse()

    async def _publish(self, request: Any) -> Any:
        limits.check(request)
        if inline.is_asked_for(request):
            return await self._publish_inline(request)
        name = requests.handle_in(request)
        path = _path_in(request, "target_path")
        asked = _asked(request, read_only=request.readonly)
        if not request.staging_target_path:
            raise FailedPrecondition("staging_target_path is missing: stage the volume first")
        staging = _path_in(request, "staging_target_path")
        volume = await self._for_pods(name, request)
        pod = pod_of(path, self._paths.kubelet)

        def publish(one: Source) -> None:
            # First: from the mount on, the pod may read and write.
            self._throttle.keep(one, pod)
            act.publish(one, asked, staging, path, self._paths)

        await self._volumes.use(volume, publish)
        return messages.NodePublishVolumeResponse()

    async def _publish_inline(self, request: Any) -> Any:
        """Make a pod's own volume and mount it: no other call does either."""
        path = _path_in(request, "target_path")
        asked = _asked(request, read_only=request.readonly)
        wanted = inline.wanted(request)
        volume = await self._volumes.create_inline(wanted)
        await self._volumes.use(
            volume, lambda one: act.publish_unstaged(one, asked, path, self._paths)
        )
        return messages.NodePublishVolumeResponse()

    async def _unstage(self, request: Any) -> Any:
        limits.check(request)
        requests.handle_in(request)
        path = _path_in(request, "staging_target_path")
        await self._workers.call(path, UNMOUNT_SECONDS, act.unstage, path, self._paths)
        return messages.NodeUnstageVolumeResponse()

    async def _unpublish(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request)
        path = _path_in(request, "target_path")
        await self._workers.call(path, UNMOUNT_SECONDS, act.unpublish, path, self._paths)
        if name is not None and inline.is_handle(name):
            await self._volumes.remove_inline(name)
        return messages.NodeUnpublishVolumeResponse()

    # --- what there is -------------------------------------------------------------------------

    async def _stats(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request)
        path = _given(request, "volume_path")
        if name is not None and inline.is_handle(name):
            found = await self._volumes.find_inline(name)
        else:
            found = None
        volume = found or await self._found(name, request)
        seen = await self._volumes.use(volume, lambda one: self._seen_at(one, path))
        if not seen.shared:
            return messages.NodeGetVolumeStatsResponse(usage=seen.entries)
        # A directory shares its filesystem with others: what counts is its own limit.
        usage = await self._volumes.usage(volume)
        entries = stats.limited(usage) if usage is not None else []
        return messages.NodeGetVolumeStatsResponse(usage=entries or seen.entries)

    async def _expand(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request)
        path = _given(request, "volume_path")
        volume = await self._found(name, request)
        size, limit = 0, 0
        if request.HasField("capacity_range"):
            size, limit = requests.sizes(request.capacity_range)
        if volume.record.volume_mode == "Filesystem":
            await self._volumes.use(volume, lambda one: self._seen_at(one, path))
        if volume.record.size_bytes < size:
            volume = await self._volumes.grow(volume.record.name, size, limit)
        has = volume.record.size_bytes
        if limit and has > limit:
            raise OutOfRange(f"the volume has {has} bytes, more than limit_bytes {limit}")
        return messages.NodeExpandVolumeResponse(capacity_bytes=has)

    async def _health(self, request: Any) -> Any:
        limits.check(request)
        volume = await self._found(requests.handle_in(request), request)
        name = volume.record.name
        return messages.NodeGetVolumeHealthResponse(
            volume_health=volume_health(name, self._volumes.problems(name))
        )

    async def _storage(self, _request: Any) -> Any:
        return messages.NodeGetStorageHealthResponse(
            backend_health=_storage_health(self._volumes.storage_problems())
        )

    async def _found(self, name: str | None, request: Any) -> Volume:
        volume = None if name is None else await self._volumes.find(name)
        if volume is None:
            raise NotFound(f"there is no volume {request.volume_id}")
        return volume

    async def _for_pods(self, name: str | None, request: Any) -> Volume:
        """The volume, if it can be used as is asked for, and its claim may have it."""
        volume = await self._found(name, request)
        kind = capabilities.kind_of([request.volume_capability])
        if why := capabilities.misfit(kind, volume.record):
            raise FailedPrecondition(f"volume {request.volume_id} cannot be used so: {why}")
        await self._check_claim(volume.record)
        return volume

    def _seen_at(self, source: Source, path: str) -> stats.Seen:
        with closed_after(act.mounted_at(source, path, self._paths)) as fd:
            return stats.seen(source, fd)


def _given(request: Any, field: str) -> str:
    """The path in that field. Raises InvalidArgument if it is empty."""
    path: str = getattr(request, field)
    if not path:
        raise InvalidArgument(f"{field} is missing")
    return path


def _path_in(request: Any, field: str) -> str:
    """The path in that field, at which something can be mounted. Raises InvalidArgument."""
    path = _given(request, field)
    if fault := fault_of(path):
        raise InvalidArgument(f"{field}: {fault}")
    return path


def _asked(request: Any, *, read_only: bool) -> Asked:
    """How the volume is to be used. Raises InvalidArgument."""
    if not request.HasField("volume_capability"):
        raise InvalidArgument("volume_capability is missing")
    capability = request.volume_capability
    kind = capabilities.kind_of([capability])
    mode: str = _MODES.Name(capability.access_mode.mode)
    return Asked(
        block=kind.volume_mode == "Block",
        mode=mode,
        flags=tuple(capability.mount.mount_flags),
        read_only=read_only or mode == _READ_ONLY_MODE,
    )


def _storage_health(problems: Sequence[tuple[str, str]]) -> list[Mapping[str, str]]:
    """Entries of StorageBackendHealth. A reason occurs once, with its first sentence."""
    first: dict[str, str] = {}
    for reason, text in problems:
        first.setdefault(reason, text)
    return [
        {
            "status": "STORAGE_UNREACHABLE" if reason in _UNREACHABLE else "STORAGE_DEGRADED",
            "reason": limits.short(reason),
            "message": limits.short(text),
        }
        for reason, text in first.items()
    ]
