"""PersistentVolumes of lost nodes: removed where that is opted into and nobody's data goes with it.

The list is that of upstream's tests (facts, section 8, Cleanup PV).
"""

import time

import pytest

from localvolume.volumes.moments import written
from tests.cluster.support_clocks import Standing
from tests.cluster.support_controller import LOST, UPSTREAM, Ground, Volume
from tests.suite.api import VOLUMES
from tests.suite.names import FINALIZER

pytestmark = pytest.mark.needs("controlplane")

DELETED = f"{UPSTREAM}persistentvolume_delete_total"
FAILED = f"{UPSTREAM}persistentvolume_delete_failed_total"


def an_hour_passes(ground: Ground, volume: Volume) -> None:
    """Its node is lost since then, by what is written on it."""
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    mark = written(time.time() - 3700)
    ground.patch(path, {"metadata": {"annotations": {LOST: mark}}})


def test_volumes_that_no_claim_ever_used(ground: Ground) -> None:
    node, other = ground.node(), ground.node("other")
    unlisted = f"{ground.cls}-unlisted"
    volumes = [ground.volume(node, policy=policy) for policy in ("Delete", "Recycle", "Retain")]
    kept = [ground.volume(other), ground.volume(node, cls=unlisted)]
    remote = ground.volume(
        node,
        labelled=False,
        finalized=False,
        source={"nfs": {"server": "192.0.2.1", "path": "/"}},
    )
    ground.start(ground.cls)
    ground.stays(*volumes, *kept)
    ground.remove_node(node)
    for volume in volumes:
        ground.gone(volume)
        assert not [e for e in ground.events(volume) if e["reason"] == "VolumeAbandoned"]
    ground.until(lambda: ground.metric(DELETED, phase="Available"), lambda value: value == 3)
    ground.stays(*kept, remote)
    assert ground.lost() == {}
    ground.until(lambda: ground.lost(unlisted), lambda lost: lost == {"would-delete": 1})
    text = "its class is not listed for deleting; otherwise it is removed"
    ground.event(kept[1], "ReferencedNodeDeleted", text)
    assert ground.metric(DELETED, phase="Available") == 3


def test_a_released_volume_waits_for_its_node_and_is_then_abandoned(ground: Ground) -> None:
    node = ground.node()
    used, retained = ground.volume(node), ground.volume(node, policy="Retain")
    for volume in (used, retained):
        ground.released(volume)
    ground.start(ground.cls)
    ground.remove_node(node)
    ground.event(used, "ReferencedNodeDeleted", "it is removed, never cleaned after 1h")
    ground.until(ground.lost, lambda lost: lost == {"waiting": 1, "kept": 1})
    ground.stays(used)
    an_hour_passes(ground, used)
    ground.gone(used)
    told = ground.event(used, "VolumeAbandoned")
    assert told["type"] == "Warning"
    assert told.get("count", 1) == 1
    ground.until(lambda: ground.metric(DELETED, phase="Released"), lambda value: value == 1)
    ground.event(retained, "ReferencedNodeDeleted", "its reclaim policy is Retain")
    ground.stays(retained)


def test_a_released_volume_whose_node_returns(ground: Ground) -> None:
    node, other = ground.node(), ground.node("other")
    volume, sentinel = (ground.released(ground.volume(host)) for host in (node, other))
    # The period is not over before the Node is made again, however slow all is.
    standing = Standing()
    ground.start(ground.cls, return_period=2, clock=standing.clock)
    ground.remove_node(node)
    ground.marked(volume)
    ground.plane.create_node(node)
    ground.event(volume, "ReferencedNodeReturned", node)
    ground.remove_node(other)
    ground.until(ground.lost, lambda lost: lost == {"waiting": 1})
    standing.go_on()
    ground.gone(sentinel)  # lost after ours was: the time is over for both
    ground.stays(volume)
    ground.until(lambda: ground.mark(volume), lambda mark: mark is None)
    found = ground.again(volume)
    assert found is not None
    assert FINALIZER in found["metadata"]["finalizers"]


def test_an_emptied_claim_reference_makes_nothing_clean(ground: Ground) -> None:
    """Available again by hand: what its last tenant left is on the disk still."""
    node = ground.node()
    volume = ground.released(ground.volume(node))
    name = volume["metadata"]["name"]
    ground.patch(f"{VOLUMES}/{name}", {"spec": {"claimRef": None}})
    ground.in_phase(name, "Available")
    claimed = {"metadata": {"annotations": {"localvolume.dev/claimed": "some-uid"}}}
    ground.patch(f"{VOLUMES}/{name}", claimed)
    ground.start(ground.cls)
    ground.remove_node(node)
    ground.until(ground.lost, lambda lost: lost == {"waiting": 1})
    ground.stays(volume)


def test_a_volume_that_was_deleted_by_hand_is_let_go(ground: Ground) -> None:
    """Our finalizer holds it, and no agent is left to take that away. Others' stay."""
    node = ground.node()
    ours, shared, used = (ground.volume(node) for _ in range(3))
    ground.released(used)
    name = shared["metadata"]["name"]
    with_other = {"metadata": {"finalizers": ["example.com/other", FINALIZER]}}
    ground.patch(f"{VOLUMES}/{name}", with_other)
    for volume in (ours, shared, used):
        ground.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
    ground.start(ground.cls)
    ground.settle()
    assert all(ground.again(volume) for volume in (ours, shared, used))
    ground.remove_node(node)
    ground.gone(ours)
    ground.until(
        lambda: ((ground.again(shared) or {})["metadata"]).get("finalizers"),
        lambda left: left == ["example.com/other"],
    )
    ground.settle()
    waiting = ground.again(used)
    assert waiting is not None
    assert FINALIZER in waiting["metadata"]["finalizers"]
    an_hour_passes(ground, used)
    ground.gone(used)
    ground.event(used, "VolumeAbandoned")
    assert ground.metric(DELETED, phase="Available") is None


def test_a_mark_that_cannot_be_read_is_written_anew(ground: Ground) -> None:
    """No time has passed since a moment that nobody knows."""
    node = ground.node()
    volume = ground.released(ground.volume(node))
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    ground.patch(path, {"metadata": {"annotations": {LOST: "long ago"}}})
    ground.remove_node(node)
    ground.start(ground.cls, return_period=3600)
    ground.until(lambda: ground.mark(volume), lambda mark: mark and mark.endswith("Z"))
    ground.stays(volume)


def test_many_volumes_of_many_nodes(ground: Ground) -> None:
    nodes = [ground.node(f"node-{number}") for number in range(8)]
    volumes = [ground.volume(node) for node in nodes for _ in range(5)]
    ground.start(ground.cls)
    for node in nodes[:7]:
        ground.remove_node(node)
    for volume in volumes[:35]:
        ground.gone(volume)
    ground.stays(*volumes[35:])
    ground.until(lambda: ground.metric(DELETED, phase="Available"), lambda value: value == 35)
    assert not ground.metric(FAILED, phase="Available")


def test_a_crowd_of_lost_volumes_is_all_told_of(ground: Ground) -> None:
    """Marking is quicker than writing Events, and their queue has an end."""
    volumes = [ground.volume(f"{ground.unique}-gone", phase="") for _ in range(80)]
    # What is said of one depends on its phase: another is another Event.
    for volume in volumes:
        ground.in_phase(volume["metadata"]["name"], "Available")
    ground.start(event_queue_size=40)
    ground.until(lambda: len(ground.events()), lambda count: count == len(volumes))
