"""What a stolen token is good for with snapshots: nothing but those of its own node.

Each attack is tried on the API server, with the policies as the chart renders them and the kinds of
snapshots as external-snapshotter has them; beside it what the same account has to do is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.attacks.support_contents import (
    LET_GO,
    NO_MORE,
    NO_NOTE,
    OWNER,
    Contents,
    Kind,
    Object,
    annotated,
    contents_of,
    rights_at,
)
from tests.cluster.support_accounts import Caller, token
from tests.cluster.support_confinement import event
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import Rights
from tests.cluster.support_snapshots import (
    BEING_CREATED,
    CONTENTS,
    SNAPSHOT_CLASSES,
    SNAPSHOTS,
)
from tests.suite.api import CLAIMS, EVENTS
from tests.suite.names import CSI, NODE_LABEL, SELECTED

pytestmark = pytest.mark.needs("controlplane", "snapshots")

NODE, OTHER = "snapshots-attacked-b", "snapshots-attacked-a"
CLONING = "provisioner.storage.kubernetes.io/cloning-protection"
BEING_DELETED = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
MANAGED_BY = "snapshot.storage.kubernetes.io/managed-by"
RESERVE = "localvolume.dev/reserve"

OWN = {NODE_LABEL: NODE}
FOREIGN = {NODE_LABEL: OTHER}
CUT = {"snapshotHandle": "csi-own", "readyToUse": True, "creationTime": 1, "restoreSize": 1}

NOT_OWN = f"may not change the content of a snapshot of the node {OTHER}"
MUST_SAY = f"may change only contents of snapshots with the annotation localvolume.dev/node: {NODE}"
KEEPS = "an agent removes only the finalizer of snapshots from a content"
NO_STATUS = "may report the status of a snapshot only where the annotation"
ONE_HANDLE = "an agent says once which snapshot a content stands for"
NO_GROUP = "an agent reports a group only for a snapshot that was named by hand"

KIND = Kind(
    type={"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent"},
    collection=CONTENTS,
    finalizer="snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection",
    spec={
        "driver": CSI,
        "deletionPolicy": "Delete",
        "source": {"volumeHandle": "pvc-of-somebody"},
        "volumeSnapshotRef": {"name": "x", "namespace": "default", "uid": "11111111"},
    },
)


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> Iterator[Rights]:
    with rights_at(control_plane, "snapshots-attacked", NODE) as made:
        yield made


@pytest.fixture(scope="module")
def agent(rights: Rights) -> Caller:
    return rights.caller(NODE)


@pytest.fixture
def contents(objects: Objects, agent: Caller, unique: str) -> Iterator[Contents]:
    with contents_of(KIND, objects, agent, unique) as made:
        yield made


# --- what the agent does -------------------------------------------------------------------------


def test_an_agent_takes_cuts_tells_and_lets_go(contents: Contents) -> None:
    """Each write of the role, in its order, on objects as each finds them."""
    new = contents.content()
    assert contents.refusal(new, annotated({**OWN, BEING_CREATED: "yes"})) == ""
    begun = contents.content({**OWN, BEING_CREATED: "yes"})
    assert contents.refusal(f"{begun}/status", {"status": CUT}) == ""
    failed = {"status": {"readyToUse": False, "error": {"message": "no room"}}}
    assert contents.refusal(f"{begun}/status", failed) == ""
    told = contents.content({**OWN, BEING_CREATED: "yes"}, CUT)
    assert contents.refusal(told, annotated({BEING_CREATED: None})) == ""
    filling = contents.content({**OWN, RESERVE: "it fills"}, CUT)
    assert contents.refusal(told, annotated({RESERVE: "it fills"})) == ""
    assert contents.refusal(filling, annotated({RESERVE: None})) == ""
    assert contents.refusal(f"{told}/status", failed) == ""
    going = contents.content({**OWN, BEING_DELETED: "yes"}, CUT, deleted=True)
    gone = {"status": {"snapshotHandle": None, "readyToUse": None}}
    assert contents.refusal(f"{going}/status", gone) == ""
    assert contents.refusal(going, LET_GO) == ""


def test_an_agent_finds_what_it_has_already(contents: Contents) -> None:
    """A content that somebody made for a snapshot which is there."""
    source = {"snapshotHandle": "csi-own"}
    assert contents.refusal(contents.content(source=source), annotated(OWN)) == ""
    taken = contents.content(OWN, source=source)
    assert contents.refusal(f"{taken}/status", {"status": CUT}) == ""


def test_where_the_cluster_says_whose_it_is_its_agent_takes_it(contents: Contents) -> None:
    own = contents.content(labels={MANAGED_BY: NODE})
    assert contents.refusal(own, annotated(OWN)) == ""
    foreign = contents.content(labels={MANAGED_BY: OTHER})
    said = contents.refusal(foreign, annotated(OWN))
    assert f"may not take the content of a snapshot that is managed by {OTHER}" in said


def test_any_agent_lets_go_of_what_nothing_was_cut_for(contents: Contents) -> None:
    assert contents.refusal(contents.content(deleted=True), LET_GO) == ""
    kept = contents.content(status=CUT, deletionPolicy="Retain", deleted=True)
    assert contents.refusal(kept, LET_GO) == ""
    # The content of its group decides what becomes of the snapshot.
    of_group = {**CUT, "volumeGroupSnapshotHandle": "group"}
    one_of_it = contents.content({BEING_DELETED: "yes"}, of_group, deleted=True)
    assert contents.refusal(one_of_it, LET_GO) == ""


# --- what it may not -----------------------------------------------------------------------------


def test_what_is_another_nodes_is_not_touched(contents: Contents) -> None:
    foreign = contents.content(FOREIGN, CUT)
    going = contents.content({**FOREIGN, BEING_DELETED: "yes"}, CUT, deleted=True)
    kept = contents.content(FOREIGN, CUT, deletionPolicy="Retain", deleted=True)
    for path, body in (
        (foreign, annotated(OWN)),
        (foreign, annotated({NODE_LABEL: None})),
        (foreign, annotated({BEING_CREATED: "yes"})),
        (f"{foreign}/status", {"status": {"readyToUse": False}}),
        (f"{foreign}/status", {"status": {"snapshotHandle": "csi-another"}}),
        (f"{going}/status", {"status": {"snapshotHandle": None}}),
        (going, LET_GO),
        (kept, LET_GO),
    ):
        assert NOT_OWN in contents.refusal(path, body), (path, body)


def test_what_is_nobodys_is_not_told_of_and_not_let_go(contents: Contents) -> None:
    new = contents.content()
    begun = contents.content({BEING_CREATED: "yes", BEING_DELETED: "yes"}, deleted=True)
    cut = contents.content({BEING_DELETED: "yes"}, CUT, deleted=True)
    given = contents.content(source={"snapshotHandle": "csi-x"}, deleted=True)
    for path, body in (
        (f"{new}/status", {"status": CUT}),
        (new, LET_GO),
        (new, annotated({BEING_CREATED: "yes"})),
        (new, annotated(FOREIGN)),
        (begun, LET_GO),
        (cut, LET_GO),
        (given, LET_GO),
    ):
        assert MUST_SAY in contents.refusal(path, body), (path, body)
    at_once = {"metadata": {"annotations": OWN, "finalizers": None}}
    assert KEEPS in contents.refusal(cut, at_once)
    empty = contents.content(deleted=True)
    assert NO_STATUS in contents.refusal(f"{empty}/status", {"status": CUT})


def test_contents_of_other_drivers_are_not_touched(contents: Contents) -> None:
    theirs = contents.content(driver="ebs.csi.aws.com")
    for body in (annotated(OWN), LET_GO):
        said = contents.refusal(theirs, body)
        assert f"may change only contents of snapshots of the driver {CSI}" in said
    said = contents.refusal(f"{theirs}/status", {"status": CUT})
    assert f"may change only contents of snapshots of the driver {CSI}" in said


FALSE: Mapping[str, tuple[Object, str]] = {
    "whose content is deleted": ({"spec": {"deletionPolicy": "Retain"}}, NO_MORE),
    "whose mode may change": (
        annotated({"snapshot.storage.kubernetes.io/allow-volume-mode-change": "true"}),
        NO_NOTE,
    ),
    "that it is to be deleted": (annotated({BEING_DELETED: "yes"}), NO_NOTE),
    "labels": ({"metadata": {"labels": {MANAGED_BY: NODE}}}, NO_MORE),
    "owners": ({"metadata": {"ownerReferences": OWNER}}, NO_MORE),
    "a finalizer": ({"metadata": {"finalizers": [KIND.finalizer, "example.com/x"]}}, KEEPS),
    "that it may go": (LET_GO, KEEPS),
    "another node": (annotated(FOREIGN), MUST_SAY),
    "no node": (annotated({NODE_LABEL: None}), MUST_SAY),
}


@pytest.mark.parametrize("what", FALSE)
def test_of_its_own_it_says_no_more(contents: Contents, what: str) -> None:
    body, said = FALSE[what]
    assert said in contents.refusal(contents.content(OWN, CUT), body)


def test_a_content_stands_for_one_snapshot(contents: Contents) -> None:
    """Else a restore would have the data of another."""
    told = contents.content(OWN, CUT)
    given = contents.content(OWN, source={"snapshotHandle": "csi-own"})
    another = {"status": {**CUT, "snapshotHandle": "csi-another"}}
    for path, body in (
        (told, another),
        (told, {"status": {"snapshotHandle": None}}),
        (given, another),
    ):
        assert ONE_HANDLE in contents.refusal(f"{path}/status", body)
    new = contents.content(OWN)
    of_group = {"status": {**CUT, "volumeGroupSnapshotHandle": "group"}}
    assert NO_GROUP in contents.refusal(f"{new}/status", of_group)
    assert contents.refusal(f"{given}/status", of_group) == ""
    told_of = contents.content(OWN, {**CUT, "volumeGroupSnapshotHandle": "group"})
    for other in ("another", None):
        changed: Object = {"status": {"volumeGroupSnapshotHandle": other}}
        assert NO_GROUP in contents.refusal(f"{told_of}/status", changed)


def test_nothing_is_made_or_deleted(contents: Contents, agent: Caller, rights: Rights) -> None:
    """No role gives that, to either account."""
    own = contents.content(OWN)
    controller = Caller(rights.plane, token(rights.plane, rights.controller))
    for caller in (agent, controller):
        for method, path in (
            ("DELETE", own),
            ("POST", CONTENTS),
            ("POST", SNAPSHOTS),
            ("POST", SNAPSHOT_CLASSES),
            ("DELETE", f"{SNAPSHOTS}/x"),
        ):
            body = KIND.type if method == "POST" else None
            said = caller.refusal(method, path, body)
            assert "cannot create" in said or "cannot delete" in said, (method, path)
    assert "cannot patch" in controller.refusal("PATCH", own, annotated({}))
    assert controller.request("GET", CONTENTS)["items"]
    assert "cannot patch" in agent.refusal("PATCH", f"{SNAPSHOTS}/x", annotated({}))


# --- clones and Events ---------------------------------------------------------------------------


def test_the_source_of_a_clone_is_kept_and_no_other_claim(
    objects: Objects, agent: Caller, unique: str
) -> None:
    def claim(name: str, node: str, volume: str = "", *finalizers: str) -> str:
        meta = {
            "name": f"{unique}-{name}",
            "labels": {NODE_LABEL: node},
            "annotations": {SELECTED: node},
            "finalizers": list(finalizers),
        }
        spec = {
            "storageClassName": "none",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            **({"volumeName": volume} if volume else {}),
        }
        objects.make(CLAIMS, {"metadata": meta, "spec": spec})
        return f"{CLAIMS}/{meta['name']}"

    def with_finalizers(path: str, *finalizers: str) -> str:
        there = objects.get(path)["metadata"]["finalizers"]
        body = {"metadata": {"finalizers": [*there, *finalizers]}}
        return agent.refusal("PATCH", path, body)

    def without(path: str, finalizer: str) -> str:
        there = objects.get(path)["metadata"]["finalizers"]
        body = {"metadata": {"finalizers": [one for one in there if one != finalizer]}}
        return agent.refusal("PATCH", path, body)

    bound = claim("bound", NODE, "none-such")
    assert with_finalizers(bound, CLONING) == ""
    alone = (
        "an agent changes only the finalizer provisioner.storage.kubernetes.io/cloning-protection"
    )
    assert alone in with_finalizers(bound, "example.com/x")
    assert alone in without(bound, "kubernetes.io/pvc-protection")
    assert alone in with_finalizers(claim("new", NODE), CLONING)
    assert "may change only claims" in with_finalizers(claim("theirs", OTHER, "none-such"), CLONING)
    cloned = claim("cloned", NODE, "none-such", CLONING)
    assert without(cloned, CLONING) == ""


def test_an_agent_says_something_of_contents(agent: Caller, unique: str) -> None:
    said = agent.refusal("POST", EVENTS, event(unique, NODE, "VolumeSnapshotContent", "x"))
    assert said == ""
    said = agent.refusal(
        "POST", EVENTS, event(f"{unique}-g", NODE, "VolumeGroupSnapshotContent", "x")
    )
    assert said == ""
    assert agent.refusal("POST", EVENTS, event(f"{unique}-v", NODE, "VolumeSnapshot", "x")) == ""
    said = agent.refusal("POST", EVENTS, event(unique, NODE, "VolumeSnapshotClass", "x"))
    assert "snapshots, their contents and its own Node" in said


def test_the_api_server_finds_no_mistake_in_the_policies(rights: Rights) -> None:
    rights.check_types()
