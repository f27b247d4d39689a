"""kill -9 of the agent at each step of a CSI volume's life: a repeated call gets its result, and
nothing is lost, leaked, mounted twice or handed on.

One volume after the other is made, grown, mounted, written to, unmounted and removed, as the
kubelet and external-provisioner do it: a call that is not answered is repeated until it is. Each
agent has a point at which it kills itself (zygote.py); the next one goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from localvolume.host.mount.mounts import Mount
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import UNANSWERED, Caller
from tests.cluster.support_dynamic import Claim
from tests.cluster.support_inline import inline_pod
from tests.faults.support_lives import Point, Zygote
from tests.faults.support_poolground import MadePool
from tests.host.support_devices import unmount
from tests.suite import speed
from tests.suite.names import CSI
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

T = TypeVar("T")

#: In the order in which a volume's life comes to them; the number counts within one agent's life.
_OF_CALLS = (
    ("record-making", 1),
    ("image-make", 1),
    ("loop", 1),
    ("record-made", 1),
    ("record-offered", 1),
    ("answer", 1),
    ("image-grow", 1),
    ("new-mount", 1),
    ("put-mount", 1),
    ("target", 1),
    ("clone-mount", 1),
    ("put-mount", 2),
    ("unmount", 1),
    ("untarget", 1),
    ("unmount", 3),
    ("image-trash", 1),
    ("unloop", 1),
    ("record-removed", 1),
    ("image-purge", 1),
    ("unrecord", 1),
)
_OF_CLAIMS = (
    ("record-made", 1),
    ("record-offered", 1),
    ("create", 1),
    ("record-offered", 2),
    ("put-mount", 1),
    ("image-grow", 1),
    ("patch", 1),
    ("patch", 2),
    ("delete", 1),
    ("image-trash", 1),
    ("record-removed", 1),
    ("patch", 3),
)
#: Of a volume that grows under its pod: the last two are met once it has grown without an answer.
_OF_GROWTH = (
    ("allocate", 1),
    ("capacity", 1),
    ("grow-xfs", 1),
    ("image-grow", 1),
    ("record-offered", 1),
    ("answer", 2),
)
#: Of a pod's own volume: it is made and mounted by one call, and taken away by another.
_OF_PODS = (
    ("record-making", 1),
    ("image-make", 1),
    ("loop", 1),
    ("record-made", 1),
    ("record-offered", 1),
    ("answer", 1),
    ("target", 1),
    ("new-mount", 1),
    ("put-mount", 1),
    ("unmount", 1),
    ("untarget", 1),
    ("image-trash", 1),
    ("unloop", 1),
    ("record-removed", 1),
    ("answer", 2),
    ("image-purge", 1),
    ("unrecord", 1),
)
_WRITTEN = "rows"
_SIZE, _GROWN = 16 * MIB, 24 * MIB
#: As many volumes may live as it takes to come to each point once.
_MOST_LIVES = 12
#: What the kubelet and external-provisioner repeat a call for.
_AGAIN = (Status.UNAVAILABLE, Status.ABORTED)
_PATIENCE = 90.0
_HURRIED = {"dynamic": {"unwanted": 0.4, "first_wait": 0.2}}


class Lives:
    """Agents that die one after the other, each at the next of the points."""

    def __init__(self, zygote: Zygote, kinds: tuple[tuple[str, int], ...]) -> None:
        self._zygote = zygote
        # One that has none of them left lives on.
        self._points = [Point(kind, n, when) for kind, n in kinds for when in ("before", "after")]
        self._left = list(self._points)
        self._begin()

    @property
    def are_over(self) -> bool:
        return not self._left

    def _begin(self) -> None:
        self._zygote.start(self._left[0] if self._left else None, hurried=True)

    def look(self) -> None:
        """Have the next agent live if this one has died, which only its point may make it do."""
        if (status := self._zygote.died(0)) is None:
            return
        assert self._left, f"it ended with {status}:\n{self._log()}"
        assert status == -signal.SIGKILL, f"{self._left[0]} ended with {status}:\n{self._log()}"
        self._left.pop(0)
        self._begin()

    def check_each_met(self) -> None:
        """Agents have died at each point, and only there."""
        met = Counter(self._zygote.hits.read_text().splitlines())
        assert met == Counter(f"{point.when} {point.kind}" for point in self._points)

    def until_killed(self, do: Callable[[], object]) -> None:
        """Repeat a call until it has led an agent to its point."""

        def killed() -> bool:
            with contextlib.suppress(GRPCError, *UNANSWERED):
                do()
            return (status := self._zygote.died(0)) is not None and status == -signal.SIGKILL

        until(killed)

    def insist(self, do: Callable[[], T]) -> T:
        """Repeat a call until it is answered, whoever answers it."""
        deadline = time.monotonic() + _PATIENCE * speed.factor()
        while True:
            try:
                answer = do()
            except GRPCError as error:
                if error.status not in _AGAIN or time.monotonic() > deadline:
                    raise
            except UNANSWERED:
                if time.monotonic() > deadline:
                    raise
            else:
                self.look()
                return answer
            time.sleep(0.03)
            self.look()

    def until(self, read: Callable[[], T], wanted: Callable[[T], object] = bool) -> T:
        return until(read, wanted, check=self.look, said=self._log)

    def _log(self) -> str:
        return self._zygote.log.read_text()[-5000:]


class Stage:
    """A node with one pool of images, and its disk as it is."""

    def __init__(self, lab: CsiLab, zygote: Zygote, kinds: tuple[tuple[str, int], ...]) -> None:
        self.lab = lab
        self.caller = Caller(lab.kubelet)
        self.disk = MadePool(lab.made_pools[-1].directory)
        self.lives = Lives(zygote, kinds)

    def mounted(self, handle: str) -> list[Mount]:
        """The volume's mounts; it has no other, and one device."""
        found = list(self.caller.mounts())
        assert len({one.device for one in found}) <= 1, found
        places = [one.mount_point for one in found]
        assert len(set(places)) == len(places), places
        assert {*places} <= {str(self.caller.staging(handle)), str(self.caller.target(handle))}
        return found

    def use(self, handle: str) -> Path:
        """Mount it for a pod; returns where that has it."""
        caller, insist = self.caller, self.lives.insist
        insist(partial(caller.stage, handle))
        assert len(self.mounted(handle)) == 1
        place = insist(partial(caller.publish, handle))
        assert len(self.mounted(handle)) == 2
        return place

    def leave(self, handle: str) -> None:
        caller, insist = self.caller, self.lives.insist
        insist(partial(caller.unpublish, handle))
        assert not os.path.lexists(caller.target(handle))
        assert len(self.mounted(handle)) == 1
        insist(partial(caller.unstage, handle))
        assert not self.mounted(handle)

    def write(self, handle: str) -> None:
        """As its first pod, which must find it empty."""
        place = self.use(handle)
        assert set(os.listdir(place)) == {"lost+found"}
        (place / "file").write_text(f"{_WRITTEN} of {handle}")
        self.leave(handle)

    def read(self, handle: str, size: int) -> None:
        """As a later pod: all is there, in a filesystem of that size."""
        place = self.use(handle)
        assert (place / "file").read_text() == f"{_WRITTEN} of {handle}"
        found = os.statvfs(place)
        assert found.f_blocks * found.f_frsize > size * 3 // 4
        self.leave(handle)

    def is_alone(self, handle: str) -> None:
        """The pool has that volume, once, and nothing else, when all has come to an end."""
        self.lives.until(self._there, lambda found: found == _all_of(handle))

    def is_empty(self) -> None:
        self.lives.until(self._there, lambda found: found == _all_of())

    def _there(self) -> dict[str, list[str]]:
        return {
            "records": sorted(self.disk.records()),
            "images": sorted(self.disk.images()),
            "loops": self.disk.loops(),
            "links": sorted(self.disk.links()),
            "leftovers": self.disk.leftovers(),
        }


