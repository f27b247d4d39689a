"""Reads the facts from the API: one paged list per kind, however many objects there are."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from localvolume.cli.seeing import csi
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import (
    CONTENTS,
    CSI_NODES,
    DAEMON_SETS,
    EVENTS,
    NODES,
    CSINode,
    SeenContent,
)
from localvolume.config.flags.controller import DEFAULT_LEASE_NAME
from localvolume.config.flags.table import KUBECONFIG, Flag
from localvolume.kube.access.auth import Access, find_access
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import (
    ATTRIBUTES_CLASSES,
    CLAIMS,
    CSI_DRIVERS,
    GROUP_CONTENTS,
    JOBS,
    LEASES,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Kind,
    T,
)
from localvolume.kube.listing import listed
from localvolume.kube.objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttributesClass,
)
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent
from localvolume.volumes import marks

SELECTOR = "app.kubernetes.io/part-of=local-volume-provisioner"
"""The label that the chart gives to all our objects, whatever the name of the release."""

ACCESS_FLAGS: Final = (
    KUBECONFIG,
    Flag("--context", "NAME", "which context of the kubeconfig"),
    Flag("--selector", "LABELS", "the label of our pods", default=SELECTOR),
    Flag("--release-namespace", "NAME",
         "where it is installed; nothing in another namespace is taken for ours (default: any)",
         default=""),
)  # fmt: skip
"""How the cluster is reached, and how our pods are found in it."""

FORBIDDEN: Final = 403

V = TypeVar("V")
C = TypeVar("C", SeenContent, VolumeGroupSnapshotContent)


def access_of(arguments: argparse.Namespace) -> Access:
    """Raises AccessInvalid."""
    return find_access(arguments.kubeconfig, context=arguments.context)


async def read(
    client: Client, selector: str = SELECTOR, namespace: str = "", *, of_one: bool = False
) -> Facts:
    """Reads all facts; `unknown` has what could not be read, and why.

    Our pods and DaemonSets are those with the label, in one namespace, or in all if it is "".
    Raises ApiError only if nothing at all could be read; with `of_one`, as one object is to be read
    by itself, not even where that is because we have none of the rights to list.
    """
    unknown: dict[str, str] = {}
    errors: dict[str, ApiError] = {}

    async def maybe(what: str, kind: Kind[T], make: Callable[[list[T]], V], **how: Any) -> V | None:
        try:
            return make(await listed(client, kind, **how))
        except ApiError as error:
            errors[what] = error
            unknown[what] = str(error)
            return None

    async def drivers() -> frozenset[str] | None:
        found = set()
        for name in sorted(marks.OURS):
            try:
                await client.get(CSI_DRIVERS, name)
            except NotThere:
                continue
            except ApiError as error:
                unknown["csidrivers"] = str(error)
                return None
            found.add(name)
        return frozenset(found)

    async def if_there(kind: Kind[T]) -> dict[str, T] | None:
        """A kind that the cluster need not have."""
        try:
            return _by_name(await listed(client, kind))
        except NotThere:
            return {}
        except ApiError as error:
            unknown[kind.plural] = str(error)
            return None

    async def ours_of(kind: Kind[C]) -> dict[str, C] | None:
        found = await if_there(kind)
        if found is None:
            return None
        return {n: one for n, one in found.items() if one.spec.driver == marks.CSI_DRIVER}

    async def events(*about: str) -> list[Any] | None:
        parts = await asyncio.gather(
            *(
                maybe("events", EVENTS, list, field_selector=f"involvedObject.kind={one}")
                for one in about
            )
        )
        return None if any(part is None for part in parts) else [e for p in parts if p for e in p]

    ours = marks.NODE_LABEL
    lease = f"metadata.name={DEFAULT_LEASE_NAME}"
    async with asyncio.TaskGroup() as group:
        begin = group.create_task
        nodes = begin(maybe("nodes", NODES, _by_name))
        volumes = begin(maybe("persistentvolumes", PERSISTENT_VOLUMES, _by_name))
        claims = begin(maybe("persistentvolumeclaims", CLAIMS, _by_key))
        classes = begin(maybe("storageclasses", STORAGE_CLASSES, _by_name))
        capacities = begin(
            maybe("csistoragecapacities", STORAGE_CAPACITIES, list, label_selector=ours)
        )
        installed: dict[str, Any] = {"namespace": namespace, "label_selector": selector}
        pods = begin(maybe("pods", PODS, list, **installed))
        sets = begin(maybe("daemonsets", DAEMON_SETS, list, **installed))
        jobs = begin(maybe("jobs", JOBS, list, label_selector=ours))
        leases = begin(maybe("leases", LEASES, list, field_selector=lease))
        seen = begin(events("PersistentVolume", "PersistentVolumeClaim", "Node"))
        has_drivers = begin(drivers())
    if not any(one.result() is not None for one in (nodes, volumes, claims, classes)):
        other = next((error for error in errors.values() if error.status != FORBIDDEN), None)
        if other or not of_one:
            raise other or errors["persistentvolumes"]
    registered, said = None, seen.result()
    snapshots: dict[str, SeenContent] | None = {}
    groups: dict[str, VolumeGroupSnapshotContent] | None = {}
    attributes: dict[str, VolumeAttributesClass] | None = {}
    partly = volumes.result() is None or classes.result() is None
    if partly or csi.in_use((volumes.result() or {}).values(), (classes.result() or {}).values()):
        registered = await maybe("csinodes", CSI_NODES, _registered)
        snapshots = await ours_of(CONTENTS)
        groups = await ours_of(GROUP_CONTENTS)
        there = ((CONTENTS.kind, snapshots), (GROUP_CONTENTS.kind, groups))
        about = [name for name, found in there if found]
        if about and said is not None:
            of_snapshots = await events(*about)
            said = None if of_snapshots is None else [*said, *of_snapshots]
    if any(csi.attributes_class_of(one) for one in (volumes.result() or {}).values()):
        attributes = await if_there(ATTRIBUTES_CLASSES)
    return Facts(
        now=time.time(),
        nodes=nodes.result(),
        volumes=volumes.result(),
        claims=claims.result(),
        classes=classes.result(),
        capacities=capacities.result(),
        pods=pods.result(),
        daemon_sets=sets.result(),
        jobs=jobs.result(),
        leases=leases.result(),
        events=said,
        drivers=has_drivers.result(),
        registered=registered,
        contents=snapshots,
        groups=groups,
        attributes=attributes,
        selector=selector,
        namespace=namespace,
        unknown=dict(sorted(unknown.items())),
    )


async def with_consumers(client: Client, facts: Facts, namespace: str) -> Facts:
    """Adds the pods of a namespace and the Events about them, as far as we may read them.

    Where the Events of the whole cluster may not be read, also those about the namespace's claims.
    """
    about = ["Pod"] if facts.events is not None else ["Pod", "PersistentVolumeClaim"]
    try:
        pods = await listed(client, PODS, namespace)
        events = [
            event
            for kind in about
            for event in await listed(
                client, EVENTS, namespace, field_selector=f"involvedObject.kind={kind}"
            )
        ]
    except ApiError as error:
        return replace(facts, unknown={**facts.unknown, f"pods of {namespace}": str(error)})
    return replace(facts, consumers=pods, events=[*(facts.events or ()), *events])


async def volume_named(client: Client, facts: Facts, name: str) -> PersistentVolume | None:
    """The PersistentVolume, None if there is none. Where we may not list them, it is read alone.

    Raises ApiError if that is not possible either.
    """
    if facts.volumes is not None:
        return facts.volumes.get(name)
    try:
        return await client.get(PERSISTENT_VOLUMES, name)
    except NotThere:
        return None


async def claim_named(
    client: Client, facts: Facts, namespace: str, name: str
) -> PersistentVolumeClaim | None:
    """The claim, as `volume_named`."""
    if facts.claims is not None:
        return facts.claims.get(f"{namespace}/{name}")
    try:
        return await client.get(CLAIMS, name, namespace)
    except NotThere:
        return None


async def with_volume_of(client: Client, facts: Facts, claim: PersistentVolumeClaim) -> Facts:
    """Adds the volume that the claim is bound to, where we may read it but not list them."""
    name = claim.spec.volume_name
    if facts.volumes is not None or not name:
        return facts
    try:
        volume = await volume_named(client, facts, name)
    except ApiError as error:
        return replace(facts, unknown={**facts.unknown, f"persistentvolumes {name}": str(error)})
    return facts if volume is None else replace(facts, alone={name: volume})


def _by_name(items: list[T]) -> dict[str, T]:
    return {item.metadata.name: item for item in items}


def _registered(items: list[CSINode]) -> frozenset[str]:
    return frozenset(
        item.metadata.name
        for item in items
        if any(driver.name == marks.CSI_DRIVER for driver in item.spec.drivers)
    )


def _by_key(items: list[T]) -> dict[str, T]:
    return {key_of(item): item for item in items}
