"""The taint that keeps pods from a node without its volumes: removed in time, and once."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvolume.agent import taint
from localvolume.agent.options import AgentOptions
from localvolume.config.flags.listening import ListenAddress
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, JsonPatch
from localvolume.kube.errors import LookAgain
from localvolume.kube.kinds import NODES
from localvolume.kube.objects import Node
from tests.cluster.support_accounts import account, allow, rule
from tests.cluster.support_agent import AgentThread, Lab
from tests.cluster.support_objects import written_by_controllers
from tests.faults.support_proxy import Order, proxy_for
from tests.suite.api import MERGE

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

KEY = "example.com/volumes-not-ready"

OURS = {"key": KEY, "effect": "NoSchedule"}
OTHERS = [
    {"key": "example.com/gpu", "value": "only", "effect": "NoSchedule"},
    {"key": f"{KEY}-either", "effect": "PreferNoSchedule"},
    # What our structs do not know of a taint must not be lost.
    {"key": "example.com/drained", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
]

Taints = list[dict[str, str]]


def path_of(lab: Lab) -> str:
    return f"/api/v1/nodes/{lab.node}"


def node(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = lab.plane.request("GET", path_of(lab))
    return found


def taints(lab: Lab) -> Taints:
    found: Taints = node(lab)["spec"].get("taints", [])
    return found


def put_on(lab: Lab, wanted: Taints) -> None:
    lab.plane.request("PATCH", path_of(lab), {"spec": {"taints": wanted}}, content_type=MERGE)


def switch(lab: Lab, on: bool) -> None:
    lab.settings |= {"removeNodeNotReadyTaint": on, "provisionerNotReadyNodeTaintKey": KEY}


def is_removed(lab: Lab) -> None:
    lab.until(lambda: taints(lab), lambda found: KEY not in {taint["key"] for taint in found})


def in_force(lab: Lab, times: int) -> None:
    """Wait until so many configurations have been in force, the first one with them."""
    lab.until(lambda: sum("in force" in line for line in lab.log()), lambda n: n == times)


def looked_after(lab: Lab) -> None:
    """Whatever the agent is to do about the Node now, it has had the time for it."""
    lab.settle()
    lab.settle()


def test_it_goes_when_the_volumes_are_offered_and_the_others_stay(lab: Lab) -> None:
    """Upstream asks the wrong way round and never removes it. Several effects may share a key."""
    switch(lab, on=True)
    fs = lab.add_class("fs")
    for name in ("one", "two"):
        lab.mount(lab.disk(), fs.path(name))
    again = {"key": KEY, "value": "x", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}
    put_on(lab, [OTHERS[0], OURS, OTHERS[1], again, OTHERS[2]])
    lab.start()
    is_removed(lab)
    assert taints(lab) == OTHERS
    # Not a moment before.
    assert len(lab.volumes()) == 2
    assert KEY in lab.event(lab.node, taint.EVENT_REMOVED)["message"]


def test_it_is_the_only_one(lab: Lab) -> None:
    switch(lab, on=True)
    lab.add_class("fs")
    put_on(lab, [OURS])
    lab.start()
    is_removed(lab)
    assert taints(lab) == []


def test_it_stays_unless_the_configuration_says_otherwise(lab: Lab) -> None:
    """Which it may also say later: an edit is in force at once."""
    switch(lab, on=False)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    put_on(lab, [OURS, *OTHERS])
    lab.start()
    lab.published(fs, "one")
    looked_after(lab)
    assert taints(lab) == [OURS, *OTHERS]
    switch(lab, on=True)
    lab.configure()
    is_removed(lab)
    assert taints(lab) == OTHERS


def test_a_node_without_it_is_not_written_to(lab: Lab) -> None:
    switch(lab, on=True)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    written_by_controllers(lab.objects, path_of(lab))
    put_on(lab, OTHERS)
    before = node(lab)["metadata"]["resourceVersion"]
    lab.start()
    lab.until(lambda: lab.logged(f"no taint {KEY}"), bool)
    looked_after(lab)
    assert node(lab)["metadata"]["resourceVersion"] == before
    assert lab.events(lab.node) == []


def test_what_somebody_sets_later_stays(lab: Lab) -> None:
    """Once for each Node and each run: an administrator's hand is stronger."""
    switch(lab, on=True)
    fs = lab.add_class("fs")
    put_on(lab, [OURS])
    lab.start()
    is_removed(lab)
    put_on(lab, [OURS, *OTHERS])
    lab.mount(lab.disk(), fs.path("one"))
    lab.published(fs, "one")
    for times, on in ((2, False), (3, True)):
        switch(lab, on=on)
        lab.configure()
        in_force(lab, times)
        looked_after(lab)
    assert taints(lab) == [OURS, *OTHERS]
    # Another key is another matter.
    lab.settings["provisionerNotReadyNodeTaintKey"] = OTHERS[0]["key"]
    lab.configure()
    lab.until(lambda: taints(lab), lambda found: found == [OURS, *OTHERS[1:]])


