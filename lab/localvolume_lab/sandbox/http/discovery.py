"""What a client asks first: versions, groups, resources, and as much OpenAPI as kubectl needs.

kubectl asks the OpenAPI v3 document of a group only whether its PATCH understands
`fieldValidation`, and takes list merge keys from its own types when the document has no schemas.
So the documents here list paths and parameters, without schemas; `kubectl explain` finds none.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

from localvolume_lab.sandbox.kinds import NAMESPACES, SERVED, Resource, groups

#: the release whose behaviour the contract suite compares with
VERSION = "v1.34.4"


@cache
def document(path: str) -> dict[str, Any] | None:
    """The discovery or OpenAPI document at a URL path, or None. The caller must not change it."""
    steps = path.strip("/").split("/")
    match steps:
        case ["version"]:
            return _version()
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(group) for group in groups()],
            }
        case ["api", "v1"]:
            return _resources("", "v1")
        case ["apis", group] if group in groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["apis", group, version] if groups().get(group) == version:
            return _resources(group, version)
        case ["openapi", "v3"]:
            return _openapi_index()
        case ["openapi", "v3", "api", "v1"]:
            return _openapi("", "v1")
        case ["openapi", "v3", "apis", group, version] if groups().get(group) == version:
            return _openapi(group, version)
    return None


def _version() -> dict[str, Any]:
    return {
        "major": "1",
        "minor": VERSION.split(".")[1],
        "gitVersion": f"{VERSION}+localvolume-sandbox",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": f"linux/{'amd64' if platform.machine() == 'x86_64' else platform.machine()}",
    }


def _group(group: str) -> dict[str, Any]:
    version = {"groupVersion": f"{group}/{groups()[group]}", "version": groups()[group]}
    return {"name": group, "versions": [version], "preferredVersion": version}


def _resources(group: str, version: str) -> dict[str, Any]:
    found = [r for r in SERVED if (r.group, r.version) == (group, version)]
    listed: list[dict[str, Any]] = []
    for resource in found:
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short:
            entry["shortNames"] = list(resource.short)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        listed.append(entry)
        for name, verbs in _subresources(resource).items():
            listed.append(
                {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "kind": resource.kind,
                    "verbs": verbs,
                }
            )
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }


def _subresources(resource: Resource) -> dict[str, list[str]]:
    found = {"finalize": ["update"]} if resource is NAMESPACES else {}
    if resource.status:
        found["status"] = ["get", "patch", "update"]
    return found


def _openapi_index() -> dict[str, Any]:
    names = ["api/v1", *(f"apis/{group}/{version}" for group, version in groups().items())]
    return {
        "paths": {
            name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={VERSION}"} for name in names
        }
    }


def _openapi(group: str, version: str) -> dict[str, Any]:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: dict[str, Any] = {}
    for resource in SERVED:
        if (resource.group, resource.version) != (group, version):
            continue
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        paths[f"{root}{scope}/{resource.plural}/{{name}}"] = {
            "patch": {
                "operationId": f"patch{resource.kind}",
                "parameters": [
                    {"name": name, "in": "query", "schema": {"type": "string"}}
                    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
                ],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": group,
                    "version": version,
                    "kind": resource.kind,
                },
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "localvolume sandbox", "version": VERSION},
        "paths": paths,
        "components": {"schemas": {}},
    }
