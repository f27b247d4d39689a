"""Reads whole objects and logs for a support bundle, and notes why a part could not be read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from localvolume.cli.seeing import csi
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import CONTENTS, CSI_NODES, DAEMON_SETS, EVENTS, NODES
from localvolume.config.flags.controller import DEFAULT_LEASE_NAME
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import (
    ATTRIBUTES_CLASSES,
    CLAIMS,
    CONFIG_MAPS,
    CSI_DRIVERS,
    GROUP_CLASSES,
    GROUP_CONTENTS,
    JOBS,
    LEASES,
    PERSISTENT_VOLUMES,
    PODS,
    SNAPSHOT_CLASSES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Kind,
)
from localvolume.kube.objects import KubeObject
from localvolume.volumes import marks

DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", True, KubeObject)

_OF_DRIVERS: Final[tuple[Kind[Any], ...]] = (
    CONTENTS,
    SNAPSHOT_CLASSES,
    GROUP_CONTENTS,
    GROUP_CLASSES,
    ATTRIBUTES_CLASSES,
)
"""Each object says which CSI driver it is for; a cluster need not have these kinds."""

LOG_BYTES: Final = 4 << 20
"""The most that is taken of one container's log."""

ALL_LOG_BYTES: Final = 128 << 20
"""The most that is taken of all logs together."""

Object = dict[str, Any]


