"""etcd is set back to where snapshots were ready that were removed since: none is said to be there
any more, and none is cut anew in its place, with the content of another moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import RequestFailed
from tests.attacks.support_etcd import Backup
from tests.cluster.support_groups import GROUP_CONTENTS, Group, GroupLab, group_lab_for
from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import (
    BEING_CREATED,
    CONTENTS,
    Content,
    Snapshot,
    read,
    until_removed,
)
from tests.suite.names import NODE_LABEL

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane", "snapshots")

OF_SNAPSHOTS = "snapshot.storage.k8s.io"
OF_GROUPS = f"group{OF_SNAPSHOTS}"
GONE = "there is no snapshot"
SIZE = "16Mi"
RETAIN = {"spec": {"deletionPolicy": "Retain"}}


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path, controller: object) -> Iterator[GroupLab]:
    with group_lab_for(objects, unique, tmp_path) as lab:
        yield lab


def is_tidy(content: Content) -> bool:
    notes = content["metadata"].get("annotations", {})
    ready: bool = content.get("status", {}).get("readyToUse", False)
    return ready and NODE_LABEL in notes and BEING_CREATED not in notes


def keys_of(snapshot: Snapshot, content: Content) -> list[str]:
    return [
        f"{OF_SNAPSHOTS}/volumesnapshots/default/{snapshot['metadata']['name']}",
        f"{OF_SNAPSHOTS}/volumesnapshotcontents/{content['metadata']['name']}",
    ]


def is_not_said_to_be_there(lab: GroupLab, name: str) -> None:
    found = lab.until(
        lambda: lab.content(name),
        lambda one: one and GONE in one["status"].get("error", {}).get("message", ""),
    )
    assert found is not None
    assert found["status"]["readyToUse"] is False


def let_go(lab: GroupLab, path: str) -> None:
    """Delete a content that its policy keeps, unless the snapshot-controller has: it may have seen
    the policy as it was."""
    with contextlib.suppress(RequestFailed):
        lab.plane.request("DELETE", path)
    lab.until(lambda: read(lab.plane, path), lambda left: left is None)


def test_one_that_was_removed_is_not_said_to_be_there(lab: GroupLab) -> None:
    pool = lab.image_pool()
    lab.serve()
    claim = lab.claimed(size=SIZE)
    snapshot = lab.ready(lab.snapshot(claim))
    content = lab.until_content(snapshot, is_tidy)
    name = content["metadata"]["name"]
    backup = Backup(lab.plane, *keys_of(snapshot, content))
    lab.take_away(snapshot)
    until_removed(lab, pool, content["status"]["snapshotHandle"])
    lab.stop()
    backup.restore()
    lab.serve()
    is_not_said_to_be_there(lab, name)
    lab.event(name, "SnapshotContentCheckandUpdateFailed", GONE)
    # The volume is another than it was at that moment.
    assert pool.records() == [f"{lab.handle(claim)}.json"]
    # A person who knows that it is gone lets the objects go.
    lab.patch_content(content, RETAIN)
    lab.take_away(snapshot)
    let_go(lab, f"{CONTENTS}/{name}")


def test_nor_is_a_group_with_its_snapshots(lab: GroupLab) -> None:
    pool = lab.image_pool()
    lab.serve()
    volumes = sorted(f"{lab.handle(claim)}.json" for claim in lab.together(2))
    group = lab.group()
    content = lab.group_tidy(group)
    members = members_of(lab, group)
    keys = [
        f"{OF_GROUPS}/volumegroupsnapshots/default/{group['metadata']['name']}",
        f"{OF_GROUPS}/volumegroupsnapshotcontents/{content['metadata']['name']}",
    ]
    backup = Backup(lab.plane, *keys, *(key for one in members for key in keys_of(*one)))
    lab.take_group_away(group)
    lab.until(lambda: lab.group_content(group), lambda left: left is None)
    for snapshot, _ in members:
        lab.until(lambda one=snapshot: lab.read_snapshot(one), lambda left: left is None)  # type: ignore[misc]
    lab.until(lambda: (pool.records(), pool.trash()), lambda left: left == (volumes, []))
    lab.stop()
    backup.restore()
    lab.serve()
    found = lab.group_failing(group, "there is no group")
    assert found["status"]["readyToUse"] is False
    for _, one in members:
        is_not_said_to_be_there(lab, one["metadata"]["name"])
    assert pool.records() == volumes
    lab.patch_group_content(found["metadata"]["name"], RETAIN)
    lab.take_group_away(group)
    let_go(lab, f"{GROUP_CONTENTS}/{found['metadata']['name']}")


def members_of(lab: GroupLab, group: Group) -> list[tuple[Snapshot, Content]]:
    """The group's VolumeSnapshots and their contents, once the agent has taken those on."""
    found = []
    for snapshot in lab.members(group).values():
        name = snapshot["status"]["boundVolumeSnapshotContentName"]
        content = lab.until(lambda name=name: lab.content(name), lambda one: one and is_tidy(one))  # type: ignore[misc]
        assert content is not None
        found.append((snapshot, content))
    return found
