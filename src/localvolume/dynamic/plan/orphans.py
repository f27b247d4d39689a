"""What lies in the pools and belongs to no PersistentVolume: listed and counted, never removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from localvolume.backends.model import Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import Pool
from localvolume.dynamic.plan.paths import conflicts, relative_place
from localvolume.dynamic.plan.world import pool_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class Orphan:
    """One of them. `place` is below the pool; `name` is the PersistentVolume that it was made for,
    "" if no record says."""

    pool: str
    place: str
    name: str = ""
    claim: str = ""
    size_bytes: int | None = None


def orphans_of(
    pools: Sequence[Pool],
    volumes: Mapping[str, PersistentVolume],
    claims: Iterable[PersistentVolumeClaim],
) -> list[Orphan]:
    """Lists the orphans of all pools that could be read. `volumes` are all PersistentVolumes, by
    the name of their record, and `claims` all claims.

    What is being made, published or purged is not an orphan: that ends by itself. Nor is what an
    older provisioner's PersistentVolume names, although it has no record. Nor is a snapshot or a
    pod's own volume, which no PersistentVolume ever names.
    """
    found = []
    served = {claim.metadata.uid for claim in claims if not claim.spec.volume_name}
    adopted = places_of_adopted([pool.config for pool in pools], volumes.values())
    for pool in pools:
        if pool.report.problem:
            continue
        name = pool.config.name
        found += [
            Orphan(name, path)
            for path in pool.report.orphans
            if conflicts(path, adopted.get(name, ())) is None
        ]
        found += [
            Orphan(name, f"record of {volume}", volume)
            for volume in pool.report.unreadable
            if volume not in volumes
        ]
        for record in pool.report.records.values():
            named = _is_named(pool, record, volumes.get(record.name))
            if record.state != "offered" or record.snapshot_of or record.pod_uid or named:
                continue
            # Without a UID it may be about to be published for its claim. If that is gone, nothing
            # is on its way, and what may hold data is not taken away.
            if record.volume_uid or record.claim_uid not in served:
                path = place_of(record)
                found.append(Orphan(name, path, record.name, record.claim, record.size_bytes))
    return sorted(found, key=lambda one: (one.pool, one.place))


def _is_named(pool: Pool, record: Record, volume: PersistentVolume | None) -> bool:
    """Whether that PersistentVolume of the record's name is the record's own."""
    said = pool_of(volume) if volume is not None else None
    if said is None or record.volume_uid:
        return volume is not None
    # Another pool, or node, may have served the claim meanwhile.
    return said[1] == pool.report.id


def place_of(record: Record) -> str:
    """Where what the record is about lies, below its pool."""
    if record.backend == "lvm":
        return record.name
    return record.directory or f".localvolume/images/{record.name}.img"


def places_of_adopted(
    configs: Sequence[PoolConfig], volumes: Iterable[PersistentVolume]
) -> dict[str, set[str]]:
    """The paths, by the pool's name, of volumes that do not say in which pool they lie."""
    places: dict[str, set[str]] = {}
    for volume in volumes:
        path = relative_place(volume, configs) if pool_of(volume) is None else ""
        if not isinstance(path, str):
            places.setdefault(path[0].name, set()).add(path[1])
    return places
