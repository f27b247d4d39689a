"""A server of faults: says exactly what a test scripts, where no real API server could be made to.

It knows nothing of Kubernetes. Requests are sorted into lists, watches and others; each sort has a
script of steps, one per request, whose last step serves all further ones.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

from localvolume.kube.access.auth import Access, TokenSource
from localvolume.kube.access.tls import Tls
from localvolume.kube.client import Client

Step = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Seen(NamedTuple):
    """A request as it came."""

    sort: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    at: float


def answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Step:
    async def step(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return step


def raw(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Step:
    async def step(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=headers)

    return step


def failure(
    code: int,
    reason: str,
    message: str = "told so",
    *,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Step:
    """A Status answer, as API servers give."""
    return answer(status(code, reason, message, details), status=code, headers=headers)


def status(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def never() -> Step:
    """Accepts the request and says nothing at all."""

    async def step(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError("unreachable")

    return step


def stream(*events: tuple[str, object] | bytes, then: str = "end") -> Step:
    """A watch: events (or raw bytes), then "end" (clean), "hold" (silence) or "abort" (reset)."""

    async def step(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for event in events:
            if isinstance(event, bytes):
                await response.write(event)
            else:
                line = json.dumps({"type": event[0], "object": event[1]})
                await response.write(line.encode() + b"\n")
        if then == "hold":
            await asyncio.sleep(3600)
        if then == "abort":
            assert request.transport is not None
            request.transport.abort()
        return response

    return step


def volume(
    name: str, version: int, *, uid: str = "", labels: object = None, **meta: object
) -> dict[str, Any]:
    """A small PersistentVolume as a server would send it, null lists and managedFields included."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "labels": labels,
            "annotations": None,
            "finalizers": None,
            "ownerReferences": None,
            "managedFields": [{"manager": "x", "fieldsV1": {"f:spec": {}}}],
            **meta,
        },
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": None,
            "nodeAffinity": {"required": {"nodeSelectorTerms": None}},
        },
        "status": {"phase": "Available"},
    }


def listing(version: int, *items: object, cont: str = "") -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": str(version)}
    if cont:
        meta["continue"] = cont
    return {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": list(items) or None}


class FaultServer:
    """`url` to speak to; `lists`, `watches`, `others` to script; `seen` to look at afterwards."""

    def __init__(self) -> None:
        self.url = ""
        self.lists: list[Step] = [answer(listing(1))]
        self.watches: list[Step] = [stream(then="hold")]
        self.others: list[Step] = [failure(404, "NotFound")]
        self.seen: list[Seen] = []

    def count(self, sort: str) -> int:
        return sum(1 for seen in self.seen if seen.sort == sort)

    def of(self, sort: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.sort == sort]

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        text = await request.text()
        collection = request.path.rsplit("/", 1)[-1] in ("persistentvolumes", "events", "nodes")
        sort, script = "other", self.others
        if request.method == "GET" and "watch" in request.query:
            sort, script = "watch", self.watches
        elif request.method == "GET" and collection:
            sort, script = "list", self.lists
        self.seen.append(
            Seen(
                sort,
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                json.loads(text) if text else None,
                asyncio.get_running_loop().time(),
            )
        )
        step = script.pop(0) if len(script) > 1 else script[0]
        return await step(request)


@asynccontextmanager
async def fault_server(context: ssl.SSLContext | None = None) -> AsyncIterator[FaultServer]:
    faults = FaultServer()
    runner = web.ServerRunner(web.Server(faults.serve), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    faults.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    try:
        yield faults
    finally:
        await runner.cleanup()


def client_of(
    server: FaultServer,
    *,
    token: TokenSource | None = None,
    tls: Tls | None = None,
    timeout: float = 30.0,
    **rest: Any,
) -> Client:
    access = Access(server.url, source="a test", token=token, tls=tls)
    return Client(access, user_agent="test", timeout=timeout, **rest)
