"""What a VolumeSnapshotContent needs next: only of its own node, and never another's snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from localvolume.dynamic.calls import (
    Differs,
    InUse,
    NoRoom,
    NotNow,
    OutOfRange,
    Unknown,
    Wrong,
)
from localvolume.kube.objects import Meta
from localvolume.kube.snapshotobjects import (
    SnapshotError,
    SnapshotRef,
    SnapshotSource,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
    VolumeSnapshotContentSpec,
    VolumeSnapshotContentStatus,
)
from localvolume.snapshots.facts import Facts
from localvolume.snapshots.plan import (
    Action,
    Cut,
    Find,
    LetGo,
    Refuse,
    Remove,
    TakeOn,
    Tidy,
    allows_full_copies,
    fault_of_class,
    handle_coming,
    judge,
    own_contents,
    plan,
)
from localvolume.snapshots.telling import is_final
from tests.suite.names import CSI, NODE_LABEL

NODE, VOLUME, UID = "node-1", "pvc-1", "5ca1ab1e"
HANDLE = f"csi-{hashlib.sha256(f'snapshot-{UID}'.encode()).hexdigest()[:40]}"
FINALIZER = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
CREATED = {"snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes"}
DELETED = {"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes"}
GROUP = {"groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle": "group"}
OWN, OTHERS = {NODE_LABEL: NODE}, {NODE_LABEL: "node-2"}

OF_VOLUME = SnapshotSource(volume_handle=VOLUME)
OF_SNAPSHOT = SnapshotSource(snapshot_handle=HANDLE)
READY = VolumeSnapshotContentStatus(snapshot_handle=HANDLE, ready_to_use=True)
FAILED = VolumeSnapshotContentStatus(ready_to_use=False, error=SnapshotError(message="no room"))
CLEARED = VolumeSnapshotContentStatus()


def content(
    name: str = "content",
    *,
    notes: Mapping[str, str] | None = None,
    going: bool = False,
    finalizers: tuple[str, ...] = (FINALIZER,),
    status: VolumeSnapshotContentStatus | None = None,
    source: SnapshotSource = OF_VOLUME,
    uid: str = UID,
    policy: str = "Delete",
    driver: str = CSI,
    cls: str | None = "class",
) -> VolumeSnapshotContent:
    """A content that the snapshot-controller made for a snapshot of a volume of this node."""
    return VolumeSnapshotContent(
        metadata=Meta(
            name=name,
            uid=f"uid-{name}",
            annotations=dict(notes or {}),
            finalizers=finalizers,
            deletion_timestamp="2026-11-27T00:00:00Z" if going else None,
        ),
        spec=VolumeSnapshotContentSpec(
            driver=driver,
            deletion_policy=policy,
            source=source,
            volume_snapshot_class_name=cls,
            volume_snapshot_ref=SnapshotRef(name="snapshot", namespace="default", uid=uid),
        ),
        status=status,
    )


def facts(
    *contents: VolumeSnapshotContent,
    volumes: tuple[str, ...] = (VOLUME,),
    snapshots: Mapping[str, str] | None = None,
    groups: Mapping[str, str] | None = None,
    lost: Mapping[str, str] | None = None,
    fills: Mapping[str, float] | None = None,
    offered_groups: frozenset[tuple[str, str]] = frozenset(),
    complete: bool = True,
    namespace: str = "default",
) -> Facts:
    return Facts(
        node_key=NODE,
        contents={one.metadata.name: one for one in contents},
        volumes=frozenset((namespace, one) for one in volumes),
        snapshots=dict(snapshots or {}),
        groups=dict(groups or {}),
        lost=dict(lost or {}),
        fills=dict(fills or {}),
        offered_groups=offered_groups,
        complete=complete,
    )


def judged(one: VolumeSnapshotContent, **known: Any) -> Action | None:
    return judge(facts(one, **known), one)


def test_a_volume_of_another_namespaces_claim_is_not_cut() -> None:
    """Nor one that lies here and has no PersistentVolume of this node."""
    assert judged(content(), namespace="another") is None


def elsewhere(one: VolumeSnapshotContent) -> Action | None:
    """What this node does where another has the volume and the snapshot."""
    return judged(one, volumes=())


# --- what is to be there -----------------------------------------------------------------------

CUT = {
    "asked for": content(),
    "begun, and the agent died": content(notes=OWN | CREATED),
    "failed before": content(notes=OWN, status=FAILED),
    "deleted by hand while its VolumeSnapshot is there": content(notes=OWN, going=True),
    "deleted while it is being cut": content(notes=OWN | CREATED | DELETED, going=True),
    "without a class, which is said when it is tried": content(cls=None),
}


@pytest.mark.parametrize("how", CUT)
def test_a_snapshot_is_cut_until_its_status_tells_of_it(how: str) -> None:
    action = judged(CUT[how])
    assert isinstance(action, Cut)
    assert (action.handle, action.source) == (HANDLE, VOLUME)


SAID = VolumeSnapshotContentStatus(snapshot_handle=HANDLE)


def test_what_its_status_tells_of_is_never_cut_anew() -> None:
    """It may be gone with its disk, or an API server that was set back tells of it."""
    for status in (READY, SAID):
        found = judged(content(notes=OWN, status=status))
        assert isinstance(found, Find)
        assert found.handle == HANDLE
        # That goes first, or it could not be deleted any more.
        assert isinstance(judged(content(notes=OWN | CREATED, status=status)), Tidy)
    assert judged(content(notes=OWN, status=READY), complete=False) is None
    assert isinstance(judged(content(notes=OWN, status=SAID), complete=False), Find)


NOTHING = {
    "ready": content(notes=OWN, status=READY),
    "of another driver": content(driver="other.example.com"),
    "of a group": content(notes=GROUP),
    "of a group, by its status": content(
        status=VolumeSnapshotContentStatus(volume_group_snapshot_handle="group")
    ),
    "another node's, by its annotation": content(notes=OTHERS),
    "without a source": content(source=SnapshotSource()),
    "gone, but for another finalizer": content(
        notes=OWN | DELETED, going=True, policy="Retain", finalizers=("example.com/other",)
    ),
}


@pytest.mark.parametrize("how", NOTHING)
def test_nothing_is_done(how: str) -> None:
    assert judged(NOTHING[how], snapshots={HANDLE: VOLUME}) is None


def test_a_snapshot_of_a_volume_that_is_not_here_is_left_to_its_node() -> None:
    for status in (None, FAILED, READY):
        assert elsewhere(content(status=status)) is None


def test_a_snapshot_is_this_nodes_by_itself_when_its_volume_is_gone() -> None:
    notes = content(notes=CREATED, status=READY)
    assert isinstance(judged(notes, volumes=(), snapshots={HANDLE: VOLUME}), Tidy)
    # Cut by a sidecar at our socket, whose status nobody wrote.
    assert isinstance(judged(content(), volumes=(), snapshots={HANDLE: VOLUME}), Cut)


def test_the_annotation_counts_before_what_lies_here() -> None:
    going = content(notes=OTHERS | DELETED, going=True, status=READY)
    assert judged(going, snapshots={HANDLE: VOLUME}) is None


def test_the_annotation_of_being_created_goes_once_the_status_tells_of_the_snapshot() -> None:
    assert isinstance(judged(content(notes=OWN | CREATED, status=READY)), Tidy)
    going = content(notes=OWN | CREATED | DELETED, going=True, status=READY)
    assert isinstance(judged(going), Tidy)


@pytest.mark.parametrize("notes", [{}, OWN])
def test_a_snapshot_that_somebody_says_is_there_is_looked_for(notes: Mapping[str, str]) -> None:
    action = judged(
        content(notes=notes, source=OF_SNAPSHOT, uid=""), snapshots={HANDLE: "any"}, volumes=()
    )
    assert isinstance(action, Find)
    assert action.handle == HANDLE


def test_a_snapshot_that_is_said_to_be_there_and_is_not_here_is_nobodys() -> None:
    assert judged(content(source=OF_SNAPSHOT)) is None
    assert isinstance(judged(content(notes=OWN, source=OF_SNAPSHOT)), Find)


REFUSED = {
    "bound to no snapshot": content(uid=""),
    "names another snapshot": content(status=VolumeSnapshotContentStatus(snapshot_handle="other")),
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_cannot_be_right_is_refused(how: str) -> None:
    assert isinstance(judged(REFUSED[how]), Refuse)


# --- what is to go -----------------------------------------------------------------------------


def test_a_snapshot_is_removed_with_its_content() -> None:
    action = judged(content(notes=OWN | DELETED, going=True, status=READY))
    assert isinstance(action, Remove)
    assert action.handle == HANDLE


@pytest.mark.parametrize("status", [None, FAILED, CLEARED])
def test_what_a_failed_cut_may_have_left_is_removed_too(
    status: VolumeSnapshotContentStatus | None,
) -> None:
    action = judged(content(notes=OWN | DELETED, going=True, status=status))
    assert isinstance(action, Remove)
    assert action.handle == HANDLE


STAYS = {
    "retained": content(notes=OWN | DELETED, going=True, status=READY, policy="Retain"),
    "said to be there, and never found": content(notes=OWN, going=True, source=OF_SNAPSHOT, uid=""),
    "said to be there and bound, and never found": content(
        notes=OWN | DELETED, going=True, source=OF_SNAPSHOT
    ),
}


@pytest.mark.parametrize("how", STAYS)
def test_the_content_goes_and_the_snapshot_stays(how: str) -> None:
    action = judged(STAYS[how])
    assert isinstance(action, LetGo)
    assert not action.by_anyone


def test_a_snapshot_stays_as_long_as_another_content_stands_for_it() -> None:
    going = content(notes=OWN | DELETED, going=True, status=READY)
    second = content("second", source=OF_SNAPSHOT, uid="b", status=READY)
    action = judge(facts(going, second, snapshots={HANDLE: VOLUME}), going)
    assert isinstance(action, LetGo)
    assert "second has the same snapshot" in action.reason
    # One that goes too does not keep it.
    second = content("second", source=OF_SNAPSHOT, uid="", status=READY, going=True)
    assert isinstance(judge(facts(going, second, snapshots={HANDLE: VOLUME}), going), Remove)
    foreign = content("second", source=OF_SNAPSHOT, driver="other.example.com")
    assert isinstance(judge(facts(going, foreign), going), Remove)


def test_the_snapshot_of_another_volume_is_not_removed() -> None:
    other = VolumeSnapshotContentStatus(snapshot_handle="other", ready_to_use=True)
    going = content(notes=OWN | DELETED, going=True, status=other)
    assert isinstance(judged(going, snapshots={"other": "pvc-2"}), Refuse)
    assert isinstance(judged(going, snapshots={"other": VOLUME}), Remove)


def test_a_content_that_is_no_nodes_is_let_go_if_nothing_can_go_with_it() -> None:
    for one in (
        content(notes=DELETED, going=True),
        content(notes=DELETED, going=True, status=FAILED),
        content(notes=DELETED, going=True, policy="Retain", source=OF_SNAPSHOT, status=READY),
    ):
        action = elsewhere(one)
        assert isinstance(action, LetGo)
        assert action.by_anyone


KEPT = {
    "not to go yet": content(going=True),
    "being cut by somebody": content(notes=CREATED | DELETED, going=True),
    "another node's": content(notes=OTHERS | DELETED, going=True),
    "cut somewhere": content(notes=DELETED, going=True, status=READY),
    "said to be somewhere": content(notes=DELETED, going=True, source=OF_SNAPSHOT),
    "of another driver": content(notes=DELETED, going=True, driver="other.example.com"),
}


@pytest.mark.parametrize("how", KEPT)
def test_a_content_that_may_be_another_nodes_is_left_to_it(how: str) -> None:
    assert elsewhere(KEPT[how]) is None


# --- classes, errors, and all together ---------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "found", "fault"),
    [
        ("class", VolumeSnapshotClass(driver=CSI), ""),
        (
            "class",
            VolumeSnapshotClass(
                driver=CSI, parameters={"csi.storage.k8s.io/snapshotter-secret-name": "secret"}
            ),
            "",
        ),
        ("class", VolumeSnapshotClass(driver=CSI, parameters={"fullCopies": "allowed"}), ""),
        ("class", VolumeSnapshotClass(driver=CSI, parameters={"fullCopies": "refused"}), ""),
        (
            "class",
            VolumeSnapshotClass(driver=CSI, parameters={"fullCopies": "true"}),
            (
                "VolumeSnapshotClass class: parameter fullCopies: must be allowed or refused, "
                "not 'true'"
            ),
        ),
        ("class", None, "there is no VolumeSnapshotClass class"),
        (None, None, "it has no VolumeSnapshotClass"),
        (
            "class",
            VolumeSnapshotClass(driver="other.example.com"),
            "VolumeSnapshotClass class is for driver other.example.com",
        ),
        (
            "class",
            VolumeSnapshotClass(driver=CSI, parameters={"b": "1", "a": "2"}),
            "VolumeSnapshotClass class has parameters that are not known: a, b",
        ),
        (
            "class",
            VolumeSnapshotClass(driver=CSI, parameters={"csi.storage.k8s.io/new": "1"}),
            "VolumeSnapshotClass class has parameters that are not known: csi.storage.k8s.io/new",
        ),
    ],
)
def test_what_is_wrong_with_a_class(
    cls: str | None, found: VolumeSnapshotClass | None, fault: str
) -> None:
    assert fault_of_class(content(cls=cls), found) == fault


@pytest.mark.parametrize(
    ("parameters", "allowed"),
    [({}, False), ({"fullCopies": "allowed"}, True), ({"fullCopies": "refused"}, False)],
)
def test_whether_a_class_lets_all_data_be_copied(parameters: dict[str, str], allowed: bool) -> None:
    assert allows_full_copies(VolumeSnapshotClass(driver=CSI, parameters=parameters)) is allowed
    assert not allows_full_copies(None)


@pytest.mark.parametrize("kind", [Wrong, OutOfRange, Differs, Unknown, InUse])
def test_after_a_final_error_nothing_is_under_way(kind: type[Exception]) -> None:
    assert is_final(kind("why"))


@pytest.mark.parametrize("kind", [NoRoom, NotNow, OSError, TimeoutError, RuntimeError])
def test_after_any_other_error_something_may_be_under_way(kind: type[Exception]) -> None:
    assert not is_final(kind("why"))


def test_each_content_gets_one_action_and_foreign_ones_none() -> None:
    told = VolumeSnapshotContentStatus(snapshot_handle="csi-3", ready_to_use=True)
    known = facts(
        content("new", uid="another"),
        content("ready", uid="a third", notes=OWN, status=told),
        content("other", notes=OTHERS),
        content("going", notes=OWN | DELETED, going=True, status=READY),
        snapshots={"csi-3": VOLUME},
    )
    assert [action.content.metadata.name for action in plan(known)] == ["new", "going"]
    assert [one.metadata.name for one in own_contents(known)] == ["new", "ready", "going"]


# --- one of a group ----------------------------------------------------------------------------

OF_GROUP = VolumeSnapshotContentStatus(
    snapshot_handle=HANDLE, ready_to_use=True, volume_group_snapshot_handle="group"
)
TOLD = frozenset({("default", "group")})
IN_GROUP: dict[str, Any] = {
    "snapshots": {HANDLE: VOLUME},
    "groups": {HANDLE: "group"},
    "offered_groups": TOLD,
}


def test_one_of_a_group_is_taken_on_where_the_group_is() -> None:
    told = content(notes=GROUP, status=OF_GROUP)
    assert isinstance(judged(told, **IN_GROUP), TakeOn)
    # And is cut by no agent: its group is.
    assert judged(content(notes=GROUP)) is None
    assert judged(content(notes=GROUP, status=FAILED)) is None
    assert judged(content(notes=GROUP | OWN, status=OF_GROUP), **IN_GROUP) is None
    assert judged(content(notes=GROUP | OTHERS, status=OF_GROUP), **IN_GROUP) is None


def test_one_of_a_group_that_is_gone_is_looked_for() -> None:
    one = content(notes=GROUP | OWN, status=OF_GROUP)
    assert isinstance(judged(one, offered_groups=TOLD), Find)
    assert judged(one, offered_groups=TOLD, complete=False) is None
    # It is removed with its group, or that is not told of any more.
    assert judged(one) is None


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"offered_groups": TOLD, "snapshots": {HANDLE: VOLUME}},
        IN_GROUP | {"groups": {HANDLE: "another"}},
        IN_GROUP | {"snapshots": {HANDLE: "pvc-2"}},
        # Another node's agent says so, or it is another namespace's.
        IN_GROUP | {"offered_groups": frozenset()},
        IN_GROUP | {"offered_groups": frozenset({("another", "group")})},
    ],
)
def test_what_only_its_object_calls_one_of_a_group_is_not_taken_on(known: Any) -> None:
    assert judged(content(notes=GROUP, status=OF_GROUP), **known) is None


@pytest.mark.parametrize(
    ("notes", "known", "anyone"),
    [
        (OWN, IN_GROUP, False),
        (OWN, {}, False),
        ({}, IN_GROUP, False),
        ({}, {}, False),
        ({}, {"volumes": ()}, True),
    ],
)
def test_one_of_a_group_is_let_go_and_its_snapshot_stays(
    notes: Any, known: Any, anyone: bool
) -> None:
    found = judged(content(notes=notes | GROUP | DELETED, going=True, status=OF_GROUP), **known)
    assert isinstance(found, LetGo)
    assert found.by_anyone is anyone
    theirs = content(notes=OTHERS | GROUP | DELETED, going=True, status=OF_GROUP)
    assert judged(theirs, **known) is None
    held = content(notes=notes | GROUP, going=True, status=OF_GROUP)
    assert not isinstance(judged(held, **known), LetGo | Remove)


def test_one_of_a_group_that_its_object_does_not_call_so_is_not_removed_alone() -> None:
    """It was offered by hand, and goes before its status tells of the group."""
    ready = VolumeSnapshotContentStatus(snapshot_handle=HANDLE, ready_to_use=True)
    going = content(notes=OWN | DELETED, going=True, status=ready, source=OF_SNAPSHOT)
    assert isinstance(judged(going, **IN_GROUP), LetGo)
    assert isinstance(judged(going, snapshots={HANDLE: VOLUME}), Remove)


def test_what_is_being_cut_for_a_content_is_known_until_its_status_tells_of_it() -> None:
    begun = {**OWN, **CREATED}
    assert handle_coming(content(notes=begun)) == HANDLE
    assert handle_coming(content(notes=begun, status=FAILED)) == HANDLE
    for other in (
        content(notes=OWN),
        content(notes=begun, going=True),
        content(notes=begun, source=OF_SNAPSHOT),
        content(notes=begun, uid=""),
    ):
        assert handle_coming(other) == ""
