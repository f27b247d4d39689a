"""What the dynamic role knows and may decide: plain frozen data, shared by its four rooms."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from localvolume.backends.capacity import NOBODY, Beside
from localvolume.backends.model import PoolReport, Record
from localvolume.config.pools import PoolConfig
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.periods import NO_TIME, Moment, Witnessed

SourceType = Literal["local", "hostPath"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a StorageClass asks of every volume of its own, read from its parameters.

    `pools` limits the choice to pools of these names, `host_dirs` to pools at these directories of
    the host (local-path's `nodePath`, OpenEBS' `BasePath`); empty: all that serve the class. The
    templates make text from the claim (`dynamic/classes/templates.py`): `directory` the place below
    the pool, "" for the provisioner's default; `mode`, `uid` and `gid` an octal mode and numbers.
    `affinity_keys` are the node labels that the PersistentVolume's affinity names. `source` None:
    `local`, and claims have no choice; else what they get unless they ask otherwise.
    `undo_seconds` None: the pool's. `quota_graces` are OpenEBS' soft and hard grace: the limit is
    the size and so many per cent, None no such limit; None altogether (the usual): the size itself.
    """

    pools: frozenset[str] = frozenset()
    host_dirs: frozenset[str] = frozenset()
    directory: str = ""
    unsafe_directory: bool = False
    """Whether `directory` need not begin with the claim's namespace and name."""
    mode: str = "0777"
    uid: str = "0"
    gid: str = "0"
    affinity_keys: tuple[str, ...] = ("kubernetes.io/hostname",)
    source: SourceType | None = None
    fs_type: str = ""
    enforce: bool | None = None
    """None: as the pool says."""
    overwrite: bool = False
    discard: bool = False
    device_class: str | None = None
    """TopoLVM's: the pool of logical volumes of that name; "": the default one."""
    option_class: str = ""
    """TopoLVM's: by which of the pool's lvcreate option classes volumes are made."""
    undo_seconds: float | None = None
    quota_graces: tuple[float | None, float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFacts:
    """A StorageClass whose provisioner is served here. `problem`: its parameters are not valid."""

    object: StorageClass
    wish: Wish = Wish()
    problem: str = ""

    @property
    def name(self) -> str:
        return self.object.metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A configured pool, the last look at it, and what the others on its filesystem do to its
    room."""

    config: PoolConfig
    report: PoolReport
    beside: Beside = NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a plan is made from.

    `claims` (by `namespace/name`) and `volumes` (by name) carry this node's label; of the volumes
    only the dynamic ones are here. `gone` are claims of which a live look has said that they do not
    exist any more, by UID, and `absent` names of PersistentVolumes that a live look did not find,
    or found to be another node's: nothing is taken away on the word of a cache. `busy` are the
    names at which something is under way. `witnessed` is what this process itself knows of the
    times in which removals can be undone, by the UIDs of PersistentVolumes.
    """

    node: NodeFacts
    provisioners: frozenset[str]
    classes: Mapping[str, ClassFacts]
    pools: Sequence[Pool]
    claims: Mapping[str, PersistentVolumeClaim]
    volumes: Mapping[str, PersistentVolume]
    refusals: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Why this node has no pool for classes, by provisioner and class ("": any other)."""
    foreign_classes: Collection[str] = ()
    """The StorageClasses of provisioners that are not served here."""
    gone: Collection[str] = ()
    absent: Collection[str] = ()
    named: Collection[str] = ()
    """Names of PersistentVolumes that a live look found, a while ago at most, and that may well lie
    here, whether or not they are among `volumes`."""
    promised: Sequence[tuple[str, Record]] = ()
    """What is being made or grown, with the pool's name: its record may not say so yet."""
    busy: Collection[str] = ()
    now: Moment = NO_TIME
    witnessed: Mapping[str, Witnessed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What should happen about one volume, and why. `key` is the PersistentVolume's name."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Make(Action):
    """Make the volume in the pool and publish it. Also ends what a crash left half made."""

    claim: PersistentVolumeClaim
    pool: PoolConfig
    record: Record
    fresh: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Action):
    """The volume is complete: create its PersistentVolume."""

    claim: PersistentVolumeClaim
    pool: PoolConfig
    pool_id: str
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject(Action):
    """Say on the claim why it is not served; judged again when something changes."""

    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack(Action):
    """This node cannot serve the claim: say so, and have another one chosen."""

    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Action):
    """Whether the claim and the PersistentVolume are gone must be asked of the API server."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeAway(Action):
    """No PersistentVolume ever named the volume, or nobody ever wrote to it: it goes at once.

    `spare`: the same claim has its volume in another pool; this one was begun and never offered.
    """

    pool: PoolConfig
    record: Record
    spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember(Action):
    """The PersistentVolume exists, and its record does not say so yet; or not that the volume was
    `given` to another claim."""

    pool: PoolConfig
    record: Record
    volume: PersistentVolume
    given: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secure(Action):
    """A volume that we made lacks our finalizer: without it, deleting the object leaks the
    volume.
    """

    volume: PersistentVolume


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow(Action):
    """The claim asks for more than it has."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    pool: PoolConfig
    record: Record
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TellGrown(Action):
    """The volume has grown, and PersistentVolume or claim do not say so yet."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Action):
    """The claim is gone and the policy is Delete: delete the object; our finalizer holds it.

    An adopted volume is given our finalizer first.
    """

    volume: PersistentVolume


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkReleased(Action):
    """The claim is gone: write down since when, for the time in which that can be undone.

    `period` is that time, in seconds. `again` True: it was written down, and a claim has the volume
    again: forget it.
    """

    volume: PersistentVolume
    again: bool = False
    period: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire(Action):
    """The object is being deleted and nobody holds it: volume to the trash, then let the object go.

    `record` None: an adopted volume that has none yet; `directory` is then where it lies.
    `keep` True: the reclaim policy keeps the data: the object goes and the volume stays.
    """

    volume: PersistentVolume
    pool: PoolConfig | None
    record: Record | None
    directory: str = ""
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge(Action):
    """Its PersistentVolume is gone: delete what is in the trash."""

    pool: PoolConfig
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Action):
    """Nothing can or may be done now; say so on `volume` (or the claim), and look again.

    `event` is the reason of the Event, "" for none. `again_seconds` None: when something changes.
    """

    volume: PersistentVolume | None = None
    claim: PersistentVolumeClaim | None = None
    event: str = ""
    again_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(Action):
    """All is as it should be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions, and what room the pools of each class have once they are done (bytes).

    Pools on one filesystem have one room. `largest` is the largest volume that fits into any of
    these pools, in bytes.
    `unfit` says of each class why some of its pools cannot serve it, "" where all can.
    """

    actions: Sequence[Action]
    capacity: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
