"""What a pool, a volume in it and a backend are: the data that they share, and the protocol.

    <pool>/                        a directory that only root may write to
      .localvolume/                0700, ours alone
        pool.json                  the pool's id: written once, compared ever after
        records/<name>.json        one for each volume, written beside and renamed into place
        making/<name>              a volume under construction
        images/<name>.img          the volumes of the image backend
        trash/<name>.<token>       removed volumes, until they are purged
      <directory>                  the volumes of the directory and btrfs backends

A record is written before and after each step that it describes, so after a crash between any two
steps the next start completes the step or takes it back. `<name>` is the PersistentVolume's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from localvolume.volumes.attributes import NONE, Attributes

BackendName = Literal["directory", "btrfs", "image", "lvm"]

_GIVEN: Final = 24
"""How many claims are remembered in addition to the one it was made for; a tag of LVM's has room
for that many."""

State = Literal[
    "making",  # not complete: nobody was ever told of it, so it may be taken away at any time
    "made",  # complete, and still known to nobody
    "offered",  # a PersistentVolume was asked for, or a call answered: it may hold a tenant's data
    "removed",  # in the trash: nobody may have it any more, and nothing brings it back
]

ALLOW_FULL: Final = "let its class allow that all data is copied: parameter fullCopies: allowed"
NEED_FOR_GROUPS: Final = "groups of snapshots need a pool of images on xfs, or a thin pool of LVM"
NO_GROUPS: Final = f"its backend cuts no volumes together: {NEED_FOR_GROUPS}"

WARN_PERCENT: Final = 80
"""The fill level of a thin pool's data or metadata, or a snapshot's reserve, that we warn at."""

FULL_ENDS: Final = "once that is full the snapshot is lost, and its volume goes on"

OURS: Final = ".localvolume"
"""The one name in a pool that no volume may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One volume as it is written down in its pool.

    `directory` is where it lies below the pool ("pvc-1", "ns/claim"), "" for an image. `size_bytes`
    is what was asked for and is enforced unless `enforced` is False; `soft_bytes` and `hard_bytes`
    are quota limits that a class sets apart from the size. `inode` is that of the directory or
    image file, or a subvolume's id: nothing else at its path is ever taken for the volume.
    `project` is the quota project's id, 0 for none. `claim` is `namespace/name` and `claim_uid`
    its UID, "" for a volume that another provisioner made; `given` are the UIDs of the claims that
    it was given to later, the last ones, in order (dynamic/plan/given.py). `volume_uid` is the
    PersistentVolume's UID, once known.
    """

    name: str
    backend: BackendName
    state: State
    directory: str
    size_bytes: int
    class_name: str = ""
    claim: str = ""
    claim_uid: str = ""
    given: tuple[str, ...] = ()
    generation: int = 0
    """How often a volume of our CSI driver was given to a further claim, or kept for one. An object
    that says less is from before that (dynamic/plan/given.py)."""
    volume_uid: str = ""
    volume_mode: Literal["Filesystem", "Block"] = "Filesystem"
    fs_type: str = ""
    mode: int = 0o777
    uid: int = 0
    gid: int = 0
    enforced: bool = True
    soft_bytes: int | None = None
    hard_bytes: int | None = None
    sparse: bool = True
    overwrite: bool = False
    """Whether its content is overwritten before it is deleted, as its class demands."""
    discard: bool = False
    """Whether its blocks are discarded before it is deleted (lvm only)."""
    option_class: str = ""
    """Which of its pool's lvcreate option classes it is made with (lvm only)."""
    project: int = 0
    inode: int = 0
    adopted: bool = False
    """Made by an older provisioner: only its location is known."""
    driver: str = ""
    """The CSI driver that its pods use it through; "" for a volume that kubelet itself mounts."""
    pod: str = ""
    """`namespace/name` of the pod whose own volume it is, made and removed with that; "" for all
    others. No claim has it."""
    pod_uid: str = ""
    """That pod's UID."""
    request: str = ""
    """What a CSI call asked for when it made the volume; "" for one that was made for a claim. Only
    a call removes such a volume."""
    snapshot_of: str = ""
    """The volume that it is a snapshot of. A snapshot is a volume that nobody uses or writes to."""
    made_from: str = ""
    """The snapshot or volume whose content it was made with."""
    full_copies: bool = False
    """Whether its class lets it be made by copying all of its origin, if nothing can be shared."""
    cut_at: int = 0
    """When a snapshot was cut, in nanoseconds since 1970; 0 until it is."""
    holds_bytes: int = 0
    """The most that a snapshot takes of its pool, whatever becomes of its volume."""
    reserve_bytes: int = 0
    """What was asked for as the reserve of a snapshot that shares its volume's blocks for good: it
    takes in what is written over there, and the snapshot is lost once it is full. 0: it has none.
    The data of such a volume stays until its snapshots go."""
    group: str = ""
    """The group of snapshots, cut at one moment, that it is one of; "" for none."""
    group_size: int = 0
    """How many snapshots that group has: while fewer are complete, it is not there."""
    trash: str = ""
    """Its name in the trash, once removed."""
    attributes: Attributes = NONE
    """What its VolumeAttributesClass asks for."""


