"""The CSI calls that wait for the role, and what else CSI does with the volumes of this node.

A call that changes something waits for the role's next look, as an event would: the plan decides
about it together with all claims, from the same facts and the same room.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

import msgspec

from localvolume.backends.model import (
    Blocks,
    Busy,
    Impossible,
    NoSpace,
    NotThisVolume,
    Record,
    Source,
    Usage,
)
from localvolume.config.model import Served
from localvolume.config.pools import PoolConfig
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import (
    Group,
    InUse,
    NoRoom,
    NotNow,
    NotTold,
    Refused,
    Room,
    Unknown,
    Volume,
    Wanted,
    WantedInline,
    Wrong,
)
from localvolume.dynamic.classes.parameters import CSI_FS_TYPE, facts_of_class
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.dynamic.model import (
    AnswerCall,
    Call,
    ClassFacts,
    CreateCall,
    CutGroupCall,
    Facts,
    GrowCall,
    InlineCall,
    ModifyCall,
    Pool,
    RemoveCall,
    RemoveGroupCall,
    RemoveInlineCall,
    SnapshotCall,
)
from localvolume.dynamic.plan.calls.finding import check_here
from localvolume.dynamic.plan.calls.groups import group_key, unknown_part
from localvolume.dynamic.plan.calls.volumes import room_of
from localvolume.dynamic.plan.world import World
from localvolume.dynamic.pools import Pools
from localvolume.kube.objects import Meta, PersistentVolume, StorageClass
from localvolume.volumes import marks
from localvolume.volumes.attributes import Attributes, written
from localvolume.volumes.manifest import NodeFacts

log = logging.getLogger(__name__)

SERVED: Final = Served(CSI_DRIVER, "native")

LOOK_SECONDS: Final = 30.0
"""How long a call waits for a look that it needs: it is repeated, and pools may hang."""

R = TypeVar("R")
Future = asyncio.Future[Volume | None]
Kind = Literal["volume", "snapshot", "inline"]
"""Calls for one kind never see the others; an `inline` volume is a pod's own."""


def refusal_of(error: Exception) -> Refused:
    """What the caller must do about a failure."""
    match error:
        case Refused():
            return error
        case NoSpace():
            return NoRoom(str(error))
        case Impossible():
            return Wrong(str(error))
        case Busy():
            return InUse(str(error))
        case NotThisVolume():
            return Unknown(str(error))
        case _:
            return NotNow(str(error) or type(error).__name__)


