"""kill -9 of the agent at each step of a group of snapshots: all of it is there, or nothing is.

And the volumes that stood still for it go on, whatever happened to the agent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_csi import CsiLab, csi_lab_for
from tests.cluster.support_csicalls import UNANSWERED, Caller
from tests.cluster.support_objects import Objects
from tests.faults.support_lives import Point, Zygote
from tests.suite.units import GIB, MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane")

CUTTING = (
    ("record-making", 1),
    ("record-making", 2),
    ("image-cut", 1),
    ("image-cut", 2),
    ("record-made", 1),
    ("record-made", 2),
    ("record-offered", 1),
    ("record-offered", 2),
    ("answer", 1),
    ("answer", 3),
)
REMOVING = (
    ("image-trash", 1),
    ("record-removed", 1),
    ("image-trash", 2),
    ("record-removed", 2),
    ("answer", 2),
)

FREEZE, THAW = 0xC0045877, 0xC0045878

_SECONDS = 180.0
_PACES = {"dynamic": {"unwanted": 0.4, "first_wait": 0.2}}


class Groups:
    """Two volumes in use, and agents that cut them together."""

    def __init__(self, lab: CsiLab) -> None:
        self.lab = lab
        self.pool = lab.csi_pool(backend="image", fs_type="xfs", size=2 * GIB)
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
        self.caller = Caller(lab.kubelet)
        self.handles: list[str] = []
        self.places: list[Path] = []

    def begin(self) -> None:
        self.start()
        self.handles = [self.caller.create(f"volume-{one}", 16 * MIB) for one in "ab"]
        self.places = [self.caller.use(one) for one in self.handles]
        self.zygote.kill(signal.SIGTERM)

    def start(self, point: Point | None = None) -> None:
        # Of an agent that was killed.
        for socket in (self.lab.socket, self.lab.registration):
            socket.unlink(missing_ok=True)
        self.zygote.start(point, hurried=True)
        # It is there once the volumes are known.
        until(self.lab.registration.exists, bool, seconds=_SECONDS, said=self.log)

    def cut(self, name: str) -> Any:
        """The group. Raises UNANSWERED."""
        asked = {"name": name, "source_volume_ids": self.handles}
        return self._answer("CreateVolumeGroupSnapshot", **asked).group_snapshot

    def remove(self, group: Any) -> None:
        ids = [one.snapshot_id for one in group.snapshots]
        gone = {"group_snapshot_id": group.group_snapshot_id, "snapshot_ids": ids}
        self._answer("DeleteVolumeGroupSnapshot", **gone)

    def _answer(self, rpc: str, **fields: Any) -> Any:
        """As external-snapshotter: a call that is to be repeated is."""

        def answer() -> Any:
            try:
                return self.caller.call(rpc, **fields)
            except GRPCError as error:
                if error.status is Status.UNAVAILABLE:
                    return None
                raise

        return until(answer, lambda found: found is not None, seconds=_SECONDS, said=self.log)

    def dies(self, point: Point, deed: Any) -> None:
        """An agent dies at that point of what it is told to do."""
        self.start(point)
        with contextlib.suppress(*UNANSWERED):
            deed()
        status = self.zygote.died(_SECONDS)
        assert status == -signal.SIGKILL, f"{point} was not come to: {self.log()}"

    def all_go_on(self) -> None:
        """Nothing is frozen."""
        for place in self.places:
            until(lambda place=place: can_freeze(place), bool, seconds=_SECONDS)  # type: ignore[misc]

    def snapshots(self) -> set[str]:
        """The records and images of all but the volumes."""
        inner = self.pool.directory / ".localvolume"
        found = set(self.pool.records()) | set(os.listdir(inner / "images"))
        found |= set(self.pool.trash())
        return {name for name in found if not name.startswith(tuple(self.handles))}

    def until_there(self, wanted: set[str]) -> None:
        """Until those are there, and nothing else."""
        until(self.snapshots, lambda found: found == wanted, seconds=_SECONDS, said=self.log)

    def none_left(self) -> None:
        self.until_there(set())

    def log(self) -> str:
        return self.zygote.log.read_text()[-6000:]


def can_freeze(where: Path) -> bool:
    """Nobody has it frozen."""
    fd = os.open(where, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FREEZE, 0)
        fcntl.ioctl(fd, THAW, 0)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.fixture
def groups(control_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[Groups]:
    objects = Objects(control_plane)
    try:
        with csi_lab_for(objects, unique, tmp_path) as lab:
            made = Groups(lab)
            with made.zygote:
                made.begin()
                yield made
    finally:
        objects.clean()


def points(steps: tuple[tuple[str, int], ...]) -> list[Point]:
    return [Point(kind, n, when) for kind, n in steps for when in ("before", "after")]


def test_killed_at_each_step_a_group_is_cut_whole_by_the_next_call(groups: Groups) -> None:
    for number, point in enumerate(points(CUTTING)):
        name = f"group-{number}"
        groups.dies(point, lambda name=name: groups.cut(name))
        groups.all_go_on()
        groups.start()
        group = groups.cut(name)
        assert len(group.snapshots) == 2, point
        assert len({str(one.creation_time) for one in group.snapshots}) == 1, point
        ids = [one.snapshot_id for one in group.snapshots]
        wanted = {f"{one}.{what}" for one in ids for what in ("json", "img")}
        groups.until_there(wanted)
        groups.remove(group)
        groups.none_left()
        groups.zygote.kill(signal.SIGTERM)


def test_what_is_left_of_a_group_that_nobody_asks_for_again_goes_by_itself(
    groups: Groups,
) -> None:
    # Up to the last record that is made; from then on it is whole, and stays for its caller.
    for number, point in enumerate(points(CUTTING[:5])):
        name = f"group-{number}"
        groups.dies(point, lambda name=name: groups.cut(name))
        groups.start()
        groups.none_left()
        groups.all_go_on()
        groups.zygote.kill(signal.SIGTERM)


def test_killed_at_each_step_a_removal_is_completed_by_the_next_call(groups: Groups) -> None:
    for number, point in enumerate(points(REMOVING)):
        groups.start()
        group = groups.cut(f"group-{number}")
        groups.zygote.kill(signal.SIGTERM)
        groups.dies(point, lambda group=group: groups.remove(group))
        groups.start()
        groups.remove(group)
        groups.none_left()
        groups.zygote.kill(signal.SIGTERM)
