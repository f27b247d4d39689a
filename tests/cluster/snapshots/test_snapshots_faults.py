"""Snapshots through everything that may go wrong: the API server, the agent's death, two nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import (
    BEING_CREATED,
    Content,
    SnapshotLab,
    handle_of,
    snapshot_lab_for,
    until_removed,
)
from tests.faults.support_proxy import Order, Proxy, proxy_for
from tests.suite.names import NODE_LABEL

pytestmark = pytest.mark.needs("root", "loop", "ext4", "btrfs", "controlplane", "snapshots")

RESOURCE = "volumesnapshotcontents"


def cut_at(content: Content) -> int:
    found: int = content["status"]["creationTime"]
    return found


def is_tidy(content: Content) -> bool:
    return BEING_CREATED not in content["metadata"].get("annotations", {})


# An agent's patches of a content: the annotations, the status, the annotation that goes again.
STEPS = {"its own": 0, "the status": 1, "the end": 2}


@pytest.mark.parametrize("does", ["hold", "keep"])
@pytest.mark.parametrize("step", STEPS)
def test_an_agent_killed_while_it_writes_is_gone_on_with(
    lab: SnapshotLab, proxy: Proxy, step: str, does: str
) -> None:
    pool = lab.copying_pool()
    agent = lab.serve()
    claim = lab.claimed()
    passed = Order("delay", ("patch",), RESOURCE, times=STEPS[step])
    stopped = Order(does, ("patch",), RESOURCE)  # type: ignore[arg-type]
    proxy.orders += [passed, stopped]
    snapshot = lab.snapshot(claim)
    lab.until(lambda: stopped.met if does == "hold" else stopped.answered, bool)
    agent.kill()
    proxy.orders.clear()
    stopped.release()
    volume = lab.made(claim)["spec"]["csi"]["volumeHandle"]
    cut = {name for name in pool.records() if name.endswith(".json")} - {f"{volume}.json"}
    lab.serve()
    lab.ready(snapshot)
    content = lab.until_content(snapshot, is_tidy)
    # What was cut before is the snapshot; nothing else is left of it.
    assert {f"{handle_of(content)}.json"} == cut or not cut
    wanted = {f"{volume}.json", f"{handle_of(content)}.json"}
    lab.until(lambda: set(pool.records()), lambda found: found == wanted)
    lab.take_away(snapshot)
    lab.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([f"{volume}.json"], []))
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)


# Of a removal: the status that tells of no snapshot any more, and the finalizer.
@pytest.mark.parametrize("does", ["hold", "keep"])
@pytest.mark.parametrize("passes", [0, 1])
def test_an_agent_killed_while_it_removes_is_gone_on_with(
    lab: SnapshotLab, proxy: Proxy, passes: int, does: str
) -> None:
    pool = lab.copying_pool()
    agent = lab.serve()
    snapshot = lab.ready(lab.snapshot(lab.claimed()))
    lab.until_content(snapshot, is_tidy)
    passed = Order("delay", ("patch",), RESOURCE, times=passes)
    stopped = Order(does, ("patch",), RESOURCE)  # type: ignore[arg-type]
    proxy.orders += [passed, stopped]
    lab.delete_snapshot(snapshot)
    lab.until(lambda: stopped.met if does == "hold" else stopped.answered, bool)
    agent.kill()
    proxy.orders.clear()
    stopped.release()
    lab.serve()
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)
    lab.until(lambda: (len(pool.records()), pool.trash()), lambda left: left == (1, []))


@pytest.mark.parametrize(
    "order",
    [
        Order("answer", ("patch",), RESOURCE, times=4, status=500),
        Order("answer", ("patch",), RESOURCE, times=4, status=409, reason="Conflict"),
        Order("lose", ("patch",), RESOURCE, times=4),
        Order("answer", ("get",), "volumesnapshotclasses", times=3, status=503),
    ],
    ids=["errors", "conflicts", "lost answers", "no classes"],
)
def test_what_the_api_server_does_not_take_is_tried_again(
    lab: SnapshotLab, proxy: Proxy, order: Order
) -> None:
    pool = lab.copying_pool()
    lab.serve()
    claim = lab.claimed()
    order = replace(order)
    proxy.orders.append(order)
    snapshot = lab.ready(lab.snapshot(claim))
    first = lab.until_content(snapshot, is_tidy)
    assert len(pool.records()) == 2
    lab.take_away(snapshot)
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)
    assert order.met == order.times
    until_removed(lab, pool, handle_of(first))


def test_a_watch_that_tells_nothing_more_changes_only_the_time(
    lab: SnapshotLab, proxy: Proxy
) -> None:
    lab.copying_pool()
    lab.serve()
    claim = lab.claimed()
    proxy.orders.append(Order("gone", ("watch",), RESOURCE, times=2))
    assert proxy.cut_watches()
    lab.ready(lab.snapshot(claim))


def test_only_the_agent_that_has_the_volume_acts(
    lab: SnapshotLab, objects: Objects, unique: str, tmp_path: Path
) -> None:
    below = tmp_path / "second"
    below.mkdir()
    with (
        snapshot_lab_for(objects, f"{unique}b", below) as second,
        proxy_for(second.plane, below) as seen,
    ):
        pools = [one.copying_pool() for one in (lab, second)]
        second.kubeconfig = seen.kubeconfig
        for one in (lab, second):
            one.serve()
        claims = [one.claimed() for one in (lab, second)]
        mine = lab.ready(lab.snapshot(claims[0]))
        # The other has looked at what it did not do: of its own it did.
        theirs = second.ready(second.snapshot(claims[1]))
        contents = [lab.until_content(mine, is_tidy), second.until_content(theirs, is_tidy)]
        owners = [one["metadata"]["annotations"][NODE_LABEL] for one in contents]
        assert owners == [lab.node, second.node]
        name = contents[0]["metadata"]["name"]
        assert not [one for one in seen.seen if one.verb == "patch" and name in one.path]
        assert [len(pool.records()) for pool in pools] == [2, 2]
        lab.take_away(mine)
        lab.until(lambda: lab.content_of(mine), lambda found: found is None)
        until_removed(lab, pools[0], handle_of(contents[0]))
        assert [len(pool.records()) for pool in pools] == [1, 2]
        second.stop()


def test_a_content_of_another_node_is_left_alone_even_if_the_volume_is_here(
    lab: SnapshotLab,
) -> None:
    pool = lab.copying_pool()
    lab.serve()
    snapshot = lab.ready(lab.snapshot(lab.claimed()))
    content = lab.until_content(snapshot, is_tidy)
    lab.patch_content(content, {"metadata": {"annotations": {NODE_LABEL: "another-node"}}})
    lab.delete_snapshot(snapshot)
    # The next snapshot is done, and so this one has been looked at.
    lab.ready(lab.snapshot(lab.claimed()))
    assert f"{handle_of(content)}.json" in pool.records()
    assert lab.content_of(snapshot) is not None
    lab.patch_content(content, {"metadata": {"annotations": {NODE_LABEL: None}}})
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)
    until_removed(lab, pool, handle_of(content))
