"""Dynamic PersistentVolumes of kutti, local-path and OpenEBS get our label and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from localvolume.volumes.marks import node_key
from tests.cluster.support_controller import LOST, Ground, Volume, in_, term
from tests.cluster.support_routing import Routing
from tests.suite.api import VOLUMES
from tests.suite.names import HOSTNAME, KUTTI, LOCAL_PATH, NODE_LABEL, OPENEBS, PROVISIONED_BY

pytestmark = pytest.mark.needs("controlplane")

ALL = (KUTTI, LOCAL_PATH, OPENEBS)


def foreign(
    ground: Ground,
    provisioner: str,
    *expressions: dict[str, Any],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    host_path: bool = False,
) -> Volume:
    """As that provisioner leaves it."""
    path = f"/opt/{ground.unique}/data"
    source = {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    volume = ground.volume(
        provisioner=provisioner,
        labelled=False,
        finalized=False,
        terms=[term(*expressions)],
        source=source if host_path else {"local": {"path": path}},
    )
    metadata = {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
    changed: Volume = ground.patch(
        f"{VOLUMES}/{volume['metadata']['name']}", {"metadata": metadata}
    )
    return changed


def each_kind(ground: Ground, node: str, hostname: str) -> dict[str, Volume]:
    on = {"kuttiproject.org/provisionedOn": node, "kuttiproject.org/provisionedBy": KUTTI}
    by = {"local.path.provisioner/selected-node": node}
    local_path = (ground, LOCAL_PATH)
    return {
        "kutti": foreign(ground, KUTTI, in_(node), annotations=on),
        "local-path, hostPath": foreign(*local_path, in_(hostname), annotations=by, host_path=True),
        "local-path, local": foreign(*local_path, in_(hostname), annotations=by),
        "local-path, nodeAffinityKey": foreign(
            *local_path, in_("r1", key="example.com/rack"), annotations=by, host_path=True
        ),
        "openebs": foreign(
            ground,
            OPENEBS,
            in_(hostname),
            labels={"openebs.io/cas-type": "local-hostpath"},
        ),
        "openebs, NodeAffinityLabels": foreign(
            ground, OPENEBS, in_(ground.unique, key="openebs.io/nodeid")
        ),
    }


def make_node(ground: Ground) -> tuple[str, str]:
    hostname = f"{ground.unique}-host"
    labels = {HOSTNAME: hostname, "example.com/rack": "r1", "openebs.io/nodeid": ground.unique}
    return ground.node("node", labels), hostname


def without_bookkeeping(volume: Volume) -> Volume:
    left = copy.deepcopy(volume)
    for key in ("resourceVersion", "managedFields"):
        del left["metadata"][key]
    labels = {k: v for k, v in left["metadata"].get("labels", {}).items() if k != NODE_LABEL}
    left["metadata"]["labels"] = labels
    left.pop("status")
    return left


def labelled(ground: Ground, name: str) -> Volume:
    """The volume, once it has our label."""
    return ground.until(
        lambda: ground.get(VOLUMES, name) or {},
        lambda found: NODE_LABEL in found["metadata"].get("labels", {}),
    )


def test_each_kind_is_adopted(ground: Ground) -> None:
    node, hostname = make_node(ground)
    other = ground.node("other", {"example.com/rack": "r1"})
    assert other != node
    before = each_kind(ground, node, hostname)
    ground.start(provisioners=ALL)
    for kind, volume in before.items():
        name = volume["metadata"]["name"]
        after = labelled(ground, name)
        assert after["metadata"]["labels"][NODE_LABEL] == node_key(node), kind
        assert without_bookkeeping(after) == without_bookkeeping(volume), kind
    # The answer to the last patch may still be on its way.
    ground.until(lambda: ground.metric("localvolume_adopted_total"), lambda n: n == len(before))


def test_none_is_touched_without_the_flag(ground: Ground) -> None:
    """Neither while its node is there nor when that is lost, nor in a class that is listed for
    deleting, where it is a hostPath."""
    node, hostname = make_node(ground)
    before = each_kind(ground, node, hostname)
    ground.start("rancher.io")
    ground.settle()
    ground.remove_node(node)
    ground.settle()
    for kind, volume in before.items():
        assert ground.again(volume) == volume, kind


def test_one_is_opted_into_and_another_is_not(ground: Ground) -> None:
    node, hostname = make_node(ground)
    before = each_kind(ground, node, hostname)
    ground.start(provisioners=[OPENEBS])
    for kind in ("openebs", "openebs, NodeAffinityLabels"):
        name = before[kind]["metadata"]["name"]
        labelled(ground, name)
    ground.settle()
    for kind, volume in before.items():
        if not kind.startswith("openebs"):
            assert ground.again(volume) == volume, kind


def test_the_claim_of_an_adopted_volume_follows(ground: Ground) -> None:
    node, hostname = make_node(ground)
    volume = foreign(ground, LOCAL_PATH, in_(hostname), host_path=True)
    claim = ground.bound(volume)
    routing = Routing(ground)
    routing.change(claim, labels={"example.com/kept": "yes"})
    ground.start(provisioners=ALL)
    routing.routed(claim, node)
    assert volume["metadata"]["annotations"][PROVISIONED_BY] == LOCAL_PATH


def test_a_lost_node_is_reported(ground: Ground) -> None:
    """In classes that are not listed, also of hostPaths, and of labels of another key."""
    node, hostname = make_node(ground)
    before = each_kind(ground, node, hostname)
    ground.start(provisioners=ALL)
    ground.until(lambda: ground.metric("localvolume_adopted_total"), lambda n: n == len(before))
    ground.remove_node(node)
    for volume in before.values():
        ground.marked(volume)
    ground.event(
        before["openebs, NodeAffinityLabels"], "ReferencedNodeDeleted", "openebs.io/nodeid"
    )
    ground.stays(*before.values())
    make_node(ground)
    for volume in before.values():
        ground.until(partial(ground.mark, volume), lambda mark: mark is None)
        assert LOST not in (ground.again(volume) or {})["metadata"]["annotations"]
