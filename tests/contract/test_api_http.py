"""The protocol around the objects: paths, methods, media types, discovery, tables."""

import pytest

from localvolume_lab.controlplane.assets import kubernetes_version
from localvolume_lab.sandbox.http.discovery import VERSION
from tests.contract.support_api import TABLE, ApiUnderTest, claim, storage_class, volume
from tests.suite.api import CLASSES, NODES, VOLUMES
from tests.suite.units import MIB


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_health(api: ApiUnderTest, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.body) == (200, "ok")


@pytest.mark.parametrize("path", ["/none", "/apis/none.example.com/v1/things"])
async def test_paths_of_nobody(api: ApiUnderTest, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.body) == (404, "404 page not found\n")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/things",
        "/apis/storage.k8s.io/v1/things",
        f"{VOLUMES}/x/things",
        "/api/v1/namespaces/default/things",
        "/api/v1/namespaces/default/configmaps/x/status",
        "/api/v1/namespaces/default/persistentvolumes",
    ],
)
async def test_resources_of_nobody(api: ApiUnderTest, path: str) -> None:
    answer = await api.get(path)
    assert (answer.status, answer.body["reason"]) == (404, "NotFound")
    assert answer.body["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", VOLUMES),
        ("PATCH", VOLUMES),
        ("POST", f"{VOLUMES}/x"),
        ("POST", f"{VOLUMES}/x/status"),
        ("DELETE", f"{VOLUMES}/x/status"),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
    ],
)
async def test_methods_that_are_not_allowed(api: ApiUnderTest, method: str, path: str) -> None:
    answer = await api.call(method, path, {})
    assert (answer.status, answer.body["reason"]) == (405, "MethodNotAllowed")
    assert answer.body["code"] == 405


async def test_media_types(api: ApiUnderTest) -> None:
    answer = await api.call("POST", api.config_maps, {}, content_type="text/plain")
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")
    for accept in ("text/html", "application/*", "application/json;as=Thing;v=v1;g=meta.k8s.io"):
        answer = await api.call("GET", api.config_maps, accept=accept)
        assert (answer.status, answer.body["reason"]) == (406, "NotAcceptable")
    for accept in ("*/*", "text/html, application/json;q=0.5"):
        assert (await api.call("GET", api.config_maps, accept=accept)).status == 200
    for body in (b"{", b"[]", b"\x00"):
        answer = await api.call("POST", api.config_maps, body)
        assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    written = f"metadata: {{name: {api.unique}}}\napiVersion: v1\nkind: ConfigMap\n".encode()
    answer = await api.call("POST", api.config_maps, written, content_type="application/yaml")
    assert answer.status == 201, answer.body
    api.remember(f"{api.config_maps}/{api.unique}")


async def test_too_much(api: ApiUnderTest) -> None:
    # Not much more than the limit: a real server reads no more than 256 KiB of what it refused,
    # and a client that still sends when the connection is closed may not get the answer.
    body = {"metadata": {"name": api.unique}, "data": {"x": "y" * (3 * MIB + 1024)}}
    answer = await api.post(api.config_maps, body)
    assert answer.status == 413
    assert answer.body["reason"] == "RequestEntityTooLarge"


def test_the_sandbox_names_the_release_that_it_is_held_to() -> None:
    assert kubernetes_version() == VERSION