@dataclass(eq=False)
class Calls:
    """The volumes of this node as CSI calls see them: see ``calls.Volumes``.

    `wake` makes the role look; `volumes` are the PersistentVolumes of this node by name.
    """

    pools: Pools
    wake: Callable[[], object]
    volumes: Mapping[str, PersistentVolume]
    _waiting: dict[str, tuple[Call, Future]] = field(default_factory=dict)
    _asked: Sequence[tuple[Call, Future]] = ()
    """The calls that waited when the last look began."""
    _facts: Facts | None = None
    _begun: int = 0
    """How many looks have begun, and the number of the last one that ended."""
    _ended: int = 0
    _since: dict[str, tuple[int, Volume | None]] = field(default_factory=dict)
    """What calls were answered that the last look may not have seen, with the looks begun then."""
    _looked: asyncio.Event = field(default_factory=asyncio.Event)

    # --- for the role --------------------------------------------------------------------------

    def waiting(self) -> Sequence[Call]:
        """The calls that this look can answer: a later one may be about what it does not see."""
        return [call for call, future in self._asked if not future.done()]

    @property
    def known(self) -> bool:
        """Whether a look has seen the volumes of this node."""
        return self._facts is not None

    def looking(self) -> None:
        """Told when a look begins."""
        self._begun += 1
        self._asked = list(self._waiting.values())

    def seen(self, facts: Facts) -> None:
        """Told of each look, once its facts are known."""
        self._facts = facts
        self._ended = self._begun
        self._since = {name: told for name, told in self._since.items() if told[0] >= self._ended}
        self._looked.set()
        self._looked = asyncio.Event()

    def answer(self, name: str, volume: Volume | None) -> None:
        """Answer the call that has changed that volume; None: there is none any more."""
        self._since[name] = self._begun, volume
        self._tell(name, volume)

    def _tell(self, name: str, volume: Volume | None) -> None:
        _, future = self._waiting.pop(name, (None, None))
        if future is not None and not future.done():
            future.set_result(volume)

    def answer_as(self, action: AnswerCall) -> None:
        """Answer the call as the plan says."""
        if action.refusal is not None:
            self.refuse(action.key, action.refusal)
        elif action.record is None or action.pool is None:
            self._tell(action.key, None)
        else:
            volume = Volume(record=action.record, pool=action.pool.name, fill=action.fill)
            self._tell(action.key, volume)

    def refuse(self, name: str, why: Refused) -> None:
        """Refuse the call that waits for that volume, if one still does."""
        _, future = self._waiting.pop(name, (None, None))
        if future is not None and not future.done():
            future.set_exception(why)

    def end(self) -> None:
        """Refuse all calls: the agent ends."""
        for name in list(self._waiting):
            self.refuse(name, NotNow("the agent ends"))

    # --- calls that change something -----------------------------------------------------------

    async def create(self, wanted: Wanted) -> Volume:
        """Make the volume, or find it made."""
        class_facts = _class_of(wanted.parameters, wanted.fs_type)
        call = CreateCall(
            key=wanted.name, wanted=wanted, class_facts=class_facts, request=_request_of(wanted)
        )
        return _there(await self._ask(call), wanted.name)

    async def remove(self, name: str) -> None:
        """Remove a volume that a call made; does nothing if there is none."""
        await self._ask(RemoveCall(key=name))

    async def snapshot(
        self,
        name: str,
        source: str,
        *,
        full_copies: bool = False,
        reserve: Reserve | None = None,
        namespace: str = "",
    ) -> Volume:
        """Cut a snapshot of the volume, or find it cut."""
        call = SnapshotCall(
            key=name,
            source=source,
            full_copies=full_copies,
            reserve=reserve,
            namespace=namespace,
        )
        return _there(await self._ask(call), name)

    async def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot; does nothing if there is none."""
        await self._ask(RemoveCall(key=name, snapshot=True))

    async def create_inline(self, wanted: WantedInline) -> Volume:
        """Make a pod's own volume, or find it made."""
        fs_type, pool = wanted.fs_type or "any filesystem", wanted.pool or "any pool"
        request = f"{wanted.size_bytes} bytes of a pod's own, {fs_type}, {pool}"
        call = InlineCall(key=wanted.name, wanted=wanted, request=request)
        return _there(await self._ask(call), wanted.name)

    async def remove_inline(self, name: str) -> None:
        """Remove a pod's own volume, later if its pool is away."""
        await self._ask(RemoveInlineCall(key=name))

    async def cut_group(self, name: str, sources: Collection[str], *, namespace: str = "") -> Group:
        """Cut snapshots of those volumes at one moment, or find them cut."""
        asked = tuple(sorted(sources))
        call = CutGroupCall(key=group_key(name), name=name, sources=asked, namespace=namespace)
        await self._ask(call)
        if (cut := self._group(name)) is None:
            raise Unknown(f"there is no group {name} here")
        return cut

    async def remove_group(self, name: str, snapshots: Collection[str]) -> None:
        """Remove the group that has just those snapshots; does nothing if there is none."""
        asked = tuple(sorted(snapshots))
        await self._ask(RemoveGroupCall(key=group_key(name), name=name, snapshots=asked))

    async def grow(self, name: str, size_bytes: int, limit_bytes: int = 0) -> Volume:
        """Let the volume have at least that many bytes."""
        call = GrowCall(key=name, size_bytes=size_bytes, limit_bytes=limit_bytes)
        return _there(await self._ask(call), name)

    async def modify(self, name: str, attributes: Attributes) -> Volume:
        """Give the volume those of the attributes that say something."""
        return _there(await self._ask(ModifyCall(key=name, attributes=attributes)), name)

    async def _ask(self, call: Call) -> Volume | None:
        waits = self._waiting.get(call.key)
        if waits is None:
            future: Future = asyncio.get_running_loop().create_future()
            # The caller may be gone by the time that it is answered.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            waits = self._waiting[call.key] = call, future
            self.wake()
        elif waits[0] != call:
            raise NotNow(f"another call for {call.key} is not answered yet")
        return await asyncio.shield(waits[1])

    # --- calls that look or mount --------------------------------------------------------------

    def node(self) -> NodeFacts:
        """This node."""
        return self._known().node

    def all(self) -> Sequence[Volume]:
        """The volumes that are known now, in the order of their names."""
        return self._all("volume")

    def snapshots(self) -> Sequence[Volume]:
        """The snapshots that are known now, in the order of their names."""
        return self._all("snapshot")

    def unseen(self) -> str:
        """Where there may be some that are not known now, "" for nowhere."""
        return unknown_part(self._known().pools)

    def _all(self, kind: Kind) -> Sequence[Volume]:
        found = {
            record.name: _volume(pool, record)
            for pool in self._known().pools
            for record in pool.report.records.values()
        }
        for name, (_, volume) in self._since.items():
            if volume is None:
                found.pop(name, None)
            else:
                found[name] = volume
        return [found[name] for name in sorted(found) if _is_complete(found[name], kind)]

    async def find(self, name: str) -> Volume | None:
        """The volume, or None if there is none even after another look."""
        return await self._find_or_look(name, "volume")

    async def find_snapshot(self, name: str) -> Volume | None:
        """The snapshot, or None if there is none even after another look."""
        return await self._find_or_look(name, "snapshot")

    async def find_inline(self, name: str) -> Volume | None:
        """The pod's own volume, or None if there is none even after another look."""
        return await self._find_or_look(name, "inline")

    async def find_group(self, name: str) -> Group | None:
        """The group, or None if there is none even after another look."""
        if self._facts is None or self._group(name) is None:
            await self._look()
        found = self._group(name)
        if found is None and (why := self.unseen()):
            raise NotNow(f"it may be in {why}")
        return found

    def _group(self, name: str) -> Group | None:
        """The group if all of it is known."""
        found = [one for one in self.snapshots() if one.record.group == name]
        whole = bool(found) and len(found) == found[0].record.group_size
        return Group(name=name, members=found) if whole else None

    async def _find_or_look(self, name: str, kind: Kind) -> Volume | None:
        if self._facts is not None and (known := self._complete(name, kind)) is not None:
            return known
        await self._look()
        return self._find(name, kind)

    async def use(self, volume: Volume, act: Callable[[Source], R]) -> R:
        """Make the volume usable and do `act` in a thread, with nothing else done to it."""

        def outcome(source: Source) -> tuple[R | None, Exception | None]:
            # What `act` raises is not what its pool has to say.
            try:
                return act(source), None
            except Exception as error:  # noqa: BLE001 - raised again below
                return None, error

        record, pool = volume.record, self._pool_of(volume)
        try:
            result, error = await self.pools.call(
                pool, record.name, lambda store: store.use(record, outcome)
            )
        except Exception as failure:
            raise refusal_of(failure) from failure
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    async def blocks(self, snapshot: Volume, base: Volume | None, start: int) -> Blocks:
        """What the snapshot holds from that byte on, or how it differs from another, the `base`."""
        record, pool = snapshot.record, self._pool_of(snapshot)
        other = None if base is None else base.record
        try:
            return await self.pools.call(
                pool,
                record.name,
                lambda store: store.blocks(record, other, start),
                origin="" if other is None else other.name,
            )
        except Impossible as error:
            raise NotTold(str(error)) from error
        except Exception as failure:
            raise refusal_of(failure) from failure

    async def usage(self, volume: Volume) -> Usage | None:
        """What the volume holds now; None if nothing measures it."""
        record, pool = volume.record, self._pool_of(volume)
        try:
            return await self.pools.call(pool, record.name, lambda store: store.usage(record))
        except Exception as failure:
            raise refusal_of(failure) from failure

    def room(
        self,
        parameters: Mapping[str, str],
        volume_mode: Literal["Filesystem", "Block"],
        fs_type: str,
    ) -> Room:
        """What there is for volumes of such a class."""
        class_facts = _class_of(parameters, fs_type)
        if class_facts.problem:
            raise Wrong(class_facts.problem)
        return room_of(World(self._known()), class_facts, volume_mode)

    def problems(self, name: str) -> Sequence[tuple[str, str]]:
        """What health says is wrong with the volume."""
        volume = self.volumes.get(name)
        said = volume.metadata.annotations.get(marks.HEALTH_ANNOTATION, "") if volume else ""
        reason, _, sentence = said.partition(": ")
        return [(reason, sentence)] if reason else []

    def storage_problems(self) -> Sequence[tuple[str, str]]:
        """What is wrong with the pools of this node."""
        found = []
        for pool in self._known().pools:
            name, report = pool.config.name, pool.report
            if report.problem and not report.taken:
                found.append(("PoolUnreachable", f"pool {name}: {report.problem}"))
            elif wrong := report.unwell or report.thin_health:
                found.append(("PoolDegraded", f"pool {name}: {wrong}"))
        return found

    def _complete(self, name: str, kind: Kind) -> Volume | None:
        found = [
            _volume(pool, pool.report.records[name])
            for pool in self._known().pools
            if name in pool.report.records
        ]
        if name in self._since:
            _, volume = self._since[name]
            found = [] if volume is None else [volume]
        return next((one for one in found if _is_complete(one, kind)), None)

    def _find(self, name: str, kind: Kind) -> Volume | None:
        if (found := self._complete(name, kind)) is not None:
            return found
        for pool in self._known().pools:
            if pool.report.problem or name in pool.report.unreadable:
                why = pool.report.problem or pool.report.unreadable[name]
                raise NotNow(f"it may be in pool {pool.config.name}: {why}")
        if kind == "volume" and not self._is_on_record(name):
            check_here(World(self._known()), name, None)
        return None

    def _is_on_record(self, name: str) -> bool:
        """Whether a pool has something of that name, or had it until a call removed it."""
        pools = self._known().pools
        return name in self._since or any(name in pool.report.records for pool in pools)

    def _known(self) -> Facts:
        if self._facts is None:
            raise NotNow("the volumes of this node are not known yet")
        return self._facts

    async def _look(self) -> None:
        """Wait for a look that begins after this."""
        # One that is under way may have seen the pools already.
        wanted = self._begun + 1
        self.wake()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                while self._ended < wanted:
                    await self._looked.wait()
        except TimeoutError:
            raise NotNow("the volumes of this node could not be looked at in time") from None

    def _pool_of(self, volume: Volume) -> PoolConfig:
        for pool in self._known().pools:
            if pool.config.name == volume.pool:
                return pool.config
        raise NotNow(f"pool {volume.pool} is not configured any more")


