"""csi-sanity, the CSI authors' own suite, against the agent's socket: for each backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tests.cluster.support_csi import CsiLab, mounted_below, sanity
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane", "csi-sanity", "throttling")

SIZE = 320 * MIB
"""Of a volume; a new xfs takes at least 300 MiB."""
POOL = 6144 * MIB
"""Volumes of which nobody says a size have 1 GiB, and there are several at once."""

CASES = 102
"""csi-sanity 5.6 has so many that it runs."""

SHARES = "its volumes share a device, so reading and writing cannot be limited"
ATTACHING = "nothing is attached to a node: its disks are in it"
NEEDS_SNAPSHOT = "it cuts a snapshot"
NEEDS_CLONE = "it makes a clone"

# Why csi-sanity may leave cases out: by its own heading for them.
SKIPPED = {
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
}

# What a pool cannot do that does not copy volumes.
COPYING = {
    "Controller Service [Controller Server] CreateVolume": {
        "should create volume from an existing source snapshot": NEEDS_SNAPSHOT,
        "should create volume from an existing source volume": NEEDS_CLONE,
    },
    "ListSnapshots [Controller Server]": {
        "should return snapshots that match the specified snapshot id": NEEDS_SNAPSHOT,
        "should return snapshots that match the specified source volume id": NEEDS_SNAPSHOT,
        "check the presence of new snapshots in the snapshot list": NEEDS_SNAPSHOT,
        "should return next token when a limited number of entries are requested": NEEDS_SNAPSHOT,
    },
    "GetSnapshot [Controller Server]": {
        "should return snapshot that match the specified snapshot id": NEEDS_SNAPSHOT,
    },
    "DeleteSnapshot [Controller Server]": {
        "should return appropriate values (no optional values added)": NEEDS_SNAPSHOT,
    },
    "CreateSnapshot [Controller Server]": {
        "should succeed when requesting to create a snapshot with already existing name and same "
        "source volume ID": NEEDS_SNAPSHOT,
        "should fail when requesting to create a snapshot with already existing name and different "
        "source volume ID": NEEDS_SNAPSHOT,
        "should succeed when creating snapshot with maximum-length name": NEEDS_SNAPSHOT,
        "should succeed when creating a snapshot with accessibility requirements": NEEDS_SNAPSHOT,
    },
}

# What a pool cannot do whose volumes have no devices of their own.
LIMITING = {
    "Controller Service [Controller Server] CreateVolume": {
        "should create volume with a volume attribute class": SHARES,
    },
    "ModifyVolume [Controller Server]": {
        "should modify a volume created without a volume attribute class": SHARES,
        "should modify a volume created with a volume attribute class": SHARES,
        "should fail to modify a volume created with a volume attribute class if new mutable "
        "parameters are not supported by volume": SHARES,
    },
}


@dataclass(frozen=True)
class Kind:
    """A pool, the parameters of the StorageClass and of snapshots, and how pods have its volumes.

    `no_copies` is why the pool cannot copy volumes, and `no_limits` why it cannot limit reading and
    writing.
    """

    pool: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    access: Literal["mount", "block"] = "mount"
    no_copies: str = ""
    snapshots: dict[str, str] = field(default_factory=dict)
    no_limits: str = ""


KINDS = [
    pytest.param(
        Kind({"backend": "image"}, {"fullCopies": "allowed"}, snapshots={"fullCopies": "allowed"}),
        id="image-ext4",
    ),
    pytest.param(
        Kind(
            {"backend": "image"},
            {"fullCopies": "allowed"},
            access="block",
            snapshots={"fullCopies": "allowed"},
        ),
        id="image-ext4-block",
    ),
    pytest.param(
        Kind({"backend": "image", "fs_type": "xfs"}, {"fsType": "xfs"}),
        id="image-xfs",
        marks=pytest.mark.needs("xfs"),
    ),
    pytest.param(
        Kind({"backend": "image", "fs_type": "xfs"}, access="block"),
        id="image-block",
        marks=pytest.mark.needs("xfs"),
    ),
    pytest.param(
        Kind({"backend": "btrfs", "fs_type": "btrfs"}, no_limits=SHARES),
        id="btrfs",
        marks=pytest.mark.needs("btrfs"),
    ),
    pytest.param(
        Kind(
            {"backend": "directory"},
            no_copies="a directory is copied file by file",
            no_limits=SHARES,
        ),
        id="directory",
    ),
]


def named(cases: Mapping[str, Iterable[str]]) -> set[str]:
    """The whole names of cases that are told by their heading."""
    return {f"{where} {case}" for where, them in cases.items() for case in them}


@pytest.mark.parametrize("kind", KINDS)
def test_every_case_passes_that_is_not_left_out_with_a_reason(csi: CsiLab, kind: Kind) -> None:
    pool = csi.csi_pool(size=POOL, **kind.pool)
    csi.serve("--cgroup-dir=/sys/fs/cgroup")
    left_out = named(COPYING) if kind.no_copies else set()
    left_out |= named(LIMITING) if kind.no_limits else set()
    found = sanity(
        csi,
        kind.parameters,
        access=kind.access,
        size=SIZE,
        grown=2 * SIZE,
        leave_out=left_out,
        snapshots=kind.snapshots,
    )
    assert not found.failed, (found.failed_first, csi.log()[-25:])
    expected = named(SKIPPED) | left_out
    assert set(found.skipped) == expected
    assert len(found.passed) == CASES - len(expected)
    # It removes what it made, and so nothing of it is left here.
    assert mounted_below(csi.kubelet) == []
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))
