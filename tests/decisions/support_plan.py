"""Builders for the plan's tests: a node, its classes, entries and PersistentVolumes.

Everything has a sound default, so that a test names only what it is about. The host's directory
and the process's view of it differ on purpose: what a PersistentVolume says is the host's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from localvolume.cleaning.jobs import CleaningJob, job_name
from localvolume.cleaning.jobs import State as JobState
from localvolume.config.model import ClassConfig, FirstUse, VolumeMode
from localvolume.kube.objects import (
    ClaimRef,
    LocalSource,
    Meta,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PVSpec,
    PVStatus,
    VolumeNodeAffinity,
)
from localvolume.static.model import (
    Action,
    ClassFacts,
    Content,
    Entry,
    Facts,
    Hold,
    Problem,
    ProblemCode,
)
from localvolume.static.plan.plan import plan
from localvolume.volumes import marks
from localvolume.volumes.capacity import GIB, published_bytes, quantity
from localvolume.volumes.identity import Identity, to_annotation
from localvolume.volumes.manifest import NodeFacts, PublishingOptions
from localvolume.volumes.names import volume_name

HOST_DIR = "/mnt/disks"
MOUNT_DIR = "/discovery"
NODE = NodeFacts("test-node", "node-uid", "test-host", {"kubernetes.io/hostname": "test-host"})
ELSEWHERE = "other-host"
SIZE = 20 * GIB

State = Literal["empty", "holds", "traces", "formatted", "unfinished", "busy", "unknown"]
S = TypeVar("S", bound=Action)


def class_facts(
    name: str = "fast",
    *,
    host_dir: str = HOST_DIR,
    first_use: FirstUse = "require-empty",
    mode: VolumeMode = "Filesystem",
    fs_type: str = "",
    exists: bool = True,
    policy: str = "Delete",
    problem: str | None = None,
) -> ClassFacts:
    config = ClassConfig(
        name=name,
        host_dir=host_dir,
        mount_dir=host_dir.replace("/mnt", MOUNT_DIR),
        first_use=first_use,
        volume_mode=mode,
        fs_type=fs_type,
    )
    return ClassFacts(config, exists, policy, (), problem)


def _named(class_name: str, name: str, host_dir: str) -> Entry:
    seen_dir = host_dir.replace("/mnt", MOUNT_DIR)
    return Entry(class_name, name, f"{seen_dir}/{name}", f"{host_dir}/{name}")


def filesystem(
    name: str = "disk",
    class_name: str = "fast",
    *,
    host_dir: str = HOST_DIR,
    uuid: str | None = None,
    root: str = "/",
    device: str = "",
    size: int = SIZE,
    content: State | None = "empty",
    excluded: bool = False,
) -> Entry:
    """A mounted directory; two of them are the same data only where a test says so."""
    return replace(
        _named(class_name, name, host_dir),
        kind="filesystem",
        size_bytes=size,
        identity={"kind": "filesystem", "fsType": "ext4", "uuid": uuid or name, "root": root},
        device=device or f"fs-{uuid or name}",
        root=root,
        mount_id=1,
        content=_content(content, "report.txt"),
        excluded=excluded,
    )


def block(
    name: str = "disk",
    class_name: str = "fast",
    *,
    host_dir: str = HOST_DIR,
    serial: str | None = None,
    device: str = "",
    size: int = SIZE,
    content: State | None = "empty",
) -> Entry:
    return replace(
        _named(class_name, name, host_dir),
        kind="block",
        size_bytes=size,
        identity={"kind": "block", "serial": serial or name},
        device=device or f"block-{serial or name}",
        content=_content(content, "a signature: xfs"),
    )


def _content(state: State | None, found: str) -> Content | None:
    if state == "formatted":
        return Content(state, "an empty ext4", "ext4")
    return None if state is None else Content(state, "" if state == "empty" else found)


def broken(
    code: ProblemCode, name: str = "disk", class_name: str = "fast", *, host_dir: str = HOST_DIR
) -> Entry:
    """An entry that is there in name only: nothing else could be read."""
    texts = {
        "gone": "it is not a valid mount point",
        "wrong-kind": "it is a FIFO",
        "unknown": "it did not answer",
        "reading": "its content is still being read",
    }
    return replace(_named(class_name, name, host_dir), problem=Problem(code, texts[code]))


def affinity(*hostnames: str) -> VolumeNodeAffinity:
    own = NodeSelectorRequirement(key=marks.HOSTNAME_LABEL, operator="In", values=hostnames)
    term = NodeSelectorTerm(match_expressions=(own,))
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))


def volume_of(
    entry: Entry,
    *,
    name: str | None = None,
    phase: str = "Available",
    policy: str | None = "Delete",
    claim: str = "",
    deleting: bool = False,
    finalized: bool = True,
    identity: Identity | str | None = {},  # noqa: B006 - only compared, never changed
    mode: str | None = None,
    path: str | None = None,
    capacity: str | None = None,
    hostname: str = NODE.hostname,
    class_name: str | None = None,
    local: bool = True,
    annotations: Mapping[str, str] | None = None,
    provisioner: str | None = f"local-volume-provisioner-{NODE.name}-{NODE.uid}",
) -> PersistentVolume:
    """The PersistentVolume that this agent would have made for the entry, but for what is named.

    `identity`: {} for what the entry is, None for an object without (an older provisioner's),
    another map or a text for what the annotation says instead.
    """
    written: dict[str, str] = {}
    if provisioner is not None:
        written[marks.PROVISIONED_BY_ANNOTATION] = provisioner
    if isinstance(identity, str):
        written[marks.IDENTITY_ANNOTATION] = identity
    elif identity is not None:
        written[marks.IDENTITY_ANNOTATION] = to_annotation(identity or entry.identity)
    class_name = class_name or entry.class_name
    name = name or volume_name(entry.name, NODE.name, class_name)
    return PersistentVolume(
        metadata=Meta(
            name=name,
            uid=f"uid-of-{name}",
            resource_version="7",
            labels={marks.NODE_LABEL: marks.node_key(NODE.name)},
            annotations={**written, **(annotations or {})},
            finalizers=("kubernetes.io/pv-protection", marks.FINALIZER)
            if finalized
            else ("kubernetes.io/pv-protection",),
            deletion_timestamp="2026-01-01T00:00:00Z" if deleting else None,
        ),
        spec=PVSpec(
            capacity={"storage": capacity or quantity(published_bytes(entry.size_bytes or SIZE))},
            persistent_volume_reclaim_policy=policy,
            storage_class_name=class_name,
            volume_mode=mode or "Filesystem",
            local=LocalSource(path=path or entry.host_path) if local else None,
            claim_ref=ClaimRef(namespace="team", name="claim", uid=claim) if claim else None,
            node_affinity=affinity(hostname),
        ),
        status=PVStatus(phase=phase),
    )


def bound_to(entry: Entry, claim: str = "claim-uid", **changes: Any) -> PersistentVolume:
    """A volume that a claim holds, and that says so in our mark too."""
    annotations = {marks.CLAIMED_ANNOTATION: claim, **changes.pop("annotations", {})}
    return volume_of(entry, phase="Bound", claim=claim, annotations=annotations, **changes)


def released_from(entry: Entry, claim: str = "claim-uid", **changes: Any) -> PersistentVolume:
    """A volume whose claim is gone."""
    annotations = {marks.CLAIMED_ANNOTATION: claim, **changes.pop("annotations", {})}
    phase = changes.pop("phase", "Released")
    return volume_of(entry, phase=phase, claim=claim, annotations=annotations, **changes)


def job_for(
    volume: PersistentVolume,
    state: JobState = "unfinished",
    *,
    uid: str | None = None,
    path: str = "",
    upstreams: bool = False,
    being_deleted: bool = False,
) -> CleaningJob:
    """The Job that this agent would have made for the object, but for what is named."""
    uid = volume.metadata.uid if uid is None else uid
    return CleaningJob(
        name=f"cleanup-{volume.metadata.name}" if upstreams else job_name(uid),
        uid=f"uid-of-job-for-{uid}",
        volume_name=volume.metadata.name,
        volume_uid=uid,
        path=path,
        state=state,
        ours=not upstreams,
        being_deleted=being_deleted,
    )


def facts_of(
    entries: Iterable[Entry] = (),
    volumes: Iterable[PersistentVolume] = (),
    *,
    classes: Sequence[ClassFacts] = (),
    asked: Mapping[str, PersistentVolume | None] | None = None,
    missing: Mapping[str, float] | None = None,
    busy: Collection[str] = (),
    grace_seconds: float = 60.0,
    online: bool = True,
    jobs: Iterable[CleaningJob] = (),
    use_jobs: bool = False,
    jobs_unknown: str | None = None,
    pods_unseen: str | None = None,
    salt: str = "",
) -> Facts:
    known = classes or (class_facts(),)
    return Facts(
        node=NODE,
        options=PublishingOptions(),
        classes={facts.config.name: facts for facts in known},
        entries=list(entries),
        volumes={volume.metadata.name: volume for volume in volumes},
        asked=asked or {},
        missing_seconds=missing or {},
        busy=busy,
        grace_seconds=grace_seconds,
        online=online,
        jobs=list(jobs),
        use_jobs=use_jobs,
        jobs_unknown=jobs_unknown,
        pods_unseen=pods_unseen,
        salt=salt,
    )


def steps_of(
    entries: Iterable[Entry] = (), volumes: Iterable[PersistentVolume] = (), **changes: Any
) -> list[Action]:
    return plan(facts_of(entries, volumes, **changes))


def only_step(
    entries: Iterable[Entry] = (), volumes: Iterable[PersistentVolume] = (), **changes: Any
) -> Action:
    """The one action of a plan that must have exactly one."""
    (action,) = steps_of(entries, volumes, **changes)
    return action


def a(kind: type[S], action: Action) -> S:
    """The action as what it must be; what it is instead is said with its reason."""
    assert isinstance(action, kind), action
    return action


def steps_about(actions: Iterable[Action], volume: PersistentVolume) -> list[Action]:
    return [action for action in actions if getattr(action, "volume", None) is volume]


def step_about(actions: Iterable[Action], volume: PersistentVolume) -> Action:
    (action,) = steps_about(actions, volume)
    return action


def held(action: Action, code: str) -> Hold:
    hold = a(Hold, action)
    assert hold.code == code, hold
    return hold
