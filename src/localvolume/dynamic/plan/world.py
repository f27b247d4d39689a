"""The facts of one plan with their indexes, and the questions that the rules ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from localvolume.backends.capacity import beside, capacity, most_of, price, worth
from localvolume.backends.model import Record, grown_to
from localvolume.dynamic.model import ClassFacts, Facts, Pool
from localvolume.dynamic.plan.paths import relative_place
from localvolume.kube.cache import key_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim, TopologyTerm
from localvolume.volumes import claims, marks
from localvolume.volumes.objects import record_name_of


class Found(NamedTuple):
    """A record, and the pool it lies in."""

    pool: Pool
    record: Record


class World:
    """One moment's facts: built for a plan, asked by its rules, thrown away with it."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.pools = {pool.config.name: pool for pool in facts.pools}
        self.capacity = {
            name: capacity(pool.config, pool.report, pool.beside)
            for name, pool in self.pools.items()
        }
        """Bytes that may still be promised in each pool; what is planned is subtracted at once."""
        self.inline = dict.fromkeys(self.pools, 0)
        """Bytes that this plan has promised to pods' own volumes in each pool."""
        self._taken = dict.fromkeys(self.pools, 0)
        self._records: dict[str, list[Found]] = {}
        self._places: dict[str, set[str]] = {name: set() for name in self.pools}
        self._owned: dict[str, list[tuple[str, str]]] = {name: [] for name in self.pools}
        for pool in facts.pools:
            for record in pool.report.records.values():
                self._records.setdefault(record.name, []).append(Found(pool, record))
                if record.directory and record.state != "removed":
                    self._own(pool, record.directory, record.name)
        for volume in facts.volumes.values():
            # An older provisioner's volume has no record, but nothing may be made in it either.
            place = self.place_of_adopted(volume) if pool_of(volume) is None else ""
            if not isinstance(place, str):
                self._own(*place, volume.metadata.name)
        for name, record in facts.promised:
            self._promise(name, record)
        self._claims = {claim.metadata.uid: claim for claim in facts.claims.values()}
        self._naming: dict[str, list[PersistentVolumeClaim]] = {}
        self._clones: dict[str, list[PersistentVolumeClaim]] = {}
        for claim in facts.claims.values():
            if claim.spec.volume_name:
                self._naming.setdefault(claim.spec.volume_name, []).append(claim)
            elif (source := claims.source_of(claim)) and claims.kind_of_source(source) == "claim":
                named = f"{claim.metadata.namespace}/{source.name}"
                self._clones.setdefault(named, []).append(claim)

    def _own(self, pool: Pool, directory: str, name: str) -> None:
        self._places[pool.config.name].add(directory)
        self._owned[pool.config.name].append((directory, name))

    def _promise(self, pool_name: str, record: Record) -> None:
        pool = self.pools.get(pool_name)
        if pool is None:
            return
        known = pool.report.records.get(record.name)
        has = begun_bytes(pool, record.name) + (most_of(known) if known else 0)
        # Limits other than the size grow with it.
        will = most_of(grown_to(known, record.size_bytes) if known else record)
        self.take(pool_name, max(0, rounded(pool, will) - has), record.directory)

    # --- pools and records ---------------------------------------------------------------------

    def records_of(self, name: str) -> list[Found]:
        """The records of that name; two if a pool was away when it was made (`judge_spares`)."""
        return self._records.get(name, [])

    def all_records(self) -> Iterable[Found]:
        for found in self._records.values():
            yield from found

    def places_in(self, pool: str) -> set[str]:
        """The directories below the pool that volumes have, those planned now included."""
        return self._places[pool]

    def places_of_others(self, pool: str, name: str) -> Iterable[str]:
        """The directories below the pool that volumes of other names have, recorded or not."""
        return (directory for directory, owner in self._owned[pool] if owner != name)

    def take(self, pool: str, size_bytes: int, directory: str = "") -> None:
        """Promise capacity and a directory to a volume of this plan.

        The capacity of all pools on that filesystem shrinks.
        """
        self.capacity[pool] -= size_bytes
        self._taken[pool] += size_bytes
        taken = price(self.pools[pool].config.backend, size_bytes)
        for other in self.pools[pool].beside.names:
            self.capacity[other] -= worth(self.pools[other].config.backend, taken)
        if directory:
            self._places[pool].add(directory)

    def fits(self, pool: Pool, option_class: str) -> int:
        """Bytes of the largest volume that may be promised there: all the capacity, or less.

        What this plan has taken may come out of the largest piece.
        """
        left = self.capacity[pool.config.name]
        largest = pool.report.largest_bytes.get(option_class)
        if largest is None:
            return left
        # Rounded down as claims are rounded up, though an option class may need no stripes.
        largest -= largest % pool.report.unit_bytes
        return min(left, largest - self._taken[pool.config.name])

    # --- objects -------------------------------------------------------------------------------

    def claim_with(self, uid: str) -> PersistentVolumeClaim | None:
        return self._claims.get(uid) if uid else None

    def clones_of(self, claim: PersistentVolumeClaim) -> Sequence[PersistentVolumeClaim]:
        """The claims that wait for a volume with the content of that one's."""
        return self._clones.get(key_of(claim), ())

    def holder_of(self, record: Record) -> PersistentVolumeClaim | None:
        """The claim that is bound to the volume of a record, with or without a PersistentVolume.

        A claim that only asks for the name holds nothing: anybody may write such a claim.
        """
        for claim in self._naming.get(record.name, ()):
            own = claims.volume_name(claim.metadata.uid) == record.name
            if own or claim.status.phase in ("Bound", "Lost"):
                return claim
        return None

    def place_of_adopted(self, volume: PersistentVolume) -> tuple[Pool, str] | str:
        """The pool, and the path below it, of an older provisioner's volume; or why none."""
        place = relative_place(volume, [pool.config for pool in self.facts.pools])
        if isinstance(place, str):
            return place
        config, directory = place
        return self.pools[config.name], directory

    def volumes_of(self, name: str) -> list[PersistentVolume]:
        """The PersistentVolumes that have that name or, of our CSI driver, that handle.

        Another provisioner, or a person, names an object as it likes.
        """
        return [
            volume
            for volume in self.facts.volumes.values()
            if name in (volume.metadata.name, record_name_of(volume))
        ]

    def told_of(self, handle: str, *, snapshot: bool) -> str:
        """What says that this node has the volume, snapshot or group of that handle, or why that is
        not known; "" if nothing says so."""
        if not snapshot:
            names = sorted(one.metadata.name for one in self.volumes_of(handle))
            return f"PersistentVolume {names[0]} is of it" if names else ""
        told = self.facts.told
        if content := told.handles.get(handle):
            return f"{content} is of it"
        return f"it is not known whether a content is of it: {told.unread}" if told.unread else ""

    def awaited(self, snapshot: str) -> str:
        """What the snapshot of that handle is being cut for, or why that is not known; ""."""
        told = self.facts.told
        if content := told.coming.get(snapshot):
            return f"{content} waits for it"
        return (
            f"it is not known whether a content waits for it: {told.unread}" if told.unread else ""
        )

    def class_of(self, claim: PersistentVolumeClaim) -> ClassFacts:
        """The claim's class; call it only after the rule `without_class` returned None."""
        return self.facts.classes[claims.class_of(claim)]

    def is_labelled(self, claim: PersistentVolumeClaim) -> bool:
        """Whether it is routed here: one that was given back is still known for a moment."""
        return claim.metadata.labels.get(marks.NODE_LABEL) == marks.node_key(self.facts.node.name)

    def for_this_node(self, claim: PersistentVolumeClaim, *, immediate: bool) -> bool:
        """Whether this node is to serve the claim: for Immediate, the label alone says so."""
        node = self.facts.node.name
        if not self.is_labelled(claim):
            return False
        selected = claims.selected_node(claim)
        return selected == node or (immediate and not selected)

    def allows(self, topologies: Iterable[TopologyTerm]) -> bool:
        """Whether a class's allowedTopologies include this node; an empty list includes all nodes.

        A term without requirements matches no node (storage/v1, TopologySelectorTerm).
        """
        terms = list(topologies)
        labels = self.facts.node.labels
        return not terms or any(
            term.match_label_expressions
            and all(labels.get(one.key) in one.values for one in term.match_label_expressions)
            for term in terms
        )


