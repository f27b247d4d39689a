"""Claims on volumes of lost nodes: deleted where that is opted into, else only reported.

The list is that of upstream's tests (facts, section 8, Cleanup PVC).
"""

import pytest

from tests.cluster.support_clocks import Standing
from tests.cluster.support_controller import UPSTREAM, Ground, in_, term
from tests.suite.api import CLAIMS, NODES, VOLUMES
from tests.suite.names import HOSTNAME

pytestmark = pytest.mark.needs("controlplane")

DELETED = f"{UPSTREAM}persistentvolumeclaim_delete_total"
FAILED = f"{UPSTREAM}persistentvolumeclaim_delete_failed_total"


def test_the_claims_of_a_lost_node_are_deleted_after_the_delay(ground: Ground) -> None:
    """In every listed class, and in no other one; the volumes then wait for the node to return."""
    node, other = ground.node(), ground.node("other")
    second, unlisted = f"{ground.cls}-second", f"{ground.cls}-unlisted"
    volumes = [ground.volume(node, cls=cls) for cls in (ground.cls, ground.cls, second, unlisted)]
    claims = [ground.bound(volume) for volume in volumes]
    elsewhere = ground.volume(other)
    kept = ground.bound(elsewhere)
    ground.start(ground.cls, second, claim_delay=2)
    ground.stays(*claims, kept)
    ground.remove_node(node)

    told = ground.event(claims[0], "ReferencedNodeDeleted", node)
    assert told["type"] == "Warning"
    assert "its claim is deleted after 2s" in told["message"]
    ground.event(volumes[0], "ReferencedNodeDeleted", "its claim is deleted after 2s")
    for claim in claims[:3]:
        ground.gone(claim)
    ground.until(lambda: ground.metric(DELETED), lambda value: value == 3)
    assert ground.metric(FAILED) == 0
    for volume in volumes[:3]:
        ground.in_phase(volume["metadata"]["name"], "Released")
    ground.until(ground.lost, lambda lost: lost == {"waiting": 2})
    ground.stays(claims[3], kept, *volumes, elsewhere)
    assert ground.mark(elsewhere) is None
    text = "its class is not listed for deleting; otherwise its claim is deleted"
    ground.event(claims[3], "ReferencedNodeDeleted", text)
    ground.until(lambda: ground.lost(unlisted), lambda lost: lost == {"would-delete": 1})


def test_without_classes_it_is_only_reported(ground: Ground) -> None:
    node = ground.node()
    volume = ground.volume(node)
    claim = ground.bound(volume)
    ground.remove_node(node)
    ground.start()
    ground.event(claim, "ReferencedNodeDeleted", "otherwise its claim is deleted")
    ground.event(volume, "ReferencedNodeDeleted", "otherwise its claim is deleted")
    ground.until(ground.lost, lambda lost: lost == {"would-delete": 1})
    ground.stays(claim, volume)
    assert ground.metric(DELETED) == 0


def test_a_node_that_returns_within_the_delay(ground: Ground) -> None:
    """Under a new UID, as a re-created Node has: what it is, its agent finds out."""
    node, other = ground.node(), ground.node("other")
    volume = ground.volume(node)
    claim, sentinel = ground.bound(volume), ground.bound(ground.volume(other))
    # The delay is not over before the Node is made again, however slow all is.
    standing = Standing()
    ground.start(ground.cls, claim_delay=2, clock=standing.clock)
    ground.remove_node(node)
    ground.marked(volume)
    ground.until(ground.lost, lambda lost: lost == {"waiting": 1})
    ground.plane.create_node(node)
    told = ground.event(claim, "ReferencedNodeReturned", f"the node {node} is there again")
    assert told["type"] == "Normal"
    ground.event(volume, "ReferencedNodeReturned")
    ground.until(lambda: ground.mark(volume), lambda mark: mark is None)
    ground.until(ground.lost, lambda lost: lost == {})
    ground.remove_node(other)
    ground.until(ground.lost, lambda lost: lost == {"waiting": 1})
    standing.go_on()
    ground.gone(sentinel)  # lost after ours was: the delay is over for both
    ground.stays(claim, volume)


@pytest.mark.parametrize("how", ["points elsewhere", "another UID"])
def test_a_claim_that_is_not_on_the_volume(ground: Ground, how: str) -> None:
    node = ground.node()
    volume, other = ground.volume(node), ground.volume(ground.node("other"))
    name = volume["metadata"]["name"]
    if how == "another UID":
        claim = ground.bound(volume)
        reference = {**ground.in_phase(name, "Bound")["spec"]["claimRef"], "uid": "not-this-one"}
    else:
        claim = ground.bound(other)
        reference = {
            "namespace": "default",
            "name": claim["metadata"]["name"],
            "uid": claim["metadata"]["uid"],
        }
    ground.start(ground.cls)
    # The binder would put this right, so it is given no time: only our look at both is at stake.
    with ground.no_binder():
        ground.patch(f"{VOLUMES}/{name}", {"spec": {"claimRef": None}})
        ground.patch(f"{VOLUMES}/{name}", {"spec": {"claimRef": reference}})
        ground.patch(f"{VOLUMES}/{name}/status", {"status": {"phase": "Bound"}})
        ground.remove_node(node)
        ground.until(lambda: ground.logged("is not on this volume"), bool)
        assert ground.again(claim) is not None
        assert "deletionTimestamp" not in (ground.again(claim) or {})["metadata"]
    assert ground.metric(DELETED) == 0


