"""What is known of a node's disks, and what follows from it: facts and verdicts, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from localvolume.config.disks import DiskFilter, DisksConfig

Verdict = Literal["format", "link", "mount", "done", "hold", "skip"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What we wrote on a disk before formatting it: that this was begun, and under which plan.

    `identity` is the disk's, as `naming.stable` returns it.
    """

    digest: str
    uuid: str
    identity: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What a look at the device itself found; "" or None if there is nothing to tell.

    `users` are those the kernel's tables name, `mounts` where it is mounted, `in_use` what an
    exclusive open answered, `unknown` why something could not be read: then nothing else counts.
    `data_at` is the first byte found that is not zero. `fs_was_mounted`: the filesystem says so.
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
    `misplaced` why its class's directory, as the agent sees it, is not the configured one of the
    host, `taken` who owns it, or the disk that it is a partition of (owners.py). `inside` is None
    if nobody looked.
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

    `code` names the predicate that held it. `filter` is the one that means it. `digest` is that of
    the plan it was formatted under (mount, done). `begun`: we never finished formatting it.
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
    """The plan of one node. `digest` is "" if there is nothing to format or link.

    `text` is what the digest is computed from. `approved`: all of it may be carried out. `partly`
    are approved plans that are partly done, and whose rest is not what would be done now.
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
