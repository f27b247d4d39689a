"""Lists: a consistent state, whole or in pages that all show the same version."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from localvolume_lab.sandbox.kinds import Resource
from localvolume_lab.sandbox.refusals import (
    Cause,
    Refusal,
    bad_request,
    expired,
    invalid,
    too_large_version,
)
from localvolume_lab.sandbox.rules.selectors import Match
from localvolume_lab.sandbox.store import Store, TooOld, Version


class Token(msgspec.Struct):
    """A continue token, in the real server's shape: the version, and the key to go on from."""

    v: str
    rv: int
    start: str


class Page(NamedTuple):
    """`number` is the resourceVersion of the list; `remaining` None where it is not counted."""

    versions: list[Version]
    number: int
    token: str
    remaining: int | None


@dataclass(frozen=True)
class ListRequest:
    """What a client asked for; `limit` 0 means all."""

    namespace: str
    match: Match
    selective: bool
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    version_match: str = ""


def version_number(text: str) -> int:
    """A resourceVersion parameter. Raises 400."""
    if not text.isdecimal():
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def list_page(store: Store, resource: Resource, request: ListRequest) -> Page:
    """One page. Raises 400, 410 for versions no longer kept, 504 for versions of the future."""
    _check_version_match(request)
    number, start, limit = store.number, "", request.limit
    if request.token:
        token = _decode(request.token)
        number, start = (token.rv if token.rv > 0 else store.number), token.start
    elif request.resource_version:
        asked = version_number(request.resource_version)
        if asked > store.number:
            raise too_large_version(asked, store.number)
        if request.version_match == "Exact":
            number = asked
        elif asked == 0:
            limit = 0  # answered from the watch cache, which does not page
    try:
        everything = store[resource].at(number)
    except TooOld:
        if not request.token:
            raise expired("The resourceVersion for the provided list is too old.") from None
        raise _expired_token(start) from None
    found = [
        version
        for version in everything
        if request.namespace in ("", version.body["metadata"].get("namespace", ""))
        and _path(version, request.namespace) >= start
        and request.match(version.body)
    ]
    if not limit or len(found) <= limit:
        return Page(found, number, "", None)
    after = _path(found[limit - 1], request.namespace) + "\0"
    remaining = None if request.selective else len(found) - limit
    return Page(found[:limit], number, _encode(number, after), remaining)


def _path(version: Version, within: str) -> str:
    meta = version.body["metadata"]
    if within or "namespace" not in meta:
        return f"/{meta['name']}"
    return f"/{meta['namespace']}/{meta['name']}"


def _encode(number: int, start: str) -> str:
    raw = msgspec.json.encode(Token("meta.k8s.io/v1", number, start))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(raw, type=Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    if token.v != "meta.k8s.io/v1" or not token.start:
        raise bad_request("invalid continue token: continue key is not valid: incomplete token")
    return token


def _expired_token(start: str) -> Refusal:
    """410 with a token that goes on, inconsistently, from the newest version (rv -1)."""
    return expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted between "
        "the time the first chunk was returned and now may show up in the list.",
        continue_token=_encode(-1, start),
    )


def _check_version_match(request: ListRequest) -> None:
    match = request.version_match
    if not match:
        return
    why = ""
    if not request.resource_version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif request.token:
        why = "resourceVersionMatch is forbidden when continue is provided"
    elif match == "Exact" and request.resource_version == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if why:
        fault = Cause("resourceVersionMatch", "FieldValueForbidden", f"Forbidden: {why}")
        raise invalid("ListOptions", "meta.k8s.io", "", [fault])
    if match not in {"Exact", "NotOlderThan"}:
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
        fault = Cause("resourceVersionMatch", "FieldValueNotSupported", why)
        raise invalid("ListOptions", "meta.k8s.io", "", [fault])
