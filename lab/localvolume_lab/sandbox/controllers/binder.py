"""The volume controller: phases of volumes, and binding of claims to them.

After pkg/controller/volume/persistentvolume/pv_controller.go: the same four writes in the same
order (claimRef, volume phase, volumeName, claim status), the same annotations and events.

Simplified: an event that the real controller repeats every 15 seconds is said once; of provisioning
there is what asks for it (the annotations of the claim, the event), and of growing the event of the
expand controller, as with every provisioner outside of the cluster; and of reclaiming there is
only its refusal: `Delete` without `pv.kubernetes.io/provisioned-by` fails the volume, as the real
controller does with a plugin that cannot delete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.controllers import matching
from localvolume_lab.sandbox.controllers.recorder import Recorder
from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Resource,
)
from localvolume_lab.sandbox.rules import growth
from localvolume_lab.sandbox.store import Body, Change

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: the annotations that ask a provisioner for a volume
ASKED = (
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-provisioner",
)


class Binder:
    """Keeps volumes and claims together."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._store = api.store
        self._events = Recorder(api, "persistentvolume-controller")
        self._growth = Recorder(api, "volume_expand")

    def look(self, resource: Resource, change: Change) -> None:
        """Sync what a change may concern."""
        namespace, name = change.key
        if resource is PERSISTENT_VOLUMES:
            self._sync_volume(name)
            self._sync_claims_of(change.new.body)
        elif resource is CLAIMS:
            self._sync_claim(namespace, name)
            for volume in self._volumes_of(namespace, name, change.new.body):
                self._sync_volume(volume)
        elif resource is STORAGE_CLASSES and change.type != "DELETED":
            for claim in list(self._store[CLAIMS]):
                if matching.class_of(claim.body) == name:
                    self._sync_claim(*_key(claim.body))

    # What belongs to what

    def _volumes_of(self, namespace: str, name: str, claim: Body) -> list[str]:
        named = claim["spec"].get("volumeName")
        if named:
            return [named]
        return [
            volume.body["metadata"]["name"]
            for volume in self._store[PERSISTENT_VOLUMES]
            if (reference := volume.body["spec"].get("claimRef"))
            and (reference.get("namespace"), reference.get("name")) == (namespace, name)
        ]

    def _sync_claims_of(self, volume: Body) -> None:
        """The claim a volume names, or else the pending ones it might suit."""
        reference = volume["spec"].get("claimRef")
        if reference:
            self._sync_claim(reference.get("namespace", ""), reference.get("name", ""))
            return
        name = volume["metadata"]["name"]
        for claim in list(self._store[CLAIMS]):
            spec = claim.body["spec"]
            waiting = claim.body["status"].get("phase") == "Pending"
            if spec.get("volumeName") == name or (
                waiting and matching.class_of(claim.body) == matching.class_of(volume)
            ):
                self._sync_claim(*_key(claim.body))

    def _volume(self, name: str) -> Body | None:
        found = self._store.find(PERSISTENT_VOLUMES, name)
        return found.body if found else None

    def _claim(self, namespace: str, name: str) -> Body | None:
        found = self._store.find(CLAIMS, name, namespace)
        return found.body if found else None

    # Volumes

    def _sync_volume(self, name: str) -> None:
        volume = self._volume(name)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef")
        if not reference or not reference.get("uid"):
            self._set_phase(volume, "Available")
            return
        claim = self._claim(reference.get("namespace", ""), reference.get("name", ""))
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            self._release(volume)
        elif claim["spec"].get("volumeName") == name:
            self._set_phase(volume, "Bound")
        elif claim["spec"].get("volumeName"):
            self._unbind(volume)

    def _release(self, volume: Body) -> None:
        if volume["status"].get("phase") not in {"Released", "Failed"}:
            volume = self._set_phase(volume, "Released")
        policy = volume["spec"]["persistentVolumeReclaimPolicy"]
        annotations = volume["metadata"].get("annotations", {})
        if (
            policy == "Retain"
            or "deletionTimestamp" in volume["metadata"]
            or volume["status"]["phase"] == "Failed"
            or (policy == "Delete" and annotations.get(PROVISIONED_BY))
        ):
            return
        name = volume["metadata"]["name"]
        if policy == "Delete":
            why = (
                f'error getting deleter volume plugin for volume "{name}": '
                "no deletable volume plugin matched"
            )
            reason = "VolumeFailedDelete"
        else:
            why = f'no recyclable volume plugin found for volume: "{name}"'
            reason = "VolumeFailedRecycle"
        self._set_phase(volume, "Failed", message=why)
        self._events.record(volume, "Warning", reason, why)

    def _unbind(self, volume: Body) -> None:
        """Its claim went with another volume."""

        def change(old: Body) -> Body:
            spec, meta = dict(old["spec"]), dict(old["metadata"])
            annotations = dict(meta.get("annotations", {}))
            if annotations.pop(BOUND_BY_CONTROLLER, None):
                spec.pop("claimRef")
            else:
                spec["claimRef"] = {
                    key: value for key, value in spec["claimRef"].items() if key != "uid"
                }
            meta["annotations"] = annotations
            return {**old, "metadata": meta, "spec": spec}

        name = volume["metadata"]["name"]
        self._api.modify(PERSISTENT_VOLUMES, name, change)

    def _set_phase(self, volume: Body, phase: str, *, message: str = "") -> Body:
        if volume["status"].get("phase") == phase:
            return volume
        status = {"phase": phase, **({"message": message} if message else {})}
        return self._api.modify(
            PERSISTENT_VOLUMES,
            volume["metadata"]["name"],
            lambda old: {**old, "status": status},
            subresource="status",
        )

    # Claims

    def _sync_claim(self, namespace: str, name: str) -> None:
        claim = self._claim(namespace, name)
        if claim is None:
            return
        if BIND_COMPLETED in claim["metadata"].get("annotations", {}):
            self._sync_bound(claim)
        elif claim["spec"].get("volumeName"):
            self._sync_prebound(claim)
        elif "deletionTimestamp" not in claim["metadata"]:
            self._sync_pending(claim)

    def _sync_bound(self, claim: Body) -> None:
        volume = self._volume(claim["spec"].get("volumeName", ""))
        if volume is None:
            self._lose(
                claim,
                "ClaimLost",
                "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
            )
        elif volume["spec"].get("claimRef") is None or matching.is_for(volume, claim):
            self._bind(volume, claim)
            if claim["status"].get("phase") == "Bound" and growth.outgrown(claim):
                message = "waiting for an external controller to expand this PVC"
                self._growth.record_once(claim, "Normal", "ExternalExpanding", message)
        else:
            self._lose(
                claim,
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            )

    def _lose(self, claim: Body, reason: str, message: str) -> None:
        if claim["status"].get("phase") == "Lost":
            return
        namespace, name = _key(claim)
        self._api.modify(
            CLAIMS,
            name,
            lambda old: {**old, "status": {"phase": "Lost"}},
            namespace,
            subresource="status",
        )
        self._events.record(claim, "Warning", reason, message)

    def _sync_prebound(self, claim: Body) -> None:
        volume = self._volume(claim["spec"]["volumeName"])
        if volume is None or "deletionTimestamp" in claim["metadata"]:
            return
        if matching.is_for(volume, claim):
            self._bind(volume, claim)
        elif volume["spec"].get("claimRef"):
            name = volume["metadata"]["name"]
            message = f'volume "{name}" already bound to a different claim.'
            self._events.record(claim, "Warning", "FailedBinding", message)
        elif matching.satisfies(volume, claim):
            self._bind(volume, claim)
        else:
            name = volume["metadata"]["name"]
            message = f'Cannot bind to requested volume "{name}": it does not suit the claim'
            self._events.record(claim, "Warning", "VolumeMismatch", message)

    def _sync_pending(self, claim: Body) -> None:
        class_name = matching.class_of(claim)
        found = self._store.find(STORAGE_CLASSES, class_name)
        storage_class = found.body if found else None
        waits = bool(storage_class) and (storage_class or {})["volumeBindingMode"] == (
            "WaitForFirstConsumer"
        )
        selected = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
        node = self._store.find(NODES, selected) if selected else None
        volume = matching.best_volume(
            [version.body for version in self._store[PERSISTENT_VOLUMES]],
            claim,
            node=node.body if node else None,
            only_prebound=waits and not selected,
        )
        if volume is not None:
            self._bind(volume, claim)
        elif waits and not selected:
            message = "waiting for first consumer to be created before binding"
            self._events.record_once(claim, "Normal", "WaitForFirstConsumer", message)
        elif storage_class is not None:
            self._ask(claim, storage_class["provisioner"])
        elif class_name:
            message = f'storageclass.storage.k8s.io "{class_name}" not found'
            self._events.record_once(claim, "Warning", "ProvisioningFailed", message)
        else:
            message = "no persistent volumes available for this claim and no storage class is set"
            self._events.record_once(claim, "Normal", "FailedBinding", message)

    def _ask(self, claim: Body, provisioner: str) -> None:
        """Have a volume made."""
        if provisioner.startswith("kubernetes.io/"):
            message = f"no volume plugin matched name: {provisioner}"
            self._events.record_once(claim, "Warning", "ProvisioningFailed", message)
            return
        namespace, name = _key(claim)
        wanted = dict.fromkeys(ASKED, provisioner)
        claim = self._api.modify(
            CLAIMS, name, lambda old: {**old, "metadata": _annotated(old, wanted)}, namespace
        )
        message = (
            "Waiting for a volume to be created either by the external provisioner "
            f"'{provisioner}' or manually by the system administrator. If volume creation is "
            "delayed, please verify that the provisioner is running and correctly registered."
        )
        self._events.record_once(claim, "Normal", "ExternalProvisioning", message)

    # Both

    def _bind(self, volume: Body, claim: Body) -> None:
        """The four writes; each is left out where it has been made already."""
        volume = self._api.modify(
            PERSISTENT_VOLUMES, volume["metadata"]["name"], _with_claim(claim)
        )
        volume = self._set_phase(volume, "Bound")
        namespace, name = _key(claim)
        claim = self._api.modify(CLAIMS, name, _with_volume(volume), namespace)
        capacity = volume["spec"].get("capacity", {})
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes", []),
            "capacity": capacity,
        }
        if claim["status"].get("phase") != "Bound":
            self._api.modify(
                CLAIMS,
                name,
                lambda old: {**old, "status": {**old["status"], **status}},
                namespace,
                subresource="status",
            )


