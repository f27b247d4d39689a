"""Builders for dynamic decisions: claims, volumes, records, pools, classes and one moment's facts.

Everything has a sound default and fits together by its number: claim `ns/data-1` of UID `1`, its
PersistentVolume `pvc-1` of UID `volume-1`, and the record `pvc-1`. A test names what it is about.
The node's name and its hostname label differ on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from localvolume.backends.model import Abilities, PoolReport, Record, Usage
from localvolume.config.pools import DYNAMIC_PROVISIONER, LvmConfig, PoolConfig
from localvolume.dynamic.model import Action, ClassFacts, Facts, Pool, Wish
from localvolume.dynamic.plan.plan import plan
from localvolume.dynamic.plan.world import with_neighbours
from localvolume.kube.cache import key_of
from localvolume.kube.objects import (
    ClaimRef,
    DataSource,
    HostPathSource,
    LabelSelector,
    LocalSource,
    Meta,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PVCSpec,
    PVCStatus,
    PVSpec,
    PVStatus,
    Requests,
    StorageClass,
    TopologyTerm,
    VolumeNodeAffinity,
)
from localvolume.volumes import claims, marks
from localvolume.volumes.capacity import GIB, MIB
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.periods import Moment, Witnessed
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS

S = TypeVar("S", bound=Action)

HOST = "host-1"
NODE = NodeFacts("node-1", "node-uid", HOST, {marks.HOSTNAME_LABEL: HOST, "zone": "a"})
NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
A_MINUTE_AGO = "2027-01-15T07:59:00Z"
IN_A_MINUTE = "2027-01-15T08:01:00Z"
DELETED = "2027-01-15T07:59:59Z"
FLAVORS = {KUTTI: "kutti", LOCAL_PATH: "local-path", OPENEBS: "openebs"}


def storage_class(
    name: str = "local",
    provisioner: str = DYNAMIC_PROVISIONER,
    *,
    immediate: bool = False,
    policy: str | None = "Delete",
    mount_options: tuple[str, ...] = (),
    topologies: tuple[TopologyTerm, ...] = (),
    problem: str = "",
    **wish: Any,
) -> ClassFacts:
    """A class of ours; further keywords are what it wishes."""
    mode = "Immediate" if immediate else "WaitForFirstConsumer"
    found = StorageClass(
        metadata=Meta(name=name, uid=f"class-{name}"),
        provisioner=provisioner,
        reclaim_policy=policy,
        mount_options=mount_options,
        volume_binding_mode=mode,
        allowed_topologies=topologies,
    )
    return ClassFacts(object=found, wish=Wish(**wish), problem=problem)


def claim(
    number: int | str = 1,
    *,
    node: str = NODE.name,
    provisioner: str | None = DYNAMIC_PROVISIONER,
    key: str = claims.PROVISIONER_ANNOTATION,
    class_name: str | None = "local",
    size: str = "1Gi",
    volume: str = "",
    phase: str = "Pending",
    has: str = "",
    deleted: bool = False,
    created: str = "2027-01-15T07:00:00Z",
    mode: str | None = "Filesystem",
    access: tuple[str, ...] = ("ReadWriteOnce",),
    selector: LabelSelector | None = None,
    source: DataSource | None = None,
    source_ref: DataSource | None = None,
    namespace: str = "ns",
    annotations: Mapping[str, str] | None = None,
    label: str = NODE.name,
) -> PersistentVolumeClaim:
    """A claim for which this node was selected; `node` "" for none. `has` is status.capacity."""
    notes = dict(annotations or {})
    if provisioner is not None:
        notes[key] = provisioner
    if node:
        notes[claims.SELECTED_NODE_ANNOTATION] = node
    return PersistentVolumeClaim(
        metadata=Meta(
            name=f"data-{number}",
            namespace=namespace,
            uid=str(number),
            resource_version="7",
            labels={marks.NODE_LABEL: label} if label else {},
            annotations=notes,
            creation_timestamp=created,
            deletion_timestamp=DELETED if deleted else None,
        ),
        spec=PVCSpec(
            volume_name=volume,
            storage_class_name=class_name,
            volume_mode=mode,
            access_modes=access,
            resources=Requests(requests={"storage": size}),
            selector=selector,
            data_source=source,
            data_source_ref=source_ref,
        ),
        status=PVCStatus(phase=phase, capacity={"storage": has} if has else {}),
    )


def bound(number: int | str = 1, size: str = "1Gi", **changes: Any) -> PersistentVolumeClaim:
    """A claim that has its volume, and was told so."""
    told = {"volume": f"pvc-{number}", "phase": "Bound", "has": "1Gi"}
    return claim(number, size=size, **(told | changes))


def in_terms(*values: str, key: str = marks.HOSTNAME_LABEL) -> VolumeNodeAffinity:
    """The required affinity to nodes whose label `key` has one of those values."""
    requirement = NodeSelectorRequirement(key=key, operator="In", values=values)
    term = NodeSelectorTerm(match_expressions=(requirement,))
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))


def volume(
    number: int | str = 1,
    *,
    phase: str = "Bound",
    policy: str | None = "Delete",
    class_name: str = "local",
    provisioner: str | None = DYNAMIC_PROVISIONER,
    pool: str | None = "fast/id-of-fast",
    uid: str | None = None,
    claim_uid: str | None = "",
    size: str = "1Gi",
    deleted: bool = False,
    finalizers: tuple[str, ...] = (marks.FINALIZER,),
    since: str | None = None,
    until: str | None = None,
    path: str | None = None,
    host_path: bool = False,
    affinity: VolumeNodeAffinity | None = None,
    annotations: Mapping[str, str] | None = None,
) -> PersistentVolume:
    """A PersistentVolume that we made. `claim_uid` "" is its own claim's, None is no claimRef;
    `since` is when its claim was missed first, `until` the time that was promised then."""
    notes = dict(annotations or {})
    said = {
        marks.PROVISIONED_BY_ANNOTATION: provisioner,
        marks.POOL_ANNOTATION: pool,
        marks.RELEASED_ANNOTATION: None if since is None else f"{since} {claim_uid or number}",
        marks.KEPT_ANNOTATION: None if until is None else f"{until} {claim_uid or number}",
    }
    notes |= {key: value for key, value in said.items() if value is not None}
    path = path or f"/pools/fast/pvc-{number}"
    ref = ClaimRef(namespace="ns", name=f"data-{number}", uid=claim_uid or str(number))
    return PersistentVolume(
        metadata=Meta(
            name=f"pvc-{number}",
            uid=uid or f"volume-{number}",
            resource_version="7",
            labels={marks.NODE_LABEL: NODE.name},
            annotations=notes,
            finalizers=finalizers,
            deletion_timestamp=DELETED if deleted else None,
        ),
        spec=PVSpec(
            capacity={"storage": size},
            persistent_volume_reclaim_policy=policy,
            storage_class_name=class_name,
            local=None if host_path else LocalSource(path=path),
            host_path=HostPathSource(path=path) if host_path else None,
            claim_ref=None if claim_uid is None else ref,
            node_affinity=affinity or in_terms(HOST),
        ),
        status=PVStatus(phase=phase),
    )


def reserved(number: int | str = 1, **changes: Any) -> PersistentVolume:
    """A volume whose claimRef says a name and no UID: people do that to give it to a new claim."""
    made, ref = volume(number, **changes), ClaimRef(namespace="ns", name=f"data-{number}")
    return replace(made, spec=replace(made.spec, claim_ref=ref))


def adopted(number: int | str = 1, provisioner: str = KUTTI, **changes: Any) -> PersistentVolume:
    """A PersistentVolume that an older provisioner made in the pool `old`."""
    theirs: dict[str, Any] = {
        "pool": None,
        "finalizers": (),
        "path": f"/pools/old/pvc-{number}",
        "provisioner": provisioner,
        "class_name": "theirs",
        # kutti wrote the node's name where the hostname belongs.
        "affinity": in_terms(NODE.name if provisioner == KUTTI else HOST),
    }
    return volume(number, **(theirs | changes))


def record(number: int | str = 1, state: str = "offered", **changes: Any) -> Record:
    """What the pool has on record of that volume; of an `offered` one the PV's UID is known."""
    fields: dict[str, Any] = {
        "name": f"pvc-{number}",
        "backend": "directory",
        "state": state,
        "directory": f"pvc-{number}",
        "size_bytes": GIB,
        "class_name": "local",
        "claim": f"ns/data-{number}",
        "claim_uid": str(number),
        "volume_uid": f"volume-{number}" if state in ("offered", "removed") else "",
    }
    if changes.get("adopted"):
        fields |= {"claim": "", "claim_uid": "", "size_bytes": 0, "enforced": False}
    return Record(**(fields | changes))


