"""What a VolumeGroupSnapshotContent needs next: only of its own node, and never another's group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from localvolume.kube.objects import Meta
from localvolume.kube.snapshotobjects import (
    GroupHandles,
    GroupSource,
    SnapshotError,
    SnapshotInfo,
    SnapshotRef,
    SnapshotSource,
    VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent,
    VolumeGroupSnapshotContentSpec,
    VolumeGroupSnapshotContentStatus,
    VolumeSnapshotContent,
    VolumeSnapshotContentSpec,
)
from localvolume.snapshots.groups.facts import Facts
from localvolume.snapshots.groups.plan import (
    Action,
    Cut,
    Find,
    LetGo,
    Refuse,
    Remove,
    Tidy,
    fault_of_class,
    judge,
    own_contents,
    plan,
)
from tests.suite.names import CSI, NODE_LABEL

NODE, UID = "node-1", "5ca1ab1e"
VOLUMES = ("pvc-1", "pvc-2")
MEMBERS = ("csi-1", "csi-2")
HANDLE = f"groupsnapshot-{UID}"
FINALIZER = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection"
CREATED = {"groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created": "yes"}
DELETED = {"groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted": "yes"}
OWN, OTHERS = {NODE_LABEL: NODE}, {NODE_LABEL: "node-2"}

OF_VOLUMES = GroupSource(volume_handles=VOLUMES)
THERE = GroupHandles(volume_group_snapshot_handle=HANDLE, volume_snapshot_handles=MEMBERS)
OF_GROUP = GroupSource(group_snapshot_handles=THERE)
INFOS = tuple(SnapshotInfo(snapshot_handle=one) for one in MEMBERS)
READY = VolumeGroupSnapshotContentStatus(
    volume_group_snapshot_handle=HANDLE, ready_to_use=True, volume_snapshot_info_list=INFOS
)
FAILED = VolumeGroupSnapshotContentStatus(
    ready_to_use=False, error=SnapshotError(message="no room")
)


def content(
    name: str = "content",
    *,
    notes: Mapping[str, str] | None = None,
    going: bool = False,
    finalizers: tuple[str, ...] = (FINALIZER,),
    status: VolumeGroupSnapshotContentStatus | None = None,
    source: GroupSource = OF_VOLUMES,
    uid: str = UID,
    policy: str = "Delete",
    driver: str = CSI,
    cls: str | None = "class",
) -> VolumeGroupSnapshotContent:
    """A content that the snapshot-controller made for a group of volumes of this node."""
    return VolumeGroupSnapshotContent(
        metadata=Meta(
            name=name,
            uid=f"uid-{name}",
            annotations=dict(notes or {}),
            finalizers=finalizers,
            deletion_timestamp="2026-11-27T00:00:00Z" if going else None,
        ),
        spec=VolumeGroupSnapshotContentSpec(
            driver=driver,
            deletion_policy=policy,
            source=source,
            volume_group_snapshot_class_name=cls,
            volume_group_snapshot_ref=SnapshotRef(name="group", namespace="default", uid=uid),
        ),
        status=status,
    )


def facts(
    *contents: VolumeGroupSnapshotContent,
    volumes: tuple[str, ...] = VOLUMES,
    groups: Mapping[str, frozenset[str]] | None = None,
    offered: Mapping[str, tuple[VolumeSnapshotContent, ...]] | None = None,
    namespace: str = "default",
    complete: bool = True,
) -> Facts:
    return Facts(
        node_key=NODE,
        contents={one.metadata.name: one for one in contents},
        volumes=frozenset((namespace, one) for one in volumes),
        groups=dict(groups or {}),
        offered=dict(offered or {}),
        complete=complete,
    )


def judged(one: VolumeGroupSnapshotContent, **known: Any) -> Action | None:
    return judge(facts(one, **known), one)


HERE = {HANDLE: frozenset(MEMBERS)}


def test_it_is_read_as_the_api_server_writes_it() -> None:
    written = {
        "metadata": {"name": "content"},
        "spec": {
            "driver": CSI,
            "deletionPolicy": "Delete",
            "source": {"volumeHandles": list(VOLUMES)},
            "volumeGroupSnapshotClassName": "class",
            "volumeGroupSnapshotRef": {"name": "group", "namespace": "default", "uid": UID},
        },
        "status": {
            "volumeGroupSnapshotHandle": HANDLE,
            "readyToUse": True,
            "volumeSnapshotInfoList": [{"snapshotHandle": one} for one in MEMBERS],
        },
    }
    read = msgspec.convert(written, VolumeGroupSnapshotContent)
    assert (read.spec, read.status) == (content().spec, READY)
    sources: list[Any] = [{"volumeHandles": None}, {"groupSnapshotHandles": {}}]
    for source in sources:
        told = {"spec": {"source": source}, "status": {"volumeSnapshotInfoList": None}}
        assert msgspec.convert(told, VolumeGroupSnapshotContent).spec.source.volume_handles == ()


@pytest.mark.parametrize("notes", [{}, OWN, OWN | CREATED])
@pytest.mark.parametrize("status", [None, FAILED])
def test_a_group_of_this_nodes_volumes_is_cut(notes: Any, status: Any) -> None:
    found = judged(content(notes=notes, status=status))
    assert isinstance(found, Cut)
    assert (found.handle, found.sources) == (HANDLE, VOLUMES)


def test_the_node_of_the_first_volume_acts_and_no_other() -> None:
    # It says why, too, if the others are elsewhere.
    found = judged(content(), volumes=VOLUMES[:1])
    assert isinstance(found, Refuse)
    assert f"has no PersistentVolume of {VOLUMES[1]}" in found.reason
    assert judged(content(), volumes=VOLUMES[1:]) is None
    assert judged(content(), namespace="another") is None
    assert judged(content(notes=OTHERS)) is None


@pytest.mark.parametrize("known", [{"volumes": ()}, {"namespace": "another"}])
def test_what_no_claim_of_its_namespace_has_here_is_not_begun(known: Any) -> None:
    assert isinstance(judged(content(notes=OWN), **known), Refuse)
    # What was begun is completed, and what is cut is told of.
    assert isinstance(judged(content(notes=OWN | CREATED), **known), Cut)
    assert isinstance(judged(content(notes=OWN), groups=HERE, **known), Cut)


@pytest.mark.parametrize(
    "one",
    [
        content(driver="ebs.csi.aws.com"),
        content(source=GroupSource()),
        content(driver="ebs.csi.aws.com", going=True, notes=DELETED),
        content(status=READY, notes=OWN),
    ],
)
def test_what_needs_nothing(one: VolumeGroupSnapshotContent) -> None:
    assert judged(one, groups=HERE) is None
    assert plan(facts(one, groups=HERE)) == []


SAID = VolumeGroupSnapshotContentStatus(volume_group_snapshot_handle=HANDLE)


def test_what_its_status_tells_of_is_never_cut_anew() -> None:
    """It may be gone with its disk, or an API server that was set back tells of it."""
    for one, groups in ((READY, {}), (READY, {HANDLE: frozenset(MEMBERS[:1])}), (SAID, {})):
        found = judged(content(notes=OWN, status=one), groups=groups)
        assert isinstance(found, Find)
        assert found.handle == HANDLE
        # That goes first, or it could not be deleted any more.
        assert isinstance(judged(content(notes=OWN | CREATED, status=one)), Tidy)
    assert judged(content(notes=OWN, status=READY), complete=False) is None


def test_what_is_told_is_tidied() -> None:
    assert isinstance(judged(content(status=READY, notes=OWN | CREATED)), Tidy)


def test_a_group_that_is_there_is_found_where_it_is() -> None:
    found = judged(content(source=OF_GROUP), groups=HERE)
    assert isinstance(found, Find)
    assert (found.handle, found.snapshots) == (HANDLE, MEMBERS)
    assert judged(content(source=OF_GROUP)) is None


def test_what_stands_for_no_group_of_its_own_is_refused() -> None:
    assert isinstance(judged(content(uid="")), Refuse)
    another = VolumeGroupSnapshotContentStatus(volume_group_snapshot_handle="another")
    found = judged(content(status=another, notes=OWN))
    assert isinstance(found, Refuse)
    assert "another" in found.reason


# --- what is to go -----------------------------------------------------------------------------


def going(**more: Any) -> VolumeGroupSnapshotContent:
    told: dict[str, Any] = {"going": True, "status": READY, "notes": OWN | DELETED}
    return content(**(told | more))


def test_a_group_is_removed_with_the_snapshots_that_its_status_names() -> None:
    found = judged(going(), groups=HERE)
    assert isinstance(found, Remove)
    assert (found.handle, found.snapshots) == (HANDLE, MEMBERS)
    # Also the rest of one of which a part is gone.
    found = judged(going(), groups={HANDLE: frozenset(MEMBERS[:1])})
    assert isinstance(found, Remove)
    assert found.snapshots == MEMBERS


def test_what_was_found_is_removed_with_the_snapshots_that_somebody_named() -> None:
    status = VolumeGroupSnapshotContentStatus(
        volume_group_snapshot_handle=HANDLE, ready_to_use=True
    )
    found = judged(going(source=OF_GROUP, status=status), groups=HERE)
    assert isinstance(found, Remove)
    assert found.snapshots == MEMBERS


def test_what_a_failed_cut_may_have_left_is_removed() -> None:
    for groups, snapshots in ((HERE, MEMBERS), ({}, ())):
        found = judged(going(status=FAILED), groups=groups)
        assert isinstance(found, Remove)
        assert (found.handle, found.snapshots) == (HANDLE, snapshots)


@pytest.mark.parametrize(
    "one",
    [
        content(going=True, status=READY, notes=OWN),
        content(going=True, status=READY, notes=OWN | DELETED | CREATED),
        going(notes=OTHERS | DELETED),
        going(notes=DELETED, source=OF_GROUP, status=None),
    ],
)
def test_what_is_not_let_go(one: VolumeGroupSnapshotContent) -> None:
    assert not isinstance(judged(one), Remove | LetGo)


def test_what_stays_is_let_go() -> None:
    assert isinstance(judged(going(policy="Retain"), groups=HERE), LetGo)
    assert judged(going(policy="Retain", finalizers=())) is None
    unbound = going(source=OF_GROUP, status=None, uid="", notes=OWN)
    found = judged(unbound, groups=HERE)
    assert isinstance(found, LetGo)
    assert not found.by_anyone


def test_a_group_that_another_content_stands_for_stays() -> None:
    second = content("second", source=OF_GROUP, notes=OWN, status=READY)
    known = facts(going(), second, groups=HERE)
    found = judge(known, known.contents["content"])
    assert isinstance(found, LetGo)
    assert "second has the same group" in found.reason
    both = facts(going(), going(name="second"), groups=HERE)
    assert isinstance(judge(both, both.contents["content"]), Remove)


def offer(
    name: str = "given",
    namespace: str = "elsewhere",
    notes: Mapping[str, str] | None = None,
    **fields: Any,
) -> VolumeSnapshotContent:
    """A content by which a person offers one of the group's snapshots."""
    return VolumeSnapshotContent(
        metadata=Meta(name=name, annotations=dict(notes or {}), **fields),
        spec=VolumeSnapshotContentSpec(
            driver=CSI,
            deletion_policy="Retain",
            source=SnapshotSource(snapshot_handle=MEMBERS[1]),
            volume_snapshot_ref=SnapshotRef(name=name, namespace=namespace, uid="1"),
        ),
    )


