"""Which claims are served on this node, and what those that are not are told.

`L`, `O` and `E` with numbers are cases of the provisioners' own tests, listed in the acceptance
list of dynamic volumes.
"""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.backends.model import Abilities
from localvolume.config.pools import DYNAMIC_PROVISIONER
from localvolume.dynamic.model import (
    Action,
    Ask,
    GiveBack,
    Hold,
    Keep,
    Make,
    Publish,
    Reject,
    TakeAway,
)
from localvolume.kube.objects import DataSource, LabelSelector, TopologyRequirement, TopologyTerm
from localvolume.volumes import claims, marks
from localvolume.volumes.capacity import GIB
from localvolume.volumes.manifest import NodeFacts
from tests.decisions.support_dynamic import (
    NODE,
    a,
    action,
    bound,
    claim,
    old_pool,
    planned,
    pool,
    record,
    storage_class,
    unwanted,
    volume,
)
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS

BETA = claims.BETA_PROVISIONER_ANNOTATION


def only_in(*zones: str) -> TopologyTerm:
    return TopologyTerm(match_label_expressions=(TopologyRequirement(key="zone", values=zones),))


# --- whose is it? ------------------------------------------------------------------------------


def test_a_claim_is_made_a_volume() -> None:
    """L46, L57, E01: our provisioner's, and our node is selected."""
    made = a(Make, action(claim()))
    assert made.key == "pvc-1"
    assert made.fresh
    assert (made.pool.name, made.record.state, made.record.directory) == ("fast", "making", "pvc-1")
    assert (made.record.claim, made.record.claim_uid) == ("ns/data-1", "1")
    assert (made.record.size_bytes, made.record.enforced) == (GIB, True)


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(claim(key=BETA), id="L46-by-the-beta-annotation"),
        pytest.param(claim(class_name="local"), id="L58-by-the-annotation-of-today"),
        pytest.param(claim(mode=None), id="L90-L93-L96-no-volume-mode"),
        pytest.param(claim(access=("ReadWriteOncePod",)), id="one-pod"),
        pytest.param(
            claim(class_name="wrong", annotations={claims.BETA_CLASS_ANNOTATION: "local"}),
            id="the-beta-class-counts-first",
        ),
    ],
)
def test_served(served: Any) -> None:
    a(Make, action(served))


def test_the_annotation_of_today_counts_before_the_beta_one() -> None:
    """L53: it names another provisioner, so the claim is that one's."""
    both = claim(provisioner="other.example/a", annotations={BETA: DYNAMIC_PROVISIONER})
    assert "other.example/a" in a(Keep, action(both)).reason


@pytest.mark.parametrize("provisioner", [KUTTI, LOCAL_PATH, OPENEBS])
def test_names_of_the_provisioners_that_are_replaced_are_served(provisioner: str) -> None:
    """L04, L47: additional provisioner names."""
    theirs = storage_class("theirs", provisioner)
    wanted = claim(provisioner=provisioner, class_name="theirs")
    made = a(Make, action(wanted, theirs, pool(), old_pool(provisioner=provisioner)))
    assert made.pool.name == "old"


@pytest.mark.parametrize(
    ("not_ours", "why"),
    [
        pytest.param(claim(provisioner="x.example/y"), "x.example/y", id="L50-L53-another"),
        pytest.param(claim(provisioner="x.example/y", key=BETA), "x.example/y", id="L51-beta"),
        pytest.param(claim(provisioner=None), "nobody", id="L52-none"),
        pytest.param(claim(provisioner=""), "nobody", id="empty"),
        pytest.param(
            claim(provisioner=None, class_name="missing"), "nobody", id="L49-none-and-no-class"
        ),
        pytest.param(claim(node="node-2"), "node-2", id="E03-L54-another-node-selected"),
        pytest.param(claim(node="gone"), "gone", id="E09-a-node-that-is-not-there"),
        pytest.param(claim(node="host-1"), "host-1", id="defect-2-hostname-is-no-node-name"),
        pytest.param(claim(node=""), "no node", id="L56-E02-no-node-selected"),
        pytest.param(claim(deleted=True), "being deleted", id="defect-14-L24-being-deleted"),
        pytest.param(claim(volume="pvc-1"), "nothing", id="L06-L48-has-a-volume"),
        pytest.param(claim(volume="by-hand"), "nothing", id="L06-L48-wants-a-certain-volume"),
    ],
)
def test_left_to_others(not_ours: Any, why: str) -> None:
    """Also where the label says this node (it may be forged, or old). That a selected node is gone
    (E09) is for the controller to see, which is told of nodes.
    """
    (only,) = planned(not_ours).values()
    assert why in a(Keep, only).reason


