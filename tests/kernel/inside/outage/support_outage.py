"""A node that loses its power: what is on its disks, and what is known of it elsewhere."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

from localvolume.host.lvm.commands import Lvm
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import SnapshotLab
from tests.host.support_mounts import mount
from tests.kernel.inside.support_lvm_csi import LvmCsiLab
from tests.kernel.inside.support_lvm_dynamic import SandboxPlane
from tests.suite.units import MIB

#: The disk of the node's own files; the kubelet's directory is on it.
ROOT_DISK, ROOT = "/dev/ubda", Path("/run/node")
#: What is not on the node: the API server's objects, and what those who wrote know for certain.
ELSEWHERE = Path("/run/results")
OBJECTS = ELSEWHERE / "objects.json"
TOLD = ELSEWHERE / "told.json"

THICK, THICK_DISK = "vg1", "/dev/ubde"
THIN, THIN_DISK = "vg0", "/dev/ubdf"


SIZE = 64 * MIB
"""Of each volume."""
NOTED = 12 * MIB
"""Of the thick one is on record as copied; more of it is."""


class OutageLab(LvmCsiLab, SnapshotLab):
    """A lab on the node: pools `thick` and `thin`, each a volume group."""

    sandbox: SandboxPlane

    def kubelet_directory(self) -> Path:
        found = ROOT / "kubelet"
        found.mkdir(exist_ok=True)
        return found

    def pools(self) -> None:
        self.group(THICK, "thick")
        self.group(THIN, "thin", thinPool="pool")

    def names(self, group: str) -> set[str]:
        """The logical volumes that somebody has made, but for the thin pool."""
        return {one.name for one in self.lvm.volumes(group)} - {"pool"}


@contextmanager
def node_on(directory: Path, lvm: Lvm, kept: Path | None = None) -> Iterator[OutageLab]:
    """The node, with its disk mounted; `kept` are the objects that there are of it."""
    ROOT.mkdir()
    mount(ROOT_DISK, str(ROOT), "ext4")
    with ExitStack() as stack:
        plane = SandboxPlane(directory, kept)
        stack.callback(plane.stop)
        objects = Objects(cast("ControlPlane", plane))
        lab = stack.enter_context(OutageLab(objects, directory, lvm))
        lab.sandbox = plane
        yield lab


class Numbers:
    """Writes one number after the other to a file, and knows which are on disk."""

    def __init__(self, place: Path) -> None:
        self.last = 0
        """The last one that is on disk."""
        self._place = place
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        with self._place.open("a") as file:
            while True:
                number = self.last + 1
                file.write(f"{number}\n")
                file.flush()
                os.fsync(file.fileno())
                self.last = number


def numbers_in(place: Path) -> int:
    """How many numbers are there: each from 1 on, and none but the last half-written."""
    *lines, rest = place.read_text().split("\n")
    found = len(lines)
    assert lines == [str(number) for number in range(1, found + 1)]
    assert str(found + 1).startswith(rest)
    return found


def fill(place: Path) -> None:
    """Have most of a volume hold something, on disk."""
    with (place / "content").open("wb") as file:
        for piece in _pieces():
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def is_filled(place: Path) -> bool:
    """Whether it holds that, and nothing else in its stead."""
    with (place / "content").open("rb") as file:
        return all(file.read(len(piece)) == piece for piece in _pieces())


def _pieces() -> Iterator[bytes]:
    """The same in each boot, and no two are alike."""
    dice = random.Random(7)
    return (dice.randbytes(MIB) for _ in range(3 * SIZE // MIB // 4))


def tell(**facts: Any) -> None:
    """Note what is known of the node, where its power does not matter."""
    with TOLD.open("w") as file:
        json.dump(facts, file)
        file.flush()
        os.fsync(file.fileno())


def told() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TOLD.read_text())
    return found