def pool(
    *records: Record,
    name: str = "fast",
    room: int = 100 * GIB,
    pool_id: str | None = None,
    problem: str = "",
    taken: bool = False,
    abilities: Abilities | None = None,
    orphans: Sequence[str] = (),
    unreadable: Mapping[str, str] | None = None,
    unit: int = 1,
    filesystem: str = "",
    dormant: Sequence[Record] = (),
    uncounted: str = "",
    **config: Any,
) -> Pool:
    """A pool of ours with `room` beside its records; further keywords are its configuration."""
    size = sum(one.size_bytes for one in records)
    fields: dict[str, Any] = {"host_dir": f"/pools/{name}", "mount_dir": f"/pools/{name}"}
    fields |= {"provisioner": DYNAMIC_PROVISIONER}
    report = PoolReport(
        name=name,
        id=f"id-of-{name}" if pool_id is None else pool_id,
        problem=problem,
        taken=taken,
        total_bytes=room + size,
        available_bytes=room + size,
        abilities=abilities or Abilities(enforce=True),
        records={one.name: one for one in records},
        usage={one.name: Usage(used_bytes=0) for one in records if one.state != "removed"},
        orphans=orphans,
        unreadable=unreadable or {},
        unit_bytes=unit,
        filesystem=filesystem,
        dormant={one.name: one for one in dormant},
        uncounted=uncounted,
    )
    return Pool(config=PoolConfig(name=name, **(fields | config)), report=report)