def _volume(pool: Pool, record: Record) -> Volume:
    fill = pool.report.fills.get(record.name)
    return Volume(record=record, pool=pool.config.name, fill=fill)


def _is_complete(volume: Volume, kind: Kind) -> bool:
    record = volume.record
    if record.driver != CSI_DRIVER or record.state != "offered":
        return False
    return kind == ("snapshot" if record.snapshot_of else "inline" if record.pod_uid else "volume")


def _there(volume: Volume | None, name: str) -> Volume:
    if volume is None:
        raise Unknown(f"there is no volume {name} here")
    return volume


def _class_of(parameters: Mapping[str, str], fs_type: str) -> ClassFacts:
    """A class of these parameters: a call names none."""
    said = dict(parameters)
    if fs_type:
        said[CSI_FS_TYPE] = fs_type
    found = StorageClass(metadata=Meta(), provisioner=CSI_DRIVER, parameters=said)
    return facts_of_class(found, SERVED)


def _request_of(wanted: Wanted) -> str:
    """What the call asks for, in one line that fits into a tag of LVM's."""
    said = msgspec.json.encode([wanted.fs_type, dict(wanted.parameters)], order="sorted")
    digest = hashlib.sha256(said).hexdigest()[:16]
    limit = f"-{wanted.limit_bytes}" if wanted.limit_bytes else ""
    kind = "snapshot" if wanted.from_snapshot else "volume"
    source = f", content of {kind} {wanted.source}" if wanted.source else ""
    more = f", attributes {text}" if (text := written(wanted.attributes)) else ""
    size = f"{wanted.size_bytes}{limit} bytes"
    return f"{wanted.volume_mode} of {size}, parameters {digest}{source}{more}"
