"""What a stolen token is good for with groups of snapshots: nothing but those of its own node."""

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
from tests.cluster.support_accounts import Caller
from tests.cluster.support_groups import (
    GROUP_BEING_CREATED,
    GROUP_CLASSES,
    GROUP_CONTENTS,
    GROUPS,
)
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import Rights
from tests.suite.names import CSI, NODE_LABEL

pytestmark = pytest.mark.needs("controlplane", "snapshots")

NODE, OTHER = "groups-attacked-b", "groups-attacked-a"
BEING_DELETED = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted"

OWN = {NODE_LABEL: NODE}
FOREIGN = {NODE_LABEL: OTHER}
VOLUMES = ["pvc-of-a", "pvc-of-b"]
INFO = [{"volumeHandle": one, "snapshotHandle": f"csi-{one}"} for one in VOLUMES]
CUT = {"volumeGroupSnapshotHandle": "group", "readyToUse": True, "volumeSnapshotInfoList": INFO}
HANDLES = {"volumeGroupSnapshotHandle": "group", "volumeSnapshotHandles": ["csi-1"]}

NOT_OWN = f"may not change the content of a group of the node {OTHER}"
MUST_SAY = f"may change only contents of groups with the annotation localvolume.dev/node: {NODE}"
KEEPS = "an agent removes only the finalizer of groups from a content"
NO_STATUS = "may report the status of a group only where the annotation"
ONE_HANDLE = "an agent says once which group a content stands for"
ONE_LIST = "an agent says once which snapshots a group has, and only of the volumes"

KIND = Kind(
    type={
        "apiVersion": "groupsnapshot.storage.k8s.io/v1",
        "kind": "VolumeGroupSnapshotContent",
    },
    collection=GROUP_CONTENTS,
    finalizer="groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection",
    spec={
        "driver": CSI,
        "deletionPolicy": "Delete",
        "source": {"volumeHandles": VOLUMES},
        "volumeGroupSnapshotRef": {"name": "x", "namespace": "default", "uid": "11111111"},
    },
)


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> Iterator[Rights]:
    with rights_at(control_plane, "groups-attacked", NODE) as made:
        yield made


@pytest.fixture(scope="module")
def agent(rights: Rights) -> Caller:
    return rights.caller(NODE)


@pytest.fixture
def contents(objects: Objects, agent: Caller, unique: str) -> Iterator[Contents]:
    with contents_of(KIND, objects, agent, unique) as made:
        yield made


def test_an_agent_takes_cuts_tells_and_lets_go(contents: Contents) -> None:
    """Each write of the role, in its order, on objects as each finds them."""
    new = contents.content()
    assert contents.refusal(new, annotated({**OWN, GROUP_BEING_CREATED: "yes"})) == ""
    begun = contents.content({**OWN, GROUP_BEING_CREATED: "yes"})
    failed = {"status": {"readyToUse": False, "error": {"message": "no room"}}}
    assert contents.refusal(f"{begun}/status", failed) == ""
    assert contents.refusal(f"{begun}/status", {"status": CUT}) == ""
    assert contents.refusal(begun, annotated({GROUP_BEING_CREATED: None})) == ""
    going = contents.content({**OWN, BEING_DELETED: "yes"}, CUT, deleted=True)
    gone = {"status": {"volumeGroupSnapshotHandle": None, "readyToUse": None}}
    assert contents.refusal(f"{going}/status", gone) == ""
    assert contents.refusal(going, LET_GO) == ""
    # And of one that somebody made for a group which is there.
    there = contents.content(source={"groupSnapshotHandles": HANDLES})
    assert contents.refusal(there, annotated(OWN)) == ""
    taken = contents.content(OWN, source={"groupSnapshotHandles": HANDLES})
    told = {"status": {"volumeGroupSnapshotHandle": "group", "readyToUse": True}}
    assert contents.refusal(f"{taken}/status", told) == ""


def test_any_agent_lets_go_of_what_nothing_was_cut_for(contents: Contents) -> None:
    assert contents.refusal(contents.content(deleted=True), LET_GO) == ""
    kept = contents.content(status=CUT, deletionPolicy="Retain", deleted=True)
    assert contents.refusal(kept, LET_GO) == ""


