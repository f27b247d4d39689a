"""A volume of the kind `local` is moved to the CSI driver by the commands of its page, between two
pods of a real kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.conftest import Images
from tests.node.support_csi import CsiGround, CsiTenant, csi_ground_on
from tests.node.support_migrate import Walk
from tests.node.support_pods import pod_spec
from tests.suite.api import CLASSES, PODS, VOLUMES
from tests.suite.names import CSI, NATIVE
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4")

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture(scope="module")
def ground(
    kubelet_node: KubeletNode, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CsiGround]:
    directory = tmp_path_factory.mktemp("csi")
    with csi_ground_on(kubelet_node, directory, "local-to-csi") as made:
        yield made


@pytest.fixture
def tenant(ground: CsiGround, objects: Objects, unique: str) -> Iterator[CsiTenant]:
    made = CsiTenant(ground, objects, unique)
    yield made
    made.end_all()


def application(tenant: CsiTenant) -> None:
    """A Deployment that writes a line whenever its pod starts."""
    script = "date >> /data/rows; while sleep 1; do :; done"
    spec = pod_spec(script, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    spec |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 1}
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": tenant.unique}}]
    labels = {"app": tenant.unique}
    body = {
        "metadata": {"name": tenant.unique},
        "spec": {
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    tenant.objects.make(DEPLOYMENTS, body)
    ready(tenant)


def ready(tenant: CsiTenant) -> None:
    until(
        lambda: tenant.objects.get(f"{DEPLOYMENTS}/{tenant.unique}")["status"],
        lambda status: status.get("readyReplicas") == 1,
        seconds=150,
        said=tenant.ground.logs,
    )


def rows(tenant: CsiTenant) -> int:
    """How often its pod has started, as the volume knows."""
    query = f"{PODS}?labelSelector=app%3D{tenant.unique}"
    (pod,) = tenant.objects.get(query)["items"]
    said = tenant.within(pod["metadata"]["name"], "cat /data/rows")
    return len(said.splitlines())


def test_it_is_moved_by_the_commands_of_the_page(tenant: CsiTenant, tmp_path: Path) -> None:
    node, unique = tenant.ground.node, tenant.unique
    tenant.storage_class(NATIVE, allowVolumeExpansion=True)
    tenant.claim()
    application(tenant)
    before = tenant.volume()
    name = before["metadata"]["name"]
    assert "local" in before["spec"]
    filled = {
        "namespace": "default",
        "application": unique,
        "its label": f"app={unique}",
        "volumes": f"{name} --release-namespace default",
        "class": unique,
    }
    walk = Walk("local-to-csi", tmp_path, node, Path("/bin/false"), filled=filled, places={})
    assert walk.next("kubectl get pv").split()[:4] == [name, "default", unique, unique]
    # The pod uses it until it is stopped.
    refused = walk.run(f"! localvolume move-to-csi --yes {name} --release-namespace default")
    assert "pods use its claim" in refused
    walk.next("scale deployment")
    assert "would move" in walk.next("--dry-run")
    said = walk.next("--yes")
    assert said.splitlines()[-1].split() == [name, f"default/{unique}", node.name, "moved"]
    walk.next("kubectl create -f class.yaml")
    assert tenant.objects.get(f"{CLASSES}/{unique}")["provisioner"] == CSI
    walk.next("--replicas=1")
    walk.ends()
    ready(tenant)
    # The pod may run before its script has begun to write.
    until(lambda: rows(tenant), lambda count: count == 2)
    assert tenant.ground.driver_mounts()
    after = tenant.objects.get(f"{VOLUMES}/{name}")
    assert after["spec"]["csi"]["volumeHandle"] == name
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    walk.run(f"kubectl scale deployment {unique} --replicas=0")
    walk.run(f"kubectl wait --for=delete pod -l app={unique} --timeout=5m")
    tenant.unmounted()
    tenant.remove()
    tenant.purged(tenant.ground.images)
