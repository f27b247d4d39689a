"""Pods of a real kubelet on volumes made for their claims, in local-path's place: R33 to R42.

The scheduler chooses the node, our controller routes the claim, the agent in the node makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.conftest import Images
from tests.node.support_dynamic import Ground, Tenant, ground_on
from tests.suite.names import LOCAL_PATH

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4")


@pytest.fixture(scope="module")
def ground(
    kubelet_node: KubeletNode, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    directory = tmp_path_factory.mktemp("dynamic")
    with ground_on(kubelet_node, directory, "dynamic-directories") as made:
        yield made


@pytest.fixture
def tenant(ground: Ground, objects: Objects, unique: str) -> Tenant:
    return Tenant(ground, objects, unique)


def test_the_next_pod_reads_what_the_first_wrote(tenant: Tenant) -> None:
    """R33; and when the claim goes, all of it goes from the node."""
    tenant.storage_class(LOCAL_PATH)
    tenant.claim()
    assert tenant.run("ls -A /data; echo of red > /data/file && sync -f /data/file") == ""
    volume = tenant.volume()
    assert volume["spec"]["hostPath"]["type"] == "Directory"
    assert Path(volume["spec"]["hostPath"]["path"]).parent == tenant.ground.paths
    assert tenant.run("cat /data/file") == "of red"
    tenant.remove()
    assert tenant.below(tenant.ground.paths) == []
    tenant.purged(tenant.ground.paths)


@pytest.mark.parametrize("by", ["claim", "class"])
def test_claim_or_class_may_ask_for_the_type_local(tenant: Tenant, by: str) -> None:
    """R34 by the claim's annotation, R35 by the class's."""
    tenant.storage_class(
        LOCAL_PATH, annotations={"defaultVolumeType": "local"} if by == "class" else {}
    )
    tenant.claim(annotations={"volumeType": "local"} if by == "claim" else {})
    assert tenant.run("echo of red > /data/file && cat /data/file") == "of red"
    assert "local" in tenant.volume()["spec"]
    tenant.remove()


def test_a_claim_for_one_pod_alone_is_served(tenant: Tenant) -> None:
    """R37: ReadWriteOncePod."""
    tenant.storage_class(LOCAL_PATH, annotations={"defaultVolumeType": "local"})
    tenant.claim(accessModes=["ReadWriteOncePod"])
    assert tenant.run("echo alone > /data/file && cat /data/file") == "alone"
    tenant.remove()


@pytest.mark.parametrize("kind", ["hostPath", "local"])
def test_a_user_without_rights_writes_and_reads(tenant: Tenant, kind: str) -> None:
    """R38: uid 1000, fsGroup 1000."""
    tenant.storage_class(LOCAL_PATH, annotations={"defaultVolumeType": kind})
    tenant.claim()
    security: dict[str, Any] = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    said = tenant.run("id -u; echo of 1000 > /data/file && cat /data/file", security=security)
    assert said.splitlines() == ["1000", "of 1000"]
    assert tenant.run("cat /data/file", security=security) == "of 1000"
    tenant.remove()


def test_a_pod_may_mount_a_part_of_the_volume(tenant: Tenant) -> None:
    """R39: subPath."""
    tenant.storage_class(LOCAL_PATH)
    tenant.claim()
    tenant.run("echo of red > /data/file", subPath="deep/er")
    assert tenant.run("cat /data/deep/er/file") == "of red"
    tenant.remove()
    tenant.purged(tenant.ground.paths)


def test_a_volume_is_placed_owned_and_bound_as_the_class_says(
    tenant: Tenant, kubelet_node: KubeletNode
) -> None:
    """R40's affinity key, R41's pattern, and R42's `stat` in the pod, without any script."""
    tenant.storage_class(
        LOCAL_PATH,
        parameters={
            "nodeAffinityKey": "kubernetes.io/os",
            "pathPattern": "{{ .PVC.Namespace }}/{{ .PVC.Name }}/",
            "userPattern": "1000",
            "groupPattern": "2000",
            "permPattern": "0700",
        },
    )
    tenant.claim()
    assert tenant.run("stat -c '%a %u %g' /data") == "700 1000 2000"
    volume = tenant.volume()
    place = tenant.ground.paths / "default" / tenant.unique
    assert volume["spec"]["hostPath"]["path"] == str(place)
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (expression,) = term["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("kubernetes.io/os", ["linux"])
    said = tenant.run("id -u; touch /data/mine && ls /data", security={"runAsUser": 1000})
    assert said.splitlines() == ["1000", "mine"]
    tenant.remove()
    assert tenant.below(tenant.ground.paths) == []
