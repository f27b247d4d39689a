"""The PersistentVolume that is created for a claim: the contract's fields, theirs, and ours."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.config.pools import DYNAMIC_PROVISIONER
from localvolume.dynamic.manifest import persistent_volume
from localvolume.dynamic.model import ClassFacts, SourceType
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts, PublishingOptions
from tests.decisions.support_dynamic import HOST, NODE, claim, old_pool, pool, record, storage_class
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS


def body(
    class_facts: ClassFacts | None = None,
    *,
    provisioner: str = DYNAMIC_PROVISIONER,
    source: SourceType = "local",
    node: NodeFacts = NODE,
    options: PublishingOptions | None = None,
    wanted: Any = None,
    **changes: Any,
) -> dict[str, Any]:
    here = pool() if provisioner == DYNAMIC_PROVISIONER else old_pool(provisioner=provisioner)
    return persistent_volume(
        record(state="made", **changes),
        claim=wanted or claim(),
        class_facts=class_facts or storage_class(provisioner=provisioner),
        pool=here.config,
        pool_id=here.report.id,
        host_path="/pools/fast/pvc-1",
        source=source,
        node=node,
        options=options or PublishingOptions(),
    )


def test_the_whole_object() -> None:
    """L31 (our finalizer), and what sig-storage-lib adds: claimRef, provisioned-by, the class."""
    assert body() == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "pvc-1",
            "labels": {marks.NODE_LABEL: "node-1"},
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "dynamic.localvolume.dev",
                "localvolume.dev/pool": "fast/id-of-fast",
            },
            "finalizers": ["localvolume.dev/volume"],
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "local",
            "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "ns",
                "name": "data-1",
                "uid": "1",
                "resourceVersion": "7",
            },
            "local": {"path": "/pools/fast/pvc-1"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/hostname",
                                    "operator": "In",
                                    "values": [HOST],
                                }
                            ]
                        }
                    ]
                }
            },
        },
    }


@pytest.mark.parametrize(
    ("policy", "then"), [("Retain", "Retain"), ("Delete", "Delete"), (None, "Delete")]
)
def test_the_reclaim_policy_is_the_classs(policy: str | None, then: str) -> None:
    """L16, L33: a Retain class makes Retain volumes, with our finalizer all the same."""
    made = body(storage_class(policy=policy))
    assert made["spec"]["persistentVolumeReclaimPolicy"] == then
    assert made["metadata"]["finalizers"] == [marks.FINALIZER]


def test_mount_options_are_the_classs() -> None:
    """Defect 4: none of the three provisioners passes them on."""
    assert body(storage_class(mount_options=("noatime",)))["spec"]["mountOptions"] == ["noatime"]
    assert "mountOptions" not in body()["spec"]


def test_what_the_claim_asked_for() -> None:
    made = body(wanted=claim(access=("ReadWriteOncePod",)), size_bytes=1 << 31)["spec"]
    assert made["accessModes"] == ["ReadWriteOncePod"]
    assert made["capacity"] == {"storage": "2Gi"}


@pytest.mark.parametrize("keys", [("zone",), ("zone", marks.HOSTNAME_LABEL)])
def test_the_affinity_has_the_labels_that_the_class_names(keys: tuple[str, ...]) -> None:
    """L44, L45, R40, defects 2 and 6: their values on this node, never its name in their place."""
    (term,) = body(storage_class(affinity_keys=keys))["spec"]["nodeAffinity"]["required"][
        "nodeSelectorTerms"
    ]
    found = {one["key"]: (one["operator"], one["values"]) for one in term["matchExpressions"]}
    assert found == {key: ("In", [NODE.labels[key]]) for key in keys}


def test_a_host_path_is_never_made_by_the_kubelet() -> None:
    """`DirectoryOrCreate` would hide that a disk is not mounted."""
    made = body(source="hostPath")["spec"]
    assert made["hostPath"] == {"path": "/pools/fast/pvc-1", "type": "Directory"}
    assert "local" not in made


@pytest.mark.parametrize(
    ("changes", "local"),
    [
        ({"backend": "image"}, {"fsType": "ext4"}),
        ({"backend": "image", "fs_type": "xfs"}, {"fsType": "xfs"}),
        ({"backend": "image", "volume_mode": "Block"}, {}),
        ({"backend": "btrfs"}, {}),
    ],
)
def test_what_the_kubelet_mounts(changes: dict[str, Any], local: dict[str, Any]) -> None:
    made = body(**changes)["spec"]
    assert made["local"] == {"path": "/pools/fast/pvc-1"} | local
    assert made["volumeMode"] == changes.get("volume_mode", "Filesystem")


@pytest.mark.parametrize(
    ("provisioner", "labels", "annotations"),
    [
        (KUTTI, {}, {"kuttiproject.org/provisionedBy": KUTTI}),
        (KUTTI, {}, {"kuttiproject.org/provisionedOn": "node-1"}),
        (LOCAL_PATH, {}, {"local.path.provisioner/selected-node": "node-1"}),
        (OPENEBS, {"openebs.io/cas-type": "local-hostpath"}, {}),
    ],
)
def test_what_the_provisioner_needs_that_is_replaced(
    provisioner: str, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """L04: it can be gone back to."""
    metadata = body(provisioner=provisioner)["metadata"]
    assert labels.items() <= metadata["labels"].items()
    wanted = {marks.PROVISIONED_BY_ANNOTATION: provisioner, marks.POOL_ANNOTATION: "old/id-of-old"}
    assert (annotations | wanted).items() <= metadata["annotations"].items()


def test_nothing_of_theirs_on_ours() -> None:
    metadata = body()["metadata"]
    assert all(
        key.startswith(("pv.kubernetes.io/", "localvolume.dev/")) for key in metadata["annotations"]
    )


def test_labels_from_the_configuration_never_replace_our_own() -> None:
    options = PublishingOptions(
        node_labels=("zone", "missing"), labels={"team": "x", marks.NODE_LABEL: "forged"}
    )
    labels = body(options=options)["metadata"]["labels"]
    assert labels == {"zone": "a", "team": "x", marks.NODE_LABEL: "node-1"}


def test_a_node_name_that_is_no_label() -> None:
    long = "n" * 70
    node = NodeFacts(long, "u", HOST, NODE.labels)
    assert body(node=node)["metadata"]["labels"][marks.NODE_LABEL] == marks.node_key(long) != long