def _all_of(*handles: str) -> dict[str, list[str]]:
    parts = ("records", "images", "loops", "links")
    return {**{part: list(handles) for part in parts}, "leftovers": []}


@pytest.fixture
def zygote(csi: CsiLab, tmp_path: Path) -> Iterator[Zygote]:
    limits = {"largest": "16Mi", "total": "64Mi"}
    csi.csi_pool(backend="image", size=256 * MIB, inline=limits)
    csi.configure()
    where = str(csi.config_directory)
    arguments = ["--csi", "--config", where, "--listen-address", "127.0.0.1:0"]
    environment = {
        "MY_NODE_NAME": csi.node,
        "KUBECONFIG": str(csi.plane.kubeconfig),
        "KUBELET_DIR": str(csi.kubelet),
        "RECORDS_DIR": str(csi.records),
    }
    with Zygote(tmp_path, arguments, environment, _HURRIED) as made:
        yield made


def test_a_volume_of_calls(csi: CsiLab, zygote: Zygote) -> None:
    stage = Stage(csi, zygote, _OF_CALLS)
    caller, insist = stage.caller, stage.lives.insist
    for number in range(_MOST_LIVES):
        name = f"volume-{number}"
        handle = insist(partial(caller.create, name, _SIZE))
        assert insist(caller.listed) == [handle]
        stage.write(handle)
        insist(partial(caller.grow, handle, _GROWN))
        stage.read(handle, _GROWN)
        stage.is_alone(handle)
        insist(partial(caller.delete, handle))
        assert insist(caller.listed) == []
        stage.is_empty()
        if stage.lives.are_over:
            break
    stage.lives.check_each_met()


@pytest.mark.parametrize("kind", ["image-make", "record-made", "record-offered"])
def test_what_a_call_began_that_nobody_repeats_is_taken_away(
    csi: CsiLab, zygote: Zygote, kind: str
) -> None:
    """external-provisioner was started anew, and the claim is gone."""
    stage = Stage(csi, zygote, ())
    zygote.kill()
    zygote.start(Point(kind, 1), hurried=True)
    stage.lives.until_killed(partial(stage.caller.create, "forgotten", _SIZE))
    assert stage.disk.records()
    zygote.start(hurried=True)
    stage.is_empty()
    # And it can be asked for after all.
    assert stage.lives.insist(partial(stage.caller.create, "forgotten", _SIZE)) == "forgotten"


