"""Which node a claim is routed to that asks for the content of a claim or a VolumeSnapshot."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.controller.caches.trimmed import VOLUMES, KnownVolume
from localvolume.controller.caches.trimmedclaims import CLAIMS, KnownClaim
from localvolume.controller.caches.trimmedsnapshots import CONTENTS, KnownContent
from localvolume.controller.plan.claims import Action, Keep, Nowhere, Reschedule, Route, decide
from localvolume.controller.plan.copies import MANAGED_BY_LABEL, Sources, source_key
from localvolume.kube.http.wire import codec
from localvolume.kube.objects import (
    CSISource,
    DataSource,
    Meta,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from localvolume.kube.snapshotobjects import (
    SnapshotRef,
    SnapshotSource,
    VolumeSnapshot,
    VolumeSnapshotContent,
    VolumeSnapshotContentSpec,
    VolumeSnapshotStatus,
)
from localvolume.volumes.marks import CSI_DRIVER, NODE_LABEL
from tests.decisions.support_routing import NODES, a, claim, facts, made, storage_class

SNAPSHOT = DataSource(api_group="snapshot.storage.k8s.io", kind="VolumeSnapshot", name="s")
CLONE = DataSource(kind="PersistentVolumeClaim", name="source")
POPULATOR = DataSource(api_group="x.example", kind="Populator", name="p")

CSI = storage_class("csi", "WaitForFirstConsumer", CSI_DRIVER)
NOW = storage_class("csi", "Immediate", CSI_DRIVER)


def copy(source: DataSource = SNAPSHOT, **changes: Any) -> PersistentVolumeClaim:
    """A claim that asks for content; its class waits for a pod, and none has come."""
    found = claim("csi", **({"provisioner": None} | changes))
    return replace(found, spec=replace(found.spec, data_source_ref=source))


def held_by(uid: str = "source-uid", *, driver: str = CSI_DRIVER, **changes: Any) -> Any:
    """The volume `pvc-9` of the claim `source`, on the node n2."""
    told = {"holder": uid, "label": "n2", "source": "none"}
    found = made("pvc-9", **(told | changes))
    return replace(found, spec=replace(found.spec, csi=CSISource(driver=driver)))


SOURCE = replace(
    claim(None, volume_name="pvc-9"), metadata=Meta(name="source", namespace="x", uid="source-uid")
)


def snapshot(*, ready: bool | None = True, content: str | None = "c") -> VolumeSnapshot:
    status = VolumeSnapshotStatus(bound_volume_snapshot_content_name=content, ready_to_use=ready)
    return VolumeSnapshot(metadata=Meta(name="s", namespace="x", uid="s-uid"), status=status)


def content(
    *,
    handle: str | None = "pvc-9",
    uid: str = "s-uid",
    namespace: str = "x",
    driver: str = CSI_DRIVER,
    annotation: str = "",
    label: str = "",
) -> VolumeSnapshotContent:
    return VolumeSnapshotContent(
        metadata=Meta(
            name="c",
            annotations={NODE_LABEL: annotation} if annotation else {},
            labels={MANAGED_BY_LABEL: label} if label else {},
        ),
        spec=VolumeSnapshotContentSpec(
            driver=driver,
            source=SnapshotSource(volume_handle=handle),
            volume_snapshot_ref=SnapshotRef(name="s", namespace=namespace, uid=uid),
        ),
    )


_SNAPSHOT, _CONTENT = snapshot(), content()


def decided(
    about: PersistentVolumeClaim,
    *,
    of: StorageClass = CSI,
    claims: Iterable[PersistentVolumeClaim] = (SOURCE,),
    volumes: Iterable[PersistentVolume] | None = None,
    snapshots: VolumeSnapshot | None = _SNAPSHOT,
    contents: VolumeSnapshotContent | None = _CONTENT,
    unread: str = "",
) -> Action:
    there = {one.metadata.name: one for one in ([held_by()] if volumes is None else volumes)}
    known = facts(NODES, classes=(CSI, of), served=(CSI_DRIVER,), volumes=there.values())
    sources = Sources(
        claims={f"{c.metadata.namespace}/{c.metadata.name}": c for c in claims},
        volumes=there,
        volume_of=there.get,
        snapshots=dict.fromkeys(["x/s"], snapshots) if snapshots else {},
        contents=dict.fromkeys(["c"], contents) if contents else {},
        unread=unread,
    )
    return decide(dataclasses.replace(known, sources=sources), about)


# --- to the node that has the content ------------------------------------------------------------


@pytest.mark.parametrize("asks", [SNAPSHOT, CLONE], ids=["restore", "clone"])
@pytest.mark.parametrize("of", [CSI, NOW], ids=["waits", "immediate"])
@pytest.mark.parametrize("asked", [None, CSI_DRIVER])
@pytest.mark.parametrize("selected", [None, "n1", "n2", "gone"])
def test_at_once_and_whichever_node_is_selected(
    asks: DataSource, of: StorageClass, asked: str | None, selected: str | None
) -> None:
    about = copy(asks, provisioner=asked, selected=selected)
    assert a(Route, decided(about, of=of)).key == "n2"
    there = copy(asks, provisioner=asked, selected=selected, label="n2")
    assert a(Keep, decided(there, of=of)).here == "n2"
    elsewhere = copy(asks, provisioner=asked, selected=selected, label="n1")
    assert a(Route, decided(elsewhere, of=of)).key == "n2"


def test_the_node_of_a_snapshot_whose_volume_is_gone() -> None:
    annotated = content(annotation="n3", label="n1")
    assert a(Route, decided(copy(), volumes=(), contents=annotated)).key == "n3"
    labelled = content(label="n1")
    assert a(Route, decided(copy(), volumes=(), contents=labelled)).key == "n1"
    given = content(handle=None, annotation="n3")
    assert a(Route, decided(copy(), contents=given)).key == "n3", "pre-provisioned"
    found = a(Nowhere, decided(copy(), volumes=(), contents=content()))
    assert "no agent is known to have VolumeSnapshot x/s" in found.reason


# --- nowhere, and why ----------------------------------------------------------------------------

OTHER = "ebs.csi.aws.com"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"claims": ()}, "claim x/source, whose content it asks for, does not exist",
                     id="no-claim"),
        pytest.param({"claims": (claim(None),)}, "does not exist", id="another-claim"),
        pytest.param({"volumes": ()}, "has no volume yet", id="no-volume"),
        pytest.param({"volumes": (held_by("another"),)}, "has no volume yet", id="not-its-volume"),
        pytest.param({"volumes": (held_by(driver=OTHER),)}, "only those are cloned",
                     id="another-driver"),
        pytest.param({"volumes": (held_by(label=None),)}, "no agent is known", id="not-adopted"),
        pytest.param({"volumes": (held_by(label="n9"),)}, "is on node n9, which does not exist",
                     id="lost"),
    ],
)  # fmt: skip
def test_no_node_for_a_clone(changes: dict[str, Any], why: str) -> None:
    assert why in a(Nowhere, decided(copy(CLONE), **changes)).reason


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"unread": "this cluster has no volumesnapshots"}, "this cluster has no",
                     id="no-kind"),
        pytest.param({"snapshots": None}, "does not exist", id="none"),
        pytest.param({"snapshots": VolumeSnapshot()}, "is not ready yet", id="new"),
        pytest.param({"snapshots": snapshot(ready=None)}, "is not ready yet", id="not-ready"),
        pytest.param({"snapshots": snapshot(content=None)}, "is not ready yet", id="unbound"),
        pytest.param({"contents": None}, "has lost its content c", id="no-content"),
        pytest.param({"contents": content(uid="old")}, "does not name VolumeSnapshot x/s",
                     id="content-of-an-earlier-one"),
        pytest.param({"contents": content(namespace="theirs")}, "does not name",
                     id="content-of-another-namespace"),
        pytest.param({"contents": content(driver=OTHER)}, f"is one of {OTHER}",
                     id="another-driver"),
    ],
)  # fmt: skip
def test_no_node_for_a_restore(changes: dict[str, Any], why: str) -> None:
    assert why in a(Nowhere, decided(copy(), **changes)).reason


def test_content_of_another_namespace() -> None:
    other = DataSource(kind="PersistentVolumeClaim", name="source", namespace="theirs")
    assert "its own namespace alone" in a(Nowhere, decided(copy(other))).reason
    own = DataSource(kind="PersistentVolumeClaim", name="source", namespace="x")
    a(Route, decided(copy(own)))


def test_a_class_that_does_not_allow_the_node() -> None:
    only = storage_class("csi", None, CSI_DRIVER, [{"kubernetes.io/hostname": ["n1"]}])
    assert "allowedTopologies" in a(Nowhere, decided(copy(CLONE), of=only)).reason


# --- none of our business ------------------------------------------------------------------------


def test_what_a_populator_fills() -> None:
    found = decided(copy(POPULATOR, provisioner=CSI_DRIVER, selected="n1"))
    assert "a populator of Populator" in a(Keep, found).reason


def test_another_provisioner_of_its_own_class() -> None:
    found = decided(copy(provisioner="other.example", selected="n1"))
    assert "it is for other.example" in a(Keep, found).reason


def test_one_that_is_bound_follows_its_volume() -> None:
    volume = replace(held_by("claim-uid"), metadata=replace(held_by().metadata, name="pvc-1"))
    about = copy(volume_name="pvc-1")
    assert a(Route, decided(about, volumes=(volume,))).key == "n2"


def test_plain_claims_go_where_they_went() -> None:
    a(Reschedule, decided(claim("csi", provisioner=CSI_DRIVER, selected="gone")))


# --- what is kept of the objects -----------------------------------------------------------------


def read(kind: Any, **fields: Any) -> Any:
    return codec(kind).one(json.dumps(fields).encode())


def test_a_claim_keeps_its_source_until_it_is_bound() -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "source"}
    meta = {"name": "data", "namespace": "x"}
    waiting: KnownClaim = read(CLAIMS, metadata=meta, spec={"dataSource": source})
    assert source_key(waiting) == "PersistentVolumeClaim x/source"
    both = {"dataSource": source, "dataSourceRef": {**source, "namespace": "theirs"}}
    other: KnownClaim = read(CLAIMS, metadata=meta, spec=both)
    assert other.spec.data_source_ref is not None
    assert other.spec.data_source_ref.namespace == "theirs"
    done: KnownClaim = read(
        CLAIMS, metadata=meta, spec={"volumeName": "pvc-1", "dataSource": source}
    )
    assert source_key(done) == ""


def test_a_handle_is_kept_where_it_is_not_the_name() -> None:
    def volume(name: str) -> KnownVolume:
        csi = {"driver": CSI_DRIVER, "volumeHandle": "csi-1", "volumeAttributes": {"a": "b"}}
        found: KnownVolume = read(VOLUMES, metadata={"name": name}, spec={"csi": csi})
        return found

    assert volume("csi-1").spec.csi == CSISource(driver=CSI_DRIVER)
    assert volume("csi-1").spec.csi is volume("csi-1").spec.csi
    assert volume("pvc-1").spec.csi == CSISource(driver=CSI_DRIVER, volume_handle="csi-1")


def test_a_content_keeps_what_says_where_it_is() -> None:
    found: KnownContent = read(
        CONTENTS,
        metadata={
            "name": "c",
            "annotations": {NODE_LABEL: "n3", "other": "x"},
            "labels": {MANAGED_BY_LABEL: "n1", "other": "x"},
        },
        spec={
            "driver": CSI_DRIVER,
            "deletionPolicy": "Delete",
            "source": {"volumeHandle": "pvc-9"},
            "volumeSnapshotRef": {"name": "s", "namespace": "x", "uid": "s-uid"},
        },
        status={"snapshotHandle": "csi-1", "readyToUse": True},
    )
    assert dict(found.metadata.annotations) == {NODE_LABEL: "n3"}
    assert dict(found.metadata.labels) == {MANAGED_BY_LABEL: "n1"}
    assert (found.spec.driver, found.spec.source.volume_handle) == (CSI_DRIVER, "pvc-9")
    assert found.spec.volume_snapshot_ref.uid == "s-uid"
