"""The garbage collector and the namespace controller: what goes when something else has gone.

After pkg/controller/garbagecollector: an object whose owners are all gone is deleted; a deletion
in the foreground waits for the dependents, one that orphans takes the owner off them. A namespace
being deleted is emptied, then let go. A new namespace gets its default service account.
"""

from __future__ import annotations

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.kinds import NAMESPACES, SERVICE_ACCOUNTS, STORED, Resource
from localvolume_lab.sandbox.refusals import Refusal
from localvolume_lab.sandbox.rules.deleting import DeleteOptions
from localvolume_lab.sandbox.store import Body, Change, Key

Place = tuple[Resource, Key]


class Garbage:
    """Both controllers."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._store = api.store
        self._alive: dict[str, Place] = {}
        self._dependents: dict[str, set[Place]] = {}

    def look(self, resource: Resource, change: Change) -> None:
        """Sync what a change may concern."""
        meta = change.new.body["metadata"]
        place = (resource, change.key)
        owners = [owner["uid"] for owner in meta.get("ownerReferences", [])]
        if change.type == "DELETED":
            self._alive.pop(meta["uid"], None)
            for owner in owners:
                self._dependents.get(owner, set()).discard(place)
            for dependent in list(self._dependents.pop(meta["uid"], ())):
                self._collect(dependent)
            for owner in owners:
                self._finish_owner(owner)
        else:
            self._alive[meta["uid"]] = place
            for owner in owners:
                self._dependents.setdefault(owner, set()).add(place)
            if owners:
                self._collect(place)
            if "deletionTimestamp" in meta:
                self._finish(place)
        self._look_at_namespace(resource, change)

    def _current(self, place: Place) -> Body | None:
        resource, (namespace, name) = place
        found = self._store.find(resource, name, namespace)
        return found.body if found else None

    def _delete(self, place: Place) -> None:
        resource, (namespace, name) = place
        body = self._current(place)
        if body is None or "deletionTimestamp" in body["metadata"]:
            return
        options = DeleteOptions(
            preconditions=DeleteOptions.Preconditions(uid=body["metadata"]["uid"]),
            propagation_policy="Background",
        )
        self._api.delete(resource, name, namespace, options)

    def _collect(self, place: Place) -> None:
        """Delete an object none of whose owners exists."""
        body = self._current(place)
        if body is None:
            return
        owners = body["metadata"].get("ownerReferences", [])
        if owners and not any(owner["uid"] in self._alive for owner in owners):
            self._delete(place)

    def _finish_owner(self, uid: str) -> None:
        """A dependent went: an owner deleted in the foreground may be free to go."""
        place = self._alive.get(uid)
        body = self._current(place) if place else None
        if place and body and "deletionTimestamp" in body["metadata"]:
            self._finish(place)

    def _finish(self, place: Place) -> None:
        """Do what the collector's own finalizers ask for, then take them off."""
        body = self._current(place)
        if body is None:
            return
        meta = body["metadata"]
        finalizers = meta.get("finalizers", [])
        dependents = list(self._dependents.get(meta["uid"], ()))
        if "orphan" in finalizers:
            for dependent in dependents:
                self._orphan(dependent, meta["uid"])
            self._dependents.pop(meta["uid"], None)
            self._take_off(place, "orphan")
        elif "foregroundDeletion" in finalizers:
            for dependent in dependents:
                self._delete(dependent)
            if not any(self._blocks(dependent, meta["uid"]) for dependent in dependents):
                self._take_off(place, "foregroundDeletion")

    def _blocks(self, place: Place, owner: str) -> bool:
        body = self._current(place)
        return body is not None and any(
            item["uid"] == owner and item.get("blockOwnerDeletion")
            for item in body["metadata"].get("ownerReferences", [])
        )

    def _orphan(self, place: Place, owner: str) -> None:
        resource, (namespace, name) = place

        def without(old: Body) -> Body:
            meta = old["metadata"]
            left = [item for item in meta.get("ownerReferences", []) if item["uid"] != owner]
            return {**old, "metadata": {**meta, "ownerReferences": left}}

        if self._current(place) is not None:
            self._api.modify(resource, name, without, namespace)

    def _take_off(self, place: Place, finalizer: str) -> None:
        resource, (namespace, name) = place

        def without(old: Body) -> Body:
            meta = old["metadata"]
            left = [item for item in meta.get("finalizers", []) if item != finalizer]
            return {**old, "metadata": {**meta, "finalizers": left}}

        self._api.modify(resource, name, without, namespace)

    def _look_at_namespace(self, resource: Resource, change: Change) -> None:
        if resource is not NAMESPACES:
            namespace = change.key[0]
            if change.type == "DELETED" and namespace:
                self._empty(namespace)
            return
        name = change.key[1]
        if change.type == "ADDED":
            try:
                self._api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)
            except Refusal:
                return  # already there, or the namespace is on its way out
        elif change.type == "MODIFIED":
            self._empty(name)

    def _empty(self, namespace: str) -> None:
        """Empty a namespace that is being deleted; let it go once nothing is left in it."""
        found = self._store.find(NAMESPACES, namespace)
        if found is None or "deletionTimestamp" not in found.body["metadata"]:
            return
        inside = [
            (resource, key)
            for resource in STORED
            if resource.namespaced
            for key in list(self._store[resource].items)
            if key[0] == namespace
        ]
        for place in inside:
            self._delete(place)
        if not any(self._current(place) for place in inside):
            self._api.modify(
                NAMESPACES,
                namespace,
                lambda old: {**old, "spec": {**old["spec"], "finalizers": []}},
                subresource="finalize",
            )
