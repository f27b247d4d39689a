"""A FlexVolume bound to its node against an API server that answers with conflicts: again, not for
ever, and written once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localvolume.flexvolume import protocol
from localvolume.flexvolume.binding import ATTEMPTS, Binding, Bound
from localvolume.flexvolume.protocol import Refused
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import ApiError
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES
from localvolume.kube.objects import Node, PersistentVolume
from localvolume.volumes import affinity, marks
from localvolume_lab.sandbox.sandbox import Sandbox

NODE, HOST = "node-1", "node-1.example"
PATH = "/var/lib/kubelet/pods/pod-1/volumes/volumes.k8s.elastic.co~elastic-local/pvc-1"


def manifest() -> dict[str, Any]:
    return {
        "metadata": {"name": "pvc-1", "labels": {"team": "red"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "flexVolume": {"driver": marks.ELASTIC_FLEX_DRIVER, "options": {"sizeBytes": "1"}},
            "claimRef": {"namespace": "ns", "name": "claim", "uid": "c-1"},
        },
    }


@dataclass
class Setting:
    sandbox: Sandbox
    client: Client
    binding: Binding

    async def bind(self) -> Bound:
        """As the first mount does."""
        target = protocol.read_target(PATH)
        asked = protocol.read_options({"sizeBytes": "9"}, target, fs_type="ext4")
        return await self.binding.bind(asked, target, fs_type="xfs")

    async def live(self) -> PersistentVolume:
        return await self.client.get(PERSISTENT_VOLUMES, "pvc-1")

    def patches(self) -> int:
        return sum(seen.verb == "patch" for seen in self.sandbox.requests)


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            labels = {marks.HOSTNAME_LABEL: HOST}
            node = await client.create(NODES, {"metadata": {"name": NODE, "labels": labels}})
            await client.create(PERSISTENT_VOLUMES, manifest())
            # There is no controller to bind it to its claim.
            bound = MergePatch({"status": {"phase": "Bound"}})
            await client.patch(PERSISTENT_VOLUMES, "pvc-1", bound, subresource="status")
            sandbox.requests.clear()

            async def asked() -> Node:
                return node

            binding = Binding(client, NODE, asked, lambda _: None)
            yield Setting(sandbox, client, binding)


async def test_a_stale_one_is_bound_and_a_bound_one_is_left(setting: Setting) -> None:
    """E-FV-16: `BindPVToNode`: stale -> updated, current -> untouched, missing -> an error.

    W-17: the affinity names the Node's hostname label, in whose place elastic wrote its name.
    """
    bound = (await setting.bind()).volume
    assert affinity.hostnames(affinity.required_terms(bound)) == {HOST}
    assert bound.metadata.labels == {
        "team": "red",
        marks.NODE_LABEL: NODE,
        marks.ELASTIC_NODE_LABEL: NODE,
    }
    again = (await setting.bind()).volume
    assert again.metadata.resource_version == bound.metadata.resource_version
    assert setting.patches() == 1
    await setting.client.delete(PERSISTENT_VOLUMES, "pvc-1", uid=bound.metadata.uid)
    with pytest.raises((ApiError, Refused)):
        await setting.bind()
    assert setting.patches() == 1


async def test_a_conflict_is_tried_again(setting: Setting) -> None:
    """E-FV-54: a later attempt succeeds, and it looked again before."""
    fault = setting.sandbox.faults.answer(409, verb="patch", reason="Conflict", times=2)
    bound = (await setting.bind()).volume
    assert (fault.hits, setting.patches()) == (2, 3)
    assert marks.FINALIZER in bound.metadata.finalizers


async def test_conflicts_without_end_end_in_words(setting: Setting) -> None:
    """E-FV-56: after so many failures it is given up, and what failed is said."""
    setting.sandbox.faults.answer(409, verb="patch", reason="Conflict", times=None)
    with pytest.raises(Refused, match="pvc-1 keeps changing: ask again"):
        await setting.bind()
    assert setting.patches() == ATTEMPTS
    assert marks.NODE_LABEL not in (await setting.live()).metadata.labels


async def test_the_volume_says_what_is_mounted_and_the_call_does_not(setting: Setting) -> None:
    asked = (await setting.bind()).asked
    assert (asked.size_bytes, asked.fs_type) == (1, "xfs")


async def test_one_whose_options_are_not_in_order_is_not_bound(setting: Setting) -> None:
    uid = (await setting.live()).metadata.uid
    await setting.client.delete(PERSISTENT_VOLUMES, "pvc-1", uid=uid)
    # pv-protection: there is no controller to take it off.
    nothing = MergePatch({"metadata": {"finalizers": None}})
    await setting.client.patch(PERSISTENT_VOLUMES, "pvc-1", nothing)
    wrong = manifest()
    wrong["spec"]["flexVolume"]["options"] = {"mountOptions": "noatime,bind"}
    await setting.client.create(PERSISTENT_VOLUMES, wrong)
    bound = MergePatch({"status": {"phase": "Bound"}})
    await setting.client.patch(PERSISTENT_VOLUMES, "pvc-1", bound, subresource="status")
    setting.sandbox.requests.clear()
    with pytest.raises(Refused, match="mountOptions: 'bind' is no mount option"):
        await setting.bind()
    assert setting.patches() == 0


async def test_to_a_node_without_a_hostname_nothing_is_bound(setting: Setting) -> None:
    """Its affinity would name nobody: the volume could be mounted anywhere."""
    patch = MergePatch({"metadata": {"labels": {marks.HOSTNAME_LABEL: None}}})
    await setting.client.patch(NODES, NODE, patch)
    setting.binding = Binding(
        setting.client, NODE, lambda: setting.client.get(NODES, NODE), lambda _: None
    )
    setting.sandbox.requests.clear()
    with pytest.raises(Refused, match=f"{NODE}' has no label {marks.HOSTNAME_LABEL}"):
        await setting.bind()
    assert setting.patches() == 0
