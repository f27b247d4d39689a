"""Upstream's documented life, whole: disks, agent, tenants, release, cleaning, the next tenant.

Everything is real: the pods run under kubelet, the agent is the chart's DaemonSet with our image
and the rights that it has anywhere, and the Jobs that clean are pods on the same node.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import RequestFailed
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_accounts import Caller, token
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import false_job
from tests.node.conftest import Images
from tests.node.support_life import apply, manifests, remove, tenant
from tests.suite.api import EVENTS, MERGE, VOLUMES
from tests.suite.names import HOSTNAME
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "image", "loop", "ext4")

DISKS = 3
SECONDS = 300


@dataclass
class Ground:
    """The node, its disks, and what a test asks of them."""

    node: KubeletNode
    objects: Objects
    name: str
    devices: list[str]
    installed: str = ""

    def install(self, text: str) -> None:
        self.installed = text
        apply(self.node.plane, text)

    def volumes(self) -> list[dict[str, Any]]:
        listed = self.objects.get(VOLUMES)["items"]
        return [one for one in listed if one["spec"].get("storageClassName") == self.name]

    def available(self, seconds: float = SECONDS) -> set[str]:
        """The UIDs of all the disks' PersistentVolumes, once each is Available."""
        found = until(
            lambda: {
                one["metadata"]["uid"]: one["status"].get("phase")
                for one in self.volumes()
                if "deletionTimestamp" not in one["metadata"]
            },
            lambda phases: list(phases.values()) == ["Available"] * DISKS,
            seconds=seconds,
        )
        return set(found)

    def run_tenant(self, name: str, mode: str, image: str) -> list[str]:
        """What each pod of a new tenant said that it found, once all have written."""
        body = tenant(name, self.name, image, mode=mode, replicas=DISKS)
        self.objects.make(f"/apis/apps/v1/namespaces/{self.name}/statefulsets", body)
        until(
            lambda: self.objects.get(
                f"/apis/apps/v1/namespaces/{self.name}/statefulsets/{name}"
            ).get("status", {}),
            lambda status: status.get("readyReplicas") == DISKS,
            seconds=SECONDS,
        )
        # A pod may be ready before what it has said is written.
        return [
            until(partial(self._said_by, f"{name}-{number}"), seconds=SECONDS)
            for number in range(DISKS)
        ]

    def _said_by(self, pod: str) -> str:
        return self.node.plane.kubectl("logs", "-n", self.name, pod).strip()

    @contextlib.contextmanager
    def stolen_from(self, node: str) -> Iterator[Caller]:
        """Whoever has the token of the agent's pod on another node, which no kubelet runs."""
        self.objects.node(node)
        pods = f"/api/v1/namespaces/{self.name}/pods"
        agents = self.objects.get(pods)["items"]
        (account,) = {one["spec"]["serviceAccountName"] for one in agents}
        container = {"name": "agent", "image": "none"}
        spec = {"nodeName": node, "serviceAccountName": account, "containers": [container]}
        pod = self.objects.make(pods, {"metadata": {"name": node}, "spec": spec})
        try:
            yield Caller(self.node.plane, token(self.node.plane, account, pod, self.name))
        finally:
            # No kubelet is there to see it end.
            self.node.plane.request("DELETE", f"{pods}/{node}?gracePeriodSeconds=0")

    def end_tenant(self, name: str) -> None:
        self.node.plane.kubectl("delete", "statefulset", "-n", self.name, name, "--wait=false")

    def completed_jobs(self) -> int:
        """How many Jobs ran to their end here, also those that were collected since."""
        listed = self.objects.get(f"/api/v1/namespaces/{self.name}/events")["items"]
        ended = [one for one in listed if one["involvedObject"]["kind"] == "Job"]
        return len([one for one in ended if one["reason"] == "Completed"])

    def receipts(self, volumes: set[str]) -> list[str]:
        """What the Events on these PersistentVolumes (UIDs) say of their cleaning."""
        listed = self.objects.get(EVENTS)["items"]
        cleaned = [one for one in listed if one["reason"] == "VolumeCleaned"]
        return [one["message"] for one in cleaned if one["involvedObject"]["uid"] in volumes]


@pytest.fixture
def ground(kubelet_node: KubeletNode, unique: str, tmp_path: Path) -> Iterator[Ground]:
    objects = Objects(kubelet_node.plane)
    devices: list[str] = []
    ground = None
    try:
        for number in range(DISKS):
            image = tmp_path / f"disk-{number}.img"
            with image.open("wb") as file:
                file.truncate(64 << 20)
            argv = ["losetup", "--find", "--show", str(image)]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            devices.append(done.stdout.strip())
        ground = Ground(kubelet_node, objects, unique, devices)
        yield ground
    finally:
        if ground is not None and ground.installed:
            remove(kubelet_node.plane, ground.installed)
            for volume in ground.volumes():
                path = f"/api/v1/persistentvolumes/{volume['metadata']['name']}"
                # No agent is left that would let it go.
                gone = {"metadata": {"finalizers": None}}
                # Another one's finalizer may have been the last.
                with contextlib.suppress(RequestFailed):
                    kubelet_node.plane.request("PATCH", path, gone, content_type=MERGE)
                objects.adopt(path)
        objects.clean()
        for device in devices:
            kubelet_node.run(["sh", "-c", f"umount {device} 2>/dev/null; true"])
            subprocess.run(["losetup", "--detach", device], check=False)


