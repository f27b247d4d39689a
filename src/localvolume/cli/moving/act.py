"""Reads the facts of one volume that is to be moved to our CSI driver, and does one step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from localvolume.cli.moving.model import (
    Facts,
    Former,
    Step,
    claim_uid_of,
    policy_of,
    replacement,
)
from localvolume.cli.seeing.kinds import CSI_NODES
from localvolume.kube.client import Client, JsonPatch, MergePatch
from localvolume.kube.errors import LookAgain, NotThere
from localvolume.kube.kinds import CLAIMS, CONFIG_MAPS, NAMESPACES, PERSISTENT_VOLUMES, PODS
from localvolume.kube.listing import listed
from localvolume.kube.objects import Meta, PersistentVolume, PersistentVolumeClaim
from localvolume.kube.workloads import Pod
from localvolume.volumes import marks

_KEY: Final = "persistentvolume.json"
_ENDED: Final = frozenset({"Succeeded", "Failed"})

_decode: Final = msgspec.json.Decoder(PersistentVolume).decode


class Unreadable(Exception):
    """What was kept of a volume is not what this command wrote."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that is asked; `namespace` is where objects are kept meanwhile."""

    client: Client
    namespace: str

    async def has_namespace(self) -> bool:
        try:
            await self.client.get(NAMESPACES, self.namespace)
        except NotThere:
            return False
        return True

    async def serving(self) -> frozenset[str]:
        """The keys of the nodes whose kubelets know the driver."""
        found = await listed(self.client, CSI_NODES)
        return frozenset(
            marks.node_key(one.metadata.name)
            for one in found
            if any(driver.name == marks.CSI_DRIVER for driver in one.spec.drivers)
        )

    async def look(self, name: str, serving: frozenset[str]) -> Facts:
        """Raises ApiError, Unreadable."""
        volume = await self._volume(name)
        facts = Facts(name=name, volume=volume, former=await self._kept(name), serving=serving)
        seen = volume or (facts.former.seen if facts.former else None)
        ref = seen.spec.claim_ref if seen else None
        if ref is None:
            return facts
        try:
            claim = await self.client.get(CLAIMS, ref.name, ref.namespace)
        except NotThere:
            return facts
        if claim.metadata.uid != claim_uid_of(facts):
            return facts
        pods = await listed(self.client, PODS, claim.metadata.namespace)
        return Facts(
            name=name,
            volume=volume,
            former=facts.former,
            claim=claim,
            pods=tuple(_users(claim, pods)),
            serving=serving,
        )

    async def do(self, facts: Facts, step: Step) -> None:
        """Do one step that changes something. Raises ApiError."""
        volume = facts.volume
        match step.kind:
            case "keep" if volume is not None:
                await self._keep(volume, facts.former)
            case "retain" if volume is not None:
                retain = MergePatch(
                    {
                        "metadata": {
                            **_version_of(volume.metadata),
                            "annotations": {marks.MOVING_ANNOTATION: policy_of(volume)},
                        },
                        "spec": {"persistentVolumeReclaimPolicy": "Retain"},
                    }
                )
                await self.client.patch(PERSISTENT_VOLUMES, facts.name, retain)
            case "delete" if volume is not None:
                await self.client.delete(
                    PERSISTENT_VOLUMES,
                    facts.name,
                    uid=volume.metadata.uid,
                    resource_version=volume.metadata.resource_version,
                )
            case "let go" if volume is not None:
                await self.client.patch(PERSISTENT_VOLUMES, facts.name, _without_any(volume))
            case "create" if facts.former is not None:
                body = replacement(facts.former, step.policy)
                await self.client.create(PERSISTENT_VOLUMES, body)
            case "forget":
                await self._forget(facts.name)

    async def _volume(self, name: str) -> PersistentVolume | None:
        try:
            return await self.client.get(PERSISTENT_VOLUMES, name)
        except NotThere:
            return None

    async def _keep(self, volume: PersistentVolume, former: Former | None) -> None:
        """With all its fields, as it is now.

        In one write, also over what was written before: the object may be on its way out, and then
        at no time may there be nothing to make it anew from.
        """
        path, name = PERSISTENT_VOLUMES.path(name=volume.metadata.name), volume.metadata.name
        body = (await self.client.read(PERSISTENT_VOLUMES, path)).decode()
        if _decode(body).metadata.uid != volume.metadata.uid:
            raise LookAgain(f"{name} is another object by now")
        data = {_KEY: body}
        if former is None:
            kept = {"metadata": {"name": _map_of(name)}, "data": data}
            await self.client.create(CONFIG_MAPS, kept, self.namespace)
            return
        over = MergePatch({"metadata": _version_of(former.note), "data": data})
        await self.client.patch(CONFIG_MAPS, _map_of(name), over, self.namespace)

    async def _kept(self, name: str) -> Former | None:
        try:
            kept = await self.client.get(CONFIG_MAPS, _map_of(name), self.namespace)
        except NotThere:
            return None
        text = kept.data.get(_KEY, "")
        try:
            seen, body = _decode(text), msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            where = f"ConfigMap {self.namespace}/{_map_of(name)}"
            raise Unreadable(f"{where} has no PersistentVolume in it: {error}") from error
        return Former(seen, body, kept.metadata)

    async def _forget(self, name: str) -> None:
        kept = await self.client.get(CONFIG_MAPS, _map_of(name), self.namespace)
        await self.client.delete(CONFIG_MAPS, _map_of(name), self.namespace, uid=kept.metadata.uid)


def _map_of(name: str) -> str:
    return f"localvolume-move-{name}"


def _version_of(meta: Meta) -> dict[str, str]:
    return {"uid": meta.uid, "resourceVersion": meta.resource_version}


def _without_any(volume: PersistentVolume) -> JsonPatch:
    """Takes all finalizers off the very object that was seen: it goes at once."""
    tests = [
        {"op": "test", "path": f"/metadata/{key}", "value": value}
        for key, value in _version_of(volume.metadata).items()
    ]
    return JsonPatch([*tests, {"op": "remove", "path": "/metadata/finalizers"}])


def _users(claim: PersistentVolumeClaim, pods: Iterable[Pod]) -> list[str]:
    """The pods that use the claim, or would as soon as they start."""
    return sorted(
        pod.metadata.name
        for pod in pods
        if pod.status.phase not in _ENDED and claim.metadata.name in _claims_of(pod)
    )


def _claims_of(pod: Pod) -> set[str]:
    return {
        volume.persistent_volume_claim.claim_name
        if volume.persistent_volume_claim
        else f"{pod.metadata.name}-{volume.name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim or volume.ephemeral
    }
