"""What the controller knows of claims, classes and capacities, and which claims a change concerns.

Both replicas keep this up to date; only the leader listens for changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from localvolume.controller.caches.cluster import Cluster
from localvolume.controller.caches.content import Contents
from localvolume.controller.caches.trimmed import KnownNode, KnownVolume
from localvolume.controller.caches.trimmedclaims import (
    CAPACITIES,
    CLAIMS,
    CLASSES,
    KnownCapacity,
    KnownClaim,
    KnownClass,
)
from localvolume.controller.plan.capacity import Offers, offers_for
from localvolume.controller.plan.copies import Sources
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer, unready
from localvolume.kube.objects import StorageClass
from localvolume.volumes import claims, marks
from localvolume.volumes.capacity import bytes_of


class Listener(Protocol):
    """Routes claims, and is told which ones may now be decided differently."""

    def claims_changed(self, names: Iterable[str]) -> None:
        """These are to be judged again."""

    def capacity_grew(self, class_name: str) -> None:
        """A node has more capacity for the class than before."""

    def node_changed(self, name: str) -> None:
        """A Node came, went, or has other labels or takes pods again."""


class FlexListener(Protocol):
    """Makes and deletes FlexVolume PersistentVolumes, and is told what may be due now."""

    def claims_changed(self, names: Iterable[str]) -> None:
        """These are to be judged again."""

    def volume_changed(self, name: str) -> None:
        """A PersistentVolume came, changed or went."""

    def node_changed(self, name: str) -> None:
        """A Node came, went, or has other labels or takes pods again."""


class Demand:
    """Claims of all namespaces, classes, and the capacities that our agents publish."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._cluster = cluster
        self.claims = Informer(client, CLAIMS, on_change=self._claim_changed)
        self.classes = Informer(client, CLASSES, on_change=self._class_changed)
        self.capacities = Informer(
            client,
            CAPACITIES,
            label_selector=marks.NODE_LABEL,
            on_change=self._capacity_changed,
        )
        self.contents = Contents(client, cluster, self._tell)
        self.listener: Listener | None = None
        self.flex_listener: FlexListener | None = None
        self._by_class: dict[str, dict[str, KnownCapacity]] = {}
        self._offers: dict[str, Offers] = {}
        cluster.on_volume = self._volume_changed
        cluster.on_node = self._node_changed

    async def wait_synced(self) -> None:
        """Wait until everything that judging a claim needs is known."""
        await self._cluster.wait_synced()
        for informer in (self.claims, self.classes, self.capacities):
            await informer.synced.wait()

    def problems(self) -> dict[str, str]:
        """Why the caches are incomplete or refused, by resource; empty if none is."""
        return unready(self.claims, self.classes, self.capacities)

    def offers(self, class_: StorageClass) -> Offers:
        """What nodes have for a class, as of the watches' latest events."""
        name = class_.metadata.name
        found = self._offers.get(name)
        if found is None:
            capacities = self._by_class.get(name, {}).values()
            found = self._offers[name] = offers_for(class_, capacities, self._cluster.nodes_now())
        return found

    def sources(self) -> Sources:
        """Whose content claims may ask for, as of the watches' latest events."""
        return self.contents.sources(self.claims.items)

    # --- what changes --------------------------------------------------------------------------

    def _claim_changed(self, old: KnownClaim | None, new: KnownClaim | None) -> None:
        self._tell([key_of(new or old)])  # type: ignore[arg-type]  # one of them is there
        self.contents.claim_changed(old, new)

    def _class_changed(self, old: KnownClass | None, new: KnownClass | None) -> None:
        name = (new or old).metadata.name  # type: ignore[union-attr]  # one of them is there
        self._offers.pop(name, None)
        if self.listener is not None or self.flex_listener is not None:
            self._tell(self._waiting(name))

    def _waiting(self, class_name: str) -> list[str]:
        """The claims of a class that have no volume yet."""
        return [
            key
            for key, claim in self.claims.items.items()
            if not claim.spec.volume_name and claims.class_of(claim) == class_name
        ]

    def _capacity_changed(self, old: KnownCapacity | None, new: KnownCapacity | None) -> None:
        for thing in (old, new):
            if thing is not None:
                self._offers.pop(thing.storage_class_name, None)
        if new is None:
            if old is not None:
                self._by_class.get(old.storage_class_name, {}).pop(key_of(old), None)
            return
        # The class of a capacity is immutable.
        self._by_class.setdefault(new.storage_class_name, {})[key_of(new)] = new
        before = _sizes(old) if old is not None else (-1, -1)
        if self.listener is not None and _problem(old) != _problem(new):
            self.listener.claims_changed(self._waiting(new.storage_class_name))
        grew = any(now > then for now, then in zip(_sizes(new), before, strict=True))
        if grew and self.listener is not None:
            self.listener.capacity_grew(new.storage_class_name)

    def _volume_changed(self, old: KnownVolume | None, new: KnownVolume | None) -> None:
        """Have its claim judged if their labels differ, whichever of the two is seen first."""
        if self.flex_listener is not None:
            # One of them is there.
            self.flex_listener.volume_changed((new or old).metadata.name)  # type: ignore[union-attr]
        ref = None if new is None else new.spec.claim_ref
        if new is None or ref is None or self.listener is None:
            return
        key = f"{ref.namespace}/{ref.name}"
        self.contents.holder_changed(key)
        claim = self.claims.items.get(key)
        if claim is None or not claim.spec.volume_name:
            return
        label = new.metadata.labels.get(marks.NODE_LABEL)
        if claim.metadata.labels.get(marks.NODE_LABEL) != label:
            self._tell([key])

    def _node_changed(self, old: KnownNode | None, new: KnownNode | None) -> None:
        self._offers.clear()
        name = (new or old).metadata.name  # type: ignore[union-attr]  # one of them is there
        if self.listener is not None:
            self.listener.node_changed(name)
        if self.flex_listener is not None:
            self.flex_listener.node_changed(name)

    def _tell(self, names: Sequence[str]) -> None:
        if self.listener is not None:
            self.listener.claims_changed(names)
        if self.flex_listener is not None:
            self.flex_listener.claims_changed(names)


def _problem(thing: KnownCapacity | None) -> str:
    return "" if thing is None else thing.metadata.annotations.get(marks.PROBLEM_ANNOTATION, "")


def _sizes(thing: KnownCapacity) -> tuple[int, int]:
    return bytes_of(thing.capacity or "") or 0, bytes_of(thing.maximum_volume_size or "") or 0
