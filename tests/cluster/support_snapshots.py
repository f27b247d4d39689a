"""The cluster's part of snapshots: the real snapshot-controller, its kinds, and a lab with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import Caller
from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.suite import csitools
from tests.suite.api import MERGE
from tests.suite.names import CSI
from tests.suite.units import MIB
from tests.suite.until import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_API = "/apis/snapshot.storage.k8s.io/v1"
CONTENTS = f"{_API}/volumesnapshotcontents"
SNAPSHOTS = f"{_API}/namespaces/default/volumesnapshots"
SNAPSHOT_CLASSES = f"{_API}/volumesnapshotclasses"

BEING_CREATED = "snapshot.storage.kubernetes.io/volumesnapshot-being-created"

Snapshot = dict[str, Any]
Content = dict[str, Any]


@contextlib.contextmanager
def kinds_of_snapshots(plane: ControlPlane) -> Iterator[None]:
    """Have the cluster know the kinds of snapshots; all objects of theirs go in the end.

    The kinds stay: an API server takes long to forget a kind that it has just learned.
    """
    definitions = _definitions()
    for path, definition in definitions.items():
        if read(plane, path) is None:
            plane.request("POST", DEFINITIONS, definition)
    for path, definition in definitions.items():
        until(lambda path=path, one=definition: _is_served(plane, path, one))  # type: ignore[misc]
    try:
        yield
    finally:
        for definition in definitions.values():
            until(lambda one=definition: not _remove_objects(plane, one))  # type: ignore[misc]


def forget_kinds(plane: ControlPlane) -> None:
    """Have the cluster know no kind of snapshots.

    The API server hears of it by a watch, and lists their objects until then.
    """
    definitions = _definitions()
    for path in definitions:
        if read(plane, path) is not None:
            plane.request("DELETE", path)
    for path, definition in definitions.items():
        until(lambda path=path, one=definition: _is_gone(plane, path, one))  # type: ignore[misc]


def _definitions() -> dict[str, Any]:
    """The CustomResourceDefinitions, by where they are."""
    files = sorted(csitools.kept_by("snapshot-controller").glob("*.storage.k8s.io_*.yaml"))
    read_them = [yaml.safe_load(file.read_text()) for file in files]
    return {f"{DEFINITIONS}/{one['metadata']['name']}": one for one in read_them}


def _is_gone(plane: ControlPlane, path: str, definition: Any) -> bool:
    if read(plane, path) is None:
        return not _is_listed(plane, definition)
    _remove_objects(plane, definition)
    return False


def _is_listed(plane: ControlPlane, definition: Any) -> bool:
    """Whether the API server knows the kind still; also while it cannot tell."""
    try:
        return read(plane, "/".join(_where(definition))) is not None
    except RequestFailed:
        return True


def _remove_objects(plane: ControlPlane, definition: Any) -> int:
    """Remove the objects of a kind, for which nobody is left; returns how many there were."""
    where, plural = _where(definition)
    try:
        found = (read(plane, f"{where}/{plural}") or {"items": []})["items"]
    except RequestFailed:
        return 1  # while the kind goes, nobody can tell
    for one in found:
        meta = one["metadata"]
        namespace = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        path = f"{where}{namespace}/{plural}/{meta['name']}"
        with contextlib.suppress(RequestFailed):
            plane.request("DELETE", path)
            plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    return len(found)


def _where(definition: Any) -> tuple[str, str]:
    """The API's path, and the collection's name below it."""
    spec = definition["spec"]
    return f"/apis/{spec['group']}/v1", spec["names"]["plural"]


def _is_served(plane: ControlPlane, path: str, definition: Any) -> bool:
    status = plane.request("GET", path).get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
    if conditions.get("Established") != "True":
        return False
    # The storage is made at the first request, which may be refused (429) until it is.
    try:
        plane.request("GET", "/".join(_where(definition)))
    except RequestFailed:
        return False
    return True


@contextlib.contextmanager
def snapshot_controller(plane: ControlPlane, directory: Path) -> Iterator[Program]:
    """The kinds, and the controller that serves them, as clusters have it."""
    with kinds_of_snapshots(plane):
        argv = [
            str(csitools.provide("snapshot-controller")),
            f"--kubeconfig={plane.kubeconfig}",
            "--retry-interval-start=100ms",
            "--retry-interval-max=1s",
            "--v=4",
        ]
        program = Program(argv, {}, directory / "snapshot-controller.log")
        try:
            yield program
            program.check()
        finally:
            program.stop()


def read(plane: ControlPlane, path: str) -> Any:
    """The object, None if there is none."""
    try:
        return plane.request("GET", path)
    except RequestFailed as error:
        if error.status == 404:
            return None
        raise


class SnapshotLab(CsiLab):
    """A lab whose volumes have snapshots: `copying_pool`, `claimed`, then `snapshot`."""

    @property
    def caller(self) -> Caller:
        """The kubelet, for it."""
        return Caller(self.kubelet)

    def copying_pool(self, name: str = "fast") -> MadePool:
        """A pool whose backend can cut snapshots."""
        return self.csi_pool(name, backend="btrfs", fs_type="btrfs", size=512 * MIB)

    def claimed(self, **keys: Any) -> Claim:
        """A claim with its volume."""
        self._count += 1
        claim = self.claim(self.storage_class(f"class-{self._count}", provisioner=CSI), **keys)
        self.made(claim)
        return claim

    def handle(self, claim: Claim) -> str:
        """The handle of the claim's volume."""
        handle: str = self.made(claim)["spec"]["csi"]["volumeHandle"]
        return handle

    def snapshot_class(
        self, policy: str = "Delete", parameters: Mapping[str, str] | None = None
    ) -> str:
        self._count += 1
        name = f"{self.unique}-{policy.lower()}-{self._count}"
        body = {
            **of_kind("VolumeSnapshotClass", name),
            "driver": CSI,
            "deletionPolicy": policy,
            "parameters": dict(parameters or {}),
        }
        self.objects.make(SNAPSHOT_CLASSES, body)
        return name

    def snapshot(self, claim: Claim, class_name: str = "") -> Snapshot:
        """A VolumeSnapshot of the claim, of a class of its own if none is given."""
        self._count += 1
        return self.make_snapshot(
            f"{self.unique}-snapshot-{self._count}",
            volumeSnapshotClassName=class_name or self.snapshot_class(),
            source={"persistentVolumeClaimName": claim["metadata"]["name"]},
        )

    def make_snapshot(self, name: str, **spec: Any) -> Snapshot:
        body = {**of_kind("VolumeSnapshot", name), "spec": spec}
        made: Snapshot = self.plane.request("POST", SNAPSHOTS, body)
        return made

    def read_snapshot(self, snapshot: Snapshot) -> Snapshot | None:
        found: Snapshot | None = read(self.plane, f"{SNAPSHOTS}/{snapshot['metadata']['name']}")
        return found

    def ready(self, snapshot: Snapshot) -> Snapshot:
        """The VolumeSnapshot once it can be used."""
        found: Snapshot | None = self.until(
            lambda: self.read_snapshot(snapshot),
            lambda one: one and one.get("status", {}).get("readyToUse"),
        )
        assert found is not None
        return found

    def content_of(self, snapshot: Snapshot) -> Content | None:
        name = f"snapcontent-{snapshot['metadata']['uid']}"
        return self.content(name)

    def content(self, name: str) -> Content | None:
        found: Content | None = read(self.plane, f"{CONTENTS}/{name}")
        return found

    def until_content(self, snapshot: Snapshot, wanted: Any) -> Content:
        found: Content | None = self.until(
            lambda: self.content_of(snapshot), lambda one: one and wanted(one)
        )
        assert found is not None
        return found

    def failing(self, snapshot: Snapshot, text: str) -> Content:
        """The snapshot's content once its status says that."""
        return self.until_content(snapshot, lambda one: text in _error_of(one))

    def restored(self, snapshot: Snapshot, claim: Claim) -> Path:
        """What a pod has of a claim that has the snapshot's content."""
        source = {
            "apiGroup": "snapshot.storage.k8s.io",
            "kind": "VolumeSnapshot",
            "name": snapshot["metadata"]["name"],
        }
        spec = claim["spec"]
        size = spec["resources"]["requests"]["storage"]
        made = self.claim(spec["storageClassName"], size=size, dataSource=source)
        return self.caller.use(self.handle(made), f"pod-of-{made['metadata']['name']}")

    def delete_snapshot(self, snapshot: Snapshot) -> None:
        """Delete a VolumeSnapshot, whose content goes first."""
        self.plane.request("DELETE", f"{SNAPSHOTS}/{snapshot['metadata']['name']}")

    def take_away(self, snapshot: Snapshot) -> None:
        """Delete a VolumeSnapshot and wait until it is gone."""
        self.delete_snapshot(snapshot)
        self.until(lambda: self.read_snapshot(snapshot), lambda found: found is None)

    def make_content(
        self, name: str, *, annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> Content:
        """A VolumeSnapshotContent that a person makes."""
        body = {
            **of_kind("VolumeSnapshotContent", name),
            "spec": {"driver": CSI, "deletionPolicy": "Delete", **spec},
        }
        body["metadata"]["annotations"] = dict(annotations or {})
        made: Content = self.plane.request("POST", CONTENTS, body)
        return made

    def patch_content(self, content: Content, body: Any) -> None:
        path = f"{CONTENTS}/{content['metadata']['name']}"
        self.plane.request("PATCH", path, body, content_type=MERGE)

    def delete_content(self, content: Content) -> None:
        """Delete it as a person does, and wait until it is gone."""
        path = f"{CONTENTS}/{content['metadata']['name']}"
        self.plane.request("DELETE", path)
        self.until(lambda: read(self.plane, path), lambda found: found is None)

    def change_class(self, name: str, body: Any) -> None:
        path = f"{SNAPSHOT_CLASSES}/{name}"
        self.plane.request("PATCH", path, body, content_type=MERGE)

    def _remove_objects(self) -> None:
        for collection in (SNAPSHOTS, CONTENTS):
            for found in (read(self.plane, collection) or {"items": []})["items"]:
                if self.unique in str(found["spec"]) or self.unique in found["metadata"]["name"]:
                    path = f"{collection}/{found['metadata']['name']}"
                    self._ignore_missing("PATCH", path, {"metadata": {"finalizers": None}})
                    self._ignore_missing("DELETE", path)
        super()._remove_objects()


def handle_of(content: Content | None) -> str:
    """The handle of the content's snapshot."""
    assert content is not None
    handle: str = content["status"]["snapshotHandle"]
    return handle


def until_removed(lab: SnapshotLab, pool: MadePool, handle: str) -> None:
    """Wait until nothing is left of a snapshot whose content is gone: it was moved away before."""
    assert handle not in pool.inside()
    lab.until(
        lambda: (pool.records(), pool.trash()),
        lambda left: f"{handle}.json" not in left[0] and not left[1],
    )


def of_kind(kind: str, name: str) -> dict[str, Any]:
    """What an object of the group of snapshots begins with."""
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
    }


def _error_of(content: Content) -> str:
    message: str = content.get("status", {}).get("error", {}).get("message", "")
    return message


@contextlib.contextmanager
def snapshot_lab_for(objects: Objects, unique: str, directory: Path) -> Iterator[SnapshotLab]:
    """A lab with its node; everything of it goes in the end."""
    with SnapshotLab(objects, unique, directory) as lab:
        lab.make_node()
        yield lab