def pool_of(volume: PersistentVolume) -> tuple[str, str] | None:
    """The name and id of the pool that the volume says it lies in; None if it does not say."""
    text = volume.metadata.annotations.get(marks.POOL_ANNOTATION)
    if text is None:
        return None
    name, _, pool_id = text.rpartition("/")
    return name, pool_id


def with_neighbours(pools: Sequence[Pool]) -> list[Pool]:
    """The same pools, each with what the others on its filesystem do to its capacity."""
    return [
        replace(pool, beside=beside((one.config, one.report) for one in _others(pool, pools)))
        for pool in pools
    ]


def _others(pool: Pool, pools: Sequence[Pool]) -> list[Pool]:
    where = pool.report.filesystem
    return [one for one in pools if where and one is not pool and one.report.filesystem == where]


def rounded(pool: Pool, size_bytes: int) -> int:
    """What a volume of that size takes in the pool: whole extents of a volume group."""
    return -(-size_bytes // pool.report.unit_bytes) * pool.report.unit_bytes


def begun_bytes(pool: Pool, name: str) -> int:
    """Bytes that the pool's capacity already lacks for a growth that is not on record yet."""
    if pool.config.backend == "image" and pool.config.overbook > 1:
        return 0  # what images may still come to take is not subtracted there
    usage = pool.report.usage.get(name)
    return usage.begun_bytes if usage is not None else 0


def mode_of(claim: PersistentVolumeClaim) -> Literal["Filesystem", "Block"]:
    return "Block" if claim.spec.volume_mode == "Block" else "Filesystem"
