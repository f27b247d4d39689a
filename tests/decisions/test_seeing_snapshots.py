"""Snapshots in `status` and `why`: shown, counted, and why they are neither cut nor removed."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.tables import print_status
from localvolume.cli.seeing.why.snapshot import contents_named, why_snapshot
from localvolume.volumes.snapshots import RESERVE_ANNOTATION
from tests.decisions.support_seeing import (
    CSI,
    NOW,
    agent,
    ago,
    content,
    event,
    facts,
    klass,
    node,
    volume,
)

CREATED = "snapshot.storage.kubernetes.io/volumesnapshot-being-created"
DELETED = {"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes"}
CUT: dict[str, Any] = {
    "snapshotHandle": "csi-1",
    "readyToUse": True,
    "restoreSize": 1 << 30,
    "creationTime": int((NOW - 7200) * 1e9),
}
FAILED: dict[str, Any] = {"readyToUse": False, "error": {"message": "the pool has no room"}}
SOURCE = volume(
    "pv-1",
    phase="Bound",
    claim="data",
    cls="made",
    provisioner=CSI,
    local=None,
    csi={"driver": CSI, "volumeHandle": "pv-1"},
)
READY = content(node_name="n1", status=CUT)

ROWS: list[tuple[Any, tuple[Any, ...], str, str, str]] = [
    (READY, (SOURCE,), "ready", "it is cut, 2h ago, and volumes can be restored", "nobody"),
    (READY, (), "ready", "it is cut", "nobody"),
    (
        content(node_name="n1", status=FAILED),
        (SOURCE,),
        "failed",
        "it is not cut: the pool has no room",
        "you: put that right",
    ),
    (
        content(node_name="n1", status=CUT, annotations={RESERVE_ANNOTATION: "it fills"}),
        (SOURCE,),
        "filling",
        "volumes can be restored from it; it fills",
        "you: restore from it and delete it, or extend its reserve",
    ),
    (
        content(node_name="n1", status={**CUT, **FAILED}),
        (SOURCE,),
        "lost",
        "it cannot be used: the pool has no room",
        "you: delete the VolumeSnapshot",
    ),
    (content(node_name="n1"), (SOURCE,), "cutting", "it is being cut", "nobody: the agent"),
    (
        content(node_name="n1"),
        (SOURCE, agent(ready=False, waiting="ImagePullBackOff")),
        "no-agent",
        "it is being cut; the agent of n1 is not ready: ImagePullBackOff",
        "you: get the agent of n1 going",
    ),
    (content(), (SOURCE,), "waiting", "no agent has taken it on yet", "nobody: the agent"),
    (
        content(),
        (SOURCE, node("n2"), node("n1"), agent("n2")),
        "no-agent",
        "no agent has taken it on yet; the agent of n1 is missing",
        "you: get the agent of n1 going",
    ),
    (content(), (), "no-volume", "no PersistentVolume has the handle pv-1", "you: delete"),
    (
        content(handle="csi-9"),
        (),
        "not-found",
        "no node says that it has the snapshot csi-9",
        "you: compare the handle",
    ),
    (
        content(node_name="n1", status=CUT, deleting=True),
        (SOURCE,),
        "deleting-held",
        "it is being deleted, and default/before still has it",
        "the snapshot-controller, once default/before goes",
    ),
    (
        content(node_name="n1", status=CUT, deleting=True, annotations=DELETED),
        (SOURCE,),
        "deleting",
        "its snapshot is removed",
        "nobody: the agent",
    ),
    (
        content(node_name="n1", status=CUT, deleting=True, annotations={**DELETED, CREATED: "yes"}),
        (SOURCE,),
        "deleting-begun",
        "of which it does not tell yet",
        "nobody: the agent",
    ),
    (
        content(
            node_name="n1",
            status=CUT,
            deleting=True,
            annotations=DELETED,
            deletionPolicy="Retain",
        ),
        (SOURCE,),
        "letting-go",
        "its deletion policy is Retain: the snapshot stays",
        "nobody: the agent",
    ),
    (
        content(
            node_name="n1",
            status={**CUT, "error": {"message": "it is in use"}},
            deleting=True,
            annotations=DELETED,
        ),
        (SOURCE,),
        "deleting",
        "the agent said: it is in use",
        "nobody: the agent",
    ),
]


@pytest.mark.parametrize(
    ("one", "things", "code", "text", "who"),
    ROWS,
    ids=[f"{row[2]}-{number}" for number, row in enumerate(ROWS)],
)
def test_the_verdict(one: Any, things: tuple[Any, ...], code: str, text: str, who: str) -> None:
    found = why_snapshot(facts(one, *things), one).verdict
    assert found.code == code
    assert text in found.text
    assert found.who.startswith(who)


def test_what_the_verdict_rests_on() -> None:
    said = event("snapcontent-1", "SnapshotCreationFailed", kind="VolumeSnapshotContent")
    about_another = event("another", "SnapshotCreationFailed", kind="VolumeSnapshotContent")
    found = why_snapshot(facts(READY, SOURCE, said, about_another), READY)
    assert found.about == "snapshotcontent/snapcontent-1"
    assert dict(found.chain) == {
        "VolumeSnapshot": "default/before",
        "Class": "snapshots",
        "Deletion policy": "Delete",
        "Of volume": "pv-1, of the claim default/data",
        "Node": "n1",
        "Handle": "csi-1",
        "Cut": ago(7200),
        "Restores to": "1Gi",
    }
    assert list(found.events) == [said]
    gone = dict(why_snapshot(facts(READY), READY).chain)
    assert gone["Of volume"] == "pv-1 (gone; the snapshot does not need it)"


@pytest.mark.parametrize(
    ("name", "namespace", "found"),
    [
        ("snapcontent-1", "default", True),
        ("before", "default", True),
        ("before", "other", False),
        ("csi-1", "other", True),
        ("pv-1", "default", False),
    ],
)
def test_by_what_names_it_is_found(name: str, namespace: str, found: bool) -> None:
    assert bool(contents_named(facts(READY), name, namespace)) is found


def test_the_status_shows_and_counts_snapshots(capsys: pytest.CaptureFixture[str]) -> None:
    failed = content("snapcontent-2", snapshot="after", node_name="n2", status=FAILED)
    waiting = content("snapcontent-3", snapshot="later")
    known = facts(READY, failed, waiting, SOURCE, node("n1"), node("n2"), klass("made", CSI))
    status = overview(known)
    assert status["summary"]["snapshots"] == {"waiting": 1, "failed": 1, "ready": 1, "deleting": 0}
    assert [(one["name"], one["node"], one["state"]) for one in status["snapshots"]] == [
        ("snapcontent-1", "n1", "ready"),
        ("snapcontent-3", "n1", "waiting"),
        ("snapcontent-2", "n2", "failed"),
    ]
    assert status["snapshots"][0] == {
        "name": "snapcontent-1",
        "snapshot": "default/before",
        "handle": "csi-1",
        "volumeHandle": "pv-1",
        "groupHandle": "",
        "node": "n1",
        "state": "ready",
        "reason": "",
        "restoreSizeBytes": 1 << 30,
        "cut": ago(7200),
        "deletionPolicy": "Delete",
        "snapshotClass": "snapshots",
        "created": ago(60),
        "deleting": None,
    }
    assert [one["name"] for one in overview(known, "n2")["snapshots"]] == ["snapcontent-2"]
    print_status(status, NOW, wide=True)
    shown = capsys.readouterr().out
    assert "Snapshots   1 waiting, 1 failed, 1 ready" in shown
    assert any(
        line.split() == ["default/before", "n1", "ready", "1Gi", "pv-1", "2h", "csi-1"]
        for line in shown.splitlines()
    )


def test_without_snapshots_nothing_is_said_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(overview(facts(SOURCE)), NOW, wide=True)
    assert "snapshot" not in capsys.readouterr().out.casefold()


def test_what_could_not_be_read_is_not_said_to_be_absent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = facts(SOURCE, without={"volumesnapshotcontents": "forbidden"})
    status = overview(known)
    assert status["snapshots"] is None
    assert status["summary"]["snapshots"] is None
    print_status(status, NOW, wide=True)
    assert "Snapshots   ?" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (content(node_name="n1", status=FAILED), "the snapshot is not cut: the pool has no room"),
        (content(age=600), "the snapshot is not cut, and nothing says why"),
        (content(age=60), ""),
        (content(node_name="n1", status=CUT, age=600), ""),
        (
            content(node_name="n1", status=CUT, annotations={RESERVE_ANNOTATION: "it fills"}),
            "it fills",
        ),
        (
            content(node_name="n1", status={**CUT, **FAILED}),
            "the snapshot cannot be used: the pool has no room",
        ),
        (content(node_name="n1", status=CUT, deleting=True), ""),
        (
            content(node_name="n1", status=CUT, deleting=True, age=600),
            "the snapshot is not removed, and nothing says why",
        ),
    ],
)
def test_what_somebody_should_look_at(one: Any, text: str) -> None:
    found = overview(facts(one, SOURCE))["problems"]
    of_it = [row for row in found if row["about"] == "snapshotcontent/snapcontent-1"]
    assert [(row["severity"], row["node"], row["reason"], row["do"]) for row in of_it] == (
        [("warning", "n1", text, "localvolume why snapshotcontent/snapcontent-1")] if text else []
    )
