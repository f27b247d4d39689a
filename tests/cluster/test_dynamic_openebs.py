"""In the place of OpenEBS' hostpath engine: base paths, labels, quotas, permissions, refusals.

The ids are those of tests/behaviours.toml: O29 to O42, OpenEBS' own tests.
"""

import json
from typing import Any

import pytest

from tests.cluster.support_dynamic import DynamicLab, MadePool
from tests.cluster.support_replaced import (
    affinity,
    label_node,
    others,
    removed,
    root,
    scheduled,
    stat_of,
    unserved,
)
from tests.suite.names import HOSTNAME, OPENEBS, PROVISIONED_BY

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _class(lab: DynamicLab, kind: str, pool: MadePool | None, *entries: dict[str, Any]) -> str:
    """A class with that BasePath and further entries of cas.openebs.io/config."""
    said = [{"name": "StorageType", "value": "hostpath"}]
    if pool is not None:
        said.append({"name": "BasePath", "value": str(pool.directory)})
    annotations = {
        "openebs.io/cas-type": "local",
        # YAML is a superset of JSON.
        "cas.openebs.io/config": json.dumps([*said, *entries]),
    }
    return lab.storage_class(kind, provisioner=OPENEBS, waits=True, annotations=annotations)


def _start(lab: DynamicLab, *entries: dict[str, Any]) -> tuple[MadePool, str]:
    pool = root(lab)
    lab.start(others=others(base_paths=[pool.directory]))
    return pool, _class(lab, "hostpath", pool, *entries)


def _quota(name: str, **grace: str) -> dict[str, Any]:
    return {"name": name, "enabled": "true", **({"data": grace} if grace else {})}


def test_a_volume_is_as_openebs_makes_it(dynamic: DynamicLab) -> None:
    """O38, without the pods that it took: made, labelled, and gone with the claim."""
    pool, cls = _start(dynamic)
    claim = scheduled(dynamic, cls)
    volume = dynamic.made(claim)
    name = f"pvc-{claim['metadata']['uid']}"
    assert volume["spec"]["local"] == {"path": str(pool.directory / name)}
    assert volume["spec"]["volumeMode"] == "Filesystem"
    assert volume["metadata"]["labels"]["openebs.io/cas-type"] == "local-hostpath"
    assert volume["metadata"]["annotations"][PROVISIONED_BY] == OPENEBS
    assert affinity(volume) == [(HOSTNAME, [dynamic.node])]
    assert stat_of(pool.directory / name) == "777 0 0"
    removed(dynamic, claim, volume, pool)


def test_each_class_has_its_base_path(dynamic: DynamicLab) -> None:
    """BasePath; a class without it has the first of the agent's, where none is upstream's."""
    first, second = root(dynamic, "first"), root(dynamic, "second")
    dynamic.start(others=others(base_paths=[first.directory, second.directory]))
    for kind, pool, wanted in (("a", second, second), ("b", first, first), ("c", None, first)):
        volume = dynamic.made(scheduled(dynamic, _class(dynamic, kind, pool)))
        assert dynamic.path_of(volume).parent == wanted.directory


def test_a_class_cannot_have_any_directory_of_the_host(dynamic: DynamicLab) -> None:
    """Whoever may write classes must not have directories made anywhere."""
    pool, _ = _start(dynamic)
    cls = _class(dynamic, "elsewhere", MadePool("", dynamic.directory / "elsewhere"))
    unserved(dynamic, scheduled(dynamic, cls), "elsewhere")
    assert pool.inside() == []
    assert not (dynamic.directory / "elsewhere").exists()


