"""What the static role knows and may decide: plain frozen data, shared by all its parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from localvolume.config.model import ClassConfig
from localvolume.kube.objects import PersistentVolume
from localvolume.static.paces import StaticPaces
from localvolume.volumes.identity import Identity
from localvolume.volumes.manifest import NodeFacts, PublishingOptions
from localvolume.volumes.record import Recorded

if TYPE_CHECKING:
    # An agent that never meets a Job need not load this.
    from localvolume.cleaning.jobs import CleaningJob

Kind = Literal["filesystem", "block", "none"]

ProblemCode = Literal[
    "gone",  # there is provably nothing: no entry, a dangling link, a directory without its mount
    "wrong-kind",  # a file, a FIFO, a socket
    "unknown",  # unreadable, or it did not answer in time: nothing may be concluded
    "reading",  # it is being read: nothing is known yet
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an entry cannot be offered as a volume now; `text` is a sentence for people."""

    code: ProblemCode
    text: str

    @property
    def is_absence(self) -> bool:
        """Whether it says that the volume is not there, rather than that nobody can tell."""
        return self.code in ("gone", "wrong-kind")


@dataclass(frozen=True, slots=True)
class Content:
    """What lies in an entry that no PersistentVolume of ours offers.

    In the order of `state`: nothing; what `found` says; bytes on a device without a known
    signature; an empty filesystem of `fs_type` on a device; what a cleaning that did not end has
    left; something, named by `found`, uses it right now; nobody can tell.
    """

    state: Literal["empty", "holds", "traces", "formatted", "unfinished", "busy", "unknown"]
    found: str = ""
    fs_type: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a discovery directory, as it is right now.

    `path` is where this process sees it, `host_path` what a PersistentVolume says. `device` is
    "major:minor" of the filesystem or block device, `root` the directory within that filesystem
    that is mounted here. `content` is looked at only if no PersistentVolume is known.
    """

    class_name: str
    name: str
    path: str
    host_path: str
    kind: Kind = "none"
    problem: Problem | None = None
    size_bytes: int = 0
    identity: Identity = field(default_factory=dict)
    device: str = ""
    root: str = "/"
    mount_id: int | None = None
    content: Content | None = None
    unwell: str = ""
    """How its filesystem or disk has failed. Like `content`, this is looked at only if no
    PersistentVolume offers the entry."""
    recorded: Recorded = "nowhere"
    """What the volume's own record says."""
    excluded: bool = False
    """The class's namePattern does not mean this name: nothing else was looked at."""


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """A configured class, with the StorageClass object that belongs to it.

    `exists` is False while the API server has no such StorageClass. `problem` says why the
    discovery directory could not be listed: then nothing is known of its entries.
    """

    config: ClassConfig
    exists: bool = True
    reclaim_policy: str = "Delete"
    mount_options: Sequence[str] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a plan is made from.

    `volumes` are the PersistentVolumes that carry this node's label, by name. `asked` holds what a
    live look at the names of objects without that label found (None: no such object); `others`
    says, as such a look found, why what is at a path on the host may be somebody's.
    `missing_seconds` says for how long each PersistentVolume (by UID) has been without its volume.
    `busy` are the paths on the host at which an earlier plan's action is under way or waits.
    """

    node: NodeFacts
    options: PublishingOptions
    classes: Mapping[str, ClassFacts]
    entries: Sequence[Entry]
    volumes: Mapping[str, PersistentVolume]
    asked: Mapping[str, PersistentVolume | None] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    missing_seconds: Mapping[str, float] = field(default_factory=dict)
    busy: Collection[str] = ()
    grace_seconds: float = 60.0
    paces: StaticPaces = field(default_factory=StaticPaces)
    jobs: Sequence[CleaningJob] = ()
    """The cleaning Jobs of this node, ours and an older provisioner's."""
    use_jobs: bool = False
    """Whether the configuration says useJobForCleaning."""
    jobs_unknown: str | None = None
    """Why `jobs` is not known, although it must be; without useJobForCleaning it need not be."""
    pods_unseen: str | None = None
    """Why nobody can tell which volumes pods have mounted; None if that is seen."""
    online: bool = True
    """Whether the API server can be asked; `plan --offline` assumes that it has no objects."""
    salt: str = ""
    """A secret for names that nobody can take beforehand; "": no such names are given."""


@dataclass(frozen=True, slots=True)
class Action:
    """What should happen about one place on the node, and why. `key` is the path on the host."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Publish(Action):
    """Create the PersistentVolume `name` for the entry; `spare`: others have both its own names."""

    entry: Entry
    name: str
    spare: bool = False


@dataclass(frozen=True, slots=True)
class CleanFirst(Action):
    """Clean a volume no PersistentVolume names, because its class says `firstUse: clean`.

    Always in this process: a Job belongs to the UID of a PersistentVolume.
    """

    entry: Entry
    name: str


@dataclass(frozen=True, slots=True)
class Ask(Action):
    """Look at one PersistentVolume by name: it may exist without our label."""

    entry: Entry
    name: str


@dataclass(frozen=True, slots=True)
class Adopt(Action):
    """Add our label, finalizer and (if it is known) identity, and change nothing else."""

    volume: PersistentVolume
    identity: Identity | None


@dataclass(frozen=True, slots=True)
class MarkClaimed(Action):
    """Write down that a claim holds the volume, so that this is known after the claim is gone.

    First on the record, if `entry` is what the object was made for; then on the object.
    """

    volume: PersistentVolume
    entry: Entry | None = None


@dataclass(frozen=True, slots=True)
class KeepRecord(Action):
    """Make a record for an object older than records, and note the generation on the object."""

    volume: PersistentVolume
    entry: Entry


@dataclass(frozen=True, slots=True)
class Withdraw(Action):
    """Delete the PersistentVolume of a volume that no claim ever used."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class Reclaim(Action):
    """Delete a Released PersistentVolume; our finalizer keeps it until the volume is clean."""

    volume: PersistentVolume
    entry: Entry


@dataclass(frozen=True, slots=True)
class Clean(Action):
    """Clean the volume of a PersistentVolume that is being deleted, then let the object go.

    `by_job`: in a Job, or by taking over the Job that does it or has done it already.
    """

    volume: PersistentVolume
    entry: Entry
    by_job: bool = False


@dataclass(frozen=True, slots=True)
class StopJob(Action):
    """Delete the Job that cleans a volume which is not to be cleaned any more."""

    volume: PersistentVolume
    job: CleaningJob


@dataclass(frozen=True, slots=True)
class LetGo(Action):
    """Remove our finalizer without touching the volume."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class Hold(Action):
    """Do nothing, and say so: as an Event on the volume if there is one, in logs and metrics.

    `code` is a short word for the metric; `event` the reason of the Event, empty if the log is
    enough. `again_seconds` is when to look again even if nothing has happened; 0 for never.
    """

    code: str
    volume: PersistentVolume | None = None
    entry: Entry | None = None
    event: str = ""
    again_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """All is as it should be."""

    volume: PersistentVolume | None = None
    entry: Entry | None = None
