"""Whose a PersistentVolume is: its provisioner, its node, its pool, its place and its record agree,
or nothing is done to it."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.dynamic.model import Action, Delete, Hold, Keep, MarkReleased, Retire
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from tests.decisions.support_dynamic import (
    A_MINUTE_AGO,
    HOST,
    IN_A_MINUTE,
    NODE,
    NOW,
    a,
    action,
    adopted,
    bound,
    in_terms,
    old_pool,
    pool,
    record,
    storage_class,
    volume,
)
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS

FLAVORS = [KUTTI, LOCAL_PATH, OPENEBS]
MIGRATED = {"pv.kubernetes.io/migrated-to": "x.example/y"}


# --- whose provisioner -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"provisioner": "x.example/y"}, id="L05-L68-L71-another"),
        pytest.param({"provisioner": None}, id="L73-L74-nobody"),
        pytest.param({"provisioner": None, "annotations": MIGRATED}, id="L76-migrated-elsewhere"),
        pytest.param(
            {"provisioner": "x.example/y", "annotations": MIGRATED}, id="L69-migrated-elsewhere"
        ),
        pytest.param({"provisioner": KUTTI}, id="one-that-no-pool-here-is-for"),
    ],
)
@pytest.mark.parametrize("deleted", [False, True])
def test_not_our_provisioners(said: dict[str, Any], deleted: bool) -> None:
    """What `migrated-to` says (L65, L67, L75) is of in-tree plugins with a CSI driver, and a CSI
    source (L72, L73) is none of ours: only provisioned-by counts.
    """
    one = volume(phase="Released", deleted=deleted, **said)
    assert "no pool of this node" in a(Hold, action(one, pool(record()))).reason


def test_ours() -> None:
    """L66, L70"""
    a(Delete, action(volume(phase="Released"), pool(record())))


def test_ours_and_migrated() -> None:
    """L65, L67: the annotation takes nothing away from what we made."""
    a(Delete, action(volume(phase="Released", annotations=MIGRATED), pool(record())))


@pytest.mark.parametrize("provisioner", FLAVORS)
def test_theirs_that_we_replace(provisioner: str) -> None:
    """L72, L75, defect 3: no matter where and as which Deployment it ran that made it."""
    released = adopted(provisioner=provisioner, phase="Released")
    a(Delete, action(released, old_pool(provisioner=provisioner)))


def test_only_the_pool_of_the_very_provisioner_counts() -> None:
    released = adopted(provisioner=LOCAL_PATH, phase="Released")
    both = {KUTTI, LOCAL_PATH}
    held = a(Hold, action(released, old_pool(provisioner=KUTTI), provisioners=both))
    assert "lies in no pool" in held.reason


# --- whose node --------------------------------------------------------------------------------


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize(
    ("affinity", "here"),
    [
        pytest.param(in_terms(HOST), True, id="our-hostname"),
        pytest.param(in_terms(NODE.name), True, id="defect-2-our-name-as-kutti-wrote-it"),
        pytest.param(in_terms("other", HOST), True, id="shared"),
        pytest.param(in_terms("a", key="zone"), True, id="defect-6-R40-another-label"),
        pytest.param(in_terms("host-2"), False, id="E10-another-host"),
        pytest.param(in_terms("node-2"), False, id="another-node"),
        pytest.param(in_terms("b", key="zone"), False, id="another-zone"),
        pytest.param(in_terms(NODE.name, key="zone"), False, id="our-name-in-another-label"),
        pytest.param(in_terms("", key="rack"), False, id="defect-13-a-label-we-lack"),
        pytest.param(in_terms(""), False, id="no-host"),
    ],
)
def test_the_affinity_means_this_node(affinity: Any, here: bool, deleted: bool) -> None:
    """E10, E11: our label may be forged, or older than the node's own."""
    one = volume(phase="Released", deleted=deleted, affinity=affinity)
    answer = action(one, pool(record()))
    if here:
        a(Retire if deleted else Delete, answer)
    else:
        assert "affinity" in a(Hold, answer).reason
        assert a(Hold, answer).event == "VolumeFailedDelete"


def test_a_node_whose_label_is_its_name() -> None:
    plain = NodeFacts("n", "u", "n", {marks.HOSTNAME_LABEL: "n"})
    a(Delete, action(volume(phase="Released", affinity=in_terms("n")), pool(record()), node=plain))


