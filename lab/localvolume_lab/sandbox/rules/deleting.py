"""How a deletion was asked for, and what that means for its object."""

from __future__ import annotations

import msgspec

from localvolume_lab.sandbox.kinds import JOBS, PODS, Resource
from localvolume_lab.sandbox.refusals import Cause, invalid
from localvolume_lab.sandbox.store import Body


class DeleteOptions(msgspec.Struct, rename="camel", kw_only=True):
    """The part of meta/v1 DeleteOptions that is honoured."""

    class Preconditions(msgspec.Struct, rename="camel"):
        uid: str | None = None
        resource_version: str | None = None

    preconditions: Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    grace_period_seconds: int | None = None
    dry_run: list[str] | None = None


def check_options(options: DeleteOptions) -> None:
    """Raises 422 for a policy that is none, or two that exclude each other."""
    policy = options.propagation_policy
    why = ""
    if policy is not None and policy not in {"Foreground", "Background", "Orphan"}:
        reason = "FieldValueNotSupported"
        why = (
            f'Unsupported value: "{policy}": supported values: "Foreground", "Background", '
            '"Orphan", "nil"'
        )
    elif policy is not None and options.orphan_dependents is not None:
        reason = "FieldValueInvalid"
        why = (
            f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both '
            "set"
        )
    if why:
        raise invalid("DeleteOptions", "meta.k8s.io", "", [Cause("propagationPolicy", reason, why)])


def dependents_finalizer(resource: Resource, options: DeleteOptions) -> str:
    """The finalizer with which the garbage collector is told what to do first, or ``""``."""
    policy = options.propagation_policy
    if policy is None and (
        options.orphan_dependents or (resource is JOBS and options.orphan_dependents is None)
    ):
        policy = "Orphan"
    return {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(policy or "", "")


def grace(resource: Resource, body: Body, options: DeleteOptions) -> int:
    """Seconds a pod on a node has to stop; everything else goes at once."""
    if resource is not PODS or not body["spec"].get("nodeName"):
        return 0
    if body["status"].get("phase") in {"Succeeded", "Failed"}:
        return 0
    if options.grace_period_seconds is not None:
        return options.grace_period_seconds
    return int(body["spec"].get("terminationGracePeriodSeconds", 30))
