"""The PersistentVolume that is published: upstream's, field for field, and what we add."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.manifest import (
    NodeFacts,
    PublishingOptions,
    VolumeDescription,
    persistent_volume,
)
from localvolume.volumes.objects import is_finalized, is_on_node, path_of, recorded_identity

IDENTITY = {"kind": "filesystem", "fsType": "ext4", "uuid": "u-1", "root": "/"}
NODE = NodeFacts(
    "test-node",
    "node-uid",
    "test-host",
    {"kubernetes.io/hostname": "test-host", "zone": "z1", "rack": "r7"},
)
VOLUME = VolumeDescription(
    name="local-pv-aaaafef5",
    host_path="/mnt/disks/mount1",
    class_name="sc1",
    volume_mode="Filesystem",
    size_bytes=10 * 2**30 + 5,
    identity=IDENTITY,
    reclaim_policy="Delete",
)
PLAIN = PublishingOptions()


def upstream() -> dict[str, Any]:
    """What the upstream provisioner creates for VOLUME on NODE with the default options."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "local-pv-aaaafef5",
            "labels": {},
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "local-volume-provisioner-test-node-node-uid"
            },
        },
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "sc1",
            "volumeMode": "Filesystem",
            "local": {"path": "/mnt/disks/mount1"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "kubernetes.io/hostname",
                                    "operator": "In",
                                    "values": ["test-host"],
                                }
                            ]
                        }
                    ]
                }
            },
        },
    }


def with_ours(expected: dict[str, Any]) -> dict[str, Any]:
    """The same with our three additions: label, finalizer and identity."""
    metadata = expected["metadata"]
    metadata["labels"]["localvolume.dev/node"] = "test-node"
    metadata["finalizers"] = ["localvolume.dev/volume"]
    metadata["annotations"]["localvolume.dev/identity"] = (
        '{"fsType":"ext4","kind":"filesystem","root":"/","uuid":"u-1"}'
    )
    return expected


def test_it_equals_upstreams_but_for_our_three_additions() -> None:
    assert persistent_volume(VOLUME, NODE, PLAIN) == with_ours(upstream())


def test_with_every_option_it_equals_upstreams_too() -> None:
    volume = replace(
        VOLUME,
        volume_mode="Block",
        reclaim_policy="Retain",
        access_mode="ReadWriteOncePod",
        fs_type="xfs",
        mount_options=("noatime", "discard"),
        selector=({"matchExpressions": [{"key": "shelf", "operator": "Exists"}]},),
    )
    options = PublishingOptions(
        node_labels=("zone", "rack", "absent"),
        labels={"rack": "theirs", "team": "storage"},
        use_node_name_only=True,
        set_owner_reference=True,
    )
    expected = upstream()
    expected["metadata"] |= {
        "labels": {"zone": "z1", "rack": "theirs", "team": "storage"},
        "annotations": {"pv.kubernetes.io/provisioned-by": "local-volume-provisioner-test-node"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "test-node", "uid": "node-uid"}
        ],
    }
    expected["spec"] |= {
        "accessModes": ["ReadWriteOncePod"],
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Block",
        "local": {"path": "/mnt/disks/mount1", "fsType": "xfs"},
        "mountOptions": ["noatime", "discard"],
    }
    expected["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].append(
        {"matchExpressions": [{"key": "shelf", "operator": "Exists"}]}
    )
    assert persistent_volume(volume, NODE, options) == with_ours(expected)


# --- each option alone ---------------------------------------------------------------------------


def test_the_affinity_names_the_hostname_label_and_the_provisioner_the_node() -> None:
    """Both differ on some clouds; the scheduler knows the label alone."""
    made = persistent_volume(VOLUME, NODE, PLAIN)
    (own,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert own["matchExpressions"][0]["values"] == ["test-host"]
    assert "test-node" in made["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"]
    assert made["metadata"]["labels"]["localvolume.dev/node"] == "test-node"


def test_selector_terms_are_further_ways_to_match_and_none_narrows_the_first() -> None:
    terms = (
        {"matchExpressions": [{"key": "shelf", "operator": "In", "values": ["1"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["spare"]}]},
    )
    made = persistent_volume(replace(VOLUME, selector=terms), NODE, PLAIN)
    own, *others = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert own == {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["test-host"]}
        ]
    }
    assert others == list(terms)