def as_offered(
    known: Record, volume_uid: str, given: str, generation: int = 0, driver: str = ""
) -> Record:
    """The record once a PersistentVolume is asked for; with its UID, a further claim with the count
    of that, or another CSI driver."""
    claims = known.given
    if given and given != (known.claim_uid, *claims)[-1]:
        claims = (*claims, given)[-_GIVEN:]
    return replace(
        known,
        state="offered",
        volume_uid=volume_uid or known.volume_uid,
        given=claims,
        generation=max(known.generation, generation),
        driver=driver or known.driver,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a volume holds now, from the quota, qgroup or filesystem; None if unknown.

    `available_bytes` is what can still be written in it. Inodes are None if they are not limited or
    counted. `begun_bytes` is what a growth that was begun, and is not on record, has already taken
    of the pool; 0 if unknown.
    """

    used_bytes: int | None = None
    available_bytes: int | None = None
    used_inodes: int | None = None
    available_inodes: int | None = None
    begun_bytes: int = 0
    problem: str = ""
    """Why its limit does not hold, in words; "" if it does."""
    unbounded: bool = False
    """Nobody can tell what it holds or may still take, because of the `problem`."""
    taken_bytes: int | None = None
    """What it takes of its pool now; None: `used_bytes`."""
    outstanding_bytes: int | None = None
    """What it may still take of its pool; None: the rest of what was promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a backend can do in this pool, on this kernel; `why_not`: why it cannot enforce."""

    enforce: bool
    why_not: str = ""
    block: bool = False
    filesystem: bool = True
    overwrite: bool = True
    """Whether new data is written over the old, as a class may demand at the end."""
    no_copies: str = "its backend makes no snapshots or clones"
    """Why no snapshots and clones can be made, "" if they can: at once, without copying data."""
    full_copies: bool = False
    """Whether they can be made by copying all data, where their class allows that."""
    reserves: bool = False
    """Whether a snapshot can share its volume's blocks for as long as its reserve has room."""
    no_snapshots: str = ""
    """Why there are clones and no snapshots, "" if there are both."""
    no_groups: str = NO_GROUPS
    """Why no two volumes can be cut at one moment, "" if they can."""


def able_with(abilities: Abilities, usage: Mapping[str, Usage]) -> Abilities:
    """What a pool can do while its volumes hold that: with one that is unbounded, it cannot keep
    the sizes of others, as that one may take their room."""
    for name, held in usage.items():
        if held.unbounded and abilities.enforce:
            return replace(abilities, enforce=False, why_not=f"{name}: {held.problem}")
    return abilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """How full the reserve of a snapshot is; `lost`: it was full, and the snapshot has nothing."""

    percent: float = 0.0
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """One look at a pool. If `problem` is set, nothing else counts and nothing may be done in it.

    `total_bytes` leaves out what the filesystem keeps for root. `orphans` are names directly in the
    pool (or in its trash or images, written `.localvolume/...`) that no record explains.
    """

    name: str
    id: str = ""
    problem: str = ""
    total_bytes: int = 0
    available_bytes: int = 0
    used_bytes: int | None = None
    """What of `total_bytes` has been written or allocated, by whomever; None if nobody can tell."""
    abilities: Abilities = Abilities(enforce=False)
    records: Mapping[str, Record] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    orphans: Sequence[str] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why records cannot be read, by name: their volumes are left alone."""
    astray: Sequence[str] = ()
    """Volumes whose path leads to something else: they are to be attached again."""
    largest_bytes: Mapping[str, int] = field(default_factory=dict)
    """The largest volume that fits, by option class ("" for none), if that can be less than what is
    available: LVM cannot make a striped or contiguous volume of arbitrary extents."""
    unit_bytes: int = 1
    """Volumes there have a multiple of this many bytes: what is asked for is rounded up."""
    foreign_bytes: int = 0
    """What is promised there beyond our records (foreign thin volumes of a thin pool)."""
    data_percent: float | None = None
    metadata_percent: float | None = None
    """How full a thin pool's data and metadata are; None for all other pools."""
    unwell: str = ""
    """How its filesystem has failed: nothing is made or grown there, and removing goes on."""
    thin_health: str = ""
    """What LVM says is wrong with a thin pool ("out_of_data", ...); "" if nothing is."""
    warnings: Sequence[str] = ()
    """What people must look at before it becomes a problem, in sentences."""
    taken: bool = False
    """The `problem` is that another agent of this node works in it: wait until that ends."""
    filesystem: str = ""
    """The filesystem that its volumes take space from, as the mount table numbers it; "" for a
    volume group, or if unknown."""
    dormant: Mapping[str, Record] = field(default_factory=dict)
    """Its records, if there is a `problem`. Nothing is done with them, but what they stand for is
    subtracted from the capacity of the other pools on its filesystem."""

    def no_copies_now(self, *, full: bool, reserve: bool = False) -> str:
        """Why no snapshot or clone can be made there now, "" if one can.

        `full`: whether its class lets all of its data be copied; `reserve`: whether it is a
        snapshot with a reserve.
        """
        if wrong := self.problem or self.unwell:
            return wrong
        why = self.abilities.no_copies
        if reserve and self.abilities.reserves:
            return ""
        if not why or not self.abilities.full_copies:
            return why
        return "" if full else f"{why}. Or {ALLOW_FULL}"

    uncounted: str = ""
    """Why nobody can tell what it has promised there; "" if that is known."""
    fills: Mapping[str, Fill] = field(default_factory=dict)
    """How full the reserves of snapshots are, by the snapshot's name; those that are not active are
    left out, as nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A volume that is ready to be mounted, as this process reaches it.

    `fd` is its open directory, or for a volume that is a block device the open device (O_PATH
    both). `device` is the device's path, "" for a directory. `fs_type` is the filesystem on the
    device, "" for a directory and for raw blocks.
    """

    record: Record
    fd: int
    device: str = ""
    fs_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """What is known of a snapshot up to `until`: the `ranges` (first byte, bytes), in order.

    `total_bytes` is the size of the device that a volume made of the snapshot has.
    """

    ranges: Sequence[tuple[int, int]]
    until: int
    total_bytes: int


class BackendFailed(Exception):
    """It could not be done now. Nothing is lost, trying again may help, and the text says why."""


class GoesOn(BackendFailed):
    """A part of it is done. Call again at once to do the rest."""


class Busy(BackendFailed):
    """It is in use: it can be done once it is not."""


class NoSpace(BackendFailed):
    """The pool has too little space for it: another pool or node may have enough."""


class Impossible(BackendFailed):
    """It can never be done like this (this backend, this filesystem, this kernel): say so, once."""


class NotThisVolume(BackendFailed):
    """What lies there is not what the record describes: it is left alone."""


class Lost(NotThisVolume):
    """The volume is missing: it is neither in its place nor in the trash."""


Progress = Callable[[int, int], None]
"""Told of files and bytes removed so far."""


class Backend(Protocol):
    """How volumes of one kind are made in one pool. Every method blocks and is run in a worker.

    `pool` is a descriptor of the pool's directory, `path` is where this process sees it (for what
    has no descriptor-relative call; its parents belong to root). After a crash, each method may be
    called again with the same record, and then completes what was begun. All raise BackendFailed
    (or a subclass) for what people must know, and OSError.
    """

    name: BackendName

    def identity(self, fd: int) -> int:
        """What `Record.inode` holds for the open directory or file: `st_ino`, or a subvolume's id.

        -1, which no record has, for what cannot be a volume of this backend. Raises OSError.
        """
        ...

    def abilities(self, pool: int, path: str) -> Abilities:
        """What can be done here."""
        ...

    def make(self, pool: int, path: str, record: Record) -> Record:
        """Make what the record describes (state `making`) and return it completed (`inode`, ...).

        The directory backends make `.localvolume/making/<name>`, limited, owned and empty; the pool
        moves it into place. The image backend makes `.localvolume/images/<name>.img`.
        """
        ...

    def copy(self, pool: int, path: str, record: Record, origin: Record) -> Record:
        """As `make`, with the content that `origin` has at one moment of the call.

        `origin` is a complete volume of the pool, in use or not, or a snapshot. A record with
        `snapshot_of` becomes a snapshot: nobody can write to it, and the returned record says when
        it was cut and how much it holds. Any other becomes a volume with an identity of its own
        (a filesystem's UUID), of `record.size_bytes`, which are no fewer than the origin's; the
        owner and mode of its root stay. A Block volume with a filesystem's content has its bytes as
        they are, and the returned record its size (``modes``). Where data cannot be shared it is
        copied, if the record allows that. Raises as `make`, and Impossible where `abilities` say
        so.
        """
        ...

    def blocks(
        self, pool: int, path: str, record: Record, base: Record | None, start: int
    ) -> Blocks:
        """What a snapshot holds from that byte on, or how it differs from another, the `base`.

        Everything that holds or differs is named, and maybe more. Raises Impossible where volumes
        have no blocks, or nobody can tell.
        """
        ...

    def cut_together(
        self, pool: int, path: str, members: Sequence[tuple[Record, Record]]
    ) -> Sequence[Record]:
        """Cut a snapshot of each of several volumes, all at one moment; returns their records.

        Each pair is the record of a snapshot and its origin, as of `copy`. When it raises, it has
        left none of them. Raises as `copy`, Busy if an origin cannot be kept still, and Impossible
        where `abilities` say so.
        """
        ...

    def unmake(self, pool: int, path: str, record: Record) -> None:
        """Take away all that `make` may have left, complete or not, if anything."""
        ...

    def attach(self, pool: int, path: str, record: Record) -> None:
        """Make the volume usable after a reboot, if it is not so by itself; idempotent.

        Of a snapshot that was made: see to it that nobody can write to it, and no more.
        """
        ...

    def ready(self, pool: int, path: str, record: Record) -> AbstractContextManager[Source]:
        """A complete volume as it can be mounted, attached if it was not; gone with the context."""
        ...

    def astray(self, pool: int, path: str, records: Sequence[Record]) -> list[str]:
        """The names of those whose path leads to something else. Changes nothing."""
        ...

    def host_path(self, host_dir: str, pool_id: str, record: Record) -> str:
        """The path that the PersistentVolume names."""
        ...

    def grow(self, pool: int, path: str, record: Record, size_bytes: int) -> Record:
        """Let the volume have that many bytes, and return the record that says so."""
        ...

    def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
        """What each of them holds now, by name; leaves out those that cannot be measured."""
        ...

    def retire(self, pool: int, path: str, record: Record) -> None:
        """Move the volume into the trash as `record.trash`, in one step, and detach it.

        Raises NotThisVolume if something else lies in its place, BackendFailed if it is in use.
        """
        ...

    def purge(
        self,
        pool: int,
        path: str,
        record: Record,
        *,
        stop: threading.Event,
        files_per_second: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Delete what lies in the trash as `record.trash`, if anything does, and free its quota.

        Ends early, with BackendFailed, once `stop` is set.
        """
        ...

    def is_untouched(self, pool: int, path: str, record: Record) -> bool:
        """Whether it is certain that nobody ever wrote to the volume; False if unknown."""
        ...


def lost(snapshot: Record) -> str:
    """What is said of a snapshot whose reserve was full."""
    return (
        f"the content of snapshot {snapshot.name} is lost: more of {snapshot.snapshot_of} was"
        f" written over than its reserve of {snapshot.holds_bytes >> 20} MiB could take in"
    )


def kept_for(name: str, records: Iterable[Record]) -> list[str]:
    """The snapshots that need the blocks of that volume, whatever their state."""
    return sorted(one.name for one in records if one.reserve_bytes and one.snapshot_of == name)


def has_content_of(record: Record) -> str:
    """The name of the volume or snapshot whose content it is made with, "" for an empty one."""
    return record.snapshot_of or record.made_from


def check_hands(now: Record, planned: Record) -> None:
    """Raises BackendFailed if an origin was given to another claim since a copy was planned."""
    if (now.generation, now.given) != (planned.generation, planned.given):
        raise BackendFailed(f"{now.name} was given to another claim meanwhile")


def outgrew(origin: Record, copy: Record) -> bool:
    """Whether its origin no longer is as the record of a copy that was begun needs it."""
    if copy.snapshot_of:
        return origin.size_bytes != copy.size_bytes
    return origin.size_bytes > copy.size_bytes


def filesystem_of(record: Record) -> str:
    """The filesystem that it has on a device of its own; "" for a directory or raw blocks."""
    if record.backend not in ("image", "lvm") or record.volume_mode == "Block":
        return ""
    return record.fs_type or "ext4"


def grown_to(record: Record, size_bytes: int) -> Record:
    """The record with that size, and with its own limits in proportion, rounded up."""

    def scaled(limit: int | None) -> int | None:
        if limit is None or not record.size_bytes:
            return limit
        return -(-limit * size_bytes // record.size_bytes)

    return replace(
        record,
        size_bytes=size_bytes,
        soft_bytes=scaled(record.soft_bytes),
        hard_bytes=scaled(record.hard_bytes),
    )
