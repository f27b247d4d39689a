"""csi-sanity, the CSI authors' own suite, against the agent's socket: for each backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.cluster.support_csi import CsiLab, mounted_below, sanity
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane", "csi-sanity")

SIZE = 320 * MIB
"""Of a volume; a new xfs takes at least 300 MiB."""
POOL = 6144 * MIB
"""Volumes of which nobody says a size have 1 GiB, and there are several at once."""

CASES = 102
"""csi-sanity 5.6 has so many that it runs."""

SNAPSHOTS = "snapshots are not served yet"
CLONES = "clones are not served yet"
CHANGES = "VolumeAttributesClasses are not served yet"
GROUPS = "group snapshots are not served yet"
ATTACHING = "nothing is attached to a node: its disks are in it"

# Why csi-sanity may leave cases out: by its own heading for them.
SKIPPED = {
    "Controller Service [Controller Server] CreateVolume": {
        "should create volume from an existing source snapshot": SNAPSHOTS,
        "should fail when the volume source snapshot is not found": SNAPSHOTS,
        "should create volume from an existing source volume": CLONES,
        "should fail when the volume source volume is not found": CLONES,
        "should create volume with a volume attribute class": CHANGES,
        "should not create volume with an invalid volume attribute class": CHANGES,
    },
    "Controller Service [Controller Server] ControllerPublishVolume": {
        "should fail when no volume id is provided": ATTACHING,
        "should fail when no node id is provided": ATTACHING,
        "should fail when no volume capability is provided": ATTACHING,
        "should fail when publishing more volumes than the node max attach limit": ATTACHING,
        "should fail when the volume does not exist": ATTACHING,
        "should fail when the node does not exist": ATTACHING,
        "should fail when the volume is already published but is incompatible": ATTACHING,
    },
    "Controller Service [Controller Server] volume lifecycle": {
        "should work": ATTACHING,
        "should be idempotent": ATTACHING,
    },
    "Controller Service [Controller Server] ControllerUnpublishVolume": {
        "should fail when no volume id is provided": ATTACHING,
    },
    "ModifyVolume [Controller Server]": {
        "should fail if no volume id is given": CHANGES,
        "should fail if volume does not exist": CHANGES,
        "should fail if specified mutable parameters are not supported by the volume": CHANGES,
        "should modify a volume created without a volume attribute class": CHANGES,
        "should modify a volume created with a volume attribute class": CHANGES,
        "should fail to modify a volume created with a volume attribute class if new mutable "
        "parameters are not supported by volume": CHANGES,
    },
    "ListSnapshots [Controller Server]": {
        "should return appropriate values (no optional values added)": SNAPSHOTS,
        "should return snapshots that match the specified snapshot id": SNAPSHOTS,
        "should return empty when the specified snapshot id does not exist": SNAPSHOTS,
        "should return snapshots that match the specified source volume id": SNAPSHOTS,
        "should return empty when the specified source volume id does not exist": SNAPSHOTS,
        "check the presence of new snapshots in the snapshot list": SNAPSHOTS,
        "should return next token when a limited number of entries are requested": SNAPSHOTS,
    },
    "GetSnapshot [Controller Server]": {
        "should return an error": SNAPSHOTS,
        "should return snapshot that match the specified snapshot id": SNAPSHOTS,
        "should return an error when the specified snapshot id does not exist": SNAPSHOTS,
    },
    "DeleteSnapshot [Controller Server]": {
        "should fail when no snapshot id is provided": SNAPSHOTS,
        "should succeed when an invalid snapshot id is used": SNAPSHOTS,
        "should return appropriate values (no optional values added)": SNAPSHOTS,
    },
    "CreateSnapshot [Controller Server]": {
        "should fail when no name is provided": SNAPSHOTS,
        "should fail when no source volume id is provided": SNAPSHOTS,
        "should succeed when requesting to create a snapshot with already existing name and same "
        "source volume ID": SNAPSHOTS,
        "should fail when requesting to create a snapshot with already existing name and different "
        "source volume ID": SNAPSHOTS,
        "should succeed when creating snapshot with maximum-length name": SNAPSHOTS,
        "should succeed when creating a snapshot with accessibility requirements": SNAPSHOTS,
    },
    "GroupController Service [GroupController Server] GroupControllerGetCapabilities": {
        "should return appropriate capabilities": GROUPS,
    },
    "GroupController Service [GroupController VolumeGroupSnapshots] CreateVolumeGroupSnapshot": {
        "should fail when no name is provided": GROUPS,
    },
    "GroupController Service [GroupController VolumeGroupSnapshots] GetVolumeGroupSnapshot": {
        "should fail when no volume id is provided": GROUPS,
        "should fail when an invalid volume id is used": GROUPS,
    },
    "GroupController Service [GroupController VolumeGroupSnapshots] DeleteVolumeGroupSnapshot": {
        "should fail when no volume id is provided": GROUPS,
        "should succeed when an invalid volume id is used": GROUPS,
    },
}


@dataclass(frozen=True)
class Kind:
    """A pool, the parameters of the StorageClass, and how pods have its volumes."""

    pool: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    access: Literal["mount", "block"] = "mount"


KINDS = [
    pytest.param(Kind({"backend": "image"}), id="image-ext4"),
    pytest.param(
        Kind({"backend": "image"}, {"fsType": "xfs"}),
        id="image-xfs",
        marks=pytest.mark.needs("xfs"),
    ),
    pytest.param(Kind({"backend": "image"}, access="block"), id="image-block"),
    pytest.param(
        Kind({"backend": "btrfs", "fs_type": "btrfs"}),
        id="btrfs",
        marks=pytest.mark.needs("btrfs"),
    ),
    pytest.param(Kind({"backend": "directory"}), id="directory"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_passes_that_is_not_left_out_with_a_reason(csi: CsiLab, kind: Kind) -> None:
    pool = csi.csi_pool(size=POOL, **kind.pool)
    csi.serve()
    found = sanity(csi, kind.parameters, access=kind.access, size=SIZE, grown=2 * SIZE)
    assert found.failed == {}, csi.log()[-25:]
    expected = {f"{where} {case}" for where, cases in SKIPPED.items() for case in cases}
    assert set(found.skipped) == expected
    assert len(found.passed) == CASES - len(expected)
    # It removes what it made, and so nothing of it is left here.
    assert mounted_below(csi.kubelet) == []
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))