async def test_versions_and_groups(api: ApiUnderTest) -> None:
    version = (await api.get("/version")).body
    assert version["major"] == "1"
    assert version["gitVersion"].startswith(f"v1.{version['minor']}.")
    core = (await api.get("/api")).body
    assert (core["kind"], core["versions"]) == ("APIVersions", ["v1"])
    groups = {group["name"]: group for group in (await api.get("/apis")).body["groups"]}
    for name in ("storage.k8s.io", "batch", "coordination.k8s.io", "events.k8s.io"):
        preferred = {"groupVersion": f"{name}/v1", "version": "v1"}
        assert groups[name]["preferredVersion"] == preferred
        answer = await api.get(f"/apis/{name}")
        assert (answer.body["kind"], answer.body["name"]) == ("APIGroup", name)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (
            "/api/v1",
            (
                "namespaces namespaces/status namespaces/finalize nodes nodes/status "
                "persistentvolumes persistentvolumes/status persistentvolumeclaims "
                "persistentvolumeclaims/status events pods pods/status configmaps serviceaccounts"
            ),
        ),
        ("/apis/storage.k8s.io/v1", "storageclasses csidrivers csistoragecapacities"),
        ("/apis/batch/v1", "jobs jobs/status"),
        ("/apis/coordination.k8s.io/v1", "leases"),
        ("/apis/events.k8s.io/v1", "events"),
    ],
)
async def test_resources(api: ApiUnderTest, path: str, names: str) -> None:
    """What the sandbox says of a kind is what the real server says."""
    answer = (await api.get(path)).body
    assert answer["kind"] == "APIResourceList"
    resources = {item["name"]: item for item in answer["resources"]}
    expected = _DISCOVERED
    for name in names.split():
        found = resources[name]
        found.pop("storageVersionHash", None)
        assert found == expected[f"{path} {name}"]


@pytest.mark.parametrize(
    ("group", "plural", "kind", "short"),
    [
        ("storage.k8s.io", "csinodes", "CSINode", []),
        ("apps", "daemonsets", "DaemonSet", ["ds"]),
        ("apps", "replicasets", "ReplicaSet", ["rs"]),
    ],
)
async def test_what_status_lists_beside_volumes_is_served(
    api: ApiUnderTest, group: str, plural: str, kind: str, short: list[str]
) -> None:
    answer = await api.get(f"/apis/{group}/v1/{plural}")
    assert answer.status == 200
    assert (answer.body["kind"], answer.body["apiVersion"]) == (f"{kind}List", f"{group}/v1")
    listed = (await api.get(f"/apis/{group}/v1")).body["resources"]
    found = next(one for one in listed if one["name"] == plural)
    assert (found["kind"], found.get("shortNames", [])) == (kind, short)


def _resource(
    kind: str, singular: str, scope: str, short: str = "", categories: str = "", skip: str = ""
) -> dict[str, object]:
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    return {
        "name": "",
        "singularName": singular,
        "namespaced": scope == "namespaced",
        "kind": kind,
        "verbs": [verb for verb in verbs if verb != skip],
        **({"shortNames": [short]} if short else {}),
        **({"categories": [categories]} if categories else {}),
    }


_DISCOVERED = {
    "/api/v1 namespaces": _resource("Namespace", "namespace", "", "ns", "", "deletecollection"),
    "/api/v1 nodes": _resource("Node", "node", "", "no"),
    "/api/v1 persistentvolumes": _resource("PersistentVolume", "persistentvolume", "", "pv"),
    "/api/v1 persistentvolumeclaims": _resource(
        "PersistentVolumeClaim", "persistentvolumeclaim", "namespaced", "pvc"
    ),
    "/api/v1 events": _resource("Event", "event", "namespaced", "ev"),
    "/api/v1 pods": _resource("Pod", "pod", "namespaced", "po", "all"),
    "/api/v1 configmaps": _resource("ConfigMap", "configmap", "namespaced", "cm"),
    "/api/v1 serviceaccounts": _resource("ServiceAccount", "serviceaccount", "namespaced", "sa"),
    "/apis/storage.k8s.io/v1 storageclasses": _resource("StorageClass", "storageclass", "", "sc"),
    "/apis/storage.k8s.io/v1 csidrivers": _resource("CSIDriver", "csidriver", ""),
    "/apis/storage.k8s.io/v1 csistoragecapacities": _resource(
        "CSIStorageCapacity", "csistoragecapacity", "namespaced"
    ),
    "/apis/batch/v1 jobs": _resource("Job", "job", "namespaced", "", "all"),
    "/apis/coordination.k8s.io/v1 leases": _resource("Lease", "lease", "namespaced"),
    "/apis/events.k8s.io/v1 events": _resource("Event", "event", "namespaced", "ev"),
}
_WITHOUT_STATUS = {
    *("ConfigMap", "CSIDriver", "CSIStorageCapacity", "Event", "Lease", "ServiceAccount"),
    "StorageClass",
}
for _key, _entry in list(_DISCOVERED.items()):
    _path, _, _name = _key.partition(" ")
    _entry["name"] = _name
    if _entry["kind"] in _WITHOUT_STATUS:
        continue
    _part = {key: _entry[key] for key in ("namespaced", "kind")} | {"singularName": ""}
    _get = {"name": f"{_name}/status", "verbs": ["get", "patch", "update"]}
    _DISCOVERED[f"{_key}/status"] = _part | _get
    _DISCOVERED[f"{_key}/finalize"] = _part | {"name": f"{_name}/finalize", "verbs": ["update"]}


