"""PersistentVolumes that upstream made get our label and nothing else; their node's agent serves
them from then on, also those whose volume is not there now."""

import copy
from functools import partial
from typing import Any

import pytest

from localvolume.volumes.marks import node_key
from tests.cluster.support_agent import IDENTITY, Lab
from tests.cluster.support_controller import LOST, Ground, Volume
from tests.host.support_devices import command
from tests.suite.api import NODES, VOLUMES
from tests.suite.names import FINALIZER, HOSTNAME, NODE_LABEL

pytestmark = pytest.mark.needs("controlplane")


def upstreams(ground: Ground, hostname: str, provisioner: str, **metadata: Any) -> Volume:
    """A PersistentVolume as upstream leaves it, with labels of its own."""
    volume = ground.volume(
        hostname, provisioner=provisioner, labelled=False, finalized=False, policy="Retain"
    )
    labels = {"labels": {HOSTNAME: hostname, "example.com/kept": "yes"}}
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    changed: Volume = ground.patch(path, {"metadata": {**labels, **metadata}})
    return changed


def adopted(ground: Ground, volume: Volume, node: str) -> None:
    """It gets the node's label, and is otherwise what it was to the last field."""
    after = ground.until(
        lambda: ground.get(VOLUMES, volume["metadata"]["name"]) or {},
        lambda found: NODE_LABEL in found["metadata"]["labels"],
    )
    assert after["metadata"]["labels"][NODE_LABEL] == node_key(node)
    assert LOST not in after["metadata"]["annotations"]
    assert without_bookkeeping(after) == without_bookkeeping(volume)


def without_bookkeeping(volume: Volume) -> Volume:
    """All but our label, our mark, and what the API server itself writes at each change."""
    left = copy.deepcopy(volume)
    for key in ("resourceVersion", "managedFields"):
        del left["metadata"][key]
    left["metadata"]["labels"].pop(NODE_LABEL, None)
    left["metadata"]["annotations"].pop(LOST, None)
    return left


def untouched(ground: Ground, *volumes: Volume) -> None:
    ground.settle()
    for volume in volumes:
        assert ground.get(VOLUMES, volume["metadata"]["name"]) == volume


def test_both_of_upstreams_names_and_any_node_name(ground: Ground) -> None:
    plain = ground.node("a")
    longer = ground.node("a-b")
    other = ground.node("renamed", {HOSTNAME: f"{ground.unique}-host"})
    huge = ground.node("x" * 70, {HOSTNAME: f"{ground.unique}-huge"})
    assert len(huge) > 63
    assert node_key(huge) != huge
    uid = (ground.get(NODES, plain) or {})["metadata"]["uid"]
    by = "local-volume-provisioner-"
    wanted = [
        (upstreams(ground, plain, f"{by}{plain}-{uid}"), plain),
        (upstreams(ground, plain, f"{by}{plain}"), plain),
        # The node was created anew since: its old UID means the same node still.
        (upstreams(ground, plain, f"{by}{plain}-0a0b0c0d-1111-2222-3333-444455556666"), plain),
        # This could be of the node `a` with a strange UID; the affinity says which it is.
        (upstreams(ground, longer, f"{by}{longer}"), longer),
        (upstreams(ground, f"{ground.unique}-host", f"{by}{other}-{uid}"), other),
        (upstreams(ground, f"{ground.unique}-huge", f"{by}{huge}"), huge),
    ]
    ground.start()
    for volume, node in wanted:
        adopted(ground, volume, node)
    # The answer to the last patch may still be on its way.
    ground.until(lambda: ground.metric("localvolume_adopted_total"), lambda n: n == len(wanted))
    # Others get theirs when they appear, and when their node does.
    adopted(ground, upstreams(ground, plain, f"{by}{plain}"), plain)
    late = upstreams(ground, f"{ground.unique}-late", f"{by}{ground.unique}-late")
    ground.marked(late)
    node = ground.node("late")
    ground.event(late, "ReferencedNodeReturned", node)
    adopted(ground, late, node)


def test_what_is_not_adopted(ground: Ground) -> None:
    node, neighbour = ground.node("a"), ground.node("a-b")
    by = "local-volume-provisioner-"
    left = [
        upstreams(ground, neighbour, f"{by}{node}"),  # affinity and provisioner disagree
        upstreams(ground, node, "rancher.io/local-path"),
        ground.volume(node),  # has its label
        ground.volume(node, source={"nfs": {"server": "192.0.2.1", "path": "/"}}, labelled=False),
    ]
    # A label that says another node: somebody decided that.
    marked = {"metadata": {"labels": {NODE_LABEL: "elsewhere"}}}
    volume = upstreams(ground, node, f"{by}{node}")
    left.append(ground.patch(f"{VOLUMES}/{volume['metadata']['name']}", marked))
    # It may be of `a`, with a strange UID, as well as of `a-b`.
    both = ground.volume(
        node, neighbour, provisioner=f"{by}{neighbour}", labelled=False, finalized=False
    )
    ground.start()
    untouched(ground, *left, both)


@pytest.mark.needs("root", "loop", "ext4")
@pytest.mark.usefixtures("impatient")
def test_the_agent_serves_what_was_adopted(lab: Lab, ground: Ground) -> None:
    """One volume is there; the other one's disk comes later, and only the label told of it."""
    fs = lab.add_class("fs")
    names = ("there", "away")
    disks = {name: lab.disk() for name in names}
    for name in names:
        lab.mount(disks[name], fs.path(name))
    lab.start()
    made = {name: lab.published(fs, name) for name in names}
    lab.stop()
    upstream = {name: lab.remake(volume) for name, volume in made.items()}
    claim = lab.claim(upstream["away"])
    (fs.path("away") / "data").write_text("tenant")
    command("umount", fs.path("away"))
    ground.start()
    for volume in upstream.values():
        found = lab.until(
            partial(lab.volume, volume["metadata"]["name"]),
            lambda v: v and NODE_LABEL in v["metadata"].get("labels", {}),
        )
        assert found is not None
        assert IDENTITY not in found["metadata"]["annotations"]
        assert FINALIZER not in found["metadata"].get("finalizers", [])
    lab.start(vanished_grace=3600)
    lab.until(lambda: lab.held(fs), lambda held: held == {"vanished": 1})

    def identity(name: str) -> str | None:
        found = lab.volume(upstream[name]["metadata"]["name"])
        assert found is not None
        text: str | None = found["metadata"]["annotations"].get(IDENTITY)
        return text

    wanted = {name: volume["metadata"]["annotations"][IDENTITY] for name, volume in made.items()}
    lab.until(lambda: identity("there"), lambda found: found == wanted["there"])
    assert identity("away") is None
    command("mount", disks["away"].path, fs.path("away"))
    lab.until(lambda: identity("away"), lambda found: found == wanted["away"])
    # And its life goes on.
    lab.delete_claim(claim)
    lab.published(fs, "away", unlike=upstream["away"]["metadata"]["uid"])
    assert not (fs.path("away") / "data").exists()
