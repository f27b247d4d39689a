"""`localvolume why pvc/...`: each situation has its verdict, what comes next, and who must act."""

from typing import Any

import pytest

from localvolume.cli.seeing.why.claim import why_claim
from tests.decisions.support_seeing import (
    DYNAMIC,
    NOW,
    agent,
    ago,
    claim,
    controller,
    event,
    facts,
    klass,
    node,
    room,
    routed,
    user,
    volume,
)
from tests.suite.names import PROVISIONER, SELECTED

WAITS: dict[str, Any] = {"volumeBindingMode": "WaitForFirstConsumer"}
NOW_MODE: dict[str, Any] = {"volumeBindingMode": "Immediate"}
MADE = klass("made", DYNAMIC, **NOW_MODE)
MADE_LATER = klass("made", DYNAMIC, **WAITS)
ASKED: dict[str, Any] = {"annotations": {PROVISIONER: DYNAMIC}}
HELD: dict[str, Any] = {"phase": "Bound", "volumeName": "pv-1", "has": "10Gi"}
MINE: dict[str, Any] = {"phase": "Bound", "claim": "data"}


GOLD: dict[str, Any] = {"volumeAttributesClassName": "gold"}
OF_CSI: dict[str, Any] = {
    "csi": {"driver": "csi.localvolume.dev", "volumeHandle": "pv-1"},
    "local": None,
}


def modify(status: str, why: str) -> dict[str, Any]:
    return {
        "currentVolumeAttributesClassName": "silver",
        "modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold", "status": status},
        "conditions": [{"type": "ModifyVolumeError", "status": "True", "message": why}],
    }


def refused(why: str) -> dict[str, Any]:
    unused = {"type": "Unused", "status": "True", "message": "no pod uses it"}
    return {
        "conditions": [
            unused,
            {"type": "ControllerResizeError", "status": "True", "message": why},
        ]
    }


def told(reason: str, message: str, **more: Any) -> Any:
    return event("data", reason, message, kind="PersistentVolumeClaim", **more)


def unscheduled(message: str) -> Any:
    return event("app", "FailedScheduling", message, kind="Pod", by="default-scheduler")