@pytest.mark.parametrize(
    "resource",
    [
        "persistentvolumes",
        "persistentvolumeclaims",
        "nodes",
        "namespaces",
        "events",
        "pods",
        "configmaps",
        "serviceaccounts",
        "storageclasses",
        "csidrivers",
        "csistoragecapacities",
        "jobs",
        "leases",
    ],
)
async def test_tables_have_the_real_columns(api: ApiUnderTest, resource: str) -> None:
    root = {
        "storageclasses": "/apis/storage.k8s.io/v1",
        "csidrivers": "/apis/storage.k8s.io/v1",
        "csistoragecapacities": "/apis/storage.k8s.io/v1",
        "jobs": "/apis/batch/v1",
        "leases": "/apis/coordination.k8s.io/v1",
    }.get(resource, "/api/v1")
    answer = await api.call("GET", f"{root}/{resource}", accept=TABLE)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [
        (column["name"], column["type"], column["format"], column["priority"])
        for column in answer.body["columnDefinitions"]
    ]
    wanted = [column.partition(":") for column in _COLUMNS[resource].split(",")]
    assert columns == [
        (
            name.strip("*"),
            kind or "string",
            "name" if name.strip("*") == "Name" else "",
            name.count("*"),
        )
        for name, _, kind in wanted
    ]


_COLUMNS = {
    "persistentvolumes": "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,"
    "VolumeAttributesClass,Reason,Age,*VolumeMode",
    "persistentvolumeclaims": "Name,Status,Volume,Capacity,Access Modes,StorageClass,"
    "VolumeAttributesClass,Age,*VolumeMode",
    "nodes": "Name,Status,Roles,Age,Version,*Internal-IP,*External-IP,*OS-Image,*Kernel-Version,"
    "*Container-Runtime",
    "namespaces": "Name,Status,Age",
    "events": "Last Seen,Type,Reason,Object,*Subobject,*Source,Message,*First Seen,*Count,*Name",
    "pods": "Name,Ready,Status,Restarts,Age,*IP,*Node,*Nominated Node,*Readiness Gates",
    "configmaps": "Name,Data,Age",
    "serviceaccounts": "Name,Secrets,Age",
    "storageclasses": "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
    "csidrivers": "Name,AttachRequired:boolean,PodInfoOnMount:boolean,StorageCapacity:boolean,"
    "TokenRequests,RequiresRepublish:boolean,Modes,Age",
    "csistoragecapacities": "Name,Created At:date",
    "jobs": "Name,Status,Completions,Duration,Age,*Containers,*Images,*Selector",
    "leases": "Name,Holder,Age",
}


