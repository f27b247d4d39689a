"""Which object or collection a URL names, and which verb a method means there."""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web

from localvolume_lab.sandbox.kinds import NAMESPACES, Resource, find, groups
from localvolume_lab.sandbox.refusals import bad_request, method_not_allowed, no_such_resource


class Target(NamedTuple):
    """What a URL names. `name` empty: the collection."""

    resource: Resource
    namespace: str
    name: str
    subresource: str
    watch: bool


def parse_path(path: str) -> Target | None:
    """The resource of a path; None if it is none of the API's shapes. Raises 404."""
    steps = path.strip("/").split("/")
    match steps:
        case ["api", "v1", *rest] if rest:
            group, version = "", "v1"
        case ["apis", group, version, *rest] if rest and groups().get(group) == version:
            pass
        case _:
            return None
    watching = rest[0] == "watch" and len(rest) > 1
    if watching:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    resource = find(group, version, rest[0])
    if resource is None or (namespace and not resource.namespaced) or len(rest) > 3:
        raise no_such_resource()
    name, subresource = (*rest[1:], "", "")[:2]
    allowed = {"", "status"} if resource.status else {""}
    if resource is NAMESPACES:
        allowed.add("finalize")
    if subresource not in allowed:
        raise no_such_resource()
    return Target(resource, namespace, name, subresource, watching)


def verb_of(request: web.Request, target: Target) -> str:
    """The verb of a request. Raises 405."""
    if request.method in {"GET", "HEAD"}:
        if target.watch or (flag(request.query.get("watch", "")) and not target.name):
            return "watch"
        return "get" if target.name else "list"
    verb = {
        ("POST", False): "create",
        ("PUT", True): "update",
        ("PATCH", True): "patch",
        ("DELETE", True): "delete",
        ("DELETE", False): "deletecollection",
    }.get((request.method, bool(target.name)), "")
    if verb not in target.resource.verbs or (verb == "delete" and target.subresource):
        raise method_not_allowed()
    if verb == "patch" and target.subresource == "finalize":
        raise method_not_allowed()
    if (
        verb in {"create", "deletecollection"}
        and target.resource.namespaced
        and not target.namespace
    ):
        raise method_not_allowed()
    return verb


def flag(text: str) -> bool:
    """A boolean query parameter."""
    return text in {"1", "true", "True", "t", "T"}


def integer(text: str) -> int:
    """A number in the query. Raises 400."""
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
