"""The real kubelet, our client where the agent installed it, our daemon: pods on FlexVolumes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import RequestFailed
from localvolume_lab.controlplane.node import KubeletNode
from tests.cli.support_flexclient import built
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.node.conftest import Images
from tests.node.support_pods import pod_spec, pod_until, said_to_its_end, to_its_end
from tests.suite.api import CLAIMS, PODS, VOLUMES
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "flexclient")

DRIVER = "localvolume.dev/flexvolume"


class Ground:
    """An agent in the node that serves directories on the node's disk."""

    def __init__(self, node: KubeletNode, directory: Path) -> None:
        self.node = node
        self.root = directory / "volumes"
        self.root.mkdir()
        self._directory = directory
        self._config = directory / "config"
        self._config.mkdir()
        section = {
            "driver": "bindmount",
            "bindRoot": str(self.root),
            "pluginDirectory": str(node.plugin_directory),
            "client": str(built()),
            "gracePeriod": "0s",
        }
        (self._config / "flexvolume").write_text(json.dumps(section))
        self.agent: Program | None = None

    def start(self) -> None:
        argv = [sys.executable, "-m", "localvolume", "agent", "--config", str(self._config)]
        environment = {
            "KUBECONFIG": str(self.node.plane.kubeconfig),
            "MY_NODE_NAME": self.node.name,
        }
        argv += ["--listen-address", "127.0.0.1:0"]
        log = self._directory / "agent.log"
        self.agent = Program(self.node.enter(argv), environment, log)

    def stop(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            agent.stop()

    def logs(self) -> str:
        return (self._directory / "agent.log").read_text()[-4000:]


@pytest.fixture(scope="module")
def ground(
    kubelet_node: KubeletNode, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    made = Ground(kubelet_node, tmp_path_factory.mktemp("flexvolume"))
    made.start()
    try:
        yield made
    finally:
        made.stop()


class Tenant:
    """A FlexVolume PersistentVolume, its claim, and pods that use it one after the other."""

    def __init__(self, ground: Ground, objects: Objects, name: str) -> None:
        self.ground = ground
        self.objects = objects
        self.name = name
        self._pods = 0
        shared: dict[str, Any] = {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
        capacity = {"storage": "8Mi"}
        source = {"driver": DRIVER, "options": {"sizeBytes": str(8 << 20)}}
        spec = {
            **shared,
            "capacity": capacity,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": "default", "name": name},
            "flexVolume": source,
        }
        annotations = {"pv.kubernetes.io/provisioned-by": DRIVER}
        metadata = {"name": name, "annotations": annotations}
        objects.plane.request("POST", VOLUMES, {"metadata": metadata, "spec": spec})
        claim = {**shared, "volumeName": name, "resources": {"requests": capacity}}
        objects.make(CLAIMS, {"metadata": {"name": name}, "spec": claim})
        until(
            lambda: objects.get(f"{CLAIMS}/{name}"), lambda one: one["status"]["phase"] == "Bound"
        )

    def run(self, script: str, **security: Any) -> str:
        """What a pod with the volume at /data says, once it has succeeded and is gone."""
        name = self.begin(to_its_end(script), **security)
        try:
            self.wait(name, "Succeeded")
            return said_to_its_end(self.objects.plane, name)
        finally:
            self.end(name)

    def begin(self, script: str, **security: Any) -> str:
        self._pods += 1
        name = f"{self.name}-{self._pods}"
        spec = pod_spec(script, volumeMounts=[{"name": "data", "mountPath": "/data"}])
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": self.name}}]
        spec["nodeName"] = self.ground.node.name
        spec["securityContext"] = security
        self.objects.plane.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        return name

    def wait(self, name: str, phase: str) -> None:
        try:
            pod_until(self.objects, name, phase)
        except BaseException:
            sys.stderr.write(self.ground.logs())
            raise

    def end(self, name: str) -> None:
        self.objects.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 1})
        path = f"{PODS}?fieldSelector=metadata.name={name}"
        until(lambda: self.objects.get(path)["items"], lambda items: not items, seconds=150)

    def mounts(self) -> list[str]:
        """Where kubelet has the volume mounted in the node."""
        table = self.ground.node.run(["cat", "/proc/self/mountinfo"]).splitlines()
        root = str(self.ground.node.kubelet_root)
        points = [line.split()[4] for line in table]
        return [one for one in points if one.startswith(root) and one.endswith(f"/{self.name}")]

    def unmounted(self) -> None:
        until(self.mounts, lambda mounts: not mounts, seconds=150, said=self.ground.logs)

    def file(self, name: str) -> Path:
        return self.ground.root / self.name / name

    def forget(self) -> None:
        path = f"{VOLUMES}/{self.name}"
        with contextlib.suppress(RequestFailed):
            self.objects.plane.request("DELETE", f"{CLAIMS}/{self.name}")
        with contextlib.suppress(RequestFailed):
            self.objects.plane.request("DELETE", path)
        # The control plane is other tests' as well.
        until(self.is_there, lambda is_there: not is_there, seconds=150)

    def is_there(self) -> bool:
        try:
            self.objects.get(f"{VOLUMES}/{self.name}")
        except RequestFailed as error:
            if error.status == 404:
                return False
            raise
        return True


@pytest.fixture
def tenant(ground: Ground, objects: Objects, unique: str) -> Iterator[Tenant]:
    made = Tenant(ground, objects, unique)
    yield made
    made.forget()


def test_the_next_pod_reads_what_the_first_wrote(tenant: Tenant) -> None:
    assert tenant.run("ls -A /data; echo of red > /data/file && sync -f /data/file") == ""
    assert tenant.file("file").read_text() == "of red\n", "it is on the node's disk"
    tenant.unmounted()
    found = tenant.objects.get(f"{VOLUMES}/{tenant.name}")
    assert found["metadata"]["labels"]["localvolume.dev/node"] == tenant.ground.node.name
    (term,) = found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == [tenant.ground.node.name]
    assert tenant.run("cat /data/file") == "of red"
    tenant.unmounted()
    # The claim goes, the volume is deleted as our controller does, and its directory goes too.
    tenant.objects.plane.request("DELETE", f"{CLAIMS}/{tenant.name}")
    path = f"{VOLUMES}/{tenant.name}"
    until(lambda: tenant.objects.get(path)["status"]["phase"], lambda one: one == "Released")
    tenant.objects.plane.request("DELETE", path)
    file = tenant.file("file")
    until(lambda: not file.exists(), seconds=150, said=tenant.ground.logs)


def test_a_user_without_rights_writes_by_its_group(tenant: Tenant) -> None:
    said = tenant.run(
        "id -u; echo of 1000 > /data/file && cat /data/file",
        runAsUser=1000,
        runAsGroup=1000,
        fsGroup=2000,
    )
    assert said.splitlines() == ["1000", "of 1000"]
    assert tenant.file("file").stat().st_gid == 2000
    tenant.unmounted()


def test_it_goes_on_over_restarts_of_kubelet_and_agent(tenant: Tenant) -> None:
    name = tenant.begin("echo of red > /data/file; sleep 600")
    tenant.wait(name, "Running")
    until(tenant.file("file").exists, bool, seconds=90)
    tenant.ground.node.restart_kubelet()
    tenant.ground.stop()
    tenant.ground.start()
    tenant.wait(name, "Running")
    assert len(tenant.mounts()) == 1, "it was not mounted again over itself"
    tenant.end(name)
    tenant.unmounted()
    assert tenant.run("cat /data/file") == "of red"
    tenant.unmounted()


def test_a_pod_that_describes_the_volume_itself_gets_nothing(tenant: Tenant) -> None:
    """Inline, by the name of somebody's PersistentVolume."""
    assert tenant.run("echo of red > /data/file") == ""
    spec = pod_spec("cat /data/file", volumeMounts=[{"name": tenant.name, "mountPath": "/data"}])
    spec["volumes"] = [{"name": tenant.name, "flexVolume": {"driver": DRIVER}}]
    spec["nodeName"] = tenant.ground.node.name
    thief = f"{tenant.name}-thief"
    tenant.objects.make(PODS, {"metadata": {"name": thief}, "spec": spec})
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={thief}"
    until(
        lambda: tenant.objects.get(path)["items"],
        lambda items: any("does not use the claim" in one["message"] for one in items),
        seconds=150,
    )
    assert tenant.objects.get(f"{PODS}/{thief}")["status"]["phase"] == "Pending"
    tenant.end(thief)