#: name, the claim, what else there is, the code, words of the verdict, words of who must act
SITUATIONS: list[tuple[str, dict[str, Any], list[Any], str, str, str]] = [
    ("bound", HELD, [klass(), volume(**MINE)], "bound", "bound to pv-1", "nobody"),
    (
        "bound to what is not well",
        HELD,
        [klass(), volume(**MINE, annotations={"localvolume.dev/health": "ReadOnly: it is"})],
        "bound-unhealthy",
        "ReadOnly: it is",
        "you",
    ),
    (
        "bound to a volume whose node is lost",
        HELD,
        [klass(), volume(**MINE, node_name="gone")],
        "bound-lost",
        "no node is there",
        "you",
    ),
    ("bound to nothing that is known", HELD, [klass()], "bound-unknown", "pv-1", "you"),
    (
        "growing",
        {**HELD, "size": "20Gi"},
        [klass(), volume(**MINE)],
        "growing",
        "asks for 20Gi and has 10Gi",
        "nobody",
    ),
    (
        "cannot grow",
        {**HELD, "size": "20Gi"},
        [klass(), volume(**MINE), told("VolumeResizeFailed", "it cannot grow: 1Gi of room left")],
        "cannot-grow",
        "1Gi of room left",
        "you",
    ),
    (
        "cannot grow, and its status alone still says so",
        {**HELD, "size": "20Gi", "status": refused("it cannot grow: 2Gi of room left")},
        [klass(), volume(**MINE)],
        "cannot-grow",
        "2Gi of room left",
        "you",
    ),
    (
        "is tried to grow again",
        {**HELD, "size": "20Gi"},
        [
            klass(),
            volume(**MINE),
            told("VolumeResizeFailed", "it cannot grow: I/O error"),
            told("Resizing", "growing", type_="Normal", age=1),
        ],
        "cannot-grow",
        "I/O error",
        "you",
    ),
    (
        "modifying",
        {**HELD, **GOLD},
        [klass(), volume(**MINE, **OF_CSI)],
        "modifying",
        "gold, and its volume has none",
        "nobody",
    ),
    (
        "cannot be modified",
        {**HELD, **GOLD, "status": modify("Infeasible", "gold: parameter iops is not known")},
        [klass(), volume(**MINE, **OF_CSI)],
        "not-modified",
        "its volume has silver: gold: parameter iops is not known",
        "you: name another class",
    ),
    (
        "waits for its attributes class",
        {**HELD, **GOLD, "status": modify("Pending", "gold: there is no such class")},
        [klass(), volume(**MINE, **OF_CSI)],
        "not-modified",
        "there is no such class",
        "you: create the class",
    ),
    (
        "modified",
        {**HELD, **GOLD, "status": {"currentVolumeAttributesClassName": "gold"}},
        [klass(), volume(**MINE, **OF_CSI)],
        "bound",
        "bound to pv-1",
        "nobody",
    ),
    (
        "attributes of a local volume",
        {**HELD, **GOLD},
        [klass(), volume(**MINE)],
        "not-modified",
        "only volumes of csi.localvolume.dev",
        "you",
    ),
    ("lost", {"phase": "Lost", "volumeName": "pv-1"}, [klass()], "lost", "pv-1 is gone", "you"),
    ("going", {"deleting": True}, [klass(), user("data")], "deleting", "app", "their owner"),
    ("without class", {"cls": ""}, [], "no-class", "names no StorageClass", "you"),
    ("misspelled class", {"cls": "fsat"}, [klass()], "class-missing", "mean fast?", "you"),
    (
        "class of somebody else",
        {"cls": "cloud"},
        [klass("cloud", "csi.example.org")],
        "class-not-ours",
        "csi.example.org",
        "csi.example.org",
    ),
    ("no volume of its class", {}, [klass()], "no-volumes", "the class fast", "localvolume plan"),
    (
        "all too small",
        {"size": "20Gi"},
        [klass(), volume("a"), volume("b")],
        "no-fit",
        "2: it is too small: less than 20Gi (a, b)",
        "you",
    ),
    (
        "wrong access mode",
        {"modes": ["ReadWriteMany"]},
        [klass(), volume()],
        "no-fit",
        "does not have access mode ReadWriteMany",
        "you",
    ),
    (
        "wrong volume mode",
        {"volumeMode": "Block"},
        [klass(), volume()],
        "no-fit",
        "volumeMode is Filesystem, not Block",
        "you",
    ),
    (
        "selector",
        {"selector": {"matchLabels": {"disk": "nvme"}}},
        [klass(), volume()],
        "no-fit",
        "selector does not match",
        "you",
    ),
    (
        "selector with expressions",
        {"selector": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}},
        [klass(), volume()],
        "no-fit",
        "selector does not match",
        "you",
    ),
    (
        "all taken, all being cleaned",
        {},
        [
            klass(),
            volume("a", phase="Bound", claim="other"),
            volume("b", phase="Released", claim="data", claim_uid="earlier", deleting=True),
        ],
        "no-fit",
        "1: another claim has it",
        "you",
    ),
    (
        "one is left of an earlier claim of its name",
        {},
        [klass(), volume("b", phase="Released", claim="data", claim_uid="earlier")],
        "no-fit",
        "an earlier claim of this name had it",
        "you",
    ),
    ("about to be bound", {}, [klass(**NOW_MODE), volume()], "binding", "fit", "Kubernetes"),
    ("no pod", {}, [klass(**WAITS), volume()], "no-pod", "there is none", "create a pod"),
    (
        "pods could not be read",
        {},
        [klass(**WAITS), volume(), "no consumers"],
        "waits",
        "to be scheduled",
        "Kubernetes",
    ),
    (
        "its pod finds no node",
        {},
        [klass(**WAITS), volume(), user("data"), unscheduled("0/3 nodes: cpu")],
        "unschedulable",
        "0/3 nodes: cpu",
        "you",
    ),
    (
        "none fits on the selected node",
        {"annotations": {SELECTED: "n2"}},
        [klass(**WAITS), volume(), node(), node("n2"), user("data")],
        "no-fit-on-node",
        "it is not on the selected node n2",
        "Kubernetes",
    ),
    (
        "asks for a volume that is not there",
        {"volumeName": "pv-9"},
        [klass(), volume()],
        "no-such-volume",
        "pv-9, which does not exist",
        "you",
    ),
    (
        "asks for a volume that another claim has",
        {"volumeName": "pv-1"},
        [klass(), volume(phase="Bound", claim="other")],
        "volume-unfit",
        "another claim has it",
        "you",
    ),
    (
        "made: a selector",
        {"cls": "made", "selector": {"matchLabels": {"a": "b"}}, **ASKED},
        [MADE],
        "refused",
        "selector",
        "you",
    ),
    (
        "made: a clone",
        {"cls": "made", "dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}, **ASKED},
        [MADE],
        "refused",
        "clones",
        "you",
    ),
    (
        "made: a misspelled parameter of the class",
        {"cls": "made", **ASKED},
        [klass("made", DYNAMIC, parameters={"undoPerod": "1h"}, **NOW_MODE)],
        "refused",
        "undoPeriod",
        "you",
    ),
    (
        "made: no room",
        {"cls": "made", "size": "50Gi", **ASKED},
        [MADE, room("made", "10Gi")],
        "no-room",
        "n1: at most 10Gi fit",
        "make room",
    ),
    (
        "made: no node publishes room",
        {"cls": "made", **ASKED},
        [MADE],
        "no-pool",
        "no node publishes room",
        "give a node a pool that serves made",
    ),
    (
        "made: about to be routed",
        {"cls": "made", **ASKED},
        [MADE, room("made", "10Gi"), controller()],
        "to-route",
        "n1 has the most room",
        "the controller does it",
    ),
    (
        "made: nobody routes it",
        {"cls": "made", **ASKED},
        [MADE, room("made", "10Gi")],
        "to-route",
        "n1 has the most room",
        "is it installed?",
    ),
    (
        "made: the agent is at it",
        {"cls": "made", **routed()},
        [MADE],
        "making",
        "the agent of n1 is making",
        "nobody",
    ),
    (
        "made: the agent refuses",
        {"cls": "made", **routed()},
        [MADE, told("ProvisioningFailed", "pool fast: 1Gi of room left")],
        "failing",
        "n1: pool fast: 1Gi of room left",
        "you",
    ),
    (
        "made: the agent refused, and is at it now",
        {"cls": "made", **routed()},
        [
            MADE,
            told("ProvisioningFailed", "there is no class slow", age=600),
            told("Provisioning", "provisioning volume", type_="Normal", age=60),
            told("ExternalProvisioning", "waiting", type_="Normal", age=5, by="controller"),
        ],
        "making",
        "is making its volume; 10m ago, it failed: there is no class slow",
        "nobody",
    ),
    (
        "made: it is at it, says somebody else",
        {"cls": "made", **routed()},
        [
            MADE,
            told("ProvisioningFailed", "there is no class slow", age=600),
            told("Provisioning", "provisioning volume", type_="Normal", age=60, by="tenant"),
        ],
        "failing",
        "there is no class slow",
        "you",
    ),
    (
        "made: it failed, and something else was said since",
        {"cls": "made", **routed()},
        [
            MADE,
            told("ProvisioningFailed", "there is no class slow", age=600),
            told("Resizing", "it grows", type_="Normal", age=60),
        ],
        "failing",
        "there is no class slow",
        "you",
    ),
    (
        "made: the agent was at it, and failed",
        {"cls": "made", **routed()},
        [
            MADE,
            told("Provisioning", "provisioning volume", type_="Normal", age=600),
            told("ProvisioningFailed", "there is no class slow", age=60),
        ],
        "failing",
        "there is no class slow",
        "you",
    ),
    (
        "made: no agent there",
        {"cls": "made", **routed()},
        [MADE, node(), node("n2"), agent("n2")],
        "no-agent",
        "the agent there is missing",
        "you",
    ),
    (
        "made: the selected node is gone",
        {"cls": "made", "annotations": {PROVISIONER: DYNAMIC, SELECTED: "gone"}},
        [MADE_LATER],
        "node-unfit",
        "gone does not exist",
        "controller",
    ),
    (
        "made: given back by the only node",
        {
            "cls": "made",
            "annotations": {PROVISIONER: DYNAMIC, "localvolume.dev/not-here": f"n1 {ago(10)}"},
        },
        [MADE, room("made", "10Gi")],
        "no-node",
        "n1: it gave the claim back",
        "put right",
    ),
    (
        "made: given back by the last of several",
        {
            "cls": "made",
            "annotations": {PROVISIONER: DYNAMIC, "localvolume.dev/not-here": f"n1 {ago(10)}"},
        },
        [
            MADE,
            node("n2"),
            room("made", "10Gi"),
            room("made", "10Gi", "n2"),
            told("ProvisioningFailed", "no node takes 1Gi: n1: it gave the claim back: no Block"),
        ],
        "given-back",
        "it gave the claim back: no Block",
        "put right",
    ),
    ("made: no pod", {"cls": "made"}, [MADE_LATER], "no-pod", "there is none", "create a pod"),
    (
        "made: its pod finds no node with room",
        {"cls": "made", "size": "50Gi"},
        [
            MADE_LATER,
            room("made", "10Gi"),
            user("data"),
            unscheduled("did not have enough free storage"),
        ],
        "unschedulable",
        "n1: at most 10Gi fit",
        "you",
    ),
    (
        "made: its volume is there already",
        {"cls": "made", **routed()},
        [MADE, volume("pvc-claim-uid", cls="made", claim="data")],
        "binding",
        "is made",
        "Kubernetes",
    ),
    (
        "FlexVolume",
        {"cls": "flex", "annotations": {PROVISIONER: "localvolume.dev/flexvolume"}},
        [klass("flex", "localvolume.dev/flexvolume", **NOW_MODE), controller()],
        "flexvolume",
        "its first mount binds it to a node",
        "controller",
    ),
    (
        "FlexVolume cannot be Block",
        {
            "cls": "flex",
            "volumeMode": "Block",
            "annotations": {PROVISIONER: "localvolume.dev/flexvolume"},
        },
        [klass("flex", "localvolume.dev/flexvolume", **NOW_MODE)],
        "refused",
        "volumeMode Block",
        "you",
    ),
]


