"""What the server refuses, as the Status objects the real one answers with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from localvolume_lab.sandbox.kinds import Resource


class Cause(NamedTuple):
    """One line of `details.causes`: where, which rule, and what it says."""

    field: str
    reason: str
    message: str


class Refusal(Exception):
    """An answer other than success; `status()` is the body the real server would send."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.metadata = metadata or {}

    def status(self) -> dict[str, Any]:
        """The `Status` object (meta/v1) of this refusal."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        if self.retry_after is not None:
            body.setdefault("details", {})["retryAfterSeconds"] = self.retry_after
        body["code"] = self.code
        return body


def _about(resource: Resource, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: Resource, name: str) -> Refusal:
    """404 for one object."""
    return Refusal(
        404,
        "NotFound",
        f'{resource.qualified} "{name}" not found',
        details=_about(resource, name),
    )


def no_such_resource() -> Refusal:
    """404 for a path below a known group that names no resource."""
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: Resource, name: str) -> Refusal:
    """409 for a create."""
    return Refusal(
        409,
        "AlreadyExists",
        f'{resource.qualified} "{name}" already exists',
        details=_about(resource, name),
    )


def conflict(resource: Resource, name: str, why: str | None = None) -> Refusal:
    """409 for a write whose precondition no longer holds."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    )
    return Refusal(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}',
        details=_about(resource, name),
    )


def bad_request(message: str) -> Refusal:
    """400: the request makes no sense."""
    return Refusal(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str) -> Refusal:
    """403: the rules of the cluster say no."""
    return Refusal(
        403,
        "Forbidden",
        f'{resource.qualified} "{name}" is forbidden: {why}',
        details=_about(resource, name),
    )


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Refusal:
    """422 with every fault found, in `details.causes`."""
    qualified = f"{kind}.{group}" if group else kind
    lines = [f"{cause.field}: {cause.message}" for cause in causes]
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    return Refusal(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details=details)


def rejected_patch() -> Refusal:
    """422 for a JSON patch that cannot be applied, a failed `test` included."""
    return Refusal(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        details={},
    )


def method_not_allowed() -> Refusal:
    """405 as a Status object."""
    return Refusal(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def expired(message: str, *, continue_token: str | None = None) -> Refusal:
    """410: the version asked for is no longer kept; list again."""
    metadata = {"continue": continue_token} if continue_token else None
    return Refusal(410, "Expired", message, metadata=metadata)


def too_large_version(asked: int, current: int) -> Refusal:
    """504: a version from the future (another cluster's, or one restored from a backup)."""
    return Refusal(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after=1,
    )
