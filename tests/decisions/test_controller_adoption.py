"""Adoption: which node's label a PersistentVolume of the upstream provisioner gets, if any."""

from __future__ import annotations

import json

import msgspec
import pytest

from localvolume.controller.caches.trimmed import NODES, VOLUMES
from localvolume.controller.model import Adopt, Keep, MarkLost, Policy
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.volumes import Facts, decide
from localvolume.kube.http.wire import codec
from localvolume.volumes import marks
from tests.decisions.support_controller import (
    a,
    action,
    node,
    on_hosts,
    requirement,
    term,
    volume,
)


@pytest.mark.parametrize("uid", ["", "-0d3f8ed4-6c5e-4b0f-9f3a-111111111111"])
def test_both_forms_of_the_provisioners_name_count(uid: str) -> None:
    made = volume(on_hosts("n1"), provisioner=f"local-volume-provisioner-n1{uid}", label=None)
    assert a(Adopt, action(made, [node("n1"), node("n2")])).node_name == "n1"


def test_the_node_is_found_by_its_hostname_where_that_is_not_its_name() -> None:
    made = volume(on_hosts("host-1"), provisioner="local-volume-provisioner-n1-u", label=None)
    assert a(Adopt, action(made, [node("n1", hostname="host-1")])).node_name == "n1"


def test_the_affinity_tells_nodes_apart_whose_names_begin_alike() -> None:
    there = [node("a"), node("a-b")]
    for host in ("a", "a-b"):
        made = volume(on_hosts(host), provisioner="local-volume-provisioner-a-b-u", label=None)
        assert a(Adopt, action(made, there)).node_name == host


def test_where_both_may_be_meant_nobody_is() -> None:
    made = volume(on_hosts("a", "a-b"), provisioner="local-volume-provisioner-a-b-u", label=None)
    assert "any of" in a(Keep, action(made, [node("a"), node("a-b")])).reason


def test_a_node_that_did_not_make_it_does_not_get_it() -> None:
    made = volume(on_hosts("n1"), provisioner="local-volume-provisioner-n2-u", label=None)
    assert "n2" in a(Keep, action(made, [node("n1"), node("n2")])).reason


def test_one_that_another_label_means_was_made_on_no_node_that_it_names() -> None:
    """Every node of that zone could serve it, and nothing tells which has it."""
    shared = term(requirement("zone", "In", "a"))
    made = volume(shared, provisioner="local-volume-provisioner-n1-u", label=None)
    found = a(Keep, action(made, [node("n1", zone="a")]))
    assert found.reason == "not adopted: no node that its affinity names is there"


def test_what_has_a_label_keeps_it() -> None:
    made = volume(on_hosts("n1"), provisioner="local-volume-provisioner-n1-u", label="n2")
    a(Keep, action(made, [node("n1"), node("n2")]))


def test_what_others_made_is_not_adopted() -> None:
    made = volume(on_hosts("n1"), provisioner="rancher.io/local-path", label=None)
    a(Keep, action(made, [node("n1")]))
    unsaid = volume(on_hosts("n1"), provisioner=None, label=None)
    a(Keep, action(unsaid, [node("n1")]))


def test_what_waits_for_its_node_is_lost_not_adopted() -> None:
    made = volume(on_hosts("n1"), provisioner="local-volume-provisioner-n1-u", label=None)
    a(MarkLost, action(made, [node("n2")]))


def test_the_alpha_affinity_counts() -> None:
    alpha = (
        '{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions"'
        ':[{"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]}]}}'
    )
    made = volume(
        provisioner="local-volume-provisioner-n1",
        label=None,
        annotations={marks.ALPHA_AFFINITY_ANNOTATION: alpha},
    )

    bare = msgspec.structs.replace(
        made, spec=msgspec.structs.replace(made.spec, node_affinity=None)
    )
    assert a(Adopt, action(bare, [node("n1")])).node_name == "n1"


def test_the_alpha_affinity_is_read_of_what_the_server_sends() -> None:
    """Of Kubernetes before 1.10; today's API server takes no new one."""
    hosts = {"key": marks.HOSTNAME_LABEL, "operator": "In", "values": ["node-1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    made = {
        "metadata": {
            "name": "old",
            "uid": "1",
            "resourceVersion": "1",
            "annotations": {
                marks.PROVISIONED_BY_ANNOTATION: "local-volume-provisioner-node-1",
                "volume.alpha.kubernetes.io/node-affinity": json.dumps(affinity),
            },
        },
        "spec": {"local": {"path": "/mnt/old"}, "storageClassName": "fast"},
        "status": {"phase": "Available"},
    }
    there = {"metadata": {"name": "node-1", "uid": "2", "labels": {marks.HOSTNAME_LABEL: "node-1"}}}
    nodes = Nodes([codec(NODES).one(json.dumps(there).encode())])
    found = decide(Facts(nodes, Policy()), codec(VOLUMES).one(json.dumps(made).encode()))
    assert a(Adopt, found).node_name == "node-1"
