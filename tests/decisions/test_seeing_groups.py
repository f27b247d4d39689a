"""Groups of snapshots in `status` and `why`: shown, and why they are neither cut nor removed."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.tables import print_status
from localvolume.cli.seeing.why.group import groups_named, why_group
from localvolume.cli.seeing.why.snapshot import why_snapshot
from tests.decisions.support_seeing import (
    CSI,
    NOW,
    agent,
    ago,
    content,
    event,
    facts,
    group,
    node,
    volume,
)

OF = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-"
GOES = {f"{OF}deleted": "yes"}
CUT: dict[str, Any] = {
    "volumeGroupSnapshotHandle": "csi-9",
    "volumeSnapshotInfoList": [{"snapshotHandle": "csi-1"}, {"snapshotHandle": "csi-2"}],
    "readyToUse": True,
}
FAILED: dict[str, Any] = {"readyToUse": False, "error": {"message": "they are in two pools"}}
SOURCE = volume(
    "pv-1",
    phase="Bound",
    claim="data",
    cls="made",
    provisioner=CSI,
    local=None,
    csi={"driver": CSI, "volumeHandle": "pv-1"},
)
READY = group(node_name="n1", status=CUT)

ROWS: list[tuple[Any, tuple[Any, ...], str, str, str]] = [
    (READY, (), "ready", "volumes can be restored from each of its snapshots", "nobody"),
    (
        group(node_name="n1", status=FAILED),
        (SOURCE,),
        "failed",
        "it is not cut: they are in two pools",
        "you: put that right",
    ),
    (
        group(node_name="n1", status=FAILED, handle="csi-9"),
        (),
        "failed",
        "it is not found: they are in two pools",
        "you: put that right",
    ),
    (group(node_name="n1"), (SOURCE,), "cutting", "it is being cut", "nobody: the agent"),
    (group(), (SOURCE,), "waiting", "no agent has taken it on yet", "nobody: the agent"),
    (
        group(),
        (SOURCE, node("n2"), node("n1"), agent("n2")),
        "no-agent",
        "no agent has taken it on yet; the agent of n1 is missing",
        "you: get the agent of n1 going",
    ),
    (group(), (), "no-volume", "no PersistentVolume has the handle pv-1", "you: delete"),
    (group(handle="csi-9"), (), "not-found", "has the group csi-9", "you: compare the handle"),
    (
        group(node_name="n1", status=CUT, deleting=True),
        (),
        "deleting-held",
        "it is being deleted, and default/nightly still has it",
        "the snapshot-controller, once default/nightly goes",
    ),
    (
        group(node_name="n1", status=CUT, deleting=True, annotations=GOES),
        (),
        "deleting",
        "its snapshots are removed",
        "nobody: the agent",
    ),
    (
        group(
            node_name="n1", status=CUT, deleting=True, annotations={**GOES, f"{OF}created": "yes"}
        ),
        (),
        "deleting-begun",
        "of which it does not tell yet",
        "nobody: the agent",
    ),
    (
        group(node_name="n1", status=CUT, deleting=True, annotations=GOES, deletionPolicy="Retain"),
        (),
        "letting-go",
        "its deletion policy is Retain: the group stays",
        "nobody: the agent",
    ),
    (
        group(
            node_name="n1",
            status={**CUT, "error": {"message": "csi-1 is in use"}},
            deleting=True,
            annotations=GOES,
        ),
        (),
        "deleting",
        "the agent said: csi-1 is in use",
        "nobody: the agent",
    ),
]


@pytest.mark.parametrize(
    ("one", "things", "code", "text", "who"),
    ROWS,
    ids=[f"{row[2]}-{number}" for number, row in enumerate(ROWS)],
)
def test_the_verdict(one: Any, things: tuple[Any, ...], code: str, text: str, who: str) -> None:
    found = why_group(facts(one, *things), one).verdict
    assert found.code == code
    assert text in found.text
    assert found.who.startswith(who)


def test_what_the_verdict_rests_on() -> None:
    said = event("groupsnapcontent-1", "No", kind="VolumeGroupSnapshotContent")
    about_another = event("another", "No", kind="VolumeGroupSnapshotContent")
    found = why_group(facts(READY, SOURCE, said, about_another), READY)
    assert found.about == "groupsnapshotcontent/groupsnapcontent-1"
    assert list(found.chain) == [
        ("VolumeGroupSnapshot", "default/nightly"),
        ("Class", "groups"),
        ("Deletion policy", "Delete"),
        ("Of volume", "pv-1, of the claim default/data"),
        ("Of volume", "pv-2 (gone)"),
        ("Node", "n1"),
        ("Handle", "csi-9"),
        ("Snapshots", "csi-1, csi-2"),
    ]
    assert list(found.events) == [said]
    unknown = facts(READY, without={"persistentvolumes": "forbidden"})
    assert ("Of volume", "pv-2") in why_group(unknown, READY).chain


@pytest.mark.parametrize(
    ("name", "namespace", "found"),
    [
        ("groupsnapcontent-1", "default", True),
        ("nightly", "default", True),
        ("nightly", "other", False),
        ("csi-9", "other", True),
        ("csi-1", "default", False),
    ],
)
def test_by_what_names_it_is_found(name: str, namespace: str, found: bool) -> None:
    assert bool(groups_named(facts(READY), name, namespace)) is found


def test_a_snapshot_says_of_which_group_it_is_one() -> None:
    status = {"snapshotHandle": "csi-1", "readyToUse": True, "volumeGroupSnapshotHandle": "csi-9"}
    one = content(node_name="n1", status=status)
    assert dict(why_snapshot(facts(one), one).chain)["One of the group"] == "csi-9"
    assert [row["groupHandle"] for row in overview(facts(one))["snapshots"]] == ["csi-9"]


def test_the_status_shows_and_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    failed = group("groupsnapcontent-2", snapshot="after", node_name="n2", status=FAILED)
    found = group("groupsnapcontent-3", snapshot="later", handle="csi-3")
    known = facts(READY, failed, found, SOURCE, node("n1"), node("n2"))
    status = overview(known)
    counts = {"waiting": 1, "failed": 1, "ready": 1, "deleting": 0}
    assert status["summary"]["groupSnapshots"] == counts
    assert {one["name"]: one["state"] for one in status["groupSnapshots"]} == {
        "groupsnapcontent-1": "ready",
        "groupsnapcontent-2": "failed",
        "groupsnapcontent-3": "waiting",
    }
    (shown,) = overview(known, "n1")["groupSnapshots"]
    assert shown == {
        "name": "groupsnapcontent-1",
        "groupSnapshot": "default/nightly",
        "handle": "csi-9",
        "volumeHandles": ["pv-1", "pv-2"],
        "snapshotHandles": ["csi-1", "csi-2"],
        "node": "n1",
        "state": "ready",
        "reason": "",
        "deletionPolicy": "Delete",
        "groupSnapshotClass": "groups",
        "created": ago(60),
        "deleting": None,
    }
    print_status(status, NOW, wide=True)
    text = capsys.readouterr().out
    assert "Groups      1 waiting, 1 failed, 1 ready (of snapshots)" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["default/nightly", "n1", "ready", "2", "csi-9"] in rows


def test_what_could_not_be_read_is_not_said_to_be_absent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = overview(facts(SOURCE, without={"volumegroupsnapshotcontents": "forbidden"}))
    assert status["groupSnapshots"] is None
    assert status["summary"]["groupSnapshots"] is None
    print_status(status, NOW, wide=True)
    assert "Groups      ?" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (group(node_name="n1", status=FAILED), "is not cut: they are in two pools"),
        (group(age=600), "is not cut, and nothing says why"),
        (group(age=60), ""),
        (group(node_name="n1", status=CUT, age=600), ""),
        (
            group(node_name="n1", status=CUT, deleting=True, age=600),
            "is not removed, and nothing says why",
        ),
    ],
)
def test_what_somebody_should_look_at(one: Any, text: str) -> None:
    found = overview(facts(one, SOURCE))["problems"]
    about = "groupsnapshotcontent/groupsnapcontent-1"
    of_it = [row for row in found if row["about"] == about]
    said = f"the group of snapshots {text}"
    assert [(row["severity"], row["node"], row["reason"], row["do"]) for row in of_it] == (
        [("warning", "n1", said, f"localvolume why {about}")] if text else []
    )
