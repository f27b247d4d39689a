"""Raw HTTP to a Kubernetes API, the same for the sandbox and for a real server."""

from __future__ import annotations

import asyncio
import io
import json
import ssl as tls
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from localvolume.kube.http.transport import Sockets
from tests.suite.api import MERGE
from tests.suite.until import until_async

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

NAMESPACES = "/api/v1/namespaces"

Body = dict[str, Any]


class Answer(NamedTuple):
    """`body` is decoded JSON where the server sent JSON, else text."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def causes(self) -> set[tuple[str, str]]:
        """(field, reason) of every cause in a Status."""
        found = self.body.get("details", {}).get("causes", [])
        return {(cause.get("field", ""), cause["reason"]) for cause in found}


class ApiUnderTest:
    """One server: `url`, `headers`, `ssl`, `kubeconfig`, and what a test made there."""

    def __init__(
        self,
        name: str,
        url: str,
        headers: Mapping[str, str],
        ssl: tls.SSLContext | bool,
        unique: str,
        kubeconfig: Path,
    ) -> None:
        self.name = name
        self.url = url
        self.headers = dict(headers)
        self.ssl = ssl
        self.unique = unique
        self.namespace = "default"
        self.kubeconfig = kubeconfig
        self._made: list[str] = []
        self._sockets = Sockets()
        self._session: aiohttp.ClientSession | None = None

    @property
    def real(self) -> bool:
        return self.name == "real"

    def namespaced(self, plural: str, group: str = "") -> str:
        """The path of a namespaced collection in this test's namespace."""
        root = f"/apis/{group}/v1" if group else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}"

    @property
    def claims(self) -> str:
        return self.namespaced("persistentvolumeclaims")

    @property
    def config_maps(self) -> str:
        return self.namespaced("configmaps")

    @property
    def pods(self) -> str:
        return self.namespaced("pods")

    @property
    def events(self) -> str:
        return self.namespaced("events")

    async def __aenter__(self) -> ApiUnderTest:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=120),
            connector=aiohttp.TCPConnector(ssl=self.ssl, socket_factory=self._sockets.make),
            headers=self.headers,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        try:
            for path in reversed(self._made):
                no_more = {"metadata": {"finalizers": None}}
                force = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
                if (await self.call("DELETE", path, force)).status == 200:
                    await self.patch(path, no_more)
        finally:
            await self._session.close()
            await self._sockets.hang_up()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        query: Mapping[str, Any] | None = None,
    ) -> Answer:
        """One request. A `body` of bytes goes out as it is, anything else as JSON."""
        assert self._session is not None
        headers = {"Accept": accept}
        data: bytes | None = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = content_type
        params = {key: str(value) for key, value in (query or {}).items()}
        async with self._session.request(
            method, self.url + path, data=data and io.BytesIO(data), headers=headers, params=params
        ) as response:
            raw = await response.read()
            decoded: Any = raw.decode()
            if response.content_type == "application/json" and raw and b"\n{" not in raw.strip():
                decoded = _without_managers(json.loads(raw))
            return Answer(response.status, decoded, response.headers)

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.call("GET", path, query=query)

    async def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type, query=query)

    async def put(self, path: str, body: Any, **query: Any) -> Answer:
        return await self.call("PUT", path, body, query=query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return await self.call("DELETE", path, body, query=query)

    async def post(self, path: str, body: Any, **query: Any) -> Answer:
        """A create, remembered for the clean-up if it succeeded."""
        answer = await self.call("POST", path, body, query=query)
        if answer.status == 201 and not query.get("dryRun"):
            self.remember(f"{path}/{answer.body['metadata']['name']}")
        return answer

    def remember(self, path: str) -> None:
        """Take this away after the test."""
        self._made.append(path)

    async def made(self, path: str, body: Body) -> Body:
        """A create that must succeed; the object."""
        answer = await self.post(path, body)
        assert answer.status == 201, answer.body
        made: Body = answer.body
        return made

    async def now(self, path: str) -> Body:
        """An object that must be there."""
        answer = await self.get(path)
        assert answer.status == 200, answer.body
        found: Body = answer.body
        return found

    async def in_phase(self, path: str, phase: str) -> Body:
        """The object once it is in that phase."""
        return await until_async(
            lambda: self.now(path), lambda found: found["status"].get("phase") == phase
        )

    async def own_namespace(self) -> str:
        """Make a namespace for this test, with its service account; paths then lead there."""
        await self.made(NAMESPACES, {"metadata": {"name": self.unique}})
        self.namespace = self.unique

        async def account() -> bool:
            return (await self.get(self.namespaced("serviceaccounts") + "/default")).status == 200

        await until_async(account)
        return self.unique

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[Watching]:
        """A watch; `timeoutSeconds` defaults to 120."""
        assert self._session is not None
        params = {"watch": "1", "timeoutSeconds": "120"} | {k: str(v) for k, v in query.items()}
        async with self._session.get(
            self.url + path, params=params, headers={"Accept": "application/json"}
        ) as response:
            yield Watching(response)


def _without_managers(value: Any) -> Any:
    """The sandbox keeps no owners of fields; nothing of ours reads them."""
    if isinstance(value, dict):
        return {k: _without_managers(v) for k, v in value.items() if k != "managedFields"}
    if isinstance(value, list):
        return [_without_managers(item) for item in value]
    return value


class Said(NamedTuple):
    """What kubectl said: exit status, standard output, standard error."""

    status: int
    out: str
    err: str


async def run_kubectl(api: ApiUnderTest, *arguments: str, given: Any = None) -> Said:
    """kubectl beside the event loop; `given` goes to its standard input as JSON."""
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        f"--kubeconfig={api.kubeconfig}",
        f"--cache-dir={api.kubeconfig.parent}/kubectl-cache",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(120):
            out, err = await process.communicate(json.dumps(given).encode() if given else None)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


async def kubectl(api: ApiUnderTest, *arguments: str, given: Any = None) -> str:
    """Its standard output; it must succeed."""
    said = await run_kubectl(api, *arguments, given=given)
    assert said.status == 0, (arguments, said)
    return said.out


class Watching:
    """The events of one watch as (type, object)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    @property
    def status(self) -> int:
        return self.response.status

    async def next(self, timeout: float = 60.0) -> tuple[str, Body]:
        """The next event; raises EOFError at a clean end."""
        async with asyncio.timeout(timeout):
            line = await self.response.content.readline()
        if not line:
            raise EOFError
        event = _without_managers(json.loads(line))
        return event["type"], event["object"]

    async def rest(self, timeout: float = 60.0) -> list[tuple[str, Body]]:
        """Everything until the server ends the watch."""
        events = []
        async with asyncio.timeout(timeout):
            while True:
                try:
                    events.append(await self.next(timeout))
                except EOFError:
                    return events

    async def names(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next `count` events."""
        events = [await self.next() for _ in range(count)]
        return [(kind, body["metadata"]["name"]) for kind, body in events]


def volume(name: str, **spec: Any) -> Body:
    """A local volume on node `name-node`, of class `name`."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"{name}-node"]}
    labels = spec.pop("labels", {})
    annotations = spec.pop("annotations", {})
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": name,
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        }
        | spec,
    }


def claim(name: str, storage_class: str | None, size: str = "1Gi", **spec: Any) -> Body:
    """A claim."""
    wanted: Body = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
        **spec,
    }
    if storage_class is not None:
        wanted["storageClassName"] = storage_class
    return {"metadata": {"name": name}, "spec": wanted}


def pod(name: str, *claims: str, **spec: Any) -> Body:
    """A pod that mounts claims."""
    volumes = [
        {"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}}
        for i, name in enumerate(claims)
    ]
    containers = [{"name": "c", "image": "none.invalid/none"}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": containers, "volumes": volumes} | spec,
    }


def storage_class(name: str, **fields: Any) -> Body:
    """A class without provisioner."""
    return {
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        **fields,
    }