class Reader:
    """`unread` says what could not be read, and why."""

    def __init__(self, client: Client, facts: Facts) -> None:
        self._client = client
        self._facts = facts
        self.unread: dict[str, str] = dict(facts.unknown)

    async def objects(self) -> AsyncIterator[tuple[str, list[Object]]]:
        """Our objects, by the plural of their kind. Secrets are never asked for."""
        facts, ours, there = self._facts, self._facts.selector, self._facts.namespace
        of_node = marks.NODE_LABEL
        volumes = {one.metadata.name for one in facts.ours}
        held = {(r.namespace, r.name) for one in facts.ours if (r := one.spec.claim_ref)}
        with_csi = csi.in_use((facts.volumes or {}).values(), (facts.classes or {}).values())
        contents: set[tuple[str, str]] = set()
        asked: tuple[tuple[Kind[Any], str, str, str], ...] = (
            (PERSISTENT_VOLUMES, "", "", ""),
            (CLAIMS, "", "", ""),
            (STORAGE_CLASSES, "", "", ""),
            (CSI_DRIVERS, "", "", ""),
            (NODES, "", "", ""),
            (CSI_NODES, "", "", ""),
            *((one, "", "", "") for one in _OF_DRIVERS),
            (STORAGE_CAPACITIES, "", of_node, ""),
            (PODS, there, ours, ""),
            (DAEMON_SETS, there, ours, ""),
            (DEPLOYMENTS, there, ours, ""),
            (CONFIG_MAPS, there, ours, ""),
            (LEASES, "", "", f"metadata.name={DEFAULT_LEASE_NAME}"),
            (JOBS, "", of_node, ""),
        )
        for kind, namespace, selector, fields in asked:
            if kind is CSI_NODES and facts.registered is None:
                continue  # nothing uses our driver, or they could not be read before either
            if kind in _OF_DRIVERS and not with_csi:
                continue
            found = await self._all(kind, namespace, selector, fields)
            if found is None:
                continue
            if kind in _OF_DRIVERS:
                found = [one for one in found if _driver_of(one) == marks.CSI_DRIVER]
            if kind in (CONTENTS, GROUP_CONTENTS):
                contents |= {(kind.kind, _name(one)) for one in found}
            if kind is PERSISTENT_VOLUMES:
                found = [one for one in found if _name(one) in volumes]
            if kind is CLAIMS:
                found = [one for one in found if self._is_of_ours(one, held)]
            if kind is CSI_DRIVERS:
                found = [one for one in found if _name(one) in marks.OURS]
            if kind is STORAGE_CLASSES:
                found = [one for one in found if facts.is_our_class(_name(one))]
            yield kind.plural, found
        yield "events", await self._events(volumes, held, contents)

    def _is_of_ours(self, claim: Object, held: set[tuple[str, str]]) -> bool:
        meta, spec = claim["metadata"], claim.get("spec") or {}
        if (meta["namespace"], meta["name"]) in held:
            return True
        return self._facts.is_our_class(spec.get("storageClassName") or "")

    async def _events(
        self, volumes: set[str], held: set[tuple[str, str]], contents: set[tuple[str, str]]
    ) -> list[Object]:
        """Events about our volumes, claims, pods and contents of snapshots, and those that we
        wrote."""
        facts = self._facts
        claims = held | {
            (one.metadata.namespace, one.metadata.name)
            for one in (facts.claims or {}).values()
            if facts.is_our_class(one.spec.storage_class_name or "")
        }
        pods = {(one.metadata.namespace, one.metadata.name) for one in facts.pods or ()}
        found = []
        for one in await self._all(EVENTS, "", "", "") or ():
            about = one.get("involvedObject") or {}
            place = (about.get("namespace", ""), about.get("name", ""))
            said = (one.get("source") or {}).get("component", "")
            kind = about.get("kind")
            if (
                (kind == "PersistentVolume" and place[1] in volumes)
                or (kind == "PersistentVolumeClaim" and place in claims)
                or (kind == "Pod" and place in pods)
                or (kind, place[1]) in contents
                or said.startswith(("localvolume", "local-volume-provisioner"))
            ):
                found.append(one)
        return found

    async def _all(
        self, kind: Kind[Any], namespace: str, selector: str, fields: str
    ) -> list[Object] | None:
        found: list[Object] = []
        cont = ""
        try:
            while True:
                query = {"limit": "500", "labelSelector": selector, "fieldSelector": fields}
                words = urlencode({k: v for k, v in {**query, "continue": cont}.items() if v})
                page = json.loads(await self._client.read(kind, f"{kind.path(namespace)}?{words}"))
                found += page.get("items") or []
                cont = (page.get("metadata") or {}).get("continue") or ""
                if not cont:
                    return found
        except (ApiError, ValueError) as error:
            # Without the kind there is nothing that was not read.
            if not (isinstance(error, NotThere) and kind in _OF_DRIVERS):
                self.unread[kind.plural] = str(error)
            return None

    async def version(self) -> Any:
        try:
            return json.loads(await self._client.read(NODES, "/version"))
        except (ApiError, ValueError) as error:
            self.unread["/version"] = str(error)
            return None

    async def logs(
        self, pods: list[Object], since_seconds: int, node: str
    ) -> AsyncIterator[tuple[str, str]]:
        """Yields `<namespace>/<pod>/<container>` and its log, and the log from before a restart."""
        left = ALL_LOG_BYTES
        for pod in pods:
            if node and (pod.get("spec") or {}).get("nodeName") != node:
                continue
            meta = pod["metadata"]
            for container, previous in _containers(pod):
                name = f"{meta['namespace']}/{meta['name']}/{container}"
                name += ".previous" if previous else ""
                if left <= 0:
                    self.unread[f"logs of {name}"] = f"more than {ALL_LOG_BYTES} bytes in all"
                    continue
                query = {
                    "container": container,
                    "sinceSeconds": str(since_seconds),
                    "limitBytes": str(min(LOG_BYTES, left)),
                    "timestamps": "true",
                    **({"previous": "true"} if previous else {}),
                }
                path = PODS.path(meta["namespace"], meta["name"], "log")
                try:
                    text = await self._client.read(PODS, f"{path}?{urlencode(query)}")
                except ApiError as error:
                    self.unread[f"logs of {name}"] = str(error)
                    continue
                left -= len(text)
                yield name, text.decode(errors="backslashreplace")


def _containers(pod: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """The containers that have a log, each with whether it is the one before a restart."""
    status = pod.get("status") or {}
    found = []
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(key) or ():
            found.append((one["name"], False))
            if one.get("restartCount"):
                found.append((one["name"], True))
    return found


def _driver_of(thing: Object) -> str:
    """The driver that it is for: contents say so in their spec, classes beside it."""
    named = (thing.get("spec") or {}).get("driver")
    return str(named or thing.get("driver") or thing.get("driverName") or "")


def _name(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"]["name"])
