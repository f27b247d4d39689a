"""kill -9 of the agent at each step of a clone: it is completed, once, and nothing is left over.

The claim that is cloned keeps its finalizer until then, and no longer.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_csi import CsiLab, csi_lab_for
from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_objects import Objects
from tests.faults.support_lives import Point, Zygote
from tests.suite.names import CSI
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "btrfs", "controlplane")

CLONING = "provisioner.storage.kubernetes.io/cloning-protection"

# The patches are those that add and remove the finalizer.
STEPS = (
    ("patch", 1),
    ("record-making", 1),
    ("btrfs-copy", 1),
    ("place", 1),
    ("record-made", 1),
    ("record-offered", 1),
    ("create", 1),
    ("record-offered", 2),
    ("patch", 2),
)
POINTS = [Point(kind, n, when) for kind, n in STEPS for when in ("before", "after")]

_SECONDS = 180.0
_PACES = {"dynamic": {"unwanted": 0.4, "first_wait": 0.2}}


class Clones:
    """A claim with content, and agents that clone it."""

    def __init__(self, lab: CsiLab) -> None:
        self.lab = lab
        self.pool: MadePool = lab.csi_pool(backend="btrfs", fs_type="btrfs", size=512 * MIB)
        self.cls = lab.storage_class("csi", provisioner=CSI)
        self.source = lab.claim(self.cls, size="16Mi")
        lab.configure()
        arguments = ["--config", str(lab.config_directory), "--csi"]
        environment = {
            "MY_NODE_NAME": lab.node,
            "KUBECONFIG": str(lab.plane.kubeconfig),
            "KUBELET_DIR": str(lab.kubelet),
            "RECORDS_DIR": str(lab.records),
        }
        arguments += ["--listen-address", "127.0.0.1:0"]
        self.zygote = Zygote(lab.directory, arguments, environment, _PACES)

    def place(self, claim: Claim) -> Path:
        return self.pool.directory / f"pvc-{claim['metadata']['uid']}"

    def clone(self) -> Claim:
        source = {"kind": "PersistentVolumeClaim", "name": self.source["metadata"]["name"]}
        return self.lab.claim(self.cls, size="16Mi", dataSource=source)

    def bound(self, claim: Claim) -> None:
        self.until(
            lambda: (self.lab.read_claim(claim) or {}).get("status", {}).get("phase"), "Bound"
        )

    def finalizers(self) -> list[str]:
        found = self.lab.read_claim(self.source)
        assert found is not None
        names: list[str] = found["metadata"]["finalizers"]
        return names

    def until(self, read: object, wanted: object) -> None:
        assert callable(read)
        until(read, lambda found: found == wanted, seconds=_SECONDS, said=self.log)

    def log(self) -> str:
        return self.zygote.log.read_text()[-6000:]

    def left(self, *claims: Claim) -> list[str]:
        """What there is in the pool but the volumes of these claims."""
        names = {f"pvc-{claim['metadata']['uid']}" for claim in claims}
        found = set(self.pool.inside()) ^ names
        found |= {name for name in self.pool.records() if name.removesuffix(".json") not in names}
        inner = self.pool.directory / ".localvolume"
        for what in ("making", "trash"):
            found |= set(os.listdir(inner / what)) if (inner / what).exists() else set()
        return sorted(found)


@pytest.fixture
def clones(control_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[Clones]:
    objects = Objects(control_plane)
    try:
        with csi_lab_for(objects, unique, tmp_path) as lab:
            made = Clones(lab)
            with made.zygote:
                yield made
    finally:
        objects.clean()


def test_killed_at_each_step_a_clone_is_made_once(clones: Clones) -> None:
    zygote, source = clones.zygote, clones.source
    zygote.start(hurried=True)
    clones.bound(source)
    (clones.place(source) / "file").write_text("content")
    zygote.kill(signal.SIGTERM)
    done = [source]
    for point in POINTS:
        clone = clones.clone()
        zygote.start(point, hurried=True)
        status = zygote.died(_SECONDS)
        assert status == -signal.SIGKILL, f"{point} was not come to: {clones.log()}"
        zygote.start(hurried=True)
        clones.bound(clone)
        assert (clones.place(clone) / "file").read_text() == "content", point
        done.append(clone)
        clones.until(lambda: CLONING in clones.finalizers(), False)
        clones.until(lambda: clones.left(*done), [])
        zygote.kill(signal.SIGTERM)
    (clones.place(done[1]) / "file").write_text("another")
    for claim in (source, *done[2:]):
        assert (clones.place(claim) / "file").read_text() == "content"


def test_what_was_begun_goes_with_a_claim_that_is_given_up(clones: Clones) -> None:
    """And the claim that was cloned is kept by it no longer."""
    zygote, source = clones.zygote, clones.source
    zygote.start(hurried=True)
    clones.bound(source)
    zygote.kill(signal.SIGTERM)
    for point in (Point("btrfs-copy", 1, "before"), Point("record-made", 1, "before")):
        clone = clones.clone()
        zygote.start(point, hurried=True)
        assert zygote.died(_SECONDS) == -signal.SIGKILL, clones.log()
        assert CLONING in clones.finalizers()
        assert clones.left(source) != []
        clones.lab.delete(clone)
        zygote.start(hurried=True)
        clones.until(lambda: clones.left(source), [])
        clones.until(lambda: CLONING in clones.finalizers(), False)
        zygote.kill(signal.SIGTERM)
