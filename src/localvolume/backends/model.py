"""What a pool, a volume in it and a backend are: the data all of them speak, and the protocol.

    <pool>/                        a directory that only root may write to
      .localvolume/                0700, ours alone
        pool.json                  the pool's id: written once, compared ever after
        records/<name>.json        one for each volume, written beside and renamed into place
        making/<name>              a volume under construction
        images/<name>.img          the volumes of the image backend
        trash/<name>.<token>       removed volumes, until they are purged
      <directory>                  the volumes of the directory and btrfs backends

A record is written before what it tells of is done and again after it, so a crash between any two
steps leaves a record that the next start ends or takes back. `<name>` is the PersistentVolume's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

BackendName = Literal["directory", "btrfs", "image", "lvm"]

_GIVEN: Final = 24
"""How many claims are remembered, beside the one it was made for; a tag of LVM's has room for so
many."""

State = Literal[
    "making",  # not complete: nobody was ever told of it, so it may be taken away at any time
    "made",  # complete, and still unknown to everybody
    "offered",  # a PersistentVolume was asked for that names it: it may hold a tenant's data
    "removed",  # in the trash: nobody may have it any more, and nothing brings it back
]

OURS: Final = ".localvolume"
"""The one name in a pool that no volume may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One volume as it is written down in its pool.

    `directory` is where it lies below the pool ("pvc-1", "ns/claim"), "" for an image. `size_bytes`
    is what was asked for and is enforced unless `enforced` is False; `soft_bytes` and `hard_bytes`
    are quota limits that a class sets apart from the size. `inode` is that of the directory
    or image file, or a subvolume's id, so that nothing else at its place is ever taken for it.
    `project` is the quota project's id, 0 for none. `claim` is `namespace/name` and `claim_uid`
    its UID, "" for a volume that another provisioner made; `given` are the UIDs of claims that it
    was given to after that one, the last ones in their order (dynamic/plan/volumes.py).
    `volume_uid` is the PersistentVolume's, once known.
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
    """By which of its pool's lvcreate option classes it is to be made (lvm only)."""
    project: int = 0
    inode: int = 0
    adopted: bool = False
    """Made by an older provisioner: nothing but its place is known of it."""
    trash: str = ""
    """Its name in the trash, once removed."""


