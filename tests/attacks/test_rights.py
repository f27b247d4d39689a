"""What a stolen token is good for beyond its node: nothing.

Each attack is tried on the API server, with the policies as the chart renders them and a token of
the account in question; beside them what the same account has to do is still allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from localvolume.controlplane import ControlPlane
from tests.chart.support_helm import Values, render
from tests.cluster.support_accounts import RBAC, Caller, token
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights, sample_spec
from tests.suite.api import CLAIMS, VOLUMES
from tests.suite.names import NODE_LABEL, PROVISIONED_BY
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane")

Object = dict[str, Any]

NODE = "attacked-b"
POOL = "localvolume.dev/pool"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
FLEX = "localvolume.dev/flexvolume"
OURS = "dynamic.localvolume.dev"
IMAGE = "registry.example/localvolume:attacked"
SHARED = {"matchExpressions": [{"key": "example.com/rack", "operator": "In", "values": ["r1"]}]}
VALUES: Values = {
    "flexvolume": {"driver": "bindmount"},
}


@dataclass(frozen=True)
class Stolen:
    """The tokens of the agent of one node and of the controller."""

    rights: Rights
    objects: Objects
    agent: Caller
    controller: Caller


@pytest.fixture(scope="module")
def stolen(control_plane: ControlPlane) -> Iterator[Stolen]:
    manifests = render(VALUES, release="attacked", namespace="default", only=TEMPLATES)
    objects = Objects(control_plane)
    # Else the pod that the token is bound to is collected.
    objects.node(NODE)
    try:
        with Rights(control_plane, manifests) as rights:
            controller = Caller(control_plane, token(control_plane, rights.controller))
            yield Stolen(rights, objects, rights.caller(NODE), controller)
    finally:
        objects.clean()


def waiting(objects: Objects, name: str, storage_class: str) -> Object:
    """Somebody's claim that has no volume yet, and a reference to it."""
    claim = objects.make(
        CLAIMS,
        {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": storage_class,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
            },
        },
    )
    return reference(name, claim["metadata"]["uid"])


def reference(name: str = "somebodys", uid: str = "00000000-0000-4000-8000-000000000000") -> Object:
    what = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return {**what, "namespace": "default", "name": name, "uid": uid}


def is_free(objects: Objects, name: str) -> bool:
    found = objects.get(f"{CLAIMS}/{name}")
    return "volumeName" not in found["spec"] and found["status"]["phase"] == "Pending"


# --- the controller's token ----------------------------------------------------------------------


def flexvolume(name: str, claim: Object | None = None, **source: Any) -> Object:
    """What the controller makes for a claim."""
    flex = {"driver": FLEX, "options": {"size": "1048576"}, **source}
    more = {"local": None, "nodeAffinity": None, "flexVolume": flex, "storageClassName": "flexed"}
    return {
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: FLEX}},
        "spec": sample_spec("x", **more, claimRef=claim or reference()),
    }


def test_the_controller_may_not_have_a_node_read_a_secret(stolen: Stolen, unique: str) -> None:
    claim = waiting(stolen.objects, unique, "flexed")
    secret = {"name": "registry", "namespace": "kube-system"}
    body = flexvolume(f"{unique}-pv", claim, secretRef=secret)
    said = stolen.controller.refusal("POST", VOLUMES, body, really=True)
    assert "names no Secret" in said
    assert is_free(stolen.objects, unique)
    assert stolen.controller.refusal("POST", VOLUMES, flexvolume(f"{unique}-pv", claim)) == ""


def test_nor_name_the_secret_later(stolen: Stolen, unique: str) -> None:
    """Whoever changes a volume keeps its source: that is Kubernetes' own rule, before ours."""
    made = stolen.objects.make(VOLUMES, flexvolume(f"{unique}-pv"))
    path = f"{VOLUMES}/{made['metadata']['name']}"
    label = {"metadata": {"labels": {NODE_LABEL: NODE}}}
    patch = {"spec": {"flexVolume": {"secretRef": {"name": "registry", "namespace": "default"}}}}
    for caller, body in ((stolen.controller, patch), (stolen.agent, label | patch)):
        assert "is immutable after creation" in caller.refusal("PATCH", path, body, really=True)
    assert "secretRef" not in stolen.objects.get(path)["spec"]["flexVolume"]


def test_without_flexvolume_the_controller_makes_nothing(
    control_plane: ControlPlane, unique: str
) -> None:
    """Its role does not let it, and the policy does not where somebody gave it the right."""
    without = {key: value for key, value in VALUES.items() if key != "flexvolume"}
    manifests = render(without, release=unique, namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as rights:
        caller = Caller(control_plane, token(control_plane, rights.controller))
        body = flexvolume(f"{unique}-pv")
        assert "cannot create resource" in caller.refusal("POST", VOLUMES, body)
        rule = {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["create"]}
        name = f"{unique}-more"
        meta = {"metadata": {"name": name}}
        rights.objects.make(f"{RBAC}/clusterroles", {**meta, "rules": [rule]})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        account = {"kind": "ServiceAccount", "name": rights.controller, "namespace": "default"}
        binding = {**meta, "roleRef": role, "subjects": [account]}
        rights.objects.make(f"{RBAC}/clusterrolebindings", binding)
        said = until(
            lambda: caller.refusal("POST", VOLUMES, body),
            lambda answer: "cannot create resource" not in answer,
        )
        assert "FlexVolume is not served here" in said


def test_the_api_server_finds_no_mistake_in_the_policies(stolen: Stolen) -> None:
    stolen.rights.check_types()