def test_a_claim_that_is_gone_already_and_one_that_is_going(ground: Ground) -> None:
    node = ground.node()
    going, gone = ground.volume(node), ground.volume(node)
    claim, no_claim = ground.bound(going), ground.bound(gone)
    path = f"{CLAIMS}/{claim['metadata']['name']}"
    ground.patch(path, {"metadata": {"finalizers": ["example.com/held"]}})
    ground.plane.request("DELETE", path)
    with ground.no_binder():
        ground.patch(f"{CLAIMS}/{no_claim['metadata']['name']}", {"metadata": {"finalizers": None}})
        ground.plane.request("DELETE", f"{CLAIMS}/{no_claim['metadata']['name']}")
        ground.gone(no_claim)
        ground.start(ground.cls)
        ground.remove_node(node)
        ground.until(lambda: ground.logged("is being deleted already"), bool)
        ground.marked(gone)
        ground.until(ground.lost, lambda lost: lost == {"deleting": 2})
    assert ground.metric(DELETED) == 0
    assert ground.metric(FAILED) == 0
    ground.in_phase(gone["metadata"]["name"], "Released")
    ground.until(ground.lost, lambda lost: lost == {"deleting": 1, "waiting": 1})


def test_what_is_none_of_its_business(ground: Ground) -> None:
    """Neither made by a provisioner of ours nor in a listed class, or not a local volume."""
    node = ground.node()
    foreign = ground.volume(
        node, cls=f"{ground.cls}-foreign", provisioner=None, labelled=False, finalized=False
    )
    remote = ground.volume(
        node,
        labelled=False,
        finalized=False,
        source={"nfs": {"server": "192.0.2.1", "path": "/"}},
    )
    claims = [ground.bound(volume) for volume in (foreign, remote)]
    by_hand = ground.volume(node, provisioner=None, labelled=False, finalized=False)
    ground.start(ground.cls)
    ground.remove_node(node)
    ground.gone(by_hand)  # it is in a listed class: upstream's rule
    ground.stays(*claims, foreign, remote)
    assert ground.mark(foreign) is None
    assert ground.mark(remote) is None
    assert ground.events(foreign) == []


@pytest.mark.parametrize("how", ["name", "label", "second name", "second label"])
def test_a_node_that_exists_by_any_of_its_names(ground: Ground, how: str) -> None:
    """Facts, section 8, Node exists."""
    known = f"{ground.unique}-known"
    name = "known" if "name" in how else "otherwise"
    node = ground.node(name, {HOSTNAME: known if "label" in how else f"{ground.unique}-label"})
    names = [f"{ground.unique}-gone", known] if "second" in how else [known]
    volume = ground.volume(*names)
    claim = ground.bound(volume)
    ground.start(ground.cls)
    ground.stays(claim)
    assert ground.mark(volume) is None
    ground.remove_node(node)
    ground.gone(claim)


def test_a_shared_disk(ground: Ground) -> None:
    """Nodes that a selector means serve it too; upstream overlooks them (defect 7)."""
    shared = {"example.com/rack": ground.unique}
    node, neighbour = ground.node("one", shared), ground.node("two", shared)
    terms = [term(in_(node)), term(in_(ground.unique, key="example.com/rack"))]
    volume = ground.volume(node, terms=terms)
    claim = ground.bound(volume)
    ground.start(ground.cls)
    ground.remove_node(node)
    ground.stays(claim, volume)
    assert ground.mark(volume) is None
    # With the last of them gone, others may come: it is said, and nothing is done.
    ground.patch(f"{NODES}/{neighbour}", {"metadata": {"labels": {"example.com/rack": "other"}}})
    ground.event(claim, "ReferencedNodeDeleted", "nodes that its selector matches may still come")
    ground.until(ground.lost, lambda lost: lost == {"kept": 1})
    ground.stays(claim, volume)
    ground.patch(f"{NODES}/{neighbour}", {"metadata": {"labels": shared}})
    ground.event(volume, "ReferencedNodeReturned", neighbour)


def test_what_is_held_is_said_again_at_every_resync(ground: Ground) -> None:
    node = ground.node()
    volume = ground.volume(node)
    claim = ground.bound(volume)
    ground.start(resync=1)
    ground.remove_node(node)

    def counts() -> list[int]:
        said = [ground.events(thing) for thing in (claim, volume)]
        return [event.get("count", 1) for events in said for event in events]

    # One Event each, which counts.
    ground.until(counts, lambda found: len(found) == 2 and min(found) >= 3)
