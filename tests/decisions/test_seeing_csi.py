"""Volumes of our CSI driver in `status` and `why`: shown, and what keeps pods from using them."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.cli.seeing.bundle.trimming import trimmed
from localvolume.cli.seeing.csi import in_use
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.tables import print_status
from localvolume.cli.seeing.why.claim import why_claim
from localvolume.cli.seeing.why.explanation import Explanation
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.kube.objects import Meta, PersistentVolume, VolumeAttributesClass
from tests.decisions.support_seeing import (
    CSI,
    DYNAMIC,
    NOW,
    agent,
    claim,
    controller,
    event,
    facts,
    klass,
    node,
    room,
    user,
    volume,
)
from tests.suite.names import NODE_LABEL, PROVISIONER, SELECTED

MADE = klass("made", CSI, volumeBindingMode="Immediate")
LATER = klass("made", CSI, volumeBindingMode="WaitForFirstConsumer")
ALL = frozenset({"n1"})
NONE: frozenset[str] = frozenset()
ASKED: dict[str, Any] = {"cls": "made", "annotations": {PROVISIONER: CSI}}
ROUTED: dict[str, Any] = {**ASKED, "labels": {NODE_LABEL: "n1"}}


def served(**more: Any) -> Any:
    """A bound volume of the driver on n1, as the agent makes it."""
    own: dict[str, Any] = {
        "phase": "Bound",
        "claim": "data",
        "cls": "made",
        "provisioner": CSI,
        "annotations": {"localvolume.dev/pool": "fast/id"},
        "local": None,
        "csi": {"driver": CSI, "volumeHandle": "pv-1", "fsType": "ext4"},
    }
    return volume(**{**own, **more})


HELD: dict[str, Any] = {**ROUTED, "phase": "Bound", "volumeName": "pv-1", "has": "10Gi"}


def why(it: Any, *things: Any, **more: Any) -> Explanation:
    known = facts(it, *things, **{"registered": ALL, **more})
    return why_volume(known, it) if isinstance(it, PersistentVolume) else why_claim(known, it)


# --- a volume ------------------------------------------------------------------------------------


def test_one_that_is_well() -> None:
    found = why(served(), MADE)
    assert found.verdict.code == "bound"
    chain = dict(found.chain)
    assert chain["CSI"] == f"{CSI}, handle pv-1"
    assert chain["Registered"] == "yes"
    assert chain["Kind"].startswith("made for a claim")
    assert chain["Pool"] == "fast/id"
    assert "record" in chain["Path"]
    assert why(claim(**HELD), served(), MADE).verdict.code == "bound"


@pytest.mark.parametrize(
    ("more", "code", "words", "who"),
    [
        ({"registered": NONE}, "not-registered", "the CSINode n1 does not name", "--csi"),
        ({"drivers": frozenset({DYNAMIC})}, "no-driver", f"no CSIDriver {CSI}", "controller"),
    ],
)
def test_pods_cannot_begin_to_use_it(more: dict[str, Any], code: str, words: str, who: str) -> None:
    for found in (why(served(), MADE, **more), why(claim(**HELD), served(), MADE, **more)):
        assert found.verdict.code == code
        assert "no pod can begin to use it" in found.verdict.text
        assert words in found.verdict.text
        assert who in found.verdict.who


def test_what_could_not_be_read_is_not_taken_for_missing() -> None:
    it = served()
    for more in ({"registered": None}, {"drivers": None}):
        assert why(it, MADE, **more).verdict.code == "bound"
    assert "Registered" not in dict(why(it, MADE, registered=None).chain)


def test_a_volume_with_a_local_source_needs_no_driver() -> None:
    it = volume(phase="Bound", claim="data", cls="made", provisioner=DYNAMIC)
    assert why(it, klass("made", DYNAMIC), registered=NONE, drivers=NONE).verdict.code == "bound"
    assert "CSI" not in dict(why(it).chain)


def test_its_ill_health_comes_first() -> None:
    notes = {"localvolume.dev/pool": "fast/id", "localvolume.dev/health": "ReadOnly: it is"}
    it = served(annotations=notes)
    assert why(it, MADE, registered=NONE).verdict.code == "unhealthy"
    assert why(claim(**HELD), it, MADE, registered=NONE).verdict.code == "bound-unhealthy"


def test_one_that_external_provisioner_made_is_to_be_adopted() -> None:
    it = served(annotations={}, labels={}, finalizers=())
    found = why(it, MADE, controller())
    assert found.verdict.code == "to-adopt"
    assert "labels it for n1" in found.verdict.then


def test_one_of_another_driver_is_not_ours() -> None:
    other = {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}
    it = served(provisioner="ebs.csi.aws.com", labels={}, annotations={}, csi=other)
    assert why(it).verdict.code == "not-ours"
    assert dict(why(it).chain)["Path"] == "it is not of the kind local"


def test_its_removal_can_be_undone_as_long_as_its_class_says() -> None:
    it = served(phase="Released")
    found = why(it, klass("made", CSI, parameters={"undoPeriod": "1h"}))
    assert found.verdict.code == "undo"
    assert "localvolume undo pv-1" in found.verdict.then


def attributes(**parameters: str) -> dict[str, VolumeAttributesClass]:
    """The one class "limited"."""
    made = VolumeAttributesClass(
        metadata=Meta(name="limited"), driver_name=CSI, parameters=parameters
    )
    return {"limited": made}


LIMITED: dict[str, Any] = {"volumeAttributesClassName": "limited"}


def test_its_attributes_are_those_of_its_class() -> None:
    it, known = served(**LIMITED), attributes(writeOps="100", readOps="max")
    assert dict(why(it, MADE, attributes=known).chain)["Attributes by"] == (
        "limited: readOps=max, writeOps=100"
    )
    (shown,) = overview(facts(it, MADE, attributes=known))["volumes"]
    assert shown["attributesClass"] == "limited"
    assert shown["attributes"] == {"writeOps": "100", "readOps": "max"}


@pytest.mark.parametrize(("known", "words"), [(None, "cannot be read"), ({}, "is gone")])
def test_attributes_that_are_not_known_are_not_none(known: Any, words: str) -> None:
    it = served(**LIMITED)
    assert words in dict(why(it, MADE, attributes=known).chain)["Attributes by"]
    (shown,) = overview(facts(it, MADE, attributes=known))["volumes"]
    assert (shown["attributesClass"], shown["attributes"]) == ("limited", None)


def test_only_volumes_of_the_driver_have_attributes() -> None:
    it = volume(phase="Bound", claim="data", cls="made", provisioner=DYNAMIC, **LIMITED)
    for one in (it, served()):
        assert "Attributes by" not in dict(why(one, MADE, attributes=attributes()).chain)
        (shown,) = overview(facts(one, MADE, attributes=attributes()))["volumes"]
        assert (shown["attributesClass"], shown["attributes"]) == ("", {})


def test_the_table_of_volumes_names_the_class(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(overview(facts(served(**LIMITED), MADE)), NOW, wide=True)
    table = capsys.readouterr().out
    assert "ATTRIBUTES BY" in table
    assert "limited" in table
    print_status(overview(facts(served(), MADE)), NOW, wide=True)
    assert "ATTRIBUTES BY" not in capsys.readouterr().out


# --- a claim -------------------------------------------------------------------------------------


def test_a_claim_that_is_being_served() -> None:
    found = why(claim(**ROUTED), MADE, room("made", "10Gi"))
    assert found.verdict.code == "making"
    assert dict(found.chain)["Volumes from"] == CSI
    assert "Scheduler" not in dict(found.chain)


def test_its_node_lacks_the_driver() -> None:
    found = why(claim(**ROUTED), MADE, room("made", "10Gi"), registered=NONE)
    assert found.verdict.code == "not-registered"
    assert "n1" in found.verdict.text
    assert "--csi" in found.verdict.who


def test_what_its_agent_says_or_that_there_is_none_comes_first() -> None:
    said = event("data", "ProvisioningFailed", "no room", kind="PersistentVolumeClaim")
    found = why(claim(**ROUTED), MADE, room("made", "10Gi"), said, registered=NONE)
    assert found.verdict.code == "failing"
    found = why(claim(**ROUTED), MADE, agent(ready=False), registered=NONE)
    assert found.verdict.code == "no-agent"


def test_no_agent_serves_the_driver_at_all() -> None:
    found = why(claim(**ASKED), MADE, registered=NONE)
    assert found.verdict.code == "not-registered"
    assert "no CSINode names" in found.verdict.text
    # Where one does, it is the pools that are wanting.
    assert why(claim(**ASKED), MADE).verdict.code == "no-pool"
    assert why(claim(**ASKED), MADE, registered=None).verdict.code == "no-pool"


def test_nothing_is_to_be_put_right_before_there_is_a_pod() -> None:
    assert why(claim(cls="made"), LATER, registered=NONE).verdict.code == "no-pod"


def test_its_pod_finds_no_node() -> None:
    it = claim(cls="made")
    none = event("app", "FailedScheduling", "0/1", kind="Pod", by="default-scheduler")
    assert why(it, LATER, user("data"), none).verdict.code == "unschedulable"
    assert why(it, LATER, user("data"), none, registered=NONE).verdict.code == "not-registered"


def test_without_its_csidriver_the_scheduler_heeds_no_room() -> None:
    notes = {PROVISIONER: CSI, SELECTED: "n1"}
    it = claim(cls="made", annotations=notes, labels={NODE_LABEL: "n1"})
    found = why(it, LATER, room("made", "10Gi"), user("data"), drivers=frozenset({DYNAMIC}))
    assert dict(found.chain)["Scheduler"].startswith(f"there is no CSIDriver {CSI}")
    assert found.verdict.code == "no-driver"


def test_a_class_that_cannot_be_read() -> None:
    wrong = klass("made", CSI, parameters={"undoPeriode": "1h"})
    found = why(claim(**ASKED), wrong)
    assert found.verdict.code == "refused"
    assert "undoPeriode" in found.verdict.text


# --- status --------------------------------------------------------------------------------------


def shown(*things: Any, **more: Any) -> tuple[Facts, dict[str, Any]]:
    known = facts(*things, **{"registered": ALL, **more})
    return known, overview(known)


def test_status_marks_them(capsys: pytest.CaptureFixture[str]) -> None:
    local = volume("pv-2", cls="made", provisioner=DYNAMIC)
    _, status = shown(served(), local, MADE)
    marks = {one["name"]: (one["csi"], one["path"], one["pool"]) for one in status["volumes"]}
    assert marks == {"pv-1": (True, "", "fast"), "pv-2": (False, "/mnt/made/pv-2", "")}
    assert status["problems"] == []
    print_status(status, NOW, wide=True)
    line = next(one for one in capsys.readouterr().out.splitlines() if one.startswith("pv-1"))
    assert "through CSI" in line


def test_status_says_once_per_node_what_pods_lack() -> None:
    two = served(name="pv-2", claim="other")
    away = served(name="pv-3", node_name="n2")
    there = (node(), node("n2"), agent(), agent("n2"))
    _, status = shown(served(), two, away, MADE, *there, registered=frozenset({"n2"}))
    (problem,) = status["problems"]
    assert (problem["severity"], problem["about"], problem["node"]) == (
        "error",
        "csinode/n1",
        "n1",
    )
    assert "--csi" in problem["do"]
    _, status = shown(served(), MADE, drivers=frozenset({DYNAMIC}))
    (problem,) = status["problems"]
    assert problem["about"] == f"csidriver/{CSI}"


def test_a_waiting_claim_is_reason_enough() -> None:
    _, status = shown(claim(**ROUTED, age=5), MADE, room("made", "10Gi"), registered=NONE)
    assert [one["about"] for one in status["problems"]] == ["csinode/n1"]


def test_nothing_is_missed_where_nothing_uses_it() -> None:
    local = volume(phase="Bound", claim="data")
    _, status = shown(local, klass(), drivers=NONE, registered=NONE)
    assert status["problems"] == []
    assert not in_use([local], [klass(), klass("other", DYNAMIC)])
    assert in_use([served()], [])
    assert in_use([], [MADE])


def test_a_node_that_is_lost_is_not_told_to_register() -> None:
    _, status = shown(served(), MADE, node("n2"), agent("n2"), registered=NONE)
    assert [one["about"] for one in status["problems"]] == ["pv/pv-1"]


# --- the support bundle --------------------------------------------------------------------------


def test_the_bundle_says_nothing_of_others_drivers() -> None:
    drivers = [
        {"name": "ebs.csi.aws.com", "nodeID": "i-0123", "topologyKeys": ["zone"]},
        {"name": CSI, "nodeID": "n1", "topologyKeys": ["kubernetes.io/hostname"]},
    ]
    found = trimmed("csinodes", {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    assert found == {"metadata": {"name": "n1"}, "spec": {"drivers": [drivers[1]]}}
    assert trimmed("csinodes", {"metadata": {}, "spec": {"drivers": None}})["spec"] == {
        "drivers": []
    }


# --- a claim for what another has ----------------------------------------------------------------

COPY: dict[str, Any] = {
    "cls": "made",
    "dataSource": {"kind": "PersistentVolumeClaim", "name": "source"},
}


def test_a_copy_waits_for_the_node_that_has_the_content() -> None:
    """No pod is waited for, nor does the node count that was selected."""
    found = why(claim(**COPY), LATER, controller(), node("n1"))
    assert (found.verdict.code, found.verdict.who) == (
        "to-route",
        "nobody: the controller does it",
    )
    assert "the node that has the content" in found.verdict.then
    lacks = "claim ns/source, whose content it asks for, does not exist"
    said = event("data", "ProvisioningFailed", lacks, kind="PersistentVolumeClaim")
    assert lacks in why(claim(**COPY), LATER, controller(), node("n1"), said).verdict.text


def test_a_copy_is_made_by_the_node_that_has_the_content() -> None:
    routed = {**COPY, "labels": {NODE_LABEL: "n1"}, "annotations": {SELECTED: "n2"}}
    found = why(claim(**routed), LATER, controller(), node("n1"), node("n2"), agent("n1"))
    assert (found.verdict.code, found.verdict.text[:18]) == ("making", "the agent of n1 is")


def test_a_copy_of_what_is_in_another_namespace() -> None:
    other = {"kind": "PersistentVolumeClaim", "name": "source", "namespace": "theirs"}
    found = why(claim(cls="made", dataSourceRef=other), LATER)
    assert (found.verdict.code, "namespace theirs" in found.verdict.text) == ("refused", True)
