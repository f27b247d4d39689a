"""Contents of snapshots, and of groups of them, as their controllers and agents make them.

What a stolen token may do to them is tried for each kind in a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_accounts import Caller
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights
from tests.cluster.support_snapshots import kinds_of_snapshots
from tests.suite.api import MERGE

Object = dict[str, Any]

LET_GO: Object = {"metadata": {"finalizers": None}}
OWNER = [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]

NO_MORE = "an agent changes only annotations, its finalizer and the status of"
NO_NOTE = "only with its node, and with whether it is being cut"


@dataclass(frozen=True)
class Kind:
    """One of the two kinds; `spec` is that of a content as its controller makes it."""

    type: Mapping[str, str]
    """Its apiVersion and kind."""
    collection: str
    finalizer: str
    spec: Mapping[str, Any]


class Contents:
    """Makes contents as the snapshot-controller and agents do, and tries what the token may."""

    def __init__(self, kind: Kind, objects: Objects, agent: Caller, unique: str) -> None:
        self._kind = kind
        self._objects = objects
        self._agent = agent
        self._unique = unique
        self._made = 0

    def content(
        self,
        notes: Object | None = None,
        status: Object | None = None,
        labels: Object | None = None,
        deleted: bool = False,
        **spec: Any,
    ) -> str:
        """Its path."""
        self._made += 1
        meta = {
            "name": f"{self._unique}-{self._made}",
            "annotations": notes or {},
            "labels": labels or {},
            "finalizers": [self._kind.finalizer],
        }
        body = {**self._kind.type, "metadata": meta, "spec": {**self._kind.spec, **spec}}
        self._objects.make(self._kind.collection, body)
        path = f"{self._kind.collection}/{meta['name']}"
        if status is not None:
            told = {"status": status}
            self._objects.plane.request("PATCH", f"{path}/status", told, content_type=MERGE)
        if deleted:
            self._objects.plane.request("DELETE", path)
        return path

    def refusal(self, path: str, body: Object) -> str:
        return self._agent.refusal("PATCH", path, body)


@contextmanager
def rights_at(plane: ControlPlane, release: str, node: str) -> Iterator[Rights]:
    """Those of a release with the driver, on a cluster that knows snapshots."""
    values = {"csi": {"enabled": True}}
    manifests = render(values, release=release, namespace="default", only=TEMPLATES)
    with kinds_of_snapshots(plane), Rights(plane, manifests) as made:
        # Else the pod that a token is bound to is collected.
        made.objects.node(node)
        yield made


@contextmanager
def contents_of(kind: Kind, objects: Objects, agent: Caller, unique: str) -> Iterator[Contents]:
    """Nothing keeps those that were made in the end."""
    yield Contents(kind, objects, agent, unique)
    for one in objects.plane.request("GET", kind.collection)["items"]:
        path = f"{kind.collection}/{one['metadata']['name']}"
        objects.plane.request("PATCH", path, LET_GO, content_type=MERGE)


def annotated(notes: Mapping[str, str | None]) -> Object:
    return {"metadata": {"annotations": dict(notes)}}
