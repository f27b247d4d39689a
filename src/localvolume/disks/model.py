"""What is known of a node's disks, and what is made of it: facts and verdicts, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from localvolume.config.disks import DiskFilter, DisksConfig

Verdict = Literal["format", "link", "mount", "done", "hold", "skip"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What we wrote on a disk before its formatting: that, and under which plan, it was begun.

    `identity` is the disk's, as `naming.stable` has it.
    """

    digest: str
    uuid: str
    identity: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a look at the device itself found; "" or None where there is nothing to tell.

    `users` are those the kernel's tables name, `mounts` where it is mounted, `in_use` what an
    exclusive open answered, `unknown` why something could not be read: then nothing else counts.
    `data_at` is the first byte found that is not zero. `fs_was_mounted`: it says so of itself.
    """

    users: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    in_use: str = ""
    unknown: str = ""
    signature: str = ""
    data_at: int | None = None
    fs_type: str = ""
    fs_uuid: str = ""
    fs_label: str = ""
    fs_was_mounted: bool = False
    claim: Claim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """One disk or partition. The fields up to `links` are host.disklist.RawDisk's.

    `offered` are the entries of discovery directories that lead to it, as this process sees them;
    `named` says which PersistentVolume names it or its place, `place` why its place cannot be used,
    `misplaced` why the directory of its class is not the one of the host that is configured,
    `taken` whose volume it is, or the disk that it is a partition of (owners.py).
    `inside` is None where nobody looked.
    """

    name: str
    node: str
    device: str
    size_bytes: int
    identity: Mapping[str, str]
    parent: str = ""
    sequence: str | None = None
    model: str = ""
    vendor: str = ""
    rotational: bool | None = None
    transport: str = ""
    virtual: bool = False
    removable: bool = False
    read_only: bool = False
    partitions: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    parent_holders: tuple[str, ...] = ()
    part_name: str = ""
    links: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    named: str = ""
    place: str = ""
    misplaced: str = ""
    taken: str = ""
    inside: Inside | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """One look at the disks of a node."""

    node_name: str
    config: DisksConfig
    disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What becomes of one disk, and why.

    `code` names the predicate that held it. `filter` is the one that means it. `digest` is the
    plan's that it was formatted under (mount, done). `begun`: a formatting of ours, never finished.
    """

    disk: Disk
    verdict: Verdict
    reason: str
    code: str = ""
    filter: DiskFilter | None = None
    digest: str = ""
    begun: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPlan:
    """The plan of one node. `digest` is "" where there is nothing to format or link.

    `text` is what the digest is of. `approved`: it may be carried out, all of it. `partly` are
    approved plans of which some is done already, and the rest is not what would be done now.
    """

    rows: tuple[Judged, ...]
    digest: str = ""
    text: str = ""
    approved: bool = False
    partly: tuple[str, ...] = field(default=())

    @property
    def todo(self) -> tuple[Judged, ...]:
        """What approving it would change."""
        return tuple(row for row in self.rows if row.verdict in ("format", "link"))