GOING = "2026-11-27T00:00:00Z"
LETS_GO = {"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes"}


@pytest.mark.parametrize(
    ("status", "groups"),
    [
        (READY, HERE),
        # A cut that was not told of, and one that is not seen yet.
        (FAILED, HERE),
        (READY, {}),
    ],
)
def test_a_group_stays_while_another_namespace_is_offered_a_snapshot_of_it(
    status: VolumeGroupSnapshotContentStatus, groups: Any
) -> None:
    # Deleted by somebody, but its VolumeSnapshot is there.
    held = offer("held", deletion_timestamp=GOING)
    found = judged(going(status=status), groups=groups, offered={MEMBERS[1]: (offer(), held)})
    assert isinstance(found, Refuse)
    assert found.reason.startswith("given, held offers a snapshot of it elsewhere")


@pytest.mark.parametrize(
    "offered",
    [
        {MEMBERS[1]: (offer(deletion_timestamp=GOING, notes=LETS_GO),)},
        {"csi-3": (offer(),)},
        # Its own namespace's: the snapshot-controller gives that to the group.
        {MEMBERS[1]: (offer(namespace="default"),)},
    ],
)
def test_a_group_goes_once_no_other_namespace_is_offered_a_snapshot_of_it(offered: Any) -> None:
    assert isinstance(judged(going(), groups=HERE, offered=offered), Remove)
    assert isinstance(judged(going(policy="Retain"), groups=HERE, offered=offered), LetGo)


