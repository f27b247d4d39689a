"""The API server is away, or there and says nothing: the agent goes on and comes back by itself."""

import time
from pathlib import Path

import pytest

from tests.cluster.support_agent import Class, Lab, Volume
from tests.cluster.support_program import Program
from tests.faults.support_cleaner import Cleaner
from tests.host.support_devices import tmpfs

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

#: The agent's longest wait after a failed request is 15 s, an informer's 30 s; an informer of
#: kube-controller-manager, which has to let go of each volume too, waits for up to a minute.
BACK_SECONDS = 150.0


class Scene:
    """A node in the midst of everything: one volume bound, one being cleaned, one yet to come."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab = lab
        self.cleaner = Cleaner(directory)
        self.fs = lab.add_class("fs")
        self.raw = lab.add_class(
            "raw", volumeMode="Block", blockCleanerCommand=self.cleaner.command
        )
        self.kept = lab.mount(lab.disk(), self.fs.path("bound"))
        self.device = lab.raw_disk()
        lab.link(self.device, self.raw.path("device"))
        self.agent: Program = lab.start_process()
        lab.bound(lab.published(self.fs, "bound"))
        (self.kept / "secret").write_text("tenant")
        self.first: Volume = lab.published(self.raw, "device")
        claim = lab.bound(self.first)
        with open(self.device.path, "wb") as tenant:
            tenant.write(b"secret")
        lab.delete_claim(claim)
        self.cleaner.wait_for(["begun"])

    def new_disk(self) -> None:
        self.lab.mount(self.lab.disk(), self.fs.path("new"))

    def check(self) -> None:
        """Everything is as if the API server had never been away."""
        lab = self.lab
        lab.until(lambda: self.offers(self.fs, "new"), bool, BACK_SECONDS)
        lab.until(lambda: self.offers(self.raw, "device"), bool, BACK_SECONDS)
        assert [v["status"]["phase"] for v in lab.volumes_at(self.fs, "bound")] == ["Bound"]
        assert (self.kept / "secret").read_text() == "tenant"
        assert self.cleaner.record() == ["begun", "done"]
        with open(self.device.path, "rb") as device:
            assert device.read(6) == bytes(6)
        self.agent.check()
        cleaned = lab.event(self.first["metadata"]["name"], "VolumeCleaned")
        assert cleaned.get("count", 1) == 1
        lab.settle()
        assert len(lab.volumes()) == 3
        assert self.cleaner.record() == ["begun", "done"]

    def offers(self, cls: Class, entry: str) -> list[Volume]:
        """What the agent has published there since; the phase is the controllers' to set."""
        found = self.lab.volumes_at(cls, entry)
        return [v for v in found if v["metadata"]["uid"] != self.first["metadata"]["uid"]]

    def requests(self) -> float:
        """How many requests of the agent have ended so far, well or not."""
        status, text = self.lab.http("/metrics")
        assert status == 200
        return sum(
            float(line.split()[-1])
            for line in text.splitlines()
            if line.startswith("localvolume_api_requests_total{")
        )


def test_an_api_server_that_says_nothing(fragile_lab: Lab, tmp_path: Path) -> None:
    scene = Scene(fragile_lab, tmp_path)
    plane = fragile_lab.plane
    plane.pause()
    try:
        scene.new_disk()
        scene.cleaner.go()
        scene.cleaner.wait_for(["begun", "done"])
        time.sleep(10)
        assert fragile_lab.http("/healthz")[0] == 200
    finally:
        plane.resume()
    scene.check()


def test_an_api_server_that_dies_over_our_requests(fragile_lab: Lab, tmp_path: Path) -> None:
    """Frozen first, so that requests are under way when all connections are cut."""
    scene = Scene(fragile_lab, tmp_path)
    plane = fragile_lab.plane
    plane.pause()
    try:
        scene.new_disk()
        scene.cleaner.go()
        scene.cleaner.wait_for(["begun", "done"])
        time.sleep(1)
        plane.stop_apiserver(0)
    finally:
        plane.start_apiserver()
    scene.check()


def test_restarts_while_volumes_come(fragile_lab: Lab) -> None:
    lab = fragile_lab
    fs = lab.add_class("fs")
    names = [f"disk-{number}" for number in range(9)]
    agent = lab.start_process()
    for number, name in enumerate(names):
        fs.path(name).mkdir()
        lab.stack.enter_context(tmpfs(fs.path(name)))
        if number % 3 == 1:
            lab.plane.stop_apiserver(0)
        elif number % 3 == 2:
            lab.plane.start_apiserver()
    lab.until(lambda: len(lab.volumes()), lambda count: count == len(names), BACK_SECONDS)
    lab.settle()
    agent.check()
    found = [v["spec"]["local"]["path"] for v in lab.volumes()]
    assert sorted(found) == sorted(fs.host_path(name) for name in names)


# The last one: after a minute the controllers themselves take long to come back.
@pytest.mark.soak
def test_an_api_server_that_is_away_for_a_minute(fragile_lab: Lab, tmp_path: Path) -> None:
    scene = Scene(fragile_lab, tmp_path)
    plane = fragile_lab.plane
    plane.stop_apiserver(0)
    try:
        since = time.monotonic()
        before = scene.requests()
        scene.new_disk()
        scene.cleaner.go()
        # Cleaning does not wait for the API server: only telling of it does.
        scene.cleaner.wait_for(["begun", "done"])
        while (left := since + 60 - time.monotonic()) > 0:
            time.sleep(min(5.0, left))
            assert fragile_lab.http("/healthz")[0] == 200
            scene.agent.check()
        # Three informers, two volumes, some Events: each a few times a minute, no storm.
        assert scene.requests() - before < 90
    finally:
        plane.start_apiserver()
    scene.check()
