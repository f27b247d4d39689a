"""What the API server does with one request, without HTTP: the rules around every read and write.

Handlers and the sandbox's own controllers use the same calls. All of them are synchronous, so each
is atomic on the event loop.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from localvolume_lab.sandbox.clock import timestamp
from localvolume_lab.sandbox.kinds import CLAIMS, JOBS, NAMESPACES, PODS, Resource
from localvolume_lab.sandbox.refusals import (
    Cause,
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from localvolume_lab.sandbox.rules import growth, schema, validation
from localvolume_lab.sandbox.rules.defaults import apply_defaults, reset_on_create
from localvolume_lab.sandbox.rules.deleting import (
    DeleteOptions,
    check_options,
    dependents_finalizer,
    grace,
)
from localvolume_lab.sandbox.rules.shape import ordered
from localvolume_lab.sandbox.store import Body, Store, Version

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Api:
    """The reads and writes of one store. All raise Refusal."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, resource: Resource, name: str, namespace: str = "") -> Version:
        """The current version of one object."""
        found = self.store.find(resource, name, namespace)
        if found is None:
            raise not_found(resource, name)
        return found

    def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str = "",
        *,
        dry_run: bool = False,
        strict: bool = False,
    ) -> Body:
        """Store a new object; its name may be generated."""
        new = self._decode(resource, body, strict=strict)
        meta = new["metadata"]
        self._place(resource, meta, namespace)
        if meta.pop("resourceVersion", ""):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
            meta.pop(field, None)
        if not meta.get("name") and meta.get("generateName"):
            suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
            meta["name"] = meta["generateName"][:58] + suffix
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = timestamp()
        apply_defaults(resource, new)
        self._check_namespace(resource, meta)
        if faults := validation.check(resource, new):
            raise invalid(resource.kind, resource.group, meta.get("name", ""), faults)
        reset_on_create(resource, new)
        if self.store.find(resource, meta["name"], namespace) is not None:
            raise already_exists(resource, meta["name"])
        new = ordered(new)
        return new if dry_run else self.store.put(resource, new).body

    def replace(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> tuple[Body, bool]:
        """PUT: the object as stored, and whether it was created by this."""
        new = self._decode(resource, body, strict=strict)
        meta = new["metadata"]
        self._place(resource, meta, namespace)
        self._same_name(meta, name)
        old = self.store.find(resource, name, namespace)
        if old is None:
            if resource.create_on_update and not subresource:
                return self.create(resource, new, namespace, dry_run=dry_run), True
            raise not_found(resource, name)
        uid = old.body["metadata"]["uid"]
        if meta.setdefault("uid", uid) != uid:
            why = (
                f"Precondition failed: UID in precondition: {meta['uid']}, "
                f"UID in object meta: {uid}"
            )
            raise conflict(resource, name, why)
        meta.pop("deletionTimestamp", None)
        return self._update(resource, old, new, subresource, dry_run=dry_run), False

    def modify(
        self,
        resource: Resource,
        name: str,
        change: Callable[[Body], Mapping[str, Any]],
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> Body:
        """PATCH: `change` gets the stored body, which it must not mutate, and returns the next."""
        old = self.get(resource, name, namespace)
        try:
            new = self._decode(resource, change(old.body), strict=strict)
        except _Undecodable as error:
            fault = Cause("patch", "FieldValueInvalid", f"Invalid value: {error.message}")
            raise invalid("", "", "", [fault]) from None
        self._same_name(new["metadata"], name)
        self._place(resource, new["metadata"], namespace)
        return self._update(resource, old, new, subresource, dry_run=dry_run)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> tuple[Body, bool]:
        """DELETE: the object as it is now (or was last), and whether it is gone."""
        options = options or DeleteOptions()
        check_options(options)
        old = self.get(resource, name, namespace)
        meta = dict(old.body["metadata"])
        self._check_preconditions(resource, name, meta, options)
        body = {**old.body, "metadata": meta}
        finalizers = [
            item
            for item in meta.get("finalizers", [])
            if item not in {"orphan", "foregroundDeletion"}
        ]
        if waits_for := dependents_finalizer(resource, options):
            finalizers.append(waits_for)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        seconds = grace(resource, old.body, options)
        staying = bool(finalizers) or seconds > 0
        if resource is NAMESPACES and old.body["spec"].get("finalizers"):
            staying = True
            body["status"] = {**old.body["status"], "phase": "Terminating"}
        already = "deletionTimestamp" in meta
        if staying:
            if not already:
                meta["deletionTimestamp"] = timestamp(seconds)
            if resource is not NAMESPACES:
                meta["deletionGracePeriodSeconds"] = seconds
            body = ordered(body)
            if body != old.body and not options.dry_run:
                body = self.store.put(resource, body).body
            return body, False
        if not options.dry_run:
            body = self.store.remove(resource, (namespace, name), body).body
        return body, True

    def _decode(self, resource: Resource, body: Mapping[str, Any], *, strict: bool) -> Body:
        kind, version = body.get("kind"), body.get("apiVersion")
        if (kind or resource.kind) != resource.kind or (
            version or resource.group_version
        ) != resource.group_version:
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {resource.kind}: '
                f"converting ({version}.{kind}) to ({resource.kind}): unknown conversion"
            )
        unknown: list[str] = []
        try:
            decoded = schema.conform(resource.kind, body, unknown)
        except schema.WrongType as error:
            raise _Undecodable(resource, str(error)) from None
        if strict and unknown:
            listed = ", ".join(f'unknown field "{field}"' for field in unknown)
            raise _Undecodable(resource, f"strict decoding error: {listed}")
        decoded.setdefault("metadata", {}).pop("managedFields", None)
        decoded["kind"], decoded["apiVersion"] = resource.kind, resource.group_version
        return decoded

    def _place(self, resource: Resource, meta: Body, namespace: str) -> None:
        given = meta.get("namespace", "")
        if given and given != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on "
                "the request"
            )
        if resource.namespaced:
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)

    def _same_name(self, meta: Body, name: str) -> None:
        given = meta.get("name", "")
        if not given:
            raise bad_request(
                f"the name of the object ({name} based on URL) was undeterminable: "
                "name must be provided"
            )
        if given != name:
            raise bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({name})"
            )

    def _check_namespace(self, resource: Resource, meta: Body) -> None:
        if not resource.namespaced:
            return
        namespace = self.get(NAMESPACES, meta["namespace"]).body
        if "deletionTimestamp" in namespace["metadata"]:
            why = (
                f"unable to create new content in namespace {meta['namespace']} because it is "
                "being terminated"
            )
            raise forbidden(resource, meta.get("name", ""), why)

    def _update(
        self, resource: Resource, old: Version, new: Body, subresource: str, *, dry_run: bool
    ) -> Body:
        meta, before = new["metadata"], old.body["metadata"]
        name = before["name"]
        given = meta.get("resourceVersion", "")
        if not given and not resource.unconditional:
            why = "Invalid value: 0: must be specified for an update"
            fault = Cause("metadata.resourceVersion", "FieldValueInvalid", why)
            raise invalid(resource.qualified, "", name, [fault])
        if given and given != before["resourceVersion"]:
            raise conflict(resource, name)
        for field in ("creationTimestamp", "deletionGracePeriodSeconds", "generation"):
            if field in before:
                meta[field] = before[field]
            else:
                meta.pop(field, None)
        if not meta.get("deletionTimestamp") and "deletionTimestamp" in before:
            meta["deletionTimestamp"] = before["deletionTimestamp"]
        if resource.status:
            _keep_other_half(resource, new, old.body, subresource)
        apply_defaults(resource, new)
        if faults := validation.check_update(resource, ordered(new), old.body):
            raise invalid(resource.kind, resource.group, name, faults)
        if resource is CLAIMS:
            growth.check(self.store, new, old.body)
        meta["resourceVersion"] = before["resourceVersion"]
        if resource in {JOBS, PODS} and new.get("spec") != old.body.get("spec"):
            meta["generation"] = before.get("generation", 1) + 1
        new = ordered(new)
        done = bool(meta.get("deletionTimestamp")) and not meta.get("finalizers")
        if resource is NAMESPACES and new["spec"].get("finalizers"):
            done = False
        if resource is PODS and before.get("deletionGracePeriodSeconds"):
            done = False
        if done and not dry_run:
            # As the real server: watchers see the state before this write, the writer sees what it
            # wrote, still under the old number.
            self.store.remove(resource, (before.get("namespace", ""), name))
            return new
        if dry_run or new == old.body:
            return new
        return self.store.put(resource, new).body

    def _check_preconditions(
        self, resource: Resource, name: str, meta: Body, options: DeleteOptions
    ) -> None:
        wanted = options.preconditions
        if wanted is None:
            return
        for field, value, actual, advice in (
            (
                "UID",
                wanted.uid,
                meta["uid"],
                "The object might have been deleted and then recreated",
            ),
            (
                "ResourceVersion",
                wanted.resource_version,
                meta["resourceVersion"],
                "The object might have been modified",
            ),
        ):
            if value is not None and value != actual:
                raise Refusal(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {resource.kind} "{name}": the {field} in '
                    f"the precondition ({value}) does not match the {field} in record ({actual}). "
                    f"{advice}",
                    details={"name": name, "kind": resource.kind},
                )


class _Undecodable(Refusal):
    """400 for a body; a patch that leads to one is answered 422 instead."""

    def __init__(self, resource: Resource, why: str) -> None:
        super().__init__(
            400,
            "BadRequest",
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: {why}",
        )


def _keep_other_half(resource: Resource, new: Body, old: Body, subresource: str) -> None:
    """A status write changes only status (and metadata); any other leaves status alone."""
    kept = "spec" if subresource == "status" else "status"
    if kept in old:
        new[kept] = old[kept]
    else:
        new.pop(kept, None)
    if resource is NAMESPACES and subresource == "":
        new["spec"] = old["spec"]
    phase = (new.get("status") or {}).get("phase")
    if resource.kind == "PersistentVolume" and phase != (old.get("status") or {}).get("phase"):
        new["status"] = {**new["status"], "lastPhaseTransitionTime": timestamp()}