def prepare(ground: Ground, directory: Path, mode: str) -> None:
    """What an administrator does: a filesystem on each disk and its mount, or a link to it."""
    directory.mkdir()
    for number, device in enumerate(ground.devices):
        place = directory / f"disk-{number}"
        if mode == "Block":
            place.symlink_to(device)
            continue
        place.mkdir()
        subprocess.run(["mkfs.ext4", "-q", device], check=True, stdin=subprocess.DEVNULL)
        ground.node.run(["mount", device, str(place)])


@pytest.mark.parametrize(
    ("mode", "jobs"),
    [("Filesystem", False), ("Filesystem", True), ("Block", True)],
    ids=["in the agent", "in Jobs", "devices in Jobs"],
)
def test_the_next_tenant_finds_nothing(
    ground: Ground,
    provisioner_image: str,
    images: Images,
    tmp_path: Path,
    mode: str,
    jobs: bool,
) -> None:
    directory = tmp_path / "disks"
    prepare(ground, directory, mode)
    ground.install(manifests(ground.name, str(directory), mode=mode, jobs=jobs))
    first = ground.available()
    assert ground.run_tenant("red", mode, images.busybox) == ["found: nothing"] * DISKS
    assert {one["status"]["phase"] for one in ground.volumes()} == {"Bound"}
    ground.end_tenant("red")
    second = ground.available()
    assert not first & second, "each is offered as a new object"
    receipts = until(lambda: ground.receipts(first), lambda found: len(found) == DISKS)
    assert all(("delete-files" if mode == "Filesystem" else "zero") in text for text in receipts)
    assert all("proved" in text for text in receipts)
    # Their controller tells of them beside all else.
    wanted = DISKS if jobs else 0
    until(ground.completed_jobs, lambda ended: ended >= wanted)
    assert ground.completed_jobs() == wanted
    every_job = f"/apis/batch/v1/namespaces/{ground.name}/jobs"
    until(lambda: ground.objects.get(every_job)["items"], lambda left: not left, seconds=SECONDS)
    assert ground.run_tenant("blue", mode, images.busybox) == ["found: nothing"] * DISKS


def test_a_job_that_another_nodes_agent_has_named_keeps_nobody_from_cleaning(
    ground: Ground, provisioner_image: str, images: Images, tmp_path: Path, unique: str
) -> None:
    """E3 and E4: a node is lost to an attacker, who has its agent's token.

    With it Jobs can be made, but of that node, and of what the agent makes; by their names they
    stand in the way of what another node has to clean.
    """
    directory = tmp_path / "disks"
    prepare(ground, directory, "Filesystem")
    ground.install(manifests(ground.name, str(directory), mode="Filesystem", jobs=True))
    first = ground.available()
    jobs = f"/apis/batch/v1/namespaces/{ground.name}/jobs"
    attacker = f"{unique}-lost"
    of_the_job = [{"parallelism": 100000}]
    of_its_pod: list[dict[str, Any]] = [
        {"imagePullSecrets": [{"name": "registry"}]},
        {"hostPID": True},
        {"nodeSelector": {HOSTNAME: ground.node.name}},
    ]
    with ground.stolen_from(attacker) as caller:
        for changed in (*of_the_job, *of_its_pod):
            job = false_job(attacker, "cleanup-x", "x", provisioner_image)
            pod = job["spec"]["template"]["spec"]
            (job["spec"] if changed in of_the_job else pod).update(changed)
            # The API server puts each policy into force in its own time: not made until then.
            until(
                partial(caller.refusal, "POST", jobs, job),
                lambda refused: "denied request" in refused,
            )
            assert "denied request" in caller.refusal("POST", jobs, job, really=True), changed
        for uid in first:
            job = false_job(attacker, f"cleanup-{uid}", uid, provisioner_image)
            job["spec"]["suspend"] = True  # no kubelet would end its pod
            assert caller.refusal("POST", jobs, job, really=True) == ""
    assert ground.run_tenant("red", "Filesystem", images.busybox) == ["found: nothing"] * DISKS
    ground.end_tenant("red")
    assert not first & ground.available()
    taken = {one["metadata"]["name"] for one in ground.objects.get(jobs)["items"]}
    assert taken >= {f"cleanup-{uid}" for uid in first}
    receipts = until(lambda: ground.receipts(first), lambda found: len(found) == DISKS)
    assert all("proved" in text for text in receipts)
    assert ground.run_tenant("blue", "Filesystem", images.busybox) == ["found: nothing"] * DISKS