def _key(body: Body) -> tuple[str, str]:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _annotated(body: Body, annotations: dict[str, str]) -> Body:
    meta = body["metadata"]
    return {**meta, "annotations": {**meta.get("annotations", {}), **annotations}}


def _with_claim(claim: Body) -> Callable[[Body], Body]:
    def change(volume: Body) -> Body:
        reference = volume["spec"].get("claimRef")
        if reference and reference.get("uid") == claim["metadata"]["uid"]:
            return volume
        meta = claim["metadata"]
        wanted: dict[str, Any] = {
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "apiVersion": "v1",
            "resourceVersion": meta["resourceVersion"],
        }
        changed = {**volume, "spec": {**volume["spec"], "claimRef": wanted}}
        if not reference:
            changed["metadata"] = _annotated(volume, {BOUND_BY_CONTROLLER: "yes"})
        return changed

    return change


def _with_volume(volume: Body) -> Callable[[Body], Body]:
    def change(claim: Body) -> Body:
        annotations = {BIND_COMPLETED: "yes"}
        if not claim["spec"].get("volumeName"):
            annotations[BOUND_BY_CONTROLLER] = "yes"
        return {
            **claim,
            "metadata": _annotated(claim, annotations),
            "spec": {**claim["spec"], "volumeName": volume["metadata"]["name"]},
        }

    return change
