"""In kutti's and local-path's place on several nodes: volumes are where the scheduler put the pod.

Kutti made them on the node that it ran on itself. Their provisioners' names can be no CSIDriver's
("/"): the scheduler chooses by other things than room, and what does not fit is given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_controller import Ground
from tests.cluster.support_objects import Objects
from tests.cluster.support_replaced import PROVISIONERS, Kind, in_place_of, root
from tests.cluster.support_scheduling import Cluster, cluster_for
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


@pytest.fixture
def cluster(ground: Ground, objects: Objects, unique: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_for(ground, objects, unique, tmp_path) as cluster:
        yield cluster


@pytest.mark.parametrize("kind", ["kutti", "local-path, local", "openebs"])
def test_each_volume_is_on_the_node_of_its_pod(cluster: Cluster, kind: Kind) -> None:
    labs = [cluster.node("a"), cluster.node("b")]
    pools = {lab.node: root(lab) for lab in labs}
    provisioner = PROVISIONERS[kind]
    cls = cluster.storage_class(provisioner=provisioner)
    cluster.start(
        provisioners=[provisioner],
        others={lab.node: in_place_of(lab, kind, pools[lab.node]) for lab in labs},
    )
    pinned = [(lab, cluster.claim(cls, 8 * MIB)) for lab in labs]
    pods = [cluster.pod(claim, on=lab) for lab, claim in pinned]
    free = [cluster.claim(cls, 8 * MIB) for _ in range(2)]
    anywhere = [cluster.pod(claim) for claim in free]
    for (lab, claim), pod in zip(pinned, pods, strict=True):
        volume = cluster.lives_on(claim, lab, pod)
        assert volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == provisioner
        assert lab.path_of(volume).parent == pools[lab.node].directory
    for claim, pod in zip(free, anywhere, strict=True):
        home = cluster.placed(pod)
        assert cluster.selected(claim) == home
        cluster.lives_on(claim, cluster.labs[home], pod)
    assert sum(len(pool.inside()) for pool in pools.values()) == 4
