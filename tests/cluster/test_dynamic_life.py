"""A claim's volume from its making to its removal, on a real filesystem and API server."""

import json
import os
from pathlib import Path

import pytest

from tests.cluster.support_dynamic import PROVISIONER, DynamicLab, MadePool, Volume
from tests.faults.support_proxy import Order, proxy_for
from tests.suite.api import VOLUMES
from tests.suite.names import NODE_LABEL, POOL, PROVISIONED_BY

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def test_a_claim_becomes_a_directory_and_goes_with_it(dynamic: DynamicLab) -> None:
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="8Mi")
    volume = dynamic.made(claim)
    assert volume["metadata"]["annotations"][PROVISIONED_BY] == PROVISIONER
    assert volume["metadata"]["annotations"][POOL].startswith("fast/")
    assert volume["spec"]["capacity"] == {"storage": "8Mi"}
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    where = dynamic.path_of(volume)
    assert where.parent == pool.directory
    assert os.listdir(where) == []
    (where / "secret").write_text("tenant")
    dynamic.claim_event(claim, "ProvisioningSucceeded")
    dynamic.delete(claim)
    dynamic.gone(volume)
    assert not where.exists()
    dynamic.until(lambda: (pool.trash(), pool.records()), lambda left: left == ([], []))
    assert pool.inside() == []


def test_what_is_made_and_removed_is_counted(dynamic: DynamicLab) -> None:
    """L01, L05, L15: and what is another provisioner's, or cannot be served, is not."""
    pool = dynamic.pool()
    cls = dynamic.storage_class()
    foreign = dynamic.storage_class("foreign", provisioner="other.example/maker")
    invalid = dynamic.storage_class("invalid", parameters={"noSuchThing": "x"})
    dynamic.start()
    theirs, never = dynamic.claim(foreign), dynamic.claim(invalid)
    claims = [dynamic.claim(cls) for _ in range(2)]
    volumes = [dynamic.made(claim) for claim in claims]
    dynamic.claim_event(never, "ProvisioningFailed", "noSuchThing")

    def made(name: str, of: str) -> float | None:
        told = f"controller_persistentvolumeclaim_provision_{name}"
        return dynamic.metric(told, **{"class": of, "source": ""})

    def removed(name: str) -> float | None:
        return dynamic.metric(f"controller_persistentvolume_delete_{name}", **{"class": cls})

    counted = ("total", "duration_seconds_count")
    dynamic.until(lambda: [made(name, cls) for name in counted], lambda found: found == [2, 2])
    for other in (foreign, invalid):
        assert [made(name, other) for name in counted] == [None, None]
    # It is said, and counted, anew each minute or two.
    assert (made("failed_total", invalid) or 0) >= 1
    assert made("failed_total", cls) is None
    assert made("failed_total", foreign) is None
    assert dynamic.volume_of(theirs) is None
    assert dynamic.volume_of(never) is None

    stranger = _of_another(dynamic, cls, pool)
    dynamic.event(stranger["metadata"]["name"], "VolumeFailedDelete", "other.example/maker")
    dynamic.delete(claims[0])
    dynamic.gone(volumes[0])
    dynamic.until(lambda: [removed(name) for name in counted], lambda found: found == [1, 1])
    assert removed("failed_total") is None
    dynamic.stays(stranger)
    dynamic.stays(volumes[1])
    assert removed("total") == 1


def _of_another(lab: DynamicLab, cls: str, pool: MadePool) -> Volume:
    """What another provisioner made on this node, whose claim is gone."""
    where = pool.directory / "theirs"
    where.mkdir()
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [lab.node]}
    return lab.objects.make(
        VOLUMES,
        {
            "metadata": {
                "name": f"{lab.unique}-theirs",
                "labels": {NODE_LABEL: lab.node},
                "annotations": {PROVISIONED_BY: "other.example/maker"},
            },
            "spec": {
                "storageClassName": cls,
                "capacity": {"storage": "8Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "local": {"path": str(where)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
                # A claim that there is not: it is Released.
                "claimRef": {
                    "namespace": "default",
                    "name": f"{lab.unique}-gone",
                    "uid": "00000000-0000-4000-8000-000000000001",
                },
            },
        },
    )


def test_from_the_request_on_a_volume_counts_as_offered(
    dynamic: DynamicLab, tmp_path: Path
) -> None:
    """Whether its object came about is not known yet: whoever takes it for nobody's destroys it."""
    with proxy_for(dynamic.plane, tmp_path) as proxy:
        dynamic.kubeconfig = proxy.kubeconfig
        pool = dynamic.pool()
        cls = dynamic.storage_class()
        dynamic.start()
        publishing = Order("hold", ("post",), "persistentvolumes")
        proxy.orders.append(publishing)
        claim = dynamic.claim(cls)
        dynamic.until(lambda: publishing.met, bool)
        (name,) = pool.records()
        written = json.loads((pool.directory / ".localvolume" / "records" / name).read_text())
        assert written["record"]["state"] == "offered"
        publishing.release()
        dynamic.made(claim)
        dynamic.stop()