@pytest.mark.parametrize("selector", [(), ({"matchExpressions": [{"key": "shelf"}]},)])
def test_the_alpha_switch_writes_the_same_affinity_as_an_annotation(
    selector: tuple[dict[str, Any], ...],
) -> None:
    volume = replace(VOLUME, selector=selector)
    field = persistent_volume(volume, NODE, PLAIN)
    alpha = persistent_volume(volume, NODE, PublishingOptions(use_alpha_affinity=True))
    text = alpha["metadata"]["annotations"].pop("volume.alpha.kubernetes.io/node-affinity")
    required = field["spec"].pop("nodeAffinity")["required"]
    assert json.loads(text) == {"requiredDuringSchedulingIgnoredDuringExecution": required}
    assert alpha == field, "and nothing else differs"


def test_without_the_alpha_switch_there_is_no_such_annotation() -> None:
    annotations = persistent_volume(VOLUME, NODE, PLAIN)["metadata"]["annotations"]
    assert "volume.alpha.kubernetes.io/node-affinity" not in annotations


def test_the_owner_is_the_node_and_does_not_control_the_volume() -> None:
    made = persistent_volume(VOLUME, NODE, PublishingOptions(set_owner_reference=True))
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "test-node", "uid": "node-uid"}
    ]
    assert "ownerReferences" not in persistent_volume(VOLUME, NODE, PLAIN)["metadata"]


def labels_with(**options: Any) -> dict[str, str]:
    made = persistent_volume(VOLUME, NODE, PublishingOptions(**options))
    labels: dict[str, str] = made["metadata"]["labels"]
    del labels["localvolume.dev/node"]
    return labels


def test_listed_labels_of_the_node_are_copied_where_it_has_them() -> None:
    assert labels_with(node_labels=("zone", "absent")) == {"zone": "z1"}


def test_labels_for_pv_are_laid_over_those_of_the_node() -> None:
    labels = labels_with(node_labels=("zone", "rack"), labels={"zone": "over", "more": "m"})
    assert labels == {"zone": "over", "rack": "r7", "more": "m"}


def test_no_configured_label_takes_the_volume_from_its_node() -> None:
    options = PublishingOptions(labels={"localvolume.dev/node": "somebody-else"})
    made = persistent_volume(VOLUME, NODE, options)
    assert made["metadata"]["labels"]["localvolume.dev/node"] == "test-node"


def test_a_node_name_too_long_for_a_label_is_shortened_there_and_only_there() -> None:
    name = "n" * 100
    made = persistent_volume(VOLUME, replace(NODE, name=name), PLAIN)
    assert len(made["metadata"]["labels"]["localvolume.dev/node"]) <= 63
    assert name in made["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"]


def test_fs_type_is_there_only_where_it_is_set() -> None:
    assert persistent_volume(VOLUME, NODE, PLAIN)["spec"]["local"] == {"path": "/mnt/disks/mount1"}
    made = persistent_volume(replace(VOLUME, fs_type="ext4"), NODE, PLAIN)
    assert made["spec"]["local"]["fsType"] == "ext4"


def test_mount_options_are_there_only_where_the_class_has_some() -> None:
    assert "mountOptions" not in persistent_volume(VOLUME, NODE, PLAIN)["spec"]
    made = persistent_volume(replace(VOLUME, mount_options=("ro",)), NODE, PLAIN)
    assert made["spec"]["mountOptions"] == ["ro"]


def test_options_and_descriptions_are_not_changed_by_publishing() -> None:
    options = PublishingOptions(labels={"team": "storage"})
    persistent_volume(VOLUME, NODE, options)
    assert options.labels == {"team": "storage"}
    assert VOLUME.identity == IDENTITY


# --- and back ------------------------------------------------------------------------------------


@given(
    size=st.integers(0, 2**63 - 1),
    alpha=st.booleans(),
    path=st.text(min_size=1).map(lambda name: f"/mnt/disks/{name}"),
    identity=st.dictionaries(st.sampled_from(["uuid", "serial", "root"]), st.text(), min_size=1),
)
def test_what_is_published_is_recognised_again(
    size: int, alpha: bool, path: str, identity: dict[str, str]
) -> None:
    volume = replace(VOLUME, size_bytes=size, host_path=path, identity=identity)
    body = persistent_volume(volume, NODE, PublishingOptions(use_alpha_affinity=alpha))
    read = msgspec.convert(body, PersistentVolume)
    assert path_of(read) == path
    assert recorded_identity(read) == identity
    assert is_finalized(read)
    assert is_on_node(read, "test-host")
    assert not is_on_node(read, "test-node")