# --- whose pool --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param("fast/another", "another one", id="another-id"),
        pytest.param("slow/id-of-fast", "not configured", id="unknown-pool"),
        pytest.param("fast", "not configured", id="no-id"),
        pytest.param("fast/", "another one", id="empty-id"),
        pytest.param("", "not configured", id="nothing"),
        pytest.param("/", "not configured", id="slash"),
    ],
)
@pytest.mark.parametrize("deleted", [False, True])
def test_the_pool_is_another(said: str, why: str, deleted: bool) -> None:
    one = volume(phase="Released", pool=said, deleted=deleted)
    assert why in a(Hold, action(one, pool(record()))).reason


@pytest.mark.parametrize("deleted", [False, True])
def test_the_record_is_of_an_earlier_object(deleted: bool) -> None:
    """Restored from a backup, say: it is nobody's to remove by that name."""
    one = volume(phase="Released", uid="restored", deleted=deleted)
    assert "earlier object" in a(Hold, action(one, pool(record()))).reason
    assert "earlier object" in a(Hold, action(one, pool(record(state="removed")))).reason


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("state", ["offered", "removed"])
def test_another_pool_has_a_record_of_it(state: str, deleted: bool) -> None:
    one = volume(phase="Released", deleted=deleted)
    other = pool(record(state=state, volume_uid=one.metadata.uid), name="other")
    assert "has a record of it too" in a(Hold, action(one, pool(record()), other)).reason
    assert "has a record of it too" in a(Hold, action(one, pool(), other)).reason


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("state", ["making", "made"])
def test_another_pool_has_begun_it(state: str, deleted: bool) -> None:
    """It delays nothing, or one that stays would for ever; and alone it says nothing of where the
    volume is."""
    one = volume(phase="Released", deleted=deleted)
    other = pool(record(state=state, volume_uid=""), name="other")
    a(Retire if deleted else Delete, action(one, pool(record()), other))
    assert "has a record of it too" in a(Hold, action(one, pool(), other)).reason


# --- volumes that older provisioners made ------------------------------------------------------


@pytest.mark.parametrize("provisioner", FLAVORS)
@pytest.mark.parametrize("phase", ["Bound", "Available", "Pending"])
def test_an_adopted_volume_is_left_as_it_is(provisioner: str, phase: str) -> None:
    """It gets no finalizer before it is to be deleted: nothing changes for it till then."""
    a(
        Keep,
        action(adopted(provisioner=provisioner, phase=phase), old_pool(provisioner=provisioner)),
    )


@pytest.mark.parametrize("provisioner", FLAVORS)
@pytest.mark.parametrize("host_path", [False, True])
def test_an_adopted_volume_goes_with_its_claim(provisioner: str, host_path: bool) -> None:
    """Both kinds of source; by its own path, whatever its name would be here (defect 6)."""
    here = old_pool(provisioner=provisioner)
    place = "ns/data"
    there: dict[str, Any] = {"path": f"/pools/old/{place}", "host_path": host_path}
    a(Delete, action(adopted(provisioner=provisioner, phase="Released", **there), here))
    there |= {"finalizers": (marks.FINALIZER,), "deleted": True}
    one = adopted(provisioner=provisioner, phase="Released", **there)
    retire = a(Retire, action(one, here))
    assert (retire.pool, retire.record, retire.directory) == (here.config, None, place)
    assert not retire.keep


def gone(**changes: Any) -> Any:
    held: dict[str, Any] = {"phase": "Released", "finalizers": (marks.FINALIZER,)}
    return adopted(**({"deleted": True} | held | changes))


def test_an_adopted_volume_with_a_policy_that_keeps_it() -> None:
    assert a(Retire, action(gone(policy="Retain"), old_pool())).keep
    assert a(Retire, action(gone(policy="Retain", claim_uid=None), old_pool())).keep
    a(Keep, action(adopted(phase="Released", policy="Retain"), old_pool()))