def test_one_claim_served_and_another_left() -> None:
    """L01, L14, L15, defect 1: nobody's volume is made on a node the scheduler did not choose."""
    actions = planned(claim(1), claim(2, provisioner="x.example/y"), claim(3, node="node-2"))
    assert [type(actions[f"pvc-{one}"]) for one in (1, 2, 3)] == [Make, Keep, Keep]


@pytest.mark.parametrize(
    ("node", "served"),
    [
        pytest.param("", Make, id="E05-ours-by-the-label"),
        pytest.param(NODE.name, Make, id="E04-our-node-selected"),
        pytest.param("node-2", Keep, id="another-node-selected"),
    ],
)
def test_immediate_claims(node: str, served: type[Action]) -> None:
    """E05: no race between nodes: the controller gives each claim to one, by the label."""
    a(served, action(claim(node=node), storage_class(immediate=True)))


@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("label", ["", "node-2"])
def test_what_was_given_back_is_nobodys(label: str, immediate: bool) -> None:
    """It is still known for a moment, from the answer to our own write."""
    of = storage_class(immediate=immediate)
    a(Keep, action(claim(node="", label=label), of))
    a(Keep, action(claim(node=NODE.name, label=label), of))


def test_a_class_of_another_provisioner() -> None:
    """The class is looked at again when the claim is served; another's is left without a word."""
    left = action(claim(class_name="theirs"), foreign_classes={"theirs"})
    assert "another provisioner" in a(Keep, left).reason


@pytest.mark.parametrize("name", ["missing", "", None])
def test_a_class_that_is_not_there(name: str | None) -> None:
    """L07: said on the claim, in the words of upstream."""
    rejected = a(Reject, action(claim(class_name=name)))
    assert rejected.reason == f'storageclass.storage.k8s.io "{name or ""}" not found'


def test_its_volume_exists() -> None:
    """L02: there is a PersistentVolume of its name already: no second one."""
    kept = a(Keep, action(claim(), volume(), pool(record())))
    assert kept.reason == "its PersistentVolume exists"


# --- what is begun is ended --------------------------------------------------------------------


def test_what_was_begun_is_ended_where_it_was_begun() -> None:
    """L19, L22, L30: also with more room elsewhere, and with parameters that changed since."""
    begun = pool(record(state="making", size_bytes=5), name="small", room=0)
    made = a(Make, action(claim(), begun, pool(), storage_class(pools=frozenset({"fast"}))))
    assert not made.fresh
    assert (made.pool.name, made.record.size_bytes) == ("small", 5)


def test_what_was_begun_is_not_given_back() -> None:
    """L30, E08: only a claim of which nothing is begun loses its node."""
    nowhere = storage_class(topologies=(only_in("b"),))
    a(Make, action(claim(), nowhere, pool(record(state="making"), room=0)))


def test_what_is_complete_is_published() -> None:
    """L17, L25, L26: a PersistentVolume that could not be created is tried again, for ever."""
    publish = a(Publish, action(claim(), pool(record(state="made"))))
    assert (publish.pool_id, publish.record.state) == ("id-of-fast", "made")
    a(Publish, action(claim(), pool(record(volume_uid=""))))


def test_a_claim_deleted_meanwhile() -> None:
    """L24: upstream makes a volume for a claim that is gone. We ask, and take it away instead."""
    half = pool(record(state="making"))
    a(Ask, action(claim(deleted=True), half))
    a(Ask, action(half))


def test_a_record_that_cannot_be_read_is_not_made_again() -> None:
    """Neither there nor in another pool: the volume may be complete."""
    torn = pool(unreadable={"pvc-1": "torn"}, name="first")
    held = a(Hold, action(claim(), torn, pool()))
    assert "torn" in held.reason
    assert held.event == "ProvisioningFailed"


def test_a_pool_that_fails_meanwhile() -> None:
    broken = pool(record(state="making"), problem="not mounted")
    held = a(Hold, action(claim(), broken, pool(name="other")))
    assert "not mounted" in held.reason


