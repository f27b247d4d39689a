"""Groups of snapshots through everything that may go wrong: the API server, the agent's death."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cluster.support_dynamic import MadePool
from tests.cluster.support_groups import Group, GroupLab
from tests.faults.support_proxy import Order, Proxy

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane", "snapshots")

RESOURCE = "volumegroupsnapshotcontents"


def handles(lab: GroupLab, group: Group) -> set[str]:
    """The records of its snapshots, as the content tells of them."""
    infos = lab.group_tidy(group)["status"]["volumeSnapshotInfoList"]
    return {f"{one['snapshotHandle']}.json" for one in infos}


def goes(lab: GroupLab, pool: MadePool, group: Group) -> None:
    lab.take_group_away(group)
    lab.until(lambda: lab.group_content(group), lambda left: left is None)
    lab.until(lambda: (len(pool.records()), pool.trash()), lambda left: left == (2, []))


# An agent's patches of a content: the annotations, the status, the annotation that goes again.
STEPS = {"its own": 0, "the status": 1, "the end": 2}


@pytest.mark.parametrize("does", ["hold", "keep"])
@pytest.mark.parametrize("step", STEPS)
def test_an_agent_killed_while_it_writes_is_gone_on_with(
    lab: GroupLab, proxy: Proxy, step: str, does: str
) -> None:
    pool = lab.image_pool()
    agent = lab.serve()
    volumes = {f"{lab.handle(claim)}.json" for claim in lab.together(2)}
    passed = Order("delay", ("patch",), RESOURCE, times=STEPS[step])
    stopped = Order(does, ("patch",), RESOURCE)  # type: ignore[arg-type]
    proxy.orders += [passed, stopped]
    group = lab.group()
    lab.until(lambda: stopped.met if does == "hold" else stopped.answered, bool)
    agent.kill()
    proxy.orders.clear()
    stopped.release()
    cut = {name for name in pool.records() if name.endswith(".json")} - volumes
    lab.serve()
    lab.group_ready(group)
    # What was cut before is the group; nothing else is left of it.
    assert handles(lab, group) == cut or not cut
    wanted = volumes | handles(lab, group)
    lab.until(lambda: set(pool.records()), lambda found: found == wanted)
    lab.members(group)
    goes(lab, pool, group)


# Of a removal: the status that tells of no group any more, and the finalizer.
@pytest.mark.parametrize("does", ["hold", "keep"])
@pytest.mark.parametrize("passes", [0, 1])
def test_an_agent_killed_while_it_removes_is_gone_on_with(
    lab: GroupLab, proxy: Proxy, passes: int, does: str
) -> None:
    pool = lab.image_pool()
    agent = lab.serve()
    lab.together(2)
    group = lab.group()
    lab.group_ready(group)
    lab.group_tidy(group)
    lab.members(group)
    passed = Order("delay", ("patch",), RESOURCE, times=passes)
    stopped = Order(does, ("patch",), RESOURCE)  # type: ignore[arg-type]
    proxy.orders += [passed, stopped]
    lab.delete_group(group)
    lab.until(lambda: stopped.met if does == "hold" else stopped.answered, bool)
    agent.kill()
    proxy.orders.clear()
    stopped.release()
    lab.serve()
    lab.until(lambda: lab.group_content(group), lambda found: found is None)
    lab.until(lambda: (len(pool.records()), pool.trash()), lambda left: left == (2, []))


@pytest.mark.parametrize(
    "order",
    [
        Order("answer", ("patch",), RESOURCE, times=4, status=500),
        Order("answer", ("patch",), RESOURCE, times=4, status=409, reason="Conflict"),
        Order("lose", ("patch",), RESOURCE, times=4),
        Order("answer", ("get",), "volumegroupsnapshotclasses", times=3, status=503),
    ],
    ids=["errors", "conflicts", "lost answers", "no classes"],
)
def test_what_the_api_server_does_not_take_is_tried_again(
    lab: GroupLab, proxy: Proxy, order: Order
) -> None:
    pool = lab.image_pool()
    lab.serve()
    lab.together(2)
    order = replace(order)
    proxy.orders.append(order)
    group = lab.group()
    lab.group_ready(group)
    assert len(handles(lab, group)) == 2
    assert len(pool.records()) == 4
    goes(lab, pool, group)
    assert order.met == order.times
