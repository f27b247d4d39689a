"""FlexVolume among the controller's other business: lost nodes, adoption, labels, memory, flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest

from localvolume.controller.caches.trimmed import KnownVolume
from localvolume.controller.caches.trimmedclaims import KnownClass
from localvolume.controller.model import (
    Adopt,
    DeleteClaim,
    DeleteVolume,
    Keep,
    LetGo,
    MarkLost,
    MarkReturned,
    Policy,
    Report,
)
from localvolume.controller.plan import claims
from localvolume.controller.plan.ours import is_dynamic, is_on_a_disk
from localvolume.kube.objects import (
    ClaimRef,
    FlexVolumeSource,
    Meta,
    PersistentVolume,
    PVSpec,
    PVStatus,
)
from localvolume.volumes import marks
from tests.decisions.support_controller import (
    AN_HOUR_AGO,
    LONG_AGO,
    a,
    action,
    affinity_of,
    node,
    on_hosts,
)
from tests.decisions.support_routing import NODES, claim, facts, storage_class
from tests.decisions.test_routing_flags import read

R = TypeVar("R", bound=claims.Action)

OURS = marks.FLEX_DRIVER
ELASTIC = marks.ELASTIC_FLEX_DRIVER
BOTH = frozenset({OURS, ELASTIC})
SERVED = Policy(flex_drivers=BOTH)
LISTED = Policy(frozenset({"flex"}), flex_drivers=BOTH)


def flex(
    *hosts: str,
    driver: str = OURS,
    by: str | None = None,
    label: str | None = None,
    elastic_label: str | None = None,
    phase: str = "Bound",
    policy: str = "Delete",
    lost: str | None = None,
    deleted: bool = False,
    finalizers: tuple[str, ...] = (marks.FINALIZER,),
    holder: str | None = "claim-uid",
) -> PersistentVolume:
    labels = {marks.NODE_LABEL: label, marks.ELASTIC_NODE_LABEL: elastic_label}
    notes = {
        marks.PROVISIONED_BY_ANNOTATION: driver if by is None else by,
        marks.LOST_ANNOTATION: lost,
    }
    return PersistentVolume(
        metadata=Meta(
            name="pvc-1",
            uid="volume-uid",
            resource_version="7",
            labels={key: value for key, value in labels.items() if value},
            annotations={key: value for key, value in notes.items() if value},
            finalizers=finalizers,
            deletion_timestamp="2027-01-15T07:59:59Z" if deleted else None,
        ),
        spec=PVSpec(
            storage_class_name="flex",
            persistent_volume_reclaim_policy=policy,
            flex_volume=FlexVolumeSource(driver=driver),
            claim_ref=None if holder is None else ClaimRef(namespace="x", name="d", uid=holder),
            node_affinity=affinity_of(on_hosts(*hosts)) if hosts else None,
        ),
        status=PVStatus(phase=phase),
    )


# --- lost nodes ----------------------------------------------------------------------------------


def test_one_that_is_on_no_node_is_never_lost() -> None:
    found = a(Keep, action(flex(), [], LISTED))
    assert found.reason == "its affinity names no node"


@pytest.mark.parametrize("driver", [OURS, ELASTIC])
@pytest.mark.parametrize("label", ["gone", None])
def test_a_lost_nodes(driver: str, label: str | None) -> None:
    """Noticed, reported, and cleaned up where the class is listed, as every dynamic volume.

    W-29.
    """
    about: dict[str, Any] = {"driver": driver, "label": label}
    a(MarkLost, action(flex("gone", **about), [], SERVED))
    known = flex("gone", lost=AN_HOUR_AGO, **about)
    assert a(Report, action(known, [], SERVED)).would == "its claim is deleted"
    a(DeleteClaim, action(known, [], LISTED))
    released = flex("gone", lost=LONG_AGO, phase="Released", **about)
    assert a(DeleteVolume, action(released, [], LISTED)).abandons
    kept = flex("gone", lost=LONG_AGO, phase="Released", policy="Retain", **about)
    a(Report, action(kept, [], LISTED))
    going = flex("gone", lost=LONG_AGO, phase="Released", deleted=True, **about)
    assert a(LetGo, action(going, [], LISTED)).abandons
    a(Report, action(going, [], SERVED))


def test_its_node_comes_back() -> None:
    about = flex("n1", label="n1", lost=AN_HOUR_AGO)
    a(MarkReturned, action(about, [node("n1")], LISTED))
    a(Keep, action(flex("n1", label="n1"), [node("n1")], LISTED))


def test_elastics_where_they_are_not_served() -> None:
    """Also in a class that is listed: whoever serves them sees to them."""
    about = flex("gone", driver=ELASTIC, lost=LONG_AGO, phase="Released")
    policy = Policy(frozenset({"flex"}))
    assert a(Keep, action(about, [], policy)).reason == "we do not serve whoever made it"


@pytest.mark.parametrize("driver", ["example.com/other", ""])
def test_other_drivers(driver: str) -> None:
    about = flex("gone", driver=driver, by=OURS, label="gone", lost=LONG_AGO, phase="Released")
    assert a(Keep, action(about, [], LISTED)).reason == "it is not a local volume"
    assert not is_on_a_disk(about)
    assert not is_dynamic(about, BOTH)


# --- adoption ------------------------------------------------------------------------------------


def test_elastics_get_the_label_of_their_node() -> None:
    """elastic's driver wrote the node's name where its hostname belongs."""
    about = flex("n1", driver=ELASTIC, elastic_label="n1", finalizers=())
    assert a(Adopt, action(about, [node("n1")], SERVED)).node_name == "n1"
    assert a(Adopt, action(about, [node("n1", "host-1")], SERVED)).node_name == "n1"


def test_another_node_with_that_hostname() -> None:
    """Its label says on which node it is."""
    about = flex("n1", driver=ELASTIC, elastic_label="n1")
    nodes = [node("other", "n1"), node("n1", "host-1")]
    assert a(Adopt, action(about, nodes, SERVED)).node_name == "n1"
    found = a(Keep, action(about, [node("other", "n1")], SERVED))
    assert found.reason.startswith("not adopted: it was made on n1, which is not there")


def test_not_adopted() -> None:
    a(Keep, action(flex(driver=ELASTIC), [node("n1")], SERVED))
    a(Keep, action(flex("n1", driver=ELASTIC), [node("n1")], Policy()))
    a(Keep, action(flex("n1", label="n1"), [node("n1")], SERVED))


# --- the labels of claims ------------------------------------------------------------------------

CLASSES = (
    storage_class("late", "WaitForFirstConsumer", OURS),
    storage_class("now", "Immediate", OURS),
)


def an(kind: type[R], found: claims.Action) -> R:
    assert isinstance(found, kind), found
    return found


def routed(about: Any, *volumes: PersistentVolume, **kwargs: Any) -> claims.Action:
    known = facts(NODES, classes=CLASSES, volumes=volumes, **kwargs)
    return claims.decide(replace(known, flex_drivers=frozenset({OURS})), about)


def test_a_bound_claim_gets_its_volumes_label() -> None:
    """So that the agent sees it grow."""
    about = claim("now", volume_name="pvc-1", provisioner=OURS)
    found = an(claims.Route, routed(about, flex("n2", label="n2")))
    assert found.key == "n2"
    an(claims.Keep, routed(about, flex()))
    an(claims.Keep, routed(claim("now", volume_name="pvc-1", label="n2"), flex("n2", label="n2")))
    wrong = claim("now", volume_name="pvc-1", label="n1")
    assert an(claims.Route, routed(wrong, flex("n2", label="n2"))).key == "n2"
    an(claims.Unroute, routed(wrong, flex()))


def test_a_claim_of_a_driver_that_is_not_served() -> None:
    about = claim("now", volume_name="pvc-1", provisioner=ELASTIC)
    an(claims.Keep, routed(about, flex("n2", driver=ELASTIC, label="n2")))


@pytest.mark.parametrize("class_name", ["late", "now"])
def test_unbound_claims_are_not_routed(class_name: str) -> None:
    """No agent makes anything for them; neither is room looked for."""
    about = claim(class_name, provisioner=OURS)
    an(claims.Keep, routed(about))
    there = an(claims.Keep, routed(claim(class_name, provisioner=OURS, selected="n1")))
    assert there.here == ""


@pytest.mark.parametrize("class_name", ["late", "now"])
def test_a_selected_node_that_is_gone_is_taken_away(class_name: str) -> None:
    about = claim(class_name, provisioner=OURS, selected="n9")
    assert an(claims.Reschedule, routed(about)).node == "n9"


def test_a_class_of_another() -> None:
    others = [storage_class("late", "WaitForFirstConsumer", "example.com/other")]
    about = claim("late", provisioner=OURS, selected="n9")
    known = replace(facts(NODES, classes=others), flex_drivers=frozenset({OURS}))
    an(claims.Keep, claims.decide(known, about))


# --- memory --------------------------------------------------------------------------------------


def volume_of(source: Mapping[str, Any], **metadata: Any) -> KnownVolume:
    body = {"metadata": {"name": "pvc-1", **metadata}, "spec": dict(source)}
    return msgspec.json.decode(json.dumps(body), type=KnownVolume)


def test_of_a_flexvolume_only_the_driver_is_kept() -> None:
    """And that once for all volumes."""
    source = {"driver": OURS, "fsType": "xfs", "options": {"sizeBytes": "1"}, "readOnly": True}
    one, two = volume_of({"flexVolume": source}), volume_of({"flexVolume": source})
    assert one.spec.flex_volume == FlexVolumeSource(driver=OURS)
    assert one.spec.flex_volume is two.spec.flex_volume
    other = volume_of({"flexVolume": {"driver": "example.com/other"}})
    assert other.spec.flex_volume is None
    assert volume_of({"local": {"path": "/p"}}).spec.flex_volume is None


def test_the_node_that_elastics_driver_wrote_down_is_kept() -> None:
    labels = {marks.ELASTIC_NODE_LABEL: "n1", "example.com/other": "x"}
    assert volume_of({}, labels=labels).metadata.labels == {marks.ELASTIC_NODE_LABEL: "n1"}


@pytest.mark.parametrize(("provisioner", "there"), [(OURS, True), (ELASTIC, True), ("x/y", False)])
def test_what_flexvolume_classes_ask_for_is_kept(provisioner: str, there: bool) -> None:
    body = {
        "provisioner": provisioner,
        "parameters": {"fsType": "xfs"},
        "mountOptions": ["noatime"],
    }
    known = msgspec.json.decode(json.dumps(body), type=KnownClass)
    assert known.parameters == ({"fsType": "xfs"} if there else {})
    assert known.mount_options == (("noatime",) if there else ())


# --- flags ---------------------------------------------------------------------------------------


def test_ours_is_served_always_and_elastics_where_it_is_named() -> None:
    policy = read()
    assert policy.flex_drivers == {OURS}
    policy = read(f"--dynamic-provisioners={ELASTIC},rancher.io/local-path")
    assert policy.flex_drivers == BOTH
    assert policy.provisioners == marks.OURS | {"rancher.io/local-path"}
    assert policy.makers == policy.provisioners | BOTH
    assert read(f"--dynamic-provisioners={OURS}") == read()
