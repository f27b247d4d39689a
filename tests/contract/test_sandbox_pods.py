"""What the sandbox adds to a control plane: pods that run, because there are no kubelets."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localvolume_lab.sandbox import Sandbox
from tests.contract.support_api import ApiUnderTest, claim, pod, storage_class, volume
from tests.suite.api import CLASSES, NODES, VOLUMES


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with Sandbox() as sandbox:
        config = sandbox.kubeconfig(tmp_path / "config")
        async with ApiUnderTest("sandbox", sandbox.url, {}, False, "x", config) as under_test:
            yield under_test


async def node(api: ApiUnderTest, name: str, **spec: object) -> None:
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    await api.made(NODES, {"metadata": meta, "spec": spec, "status": status})


async def test_a_tenant_comes_and_goes(api: ApiUnderTest) -> None:
    mode = {"volumeBindingMode": "WaitForFirstConsumer"}
    await api.made(CLASSES, storage_class("fast", **mode))
    for name in "ab":
        await node(api, f"{name}-node")
        await api.made(VOLUMES, volume(name, storageClassName="fast"))
    await api.patch(f"{NODES}/a-node", {"spec": {"unschedulable": True}})
    await api.made(api.claims, claim("mine", "fast"))
    await api.made(api.pods, pod("tenant", "mine"))
    running = await api.in_phase(f"{api.pods}/tenant", "Running")
    assert running["spec"]["nodeName"] == "b-node"
    assert running["status"]["containerStatuses"][0]["ready"] is True
    assert (await api.now(f"{api.claims}/mine"))["spec"]["volumeName"] == "b"

    await api.delete(f"{api.claims}/mine")
    await api.delete(f"{api.pods}/tenant")
    await api.in_phase(f"{VOLUMES}/b", "Released")
    assert (await api.get(f"{api.pods}/tenant")).status == 404
    assert (await api.get(f"{api.claims}/mine")).status == 404


async def test_nodes_that_do_not_take_a_pod(api: ApiUnderTest) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    await node(api, "a-tainted", taints=[taint])
    await node(api, "b-cordoned", unschedulable=True)
    meta = {"name": "c-not-ready", "labels": {"disk": "fast"}}
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    await api.made(NODES, {"metadata": meta, "status": status})
    await api.made(api.pods, pod("any"))
    await api.made(api.pods, pod("picky", nodeSelector={"disk": "fast"}))
    tolerations = [{"key": "k", "operator": "Exists"}]
    await api.made(api.pods, pod("tolerant", tolerations=tolerations))
    tolerant = await api.in_phase(f"{api.pods}/tolerant", "Running")
    assert tolerant["spec"]["nodeName"] == "a-tainted"
    for name in ("any", "picky"):
        assert "nodeName" not in (await api.now(f"{api.pods}/{name}"))["spec"]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    await api.patch(f"{NODES}/c-not-ready/status", {"status": ready})
    for name in ("any", "picky"):
        found = await api.in_phase(f"{api.pods}/{name}", "Running")
        assert found["spec"]["nodeName"] == "c-not-ready"
    assert not (await api.now(f"{NODES}/c-not-ready"))["spec"].get("taints")


async def test_several_claims_need_several_volumes(api: ApiUnderTest) -> None:
    mode = {"volumeBindingMode": "WaitForFirstConsumer"}
    await api.made(CLASSES, storage_class("fast", **mode))
    await node(api, "a-node")
    await api.made(VOLUMES, volume("a", storageClassName="fast"))
    for name in ("one", "two"):
        await api.made(api.claims, claim(name, "fast"))
    await api.made(api.pods, pod("both", "one", "two"))
    body = volume("a", storageClassName="fast")
    body["metadata"]["name"] = "a2"
    await api.made(VOLUMES, body)
    await api.in_phase(f"{api.pods}/both", "Running")
    names = {
        (await api.now(f"{api.claims}/{name}"))["spec"]["volumeName"] for name in ("one", "two")
    }
    assert names == {"a", "a2"}


async def test_without_controllers_nothing_moves(tmp_path: Path) -> None:
    async with Sandbox(controllers=False) as sandbox:
        config = sandbox.kubeconfig(tmp_path / "config")
        async with ApiUnderTest("sandbox", sandbox.url, {}, False, "x", config) as api:
            await api.made(VOLUMES, volume("a"))
            await api.made(api.claims, claim("c", "a"))
            assert (await api.now(f"{VOLUMES}/a"))["status"]["phase"] == "Pending"
            deleted = await api.delete(f"{VOLUMES}/a")
            assert deleted.body["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
            assert (await api.get(f"{VOLUMES}/a")).status == 200


async def test_an_odd_pod_does_not_stop_the_others(
    api: ApiUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    odd = pod("odd", volumes=[{"name": "v", "persistentVolumeClaim": {}}])
    answer = await api.post(api.pods, odd)
    assert answer.status == 201
    await node(api, "a-node")
    await api.made(api.pods, pod("even"))
    await api.in_phase(f"{api.pods}/even", "Running")
    assert "Nodes on pods ('default', 'odd')" in caplog.text
    answer = await api.post(api.pods, {"metadata": {"name": "flat"}, "spec": []})
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
