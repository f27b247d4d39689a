"""Scheduler, kubelets and node taints, in miniature: enough for pods with claims to run.

A pod without a node goes to the first node (by name) that takes it and reaches its volumes. For a
claim that waits for its first consumer a volume of that node is picked and given a claimRef, as the
real scheduler does; the binder does the rest. Resources, spreading, priorities and preemption are
not looked at. A pod on an existing node runs as soon as its claims are bound, and is gone as soon
as it is deleted: there are no containers. The not-ready taint every new node gets is taken off
when its Ready condition is True, and put back when it is not.
"""

from __future__ import annotations

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.clock import timestamp
from localvolume_lab.sandbox.controllers import matching
from localvolume_lab.sandbox.controllers.protection import claims_of
from localvolume_lab.sandbox.controllers.recorder import Recorder
from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    Resource,
)
from localvolume_lab.sandbox.rules.deleting import DeleteOptions
from localvolume_lab.sandbox.store import Body, Change

_NOT_READY = "node.kubernetes.io/not-ready"


class Nodes:
    """The scheduler and all kubelets."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._store = api.store
        self._events = Recorder(api, "default-scheduler")

    def look(self, resource: Resource, change: Change) -> None:
        """Sync what a change may concern."""
        if resource is NODES and change.type != "DELETED":
            self._sync_taint(change.key[1])
        if resource is PODS:
            self._sync_pod(*change.key)
        elif resource in {NODES, PERSISTENT_VOLUMES, CLAIMS, STORAGE_CLASSES}:
            for pod in list(self._store[PODS]):
                if pod.body["status"].get("phase") == "Pending":
                    meta = pod.body["metadata"]
                    self._sync_pod(meta["namespace"], meta["name"])

    def _sync_taint(self, name: str) -> None:
        found = self._store.find(NODES, name)
        if found is None:
            return
        body = found.body
        conditions = {c["type"]: c.get("status") for c in body["status"].get("conditions", [])}
        if "Ready" not in conditions:
            return
        taints = body.get("spec", {}).get("taints", [])
        others = [taint for taint in taints if taint.get("key") != _NOT_READY]
        wanted = others
        if conditions["Ready"] != "True":
            wanted = [*others, {"key": _NOT_READY, "effect": "NoSchedule"}]
        if wanted != taints:
            self._api.modify(
                NODES, name, lambda old: {**old, "spec": {**old["spec"], "taints": wanted}}
            )

    def _sync_pod(self, namespace: str, name: str) -> None:
        found = self._store.find(PODS, name, namespace)
        if found is None:
            return
        pod = found.body
        if not pod["spec"].get("nodeName"):
            if "deletionTimestamp" not in pod["metadata"]:
                self._schedule(pod)
        elif self._store.find(NODES, pod["spec"]["nodeName"]) is not None:
            self._run(pod)

    # The scheduler

    def _schedule(self, pod: Body) -> None:
        claims = self._claims(pod)
        if claims is None:
            message = "0 nodes are available: a persistentvolumeclaim of the pod was not found."
            self._events.record_once(pod, "Warning", "FailedScheduling", message)
            return
        for node in self._store[NODES]:
            if not matching.node_takes_pod(node.body, pod):
                continue
            picked = self._volumes_on(node.body, claims)
            if picked is None:
                continue
            for claim, volume in picked:
                self._reserve(volume, claim)
            if not picked:
                self._place(pod, node.body["metadata"]["name"])
            return  # otherwise the binding of the claims wakes us again
        count = len(self._store[NODES].items)
        message = f"0/{count} nodes are available: none suits the pod and its volumes."
        self._events.record_once(pod, "Warning", "FailedScheduling", message)

    def _claims(self, pod: Body) -> list[Body] | None:
        """The pod's claims; None if one is missing or going."""
        found = []
        for name in claims_of(pod):
            claim = self._store.find(CLAIMS, name, pod["metadata"]["namespace"])
            if claim is None or "deletionTimestamp" in claim.body["metadata"]:
                return None
            found.append(claim.body)
        return found

    def _volumes_on(self, node: Body, claims: list[Body]) -> list[tuple[Body, Body]] | None:
        """(claim, volume) still to be tied together for the pod to run here; None if it cannot."""
        picked: list[tuple[Body, Body]] = []
        volumes = [version.body for version in self._store[PERSISTENT_VOLUMES]]
        for claim in claims:
            if claim["status"].get("phase") == "Bound":
                bound = self._store.find(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
                if bound is None or not matching.node_suits_volume(node, bound.body):
                    return None
                continue
            storage_class = self._store.find(STORAGE_CLASSES, matching.class_of(claim))
            if storage_class is None or storage_class.body["volumeBindingMode"] == "Immediate":
                return None
            taken = {volume["metadata"]["name"] for _, volume in picked}
            left = [volume for volume in volumes if volume["metadata"]["name"] not in taken]
            volume = matching.best_volume(left, claim, node=node)
            if volume is None:
                return None
            picked.append((claim, volume))
        return picked

    def _reserve(self, volume: Body, claim: Body) -> None:
        meta = claim["metadata"]
        reference = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"],
        }

        def change(old: Body) -> Body:
            if old["spec"].get("claimRef"):
                return old
            annotations = old["metadata"].get("annotations", {})
            by_us = {**annotations, "pv.kubernetes.io/bound-by-controller": "yes"}
            return {
                **old,
                "metadata": {**old["metadata"], "annotations": by_us},
                "spec": {**old["spec"], "claimRef": reference},
            }

        self._api.modify(PERSISTENT_VOLUMES, volume["metadata"]["name"], change)

    def _place(self, pod: Body, node: str) -> None:
        meta = pod["metadata"]
        self._api.modify(
            PODS,
            meta["name"],
            lambda old: {**old, "spec": {**old["spec"], "nodeName": node}},
            meta["namespace"],
        )
        message = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._events.record(pod, "Normal", "Scheduled", message)

    # The kubelet

    def _run(self, pod: Body) -> None:
        meta = pod["metadata"]
        if "deletionTimestamp" in meta:
            options = DeleteOptions(grace_period_seconds=0)
            self._api.delete(PODS, meta["name"], meta["namespace"], options)
            return
        claims = self._claims(pod) or []
        if pod["status"].get("phase") != "Pending" or len(claims) < len(claims_of(pod)):
            return
        if any(claim["status"].get("phase") != "Bound" for claim in claims):
            return
        now = timestamp()
        status = {
            "phase": "Running",
            "startTime": now,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": container.get("name", ""),
                    "image": container.get("image", ""),
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for container in pod["spec"].get("containers", [])
            ],
        }
        self._api.modify(
            PODS,
            meta["name"],
            lambda old: {**old, "status": {**old["status"], **status}},
            meta["namespace"],
            subresource="status",
        )
