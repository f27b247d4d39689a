"""When a FlexVolume PersistentVolume is deleted, and when it stays."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from localvolume.flexvolume.plan.provision import Action, Keep
from localvolume.flexvolume.plan.release import Delete, Hold, VolumeFacts, judge_volume
from localvolume.kube.objects import (
    ClaimRef,
    FlexVolumeSource,
    LocalSource,
    Meta,
    PersistentVolume,
    PersistentVolumeClaim,
    PVSpec,
    PVStatus,
)
from localvolume.volumes import marks
from tests.decisions.support_controller import affinity_of, on_hosts

OURS = marks.FLEX_DRIVER
ELASTIC = marks.ELASTIC_FLEX_DRIVER
SERVED = frozenset({OURS, ELASTIC})
CLAIM = PersistentVolumeClaim(metadata=Meta(name="data", namespace="x", uid="claim-uid"))


def volume(
    *,
    phase: str = "Released",
    policy: str | None = "Delete",
    driver: str = OURS,
    by: str = OURS,
    holder: str | None = "claim-uid",
    label: str = "",
    hosts: tuple[str, ...] = (),
    finalizers: tuple[str, ...] = (),
    deleted: bool = False,
) -> PersistentVolume:
    return PersistentVolume(
        metadata=Meta(
            name="pvc-1",
            uid="volume-uid",
            resource_version="7",
            labels={marks.NODE_LABEL: label} if label else {},
            annotations={marks.PROVISIONED_BY_ANNOTATION: by} if by else {},
            finalizers=finalizers,
            deletion_timestamp="2027-01-15T07:59:59Z" if deleted else None,
        ),
        spec=PVSpec(
            persistent_volume_reclaim_policy=policy,
            flex_volume=FlexVolumeSource(driver=driver) if driver else None,
            local=None if driver else LocalSource(path="/p"),
            claim_ref=None if holder is None else ClaimRef(namespace="x", name="d", uid=holder),
            node_affinity=affinity_of(on_hosts(*hosts)) if hosts else None,
        ),
        status=PVStatus(phase=phase),
    )


def judged(about: PersistentVolume, **facts: Any) -> Action:
    return judge_volume(VolumeFacts(**{"served": SERVED, **facts}), about)


BOUND: dict[str, Any] = {"label": "n1", "hosts": ("n1",)}


def test_never_mounted() -> None:
    """There is nothing of it on any disk."""
    found = judged(volume())
    assert isinstance(found, Delete)
    assert not found.secure


def test_on_a_node() -> None:
    """It is held by our finalizer until its agent has seen it go."""
    found = judged(volume(**BOUND), node="n1")
    assert isinstance(found, Delete)
    assert found.secure
    held = judged(volume(**BOUND, finalizers=("other", marks.FINALIZER)), node="n1")
    assert isinstance(held, Delete)
    assert not held.secure


def test_on_a_node_that_is_lost() -> None:
    """What becomes of it is decided as for every volume of a lost node."""
    assert judged(volume(**BOUND)) == Keep("its node is lost")


def test_elastics_before_it_is_adopted() -> None:
    """Deleted unheld, its logical volume would stay for ever."""
    about = volume(driver=ELASTIC, by=ELASTIC, hosts=("n1",))
    assert isinstance(judged(about, node="n1"), Keep)
    found = judged(about, node="n1", why_not="it may be any of these nodes': a, b")
    assert isinstance(found, Hold)
    assert found.reason == "no agent can remove its data: it may be any of these nodes': a, b"


def test_elastics_once_served() -> None:
    about = volume(driver=ELASTIC, by=ELASTIC)
    assert isinstance(judged(about), Delete)
    assert judged(about, served=frozenset({OURS})) == Keep("it was not made by us")


@pytest.mark.parametrize(
    ("about", "why"),
    [
        (volume(policy="Retain"), "its reclaim policy is Retain"),
        (volume(policy="Recycle"), "its reclaim policy is Recycle"),
        (volume(policy=None), "its reclaim policy is None"),
        (volume(phase="Bound"), "its phase is Bound"),
        (volume(phase="Available"), "its phase is Available"),
        (volume(phase=""), "its phase is Pending"),
        (volume(holder=None), "its claimRef was emptied"),
        (volume(holder=""), "its claimRef was emptied"),
        (volume(deleted=True), "it is being deleted"),
        (volume(by=""), "it was not made by us"),
        (volume(by="example.com/other"), "it was not made by us"),
        (volume(driver="example.com/other"), f"{OURS} made it, but its driver is another"),
        (volume(driver=ELASTIC), f"{OURS} made it, but its driver is another"),
        (volume(driver=""), "it was not made by us"),
        (volume(phase="Failed", policy="Retain"), "its reclaim policy is Retain"),
    ],
)
def test_what_stays(about: PersistentVolume, why: str) -> None:
    found = judged(about, node="n1")
    assert isinstance(found, Keep)
    assert found.reason.startswith(why)


def test_while_its_claim_is_there() -> None:
    """Whatever the phase says."""
    assert judged(volume(), claim=CLAIM) == Keep("its claim is still there")


def test_failed() -> None:
    found = judged(volume(phase="Failed"))
    assert isinstance(found, Hold)
    assert found.reason == "its phase is Failed: somebody must look"


def test_all_that_is_ever_deleted() -> None:
    """Of every combination, only the ones that are listed here."""
    deleted = set()
    for phase, policy, holder, going, claim, driver, by, label, node in product(
        ("", "Pending", "Available", "Bound", "Released", "Failed"),
        ("Delete", "Retain", "Recycle", None),
        ("claim-uid", "", None),
        (False, True),
        (None, CLAIM),
        (OURS, ELASTIC, "x/y", ""),
        (OURS, ELASTIC, "x/y", ""),
        ("", "n1"),
        ("", "n1"),
    ):
        about = volume(
            phase=phase,
            policy=policy,
            holder=holder,
            deleted=going,
            driver=driver,
            by=by,
            label=label,
            hosts=(label,) if label else (),
        )
        if isinstance(judged(about, claim=claim, node=node), Delete):
            deleted.add((phase, policy, holder, going, claim, driver, by, label, node))
    fixed = ("Released", "Delete", "claim-uid", False, None)
    assert deleted == {
        (*fixed, name, name, *where)
        for name in (OURS, ELASTIC)
        for where in (("", ""), ("", "n1"), ("n1", "n1"))
    }
