"""`localvolume why pv/...`: each situation has its verdict, what comes next, and who must act."""

from typing import Any

import pytest

from localvolume.cli.seeing.status.overview import overview
from localvolume.cli.seeing.status.states import state_of
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.volumes.marks import node_key
from tests.decisions.support_seeing import (
    agent,
    ago,
    controller,
    event,
    facts,
    job,
    klass,
    node,
    volume,
)
from tests.suite.names import FINALIZER, NODE_LABEL

FLEX = {"driver": "localvolume.dev/flexvolume"}
RELEASED: dict[str, Any] = {"phase": "Released", "claim": "data"}
POOL = {"localvolume.dev/pool": "fast/id"}
MADE: dict[str, Any] = {
    **RELEASED,
    "cls": "made",
    "provisioner": "dynamic.localvolume.dev",
    "annotations": POOL,
}
MARKED = {**POOL, "localvolume.dev/released-since": f"{ago(600)} claim-uid"}
GOING: dict[str, Any] = {**RELEASED, "deleting": True}

#: name, the volume, what else there is, the code, words of the verdict, words of what follows
SITUATIONS: list[tuple[str, dict[str, Any], list[Any], str, str, str]] = [
    ("offered", {}, [], "available", "no claim has it", "class fast"),
    ("bound", {"phase": "Bound", "claim": "data"}, [], "bound", "default/data has it", "removed"),
    ("pending", {"phase": "Pending"}, [], "pending", "not seen it", "Available"),
    (
        "reserved for a claim that may come",
        {"claim": "data", "claim_uid": ""},
        [],
        "reserved",
        "kept for the claim default/data",
        "no other claim",
    ),
    (
        "somebody else's",
        {"labels": {}, "provisioner": "csi.example.org"},
        [],
        "not-ours",
        "does not serve it",
        "nothing is ever done",
    ),
    (
        "upstream's, before the controller has seen it",
        {"labels": {}, "finalizers": ()},
        [controller()],
        "to-adopt",
        "will be: local-volume-provisioner-n1 made it",
        "labels it for n1",
    ),
    (
        "upstream's, of a node that nobody can tell",
        {"labels": {}, "provisioner": "local-volume-provisioner-other"},
        [],
        "not-adopted",
        "names n1, but local-volume-provisioner-other made it",
        "nothing is done",
    ),
    ("lost node", {"node_name": "gone"}, [], "lost", "serve it (gone)", "--storageclass-names"),
    (
        "lost node, as the controller says",
        {"node_name": "gone", "annotations": {"localvolume.dev/node-lost-since": ago(7200)}},
        [event("pv-1", "ReferencedNodeDeleted", "removed after 1m", by="localvolume-controller")],
        "lost",
        "for 2h",
        "removed after 1m",
    ),
    (
        "unhealthy, also while it is bound",
        {
            "phase": "Bound",
            "claim": "data",
            "annotations": {"localvolume.dev/health": "IOErrors: 3 errors"},
        },
        [],
        "unhealthy",
        "IOErrors: 3 errors",
        "nothing is healed by deleting",
    ),
    (
        "unhealthy, and therefore not cleaned",
        {**RELEASED, "annotations": {"localvolume.dev/health": "DeviceGone: gone"}},
        [event("pv-1", "VolumeFailedDelete", "not cleaned, the data stays: no mount point")],
        "not-cleaned",
        "no mount point",
        "the data stays",
    ),
    (
        "vanished",
        {"phase": "Bound", "claim": "data"},
        [event("pv-1", "VolumeVanished", "/mnt/fast/pv-1 is not a mount point")],
        "vanished",
        "is not a mount point (said 1m ago)",
        "the data stays",
    ),
    (
        "another disk is there",
        RELEASED,
        [event("pv-1", "VolumeReplaced", "its uuid was 'a' and is 'b'")],
        "held",
        "its uuid was 'a' and is 'b'",
        "the data stays",
    ),
    (
        "others had it since what the object says",
        {"phase": "Bound", "claim": "data"},
        [event("pv-1", "VolumeKeptFromClaim", "its pool remembers claims that had it since")],
        "held",
        "its pool remembers claims that had it since",
        "",
    ),
    (
        "said of an earlier object of its name",
        {},
        [event("pv-1", "VolumeReplaced", "old", uid="uid-of-another")],
        "available",
        "no claim has it",
        "class fast",
    ),
    (
        "said so long ago that it counts no longer",
        {},
        [event("pv-1", "VolumeVanished", "old", age=9000)],
        "available",
        "no claim has it",
        "class fast",
    ),
    (
        "said by somebody else",
        {},
        [event("pv-1", "VolumeVanished", "not us", by="kubelet")],
        "available",
        "no claim has it",
        "class fast",
    ),
    ("Retain", {**RELEASED, "policy": "Retain"}, [], "retain", "Retain", "nothing, ever"),
    ("Recycle", {**RELEASED, "policy": "Recycle"}, [], "policy", "not supported", "data stays"),
    ("released", RELEASED, [], "to-clean", "its claim is gone", "cleaned first"),
    (
        "released, and cannot be cleaned",
        RELEASED,
        [event("pv-1", "VolumeFailedDelete", "not cleaned, the data stays: no mount point")],
        "not-cleaned",
        "no mount point",
        "looked at again",
    ),
    (
        "released, and its agent is not there",
        RELEASED,
        [node(), node("n2"), agent("n2")],
        "no-agent",
        "the agent of n1 is missing",
        "as soon as it runs",
    ),
    (
        "released, and its agent does not come up",
        RELEASED,
        [agent(ready=False, waiting="ImagePullBackOff")],
        "no-agent",
        "not ready: ImagePullBackOff",
        "as soon as it runs",
    ),
    (
        "within the undo period",
        {**MADE, "annotations": MARKED},
        [klass("made", "dynamic.localvolume.dev", parameters={"undoPeriod": "1h"})],
        "undo",
        "gone for 10m",
        f"after {ago(600 - 3600)}, unless: localvolume undo pv-1",
    ),
    (
        "within the undo period, and its class is gone",
        {**MADE, "annotations": {**MARKED, "localvolume.dev/kept-until": f"{ago(-60)} claim-uid"}},
        [],
        "undo",
        "gone for 10m",
        f"after {ago(-60)}, unless",
    ),
    (
        "within the undo period of its VolumeAttributesClass, which its class's does not lengthen",
        {
            **MADE,
            "volumeAttributesClassName": "gold",
            "annotations": {**MARKED, "localvolume.dev/kept-until": f"{ago(-60)} claim-uid"},
        },
        [klass("made", "dynamic.localvolume.dev", parameters={"undoPeriod": "1h"})],
        "undo",
        "gone for 10m",
        f"after {ago(-60)}, unless",
    ),
    (
        "within the undo period of its pool",
        {**MADE, "annotations": MARKED},
        [klass("made", "dynamic.localvolume.dev")],
        "undo",
        "gone for 10m",
        f"its pool's undoPeriod from {ago(600)} on",
    ),
    (
        "about to be kept",
        MADE,
        [klass("made", "dynamic.localvolume.dev", parameters={"undoPeriod": "1h"})],
        "undo",
        "can still be undone",
        "after 1h,",
    ),
    (
        "within the undo period of an older provisioner's class",
        {**MADE, "provisioner": "rancher.io/local-path", "annotations": MARKED},
        [klass("made", "rancher.io/local-path", parameters={"undoPeriod": "1h", "x": "y"})],
        "undo",
        "gone for 10m",
        f"after {ago(600 - 3600)}, unless",
    ),
    (
        "after the undo period",
        {**MADE, "annotations": {**MARKED, "localvolume.dev/kept-until": f"{ago(60)} claim-uid"}},
        [],
        "to-clean",
        "its claim is gone",
        "is deleted",
    ),
    (
        "released after its class",
        MADE,
        [],
        "not-cleaned",
        "its class made is gone, which said how long",
        "the data stays",
    ),
    (
        "released, and its class is another's now",
        MADE,
        [klass("made", "csi.example.org")],
        "not-cleaned",
        "its class made is gone",
        "the data stays",
    ),
    (
        "released, and its class is not valid",
        MADE,
        [klass("made", "dynamic.localvolume.dev", parameters={"undoPeriod": "1d"})],
        "not-cleaned",
        "unknown unit",
        "the data stays",
    ),
    (
        "released, and nobody can read until when it is kept",
        {**MADE, "annotations": {"localvolume.dev/kept-until": "soon"}},
        [klass("made", "dynamic.localvolume.dev")],
        "not-cleaned",
        "says 'soon', which is not a time",
        "the data stays",
    ),
    (
        "undone",
        {**RELEASED, "claim_uid": ""},
        [],
        "undone",
        "waits for claim default/data",
        "with its data",
    ),
    (
        "undone, and kept for its claim as the API server has it",
        {"claim": "data", "claim_uid": "", "provisioner": "dynamic.localvolume.dev"},
        [],
        "undone",
        "waits for claim default/data",
        "with its data",
    ),
    ("being cleaned", GOING, [], "cleaning", "cleans its volume", "offered anew"),
    (
        "being cleaned after a failure",
        GOING,
        [
            event("pv-1", "VolumeFailedDelete", "failed once", age=60),
            event("pv-1", "VolumeDelete", "cleaning /mnt with zero", type_="Normal", age=5),
        ],
        "cleaning",
        "cleans its volume",
        "offered anew",
    ),
    ("being cleaned by a Job", GOING, [job("pv-1")], "cleaning", "cleans", "Job cleanup-uid-pv-1"),
    (
        "its cleaning fails",
        GOING,
        [event("pv-1", "VolumeFailedDelete", "cleaning failed, tried again in 8 s: I/O error")],
        "not-cleaned",
        "I/O error",
        "looked at again",
    ),
    (
        "waits for another Job",
        GOING,
        [event("pv-1", "VolumeCleaningWaits", "the Job x is at work on it")],
        "waits",
        "the Job x",
        "when that is over",
    ),
    (
        "being removed from a pool",
        {**GOING, "provisioner": "dynamic.localvolume.dev"},
        [],
        "cleaning",
        "removes its volume",
        "the object goes",
    ),
    (
        "deleted by hand while a claim has it",
        {"phase": "Bound", "claim": "data", "deleting": True},
        [],
        "deleting-claimed",
        "default/data still has it",
        "when the claim is gone",
    ),
    (
        "deleted by hand, never claimed",
        {"deleting": True},
        [],
        "letting-go",
        "no claim ever held it",
        "lets the object go",
    ),
    (
        "deleted by hand with Retain",
        {**GOING, "policy": "Retain"},
        [event("pv-1", "VolumeFailedDelete", "when it was Delete still")],
        "letting-go",
        "the data stays",
        "leaves the data",
    ),
    (
        "kept by somebody else's finalizer",
        {**GOING, "finalizers": ("example.org/backup",)},
        [],
        "deleting-others",
        "example.org/backup",
        "with them",
    ),
    ("Failed", {"phase": "Failed", "claim": "data"}, [], "failed", "Failed", "nothing is done"),
    (
        "FlexVolume before its first mount",
        {"flexVolume": FLEX, "labels": {}, "terms": False, "phase": "Bound", "claim": "data"},
        [],
        "bound",
        "default/data has it",
        "removed",
    ),
]


