"""PersistentVolumes of our CSI driver: adopted, lost and routed like those with a local source."""

from __future__ import annotations

import json

import msgspec
import pytest

from localvolume.controller.caches.trimmed import VOLUMES
from localvolume.controller.model import Adopt, DeleteClaim, Keep, MarkLost, MarkReturned, Policy
from localvolume.controller.plan.ours import is_static
from localvolume.kube.http.wire import codec
from localvolume.kube.objects import CSISource, PersistentVolume
from localvolume.volumes.marks import CSI_DRIVER
from localvolume.volumes.objects import is_dynamic, path_of
from localvolume.volumes.objects import is_static as is_prepared
from tests.decisions.support_controller import LONG_AGO, a, action, node, on_hosts, volume

LISTED = Policy(frozenset({"fast"}))


def served(
    provisioner: str | None = CSI_DRIVER,
    label: str | None = None,
    lost: str | None = None,
    driver: str = CSI_DRIVER,
) -> PersistentVolume:
    """A bound volume on the node `n1`, as external-provisioner leaves it."""
    found = volume(
        on_hosts("n1"),
        phase="Bound",
        claim="c",
        finalizers=(),
        provisioner=provisioner,
        label=label,
        lost=lost,
        local=False,
    )
    source = CSISource(driver=driver, volume_handle=found.metadata.name)
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, csi=source))


def test_its_node_adopts_it() -> None:
    assert a(Adopt, action(served(), [node("n1"), node("n2")])).node_name == "n1"
    assert "is there" in a(Keep, action(served(label="n1"), [node("n1")])).reason


@pytest.mark.parametrize("label", [None, "n1"])
def test_its_node_is_lost(label: str | None) -> None:
    a(MarkLost, action(served(label=label), [node("n2")], LISTED))
    about = served(label=label, lost=LONG_AGO)
    a(DeleteClaim, action(about, [node("n2")], LISTED))
    a(MarkReturned, action(about, [node("n1")], LISTED))


@pytest.mark.parametrize("label", [None, "n1"])
def test_one_of_another_driver_is_none_of_our_business(label: str | None) -> None:
    about = served("ebs.csi.aws.com", driver="ebs.csi.aws.com", label=label, lost=LONG_AGO)
    assert "not a local volume" in a(Keep, action(about, [], LISTED)).reason


def test_one_that_somebody_wrote_is_not_adopted() -> None:
    """Only its maker says on which node the record is that its handle names."""
    assert "is there" in a(Keep, action(served(None), [node("n1")])).reason


def test_it_never_counts_as_prepared() -> None:
    """Nobody may clean or offer it by a path, even where it has lost all annotations."""
    bare = served(None, label="n1")
    assert is_dynamic(bare)
    assert not is_static(bare)
    assert not is_prepared(bare)
    assert path_of(bare) == ""
    assert is_prepared(served(None, driver="ebs.csi.aws.com"))


@pytest.mark.parametrize(("driver", "kept"), [(CSI_DRIVER, True), ("ebs.csi.aws.com", False)])
def test_the_cache_keeps_the_driver_and_nothing_else(driver: str, kept: bool) -> None:
    source = {"driver": driver, "volumeHandle": "pvc-1", "fsType": "ext4"}
    body = {"metadata": {"name": "pvc-1"}, "spec": {"csi": source}}
    found = codec(VOLUMES).one(json.dumps(body).encode())
    assert found.spec.csi == (CSISource(driver=driver) if kept else None)
