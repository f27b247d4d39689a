"""Reads from the cluster and this host what the agent decides from about volumes for claims."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from localvolume.cli.planning import pools as planned_pools
from localvolume.config.model import Configuration
from localvolume.config.variables import KUBELET_DIR
from localvolume.dynamic import attributes
from localvolume.dynamic.classes.parameters import facts_of_class
from localvolume.dynamic.inline import pods_of, with_mounts
from localvolume.dynamic.model import AttributesClass, Facts, Origin, Pool, Told
from localvolume.dynamic.origins import Origins
from localvolume.dynamic.plan.attributes import classes_to_ask
from localvolume.dynamic.role import served_by
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere, TellTheAdministrator
from localvolume.kube.kinds import (
    CLAIMS,
    GROUP_CONTENTS,
    PERSISTENT_VOLUMES,
    SNAPSHOT_CONTENTS,
    Kind,
    T,
)
from localvolume.kube.kinds import STORAGE_CLASSES as CLASSES
from localvolume.kube.listing import listed
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.kube.podmounts import PodMounts
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent
from localvolume.snapshots.contents import handles_told
from localvolume.snapshots.plan import handle_coming
from localvolume.volumes import claims, marks
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import is_dynamic
from localvolume.volumes.periods import Moment
from localvolume.volumes.snapshots import group_in_status, handle_in_status, owner_of

_MOUNTS_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What was read. `without` says why patterns have no pool, `unread` why contents are not known.

    `driver`: whether an agent here serves the CSI driver.
    """

    facts: Facts
    without: dict[str, str]
    driver: bool = False
    contents: Sequence[VolumeSnapshotContent] = ()
    groups: Sequence[VolumeGroupSnapshotContent] = ()
    unread: str = ""


def offline(node: NodeFacts, found: Sequence[Pool]) -> Facts:
    """What is known without a cluster."""
    return Facts(
        node=node, provisioners=frozenset(), classes={}, pools=found, claims={}, volumes={}
    )


async def read(
    client: Client, configuration: Configuration, node: NodeFacts, pod: PodMounts | None
) -> Read:
    """Raises ApiError."""
    key = marks.node_key(node.name)
    own = f"{marks.NODE_LABEL}={key}"
    volumes = {
        one.metadata.name: one
        for one in await listed(client, PERSISTENT_VOLUMES, label_selector=own)
        if is_dynamic(one)
    }
    own_claims = {
        f"{one.metadata.namespace}/{one.metadata.name}": one
        for one in await listed(client, CLAIMS, label_selector=own)
    }
    driver = _serves_driver()
    served = served_by(configuration, driver=driver)
    classes, foreign = {}, []
    for found in await listed(client, CLASSES):
        if (one := served.get(found.provisioner)) is None:
            foreign.append(found.metadata.name)
        else:
            classes[found.metadata.name] = facts_of_class(found, one)
    pools, without, refused = await planned_pools.look(configuration, volumes.values(), pod)
    contents, groups, unread = await _contents(client, key) if driver else ([], [], "")
    facts = Facts(
        node=node,
        provisioners=frozenset(served),
        classes=classes,
        refusals={name: one.refusals for name, one in served.items()} | refused,
        foreign_classes=foreign,
        pools=pools,
        claims=own_claims,
        volumes=volumes,
        origins=await _origins(client, key, own_claims.values()) if driver else {},
        now=Moment(time.time(), client.clock.earliest()),
        told=_told(key, contents, groups, unread),
    )
    records = {name: one for pool in pools for name, one in pool.report.records.items()}
    facts = replace(
        facts,
        attributes=await _attributes(client, own_claims.values(), volumes, facts) if driver else {},
        pods_with_mounts=await _with_mounts(pods_of(records.values())),
    )
    return Read(
        facts=facts,
        without=without,
        driver=driver,
        contents=contents,
        groups=groups,
        unread=unread,
    )


def _told(
    key: str,
    contents: Sequence[VolumeSnapshotContent],
    groups: Sequence[VolumeGroupSnapshotContent],
    unread: str,
) -> Told:
    """What the contents say is on this node."""
    handles = handles_told(key, "snapshot", contents, handle_in_status)
    handles |= handles_told(key, "group snapshot", groups, group_in_status)
    coming = handles_told(key, "snapshot", contents, handle_coming)
    return Told(handles=handles, coming=coming, unread=unread)


def _serves_driver() -> bool:
    """Whether an agent of this host is, or was, the CSI driver: its socket stays."""
    directory = KUBELET_DIR.read(os.environ)
    return directory is not None and os.path.exists(
        f"{directory}/plugins/{marks.CSI_DRIVER}/csi.sock"
    )


async def _origins(
    client: Client, node_key: str, own: Collection[PersistentVolumeClaim]
) -> dict[str, Origin]:
    """Whose content the claims ask for that wait for a copy."""
    origins, found = Origins(client, node_key, lambda: None), {}
    for claim in own:
        if claim.spec.volume_name or not claims.is_copy(claim):
            continue
        try:
            found[claim.metadata.uid] = await origins.ask(claim)
        except TellTheAdministrator as error:
            found[claim.metadata.uid] = Origin(problem=str(error))
    return found


async def _attributes(
    client: Client,
    own: Collection[PersistentVolumeClaim],
    volumes: dict[str, PersistentVolume],
    facts: Facts,
) -> dict[str, AttributesClass]:
    records = {name: one for pool in facts.pools for name, one in pool.report.records.items()}
    names = classes_to_ask(own, volumes, records)
    return {name: await attributes.ask(client, name) for name in sorted(names)}


async def _contents(
    client: Client, key: str
) -> tuple[list[VolumeSnapshotContent], list[VolumeGroupSnapshotContent], str]:
    unread: list[str] = []

    async def of(kind: Kind[T]) -> list[T]:
        try:
            return await listed(client, kind)
        except NotThere:
            return []  # the cluster does not have the kind
        except ApiError as error:
            unread.append(f"{kind.plural}: {error}")
            return []

    def may_be_own(one: VolumeSnapshotContent | VolumeGroupSnapshotContent) -> bool:
        return one.spec.driver == marks.CSI_DRIVER and owner_of(one) in ("", key)

    contents = [one for one in await of(SNAPSHOT_CONTENTS) if may_be_own(one)]
    groups = [one for one in await of(GROUP_CONTENTS) if may_be_own(one)]
    return contents, groups, "; ".join(unread)


async def _with_mounts(uids: Collection[str]) -> Collection[str]:
    """Those pods with volumes of their own that have something mounted, or may have."""
    if not uids:
        return ()
    workers = Workers()
    try:
        return await workers.call("mounts of pods", _MOUNTS_SECONDS, with_mounts, uids)
    except (Hung, OSError, ValueError):
        return uids
    finally:
        workers.close()
