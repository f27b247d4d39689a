"""What a stolen token of node B is tried with about volumes and claims, and what must be said."""

from collections.abc import Iterator, Mapping

from localvolume.volumes.marks import ELASTIC_NODE_LABEL
from tests.cluster.support_confinement import MARK, Attempt, Belongings, Object, labelled, volume
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import sample_spec
from tests.suite.api import VOLUMES
from tests.suite.names import HOSTNAME, NODE_LABEL, SELECTED


def terms(*hostnames: str) -> Object:
    """An affinity with one term for each."""
    return {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [one]}]}
                for one in hostnames
            ]
        }
    }


ADOPT = "may adopt only a volume whose node affinity is to"
OFFER = "may offer only volumes with the label"
RELABEL = "may not give a volume the label"
CSI = "csi.localvolume.dev"


def by(key: str, value: str, operator: str = "In") -> Object:
    """A spec whose affinity has one expression."""
    one = {"key": key, "operator": operator, "values": [value]}
    term = {"matchExpressions": [one]}
    return sample_spec("none", nodeAffinity={"required": {"nodeSelectorTerms": [term]}})


def on_volumes(a: Belongings, b: Belongings) -> Iterator[Attempt]:
    new = f"{b.node}-stolen"
    foreign, own = f"the agent of {b.node}", b.node
    spec = sample_spec
    create = [
        ("of A", volume(new, a.node, **spec(a.node)), OFFER),
        ("of B, on A's disk", volume(new, own, **spec(a.node)), OFFER),
        ("of A, on B's disk", volume(new, a.node, **spec(own)), OFFER),
        ("of nobody", volume(new, **spec(own)), OFFER),
        ("of B and A", volume(new, own, **spec(own, a.node)), OFFER),
        ("of B or A", volume(new, own, **spec(own, nodeAffinity=terms(own, a.node))), OFFER),
        (
            "of B, by another label",
            volume(new, own, **by("example.com/x", own)),
            OFFER,
        ),
        (
            "of B, anywhere but there",
            volume(new, own, **by(HOSTNAME, own, "NotIn")),
            OFFER,
        ),
        (
            "of B, elsewhere than on disks",
            volume(new, own, **spec(own, local=None, nfs={"server": "x", "path": "/"})),
            "an agent offers directories and devices of its node",
        ),
        (
            "of B, of a CSI driver that is not served",
            volume(new, own, **spec(own, local=None, csi={"driver": CSI, "volumeHandle": new})),
            "an agent offers directories and devices of its node",
        ),
    ]
    for what, body, said in create:
        yield Attempt(f"create a PersistentVolume {what}", "POST", VOLUMES, body, said)
    not_change = f"{foreign} may not change a volume of the node {a.node}"
    finalizers = {"metadata": {"finalizers": None}}
    yield Attempt("change a PersistentVolume of A", "PATCH", a.volume, MARK, not_change)
    yield Attempt("let a PersistentVolume of A go", "PATCH", a.volume, finalizers, not_change)
    yield Attempt("take a PersistentVolume of A", "PATCH", a.volume, labelled(own), not_change)
    yield Attempt(
        "delete a PersistentVolume of A",
        "DELETE",
        a.volume,
        None,
        f"{foreign} may delete only volumes with the label localvolume.dev/node: {own}, "
        f"and this one has {a.node}",
    )
    yield Attempt("adopt what upstream made on A", "PATCH", a.upstreams, labelled(own), ADOPT)
    yield Attempt("mark what upstream made on A", "PATCH", a.upstreams, MARK, RELABEL)
    yield Attempt("delete what upstream made on A", "DELETE", a.upstreams, None, "has none")
    yield Attempt("give a volume of B to A", "PATCH", b.volume, labelled(a.node), RELABEL)
    yield Attempt("take the label off a volume of B", "PATCH", b.volume, labelled(None), RELABEL)
    for changed in (
        {"claimRef": {"namespace": "default", "name": "somebodys"}},
        {"storageClassName": "another"},
        {"persistentVolumeReclaimPolicy": "Delete"},
    ):
        what = f"change {next(iter(changed))} of a volume of B"
        yield Attempt(what, "PATCH", b.volume, {"spec": changed}, "an agent changes neither")


