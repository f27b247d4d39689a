"""What a stolen token is good for with CSI volumes: nothing beyond its own node.

Each attack is tried on the API server, with the policies as the chart renders them; beside it what
the same account has to do is still allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.attacks.test_rights import reference, term
from tests.chart.support_helm import Values, render
from tests.cluster.support_accounts import Caller, token
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights, sample_spec
from tests.suite.api import DRIVERS, VOLUMES
from tests.suite.names import NODE_LABEL, PROVISIONED_BY

pytestmark = pytest.mark.needs("controlplane")

Object = dict[str, Any]

NODE, OTHER = "csi-attacked-b", "csi-attacked-a"
DRIVER, DYNAMIC = "csi.localvolume.dev", "dynamic.localvolume.dev"
POOL = "localvolume.dev/pool"
NEW = "csi-attacked-new"
LOST = "csi-lost-with-its-node"
SECRET = {"name": "registry", "namespace": "kube-system"}
VALUES: Values = {
    "csi": {"enabled": True},
    "flexvolume": {"driver": "bindmount"},
    "pools": {"dirs": {"hostDir": "/mnt/pools/dirs"}},
    "dynamicStorageClasses": [{"name": "csi", "provisioner": DRIVER}, {"name": "made"}],
    "controller": {"storageClassNames": [LOST]},
}
WITHOUT: Values = {
    **VALUES,
    "csi": {"enabled": False},
    "dynamicStorageClasses": [{"name": "made"}],
    "confinement": {"dynamicClasses": ["csi"]},
}


@dataclass(frozen=True)
class Stolen:
    """The tokens of the agent of one node and of the controller."""

    objects: Objects
    agent: Caller
    controller: Caller


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> Iterator[Rights]:
    manifests = render(VALUES, release="csi-attacked", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        # Else the pod that a token is bound to is collected.
        made.objects.node(NODE)
        yield made


@pytest.fixture
def stolen(rights: Rights, objects: Objects) -> Stolen:
    controller = Caller(rights.plane, token(rights.plane, rights.controller))
    return Stolen(objects, rights.caller(NODE), controller)


def volume(
    name: str = NEW,
    *terms: Object,
    by: str = DRIVER,
    pool: str = "dirs/id",
    node: str = NODE,
    csi: Object | None = None,
    **spec: Any,
) -> Object:
    """What an agent makes for a claim; `csi` is said over its source."""
    source = {
        "driver": DRIVER,
        "volumeHandle": name,
        "fsType": "ext4",
        "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": DRIVER},
    }
    given = {
        "local": None,
        "csi": {**source, **(csi or {})},
        "storageClassName": "csi",
        "claimRef": reference(),
        "nodeAffinity": {
            "required": {"nodeSelectorTerms": list(terms) or [term(value=NODE)]},
        },
    }
    notes = {PROVISIONED_BY: by, POOL: pool}
    labels = {NODE_LABEL: node} if node else {}
    meta = {
        "name": name,
        "labels": labels,
        "annotations": {key: value for key, value in notes.items() if value},
    }
    return {"metadata": meta, "spec": {**sample_spec(NODE), **given, **spec}}


def local(by: str) -> Object:
    return volume(by=by) | {
        "spec": volume()["spec"] | {"csi": None, "local": {"path": "/mnt/pools/dirs/pvc-1"}}
    }


OWN: Mapping[str, Object] = {
    "a volume of the driver": volume(),
    "a device": volume(volumeMode="Block", csi={"fsType": None}),
    "of the other provisioner": local(DYNAMIC),
}
"""What an agent with these values has to offer."""

NOTHING_ELSE = "an agent offers directories and devices of its node"
HANDLE = "the volumeHandle of a volume that an agent makes"
NO_SECRET = "names no Secret"
SAYS = "says which pool it is in"
LABEL = "may offer only volumes with the label"

FALSE: Mapping[str, tuple[Object, str]] = {
    "of another driver": (volume(csi={"driver": "ebs.csi.aws.com"}), NOTHING_ELSE),
    "of a driver like ours": (volume(csi={"driver": f"x.{DRIVER}"}), NOTHING_ELSE),
    "with another volume's handle": (volume(csi={"volumeHandle": "pvc-2"}), HANDLE),
    "with a path as its handle": (volume(csi={"volumeHandle": f"../{NEW}"}), HANDLE),
    **{
        f"with {one}": (volume(csi={one: SECRET}), NO_SECRET)
        for one in (
            *("controllerPublishSecretRef", "nodeStageSecretRef", "nodePublishSecretRef"),
            *("controllerExpandSecretRef", "nodeExpandSecretRef"),
        )
    },
    "said to be another driver's": (volume(by="ebs.csi.aws.com"), SAYS),
    "said to be of the other provisioner": (volume(by=DYNAMIC), SAYS),
    "a directory that is said to be of the driver": (local(DRIVER), SAYS),
    "said to be nobody's": (volume(by=""), SAYS),
    "said to be in no pool": (volume(pool=""), SAYS),
    "on another node": (volume(NEW, term(value=OTHER)), LABEL),
    "on another node too": (volume(NEW, term(value=NODE), term(value=OTHER)), LABEL),
    "of another node": (volume(node=OTHER), LABEL),
    "of no node": (volume(node=""), LABEL),
    "on every node": (volume(nodeAffinity=None), LABEL),
    "of a class that is not served": (
        volume(storageClassName="ebs"),
        "may make no volume for a claim of the class",
    ),
    "that waits for whichever claim": (volume(claimRef=None), "may offer no volume"),
}


@pytest.mark.parametrize("what", OWN)
def test_an_agent_makes_what_is_its_nodes(stolen: Stolen, what: str) -> None:
    assert stolen.agent.refusal("POST", VOLUMES, OWN[what]) == ""


@pytest.mark.parametrize("what", FALSE)
def test_an_agent_makes_nothing_else(stolen: Stolen, what: str) -> None:
    body, said = FALSE[what]
    assert said in stolen.agent.refusal("POST", VOLUMES, body)


def test_a_volume_gets_no_secret_later(stolen: Stolen, unique: str) -> None:
    """Kubernetes lets whoever may change a volume name one: the node could read it then."""
    stolen.objects.make(VOLUMES, volume(unique))
    path = f"{VOLUMES}/{unique}"
    body = {"spec": {"csi": {"controllerExpandSecretRef": SECRET}}}
    said = stolen.agent.refusal("PATCH", path, body, really=True)
    assert "changes nothing of what a volume is for its CSI driver" in said
    said = stolen.controller.refusal("PATCH", path, body, really=True)
    assert "the controller changes nothing of a volume's spec" in said
    assert "controllerExpandSecretRef" not in stolen.objects.get(path)["spec"]["csi"]
    note = {"metadata": {"annotations": {"localvolume.dev/released-since": "x"}}}
    assert stolen.agent.refusal("PATCH", path, note) == ""


SOURCES: Mapping[str, tuple[Object, Object]] = {
    "another handle": (volume(), {"csi": {"volumeHandle": "pvc-2"}}),
    "another driver": (volume(), {"csi": {"driver": "ebs.csi.aws.com"}}),
    "a directory": (volume(), {"csi": None, "local": {"path": "/mnt/pools/dirs/pvc-1"}}),
    "from a directory": (
        local(DYNAMIC),
        {"local": None, "csi": {"driver": DRIVER, "volumeHandle": "pvc-2"}},
    ),
}


@pytest.mark.parametrize("what", SOURCES)
def test_a_volume_keeps_its_source(stolen: Stolen, what: str, unique: str) -> None:
    """That is a rule of Kubernetes' own as well, so either may say it."""
    body, spec = SOURCES[what]
    meta = {**body["metadata"], "name": unique}
    stolen.objects.make(VOLUMES, {**body, "metadata": meta})
    before = stolen.objects.get(f"{VOLUMES}/{unique}")["spec"]
    said = stolen.agent.refusal("PATCH", f"{VOLUMES}/{unique}", {"spec": spec}, really=True)
    assert "immutable after creation" in said or "for its CSI driver" in said
    assert stolen.objects.get(f"{VOLUMES}/{unique}")["spec"] == before