def test_an_adopted_volume_that_is_deleted_without_us() -> None:
    """L34: as it would be without us: the object goes, the data stays, an orphan."""
    a(Keep, action(gone(finalizers=()), old_pool()))


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/pools/old", "whole pool"),
        ("/pools/old/../other", "not a clean absolute one"),
        ("/pools/old/.localvolume/trash/x", "none of a volume's"),
        ("/pools/older/x", "in no pool"),
        ("/etc", "in no pool"),
        ("pools/old/x", "not a clean absolute one"),
    ],
)
def test_an_adopted_volume_whose_path_is_none_of_a_pool(path: str, why: str, deleted: bool) -> None:
    held = a(Hold, action(gone(path=path, deleted=deleted), old_pool()))
    assert why in held.reason
    assert held.event == "VolumeFailedDelete"


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize(
    ("here", "why"),
    [
        pytest.param(old_pool(problem="not mounted"), "not mounted", id="problem"),
        pytest.param(
            old_pool(record(adopted=True), problem="hung"), "hung", id="problem-after-a-look"
        ),
        pytest.param(old_pool(unreadable={"pvc-1": "torn"}), "torn", id="unreadable"),
        pytest.param(
            old_pool(record(adopted=True, directory="other")), "'other'", id="at-another-place"
        ),
        pytest.param(
            old_pool(record(adopted=True, volume_uid="earlier")), "earlier object", id="earlier"
        ),
        pytest.param(old_pool(record(volume_uid="")), "volume of ours", id="ours-of-that-name"),
        pytest.param(old_pool(record(state="made")), "volume of ours", id="ours-made"),
    ],
)
def test_an_adopted_volume_in_doubt(here: Any, why: str, deleted: bool) -> None:
    assert why in a(Hold, action(gone(deleted=deleted), here)).reason


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("path", ["/pools/old/ns", "/pools/old/ns/a", "/pools/old/ns/a/deeper"])
def test_an_adopted_volume_that_shares_its_place(path: str, deleted: bool) -> None:
    """What is, holds or lies in it would go with it, whoever made that and whether it is used."""
    one = gone(path=path, deleted=deleted)
    other = adopted(2, path="/pools/old/ns/a", policy="Retain", phase="Released")
    assert "another volume's" in a(Hold, action(one, old_pool(), other)).reason
    assert "another volume's" in a(Hold, action(one, old_pool(record(2, directory="ns/a")))).reason
    beside = adopted(2, path="/pools/old/nsx")
    a(Retire if deleted else Delete, action(one, old_pool(), beside))


def test_an_adopted_volume_of_which_another_pool_has_a_record() -> None:
    other = pool(record(adopted=True, directory="pvc-1"), name="other")
    assert "pool other has a record" in a(Hold, action(gone(), old_pool(), other)).reason


def test_nothing_is_written_down_in_a_pool_with_a_problem() -> None:
    there = old_pool(record(adopted=True, volume_uid=""), problem="not mounted")
    assert "not mounted" in a(Hold, action(adopted(), there)).reason


def test_an_adopted_volume_in_the_trash() -> None:
    there = record(state="removed", adopted=True)
    for policy, kept in (("Delete", False), ("Retain", True)):
        retire = a(Retire, action(gone(policy=policy), old_pool(there)))
        assert (retire.record, retire.keep) == (there, kept)


@pytest.mark.parametrize(
    ("wished", "then"), [(None, Hold), (0.0, Delete), (30.0, Delete), (200.0, Hold)]
)
def test_the_removal_of_an_adopted_volume_can_be_undone(
    wished: float | None, then: type[Action]
) -> None:
    """For as long as its class or its pool says."""
    here, theirs = old_pool(undo_seconds=100.0), storage_class("theirs", KUTTI, undo_seconds=wished)
    a(then, action(adopted(phase="Released", since=A_MINUTE_AGO), here, theirs))
    a(MarkReleased, action(adopted(phase="Released"), here))


def test_an_adopted_volume_whose_class_is_gone() -> None:
    """Older provisioners promise nothing, and could not delete it: it goes as its pool says. What
    somebody was told meanwhile holds."""
    here, keeping = old_pool(), old_pool(undo_seconds=100.0)
    a(Delete, action(adopted(phase="Released"), here))
    a(MarkReleased, action(adopted(phase="Released"), keeping))
    marked: dict[str, Any] = {"phase": "Released", "since": A_MINUTE_AGO}
    for there in (here, keeping):
        assert "is gone" in a(Hold, action(adopted(**marked), there, now=NOW + 1e9)).reason
        told = adopted(until=IN_A_MINUTE, **marked)
        assert a(Hold, action(told, there)).again_seconds == 60.0
        a(Delete, action(told, there, now=NOW + 60.0))


def test_an_adopted_volume_whose_claim_is_there() -> None:
    a(Keep, action(adopted(phase="Released"), old_pool(), bound()))
    a(Keep, action(gone(), old_pool(), bound()))
    a(Keep, action(gone(phase="Bound"), old_pool()))
