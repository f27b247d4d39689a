"""Nodes whose agents serve CSI, claims for copies, and pods for the real scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from localvolume.config.sources import Others
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_controller import Ground
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool, Volume
from tests.cluster.support_objects import Objects
from tests.cluster.support_scheduling import Cluster, node_of
from tests.cluster.support_snapshots import SNAPSHOTS, Snapshot, SnapshotLab
from tests.suite.api import CLAIMS
from tests.suite.names import CSI, NODE_LABEL
from tests.suite.units import MIB

SMALL, LARGE = 512 * MIB, 1024 * MIB
"""Sizes of pools: mkfs.btrfs makes none on a much smaller disk."""

CLONING = "provisioner.storage.kubernetes.io/cloning-protection"


class CopyCluster(Cluster):
    """As a Cluster, of nodes whose pools can cut snapshots: `node`, `storage_class`, `start`."""

    def __init__(self, ground: Ground, objects: Objects, unique: str, directory: Path) -> None:
        super().__init__(ground, objects, unique, directory)
        self.pools: dict[str, MadePool] = {}
        """By the node's name."""
        self.images = False
        """Whether pools are of images, in place of a btrfs, from now on."""
        self.images_on = "xfs"
        """The filesystem of such pools."""
        self.directories = False
        """Whether pools are of directories on an xfs, of which no size is enforced."""

    def __enter__(self) -> CopyCluster:
        return self

    def __exit__(self, *words: object) -> None:
        # The snapshot-controller lets a VolumeSnapshot go once its agent has removed the snapshot,
        # and no claim waits for it.
        for claim in self.plane.request("GET", CLAIMS)["items"]:
            if claim["spec"].get("storageClassName") in self._class_names:
                # One that the test has deleted may be gone by now.
                with contextlib.suppress(RequestFailed):
                    self.plane.request("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        for lab in self.labs.values():
            assert isinstance(lab, SnapshotLab)
            if lab.agent is not None:
                for snapshot in self.plane.request("GET", SNAPSHOTS)["items"]:
                    if snapshot["metadata"]["name"].startswith(lab.unique):
                        lab.take_away(snapshot)
        super().__exit__(*words)

    def node(self, letter: str, size: int | None = SMALL, **labels: str) -> SnapshotLab:
        """A node, not started, with a pool on a filesystem of that size."""
        directory = self._directory / letter
        directory.mkdir()
        lab = SnapshotLab(self.objects, f"{self.unique}-{letter}", directory)
        self._stack.enter_context(lab)
        lab.class_names = self._class_names
        lab.make_node({"test": self.unique, **labels})
        backend, fs_type = ("image", self.images_on) if self.images else ("btrfs", "btrfs")
        keys: dict[str, Any] = {}
        if self.directories:
            backend, fs_type, keys = "directory", "xfs", {"enforce": "none"}
        self.pools[lab.node] = lab.csi_pool(backend=backend, fs_type=fs_type, size=size, **keys)
        self.labs[lab.node] = lab
        return lab

    def storage_class(self, kind: str = "csi", *, waits: bool = True, **fields: Any) -> str:
        return super().storage_class(kind, waits=waits, **({"provisioner": CSI} | fields))

    def start(
        self,
        *labs: DynamicLab,
        provisioners: Sequence[str] = (),
        others: Mapping[str, Others] | None = None,
    ) -> None:
        assert not others
        for lab in labs or self.labs.values():
            assert isinstance(lab, SnapshotLab)
            lab.serve()
        self.start_controller(provisioners)

    # --- volumes, and what is in them ----------------------------------------------------------

    def used_on(self, lab: DynamicLab, class_name: str, size: int, **spec: Any) -> Claim:
        """A claim whose pod has been there: its volume is on that node."""
        self._count += 1
        name = f"{self.unique}-source-{self._count}"
        claim = lab.claim(class_name, size=str(size), node=None, name=name, **spec)
        pod = self.pod(claim, on=lab)
        self.is_on(claim, lab, pod)
        self.remove_pod(pod)
        return claim

    def copy(self, class_name: str, size: int, source: Claim | Snapshot, **spec: Any) -> Claim:
        """A claim for what a claim or a VolumeSnapshot has."""
        self._count += 1
        some = next(iter(self.labs.values()))
        meta = source["metadata"]
        named = {"kind": "PersistentVolumeClaim", "name": meta["name"]}
        if "persistentVolumeClaimName" in source["spec"].get("source", {}):
            named = {"kind": "VolumeSnapshot", "name": meta["name"]}
            named["apiGroup"] = "snapshot.storage.k8s.io"
        return some.claim(
            class_name,
            size=str(size),
            node=None,
            name=f"{self.unique}-copy-{self._count}",
            **({"dataSource": named} | spec),
        )

    def is_on(self, claim: Claim, lab: DynamicLab, pod: str = "") -> Path:
        """Where the claim's volume lies, once all agree that it is on that node: affinity, labels,
        the pool on its disk, and the pod, if there is one."""
        volume = self.bound(claim)
        assert node_of(volume) == lab.node
        assert volume["metadata"]["labels"][NODE_LABEL] == lab.node
        self.until(lambda: self.label(claim), lambda label: label == lab.node)
        if pod:
            assert self.placed(pod) == lab.node
        where = self.place_of(volume, lab)
        assert where.exists()
        return where

    def place_of(self, volume: Volume, lab: DynamicLab) -> Path:
        name: str = volume["spec"]["csi"]["volumeHandle"]
        pool = self.pools[lab.node].directory
        image = pool / ".localvolume" / "images" / f"{name}.img"
        return image if image.exists() else pool / name

    def finalizers(self, claim: Claim) -> list[str]:
        found: list[str] = self.now(claim)["metadata"].get("finalizers", [])
        return found


@contextlib.contextmanager
def copy_cluster_for(
    ground: Ground, objects: Objects, unique: str, directory: Path
) -> Iterator[CopyCluster]:
    with CopyCluster(ground, objects, unique, directory) as cluster:
        yield cluster