def test_it_stays_while_a_class_is_not_served(lab: Lab) -> None:
    """A pod that came now would find nothing, or what is left over."""
    switch(lab, on=True)
    fs, late = lab.add_class("fs"), lab.add_class("late", storage_class=False)
    for cls in (fs, late):
        lab.mount(lab.disk(), cls.path("one"))
    put_on(lab, [OURS])
    lab.start()
    lab.published(fs, "one")
    looked_after(lab)
    assert taints(lab) == [OURS]
    lab.make_storage_class(late.name)
    is_removed(lab)
    assert len(lab.volumes_at(late, "one")) == 1


def test_it_stays_while_volumes_cannot_be_published(lab: Lab) -> None:
    switch(lab, on=True)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    put_on(lab, [OURS])
    policy = lab.forbid_creation()
    lab.start()
    lab.until(lambda: lab.logged("not now"), bool)
    looked_after(lab)
    assert taints(lab) == [OURS]
    lab.plane.request("DELETE", policy)
    is_removed(lab)
    assert len(lab.volumes_at(fs, "one")) == 1


def test_what_counts_is_the_configuration_that_asks_for_it(lab: Lab) -> None:
    """That all was offered before says nothing of a class that comes with the same edit."""
    switch(lab, on=False)
    lab.add_class("fs")
    put_on(lab, [OURS])
    lab.start()
    looked_after(lab)
    late = lab.add_class("late", storage_class=False)
    switch(lab, on=True)
    lab.configure()
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 500)
    looked_after(lab)
    assert taints(lab) == [OURS]
    lab.make_storage_class(late.name)
    is_removed(lab)


async def test_a_patch_for_a_list_that_has_changed_is_refused_as_a_whole(lab: Lab) -> None:
    """A taint is removed by its place: at that place, there must still be that taint."""
    put_on(lab, [OURS, OTHERS[0]])
    async with Client(find_access(str(lab.plane.kubeconfig)), user_agent="test") as client:

        async def patch() -> JsonPatch:
            made = taint.without_taints(await client.get(NODES, lab.node), KEY)
            assert made is not None
            return made

        async def refused(patch: JsonPatch) -> None:
            before = taints(lab)
            with pytest.raises(LookAgain):
                await client.patch(NODES, lab.node, patch)
            assert taints(lab) == before

        stale = await patch()
        put_on(lab, [OTHERS[1], OURS, OTHERS[0]])
        await refused(stale)
        put_on(lab, [OTHERS[1]])
        await refused(stale)
        put_on(lab, [])
        await refused(stale)
        # One of two is at its place, the other is not.
        put_on(lab, [OURS, OTHERS[0], {**OURS, "effect": "NoExecute"}])
        stale = await patch()
        put_on(lab, [OURS, {**OURS, "effect": "NoExecute"}, OTHERS[0]])
        await refused(stale)
        # Another Node of that name.
        stale = await patch()
        made_anew(lab, [OURS, {**OURS, "effect": "NoExecute"}, OTHERS[0]])
        await asyncio.sleep(0)
        await refused(stale)


