"""The controller's metrics by name, type and label; health; how it begins and ends."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.support_controller import LEASES, UPSTREAM, Ground

pytestmark = pytest.mark.needs("controlplane")

# Facts, section 5, and ours: name, type, labels.
FAMILIES: dict[str, tuple[str, set[str]]] = {
    f"{UPSTREAM}persistentvolume_delete": ("counter", {"phase"}),
    f"{UPSTREAM}persistentvolume_delete_failed": ("counter", {"phase"}),
    f"{UPSTREAM}persistentvolumeclaim_delete": ("counter", set()),
    f"{UPSTREAM}persistentvolumeclaim_delete_failed": ("counter", set()),
    "localvolume_adopted": ("counter", set()),
    "localvolume_routed_claims": ("counter", {"result"}),
    "localvolume_unroutable_claims": ("gauge", set()),
    "localvolume_lost_volumes": ("gauge", {"storageclass", "action"}),
    "localvolume_lost_snapshot_contents": ("gauge", set()),
    "localvolume_leader": ("gauge", set()),
    "localvolume_cached_objects": ("gauge", {"resource"}),
    "localvolume_api_requests": ("counter", {"verb", "resource", "outcome"}),
    "process_resident_memory_bytes": ("gauge", set()),
}


def test_what_is_scraped(ground: Ground) -> None:
    node = ground.node()
    volumes = [ground.volume(node), ground.volume(node, policy="Retain")]
    kept = ground.released(ground.volume(node, policy="Retain"))
    ground.start(ground.cls)
    objects = ground.metric("localvolume_cached_objects", resource="persistentvolumes")
    assert objects is not None
    assert objects >= 3
    assert (ground.metric("localvolume_cached_objects", resource="nodes") or 0) >= 1
    ground.remove_node(node)
    for volume in volumes:
        ground.gone(volume)
    ground.marked(kept)
    ground.until(ground.lost, lambda lost: lost == {"kept": 1})
    families = {f.name: f for f in text_string_to_metric_families(ground.http("/metrics")[1])}
    for name, (kind, labels) in FAMILIES.items():
        family = families[name]
        assert (name, family.type) == (name, kind)
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                assert set(sample.labels) == labels, sample
    deleted = f"{UPSTREAM}persistentvolume_delete_total"
    ground.until(lambda: ground.metric(deleted, phase="Available"), lambda value: value == 2)

    # What is gone is not lost any more.
    ground.patch(
        f"/api/v1/persistentvolumes/{kept['metadata']['name']}", {"metadata": {"finalizers": None}}
    )
    ground.plane.request("DELETE", f"/api/v1/persistentvolumes/{kept['metadata']['name']}")
    ground.until(ground.lost, lambda lost: lost == {})


def test_a_hand_over_is_quick(ground: Ground) -> None:
    """One that ends gives the Lease up: the other need not wait until it would have run out."""
    ground.start(ground.cls, lease_seconds=3600)
    other = Ground(ground.plane, ground.unique)
    with other:
        other.start(ground.cls, lease_seconds=3600, wait=False)
        standing = re.compile(r"ok, standing by for \S+\n")
        other.until(
            lambda: other.http("/ready"), lambda got: got[0] == 200 and standing.fullmatch(got[1])
        )
        assert other.metric("localvolume_leader") == 0
        assert other.lost() == {}
        node = ground.node()
        volume = ground.volume(node, cls=f"{ground.cls}-unlisted")
        ground.remove_node(node)
        unlisted = f"{ground.cls}-unlisted"
        ground.until(lambda: ground.lost(unlisted), lambda lost: lost == {"would-delete": 1})
        assert other.lost(unlisted) == {}
        ground.stop()
        other.until(lambda: other.http("/ready"), lambda got: got == (200, "ok, leading\n"))
        other.until(lambda: other.lost(unlisted), lambda lost: lost == {"would-delete": 1})
        assert other.metric("localvolume_leader") == 1
        assert other.http("/healthz") == (200, "ok\n")
        ground.stays(volume)
        other.stop()
        lease = ground.get(LEASES, f"{ground.unique}-lease")
        assert lease is not None
        assert not lease["spec"].get("holderIdentity")