def test_a_volume_of_claims(csi: CsiLab, zygote: Zygote) -> None:
    cls = csi.storage_class(provisioner=CSI)
    stage = Stage(csi, zygote, _OF_CLAIMS)
    for _ in range(_MOST_LIVES):
        claim = csi.claim(cls, size=f"{_SIZE // MIB}Mi")
        handle = f"pvc-{claim['metadata']['uid']}"
        stage.lives.until(partial(csi.phase, handle), lambda found: found == "Bound")
        stage.write(handle)
        csi.grow(claim, f"{_GROWN // MIB}Mi")
        stage.lives.until(partial(_capacity, csi, claim), lambda has: has == "24Mi")
        stage.read(handle, _GROWN)
        stage.is_alone(handle)
        csi.delete(claim)
        stage.lives.until(partial(csi.phase, handle), lambda found: not found)
        stage.is_empty()
        if stage.lives.are_over:
            break
    stage.lives.check_each_met()


@pytest.mark.needs("xfs")
def test_a_volume_that_the_kubelet_grows(csi: CsiLab, zygote: Zygote) -> None:
    """While it is mounted: of xfs, as an ext4 then takes a capability that tests may lack."""
    csi.settings["pools"] = {}
    csi.csi_pool("large", backend="image", size=1024 * MIB)
    csi.configure()
    stage = Stage(csi, zygote, _OF_GROWTH)
    caller, insist = stage.caller, stage.lives.insist
    size, grown = 320 * MIB, 384 * MIB
    more = {"parameters": {"fsType": "xfs"}}
    for number in range(_MOST_LIVES):
        wanted = {**caller.wanted(f"volume-{number}", size), **more}
        handle = insist(partial(caller.call, "CreateVolume", **wanted)).volume.volume_id
        place = stage.use(handle)
        (place / "file").write_text(f"{_WRITTEN} of {handle}")
        expand = partial(
            caller.call,
            "NodeExpandVolume",
            volume_id=handle,
            volume_path=str(place),
            staging_target_path=str(caller.staging(handle)),
            capacity_range={"required_bytes": grown},
        )
        assert insist(expand).capacity_bytes == grown
        # What was mounted before is what has grown, and it is mounted nowhere else.
        assert len(stage.mounted(handle)) == 2
        found = os.statvfs(place)
        assert found.f_blocks * found.f_frsize > (size + grown) // 2
        assert (place / "file").read_text() == f"{_WRITTEN} of {handle}"
        stage.is_alone(handle)
        stage.leave(handle)
        insist(partial(caller.delete, handle))
        stage.is_empty()
        if stage.lives.are_over:
            break
    stage.lives.check_each_met()


def test_a_pods_own_volume(csi: CsiLab, zygote: Zygote, unique: str) -> None:
    stage = Stage(csi, zygote, _OF_PODS)
    insist = stage.lives.insist
    for number in range(_MOST_LIVES):
        name = f"{unique}-{number}"
        pod = inline_pod(csi.objects, stage.caller, csi.node, name, size="16Mi")
        place = insist(pod.publish)
        assert set(os.listdir(place)) == {"lost+found"}
        (place / "file").write_text(_WRITTEN)
        assert (insist(pod.publish) / "file").read_text() == _WRITTEN
        assert [one.mount_point for one in stage.caller.mounts()] == [str(pod.target)]
        stage.is_alone(pod.handle)
        insist(pod.unpublish)
        assert not os.path.lexists(pod.target)
        stage.is_empty()
        if stage.lives.are_over:
            break
    stage.lives.check_each_met()


@pytest.mark.parametrize(("kind", "n"), [("put-mount", 1), ("unmount", 1), ("untarget", 1)])
def test_a_pods_own_volume_whose_pod_is_gone_before_the_next_agent(
    csi: CsiLab, zygote: Zygote, unique: str, kind: str, n: int
) -> None:
    """It was deleted by force, and its directory with it: nobody repeats the call."""
    stage = Stage(csi, zygote, ())
    zygote.kill()
    zygote.start(Point(kind, n), hurried=True)
    pod = inline_pod(csi.objects, stage.caller, csi.node, unique, size="16Mi")

    def live() -> None:
        pod.publish()
        pod.unpublish()

    stage.lives.until_killed(live)
    assert stage.disk.records()
    pod.delete()
    if stage.caller.mounts():
        unmount(pod.target)
    shutil.rmtree(stage.caller.kubelet / "pods" / pod.uid)
    zygote.start(hurried=True)
    stage.is_empty()


def _capacity(lab: CsiLab, claim: Claim) -> str:
    found = lab.read_claim(claim)
    assert found is not None
    return str(found["status"].get("capacity", {}).get("storage", ""))
