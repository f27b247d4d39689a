"""In kutti's place: volumes as kutti makes them, on the node that the scheduler chose."""

import os
from typing import Any

import pytest

from tests.cluster.support_dynamic import DynamicLab, MadePool
from tests.cluster.support_replaced import (
    affinity,
    in_place_of,
    label_node,
    removed,
    root,
    scheduled,
    stat_of,
    unserved,
)
from tests.suite.names import HOSTNAME, KUTTI, PROVISIONED_BY

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _start(lab: DynamicLab, **fields: Any) -> tuple[MadePool, str]:
    pool = root(lab)
    cls = lab.storage_class(provisioner=KUTTI, waits=True, **fields)
    lab.start(others=in_place_of(lab, "kutti", pool))
    return pool, cls


def test_a_volume_is_as_kutti_makes_it(dynamic: DynamicLab) -> None:
    """Facts, section 1: directory, mode, annotations; not section 8, 2: the hostname's label."""
    label_node(dynamic, **{HOSTNAME: f"{dynamic.unique}-host"})
    pool, cls = _start(dynamic)
    claim = scheduled(dynamic, cls)
    volume = dynamic.made(claim)
    name = f"pvc-{claim['metadata']['uid']}"
    assert volume["metadata"]["name"] == name
    assert volume["spec"]["local"] == {"path": str(pool.directory / name)}
    assert stat_of(pool.directory / name) == "755 0 0"
    notes = volume["metadata"]["annotations"]
    assert notes["kuttiproject.org/provisionedBy"] == KUTTI
    assert notes["kuttiproject.org/provisionedOn"] == dynamic.node
    assert notes[PROVISIONED_BY] == KUTTI
    assert affinity(volume) == [(HOSTNAME, [f"{dynamic.unique}-host"])]
    assert volume["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    removed(dynamic, claim, volume, pool)


def test_a_claim_of_a_pod_on_another_node_is_left_to_that_one(dynamic: DynamicLab) -> None:
    """Facts, section 8, 1: kutti made it wherever it ran itself."""
    pool, cls = _start(dynamic)
    elsewhere = dynamic.claim(
        cls, annotations={"volume.kubernetes.io/selected-node": "somewhere-else"}
    )
    dynamic.made(scheduled(dynamic, cls))
    dynamic.settle()
    assert dynamic.volume_of(elsewhere) is None
    assert len(pool.inside()) == 1


def test_more_than_kutti_knows_nothing_of_is_refused(dynamic: DynamicLab) -> None:
    """Facts, section 8, 4: it advertised ReadWriteMany, and took no heed of parameters."""
    pool, cls = _start(dynamic)
    many = scheduled(dynamic, cls, accessModes=["ReadWriteOnce", "ReadWriteMany"])
    unserved(dynamic, many, "ReadWriteMany is not possible")
    other = dynamic.storage_class(
        "named", provisioner=KUTTI, waits=True, parameters={"nodePath": "/x"}
    )
    unserved(dynamic, scheduled(dynamic, other), "classes of this provisioner take none")
    assert pool.inside() == []


def test_kutti_retain_keeps_the_directory(dynamic: DynamicLab) -> None:
    """The class `kutti-retain` of its manifest."""
    _, cls = _start(dynamic, reclaimPolicy="Retain")
    claim = scheduled(dynamic, cls)
    volume = dynamic.made(claim)
    where = dynamic.path_of(volume)
    (where / "rows").write_text("precious")
    dynamic.delete(claim)
    name = volume["metadata"]["name"]
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    dynamic.stays(volume)
    assert os.listdir(where) == ["rows"]
