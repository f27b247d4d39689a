"""What a request brings along: an object, a patch, options."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from aiohttp import web

from localvolume import yamlaliases
from localvolume_lab.sandbox.http import protobuf
from localvolume_lab.sandbox.http.events_view import to_old
from localvolume_lab.sandbox.http.routing import integer
from localvolume_lab.sandbox.kinds import NEW_EVENTS, Resource
from localvolume_lab.sandbox.refusals import Refusal, bad_request
from localvolume_lab.sandbox.rules.deleting import DeleteOptions
from localvolume_lab.sandbox.store import Body

_JSON = "application/json"
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parsed(body: bytes, *, what: str = "error decoding body", is_yaml: bool = False) -> Any:
    """JSON or YAML. Raises 400; `what` begins its message."""
    try:
        if not is_yaml:
            return msgspec.json.decode(body)
        yamlaliases.refuse(yaml.parse(body, _YAML))
        return yaml.load(body, _YAML)  # noqa: S506 (safe loader)
    except (msgspec.DecodeError, yaml.YAMLError, yamlaliases.Excessive) as error:
        raise bad_request(f"{what}: {error}") from None


def object_of(request: web.Request, resource: Resource, body: bytes) -> Body:
    """The object in a create's or an update's body."""
    kind = request.content_type if "Content-Type" in request.headers else _JSON
    unrecognised = (
        f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get "
        "version/kind; json parse error"
    )
    if kind == protobuf.CONTENT_TYPE:
        try:
            return protobuf.decode(body)
        except protobuf.Unreadable as error:
            raise Refusal(415, "UnsupportedMediaType", str(error)) from None
    if kind not in {_JSON, "application/yaml"}:
        raise Refusal(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml",
        )
    decoded = parsed(body, what=unrecognised, is_yaml=kind == "application/yaml")
    if not isinstance(decoded, dict):
        raise bad_request(f"{unrecognised}: not an object")
    return to_old(decoded) if resource is NEW_EVENTS else decoded


def delete_options(request: web.Request, body: bytes) -> DeleteOptions:
    """DeleteOptions from the body, overlaid by the query. Raises 400."""
    options = DeleteOptions()
    if body and request.content_type != protobuf.CONTENT_TYPE:
        try:
            options = msgspec.json.decode(body, type=DeleteOptions)
        except msgspec.MsgspecError as error:
            raise bad_request(f"error decoding DeleteOptions: {error}") from None
    query = request.query
    if "propagationPolicy" in query:
        options.propagation_policy = query["propagationPolicy"]
    if "gracePeriodSeconds" in query:
        options.grace_period_seconds = integer(query["gracePeriodSeconds"])
    if query.get("dryRun"):
        options.dry_run = [query["dryRun"]]
    return options
