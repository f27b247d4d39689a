"""The services of the Controller on a real socket, over volumes that are records without disks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from grpclib.client import Channel
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from localvolume.backends.handles import member_handle
from localvolume.backends.model import Blocks, Fill, Record, Source, Usage
from localvolume.csi.controller import ControllerService
from localvolume.csi.groups import GroupControllerService
from localvolume.csi.snapshotmetadata import SnapshotMetadataService
from localvolume.csi.wire.server import Server
from localvolume.dynamic.calls import (
    Apart,
    Differs,
    Group,
    InUse,
    NoRoom,
    NotTold,
    OutOfRange,
    Room,
    Unknown,
    Volume,
    Wanted,
    WantedInline,
    Wrong,
)
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.volumes.attributes import Attributes, changed_by
from localvolume.volumes.capacity import GIB, MIB
from localvolume.volumes.manifest import NodeFacts
from tests.host.support_csi_wire import call_on

R = TypeVar("R")

UNIT = MIB
"""Volumes have a multiple of this many bytes."""

CUT_AT = 1_800_000_000_123_456_789
"""When snapshots are cut."""


class Records:
    """Volumes of one pool of 10 GiB, as `dynamic.calls.Volumes` has them, by the calls' names."""

    def __init__(self) -> None:
        self.facts: NodeFacts | Exception = NodeFacts("node-1", "uid-1", "host-1")
        self.known: dict[str, Record] = {}
        self.cut: dict[str, Record] = {}
        self.fills: dict[str, Fill] = {}
        self.wanted: dict[str, Wanted] = {}
        self.no_copies = ""
        self.apart = ""
        self.not_told = ""
        self.allocated: list[tuple[int, int]] = []
        self.changed: list[tuple[int, int]] = []
        self.page_bytes = GIB
        self.looked: list[int] = []
        self.used: set[str] = set()
        self.wrong: dict[str, list[tuple[str, str]]] = {}
        self.asked: list[tuple[Mapping[str, str], str, str]] = []

    def node(self) -> NodeFacts:
        if isinstance(self.facts, Exception):
            raise self.facts
        return self.facts

    def all(self) -> Sequence[Volume]:
        return [Volume(record=self.known[name], pool="p") for name in sorted(self.known)]

    async def find(self, name: str) -> Volume | None:
        record = self.known.get(name)
        return None if record is None else Volume(record=record, pool="p")

    async def create(self, wanted: Wanted) -> Volume:
        if self.wanted.setdefault(wanted.name, wanted) != wanted:
            raise Differs(f"volume {wanted.name} was asked for in other words")
        if wanted.name not in self.known:
            if unknown := sorted(wanted.parameters.keys() - {"pool", "fsType"}):
                raise Wrong(f"parameter {unknown[0]} is not known")
            least = wanted.size_bytes
            if wanted.source:
                sources = self.cut if wanted.from_snapshot else self.known
                if wanted.source not in sources:
                    del self.wanted[wanted.name]
                    raise Unknown(f"{wanted.source} is not there")
                least = least or sources[wanted.source].size_bytes
                if least < sources[wanted.source].size_bytes:
                    raise OutOfRange(f"{wanted.source} is larger")
            self.known[wanted.name] = Record(
                name=wanted.name,
                backend="image",
                state="offered",
                directory="",
                size_bytes=self._sized(least, wanted.limit_bytes),
                volume_mode=wanted.volume_mode,
                fs_type=wanted.fs_type,
                made_from=wanted.source,
                attributes=wanted.attributes,
            )
        return Volume(record=self.known[wanted.name], pool="p")

    async def remove(self, name: str) -> None:
        if name in self.used:
            raise InUse(f"volume {name} is in use")
        self.known.pop(name, None)
        self.wanted.pop(name, None)

    async def snapshot(
        self,
        name: str,
        source: str,
        *,
        full_copies: bool = False,
        reserve: Reserve | None = None,
        namespace: str = "",
    ) -> Volume:
        if self.no_copies and not full_copies:
            raise Wrong(self.no_copies)
        known = self.cut.get(name)
        if known is None:
            if source not in self.known:
                raise Unknown(f"there is no volume {source}")
            known = replace(self.known[source], name=name, snapshot_of=source, cut_at=CUT_AT)
            if reserve is not None:
                room = reserve.of(known.size_bytes)
                known = replace(known, reserve_bytes=room, holds_bytes=room)
        if known.snapshot_of != source:
            raise Differs(f"{name} is a snapshot of {known.snapshot_of}")
        self.cut[name] = known
        return self._cut(name)

    def snapshots(self) -> Sequence[Volume]:
        return [self._cut(name) for name in sorted(self.cut)]

    def _cut(self, name: str) -> Volume:
        record = self.cut[name]
        fill = self.fills.get(name, Fill()) if record.reserve_bytes else None
        return Volume(record=record, pool="p", fill=fill)

    async def find_snapshot(self, name: str) -> Volume | None:
        return self._cut(name) if name in self.cut else None

    async def remove_snapshot(self, name: str) -> None:
        if name in self.cut and self.cut[name].group:
            raise Wrong("it is one of a group")
        self.cut.pop(name, None)

    async def blocks(self, snapshot: Volume, base: Volume | None, start: int) -> Blocks:
        if self.not_told:
            raise NotTold(self.not_told)
        if snapshot.record.name not in self.cut:
            raise Unknown(f"{snapshot.record.name} has no record")
        self.looked.append(start)
        size = snapshot.record.size_bytes
        until = min(start + self.page_bytes, size) if start < size else size
        known = self.changed if base is not None else self.allocated
        ranges = [(max(at, start), min(at + n, until)) for at, n in known]
        told = [(at, end - at) for at, end in ranges if at < end]
        return Blocks(ranges=told, until=until, total_bytes=size)

    async def create_inline(self, wanted: WantedInline) -> Volume:
        raise Wrong("the Controller knows nothing of pods' own volumes")

    async def find_inline(self, name: str) -> Volume | None:
        return None

    async def remove_inline(self, name: str) -> None:
        raise Wrong("the Controller knows nothing of pods' own volumes")

    async def cut_group(self, name: str, sources: Collection[str], *, namespace: str = "") -> Group:
        if self.apart:
            raise Apart(self.apart)
        there = await self.find_group(name)
        if there is None:
            for source in sorted(sources):
                made = await self.snapshot(member_handle(name, source), source)
                record = replace(made.record, group=name, group_size=len(sources))
                self.cut[record.name] = record
        elif {one.record.snapshot_of for one in there.members} != set(sources):
            raise Differs(f"{name} is a group of others")
        found = await self.find_group(name)
        assert found is not None
        return found

    async def find_group(self, name: str) -> Group | None:
        found = [one for one in self.snapshots() if one.record.group == name]
        return Group(name=name, members=found) if found else None

    async def remove_group(self, name: str, snapshots: Collection[str]) -> None:
        found = await self.find_group(name)
        names = {one.record.name for one in found.members} if found else set(snapshots)
        if names != set(snapshots):
            raise Wrong("snapshot_ids names others")
        for one in names:
            self.cut.pop(one, None)

    async def grow(self, name: str, size_bytes: int, limit_bytes: int = 0) -> Volume:
        if name not in self.known:
            raise Unknown(f"there is no volume {name}")
        record = self.known[name]
        size = max(record.size_bytes, size_bytes)
        if limit_bytes and size > limit_bytes:
            raise OutOfRange(f"volume {name} has {size} bytes")
        if size > record.size_bytes:
            size = self._sized(size, limit_bytes, record.size_bytes)
        self.known[name] = replace(record, size_bytes=size)
        return Volume(record=self.known[name], pool="p")

    async def modify(self, name: str, attributes: Attributes) -> Volume:
        if name not in self.known:
            raise Unknown(f"there is no volume {name}")
        record = self.known[name]
        self.known[name] = replace(record, attributes=changed_by(record.attributes, attributes))
        return Volume(record=self.known[name], pool="p")

    async def use(self, volume: Volume, act: Callable[[Source], R]) -> R:
        raise Unknown("these volumes have no disks")

    async def usage(self, volume: Volume) -> Usage | None:
        return None

    def room(
        self,
        parameters: Mapping[str, str],
        volume_mode: Literal["Filesystem", "Block"],
        fs_type: str,
    ) -> Room:
        self.asked.append((parameters, volume_mode, fs_type))
        if "nonsense" in parameters:
            raise Wrong("parameter nonsense is not known")
        return Room(self._left(), min(self._left(), 8 * GIB))

    def problems(self, name: str) -> Sequence[tuple[str, str]]:
        return self.wrong.get(name, [])

    def unseen(self) -> str:
        return ""

    def storage_problems(self) -> Sequence[tuple[str, str]]:
        return []

    def _left(self) -> int:
        return 10 * GIB - sum(one.size_bytes for one in self.known.values())

    def _sized(self, least: int, most: int, has: int = 0) -> int:
        size = -(-least // UNIT) * UNIT
        if most and size > most:
            raise OutOfRange(f"sizes are multiples of {UNIT}")
        if size - has > self._left():
            raise NoRoom(f"{self._left()} bytes are left")
        return size


class Caller:
    """Calls the services over their socket."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def __call__(self, rpc: str, **fields: Any) -> Any:
        return await call_on(self._channel, rpc, **fields)

    async def refused(self, rpc: str, **fields: Any) -> tuple[Status, str]:
        """The status and the text of a call that must fail."""
        with pytest.raises(GRPCError) as caught:
            await self(rpc, **fields)
        return caught.value.status, caught.value.message or ""


@asynccontextmanager
async def controller(volumes: Records, directory: Path) -> AsyncIterator[Caller]:
    """The services for these volumes, served on a socket in the directory."""
    path = str(directory / "csi.sock")
    services = (
        ControllerService(volumes),
        GroupControllerService(volumes),
        SnapshotMetadataService(volumes),
    )
    handlers = {rpc: handle for one in services for rpc, handle in one.handlers.items()}
    server = Server(path, handlers, lambda *_: None)
    await server.ensure()
    channel = Channel(path=path)
    try:
        yield Caller(channel)
    finally:
        channel.close()
        await server.close()