def test_what_is_another_nodes_is_not_touched(contents: Contents) -> None:
    foreign = contents.content(FOREIGN, CUT)
    going = contents.content({**FOREIGN, BEING_DELETED: "yes"}, CUT, deleted=True)
    kept = contents.content(FOREIGN, CUT, deletionPolicy="Retain", deleted=True)
    for path, body in (
        (foreign, annotated(OWN)),
        (foreign, annotated({NODE_LABEL: None})),
        (foreign, annotated({GROUP_BEING_CREATED: "yes"})),
        (f"{foreign}/status", {"status": {"readyToUse": False}}),
        (f"{going}/status", {"status": {"volumeGroupSnapshotHandle": None}}),
        (going, LET_GO),
        (kept, LET_GO),
    ):
        assert NOT_OWN in contents.refusal(path, body), (path, body)


def test_what_is_nobodys_is_not_told_of_and_not_let_go(contents: Contents) -> None:
    new = contents.content()
    notes = {GROUP_BEING_CREATED: "yes", BEING_DELETED: "yes"}
    begun = contents.content(notes, deleted=True)
    cut = contents.content({BEING_DELETED: "yes"}, CUT, deleted=True)
    given = contents.content(source={"groupSnapshotHandles": HANDLES}, deleted=True)
    for path, body in (
        (f"{new}/status", {"status": CUT}),
        (new, LET_GO),
        (new, annotated({GROUP_BEING_CREATED: "yes"})),
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
    for path, body in (
        (theirs, annotated(OWN)),
        (theirs, LET_GO),
        (f"{theirs}/status", {"status": CUT}),
    ):
        said = contents.refusal(path, body)
        assert f"may change only contents of groups of the driver {CSI}" in said


FALSE: Mapping[str, tuple[Object, str]] = {
    "whose content is deleted": ({"spec": {"deletionPolicy": "Retain"}}, NO_MORE),
    "that it is to be deleted": (annotated({BEING_DELETED: "yes"}), NO_NOTE),
    "labels": ({"metadata": {"labels": {"x": NODE}}}, NO_MORE),
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


def test_a_content_stands_for_one_group_of_its_own_volumes(contents: Contents) -> None:
    """Else a restore would have the data of another, or another's claim would be named."""
    told = contents.content(OWN, CUT)
    given = contents.content(OWN, source={"groupSnapshotHandles": HANDLES})
    another = {"status": {"volumeGroupSnapshotHandle": "another"}}
    assert contents.refusal(f"{told}/status", another) != ""
    assert ONE_HANDLE in contents.refusal(f"{given}/status", another)
    nothing = {"status": {"volumeGroupSnapshotHandle": None}}
    assert ONE_HANDLE in contents.refusal(f"{told}/status", nothing)
    for path, infos in (
        (told, INFO[:1]),
        (told, []),
        (contents.content(OWN), [{"volumeHandle": "pvc-of-c", "snapshotHandle": "csi-own"}]),
        (contents.content(OWN), [{"snapshotHandle": "csi-own"}]),
        (given, INFO[:1]),
    ):
        body = {"status": {"volumeSnapshotInfoList": infos}}
        assert ONE_LIST in contents.refusal(f"{path}/status", body), (path, infos)


def test_nothing_is_made_or_deleted(contents: Contents, agent: Caller) -> None:
    own = contents.content(OWN)
    for method, path in (
        ("DELETE", own),
        ("POST", GROUP_CONTENTS),
        ("POST", GROUPS),
        ("POST", GROUP_CLASSES),
        ("DELETE", f"{GROUPS}/x"),
    ):
        said = agent.refusal(method, path, KIND.type if method == "POST" else None)
        assert "cannot create" in said or "cannot delete" in said, (method, path)
    assert "cannot patch" in agent.refusal("PATCH", f"{GROUPS}/x", annotated({}))


def test_the_api_server_finds_no_mistake_in_the_policies(rights: Rights) -> None:
    rights.check_types()
