"""kubectl, unchanged, against both servers."""

import asyncio
import json

import pytest

from tests.contract.support_api import (
    NAMESPACES,
    ApiUnderTest,
    Body,
    claim,
    kubectl,
    run_kubectl,
    storage_class,
    volume,
)
from tests.suite.api import CLASSES, NODES, VOLUMES
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("kubectl")


def typed(kind: str, body: Body, version: str = "v1") -> Body:
    return {"apiVersion": version, "kind": kind, **body}


async def test_apply_get_and_delete(api: ApiUnderTest) -> None:
    api.remember(f"{VOLUMES}/{api.unique}")
    body = typed("PersistentVolume", volume(api.unique, labels={"test": api.unique}))
    name = f"persistentvolume/{api.unique}"
    assert await kubectl(api, "apply", "-f", "-", given=body) == f"{name} created\n"
    assert await kubectl(api, "apply", "-f", "-", given=body) == f"{name} unchanged\n"
    body["spec"]["capacity"] = {"storage": "2Gi"}
    body["spec"]["mountOptions"] = ["noatime"]
    body["metadata"]["labels"] = {"test": api.unique, "more": "yes"}
    assert await kubectl(api, "apply", "-f", "-", given=body) == f"{name} configured\n"
    del body["metadata"]["labels"]["more"]
    del body["spec"]["mountOptions"]
    assert await kubectl(api, "apply", "-f", "-", given=body) == f"{name} configured\n"
    stored = await api.now(f"{VOLUMES}/{api.unique}")
    assert stored["metadata"]["labels"] == {"test": api.unique}
    assert stored["spec"]["capacity"] == {"storage": "2Gi"}
    assert "mountOptions" not in stored["spec"]

    async def available() -> bool:
        return "Available" in await kubectl(api, "get", "pv", api.unique)

    await until_async(available)
    header, row = (await kubectl(api, "get", "pv", "-l", f"test={api.unique}")).splitlines()
    columns = "NAME CAPACITY ACCESS MODES RECLAIM POLICY STATUS CLAIM STORAGECLASS"
    assert header.split() == [*columns.split(), "VOLUMEATTRIBUTESCLASS", "REASON", "AGE"]
    shown = [api.unique, "2Gi", "RWO", "Retain", "Available", api.unique, "<unset>"]
    assert row.split()[:-1] == shown
    wide = await kubectl(api, "get", "pv", api.unique, "-o", "wide", "--no-headers")
    assert wide.split()[-1] == "Filesystem"
    as_json = json.loads(await kubectl(api, "get", "pv", api.unique, "-o", "json"))
    assert as_json["metadata"]["uid"] == stored["metadata"]["uid"]

    # It waits until the object is gone.
    deleted = await kubectl(api, "delete", "pv", api.unique)
    assert deleted == f'persistentvolume "{api.unique}" deleted\n'
    absent = await run_kubectl(api, "get", "pv", api.unique)
    assert absent.status == 1
    assert absent.err == (
        f'Error from server (NotFound): persistentvolumes "{api.unique}" not found\n'
    )