def test_taints_that_change_meanwhile_are_looked_at_again(lab: Lab, tmp_path: Path) -> None:
    lab.paces = replace(lab.paces, taint_first_wait=0.1)
    switch(lab, on=True)
    lab.add_class("fs")
    put_on(lab, [OURS, OTHERS[0]])
    two = [OURS, OTHERS[2], {**OURS, "effect": "NoExecute"}]
    # The last one fits what was seen, and adds one more.
    edits = [[OTHERS[1], OURS], two, [*two, {**OURS, "effect": "PreferNoSchedule"}]]
    orders = [Order("hold", ("patch",), "nodes", times=1) for _ in edits]
    with proxy_for(lab.plane, tmp_path) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        proxy.orders += orders
        lab.start()
        for order, edit in zip(orders, edits, strict=True):
            lab.until(partial(getattr, order, "met"), bool)
            put_on(lab, edit)
            order.release()
        is_removed(lab)
        assert taints(lab) == [OTHERS[2]]
        lab.stop()


def made_anew(lab: Lab, with_taints: Taints) -> str:
    """The Node deleted and made again, as kubelet registers one; its new UID."""
    lab.plane.request("DELETE", path_of(lab))
    body = {
        "metadata": {"name": lab.node, "labels": {"kubernetes.io/hostname": lab.node}},
        "spec": {"taints": with_taints},
    }
    made = lab.plane.request("POST", "/api/v1/nodes", body)
    return str(made["metadata"]["uid"])


def test_a_node_made_anew_is_rid_of_it_again(lab: Lab) -> None:
    switch(lab, on=True)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    put_on(lab, [OURS])
    lab.start()
    volume = lab.published(fs, "one")
    is_removed(lab)
    made_anew(lab, [OURS, *OTHERS])
    is_removed(lab)
    # The admission controllers have their own, of every new Node.
    assert [t for t in taints(lab) if t["key"].startswith("example.com/")] == OTHERS
    lab.stays(volume)
    put_on(lab, [OURS])
    looked_after(lab)
    assert taints(lab) == [OURS]


def test_a_node_made_anew_is_looked_at_before(lab: Lab) -> None:
    """What was complete for the Node before says nothing of this one."""
    switch(lab, on=True)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    put_on(lab, [OURS])
    lab.start()
    is_removed(lab)
    lab.plane.request("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{fs.name}")
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 500)
    made_anew(lab, [OURS])
    looked_after(lab)
    assert OURS in taints(lab)
    lab.make_storage_class(fs.name)
    is_removed(lab)


VOLUMES_ONLY = [
    rule("persistentvolumes", "get", "list", "watch", "create", "patch", "delete"),
    rule("storageclasses", "list", "watch", group="storage.k8s.io"),
    rule("nodes", "list", "watch"),
    rule("events", "create", "patch"),
]


def test_not_being_allowed_to_is_said_and_stops_no_volume(lab: Lab) -> None:
    """Upstream ends when it may not read the Node. An administrator may allow it while we run."""
    lab.paces = replace(lab.paces, taint_longest_wait=0.5)
    switch(lab, on=True)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    put_on(lab, [OURS])
    kubeconfig = account(lab, VOLUMES_ONLY)
    lab.configure()
    lab.agent = AgentThread(
        AgentOptions(
            node_name=lab.node,
            config_directory=str(lab.config_directory),
            kubeconfig=str(kubeconfig),
            listen_address=ListenAddress("127.0.0.1", lab.port),
            paces=lab.paces,
        )
    )
    lab.published(fs, "one")
    said = lab.event(lab.node, taint.EVENT_FAILED, "cannot get resource")
    assert said["type"] == "Warning"
    assert KEY in said["message"]
    may_read, may_write = rule("nodes", "get"), rule("nodes", "patch")
    allow(lab, [*VOLUMES_ONLY, may_read])
    lab.event(lab.node, taint.EVENT_FAILED, "cannot patch resource")
    lab.mount(lab.disk(), fs.path("two"))
    lab.published(fs, "two")
    assert taints(lab) == [OURS]
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)
    allow(lab, [*VOLUMES_ONLY, may_read, may_write])
    is_removed(lab)


def test_a_mistake_of_ours_is_waited_out(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.paces = replace(lab.paces, taint_first_wait=0.1)
    switch(lab, on=True)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    put_on(lab, [OURS])
    faults = [ZeroDivisionError("a mistake")]
    real = taint.without_taints

    def mistaken(node: Node, key: str) -> JsonPatch | None:
        if faults:
            raise faults.pop()
        return real(node, key)

    monkeypatch.setattr(taint, "without_taints", mistaken)
    lab.start()
    lab.published(fs, "one")
    is_removed(lab)
    assert lab.logged("unexpected")