def on_others(paths: Mapping[str, str], a: Belongings, b: Belongings) -> Iterator[Attempt]:
    """About volumes that no agent has made: `paths` are those of `others`, by their names there."""
    mine = labelled(b.node)
    bind = {**mine, "spec": {"nodeAffinity": terms(b.node)}}
    away = {"spec": {"nodeAffinity": terms(a.node)}}
    flex = paths["flexvolume"]
    yield Attempt("bind a FlexVolume without an affinity", "PATCH", flex, mine, ADOPT)
    yield Attempt("bind a FlexVolume to A", "PATCH", flex, mine | away, ADOPT)
    yield Attempt("bind elastic's FlexVolume of A to B", "PATCH", paths["elastics"], bind, ADOPT)
    moves = "may not bind a volume to another node"
    yield Attempt("bind a FlexVolume of B to A", "PATCH", paths["ours"], away, moves)
    for name in ("nfs", "hostpath", "vendors"):
        yield Attempt(f"bind a volume of {name} to B", "PATCH", paths[name], bind, ADOPT)
    yield Attempt("adopt what is of a network on B", "PATCH", paths["network"], mine, ADOPT)
    yield Attempt("bind a FlexVolume of nobody to B", "PATCH", flex, bind)
    yield Attempt("bind a FlexVolume of B to B", "PATCH", paths["ours"], bind)


def others(objects: Objects, a: Belongings, b: Belongings) -> dict[str, str]:
    """Volumes that no agent has made, of which all but `network` are bound to no node."""
    flex = {"flexVolume": {"driver": "localvolume.dev/flexvolume"}}
    nfs = {"nfs": {"server": "x", "path": "/"}}
    found = {}
    for name, label, source in (
        ("flexvolume", "", flex),
        ("elastics", "", flex),
        ("ours", b.node, flex),
        ("nfs", "", nfs),
        ("vendors", "", {"flexVolume": {"driver": "example.com/network"}}),
        ("hostpath", "", {"hostPath": {"path": "/nowhere"}}),
        ("network", "", nfs | {"nodeAffinity": terms(b.node)}),
    ):
        body = volume(
            f"confined-{name}",
            label,
            **sample_spec("none", **{"local": None, "nodeAffinity": None, **source}),
        )
        if name == "elastics":
            body["metadata"]["labels"] = {ELASTIC_NODE_LABEL: a.node}
        found[name] = f"{VOLUMES}/{objects.make(VOLUMES, body)['metadata']['name']}"
    return found


def on_claims(a: Belongings, b: Belongings) -> Iterator[Attempt]:
    only = "may change only claims with the label"
    yield Attempt("change a claim of A", "PATCH", a.claim, MARK, only)
    yield Attempt("take a claim of A", "PATCH", a.claim, labelled(b.node), only)
    status = {"status": {"capacity": {"storage": "1Gi"}}}
    yield Attempt("say that a claim of A has grown", "PATCH", f"{a.claim}/status", status, only)
    yield Attempt("relabel by the status", "PATCH", f"{a.claim}/status", labelled(b.node), only)
    give = "may give a claim back, but not to the node"
    back = {"metadata": {"labels": {NODE_LABEL: None}, "annotations": {SELECTED: None}}}
    yield Attempt("give a claim of B to A", "PATCH", b.claim, labelled(a.node), give)
    yield Attempt("give a claim back, selected", "PATCH", b.claim, labelled(None), give)
    to = {"metadata": {"annotations": {SELECTED: a.node}}}
    yield Attempt("select A for a claim of B", "PATCH", b.claim, to, "selects no node")
    of_a_claim = "an agent changes only a claim's"
    nobody = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}
    for what, body in (
        ("let a claim of B go", {"metadata": {"finalizers": None}}),
        ("bind a claim of B", {"spec": {"volumeName": "another"}}),
        ("have a claim of B collected", {"metadata": {"ownerReferences": [nobody]}}),
    ):
        yield Attempt(what, "PATCH", b.claim, body, of_a_claim)
    lost = {"status": {"phase": "Lost"}}
    yield Attempt("say that a claim of B is lost", "PATCH", f"{b.claim}/status", lost, of_a_claim)
    yield Attempt("give a claim of B back", "PATCH", b.claim, back)
    yield Attempt("say that a claim of B has grown", "PATCH", f"{b.claim}/status", status)
