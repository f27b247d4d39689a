"""What the health role knows and may decide: plain frozen data, shared by its rooms."""

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
"""What can be wrong, the worst first: of several, the first is said."""


@dataclass(frozen=True, slots=True)
class Image:
    """The file that must be behind a volume's loop device: the directory of its pool's images, for
    the filesystem, and its inode there, as it is on record."""

    directory: str
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a volume is to be found, as this process sees it.

    `kind`: something must be mounted at the path ("mount"), or it leads to a block device
    ("device"), or it lies in a filesystem ("directory"); "any" is a mount or a device, for objects
    that do not say. `below` is the directory of the pool whose filesystem it stands on, "" for
    none. `written`: nobody could have meant it to be read only. `may_be_absent`: that nothing is
    there means nothing (yet). `takes_room`: what is written to it takes room in `below`. `pool` is
    the name of the pool it is of. `image` is what the device must stand on, None for any device.
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
    """What is left in the filesystem of a pool; `inodes` None where they are made as needed."""

    total_bytes: int
    available_bytes: int
    inodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thin:
    """How full the thin pool of a volume is, in per cent (None: unknown), and what LVM says of it
    ("" for nothing, "out_of_data", ...)."""

    name: str
    data_percent: float | None = None
    metadata_percent: float | None = None
    health: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was found of one volume, in half sentences; "" where nothing is wrong.

    With `unknown` nobody can tell: nothing is concluded, neither way.
    """

    gone: str = ""
    stopped: str = ""
    errors: str = ""
    space: Space | None = None
    thin: Thin | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a volume; `text` is for people and holds still while nothing changes."""

    reason: Reason
    text: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long what was seen must last before it is said, in seconds.

    `gone`: a volume that is not there may be about to be attached. `over`: what is well again may
    not stay so. `again`: between two writes to one object. `rest`: between two looks; and without
    anything that wakes the role, a look comes each `look`, more or less. What could not be written
    is tried again after `retry`.
    """

    gone: float = 30.0
    over: float = 30.0
    again: float = 60.0
    rest: float = 2.0
    look: float = 60.0
    retry: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered of one volume between two looks; times as of `Facts.now`.

    `reason` is what was seen last ("" for nothing) and `since` when first. Forgetting all of it,
    with the process, only costs time: what was said stands on the object.
    """

    reason: str = ""
    since: float = 0.0
    written: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a plan is made from. All maps are by UID; `now` is a monotonic clock's."""

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
    """Write the trouble on the object, and say it where `aloud`: in Events.

    `to_claim_only`: another Event tells it of the PersistentVolume already.
    """

    trouble: Trouble
    aloud: bool = True
    to_claim_only: bool = False


@dataclass(frozen=True, slots=True)
class Over(Action):
    """Take it off the object, and say that it is over."""


@dataclass(frozen=True, slots=True)
class Wait(Action):
    """Look again in so many seconds, if nothing happens before."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """Nothing is to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The actions; what to remember; what is wrong, by the volume's UID, for the metric."""

    actions: list[Action]
    memory: dict[str, Memory]
    unhealthy: dict[str, str]
    unknown: dict[str, str]