def test_the_affinity_has_every_label_that_the_class_names(dynamic: DynamicLab) -> None:
    """NodeAffinityLabels; a node that lacks one is no place for it (facts, section 8, 13)."""
    label_node(dynamic, **{"openebs.io/nodeid": "n1", "example.com/rack": "r1"})
    keys = ["openebs.io/nodeid", "example.com/rack"]
    pool, cls = _start(dynamic, {"name": "NodeAffinityLabels", "list": keys})
    volume = dynamic.made(scheduled(dynamic, cls))
    assert affinity(volume) == [("openebs.io/nodeid", ["n1"]), ("example.com/rack", ["r1"])]
    cls = _class(dynamic, "x", pool, {"name": "NodeAffinityLabels", "list": ["example.com/row"]})
    unserved(dynamic, scheduled(dynamic, cls), "has no label example.com/row")


def test_permissions_are_those_of_the_class(dynamic: DynamicLab) -> None:
    """FilePermissions, which is newer than what was read."""
    data = {"mode": "0750", "UID": "1000", "GID": "2000"}
    entry = {"name": "FilePermissions", "enabled": "true", "data": data}
    _, cls = _start(dynamic, entry)
    assert stat_of(dynamic.path_of(dynamic.made(scheduled(dynamic, cls)))) == "750 1000 2000"


@pytest.mark.parametrize("quota", ["XFSQuota", "EXT4Quota"])
def test_a_quota_that_cannot_be_kept_is_not_promised(dynamic: DynamicLab, quota: str) -> None:
    """O39 and O41 on a filesystem without quotas (there minix): Pending, an Event, nothing made,
    and the claim can be deleted."""
    pool, cls = _start(dynamic, _quota(quota))
    claim = scheduled(dynamic, cls, size="5Mi")
    unserved(dynamic, claim, "sizes cannot be enforced")
    assert (pool.inside(), pool.records()) == ([], [])
    dynamic.delete(claim)
    dynamic.until(lambda: dynamic.read_claim(claim), lambda found: found is None)


def test_graces_that_are_none_are_refused(dynamic: DynamicLab) -> None:
    """O29, O30, and a soft limit above the hard one, with the class's name."""
    pool, _ = _start(dynamic)
    for number, (grace, text) in enumerate(
        (
            ({"softLimitGrace": "10"}, "must be a percentage"),
            ({"hardLimitGrace": "%"}, "must be a percentage"),
            ({"softLimitGrace": "20%", "hardLimitGrace": "10%"}, "above the hardLimitGrace"),
        )
    ):
        cls = _class(dynamic, f"quota{number}", pool, _quota("EXT4Quota", **grace))
        unserved(dynamic, scheduled(dynamic, cls), text)
    assert pool.inside() == []


@pytest.mark.parametrize(
    ("id_", "source"),
    [
        ("O32", {"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}),
        (
            "O34",
            {
                "dataSource": {
                    "apiGroup": "snapshot.storage.k8s.io",
                    "kind": "VolumeSnapshot",
                    "name": "snap",
                }
            },
        ),
        (
            "O36",
            {"dataSourceRef": {"apiGroup": "example.com", "kind": "Populator", "name": "any"}},
        ),
    ],
)
def test_an_empty_volume_is_no_clone(dynamic: DynamicLab, id_: str, source: dict[str, Any]) -> None:
    """O32, O34, O36. The API server takes no source without a name."""
    pool, cls = _start(dynamic)
    claim = scheduled(dynamic, cls, **source)
    unserved(dynamic, claim, "the volume would be empty")
    assert pool.inside() == []


def test_block_and_selectors_are_refused(dynamic: DynamicLab) -> None:
    """Facts, section 4: it rejects Block, selectors, and all access modes but ReadWriteOnce."""
    pool, cls = _start(dynamic)
    unserved(dynamic, scheduled(dynamic, cls, volumeMode="Block"), "makes no Block volumes")
    selector = {"matchLabels": {"disk": "fast"}}
    unserved(dynamic, scheduled(dynamic, cls, selector=selector), "a claim with a selector")
    many = scheduled(dynamic, cls, accessModes=["ReadWriteMany"])
    unserved(dynamic, many, "ReadWriteMany is not possible")
    assert pool.inside() == []