def test_volumes_of_another_node_are_not_touched(stolen: Stolen, unique: str) -> None:
    stolen.objects.make(VOLUMES, volume(unique, term(value=OTHER), node=OTHER))
    path = f"{VOLUMES}/{unique}"
    note = {"metadata": {"annotations": {"example.com/x": "y"}}}
    label = {"metadata": {"labels": {NODE_LABEL: NODE}}}
    for method, body in (("PATCH", note), ("PATCH", label), ("DELETE", None)):
        said = stolen.agent.refusal(method, path, body, really=True)
        assert f"the agent of {NODE} may" in said, (method, body)


@pytest.mark.parametrize("driver", [DRIVER, "ebs.csi.aws.com"])
def test_a_volume_without_a_label_is_not_taken(stolen: Stolen, driver: str, unique: str) -> None:
    """The agent labels what it makes, and adopts only what other tools made."""
    stolen.objects.make(VOLUMES, volume(unique, node="", csi={"driver": driver}))
    label = {"metadata": {"labels": {NODE_LABEL: NODE}}}
    said = stolen.agent.refusal("PATCH", f"{VOLUMES}/{unique}", label, really=True)
    assert "may adopt only a volume" in said


def test_without_the_value_there_is_no_volume_of_the_driver(
    control_plane: ControlPlane, unique: str
) -> None:
    manifests = render(WITHOUT, release=unique, namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as without:
        without.objects.node(f"{unique}-node")
        own = term(value=f"{unique}-node")
        caller = without.caller(f"{unique}-node")
        body = volume(NEW, own, node=f"{unique}-node")
        assert NOTHING_ELSE in caller.refusal("POST", VOLUMES, body)


# --- the controller's token ----------------------------------------------------------------------


def test_the_controller_marks_volumes_of_ours_alone(stolen: Stolen, unique: str) -> None:
    """And deletes those of the classes that are listed."""
    note = {"metadata": {"annotations": {"localvolume.dev/node-lost-since": "x"}}}
    label = {"metadata": {"labels": {NODE_LABEL: OTHER}}}
    for name, body, said in (
        ("ours", volume(f"{unique}-ours"), ""),
        ("theirs", volume(f"{unique}-theirs", csi={"driver": "ebs.csi.aws.com"}), "on a disk"),
    ):
        stolen.objects.make(VOLUMES, body)
        answer = stolen.controller.refusal("PATCH", f"{VOLUMES}/{unique}-{name}", note)
        assert said in answer if said else answer == ""
    bare = f"{unique}-bare"
    stolen.objects.make(VOLUMES, volume(bare, node="", pool=""))
    assert stolen.controller.refusal("PATCH", f"{VOLUMES}/{bare}", label) == ""
    listed = "classes in controller.storageClassNames"
    assert listed in stolen.controller.refusal("DELETE", f"{VOLUMES}/{unique}-ours")
    stolen.objects.make(VOLUMES, volume(f"{unique}-lost", storageClassName=LOST))
    assert stolen.controller.refusal("DELETE", f"{VOLUMES}/{unique}-lost") == ""


def test_the_controller_makes_no_volume_of_the_driver(stolen: Stolen) -> None:
    """FlexVolume gives it the right to make volumes, of its own drivers."""
    said = stolen.controller.refusal("POST", VOLUMES, volume())
    assert "the controller makes FlexVolumes" in said


def test_the_controller_makes_our_two_csidrivers_alone(stolen: Stolen) -> None:
    for name in (DRIVER, DYNAMIC):
        body = {"metadata": {"name": name}, "spec": {"attachRequired": False}}
        said = stolen.controller.refusal("POST", DRIVERS, body)
        assert said == "" or "already exists" in said
        said = stolen.controller.refusal("PATCH", f"{DRIVERS}/{name}", {"metadata": {}})
        assert "cannot patch" in said
    body = {"metadata": {"name": f"x.{DRIVER}"}, "spec": {"attachRequired": False}}
    assert "and no other" in stolen.controller.refusal("POST", DRIVERS, body)


def test_the_api_server_finds_no_mistake_in_the_policies(rights: Rights) -> None:
    rights.check_types()