def old_pool(*records: Record, provisioner: str = KUTTI, **changes: Any) -> Pool:
    """The directory of an older provisioner, as it is configured once it was replaced."""
    theirs: dict[str, Any] = {
        "name": "old",
        "provisioner": provisioner,
        "flavor": FLAVORS[provisioner],
        "enforce": False,
    }
    return pool(*records, **(theirs | changes))


def lvm_pool(*records: Record, name: str = "fast", **changes: Any) -> Pool:
    """A pool of logical volumes; of further keywords, those of LvmConfig are that's."""
    lvm: dict[str, Any] = {"group": f"vg-{name}"}
    lvm |= {key: changes.pop(key) for key in LvmConfig.__slots__ if key in changes}
    both = Abilities(enforce=True, block=True)
    given: dict[str, Any] = {"host_dir": "", "mount_dir": "", "backend": "lvm", "abilities": both}
    given |= {"unit": 4 * MIB}
    return pool(*records, name=name, lvm=LvmConfig(**lvm), **(given | changes))


def lv(number: int | str = 1, state: str = "offered", **changes: Any) -> Record:
    """What a pool of logical volumes has on record."""
    return record(number, state, **(changes | {"backend": "lvm", "directory": ""}))


Thing = PersistentVolumeClaim | PersistentVolume | Pool | ClassFacts


def facts(*things: Thing, **changes: Any) -> Facts:
    """The facts with these things; the usual class and pool unless others are given."""
    pools = [one for one in things if isinstance(one, Pool)] or [pool()]
    classes = [one for one in things if isinstance(one, ClassFacts)] or [storage_class()]
    found: dict[str, Any] = {
        "node": NODE,
        "provisioners": frozenset({DYNAMIC_PROVISIONER, *(p.config.provisioner for p in pools)}),
        "classes": {one.name: one for one in classes},
        "pools": with_neighbours(pools),
        "claims": {key_of(one): one for one in things if isinstance(one, PersistentVolumeClaim)},
        "volumes": {one.metadata.name: one for one in things if isinstance(one, PersistentVolume)},
        **changes,
    }
    # The clocks agree, and this process has just begun, unless a test says otherwise.
    day = found.get("now", NOW)
    now = day if isinstance(day, Moment) else Moment(day, day)
    seen = {one.metadata.uid: Witnessed(0.0, now.earlier) for one in found["volumes"].values()}
    return Facts(**{"witnessed": seen, **found, "now": now})


def planned(*things: Thing, **changes: Any) -> dict[str, Action]:
    """The actions by name."""
    return {action.key: action for action in plan(facts(*things, **changes)).actions}


def action(*things: Thing, name: str = "pvc-1", **changes: Any) -> Action:
    """The action about one name."""
    return planned(*things, **changes)[name]


def a(kind: type[S], found: Any) -> S:
    """The action as what it must be; what it is instead is said with its reason."""
    assert isinstance(found, kind), found
    return found


def unwanted(*numbers: int | str) -> dict[str, Any]:
    """What a live look has said of claims and PersistentVolumes: neither is there."""
    return {"gone": {str(one) for one in numbers}, "absent": {f"pvc-{one}" for one in numbers}}