@pytest.mark.parametrize(
    ("given", "others", "code", "says", "follows"),
    [pytest.param(*rest, id=name) for name, *rest in SITUATIONS],
)
def test_each_situation_has_its_verdict(
    given: dict[str, Any], others: list[Any], code: str, says: str, follows: str
) -> None:
    it = volume(**given)
    found = why_volume(facts(it, *others), it)
    assert found.verdict.code == code, found.verdict
    assert says in found.verdict.text
    assert follows in found.verdict.then
    assert found.verdict.who


def test_the_chain_says_what_the_verdict_rests_on() -> None:
    it = volume(phase="Bound", claim="data")
    known = facts(it, node(taints=["example.org/full"]), klass())
    chain = dict(why_volume(known, it).chain)
    assert chain["Node"] == "n1 (taints: example.org/full)"
    assert chain["Agent"] == "ready"
    assert chain["Claim"] == "default/data"
    assert chain["Finalizers"] == FINALIZER
    assert chain["Path"] == "/mnt/fast/pv-1"


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ('{"serial":"S1","wwn":"naa.5"}', "serial: S1, wwn: naa.5"),
        ("{}", ""),
        ('{"serial":5}', 'it cannot be read: {"serial":5}'),
        ("[", "it cannot be read: ["),
    ],
)
def test_an_identity_is_said_as_names_and_values(recorded: str, said: str) -> None:
    """As `status -o wide` and `plan` say it."""
    it = volume(annotations={"localvolume.dev/identity": recorded})
    chain = dict(why_volume(facts(it, klass()), it).chain)
    assert chain["Identity"] == said
    assert "Identity" not in dict(why_volume(facts(volume(), klass()), volume()).chain)


