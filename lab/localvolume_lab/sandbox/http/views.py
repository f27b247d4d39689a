"""How objects go out: as JSON, as rows of a table, or as the newer kind of event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from localvolume_lab.sandbox.http.events_view import to_new
from localvolume_lab.sandbox.http.tables import Columns, columns_of, row
from localvolume_lab.sandbox.kinds import NEW_EVENTS, Resource
from localvolume_lab.sandbox.refusals import Refusal
from localvolume_lab.sandbox.store import Encoder, Version

_TABLE_VERSIONS = ("v1", "v1beta1")


class View:
    """Objects as themselves."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        # Every stored body begins with its type; items of a list go without (store.py, api.py).
        prefix = {"kind": resource.kind, "apiVersion": resource.group_version}
        self._prefix = len(Encoder.encode(prefix))

    def one(self, version: Version) -> bytes:
        """One object as a whole answer, or inside a watch event."""
        return version.json

    def many(self, versions: Sequence[Version], meta: dict[str, Any]) -> bytes:
        """A list."""
        head = {
            "kind": f"{self.resource.kind}List",
            "apiVersion": self.resource.group_version,
            "metadata": meta,
        }
        items = b",".join(b"{" + self.one(version)[self._prefix :] for version in versions)
        return Encoder.encode(head)[:-1] + b',"items":[' + items + b"]}"


class NewEventsView(View):
    """Stored events under their events.k8s.io names."""

    def one(self, version: Version) -> bytes:
        return Encoder.encode(to_new(version.body))


class MetadataView(View):
    """Metadata alone, for who needs no more."""

    def __init__(self, resource: Resource, version: str) -> None:
        super().__init__(resource)
        self._type = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"meta.k8s.io/{version}",
        }

    def one(self, version: Version) -> bytes:
        return Encoder.encode({**self._type, "metadata": version.body["metadata"]})

    def many(self, versions: Sequence[Version], meta: dict[str, Any]) -> bytes:
        items = [{**self._type, "metadata": version.body["metadata"]} for version in versions]
        head = {**self._type, "kind": "PartialObjectMetadataList"}
        return Encoder.encode({**head, "metadata": meta, "items": items})


class TableView(View):
    """What `kubectl get` asks for."""

    def __init__(self, resource: Resource, version: str, columns: Columns, include: str) -> None:
        super().__init__(resource)
        self._version = version
        self._columns = columns
        self._include = include

    def one(self, version: Version) -> bytes:
        number = version.body["metadata"].get("resourceVersion", "")
        return self.many([version], {"resourceVersion": number})

    def many(self, versions: Sequence[Version], meta: dict[str, Any]) -> bytes:
        return Encoder.encode(
            {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self._version}",
                "metadata": meta,
                "columnDefinitions": self._columns,
                "rows": [row(self.resource, version.body, self._include) for version in versions],
            }
        )


def choose(resource: Resource, accept: str, include: str) -> View:
    """The view an Accept header asks for. Raises 406 if there is none we can give."""
    for offer in accept.split(",") or ["*/*"]:
        media, *parameters = (part.strip() for part in offer.split(";"))
        options = dict(part.partition("=")[::2] for part in parameters)
        if media not in {"", "application/json", "*/*"}:
            continue
        wanted = options.get("as", "")
        if wanted == "Table" and options.get("v") in _TABLE_VERSIONS:
            return TableView(resource, options["v"], columns_of(resource), include or "Metadata")
        if wanted.startswith("PartialObjectMetadata") and options.get("v") in _TABLE_VERSIONS:
            return MetadataView(resource, options["v"])
        if not wanted:
            return NewEventsView(resource) if resource is NEW_EVENTS else View(resource)
    raise not_acceptable()


def not_acceptable() -> Refusal:
    """406: only JSON is spoken here."""
    return Refusal(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, "
        "application/json;stream=watch",
        details={},
    )


def as_json(body: Any) -> bytes:
    """Any body as JSON."""
    return msgspec.json.encode(body)