async def cells(api: ApiUnderTest, path: str) -> list[object]:
    """The cells of one object's row, ages as a word."""
    answer = await api.call("GET", path, accept=TABLE)
    [row] = answer.body["rows"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    return [
        "age" if isinstance(cell, str) and cell.endswith("s") and cell[:-1].isdecimal() else cell
        for cell in row["cells"]
    ]


async def test_rows(api: ApiUnderTest) -> None:
    body = volume(api.unique, accessModes=["ReadOnlyMany", "ReadWriteOnce"])
    body["spec"]["claimRef"] = {"namespace": "a", "name": "b"}
    await api.made(VOLUMES, body)
    row = await cells(api, f"{VOLUMES}/{api.unique}")
    assert row[4] in {"Pending", "Available"}
    row[4] = "phase"
    unset = "<unset>"
    shown = [api.unique, "1Gi", "RWO,ROX", "Retain", "phase", "a/b", api.unique, unset, "", "age"]
    assert row == [*shown, "Filesystem"]
    await api.patch(f"{VOLUMES}/{api.unique}", {"metadata": {"finalizers": ["test.dev/x"]}})
    await api.delete(f"{VOLUMES}/{api.unique}")
    assert (await cells(api, f"{VOLUMES}/{api.unique}"))[4] == "Terminating"

    await api.made(api.claims, claim(api.unique, api.unique))
    row = await cells(api, f"{api.claims}/{api.unique}")
    assert row == [api.unique, "Pending", "", "", "", api.unique, unset, "age", "Filesystem"]

    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    body = storage_class(api.unique, volumeBindingMode="WaitForFirstConsumer")
    body["metadata"] |= default
    answer = await api.call("POST", CLASSES, body, accept=TABLE, query={"dryRun": "All"})
    assert answer.status == 201
    assert answer.body["rows"][0]["cells"][:5] == [
        f"{api.unique} (default)",
        "kubernetes.io/no-provisioner",
        "Delete",
        "WaitForFirstConsumer",
        False,
    ]

    await api.made(NODES, {"metadata": {"name": api.unique}})
    row = await cells(api, f"{NODES}/{api.unique}")
    assert row[:5] == [api.unique, "Unknown", "<none>", "age", ""]
    assert set(row[5:7]) == {"<none>"}
    assert set(row[7:]) == {"<unknown>"}

    about = {"kind": "Node", "name": "x", "namespace": ""}
    source = {"source": {"component": "c", "host": "h"}, "type": "Warning", "reason": "R"}
    body = {"metadata": {"name": api.unique}, "involvedObject": about, "message": "m\n", **source}
    await api.made(api.events, body | {"count": 1})
    row = await cells(api, f"{api.events}/{api.unique}")
    assert row[1:7] == ["Warning", "R", "node/x", "", "c, h", "m"]
    assert row[8:] == [1, api.unique]

    await api.made(api.config_maps, {"metadata": {"name": api.unique}, "data": {"a": "", "b": ""}})
    assert await cells(api, f"{api.config_maps}/{api.unique}") == [api.unique, 2, "age"]


async def test_how_much_of_an_object_a_table_brings(api: ApiUnderTest) -> None:
    await api.made(api.config_maps, {"metadata": {"name": api.unique}, "data": {"a": "b"}})
    path = f"{api.config_maps}/{api.unique}"
    for include, kind in (("None", None), ("Metadata", "PartialObjectMetadata")):
        answer = await api.call("GET", path, accept=TABLE, query={"includeObject": include})
        found = answer.body["rows"][0].get("object")
        assert (found and found["kind"]) == kind
    answer = await api.call("GET", path, accept=TABLE, query={"includeObject": "Object"})
    assert answer.body["rows"][0]["object"]["data"] == {"a": "b"}


async def test_metadata_alone(api: ApiUnderTest) -> None:
    made = await api.made(api.config_maps, {"metadata": {"name": api.unique}, "data": {"a": "b"}})
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    answer = await api.call("GET", f"{api.config_maps}/{api.unique}", accept=accept)
    assert answer.body == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    query = {"fieldSelector": f"metadata.name={api.unique}"}
    answer = await api.call("GET", api.config_maps, accept=accept, query=query)
    assert answer.body["kind"] == "PartialObjectMetadataList"
    assert [item["metadata"] for item in answer.body["items"]] == [made["metadata"]]
    assert "data" not in answer.body["items"][0]
