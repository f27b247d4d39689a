"""A bound volume of the kind `local` on a node whose agent serves CSI too, and the command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

from localvolume.cli.moving.act import Cluster
from localvolume.cli.moving.plan import next_step
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import LookAgain
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import Caller
from tests.cluster.support_dynamic import Claim, Volume
from tests.suite.api import MAPS, PODS
from tests.suite.names import CSI, HOSTNAME

CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
MOVED_FROM = "localvolume.dev/moved-from"


def register(lab: CsiLab) -> None:
    """What the node's kubelet writes once the driver is registered with it."""
    driver = {"name": CSI, "nodeID": lab.node, "topologyKeys": [HOSTNAME]}
    body = {"metadata": {"name": lab.node}, "spec": {"drivers": [driver]}}
    lab.objects.make(CSI_NODES, body)


class Moving:
    """One volume with a file in it: its claim, its object, and what is done to move it."""

    def __init__(self, lab: CsiLab, claim: Claim, volume: Volume) -> None:
        self.lab, self.claim, self.before = lab, claim, volume
        self.name: str = volume["metadata"]["name"]
        self.caller = Caller(lab.kubelet)
        # It is said to be bound before its claim names it, and until then it may not be moved.
        self.lab.until(
            lambda: self.lab.read_claim(self.claim),
            lambda found: found and found["status"]["phase"] == "Bound",
        )

    def command(self, *words: str, wait: float = 180.0) -> subprocess.CompletedProcess[str]:
        """The command as it is typed, with an end of its input."""
        argv = ["move-to-csi", self.name, "--release-namespace", "default", "--wait", str(wait)]
        return subprocess.run(
            [
                *(sys.executable, "-m", "localvolume", *argv, *words),
                *("--kubeconfig", str(self.lab.plane.kubeconfig)),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def row(self, done: subprocess.CompletedProcess[str]) -> str:
        """What the command says of the volume, behind its name, claim and node."""
        lines = [one for one in done.stdout.splitlines() if one.startswith(f"{self.name} ")]
        assert lines, done.stderr
        return " ".join(lines[-1].split()[3:])

    def steps(self, count: int) -> list[str]:
        """Do so many steps of the command and no more: as one that is killed after the last."""
        return asyncio.run(self._steps(count))

    async def _steps(self, count: int) -> list[str]:
        done: list[str] = []
        async with Client(find_access(str(self.lab.plane.kubeconfig)), user_agent="test") as client:
            cluster = Cluster(client, "default")
            serving = await cluster.serving()
            while len(done) < count:
                facts = await cluster.look(self.name, serving)
                step = next_step(facts)
                await cluster.do(facts, step)
                done.append(step.kind)
        return done

    def late(self) -> list[str]:
        """Do one step that another call has done since the look at what there is."""
        return asyncio.run(self._late())

    async def _late(self) -> list[str]:
        async with Client(find_access(str(self.lab.plane.kubeconfig)), user_agent="test") as client:
            cluster = Cluster(client, "default")
            serving = await cluster.serving()
            facts = await cluster.look(self.name, serving)
            step = next_step(facts)
            await cluster.do(facts, step)
            try:
                await cluster.do(facts, step)
            except LookAgain:
                return [step.kind]
        raise AssertionError("the later call wrote over it")

    def now(self) -> Volume | None:
        return self.lab.volume(self.name)

    def kept(self) -> list[str]:
        """The names of what was written down meanwhile."""
        return [one["metadata"]["name"] for one in self._notes()]

    def note(self) -> dict[str, Any]:
        """What was written down."""
        (found,) = self._notes()
        return found

    def _notes(self) -> list[dict[str, Any]]:
        found = self.lab.plane.request("GET", MAPS)["items"]
        return [one for one in found if one["metadata"]["name"].endswith(self.name)]

    def moved(self) -> Volume:
        """The volume once its agent has taken it over and its claim is bound again."""

        def is_moved(found: Volume | None) -> bool:
            return bool(
                found
                and "csi" in found["spec"]
                and MOVED_FROM not in found["metadata"]["annotations"]
                and found["status"].get("phase") == "Bound"
            )

        found = self.lab.until(self.now, is_moved)
        assert found is not None
        self.lab.until(
            lambda: self.lab.read_claim(self.claim),
            lambda claim: claim and claim["status"]["phase"] == "Bound",
        )
        return found

    def pod(self, name: str, **status: Any) -> None:
        """A pod that names the claim; no kubelet is here to start it."""
        claim = self.claim["metadata"]["name"]
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
        container = {"name": "one", "image": "none"}
        body = {
            "metadata": {"name": name},
            "spec": {"containers": [container], "volumes": [volume], "nodeName": self.lab.node},
        }
        self.lab.objects.make(PODS, body)

    def content(self) -> str:
        """What a pod of the driver reads."""
        place = self.caller.use(self.name)
        try:
            return (place / "rows").read_text()
        finally:
            self.caller.leave(self.name)
