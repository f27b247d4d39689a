"""A node whose history is drawn: disks, objects, claims, backups, and an agent that may die.

It does what the acts do (`static.act`), by the plan of the moment, one write after the other, and
knows apart from all records whose bytes lie where. `Lost` and `Leaked` are what must never be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from localvolume.config.model import FirstUse, VolumeMode
from localvolume.kube.objects import ClaimRef, PersistentVolume, PVStatus
from localvolume.static.model import (
    Action,
    Adopt,
    Ask,
    Clean,
    CleanFirst,
    Content,
    Entry,
    Hold,
    Keep,
    KeepRecord,
    LetGo,
    MarkClaimed,
    Publish,
    Reclaim,
    Withdraw,
)
from localvolume.static.plan.content import is_offerable
from localvolume.static.plan.plan import held_by_another
from localvolume.volumes import marks
from localvolume.volumes.identity import to_annotation, unchanged
from localvolume.volumes.objects import claim_of, claims_of, generation_of
from localvolume.volumes.record import (
    Record,
    Recorded,
    held_by,
    next_offer,
    of_object,
    over,
    strange,
    taken,
)
from tests.decisions.support_plan import SIZE, block, class_facts, filesystem, steps_of, volume_of


class Lost(AssertionError):
    """Data was destroyed that is somebody's still."""


class Leaked(AssertionError):
    """A claim got a volume with what another has written."""


@dataclass
class Disk:
    """`owner` has written what lies on it; `record` is what the agent has written there."""

    entry: Entry
    owner: str = ""
    record: Record | None = None

    @property
    def is_filesystem(self) -> bool:
        return self.entry.kind == "filesystem"


@dataclass
class Claims:
    """Whom volumes are for: `ended` by their users' own will, which no backup takes back."""

    made: int = 0
    alive: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)


def _disk(make: Callable[..., Entry], number: int) -> Entry:
    made = make(f"disk-{number}")
    return replace(made, identity={**made.identity, "deviceSerial": f"disk-{number}"})


