"""What the values of the chart let an agent name its node by, and nothing beside it."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from localvolume.volumes.marks import node_key
from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_accounts import Caller
from tests.cluster.support_confinement import MARK, belongings, capacity, volume
from tests.cluster.support_rights import TEMPLATES, Rights, sample_spec
from tests.suite.api import CAPACITIES, NODES, VOLUMES
from tests.suite.names import HOSTNAME

pytestmark = pytest.mark.needs("controlplane")

SHORT = "short.confined.example"
LONG = "long." + ".".join(["quite"] * 12)
UNKNOWN = f"other.{LONG}"
NODENAME = "openebs.io/nodename"
SHARED = [
    {
        "matchExpressions": [
            {"key": "example.com/rack", "operator": "In", "values": ["r1", "r2"]},
            {"key": "example.com/disk", "operator": "Exists"},
        ]
    }
]
VALUES = {
    "useJobForCleaning": True,
    "removeNodeNotReadyTaint": True,
    "confinement": {
        "hostname": "variables.node.split('.')[0]",
        "nodeKeys": {LONG: node_key(LONG)},
        "affinityLabels": {NODENAME: "variables.node"},
        "directories": {"none": "/"},
    },
    "classes": [{"name": "shared", "hostDir": "/mnt/shared", "selector": SHARED}],
}

Term = dict[str, Any]


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> Iterator[Rights]:
    manifests = render(VALUES, release="named", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        for node in (SHORT, LONG, UNKNOWN):
            # Where there is no such Node, Kubernetes takes its pods away within a minute, and with
            # them whatever their tokens are good for.
            control_plane.create_node(node, {HOSTNAME: node.partition(".")[0]})
            made.objects.adopt(f"{NODES}/{node}")
        yield made


def offering(caller: Caller, label: str, *terms: Term, **spec: Any) -> str:
    """What is said to the offer of a volume with that label and affinity."""
    affinity = {"required": {"nodeSelectorTerms": list(terms)}}
    body = volume("confined-named", label, **sample_spec("none", nodeAffinity=affinity, **spec))
    return caller.refusal("POST", VOLUMES, body)


def on(*values: str, key: str = HOSTNAME, more: Sequence[Term] = ()) -> Term:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}, *more]}


REFUSED = "may offer only volumes with the label"


def test_a_hostname_that_is_not_the_nodes_name(rights: Rights) -> None:
    caller = rights.caller(SHORT)
    assert offering(caller, SHORT, on("short")) == ""
    assert REFUSED in offering(caller, SHORT, on(SHORT))
    assert REFUSED in offering(caller, "short", on("short"))
    path = CAPACITIES
    assert caller.refusal("POST", path, capacity("confined-named", SHORT, "short")) == ""
    assert "only the room of" in caller.refusal("POST", path, capacity("x", SHORT, SHORT))


def test_a_name_that_is_no_label(rights: Rights) -> None:
    """The node's key is a hash, which the policy cannot make: the administrator names it."""
    caller = rights.caller(LONG)
    assert len(LONG) > 63
    assert offering(caller, node_key(LONG), on("long")) == ""
    assert REFUSED in offering(caller, node_key(UNKNOWN), on("long"))
    assert REFUSED in offering(caller, "", on("long"))
    unknown = rights.caller(UNKNOWN)
    for label in (node_key(UNKNOWN), node_key(LONG), ""):
        said = offering(unknown, label, on("long"))
        assert "its key must be in confinement.nodeKeys" in said, said


def test_a_name_without_a_key_is_refused_everything(rights: Rights) -> None:
    """Its key would be no label at all, which is what everything has that is nobody's."""
    nobodys = belongings(rights.plane, rights.objects, "confined-nobodys", labelled=False)
    unknown = rights.caller(UNKNOWN)
    for path in nobodys.paths:
        said = unknown.refusal("PATCH", path, MARK)
        assert "its key must be in confinement.nodeKeys" in said, f"{path}: {said}"
    for path in (nobodys.volume, nobodys.capacity, nobodys.job):
        said = unknown.refusal("DELETE", path)
        assert "its key must be in confinement.nodeKeys" in said, f"{path}: {said}"


def test_another_label_that_stands_for_the_node(rights: Rights) -> None:
    caller = rights.caller(SHORT)
    assert offering(caller, SHORT, on(SHORT, key=NODENAME)) == ""
    assert REFUSED in offering(caller, SHORT, on("another", key=NODENAME))
    assert REFUSED in offering(caller, SHORT, on("short", key=NODENAME))


def test_a_disk_that_several_nodes_share(rights: Rights) -> None:
    """The terms of a class's `selector`, to the letter, and beside the node's own."""
    caller = rights.caller(SHORT)
    own, shared = on("short"), SHARED[0]
    path = {"path": "/mnt/shared/one"}
    offer = partial(offering, caller, SHORT, storageClassName="shared", local=path)
    assert offer(own, shared) == ""
    assert REFUSED in offer(shared)
    expressions = shared["matchExpressions"]
    assert REFUSED in offer(own, {"matchExpressions": expressions[:1]})
    assert REFUSED in offer(own, {"matchExpressions": expressions[1:]})
    fields = [{"key": "metadata.name", "operator": "In", "values": ["another"]}]
    assert REFUSED in offer(own, {**shared, "matchFields": fields})


def test_the_api_server_finds_no_mistake(rights: Rights) -> None:
    rights.check_types()
