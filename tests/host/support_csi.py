"""The Node service over volumes on real disks, and how the mount table shows what it has done."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from grpclib.const import Status

from localvolume.backends.model import Blocks, Record, Source, Usage
from localvolume.csi.node import NodeService
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import failure_of
from localvolume.dynamic.calls import (
    Apart,
    Group,
    OutOfRange,
    Room,
    Volume,
    Wanted,
    WantedInline,
    Wrong,
)
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.dynamic.throttling.act import Throttle, throttle_for
from localvolume.host.mount.mounts import Mount, read_mount_table
from localvolume.host.process.workers import Workers
from localvolume.host.tree.entries import device_number
from localvolume.volumes.attributes import Attributes
from localvolume.volumes.manifest import NodeFacts
from tests.host.support_devices import LoopDevice
from tests.host.support_mounts import MNT_DETACH, umount

R = TypeVar("R")

NODE = NodeFacts("node-1", "uid-1", "host-1")
MOST = 60
"""Volumes that pods of the node may use."""
SHARED, WRITER, SINGLE, READER = (
    "SINGLE_NODE_MULTI_WRITER",
    "SINGLE_NODE_WRITER",
    "SINGLE_NODE_SINGLE_WRITER",
    "SINGLE_NODE_READER_ONLY",
)


@dataclass
class Disks:
    """Volumes that a test has made itself, as `dynamic.calls.Volumes` has them."""

    where: Mapping[str, str] = field(default_factory=dict)
    """Their directories or device nodes."""
    known: dict[str, Record] = field(default_factory=dict)
    measured: dict[str, Usage] = field(default_factory=dict)
    wrong: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    pools: list[tuple[str, str]] = field(default_factory=list)
    grown: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, name: str, place: str | Path | LoopDevice, fs_type: str = "") -> str:
        """A volume: a directory, or a device with that filesystem ("raw": none)."""
        node = place.path if isinstance(place, LoopDevice) else str(place)
        self.where = {**self.where, name: node}
        self.known[name] = Record(
            name=name,
            backend="image" if fs_type else "directory",
            state="offered",
            directory="" if fs_type else name,
            size_bytes=1 << 20,
            volume_mode="Block" if fs_type == "raw" else "Filesystem",
            fs_type="" if fs_type == "raw" else fs_type,
            driver="csi.localvolume.dev",
        )
        return name

    def source(self, name: str, fd: int) -> Source:
        record = self.known[name]
        device = self.where[name] if record.backend == "image" else ""
        return Source(record=record, fd=fd, device=device, fs_type=record.fs_type)

    def node(self) -> NodeFacts:
        return NODE

    def all(self) -> Sequence[Volume]:
        return [Volume(record=one, pool="p") for one in self.known.values()]

    async def find(self, name: str) -> Volume | None:
        record = self.known.get(name)
        return None if record is None else Volume(record=record, pool="p")

    async def create(self, wanted: Wanted) -> Volume:
        raise Wrong("a test makes its volumes itself")

    async def remove(self, name: str) -> None:
        raise Wrong("a test removes its volumes itself")

    async def grow(self, name: str, size_bytes: int, limit_bytes: int = 0) -> Volume:
        if limit_bytes and size_bytes > limit_bytes:
            raise OutOfRange("more than may be")
        self.grown.append((name, size_bytes, limit_bytes))
        self.known[name] = replace(self.known[name], size_bytes=size_bytes)
        return Volume(record=self.known[name], pool="p")

    async def modify(self, name: str, attributes: Attributes) -> Volume:
        raise Wrong("a test modifies its volumes itself")

    async def snapshot(
        self,
        name: str,
        source: str,
        *,
        full_copies: bool = False,
        reserve: Reserve | None = None,
        namespace: str = "",
    ) -> Volume:
        raise Wrong("these volumes are mounted, and not cut")

    def snapshots(self) -> Sequence[Volume]:
        return []

    async def find_snapshot(self, name: str) -> Volume | None:
        return None

    async def remove_snapshot(self, name: str) -> None:
        raise Wrong("there are no snapshots")

    async def blocks(self, snapshot: Volume, base: Volume | None, start: int) -> Blocks:
        raise Wrong("there are no snapshots")

    async def create_inline(self, wanted: WantedInline) -> Volume:
        raise Wrong("these volumes are not of pods' specs")

    async def find_inline(self, name: str) -> Volume | None:
        return None

    async def remove_inline(self, name: str) -> None:
        raise Wrong("there are no volumes of pods' specs")

    async def cut_group(self, name: str, sources: Collection[str], *, namespace: str = "") -> Group:
        raise Apart("there are no snapshots")

    async def find_group(self, name: str) -> Group | None:
        return None

    async def remove_group(self, name: str, snapshots: Collection[str]) -> None:
        raise Wrong("there are no snapshots")

    async def use(self, volume: Volume, act: Callable[[Source], R]) -> R:
        return await asyncio.to_thread(self.use_here, volume.record.name, act)

    def use_here(self, name: str, act: Callable[[Source], R]) -> R:
        """The same in the thread that calls it."""
        fd = os.open(self.where[name], os.O_PATH | os.O_CLOEXEC)
        try:
            return act(self.source(name, fd))
        finally:
            os.close(fd)

    async def usage(self, volume: Volume) -> Usage | None:
        return self.measured.get(volume.record.name)

    def room(
        self,
        parameters: Mapping[str, str],
        volume_mode: Literal["Filesystem", "Block"],
        fs_type: str,
    ) -> Room:
        return Room(0, 0)

    def problems(self, name: str) -> Sequence[tuple[str, str]]:
        return self.wrong.get(name, [])

    def unseen(self) -> str:
        return ""

    def storage_problems(self) -> Sequence[tuple[str, str]]:
        return self.pools


@dataclass
class Kubelet:
    """Calls the service as the kubelet does, with the kubelet's paths below a directory."""

    root: Path
    disks: Disks
    service: NodeService

    def staging(self, name: str) -> str:
        return str(self.root / "plugins/kubernetes.io/csi" / name / "globalmount")

    def target(self, name: str, pod: str = "pod-1") -> str:
        return str(self.root / "pods" / pod / "volumes/kubernetes.io~csi" / name / "mount")

    async def call(self, rpc: str, **fields: Any) -> Any:
        request = getattr(messages, f"{rpc}Request")(**fields)
        return await self.service.handlers[rpc](request)

    async def refused(self, rpc: str, **fields: Any) -> tuple[Status, str]:
        """How a call fails, as the server would say it."""
        with pytest.raises(Exception) as caught:
            await self.call(rpc, **fields)
        failure = failure_of(caught.value)
        return failure.status, str(failure)

    def stage_request(self, name: str, **more: Any) -> dict[str, Any]:
        staging = self.staging(name)
        os.makedirs(staging, exist_ok=True)
        return {
            "volume_id": name,
            "staging_target_path": staging,
            "volume_capability": self.capability(name, **more),
        }

    def publish_request(
        self, name: str, pod: str = "pod-1", *, readonly: bool = False, **more: Any
    ) -> dict[str, Any]:
        target = self.target(name, pod)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        stage = self.stage_request(name, **more)
        return {**stage, "target_path": target, "readonly": readonly}

    def capability(
        self, name: str, *, mode: str = SHARED, flags: Sequence[str] = (), **mount: Any
    ) -> dict[str, Any]:
        record = self.disks.known.get(name)
        access: dict[str, Any] = {"access_mode": {"mode": mode}}
        if record is not None and record.volume_mode == "Block":
            return {**access, "block": {}}
        return {**access, "mount": {"mount_flags": flags, **mount}}

    async def stage(self, name: str, **more: Any) -> str:
        await self.call("NodeStageVolume", **self.stage_request(name, **more))
        return self.staging(name)

    async def publish(self, name: str, pod: str = "pod-1", **more: Any) -> str:
        await self.call("NodePublishVolume", **self.publish_request(name, pod, **more))
        return self.target(name, pod)

    async def unpublish(self, name: str, pod: str = "pod-1") -> None:
        await self.call("NodeUnpublishVolume", volume_id=name, target_path=self.target(name, pod))

    async def unstage(self, name: str) -> None:
        path = self.staging(name)
        await self.call("NodeUnstageVolume", volume_id=name, staging_target_path=path)

    def mounts(self) -> list[Mount]:
        """All mounts below the kubelet's directory, hidden ones too."""
        return [one for one in read_mount_table() if one.mount_point.startswith(f"{self.root}/")]

    def clear(self) -> None:
        """Unmount all of them."""
        for one in reversed(self.mounts()):
            umount(one.mount_point, MNT_DETACH)

    def shown(self) -> list[tuple[str, str, str, str]]:
        """The same, as far as a repeated call must leave them alike."""
        return sorted((one.mount_point, one.device, one.root, one.options) for one in self.mounts())


async def _of_one_claim(_: Record) -> None:
    """No API server says whose these volumes are."""


@contextlib.contextmanager
def kubelet_at(root: Path, disks: Disks, throttle: Throttle | None = None) -> Iterator[Kubelet]:
    """Nothing stays mounted in the end."""
    throttle = throttle or throttle_for("", str(root))
    root.mkdir(exist_ok=True)
    workers = Workers(2)
    service = NodeService(disks, str(root), workers, throttle, _of_one_claim, most_volumes=MOST)
    kubelet = Kubelet(root, disks, service)
    try:
        yield kubelet
    finally:
        kubelet.clear()
        workers.close()


def number_of(path: str) -> str:
    """A device's number, as the mount table has it."""
    return device_number(os.stat(path).st_rdev)