@pytest.mark.parametrize(
    ("given", "others", "code", "says", "who"),
    [pytest.param(*rest, id=name) for name, *rest in SITUATIONS],
)
def test_each_situation_has_its_verdict(
    given: dict[str, Any], others: list[Any], code: str, says: str, who: str
) -> None:
    it = claim(**given)
    found = why_claim(facts(it, *others, consumers="no consumers" not in others), it)
    assert found.verdict.code == code, found.verdict
    assert says in found.verdict.text
    assert who in found.verdict.who
    assert found.verdict.then


@pytest.mark.parametrize("what", ["persistentvolumes", "storageclasses"])
def test_what_cannot_be_read_is_not_taken_for_absent(what: str) -> None:
    it = claim()
    others = [klass(**NOW_MODE), volume()]
    found = why_claim(facts(it, *others, without={what: "forbidden (403)"}), it)
    assert found.verdict.code == "unknown"
    assert f"{what}: forbidden (403)" in found.verdict.text


def test_a_volume_that_was_read_by_itself_says_what_it_says_among_all() -> None:
    """Where they could not be listed; and nothing else is taken for the only volumes there are."""
    it, ill = claim(**HELD), volume(**MINE, annotations={"localvolume.dev/health": "ReadOnly: x"})
    without = {"persistentvolumes": "forbidden (403)"}
    known = facts(it, klass(), without=without, alone={"pv-1": ill})
    assert why_claim(known, it).verdict.code == "bound-unhealthy"
    assert why_claim(known, claim()).verdict.code == "unknown"


def test_room_that_cannot_be_read_is_not_taken_for_none() -> None:
    it = claim(cls="made", **ASKED)
    found = why_claim(facts(it, MADE, without={"csistoragecapacities": "forbidden"}), it)
    assert found.verdict.code == "unknown"
    assert "forbidden" in found.verdict.text


def test_the_chain_says_what_room_there_is() -> None:
    it = claim(cls="made", **ASKED)
    known = facts(it, MADE, room("made", "10Gi"), drivers=frozenset())
    chain = dict(why_claim(known, it).chain)
    assert chain["Asks for"] == "1Gi, ReadWriteOnce, Filesystem"
    assert chain["Room"] == "n1: 10Gi, at most 10Gi in one"
    assert "heeds no room" in chain["Scheduler"]


def test_as_text_the_verdict_comes_first_and_a_name_with_a_newline_makes_no_line() -> None:
    it = claim()
    odd = "one\nKind: forged"
    text = why_claim(facts(it, klass(), told("ProvisioningFailed", odd)), it).text(NOW)
    lines = text.splitlines()
    assert lines[0].startswith("pvc/data -n default: no PersistentVolume has the class fast")
    assert not any(line.startswith("Kind: forged") for line in lines)
    assert "one\\nKind: forged" in text
