"""`localvolume undo`: what it says of a name that is not there, and which volumes it offers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.cli.main import main
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume_lab.sandbox import Sandbox
from tests.suite.names import NODE_LABEL

KEPT = "localvolume.dev/kept-until"
UNTIL = "2026-03-01T12:00:00Z"


class Cluster:
    """A server without controllers: what is Released stays so."""

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self.client, self.kubeconfig = client, kubeconfig

    async def volume(
        self, name: str, *, phase: str = "Released", policy: str = "Delete", **meta: Any
    ) -> None:
        body = {
            "metadata": {"name": name, "labels": {NODE_LABEL: "node-1"}, **meta},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "persistentVolumeReclaimPolicy": policy,
                "local": {"path": f"/mnt/{name}"},
                "claimRef": {"namespace": "shop", "name": "data", "uid": "u-1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [TERM]}]}},
            },
        }
        annotations = body["metadata"].setdefault("annotations", {})
        annotations["pv.kubernetes.io/provisioned-by"] = "dynamic.localvolume.dev"
        await self.client.create(PERSISTENT_VOLUMES, body)
        await self.client.patch(
            PERSISTENT_VOLUMES, name, MergePatch({"status": {"phase": phase}}), subresource="status"
        )

    async def undo(self, *words: str) -> int:
        return await asyncio.to_thread(main, ["undo", *words, "--kubeconfig", str(self.kubeconfig)])


TERM = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Sandbox(controllers=False) as sandbox:
        kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")
        async with Client(find_access(str(kubeconfig)), user_agent="test") as client:
            yield Cluster(client, kubeconfig)


async def test_a_name_that_is_not_there(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.volume("pvc-1", annotations={KEPT: f"{UNTIL} u-1"})
    await cluster.volume("db-2", policy="Retain")
    await cluster.volume("db-3")
    await cluster.volume("pvc-bound", phase="Bound")
    await cluster.volume("pvc-prepared", labels={})
    assert await cluster.undo("pvc-11") == 1
    said = capsys.readouterr()
    assert said.out == ""
    complaint, titles, *rows = (" ".join(line.split()) for line in said.err.splitlines())
    assert complaint == (
        "localvolume undo: there is no PersistentVolume pvc-11: it was removed, or never existed; "
        "did you mean pvc-1?"
    )
    assert titles == "PV CLASS CLAIM KEPT UNTIL"
    assert rows == [
        f"pvc-1 fast shop/data {UNTIL}",
        "db-3 fast shop/data not known",
        "db-2 fast shop/data you delete it (policy Retain)",
    ]


async def test_without_a_name_it_lists_what_can_be_brought_back(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await cluster.undo() == 0
    assert capsys.readouterr().out == "no volume can be brought back: none waits to be removed\n"
    await cluster.volume("pvc-1", annotations={KEPT: f"{UNTIL} u-1"})
    assert await cluster.undo() == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines()[1].split() == ["pvc-1", "fast", "shop/data", UNTIL]


async def test_a_volume_that_is_in_use_is_not_undone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    await cluster.volume("pvc-bound", phase="Bound")
    assert await cluster.undo("pvc-bound") == 1
    assert capsys.readouterr().err == (
        "localvolume undo: pvc-bound is Bound: there is nothing to undo\n"
    )
