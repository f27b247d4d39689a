"""Which FlexVolume PersistentVolumes may be mounted on this node, and which are another node's."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.flexvolume.plan.binding import check, is_elastics, other_node, tags_of, why_not
from localvolume.flexvolume.protocol import ON_REMOVAL, Refused
from localvolume.kube.objects import (
    ClaimRef,
    FlexVolumeSource,
    LocalSource,
    Meta,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PVSpec,
    PVStatus,
    VolumeNodeAffinity,
)
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts

NODE = NodeFacts("node-1", "n-uid", "host-1", {marks.HOSTNAME_LABEL: "host-1"})
OURS = FlexVolumeSource(driver=marks.FLEX_DRIVER)
ELASTICS = FlexVolumeSource(driver=marks.ELASTIC_FLEX_DRIVER)
CLAIM = ClaimRef(namespace="ns", name="claim", uid="c-1")


def term(*hosts: str, key: str = marks.HOSTNAME_LABEL) -> NodeSelectorTerm:
    one = NodeSelectorRequirement(key=key, operator="In", values=hosts)
    return NodeSelectorTerm(match_expressions=(one,))


def volume(
    *terms: NodeSelectorTerm,
    phase: str = "Bound",
    labels: dict[str, str] | None = None,
    deleted: bool = False,
    **spec: Any,
) -> PersistentVolume:
    required = NodeSelector(node_selector_terms=terms)
    told = {
        "flex_volume": OURS,
        "claim_ref": CLAIM,
        "node_affinity": VolumeNodeAffinity(required=required) if terms else None,
        **spec,
    }
    return PersistentVolume(
        metadata=Meta(
            name="pvc-1",
            uid="uid-1",
            labels=labels or {},
            deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
        ),
        spec=PVSpec(**told),
        status=PVStatus(phase=phase),
    )


# --- a mount -------------------------------------------------------------------------------------


def test_what_is_bound_to_its_claim_is_mounted_on_any_node_first_and_on_its_own_later() -> None:
    labels = {marks.NODE_LABEL: "node-1"}
    for live in (volume(), volume(term("host-1"), labels=labels)):
        assert check(live, NODE, marks.FLEX_DRIVER) == OURS


@pytest.mark.parametrize(
    ("live", "why"),
    [
        pytest.param(
            volume(flex_volume=None, local=LocalSource(path="/x")),
            f"is no FlexVolume, not of {marks.FLEX_DRIVER}",
            id="no-flexvolume",
        ),
        pytest.param(
            volume(flex_volume=ELASTICS),
            f"is of the driver {marks.ELASTIC_FLEX_DRIVER}, not of {marks.FLEX_DRIVER}",
            id="another-driver",
        ),
        pytest.param(volume(deleted=True), "is being deleted", id="deleted"),
        pytest.param(volume(phase="Released"), "is Released, not Bound to a claim", id="released"),
        pytest.param(volume(phase=""), "is Pending, not Bound to a claim", id="no-phase"),
        pytest.param(volume(claim_ref=None), "is Bound, not Bound to a claim", id="no-claim"),
        pytest.param(
            volume(claim_ref=ClaimRef(namespace="ns", name="claim")),
            "is Bound, not Bound to a claim",
            id="reserved",
        ),
        pytest.param(
            volume(term("host-2")),
            "has a node affinity to host-2, not to node-1",
            id="another-node",
        ),
    ],
)
def test_what_is_not_to_be_mounted_here_is_refused(live: PersistentVolume, why: str) -> None:
    with pytest.raises(Refused) as refused:
        check(live, NODE, marks.FLEX_DRIVER)
    assert str(refused.value) == f"PersistentVolume pvc-1 {why}"


# --- its node ------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [marks.NODE_LABEL, marks.ELASTIC_NODE_LABEL])
def test_either_label_says_to_which_node_it_is_bound(label: str) -> None:
    assert other_node(volume(labels={label: "node-2"}), NODE) == "is bound to the node node-2"
    assert other_node(volume(labels={label: "node-1"}), NODE) == ""
    # The name, not the hostname.
    assert other_node(volume(labels={label: "host-1"}), NODE) == "is bound to the node host-1"


def test_a_node_whose_name_is_no_labels_value_is_known_by_its_key() -> None:
    name = "node-1." + "long." * 20 + "example"
    node, key = NodeFacts(name, "n-uid", "host-1"), marks.node_key(name)
    assert other_node(volume(labels={marks.NODE_LABEL: key}), node) == ""
    assert other_node(volume(labels={marks.NODE_LABEL: key}), NODE) == f"is bound to the node {key}"


def test_any_one_term_of_its_affinity_suffices() -> None:
    either = volume(term("host-2"), term("host-1"))
    assert other_node(either, NODE) == why_not(either, marks.FLEX_DRIVERS, NODE) == ""
    others = volume(term("host-3"), term("host-2"))
    assert other_node(others, NODE) == "has a node affinity to host-2, host-3"
    zone = volume(term("far", key="zone"))
    assert other_node(zone, NODE) == "has a node affinity to other nodes"


@pytest.mark.parametrize(
    ("live", "may_have"),
    [
        pytest.param(volume(term("host-1"), flex_volume=ELASTICS), True, id="affinity"),
        pytest.param(
            volume(labels={marks.ELASTIC_NODE_LABEL: "node-1"}, flex_volume=ELASTICS),
            True,
            id="label",
        ),
        pytest.param(volume(flex_volume=ELASTICS), False, id="never-bound"),
        pytest.param(volume(term("host-1")), False, id="ours"),
        pytest.param(volume(term("host-1"), flex_volume=None), False, id="no-flexvolume"),
    ],
)
def test_elastics_driver_made_only_what_is_of_it_and_bound(
    live: PersistentVolume, may_have: bool
) -> None:
    assert is_elastics(live) is may_have


# --- what is noted -------------------------------------------------------------------------------


def test_what_is_noted_with_its_volume() -> None:
    source = FlexVolumeSource(driver=marks.FLEX_DRIVER, options={ON_REMOVAL: "overwrite"})
    live = volume(flex_volume=source, persistent_volume_reclaim_policy="Delete")
    assert tags_of(live) == {
        "pv-uid": "uid-1",
        "claim": "ns/claim",
        "claim-uid": "c-1",
        "policy": "Delete",
        "on-removal": "overwrite",
    }


def test_where_it_says_nothing_its_volume_is_kept_and_nobodys() -> None:
    nothing = {"pv-uid": "uid-1", "claim": "", "claim-uid": "", "policy": "Retain"}
    for source in (OURS, None):
        live = volume(flex_volume=source, claim_ref=None)
        assert tags_of(live) == {**nothing, "on-removal": ""}