class Node:
    """One class with two places, three disks; every method is something that may happen."""

    def __init__(self, kind: str, first_use: FirstUse) -> None:
        mode: VolumeMode = "Filesystem" if kind == "filesystem" else "Block"
        self.facts = class_facts(first_use=first_use, mode=mode)
        make: Callable[..., Entry] = filesystem if kind == "filesystem" else block
        self.disks = [Disk(_disk(make, number)) for number in range(3)]
        self.places: list[Disk | None] = [self.disks[0], self.disks[1]]
        self.objects: dict[str, PersistentVolume] = {}
        self.claims = Claims()
        self.backups: list[tuple[dict[str, PersistentVolume], set[str]]] = []
        self._count = 0

    # --- what people, tenants and machines do ---------------------------------------------------

    def bind(self, place: int) -> None:
        """A claim gets what is offered at the place, and its pods write there.

        The agent looks before it and after it: what Kubernetes binds in the moment after a restore
        no agent prevents, and what pods write before the agent has heard of them is on no record.
        """
        self.agent()
        found = self._object_at(place)
        if found is None or found.status.phase != "Available":
            return
        if found.metadata.deletion_timestamp is not None:
            return
        disk = self.places[place]
        self.claims.made += 1
        claim = f"claim-{self.claims.made}"
        if disk is not None and disk.owner not in ("", claim):
            raise Leaked(f"{claim} got what {disk.owner} has written")
        self.claims.alive.add(claim)
        reference = ClaimRef(namespace="team", name=claim, uid=claim)
        self._change(found, phase="Bound", claim_ref=reference)
        for _ in range(3):
            self.agent()
        self.write(place)

    def write(self, place: int) -> None:
        """Pods of the claim that the object at the place is bound to write on the disk there."""
        found, disk = self._object_at(place), self.places[place]
        if found is None or disk is None or found.status.phase != "Bound":
            return
        claim = claim_of(found)
        if claim in self.claims.alive and self._is_its_own(found, disk):
            disk.owner = claim

    def end(self, place: int) -> None:
        """The user deletes the claim: its data is not wanted any more."""
        found = self._object_at(place)
        if found is None or found.status.phase != "Bound":
            return
        self.claims.alive.discard(claim_of(found))
        self.claims.ended.add(claim_of(found))
        self._change(found, phase="Released")

    def back_up(self, _: int) -> None:
        self.backups.append((dict(self.objects), set(self.claims.alive)))

    def restore(self, which: int) -> None:
        """The API server has an older state; disks and pods' data are what they are."""
        if not self.backups:
            return
        objects, alive = self.backups[which % len(self.backups)]
        self.objects, self.claims.alive = dict(objects), set(alive)

    def delete(self, place: int) -> None:
        """Somebody deletes the object; it stays while its finalizer or a claim keeps it."""
        found = self._object_at(place)
        if found is not None and found.metadata.deletion_timestamp is None:
            self._change(found, deleting=True)

    def swap(self, _: int) -> None:
        self.places.reverse()

    def take_out(self, place: int) -> None:
        self.places[place] = None

    def put_in(self, place: int) -> None:
        free = [disk for disk in self.disks if all(disk is not other for other in self.places)]
        if self.places[place] is None and free:
            self.places[place] = free[0]

    def clone(self, place: int) -> None:
        """A copy of the disk is put in its place: bytes, record and owner are the same.

        A filesystem's copy has its UUID, and lies on another device.
        """
        disk = self.places[place]
        if disk is None or not disk.is_filesystem:
            return
        self._count += 1
        below = {"deviceSerial": f"copy-{self._count}"}
        entry = replace(disk.entry, identity={**disk.entry.identity, **below})
        copy = Disk(entry, disk.owner, disk.record)
        self.disks.append(copy)
        self.places[place] = copy

    def resize(self, place: int) -> None:
        disk = self.places[place]
        if disk is not None:
            size = SIZE if disk.entry.size_bytes != SIZE else 2 * SIZE
            disk.entry = replace(disk.entry, size_bytes=size)

    # --- the agent ------------------------------------------------------------------------------

    def agent(self, most: int = 99) -> None:
        """One look, and what comes of it; after `most` writes the agent dies."""
        entries = [entry for number in range(2) if (entry := self._entry(number))]
        missing = {volume.metadata.uid: 1e9 for volume in self.objects.values()}
        actions = steps_of(
            entries,
            self.objects.values(),
            classes=[self.facts],
            missing=missing,
            online=False,
        )
        writes = 0
        for action in actions:
            for _ in self._do(action):
                writes += 1
                if writes >= most:
                    return

    def _do(self, action: Action) -> Iterator[None]:
        """The act's writes; each `yield` follows one."""
        match action:
            case Hold() | Keep() | Ask():
                return
            case Publish():
                yield from self._publish(action)
            case Adopt() | KeepRecord() | MarkClaimed():
                yield from self._mark(action)
            case Withdraw() | Reclaim():
                self._change(action.volume, deleting=True)
                yield
            case LetGo():
                self._remove(action.volume)
                yield
            case Clean():
                yield from self._clean(action.volume, action.entry)
            case CleanFirst():
                yield from self._clean(None, action.entry)
            case _:
                raise AssertionError(action)

    def _publish(self, action: Publish) -> Iterator[None]:
        number, disk = self._at(action.entry)
        entry = self._entry(number)
        assert entry is not None
        assert held_by_another(entry) is None
        assert is_offerable(entry.content, self.facts.config)
        self._count += 1
        disk.record = next_offer(entry.recorded, f"generation-{self._count}", None)
        yield
        annotations = {marks.GENERATION_ANNOTATION: disk.record.generation}
        made = volume_of(
            entry, name=action.name, annotations=annotations, mode=self.facts.config.volume_mode
        )
        meta = msgspec.structs.replace(made.metadata, uid=f"uid-{self._count}")
        self.objects[action.name] = msgspec.structs.replace(made, metadata=meta)
        yield

    def _mark(self, action: Adopt | KeepRecord | MarkClaimed) -> Iterator[None]:
        volume = action.volume
        if isinstance(action, Adopt):
            if action.identity is not None:
                note = {marks.IDENTITY_ANNOTATION: to_annotation(action.identity)}
                self._change(volume, annotations=note)
                yield
            return
        if action.entry is not None:
            _, disk = self._at(action.entry)
            record = of_object(generation_of(volume), action.entry.recorded)
            if isinstance(action, KeepRecord):
                self._count += 1
                record = next_offer(action.entry.recorded, f"generation-{self._count}", None)
                disk.record = record
                yield
                note = {marks.GENERATION_ANNOTATION: record.generation}
                self._change(volume, annotations=note)
                yield
                return
            claim = claim_of(volume)
            if isinstance(record, Record) and (
                not record.claim or record.claim in claims_of(volume)
            ):
                disk.record = taken(record, claim)
                yield
        self._change(volume, annotations={marks.CLAIMED_ANNOTATION: claim_of(volume)})
        yield

    def _clean(self, volume: PersistentVolume | None, planned: Entry) -> Iterator[None]:
        number, disk = self._at(planned)
        entry = self._entry(number)
        assert entry is not None
        assert unchanged(planned.identity, entry.identity).verdict == "same"
        if volume is None:
            assert held_by(entry.recorded) is None
        else:
            assert not strange(generation_of(volume), claims_of(volume), entry.recorded)
        if disk.owner and disk.owner not in self.claims.ended:
            raise Lost(f"what {disk.owner} has written was destroyed for {volume}")
        disk.owner = ""
        yield
        record = of_object(generation_of(volume) if volume else "", entry.recorded)
        if isinstance(record, Record):
            disk.record = over(record, "proved", 0)
            yield
        if volume is not None:
            self._remove(volume)
            yield

    # --- what is there ---------------------------------------------------------------------------

    def _entry(self, number: int) -> Entry | None:
        """The place as the agent reads it; of a raw device samples tell nothing."""
        disk = self.places[number]
        if disk is None:
            return None
        host = f"/mnt/disks/place-{number}"
        content = Content("holds", "files") if disk.owner else Content("empty")
        if not disk.is_filesystem:
            content = Content("empty")
        recorded: Recorded = disk.record
        return replace(
            disk.entry,
            name=f"place-{number}",
            host_path=host,
            path=host.replace("/mnt", "/discovery"),
            content=content,
            recorded=recorded,
        )

    def _at(self, entry: Entry) -> tuple[int, Disk]:
        number = int(entry.name.removeprefix("place-"))
        disk = self.places[number]
        assert disk is not None
        return number, disk

    def _object_at(self, place: int) -> PersistentVolume | None:
        path = f"/mnt/disks/place-{place}"
        found = [v for v in self.objects.values() if v.spec.local and v.spec.local.path == path]
        return found[0] if found else None

    def _is_its_own(self, volume: PersistentVolume, disk: Disk) -> bool:
        """Whether pods of the object's claim may write there with no harm that is not ours.

        The kubelet mounts whatever is at the path: what another claim holds they may overwrite,
        and no agent can keep them from it.
        """
        return disk.record is not None and disk.record.claim == claim_of(volume)

    def _remove(self, volume: PersistentVolume) -> None:
        self.objects.pop(volume.metadata.name, None)

    def _change(
        self,
        volume: PersistentVolume,
        *,
        phase: str = "",
        claim_ref: ClaimRef | None = None,
        annotations: dict[str, str] | None = None,
        deleting: bool = False,
    ) -> None:
        live = self.objects[volume.metadata.name]
        meta: dict[str, Any] = {"annotations": {**live.metadata.annotations, **(annotations or {})}}
        if deleting:
            meta["deletion_timestamp"] = "2026-01-01T00:00:00Z"
        changed = msgspec.structs.replace(
            live,
            metadata=msgspec.structs.replace(live.metadata, **meta),
            spec=msgspec.structs.replace(live.spec, claim_ref=claim_ref or live.spec.claim_ref),
            status=PVStatus(phase=phase or live.status.phase),
        )
        self.objects[volume.metadata.name] = changed