def test_a_pool_that_was_away_has_begun_it_too() -> None:
    """It was made in another one meanwhile, which is told of first; what nobody was told of is
    taken away."""
    twice = (pool(record(state="making")), pool(record(state="made"), name="other"))
    assert a(Publish, action(claim(), *twice)).pool.name == "other"
    done = (pool(record(state="making")), pool(record(), name="other"))
    named = volume(pool="other/id-of-other")
    taken = a(TakeAway, action(bound(), named, *done))
    assert (taken.pool.name, taken.record.state, taken.spare) == ("fast", "making", True)


def test_both_pools_were_told_of() -> None:
    twice = (pool(record(state="offered")), pool(record(state="offered"), name="other"))
    assert "two pools" in a(Hold, action(claim(), *twice)).reason


def test_the_record_is_another_claims() -> None:
    assert "another claim" in a(Reject, action(claim(), pool(record(claim_uid="9")))).reason


def test_its_volume_was_removed() -> None:
    held = a(Hold, action(claim(), pool(record(state="removed"))))
    assert "create it anew" in held.reason
    assert held.event == "ProvisioningFailed"


# --- what cannot be served ---------------------------------------------------------------------

CLONE = DataSource(kind="PersistentVolumeClaim", name="other")
SNAPSHOT = DataSource(api_group="snapshot.storage.k8s.io", kind="VolumeSnapshot", name="s")
POPULATOR = DataSource(api_group="x.example", kind="Populator", name="p")


def unnamed(source: DataSource) -> DataSource:
    return DataSource(api_group=source.api_group, kind=source.kind)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(CLONE, id="O32-clone"),
        pytest.param(unnamed(CLONE), id="O33-unnamed-clone"),
        pytest.param(SNAPSHOT, id="O34-snapshot"),
        pytest.param(unnamed(SNAPSHOT), id="O35-unnamed-snapshot"),
        pytest.param(POPULATOR, id="O36-populator"),
        pytest.param(unnamed(POPULATOR), id="O37-unnamed-populator"),
        pytest.param(DataSource(), id="without-anything"),
    ],
)
@pytest.mark.parametrize("field", ["source", "source_ref"])
def test_data_sources(source: DataSource, field: str) -> None:
    """W-38: Defect 4: an empty volume in place of a copy is lost data that nobody sees."""
    changes: dict[str, Any] = {field: source}
    assert "the volume would be empty" in a(Reject, action(claim(**changes))).reason


def test_no_data_source() -> None:
    """O31"""
    a(Make, action(claim(source=None, source_ref=None)))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(claim(selector=LabelSelector()), "selector", id="selector"),
        pytest.param(claim(access=("ReadWriteMany",)), "ReadWriteMany", id="many"),
        pytest.param(claim(access=("ReadOnlyMany",)), "ReadOnlyMany", id="read-only"),
        pytest.param(
            claim(access=("ReadWriteOnce", "ReadWriteMany")), "ReadWriteMany", id="one-too-many"
        ),
        pytest.param(claim(size="much"), "no storage", id="no-quantity"),
        pytest.param(claim(size="0"), "no storage", id="nothing"),
        pytest.param(claim(size="-1Gi"), "no storage", id="less-than-nothing"),
        pytest.param(claim(size=""), "no storage", id="no-request"),
        pytest.param(claim(namespace="../etc"), "'../etc'", id="a-name-with-a-slash"),
    ],
)
def test_rejected(asked: Any, why: str) -> None:
    """L28, L102: another node could not do better, so the selected node stays."""
    assert why in a(Reject, action(asked)).reason


def test_rejected_by_its_class() -> None:
    """L102: said again only when something changes."""
    rejected = a(Reject, action(claim(), storage_class(problem="parameter x is not known")))
    assert rejected.reason == "class local: parameter x is not known"


def test_mount_options_need_a_local_volume() -> None:
    """Defect 4: they are not dropped: hostPath volumes have none."""
    options = ("noatime",)
    a(Make, action(claim(), storage_class(mount_options=options)))
    a(Make, action(claim(), storage_class(source="hostPath")))
    rejected = a(Reject, action(claim(), storage_class(mount_options=options, source="hostPath")))
    assert "mount options" in rejected.reason
    local = claim(annotations={"volumeType": "local"})
    a(Make, action(local, storage_class(mount_options=options, source="hostPath")))


