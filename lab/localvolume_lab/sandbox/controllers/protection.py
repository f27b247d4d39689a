"""The protection finalizers: taken off a deleted volume or claim once nothing uses it.

After pkg/controller/volume/{pvprotection,pvcprotection}.
"""

from __future__ import annotations

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.kinds import CLAIMS, PERSISTENT_VOLUMES, PODS, Resource
from localvolume_lab.sandbox.rules.defaults import PV_PROTECTION, PVC_PROTECTION
from localvolume_lab.sandbox.store import Body, Change


class Protection:
    """Both protection controllers."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def look(self, resource: Resource, change: Change) -> None:
        """Sync what a change may concern."""
        namespace, name = change.key
        if resource is PERSISTENT_VOLUMES:
            self._sync(PERSISTENT_VOLUMES, name, "", PV_PROTECTION)
        elif resource is CLAIMS:
            self._sync(CLAIMS, name, namespace, PVC_PROTECTION)
        elif resource is PODS:
            for claim in claims_of(change.new.body):
                self._sync(CLAIMS, claim, namespace, PVC_PROTECTION)

    def _sync(self, resource: Resource, name: str, namespace: str, finalizer: str) -> None:
        found = self._api.store.find(resource, name, namespace)
        if found is None or "deletionTimestamp" not in found.body["metadata"]:
            return
        if finalizer not in found.body["metadata"].get("finalizers", []):
            return
        if self._in_use(resource, found.body):
            return

        def without(old: Body) -> Body:
            meta = old["metadata"]
            left = [item for item in meta["finalizers"] if item != finalizer]
            return {**old, "metadata": {**meta, "finalizers": left}}

        self._api.modify(resource, name, without, namespace)

    def _in_use(self, resource: Resource, body: Body) -> bool:
        if resource is PERSISTENT_VOLUMES:
            return bool(body["status"].get("phase") == "Bound")
        meta = body["metadata"]
        return any(
            pod.body["metadata"]["namespace"] == meta["namespace"]
            and pod.body["spec"].get("nodeName")
            and meta["name"] in claims_of(pod.body)
            for pod in self._api.store[PODS]
        )


def claims_of(pod: Body) -> list[str]:
    """Names of the claims a pod mounts."""
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes") or []
        if "persistentVolumeClaim" in volume
    ]
