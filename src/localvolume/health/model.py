"""What the health role knows and may decide: plain frozen data, shared by its modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from localvolume.kube.objects import PersistentVolume

Reason = Literal["DeviceGone", "ReadOnly", "IOErrors", "PoolFull", "PoolFilling"]

REASONS: Final[tuple[Reason, ...]] = (
    "DeviceGone",
    "ReadOnly",
    "IOErrors",
    "PoolFull",
    "PoolFilling",
)
"""What can be wrong, worst first: if several apply, the first is reported."""


@dataclass(frozen=True, slots=True)
class Image:
    """The file that must be behind a volume's loop device: the directory of its pool's images,
    which gives the filesystem, and its inode there, as recorded."""

    directory: str
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a volume is to be found, as this process sees it.

    `kind`: something must be mounted at the path ("mount"), or it leads to a block device
    ("device"), or it lies in a filesystem ("directory"); "any" is a mount or a device, for objects
    that do not say. `below` is the directory of the pool whose filesystem it is on, "" for none.
    `written`: it is never read-only on purpose. `may_be_absent`: nothing is wrong if nothing is
    there (yet). `takes_space`: what is written to it takes space in `below`. `pool` is the name of
    its pool. `image` is the file that must be behind the device, None for any device.
    """

    path: str
    kind: Literal["mount", "device", "directory", "any"]
    below: str = ""
    written: bool = False
    may_be_absent: bool = False
    takes_space: bool = False
    pool: str = ""
    image: Image | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is left in the filesystem of a pool; `inodes` is None if they are made as needed."""

    total_bytes: int
    available_bytes: int
    inodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """How full the filesystem of a prepared volume is, as df(1) counts: `available` is what its
    owner can still write. The inodes are None if they are made as needed."""

    used_bytes: int
    available_bytes: int
    used_inodes: int | None = None
    available_inodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thin:
    """How full the thin pool of a volume is, in per cent (None: unknown), and the health that LVM
    reports ("" for nothing, "out_of_data", ...)."""

    name: str
    data_percent: float | None = None
    metadata_percent: float | None = None
    health: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was found of one volume, in half sentences; "" if nothing is wrong.

    If `unknown` is set, nothing is concluded either way. `filled` is None if it was not looked at:
    the volume is in a pool, is a raw device, or is not mounted where this process sees it.
    """

    gone: str = ""
    stopped: str = ""
    errors: str = ""
    space: Space | None = None
    filled: Filled | None = None
    thin: Thin | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a volume; `text` is for people, and changes only if something changes."""

    reason: Reason
    text: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the role waits, in seconds.

    `gone`: before it reports a missing volume, which may be about to be attached. `over`: before it
    reports a recovery, which may not last. `again`: between two writes to one object. `rest`:
    between two looks, at least. `look`: until the next look if nothing wakes the role, more or
    less. `retry`: before it repeats a write that failed.
    """

    gone: float = 30.0
    over: float = 30.0
    again: float = 60.0
    rest: float = 2.0
    look: float = 60.0
    retry: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of one volume between two looks; times are on the clock of `Facts.now`.

    `reason` is what was seen last ("" for nothing), `since` when that was first seen, `written` the
    last write. A new process loses only time without it: what was reported is on the object.
    """

    reason: str = ""
    since: float = 0.0
    written: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a plan is made from. All maps are by UID; `now` is from a monotonic clock."""

    volumes: Mapping[str, PersistentVolume]
    locations: Mapping[str, Location]
    seen: Mapping[str, Seen]
    memory: Mapping[str, Memory] = field(default_factory=dict)
    now: float = 0.0
    patience: Patience = Patience()


@dataclass(frozen=True, slots=True)
class Action:
    """What should happen about one volume, and why."""

    volume: PersistentVolume
    reason: str


@dataclass(frozen=True, slots=True)
class Say(Action):
    """Write the trouble on the object and, if `aloud`, report it in Events.

    `to_claim_only`: another Event has reported it on the PersistentVolume already.
    """

    trouble: Trouble
    aloud: bool = True
    to_claim_only: bool = False


@dataclass(frozen=True, slots=True)
class Over(Action):
    """Remove the trouble from the object, and report that it is over."""


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Look again after `seconds`, if nothing happens before."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """Write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The actions; what to remember; what is wrong or unknown, by the volume's UID, for metrics."""

    actions: list[Action]
    memory: dict[str, Memory]
    unhealthy: dict[str, str]
    unknown: dict[str, str]
