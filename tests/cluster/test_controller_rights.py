"""The rights that the controller needs, and no others: all that it does is done with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import Values, render
from tests.cluster.support_accounts import Caller, kubeconfig, token
from tests.cluster.support_controller import LEASES, Ground, in_, term
from tests.cluster.support_endpoints import samples
from tests.cluster.support_flexclaims import Flex
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights, sample_spec, show
from tests.cluster.support_routing import Routing
from tests.suite.api import CLAIMS, DRIVERS, VOLUMES
from tests.suite.names import NODE_LABEL, SELECTED

pytestmark = pytest.mark.needs("controlplane")


OF_THE_DRIVER = {
    (verb, resource)
    for verb in ("list", "watch")
    for resource in ("volumesnapshots", "volumesnapshotcontents")
}
"""What is asked for once another test has a CSI volume, or a claim that is to be a copy of one.
These manifests leave the CSI driver out."""


@pytest.fixture
def rights(control_plane: ControlPlane, unique: str) -> Iterator[Rights]:
    """With whatever gives the controller a right, and the test's own class as the one whose volumes
    and claims are deleted."""
    values: Values = {
        "controller": {
            "storageClassNames": [f"{unique}-class"],
            "dynamicProvisioners": ["openebs.io/local"],
        },
        "flexvolume": {"driver": "bindmount"},
    }
    manifests = render(values, release=f"{unique}-r", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        yield made


def test_with_these_rights(ground: Ground, rights: Rights, tmp_path: Path) -> None:
    routing = Routing(ground)
    node, other = ground.node("a"), ground.node("b")
    late, now = routing.storage_class(), routing.storage_class("Immediate", "now")
    routing.capacity(now, node, "9Gi")
    ground.lease = "localvolume-controller"
    ground.start(
        ground.cls,
        return_period=0.0,
        provisioners=["openebs.io/local"],
        kubeconfig=kubeconfig(ground.plane, token(ground.plane, rights.controller), tmp_path),
    )
    # Routed, rescheduled, said.
    routing.routed(routing.claim(now), node)
    claim = routing.claim(late, selected=other)
    routing.routed(claim, other)
    ground.remove_node(other)
    routing.routed(claim, None)
    assert SELECTED not in routing.notes(claim)
    ground.event(claim, "ProvisioningFailed")
    # Made, held by our finalizer and deleted: FlexVolume.
    flex = Flex(ground, "localvolume.dev/flexvolume")
    flexed = flex.claim(flex.storage_class())
    flex.bound(flexed)
    flex.mounted(flexed, node)
    without = {"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}}
    ground.patch(f"{VOLUMES}/{flex.name_for(flexed)}", without)
    flex.drop(flexed)
    flex.being_deleted(flexed)
    flex.let_go(flexed)
    # Adopted.
    volume = ground.volume(
        provisioner="openebs.io/local", labelled=False, finalized=False, terms=[term(in_(node))]
    )
    name = volume["metadata"]["name"]
    ground.until(
        lambda: ground.get(VOLUMES, name) or {},
        lambda found: found["metadata"].get("labels", {}).get(NODE_LABEL) == node,
    )
    # Lost, and removed where that is wanted.
    used, unused = ground.volume(node), ground.volume(node)
    held = ground.bound(used)
    ground.remove_node(node)
    for thing in (held, unused):
        ground.gone(thing)
    ground.until(lambda: ground.get(DRIVERS, "dynamic.localvolume.dev"), bool)
    assert ground.get(LEASES, ground.lease)
    roles = [one for one in rights.manifests if one["metadata"]["name"] == rights.controller]
    allowed = {
        (verb, resource)
        for one in roles
        for rule in one.get("rules", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    def asked() -> set[tuple[str, str]]:
        found = samples(ground.port, "localvolume_api_requests_total")
        every = {(labels["verb"], labels["resource"]) for labels, _ in found}
        # What is said again is counted up, and here hardly anything is.
        return (every | {("patch", "events")}) - OF_THE_DRIVER

    ground.until(lambda: sorted(asked()), lambda found: set(found) >= allowed)
    assert asked() == allowed
    words = ("orbidden", "denied request")
    refused = [line for line in ground.log() if any(word in line for word in words)]
    assert not [line for line in refused if "volumesnapshot" not in line]


def test_what_it_is_refused(
    rights: Rights, objects: Objects, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It sees to volumes that are on a disk of a node: no network storage is its to delete."""
    caller = Caller(rights.plane, token(rights.plane, rights.controller))
    nfs = {"local": None, "nodeAffinity": None, "nfs": {"server": "x", "path": "/"}}
    network = objects.make(
        VOLUMES, {"metadata": {"name": f"{unique}-nfs"}, "spec": sample_spec("x", **nfs)}
    )
    vendors = {**nfs, "nfs": None, "flexVolume": {"driver": "example.com/network"}}
    flex = objects.make(
        VOLUMES, {"metadata": {"name": f"{unique}-flex"}, "spec": sample_spec("x", **vendors)}
    )
    spec = sample_spec("x", storageClassName=f"{unique}-class")
    disk = objects.make(VOLUMES, {"metadata": {"name": f"{unique}-disk"}, "spec": spec})

    def claim(name: str, **more: Any) -> str:
        spec = {
            "storageClassName": f"{unique}-class",
            "accessModes": ["ReadWriteOnce"],
            # More than the disk has: nobody binds them, and what is bound is refused for that.
            "resources": {"requests": {"storage": "1Ei"}},
            **more,
        }
        return (
            f"{CLAIMS}/{name_of(objects.make(CLAIMS, {'metadata': {'name': name}, 'spec': spec}))}"
        )

    of_claim, with_volume = claim(unique), claim(f"{unique}-bound", volumeName="none")
    on_network, on_disk = f"{VOLUMES}/{name_of(network)}", f"{VOLUMES}/{name_of(disk)}"
    mark = {"metadata": {"labels": {NODE_LABEL: "x"}}}
    bind = {"spec": {"volumeName": "another"}}
    policy = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
    local = {"metadata": {"name": f"{unique}-new"}, "spec": sample_spec("x")}
    touches = "touches only volumes that are on a disk of a node"
    rows = [
        ("offer a disk", "POST", VOLUMES, local, touches),
        ("mark network storage", "PATCH", on_network, mark, touches),
        ("delete network storage", "DELETE", on_network, None, touches),
        ("delete a vendor's FlexVolume", "DELETE", f"{VOLUMES}/{name_of(flex)}", None, touches),
        (
            "change a volume's policy",
            "PATCH",
            on_disk,
            policy,
            "changes nothing of a volume's spec",
        ),
        ("bind a claim", "PATCH", of_claim, bind, "changes only labels and annotations"),
        ("let a claim go", "PATCH", of_claim, {"metadata": {"finalizers": None}}, "changes only"),
        ("take another's Lease", "PATCH", f"{LEASES}/another", mark, "cannot patch"),
        ("read Secrets", "GET", "/api/v1/secrets", None, "cannot list"),
        ("write a Node", "PATCH", "/api/v1/nodes/x", mark, "cannot patch"),
    ]
    said = [
        (f"{what}: {method} {path}", caller.refusal(method, path, body))
        for what, method, path, body, _ in rows
    ]
    show(capsys, "What the controller is refused:", said)
    assert [
        tried for (tried, answer), row in zip(said, rows, strict=True) if row[4] not in answer
    ] == []
    for method, path, body in (
        ("PATCH", on_disk, mark),
        ("DELETE", on_disk, None),
        ("PATCH", of_claim, mark),
        ("DELETE", with_volume, None),
    ):
        assert caller.refusal(method, path, body) == "", (method, path)


def name_of(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])
