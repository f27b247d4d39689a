"""The classes: those of the ConfigMap, and StorageClasses of prepared volumes and of made ones."""

from typing import Any

import pytest
import yaml

from tests.chart.support_helm import NAME, one, render
from tests.chart.support_sets import FULL

pytestmark = pytest.mark.needs("go")

Object = dict[str, Any]


@pytest.fixture(scope="module")
def full() -> list[Object]:
    return render(FULL)


def test_classes_of_prepared_volumes(full: list[Object]) -> None:
    data = one(full, "ConfigMap", f"{NAME}-config")["data"]
    assert yaml.safe_load(data["storageClassMap"])["fast.disks"] == {
        "hostDir": "/mnt/fast/",
        "mountDir": "/discovery/fast",
        "volumeMode": "Block",
        "namePattern": "nvme*",
        "blockCleanerCommand": ["/scripts/dd_zero.sh", "2"],
        "firstUse": "clean",
        "cleaningConcurrency": 2,
        "cleaningTimeout": "2h",
    }
    assert (
        one(full, "StorageClass", "fast.disks").items()
        >= {
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": FULL["classes"][0]["allowedTopologies"],
        }.items()
    )


def test_classes_of_made_volumes(full: list[Object]) -> None:
    assert (
        one(full, "StorageClass", "made").items()
        >= {
            "provisioner": "dynamic.localvolume.dev",
            "parameters": {"mode": "0700", "pool": "made"},
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "Immediate",
            "allowVolumeExpansion": False,
            "mountOptions": ["noatime"],
        }.items()
    )
    (found,) = (
        each
        for each in render({"classes": [], "dynamicStorageClasses": [{"name": "x"}]})
        if each["kind"] == "StorageClass"
    )
    assert found["allowVolumeExpansion"] is True
    assert found["volumeBindingMode"] == "WaitForFirstConsumer"
    assert "annotations" not in found["metadata"]


def test_annotations_of_classes() -> None:
    """local-path reads its defaultVolumeType there, OpenEBS its whole configuration."""
    given = {"name": "x", "isDefaultClass": True, "annotations": {"defaultVolumeType": "local"}}
    assert one(render({"dynamicStorageClasses": [given]}), "StorageClass", "x")["metadata"][
        "annotations"
    ] == {"storageclass.kubernetes.io/is-default-class": "true", "defaultVolumeType": "local"}


def test_classes_of_the_csi_driver_are_told_to_the_policy() -> None:
    """And the driver, which without the value no agent may name."""
    classes = [{"name": "x", "provisioner": "csi.localvolume.dev"}, {"name": "y"}]
    objects = render({"csi": {"enabled": True}, "dynamicStorageClasses": classes})
    assert one(objects, "StorageClass", "x")["provisioner"] == "csi.localvolume.dev"
    assert known(objects) == {
        "dynamic": '"^(?:x|y)$"',
        "provisioners": '["dynamic.localvolume.dev"]',
        "drivers": '["csi.localvolume.dev"]',
    }
    assert known(render())["drivers"] == "[]"


def test_classes_of_snapshots() -> None:
    assert all(each["kind"] != "VolumeSnapshotClass" for each in render({"csi": {"enabled": True}}))
    given = [
        {"name": "plain"},
        {
            "name": "kept",
            "deletionPolicy": "Retain",
            "isDefaultClass": True,
            "parameters": {"fullCopies": "allowed", "snapshotReserve": "20%"},
            "annotations": {"velero.io/csi-volumesnapshot-class": "yes"},
        },
    ]
    objects = render({"csi": {"enabled": True, "snapshotClasses": given}})
    plain, kept = (one(objects, "VolumeSnapshotClass", name) for name in ("plain", "kept"))
    assert plain["apiVersion"] == "snapshot.storage.k8s.io/v1"
    assert (plain["driver"], plain["deletionPolicy"]) == ("csi.localvolume.dev", "Delete")
    assert "annotations" not in plain["metadata"]
    assert "parameters" not in plain
    assert kept["deletionPolicy"] == "Retain"
    assert kept["parameters"] == {"fullCopies": "allowed", "snapshotReserve": "20%"}
    assert kept["metadata"]["annotations"] == {
        "snapshot.storage.kubernetes.io/is-default-class": "true",
        "velero.io/csi-volumesnapshot-class": "yes",
    }


def known(objects: list[Object]) -> dict[str, str]:
    """What the agents' policy of volumes knows of volumes made for claims."""
    policy = one(objects, "ValidatingAdmissionPolicy", f"{NAME}-volumes")
    names = ("dynamic", "provisioners", "drivers")
    variables = policy["spec"]["variables"]
    return {each["name"]: each["expression"] for each in variables if each["name"] in names}