def test_what_is_nobodys_is_let_go_if_nothing_can_go_with_it() -> None:
    found = judged(going(notes=DELETED, status=None), volumes=())
    assert isinstance(found, LetGo)
    assert found.by_anyone
    assert judged(going(notes=DELETED), volumes=()) is None
    assert isinstance(judged(going(notes=DELETED, policy="Retain"), volumes=()), LetGo)


def test_only_its_own_are_counted() -> None:
    known = facts(content("a"), content("b", notes=OTHERS), content("c", driver="another"))
    assert [one.metadata.name for one in own_contents(known)] == ["a"]


@pytest.mark.parametrize(
    ("found", "cls", "text"),
    [
        (None, None, "it has no VolumeGroupSnapshotClass"),
        (None, "class", "there is no VolumeGroupSnapshotClass class"),
        (VolumeGroupSnapshotClass(driver="x"), "class", "is for driver x"),
        (
            VolumeGroupSnapshotClass(driver=CSI, parameters={"speed": "high"}),
            "class",
            "parameters that are not known: speed",
        ),
        (VolumeGroupSnapshotClass(driver=CSI), "class", ""),
        (
            VolumeGroupSnapshotClass(
                driver=CSI, parameters={"csi.storage.k8s.io/group-snapshotter-secret-name": "x"}
            ),
            "class",
            "",
        ),
    ],
)
def test_a_class_that_cannot_be_served_is_said(found: Any, cls: str | None, text: str) -> None:
    fault = fault_of_class(content(cls=cls), found)
    assert text in fault
    assert bool(fault) == bool(text)


def test_what_is_not_deleted_stays_whatever_is_written_on_it() -> None:
    """The snapshot-controller writes that before it deletes the content."""
    assert judged(content(notes=DELETED, status=READY), groups=HERE) is None
    unbound = content(source=OF_GROUP, uid="")
    assert not isinstance(judged(unbound, groups=HERE), Remove | LetGo)


def test_the_snapshots_that_a_person_named_are_removed() -> None:
    bare = VolumeGroupSnapshotContentStatus(volume_group_snapshot_handle=HANDLE)
    one = content(source=OF_GROUP, going=True, notes=OWN | DELETED, status=bare)
    found = judged(one, groups={HANDLE: frozenset(MEMBERS[:1])})
    assert isinstance(found, Remove)
    assert found.snapshots == MEMBERS


def test_a_group_that_was_cut_says_whose_its_content_is() -> None:
    """Its volumes may be gone by then, and an agent that died has written nothing."""
    assert isinstance(judged(content(), volumes=(), groups=HERE), Cut)
    assert judged(content(), volumes=(), groups={"groupsnapshot-": frozenset(MEMBERS)}) is None