def test_what_could_not_be_read_is_said() -> None:
    it = volume(phase="Released", claim="data")
    found = why_volume(facts(it, without={"pods": "pods is forbidden (403)"}), it)
    assert found.verdict.code == "to-clean"
    chain = dict(found.chain)
    assert chain["Agent"] == "unknown: pods could not be read: pods is forbidden (403)"
    assert chain["Unknown"] == "pods: pods is forbidden (403)"


def test_a_node_is_not_lost_because_nodes_could_not_be_read() -> None:
    it = volume(node_name="elsewhere")
    found = why_volume(facts(it, without={"nodes": "forbidden"}), it)
    assert found.verdict.code == "available"


def test_whether_it_will_be_adopted_is_unknown_without_the_nodes() -> None:
    it = volume(labels={}, finalizers=())
    found = why_volume(facts(it, without={"nodes": "nodes is forbidden (403)"}), it)
    assert found.verdict.code == "unknown"
    assert "nodes is forbidden (403)" in found.verdict.text
    assert found.verdict.who == "you: ask with the right to list nodes"


def test_events_come_newest_first() -> None:
    it = volume()
    events = [event("pv-1", f"R{age}", age=age) for age in (30, 10, 20)]
    found = why_volume(facts(it, *events), it)
    assert [one.reason for one in found.events] == ["R10", "R20", "R30"]