def as_offered(known: Record, volume_uid: str, given: str) -> Record:
    """The record once a PersistentVolume is asked for, or has that UID, or another claim."""
    claims = (*known.given, given)[-_GIVEN:] if given else known.given
    uid = volume_uid or known.volume_uid
    return replace(known, state="offered", volume_uid=uid, given=claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a volume holds now, from the quota, qgroup or filesystem; None where nobody can tell.

    `available_bytes` is what can still be written in it. Bytes; inodes are None where they are not
    limited or counted. `begun_bytes` is what a growth that was begun, and is not on record, has
    taken of the pool already; 0 where nobody can tell.
    """

    used_bytes: int | None = None
    available_bytes: int | None = None
    used_inodes: int | None = None
    available_inodes: int | None = None
    begun_bytes: int = 0
    problem: str = ""
    """What keeps its limit from holding, in words, "" where nothing does."""
    taken_bytes: int | None = None
    """What it takes of its pool's room now; None: `used_bytes`."""
    outstanding_bytes: int | None = None
    """What it may still take of that; None: the rest of what was promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a backend can do in this very pool, on this very kernel; `why_not` says why not
    enforce.
    """

    enforce: bool
    why_not: str = ""
    block: bool = False
    filesystem: bool = True
    overwrite: bool = True
    """Whether what is written anew goes over the old, as a class may demand at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """One look at a pool. With `problem` nothing else counts, and nothing may be done in it.

    `total_bytes` leave out what the filesystem keeps for root. `orphans` are names directly in the
    pool (or in its trash or images, written `.localvolume/...`) that no record explains.
    """

    name: str
    id: str = ""
    problem: str = ""
    total_bytes: int = 0
    available_bytes: int = 0
    abilities: Abilities = Abilities(enforce=False)
    records: Mapping[str, Record] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    orphans: Sequence[str] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Records that cannot be read, by name, and why: their volumes are left alone."""
    astray: Sequence[str] = ()
    """Volumes whose path leads to what is not theirs: they are to be attached anew."""
    largest_bytes: Mapping[str, int] = field(default_factory=dict)
    """The largest volume that fits, by option class ("" for none), where that can be less than what
    is available: LVM makes no striped or contiguous volume of just any extents."""
    unit_bytes: int = 1
    """Volumes there have a multiple of so many bytes: what is asked for is rounded up."""
    foreign_bytes: int = 0
    """What is promised there to others than our records (foreign thin volumes of a thin pool)."""
    data_percent: float | None = None
    metadata_percent: float | None = None
    """How full a thin pool's data and metadata are, None for all other pools."""
    unwell: str = ""
    """What its filesystem has failed of: nothing is made or grown there, and removing goes on."""
    thin_health: str = ""
    """What LVM says is wrong with a thin pool ("out_of_data", ...), "" for nothing."""
    warnings: Sequence[str] = ()
    """What people must look at before it becomes a problem, in sentences."""
    taken: bool = False
    """The `problem` is that another agent of this node works in it: wait until that has ended."""
    filesystem: str = ""
    """What its volumes take their room from, as the mount table numbers it; "" where that is a
    volume group, or where nobody can tell."""
    dormant: Mapping[str, Record] = field(default_factory=dict)
    """Beside a `problem`: its records all the same. Nothing is done with them, but what they stand
    for is missing from the room of the other pools on its filesystem."""
    uncounted: str = ""
    """Why nobody can tell what it has promised there, "" where that is known."""


class BackendFailed(Exception):
    """It could not be done now, nothing is lost, and trying again may help; the text says why."""


class GoesOn(BackendFailed):
    """A part of it is done, and what is left is done when it is called again: at once."""


class Busy(BackendFailed):
    """Somebody uses it: it can be done once they have let go."""


class NoSpace(BackendFailed):
    """The pool has not enough room for it: another pool or node may have."""


class Impossible(BackendFailed):
    """It can never be done like this (this backend, this filesystem, this kernel): say so, once."""


class NotThisVolume(BackendFailed):
    """What lies there is not what the record tells of: it is left alone."""


class Lost(NotThisVolume):
    """Nothing lies where the volume should, neither in its place nor in the trash."""


Progress = Callable[[int, int], None]
"""Told of files and bytes removed so far."""


class Backend(Protocol):
    """How volumes of one kind are made in one pool. Every method blocks and is run in a worker.

    `pool` is a descriptor of the pool's directory, `path` where this process sees it (for what has
    no descriptor-relative call; its parents belong to root). Every method may be called again after
    a crash in its midst with the same record, and then ends what was begun. All raise BackendFailed
    (or a subclass) for what people must know, and OSError.
    """

    name: BackendName

    def identity(self, fd: int) -> int:
        """What `Record.inode` holds of the open directory or file: `st_ino`, or a subvolume's id.

        -1, which no record has, for what cannot be a volume of this backend. Raises OSError.
        """
        ...

    def abilities(self, pool: int, path: str) -> Abilities:
        """What can be done here."""
        ...

    def make(self, pool: int, path: str, record: Record) -> Record:
        """Make what the record tells of (state `making`) and return it completed (`inode`, ...).

        The directory backends make `.localvolume/making/<name>`, limited, owned and empty; it is
        put into place by the pool. The image backend makes `.localvolume/images/<name>.img`.
        """
        ...

    def unmake(self, pool: int, path: str, record: Record) -> None:
        """Take away all that `make` may have left, complete or not; nothing there is fine."""
        ...

    def attach(self, pool: int, path: str, record: Record) -> None:
        """Make the volume usable after a reboot, where that is not so by itself; idempotent."""
        ...

    def astray(self, pool: int, path: str, records: Sequence[Record]) -> list[str]:
        """The names of those whose path leads to what is not theirs. Changes nothing."""
        ...

    def host_path(self, host_dir: str, pool_id: str, record: Record) -> str:
        """The path that the PersistentVolume names."""
        ...

    def grow(self, pool: int, path: str, record: Record, size_bytes: int) -> Record:
        """Let the volume have that many bytes, and return the record that says so."""
        ...

    def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
        """What each of them holds now, by name; those that cannot be measured are left out."""
        ...

    def retire(self, pool: int, path: str, record: Record) -> None:
        """Move the volume into the trash as `record.trash`, in one step, and detach it.

        Raises NotThisVolume where something else lies in its place, BackendFailed where it is in
        use.
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
        """Delete what lies in the trash as `record.trash`, and free its quota. Nothing there is
        fine.

        Ends early, with BackendFailed, once `stop` is set.
        """
        ...

    def is_untouched(self, pool: int, path: str, record: Record) -> bool:
        """Whether it is certain that nobody ever wrote to the volume; False where nobody can
        tell.
        """
        ...


def grown_to(record: Record, size_bytes: int) -> Record:
    """The record with that size, its own limits in proportion, rounded up."""

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
