"""The PersistentVolume as the API server has it: upstream's, field for field, and our additions."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_agent import GENERATION, IDENTITY, Lab, Volume
from tests.suite.api import MERGE
from tests.suite.names import FINALIZER, NODE_LABEL, PROTECTION, PROVISIONED_BY
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def upstream_name(entry: str, node: str, class_name: str) -> str:
    """FNV-1a, 32 bits, as Go's fmt.Sprintf("local-pv-%x") writes it."""
    value = 0x811C9DC5
    for byte in f"{entry}{node}{class_name}".encode():
        value = ((value ^ byte) * 0x01000193) % (1 << 32)
    return f"local-pv-{value:x}"


def as_upstream(volume: Volume) -> dict[str, Any]:
    """The object without what the API server and the controllers write, and without our additions,
    each of which must be there."""
    metadata = dict(volume["metadata"])
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        del metadata[key]
    metadata["finalizers"] = [f for f in metadata["finalizers"] if f != PROTECTION]
    metadata["finalizers"].remove(FINALIZER)
    assert metadata["labels"].pop(NODE_LABEL)
    assert json.loads(metadata["annotations"].pop(IDENTITY))
    assert metadata["annotations"].pop(GENERATION)
    return {"metadata": metadata, "spec": volume["spec"]}


def mebibytes_of(path: Path) -> str:
    found = os.statvfs(path)
    return f"{found.f_blocks * found.f_bsize // MIB}Mi"


def affinity(hostname: str, *more: object) -> dict[str, object]:
    own = {"key": "kubernetes.io/hostname", "operator": "In", "values": [hostname]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [own]}, *more]}}


def test_with_everything_that_can_be_configured(lab: Lab) -> None:
    shared = {"matchExpressions": [{"key": "shared", "operator": "Exists"}]}
    path = f"/api/v1/nodes/{lab.node}"
    node = lab.plane.request(
        "PATCH",
        path,
        {"metadata": {"labels": {"zone": "z1", "kubernetes.io/hostname": "the-host"}}},
        content_type=MERGE,
    )
    lab.settings |= {
        "nodeLabelsForPV": ["zone", "not-there", "kubernetes.io/hostname"],
        "labelsForPV": {"team": "storage", "kubernetes.io/hostname": "overlaid"},
        "setPVOwnerRef": True,
    }
    fs = lab.add_class(
        "fs",
        policy="Retain",
        mount_options=["noatime", "nodiratime"],
        accessMode="ReadWriteOncePod",
        fsType="ext4",
        selector=[shared],
    )
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    assert as_upstream(lab.published(fs, "one")) == {
        "metadata": {
            "name": upstream_name("one", lab.node, fs.name),
            "labels": {"zone": "z1", "team": "storage", "kubernetes.io/hostname": "overlaid"},
            "annotations": {
                PROVISIONED_BY: f"local-volume-provisioner-{lab.node}-{node['metadata']['uid']}"
            },
            "finalizers": [],
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": lab.node,
                    "uid": node["metadata"]["uid"],
                }
            ],
        },
        "spec": {
            "capacity": {"storage": mebibytes_of(where)},
            "accessModes": ["ReadWriteOncePod"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": fs.name,
            "volumeMode": "Filesystem",
            "mountOptions": ["noatime", "nodiratime"],
            "local": {"path": fs.host_path("one"), "fsType": "ext4"},
            "nodeAffinity": affinity("the-host", shared),
        },
    }


def test_the_least_of_both_kinds_in_both_kinds_of_class(lab: Lab) -> None:
    """A filesystem; a device as Block by link and by node; a device under a Filesystem class."""
    lab.settings["useNodeNameOnly"] = True
    fs = lab.add_class("fs")
    block = lab.add_class("block", volumeMode="Block", mount_options=["noatime"])
    where = lab.mount(lab.disk(), fs.path("mounted"))
    lab.link(lab.raw_disk(24 * MIB + 4096), fs.path("device"))
    lab.link(lab.raw_disk((9 << 30) + 999 * MIB + 512), block.path("linked"))
    node = lab.raw_disk(10 * MIB - 512)
    os.mknod(block.path("node"), 0o600 | 0o060000, os.stat(node.path).st_rdev)
    lab.unlink_later(block.path("node"))
    lab.start()

    def expected(cls: str, entry: str, size: str, **spec: object) -> dict[str, object]:
        made = lab.classes[cls]
        return {
            "metadata": {
                "name": upstream_name(entry, lab.node, made.name),
                "labels": {},
                "annotations": {PROVISIONED_BY: f"local-volume-provisioner-{lab.node}"},
                "finalizers": [],
            },
            "spec": {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": made.name,
                "local": {"path": made.host_path(entry)},
                "nodeAffinity": affinity(lab.node),
                **spec,
            },
        }

    # A plain file system, and a device that the kubelet will format.
    for entry, size in (("mounted", mebibytes_of(where)), ("device", "24Mi")):
        found = as_upstream(lab.published(fs, entry))
        assert found == expected("fs", entry, size, volumeMode="Filesystem")
    # Mount options mean nothing to a raw device; upstream copies them all the same.
    raw = {"volumeMode": "Block", "mountOptions": ["noatime"]}
    for entry, size in (("linked", f"{9 * 1024 + 999}Mi"), ("node", str(10 * MIB - 512))):
        assert as_upstream(lab.published(block, entry)) == expected("block", entry, size, **raw)