@pytest.mark.parametrize(
    ("mode", "abilities", "served"),
    [
        pytest.param("Filesystem", Abilities(enforce=True), True, id="L91-L94"),
        pytest.param("Block", Abilities(enforce=True), False, id="L03-L92-L95"),
        pytest.param(None, Abilities(enforce=True, block=True), True, id="L96"),
        pytest.param("Filesystem", Abilities(enforce=True, block=True), True, id="L97"),
        pytest.param("Block", Abilities(enforce=True, block=True), True, id="L98"),
        pytest.param(
            "Filesystem", Abilities(enforce=True, block=True, filesystem=False), False, id="only"
        ),
    ],
)
def test_volume_modes(mode: str | None, abilities: Abilities, served: bool) -> None:
    """Given back, not rejected: another node may have a pool of another backend."""
    answer = action(claim(mode=mode), pool(abilities=abilities))
    if served:
        assert a(Make, answer).record.volume_mode == (mode or "Filesystem")
    else:
        reason = a(GiveBack, answer).reason
        said = "the backend directory makes no Block volumes; image and lvm do"
        assert (said if mode == "Block" else "no filesystems can be made there") in reason


def test_a_backend_that_cannot_make_devices_here_says_why() -> None:
    """Not that another backend could: this one could, on another kernel."""
    able = Abilities(enforce=False, why_not="this kernel has no loop devices", filesystem=False)
    unable = pool(backend="image", abilities=able, enforce=False)
    for mode, what in (("Block", "Block volumes"), ("Filesystem", "filesystems")):
        reason = a(GiveBack, action(claim(mode=mode), unable)).reason
        assert f"no {what} can be made there: this kernel has no loop devices" in reason


# --- where it may be ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topologies", "served"),
    [
        pytest.param((), True, id="L42-L44-none"),
        pytest.param((only_in("a"),), True, id="L43-L45-E07-ours"),
        pytest.param((only_in("b"), only_in("a", "c")), True, id="any-term"),
        pytest.param((only_in("b"),), False, id="E08-L27-another"),
        pytest.param((TopologyTerm(),), False, id="a-term-without-any-means-no-node"),
        pytest.param(
            (
                TopologyTerm(
                    match_label_expressions=(
                        TopologyRequirement(key="zone", values=("a",)),
                        TopologyRequirement(key="rack", values=("1",)),
                    )
                ),
            ),
            False,
            id="all-of-a-term",
        ),
    ],
)
def test_allowed_topologies(topologies: tuple[TopologyTerm, ...], served: bool) -> None:
    """E08: another node is to be chosen; the reason is said on the claim."""
    answer = action(claim(), storage_class(topologies=topologies))
    if served:
        a(Make, answer)
    else:
        assert "does not allow node node-1" in a(GiveBack, answer).reason


@pytest.mark.parametrize("labels", [{}, {marks.HOSTNAME_LABEL: ""}])
def test_a_node_without_the_label_that_the_affinity_would_name(labels: dict[str, str]) -> None:
    """Defect 13: `In [""]` means no node, and no pod could ever use the volume."""
    bare = NodeFacts(NODE.name, NODE.uid, "", labels)
    given = a(GiveBack, action(claim(), node=bare))
    assert given.reason == "node node-1 has no label kubernetes.io/hostname"


def test_the_label_that_the_class_names() -> None:
    a(Make, action(claim(), storage_class(affinity_keys=("zone",))))
    rack = storage_class(affinity_keys=("zone", "rack"))
    assert a(GiveBack, action(claim(), rack)).reason.endswith("has no label rack")


def test_no_pool_of_the_class_is_here() -> None:
    """L27: a node without one cannot serve it, another one may."""
    given = a(GiveBack, action(claim(), pool(classes=("other",))))
    assert "no pool of class local" in given.reason


# --- many claims -------------------------------------------------------------------------------


def test_older_claims_are_served_first() -> None:
    young = claim(1, created="2027-01-15T07:30:00Z")
    old = claim(2, created="2027-01-15T07:00:00Z")
    actions = planned(young, old, pool(room=GIB))
    assert [type(actions[name]) for name in ("pvc-1", "pvc-2")] == [GiveBack, Make]


def test_nothing_is_begun_twice() -> None:
    assert planned(claim(), busy={"pvc-1"}) == {}
    assert planned(bound(size="2Gi"), volume(), pool(record()), busy={"pvc-1"}) == {}


def test_a_claim_that_names_anothers_volume_changes_nothing_about_it() -> None:
    """Tenants write spec.volumeName: it says nothing of whose the volume is."""
    thief = claim(2, volume="pvc-1", size="50Gi", created="2027-01-01T00:00:00Z")
    a(Make, action(claim(1), thief))
    a(Keep, action(volume(), bound(1), thief, pool(record())))
    a(TakeAway, action(thief, pool(record(1, state="made")), **unwanted(1)))
