"""Volumes that kutti, local-path and OpenEBS left behind: served on, and removed with their claims.

The controller's label is on them; what else they have is as those provisioners wrote it.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_replaced import (
    KINDS,
    PROVISIONERS,
    Kind,
    in_place_of,
    label_node,
    left_behind,
    others,
    removed,
    root,
    said,
    scheduled,
)
from tests.host.support_devices import command
from tests.suite.names import FINALIZER, OPENEBS

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _class(lab: DynamicLab, kind: Kind, **fields: Any) -> str:
    return lab.storage_class("old", provisioner=PROVISIONERS[kind], **fields)


@pytest.mark.parametrize("kind", KINDS)
def test_it_stays_as_it_is_and_goes_with_its_claim(dynamic: DynamicLab, kind: Kind) -> None:
    """R33, R34, O38 for what is there already; L05, L08."""
    pool = root(dynamic)
    claim, volume = left_behind(dynamic, kind, _class(dynamic, kind), pool)
    where = dynamic.path_of(volume)
    (where / "deep" / "er").mkdir(parents=True)
    (where / "deep" / "er" / "secret").write_text("tenant")
    dynamic.start(others=in_place_of(dynamic, kind, pool))
    dynamic.settle()
    found = dynamic.volume(volume["metadata"]["name"])
    assert found is not None
    assert said(found) == said(volume)
    assert (where / "rows").read_text() == "precious"
    assert dynamic.metric("localvolume_pool_orphans", pool=_pool_name(dynamic)) == 0
    removed(dynamic, claim, volume, pool)
    assert pool.inside() == []


def _pool_name(lab: DynamicLab) -> str:
    status, text = lab.http("/metrics")
    assert status == 200
    (line,) = (one for one in text.splitlines() if one.startswith("localvolume_pool_orphans{"))
    return line.partition('pool="')[2].partition('"')[0]


@pytest.mark.parametrize("kind", KINDS)
def test_its_neighbours_stay(dynamic: DynamicLab, kind: Kind) -> None:
    """One claim goes; the others' data, and what no PersistentVolume names, are not touched."""
    pool = root(dynamic)
    cls = _class(dynamic, kind)
    first, gone = left_behind(dynamic, kind, cls, pool)
    _, stays = left_behind(dynamic, kind, cls, pool)
    (pool.directory / "backup").mkdir()
    (pool.directory / "backup" / "rows").write_text("mine")
    dynamic.start(others=in_place_of(dynamic, kind, pool))
    removed(dynamic, first, gone, pool)
    assert (dynamic.path_of(stays) / "rows").read_text() == "precious"
    assert (pool.directory / "backup" / "rows").read_text() == "mine"
    orphans = "localvolume_pool_orphans"
    dynamic.until(lambda: dynamic.metric(orphans, pool=_pool_name(dynamic)), lambda n: n == 1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_its_policy_retains_stays(dynamic: DynamicLab, kind: Kind) -> None:
    """L09; also once somebody deletes the object, which nothing of ours holds."""
    pool = root(dynamic)
    claim, volume = left_behind(dynamic, kind, _class(dynamic, kind), pool, policy="Retain")
    dynamic.start(others=in_place_of(dynamic, kind, pool))
    dynamic.delete(claim)
    name = volume["metadata"]["name"]
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    found = dynamic.stays(volume)
    assert FINALIZER not in found["metadata"]["finalizers"]
    assert (dynamic.path_of(volume) / "rows").read_text() == "precious"
    dynamic.plane.request("DELETE", f"/api/v1/persistentvolumes/{name}")
    dynamic.gone(volume)
    dynamic.settle()
    assert (dynamic.path_of(volume) / "rows").read_text() == "precious"


def test_it_was_released_before_we_came(dynamic: DynamicLab) -> None:
    """What the old provisioner did not get to: kutti never did after it had moved (facts, 8, 3)."""
    pool = root(dynamic)
    claim, volume = left_behind(dynamic, "kutti", _class(dynamic, "kutti"), pool)
    dynamic.delete(claim)
    name = volume["metadata"]["name"]
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    dynamic.start(others=in_place_of(dynamic, "kutti", pool))
    dynamic.gone(volume)
    dynamic.until(pool.inside, lambda left: left == [])


def test_the_label_of_its_affinity_need_not_be_the_hostname(dynamic: DynamicLab) -> None:
    """R40's deletion, which upstream never tested and got wrong (facts, section 8, 6)."""
    label_node(dynamic, **{"example.com/rack": "r7", "kubernetes.io/hostname": "some-host"})
    pool = root(dynamic)
    cls = _class(dynamic, "local-path", parameters={"nodeAffinityKey": "example.com/rack"})
    claim, volume = left_behind(dynamic, "local-path", cls, pool, affinity_key="example.com/rack")
    dynamic.start(others=in_place_of(dynamic, "local-path", pool))
    removed(dynamic, claim, volume, pool)


def test_what_a_pattern_placed_deeper_goes_alone(dynamic: DynamicLab) -> None:
    """R41; other volumes of the same namespace stay."""
    pool = root(dynamic)
    cls = _class(dynamic, "local-path")
    space = pool.directory / "default"
    claim, volume = left_behind(dynamic, "local-path", cls, pool, at=space / "one")
    _, other = left_behind(dynamic, "local-path", cls, pool, at=space / "two")
    dynamic.start(others=in_place_of(dynamic, "local-path", pool))
    removed(dynamic, claim, volume, pool)
    assert os.listdir(space) == ["two"]
    assert (dynamic.path_of(other) / "rows").exists()


def test_new_volumes_are_made_beside_the_old_and_never_in_them(dynamic: DynamicLab) -> None:
    """A pattern that leads to an old volume's directory, which no record of ours tells of."""
    pool = root(dynamic)
    old_class = _class(dynamic, "local-path")
    _, old = left_behind(
        dynamic, "local-path", old_class, pool, at=pool.directory / "shared" / "rows"
    )
    parameters = {"pathPattern": "shared", "allowUnsafePathPattern": "true"}
    cls = dynamic.storage_class(
        "new", provisioner=PROVISIONERS["local-path"], waits=True, parameters=parameters
    )
    dynamic.start(others=in_place_of(dynamic, "local-path", pool))
    claim = scheduled(dynamic, cls)
    dynamic.claim_event(claim, "ProvisioningFailed", "holds another volume's, 'shared/rows'")
    assert dynamic.volume_of(claim) is None
    assert (dynamic.path_of(old) / "rows").read_text() == "precious"


def test_a_removed_class_does_not_keep_its_volumes(dynamic: DynamicLab) -> None:
    """Facts, section 8, 11: upstream could never delete them."""
    pool = root(dynamic)
    cls = _class(dynamic, "local-path")
    claim, volume = left_behind(dynamic, "local-path", cls, pool)
    dynamic.plane.request("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{cls}")
    dynamic.start(others=in_place_of(dynamic, "local-path", pool))
    removed(dynamic, claim, volume, pool)


def test_several_base_paths_have_volumes_each(dynamic: DynamicLab) -> None:
    """Each is found in the one that its path names."""
    first, second = root(dynamic, "first"), root(dynamic, "second")
    cls = _class(dynamic, "openebs")
    one = left_behind(dynamic, "openebs", cls, first)
    two = left_behind(dynamic, "openebs", cls, second)
    dynamic.start(others=others(base_paths=[first.directory, second.directory]))
    removed(dynamic, *one, first)
    assert Path(two[1]["spec"]["local"]["path"]).exists()
    removed(dynamic, *two, second)
    assert two[1]["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == OPENEBS


def test_a_disk_that_is_away_at_the_first_start(dynamic: DynamicLab) -> None:
    """No pool of ours was ever made there: only the old volumes tell that something is missing."""
    pool = root(dynamic)
    cls = _class(dynamic, "kutti")
    _, volume = left_behind(dynamic, "kutti", cls, pool)
    command("umount", pool.directory)
    dynamic.start(others=in_place_of(dynamic, "kutti", pool))
    claim = dynamic.claim(cls)
    dynamic.claim_event(claim, "ProvisioningFailed", "its disk is not mounted")
    assert dynamic.http("/ready")[0] == 500
    assert os.listdir(pool.directory) == []
    assert dynamic.volume(volume["metadata"]["name"]) is not None
