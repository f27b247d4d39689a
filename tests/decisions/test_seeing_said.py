"""An Event is shown with its writer, and one that only looks like ours is marked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from docsite.events import EVENTS
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.cli.seeing.said import OURS_ALONE, by_whom, event_shape
from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.tables import print_status
from localvolume.cli.seeing.why.volume import why_volume
from tests.decisions.support_seeing import NOW, claim, event, facts, klass, volume

SHARED = {
    "Provisioning",
    "ProvisioningFailed",
    "ProvisioningSucceeded",
    "Resizing",
    "VolumeResizeFailed",
    "VolumeResizeSuccessful",
    "VolumeModify",
    "VolumeModifyCanceled",
    "VolumeModifyFailed",
    "VolumeModifySuccessful",
    "SnapshotContentCheckandUpdateFailed",
    "SnapshotCreationFailed",
    "SnapshotDeleteError",
    "GroupSnapshotContentCheckandUpdateFailed",
    "GroupSnapshotCreationFailed",
    "GroupSnapshotDeleteError",
    "WaitForFirstConsumer",
}
"""Kubernetes' controller of volumes and the sidecars of CSI drivers have them as well."""


def test_each_reason_is_ours_alone_or_shared() -> None:
    assert not SHARED & OURS_ALONE
    assert EVENTS.keys() == SHARED | OURS_ALONE


def said(**fields: Any) -> SeenEvent:
    return msgspec.convert({"reason": "VolumeFailedDelete", "message": "no", **fields}, SeenEvent)


@pytest.mark.parametrize(
    ("written", "ours", "text"),
    [
        (
            said(source={"component": "local-volume-provisioner", "host": "n1"}),
            True,
            "by local-volume-provisioner on n1",
        ),
        (said(reportingComponent="localvolume-controller"), True, "by localvolume-controller"),
        (said(source={"component": "kubectl"}), False, "by kubectl, not localvolume"),
        (said(), False, "by nobody, not localvolume"),
        (
            said(reason="FailedMount", source={"component": "kubelet", "host": "n2"}),
            None,
            "by kubelet on n2",
        ),
        (
            said(
                reason="FailedScheduling",
                reportingComponent="default-scheduler",
                reportingInstance="default-scheduler-m1",
            ),
            None,
            "by default-scheduler on default-scheduler-m1",
        ),
        (
            # Clients write the same into both fields.
            said(
                source={"component": "local-volume-provisioner", "host": "n1"},
                reportingComponent="local-volume-provisioner",
                reportingInstance="n1",
            ),
            True,
            "by local-volume-provisioner on n1",
        ),
        (
            said(source={"component": "x" * 999, "host": "y" * 999}),
            False,
            f"by {'x' * 128} … (999 characters) on {'y' * 128} … (999 characters), not localvolume",
        ),
        (
            said(reason="Resizing", source={"component": "a"}, reportingComponent="b"),
            None,
            "by a, b",
        ),
    ],
)
def test_who_wrote_it(written: SeenEvent, ours: bool | None, text: str) -> None:
    shape = event_shape(written)
    assert shape["ours"] is ours
    assert by_whom(shape) == text


def test_why_lists_each_event_with_its_writer() -> None:
    it = volume()
    forged = event("pv-1", "VolumeVanished", "it is gone", by="kubectl", host="")
    found = why_volume(facts(it, klass(), forged, event("pv-1", "VolumeHealthy", age=90)), it)
    text = found.text(NOW)
    assert "1m ago, VolumeVanished, by kubectl, not localvolume  it is gone" in text
    assert "VolumeHealthy, by local-volume-provisioner on n1" in text
    assert [(one["by"], one["instance"], one["ours"]) for one in found.shape()["events"]] == [
        ("kubectl", "", False),
        ("local-volume-provisioner", "n1", True),
    ]
    assert found.verdict.code == "available"


def test_the_status_says_who_had_the_last_word(capsys: pytest.CaptureFixture[str]) -> None:
    about = event("data", "FailedBinding", "none", kind="PersistentVolumeClaim", by="pv-controller")
    status = overview(facts(klass(), claim(), about))
    assert status["claims"][0]["lastEvent"]["by"] == "pv-controller"
    print_status(status, NOW, wide=False)
    assert "FailedBinding 1m ago, by pv-controller on n1: none" in capsys.readouterr().out