@pytest.mark.parametrize("last", ["VolumeVanished", "VolumeFailedDelete"])
def test_of_two_events_in_one_second_the_later_written_is_the_last_word(last: str) -> None:
    it = volume(phase="Bound", claim="data")
    both = ("VolumeVanished", "VolumeFailedDelete")
    events = [event("pv-1", one, one, version=99 + 2 * (one == last)) for one in both]
    verdict = why_volume(facts(it, *events), it).verdict
    assert last in verdict.text


@pytest.mark.parametrize(
    ("first", "last", "state"),
    [
        ("VolumePutRight", "VolumeFailedDelete", "held"),
        ("VolumeFailedDelete", "VolumePutRight", "bound"),
    ],
)
def test_the_last_word_is_the_last_also_if_its_writers_clock_was_set_back(
    first: str, last: str, state: str
) -> None:
    it = volume(phase="Bound", claim="data")
    events = [event("pv-1", first, age=-1800, version=7), event("pv-1", last, age=1800, version=8)]
    (shape,) = overview(facts(it, *events))["volumes"]
    assert shape["state"] == state


def test_if_versions_are_no_numbers_the_times_say_which_word_was_the_last() -> None:
    """A resourceVersion is a text that only the API server understands."""
    it = volume(phase="Bound", claim="data")
    first = event("pv-1", "VolumeFailedDelete", age=600, version="z1")
    found = facts(it, event("pv-1", "VolumePutRight", age=60, version="a2"), first)
    assert state_of(found, it).word == "bound"