async def test_describe(api: ApiUnderTest) -> None:
    made = await api.made(VOLUMES, volume(api.unique, labels={"a": "b"}))
    about = {
        "kind": "PersistentVolume",
        "name": api.unique,
        "uid": made["metadata"]["uid"],
        "apiVersion": "v1",
    }
    event = {
        "metadata": {"name": api.unique},
        "involvedObject": about,
        "type": "Warning",
        "reason": "VolumeHeld",
        "message": "somebody's",
        "source": {"component": "tester"},
        "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await api.made(api.events, event)
    said = await kubectl(api, "describe", "pv", api.unique)
    lines = [line.split() for line in said.splitlines()]
    assert ["Name:", api.unique] in lines
    assert ["Finalizers:", "[kubernetes.io/pv-protection]"] in lines
    assert ["Path:", f"/mnt/{api.unique}"] in lines
    assert ["Term", "0:", "kubernetes.io/hostname", "in", f"[{api.unique}-node]"] in lines
    [told] = [line for line in lines if "VolumeHeld" in line]
    assert told[0] == "Warning"
    assert told[-3:] == ["tester", "somebody's"] or told[-2:] == ["tester", "somebody's"]

    await api.made(api.claims, claim(api.unique, f"{api.unique}-none"))

    async def reason() -> bool:
        told = await kubectl(api, "-n", api.namespace, "describe", "pvc", api.unique)
        return "ProvisioningFailed" in told

    await until_async(reason, every=0.3)
    for kind, collection, body in (
        ("storageclass", CLASSES, storage_class(api.unique)),
        ("node", NODES, {"metadata": {"name": api.unique}}),
    ):
        await api.made(collection, body)
        assert api.unique in (await kubectl(api, "describe", kind, api.unique)).splitlines()[0]


async def test_create_label_annotate_patch(api: ApiUnderTest) -> None:
    # These two send protobuf whatever discovery says.
    assert await kubectl(api, "create", "namespace", api.unique) == (
        f"namespace/{api.unique} created\n"
    )
    api.remember(f"{NAMESPACES}/{api.unique}")
    api.namespace = api.unique
    where = ("-n", api.unique)
    await kubectl(api, *where, "create", "configmap", "cm", "--from-literal=a=b, c")
    assert (await api.now(f"{api.config_maps}/cm"))["data"] == {"a": "b, c"}
    again = await run_kubectl(api, *where, "create", "configmap", "cm")
    assert again.err == ('error: failed to create configmap: configmaps "cm" already exists\n')
    await kubectl(api, *where, "label", "cm", "cm", "x=y", "z=1")
    await kubectl(api, *where, "label", "cm", "cm", "z-")
    await kubectl(api, *where, "annotate", "cm", "cm", "note=two words")
    patch = '[{"op":"add","path":"/data/d","value":"e"}]'
    await kubectl(api, *where, "patch", "cm", "cm", "--type=json", "-p", patch)
    await kubectl(api, *where, "patch", "cm", "cm", "--type=merge", "-p", '{"data":{"a":null}}')
    stored = await api.now(f"{api.config_maps}/cm")
    assert stored["metadata"]["labels"] == {"x": "y"}
    assert stored["metadata"]["annotations"] == {"note": "two words"}
    assert stored["data"] == {"d": "e"}
    stored["data"] = {"new": "1"}
    await kubectl(api, *where, "replace", "-f", "-", given=typed("ConfigMap", stored))
    path = ("get", "cm", "cm", "-o", "jsonpath={.data.new}")
    assert await kubectl(api, *where, *path) == "1"
    listed = await kubectl(api, "get", "cm", "--all-namespaces", "-l", "x=y", "--no-headers")
    assert api.unique in listed
    names = await kubectl(api, *where, "get", "cm,pvc", "-o", "name")
    assert "configmap/cm" in names.splitlines()
    await kubectl(api, *where, "delete", "cm", "-l", "x=y")
    assert (await api.get(f"{api.config_maps}/cm")).status == 404


async def test_server_side_apply(api: ApiUnderTest) -> None:
    api.remember(f"{api.config_maps}/{api.unique}")
    body = typed("ConfigMap", {"metadata": {"name": api.unique}, "data": {"a": "b"}})
    where = ("-n", api.namespace)
    for data in ({"a": "b"}, {"a": "c"}):
        body["data"] = data
        said = await kubectl(api, *where, "apply", "--server-side", "-f", "-", given=body)
        assert said == f"configmap/{api.unique} serverside-applied\n"
        assert (await api.now(f"{api.config_maps}/{api.unique}"))["data"] == data


async def test_refusals_reach_the_person(api: ApiUnderTest) -> None:
    body = typed("PersistentVolume", volume(api.unique, accessModes=[]))
    said = await run_kubectl(api, "apply", "-f", "-", given=body)
    assert said.status == 1
    assert f'The PersistentVolume "{api.unique}" is invalid: spec.accessModes' in said.err
    body = typed("PersistentVolume", volume(api.unique))
    body["spec"]["locale"] = {}
    said = await run_kubectl(api, "apply", "-f", "-", given=body)
    assert 'unknown field "spec.locale"' in said.err
    assert (await api.get(f"{VOLUMES}/{api.unique}")).status == 404
    said = await run_kubectl(api, "get", "things")
    assert said.err == 'error: the server doesn\'t have a resource type "things"\n'


async def test_nodes(api: ApiUnderTest) -> None:
    await api.made(NODES, {"metadata": {"name": api.unique}})
    await kubectl(api, "taint", "node", api.unique, "k=v:NoSchedule")
    await kubectl(api, "cordon", api.unique)
    spec = (await api.now(f"{NODES}/{api.unique}"))["spec"]
    assert {"key": "k", "value": "v", "effect": "NoSchedule"} in spec["taints"]
    assert spec["unschedulable"] is True
    row = await kubectl(api, "get", "node", api.unique, "--no-headers")
    assert row.split()[1] == "Unknown,SchedulingDisabled"


async def _until_told(lines: asyncio.StreamReader, word: bytes) -> None:
    while word not in (line := await lines.readline()):
        assert line, "it watches no longer"


async def test_watch_and_wait(api: ApiUnderTest) -> None:
    await api.made(VOLUMES, volume(api.unique))
    arguments = ("get", "pv", api.unique, "--watch", "--no-headers")
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        f"--kubeconfig={api.kubeconfig}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(100):
            assert (await process.stdout.readline()).split()[0].decode() == api.unique
            waiting = asyncio.create_task(
                kubectl(
                    api,
                    "wait",
                    "pv",
                    api.unique,
                    "--for=jsonpath={.spec.persistentVolumeReclaimPolicy}=Delete",
                    "--timeout=90s",
                )
            )
            told = asyncio.create_task(_until_told(process.stdout, b"Delete"))
            while not told.done():
                # It prints nothing of what changes between its first look and its watch.
                for policy in ("Retain", "Delete"):
                    spec = {"persistentVolumeReclaimPolicy": policy}
                    await api.patch(f"{VOLUMES}/{api.unique}", {"spec": spec})
                await asyncio.wait([told], timeout=1)
            await told
            assert (await waiting).endswith("condition met\n")
    finally:
        process.kill()
        await process.wait()


async def test_what_it_learns_of_the_server(api: ApiUnderTest) -> None:
    said = await kubectl(api, "api-resources", "--no-headers")
    first = {line.split()[0] for line in said.splitlines()}
    assert {"persistentvolumes", "storageclasses", "jobs", "leases", "events"} <= first
    versions = json.loads(await kubectl(api, "version", "-o", "json"))
    version = (await api.get("/version")).body
    assert versions["serverVersion"]["gitVersion"] == version["gitVersion"]
    await kubectl(api, "get", "events", "--all-namespaces")
