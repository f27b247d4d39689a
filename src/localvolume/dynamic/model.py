"""What the dynamic role knows and may decide: plain frozen data that its modules share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from localvolume.backends.capacity import NOBODY, Beside
from localvolume.backends.model import Fill, PoolReport, Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.calls import Refused, Wanted, WantedInline
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.dynamic.plan.fullness import PoolSize
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from localvolume.volumes.attributes import NONE, Attributes
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.periods import NO_TIME, Moment, Witnessed

SourceType = Literal["local", "hostPath"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a StorageClass asks of each of its volumes, read from its parameters.

    `pools` limits the choice to pools of these names, `host_dirs` to pools at these directories of
    the host (local-path's `nodePath`, OpenEBS' `BasePath`); empty: all that serve the class. Four
    fields are templates, filled in from the claim (`dynamic/classes/templates.py`): `directory` is
    the path below the pool ("": the provisioner's default), `mode` is octal, `uid` and `gid` are
    numbers. `affinity_keys` are the node labels that the PersistentVolume's affinity names.
    `source` is the default if claims may choose; None: always `local`. `undo_seconds` None: the
    pool's. `quota_graces` are OpenEBS' soft and hard grace, in per cent on top of the size; None
    for one: no such limit; None for both together (the usual case): the limit is the size.
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
    """TopoLVM's: the pool's lvcreate option class that volumes are made with."""
    undo_seconds: float | None = None
    full_copies: bool = False
    """Whether volumes with the content of others may be made by copying all of it."""
    limited: bool = False
    """Whether a VolumeAttributesClass limits reading and writing: that takes a device."""
    quota_graces: tuple[float | None, float | None] | None = None
    inline: bool = False
    """Whether a pod's spec asks for it, and no class: all of `pools` then serve it."""


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
class Call:
    """What a CSI call asks for, until it is answered. `key` is the volume's name."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCall(Call):
    """Make a volume. `class_facts` are of a class with the call's parameters, and no name.

    `request` is what the call asks for in one line: two calls with the same are the same.
    """

    wanted: Wanted
    class_facts: ClassFacts
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotCall(Call):
    """Cut a snapshot of the volume `source`, if need be with a reserve, or by copying all data
    (`full_copies`). A claim of the `namespace` must have the volume; "" asks for none."""

    source: str
    full_copies: bool = False
    reserve: Reserve | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCall(Call):
    """Remove a volume that a call made, or a snapshot."""

    snapshot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CutGroupCall(Call):
    """Cut snapshots of all those volumes at one moment. No record has a key like its own.

    Claims of the `namespace` must have the volumes; "" asks for none.
    """

    name: str
    sources: tuple[str, ...]
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroupCall(Call):
    """Remove the group of just those snapshots."""

    name: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowCall(Call):
    """Let a volume have at least `size_bytes`, and at most `limit_bytes` if that is not 0."""

    size_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineCall(Call):
    """Make a pod's own volume; `request` as in CreateCall."""

    wanted: WantedInline
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveInlineCall(Call):
    """Remove a pod's own volume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyCall(Call):
    """Give a volume those of these attributes that say something; the others stay."""

    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Whose content a claim asks for, as the API server has it: `handle` is the volume's or, with
    `snapshot`, the snapshot's. `problem` says why it cannot be had now.
    """

    handle: str = ""
    snapshot: bool = False
    cut_of: str = ""
    """The handle of the volume that the snapshot is to be of; "" if its object does not say."""
    other_mode: bool = False
    """Whether an administrator lets the volume be of another volumeMode than the snapshot."""
    claim: PersistentVolumeClaim | None = None
    """The claim that it is a clone of, if there is one."""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributesClass:
    """What a VolumeAttributesClass asks for. `missing`: why it cannot be read, which may change.
    `problem`: why no volume of ours can have what it asks for, which does not.
    """

    attributes: Attributes = NONE
    missing: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A configured pool, its last report, and what others on its filesystem do to its capacity."""

    config: PoolConfig
    report: PoolReport
    beside: Beside = NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the contents of snapshots say is on this node: the name of a content by the handle of
    each snapshot and group. `coming` are those of snapshots that are being cut for a content.
    `unread` says why not all of them are known."""

    handles: Mapping[str, str] = field(default_factory=dict)
    coming: Mapping[str, str] = field(default_factory=dict)
    unread: str = ""

    @classmethod
    def by_all(cls, parts: Iterable[Told]) -> Told:
        """What those say together."""
        parts = list(parts)
        return cls(
            handles={handle: name for part in parts for handle, name in part.handles.items()},
            coming={handle: name for part in parts for handle, name in part.coming.items()},
            unread="; ".join(filter(None, (one.unread for one in parts))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a plan is made from.

    `claims` (by `namespace/name`) and `volumes` (by name, dynamic ones only) carry this node's
    label. `gone` are the UIDs of claims that the API server itself says are gone or not this
    node's to serve. `absent` are the names of PersistentVolumes that it does not have, or that lie
    on another node. Nothing is taken away on the word of a cache. `busy` are the names with an
    action under way. `witnessed` is what this process itself knows of the times in which removals
    can be undone, by the UIDs of PersistentVolumes.
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
    """Names of PersistentVolumes that the API server itself returned a short while ago and that may
    lie here, whether or not they are in `volumes`."""
    calls: Sequence[Call] = ()
    """The CSI calls that wait for an answer, one for each name."""
    promised: Sequence[tuple[str, Record]] = ()
    """Volumes being made or grown, with the pool's name: the pool's records may not say so yet."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """What claims for copies ask for the content of, by the claim's UID, once that is known."""
    pods_with_mounts: Collection[str] = ()
    """The UIDs of pods with volumes of their own that have any CSI volume mounted here, or may."""
    pods_over: Mapping[str, bool] = field(default_factory=dict)
    """By the UID of such a pod: whether it is over, as the API server has just said."""
    attributes: Mapping[str, AttributesClass] = field(default_factory=dict)
    """The VolumeAttributesClasses that claims wait for, by name, once they are known."""
    told: Told = Told()
    """The snapshots that objects say are here, whether or not a pool has them."""
    no_limits: str = ""
    """Why reading from and writing to volumes cannot be limited on this node, "" if it can."""
    busy: Collection[str] = ()
    warned: Mapping[str, str] = field(default_factory=dict)
    """The PersistentVolumes of which a Warning was said and not taken back: UIDs by name."""
    now: Moment = NO_TIME
    witnessed: Mapping[str, Witnessed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What should happen about one volume, and why. `key` is the PersistentVolume's name."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Make(Action):
    """Make the volume in the pool and publish it. Also completes what a crash left half made."""

    claim: PersistentVolumeClaim
    pool: PoolConfig
    record: Record
    fresh: bool = True
    origin: Record | None = None
    """The volume or snapshot whose content it has; None: it is empty, or has it already."""


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
    """Ask the API server whether the claim and the PersistentVolume are gone."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeAway(Action):
    """Remove the volume at once: no PersistentVolume ever named it, or nobody ever wrote to it.

    `spare`: its claim has, or gets, another volume; this one was never published.
    """

    pool: PoolConfig
    record: Record
    spare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember(Action):
    """Record that the PersistentVolume exists, or that the volume was `given` to another claim."""

    pool: PoolConfig
    record: Record
    volume: PersistentVolume
    given: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOver(Action):
    """Record that the volume is one of our CSI driver, by an object that was made anew for it."""

    pool: PoolConfig
    record: Record
    volume: PersistentVolume


@dataclass(frozen=True, slots=True, kw_only=True)
class Secure(Action):
    """Add our finalizer to a volume that we made: without it, deleting the object leaks it."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow(Action):
    """Grow the volume: the claim asks for more than it has."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    pool: PoolConfig
    record: Record
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Modify(Action):
    """Give the volume these attributes, in place of those that it has, and say so."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    pool: PoolConfig
    record: Record
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class TellModify(Action):
    """Say on the claim why its volume is not modified; `status` None: that nothing is asked for any
    more."""

    claim: PersistentVolumeClaim
    status: Literal["Pending", "Infeasible"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotect(Action):
    """Take away the finalizer that kept the claim while its volume was cloned."""

    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class TellInfeasible(Action):
    """Write on the claim that its volume cannot grow to that size, and why."""

    claim: PersistentVolumeClaim
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TellGrown(Action):
    """Write on the PersistentVolume and the claim that the volume has grown."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Action):
    """Delete the object: its claim is gone and the policy is Delete. Our finalizer holds it.

    An adopted volume is given our finalizer first.
    """

    volume: PersistentVolume


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkReleased(Action):
    """Write down since when the claim is gone, and until when that can be undone.

    `period` is the time between, in seconds. `again` True: a claim has the volume again, so take
    away what was written.
    """

    volume: PersistentVolume
    again: bool = False
    period: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire(Action):
    """Move the volume to the trash, then let its object go: it is being deleted, nobody holds it.

    `record` None: an adopted volume that has none yet; `directory` is then where it lies.
    `keep` True: only the object goes; the reclaim policy keeps the data, or there is no record.
    """

    volume: PersistentVolume
    pool: PoolConfig | None
    record: Record | None
    directory: str = ""
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge(Action):
    """Delete the volume from the trash: its PersistentVolume is gone."""

    pool: PoolConfig
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeCalled(Action):
    """Make the volume that a call asks for, or complete it, and answer the call."""

    pool: PoolConfig
    record: Record
    origin: Record | None = None
    """The volume or snapshot whose content it has; None: it is empty."""
    namespace: str = ""
    """The namespace of the claim that must have the origin, "": any, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowCalled(Action):
    """Grow the volume as a call asks, and answer the call."""

    pool: PoolConfig
    record: Record
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyCalled(Action):
    """Give the volume these attributes in place of those that it has, and answer the call."""

    pool: PoolConfig
    record: Record
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCalled(Action):
    """Move the volume to the trash, or take it away if nobody was told of it; answer the call.

    `refusal` is what a call is answered that asked for something else. `volumes` are the names of
    PersistentVolumes that are of it.
    """

    pool: PoolConfig
    record: Record
    refusal: Refused | None = None
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPod(Action):
    """Ask the API server whether the pod is over whose own volume it is."""

    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveInline(Action):
    """Move a pod's own volume to the trash: the pod is over, and no call has removed it."""

    pool: PoolConfig
    record: Record


@dataclass(frozen=True, slots=True, kw_only=True)
class CutGroup(Action):
    """Cut those snapshots together, each of its origin, and answer the call.

    Without origins they are cut, and their call has no answer.
    """

    pool: PoolConfig
    records: tuple[Record, ...]
    origins: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroup(Action):
    """Move the snapshots of a group to the trash, or take them away; answer the call."""

    pool: PoolConfig
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCall(Action):
    """Answer the call: with the volume, with a refusal, or (both None) that there is nothing."""

    pool: PoolConfig | None = None
    record: Record | None = None
    fill: Fill | None = None
    refusal: Refused | None = None
    look_again: bool = False
    """Whether something else is to be done with the volume once the call is answered."""


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
    """The actions, and the capacity of each class's pools once they are done (bytes).

    Pools on one filesystem share one capacity. `largest` is the largest volume that fits into any
    of a class's pools, in bytes. `unfit` says why some of them cannot serve it, "" if all can.
    `sizes` says how large a class's pools are, and how full, by name, as far as that is known.
    `over` names the PersistentVolumes of which nothing that was said is so any more, and says why.
    """

    actions: Sequence[Action]
    capacity: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Mapping[str, PoolSize]] = field(default_factory=dict)
    over: Mapping[str, str] = field(default_factory=dict)