@pytest.mark.parametrize("reason", ["VolumePutRight", "VolumeVanished", "VolumeCleaned"])
def test_what_the_agent_of_another_node_says_of_a_volume_does_not_count(reason: str) -> None:
    """One node that is taken over must neither hide another's problem nor invent one."""
    it = volume(phase="Bound", claim="data")
    own = event("pv-1", "VolumeFailedDelete", "there are stray files", age=50)
    forged = event("pv-1", reason, "all is well", type_="Normal", age=5, host="n2")
    found = facts(it, own, forged)
    assert why_volume(found, it).verdict.text.startswith("its agent leaves it alone: there are str")
    (problem,) = overview(found)["problems"]
    assert (problem["about"], problem["reason"]) == ("pv/pv-1", "held: there are stray files")


@pytest.mark.parametrize("reason", ["VolumeFailedDelete", "VolumeKeptFromClaim", "VolumeNotMoved"])
def test_a_volume_made_for_a_claim_is_held_until_its_own_agent_takes_it_back(reason: str) -> None:
    it = volume(**{**MADE, "phase": "Bound"})
    said = event("pv-1", reason, "its pool cannot note it", age=50)
    others = [
        event("pv-1", "VolumePutRight", type_="Normal", age=20, host="n2"),
        event("pv-1", "VolumePutRight", type_="Normal", age=20, uid="of-an-earlier-object"),
        event("pv-1", "VolumeLimitEscaped", age=10),
        event("pv-1", "VolumeHealthy", type_="Normal", age=10),
    ]
    found = facts(it, said, *others)
    assert (state_of(found, it).word, state_of(found, it).why) == ("held", said.message)
    assert why_volume(found, it).verdict.code in ("held", "not-cleaned")
    own = event("pv-1", "VolumePutRight", type_="Normal", age=30)
    found = facts(it, said, own, *others)
    assert state_of(found, it).word == "bound"
    assert overview(found)["problems"] == []
    assert why_volume(found, it).verdict.code == "bound"


@pytest.mark.parametrize(
    ("reason", "by"),
    [
        ("VolumeUnhealthy", "local-volume-provisioner"),
        ("VolumeHealthy", "local-volume-provisioner"),
        ("VolumeLimitEscaped", "local-volume-provisioner"),
        ("VolumeLimitsNotKept", "local-volume-provisioner"),
        ("VolumeNamesTaken", "local-volume-provisioner"),
        ("ReferencedNodeDeleted", "localvolume-controller"),
        ("ReferencedNodeReturned", "localvolume-controller"),
    ],
)
def test_what_tells_of_something_else_takes_no_hold_back(reason: str, by: str) -> None:
    it = volume(phase="Bound", claim="data")
    held = event("pv-1", "VolumeFailedDelete", "there are stray files", age=50)
    found = facts(it, held, event("pv-1", reason, age=10, by=by))
    assert state_of(found, it).why == "there are stray files"
    assert state_of(facts(it, event("pv-1", reason, age=10, by=by)), it).word == "bound"


def test_of_a_volume_without_a_label_the_agents_of_its_affinity_may_speak() -> None:
    it = volume(phase="Bound", claim="data", labels={})
    own = event("pv-1", "VolumeVanished", "its mount is gone", age=50)
    forged = event("pv-1", "VolumePutRight", "all is well", type_="Normal", age=5, host="n2")
    assert state_of(facts(it, own, forged), it).word == "vanished"


def test_a_node_whose_name_is_no_label_speaks_of_its_own_volumes() -> None:
    name = "n" * 60 + ".example.org"
    it = volume(phase="Bound", claim="data", node_name=name, labels={NODE_LABEL: node_key(name)})
    found = facts(node(name), it, event("pv-1", "VolumeVanished", host=name))
    assert state_of(found, it).word == "vanished"
