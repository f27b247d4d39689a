"""A proxy before the real API server that does to requests what a test orders.

Plain HTTP towards the agent, with a thread and an event loop of its own. Orders are asked in turn;
the first that fits a request and is not used up yet decides, else it is passed on.
"""

import asyncio
import contextlib
import json
import math
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import aiohttp
from aiohttp import web

from localvolume.kube.http.transport import Sockets
from localvolume_lab.controlplane import ControlPlane

Does = Literal["answer", "lose", "delay", "hold", "keep", "hide", "silence", "end", "gone"]


class Seen(NamedTuple):
    """A request of the agent: `verb` is watch, list, get, post, patch or delete."""

    at: float
    verb: str
    resource: str
    path: str


@dataclass
class Order:
    """What happens to requests of these verbs about this resource.

    `answer`: with `status`, unseen by the server. `lose`: the server carries it out, and the
    connection is cut instead of its answer. `delay`: passed on after `seconds`. `hold`: passed on
    once the test has called `release`. `keep`: passed on at once, and answered after `release`.
    `hide`: a list is answered as if there were nothing. For watches: `silence`: opened, and then
    nothing; `end`: it ends well, at once; `gone`: its first event says that the resourceVersion is
    too old.

    `met` counts the requests that it has met, `answered` those of them that the server answered;
    `body` is of the last one.
    """

    does: Does
    verbs: tuple[str, ...]
    resource: str = "persistentvolumes"
    times: int = 10**9
    status: int = 500
    reason: str = "InternalError"
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    met: int = 0
    answered: int = 0
    body: bytes = b""
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Have what is held passed on, from any thread."""
        self.released.set()

    def fits(self, seen: Seen) -> bool:
        right = self.resource in ("", seen.resource)
        if not right or seen.verb not in self.verbs or self.met >= self.times:
            return False
        self.met += 1
        return True


class Proxy:
    """Use `with proxy_for(plane, directory) as proxy:`; `kubeconfig` leads to it."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._plane = plane
        self.kubeconfig = directory / "proxy.kubeconfig"
        self.orders: list[Order] = []
        self.seen: list[Seen] = []
        self._watches: dict[int, web.BaseRequest] = {}
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy")
        self._end = asyncio.Event()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    def cut_watches(self) -> int:
        """Cut all watches that were asked for and have not ended; how many there were."""

        async def cut() -> int:
            watches = list(self._watches.values())
            for request in watches:
                _cut(request)
            return len(watches)

        return asyncio.run_coroutine_threadsafe(cut(), self._loop).result(60)

    def watches(self) -> int:
        """How many watches were asked for and have not ended."""
        return len(self._watches)

    def count(self, since: float, until: float = math.inf) -> int:
        """How many requests came between these times (time.monotonic)."""
        return sum(since <= one.at < until for one in self.seen)

    def asked(self, resource: str, *verbs: str) -> int:
        """How many such requests came."""
        return sum(one.resource == resource and one.verb in verbs for one in self.seen)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left, timeout=10))
        self._loop.close()

    async def _serve(self) -> None:
        trust = ssl.create_default_context(cafile=str(self._plane.ca_file))
        sockets = Sockets()
        connector = aiohttp.TCPConnector(ssl=trust, limit=0, socket_factory=sockets.make)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            runner = web.ServerRunner(
                web.Server(lambda request: self._handle(request, session)), shutdown_timeout=0.1
            )
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self.kubeconfig.write_text(json.dumps(_kubeconfig(url)))
            self._ready.set()
            await self._end.wait()
            await runner.cleanup()
        await sockets.hang_up()

    async def _handle(
        self, request: web.BaseRequest, session: aiohttp.ClientSession
    ) -> web.StreamResponse:
        seen = Seen(time.monotonic(), *_what(request), request.path)
        self.seen.append(seen)
        order = next((one for one in list(self.orders) if one.fits(seen)), None)
        if order is not None:
            order.body = await request.read()
        if order is not None and order.does == "answer":
            return _status(order.status, order.reason, order.headers)
        if order is not None and order.does == "delay":
            await asyncio.sleep(order.seconds)
        while order is not None and order.does == "hold" and not order.released.is_set():
            await asyncio.sleep(0.01)
        if order is not None and order.does in ("silence", "end", "gone"):
            return await self._watch_badly(request, order.does)
        headers = {
            "Authorization": f"Bearer {self._plane.token}",
            "Accept": "application/json",
            "Content-Type": request.headers.get("Content-Type", "application/json"),
        }
        body = await request.read() or None
        url = f"{self._plane.url}{request.raw_path}"
        if seen.verb == "watch":
            # From now on: one that is cut before the server has answered does not open after it.
            self._watches[id(request)] = request
        try:
            async with session.request(request.method, url, data=body, headers=headers) as answer:
                if seen.verb == "watch":
                    return await self._pass_on(request, answer)
                text = await answer.read()
        finally:
            self._watches.pop(id(request), None)
        if order is not None:
            order.answered += 1
        while order is not None and order.does == "keep" and not order.released.is_set():
            await asyncio.sleep(0.01)
        if order is not None and order.does == "hide":
            text = json.dumps({**json.loads(text), "items": []}).encode()
        if order is not None and order.does == "lose":
            _cut(request)
        return web.Response(body=text, status=answer.status, content_type="application/json")

    async def _pass_on(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        response.content_type = "application/json"
        try:
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        except (aiohttp.ClientError, ConnectionError):
            _cut(request)
        return response

    async def _watch_badly(self, request: web.BaseRequest, how: str) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        if how == "gone":
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
        elif how == "silence":
            await asyncio.sleep(3600)
        return response


def _what(request: web.BaseRequest) -> tuple[str, str]:
    """The verb and the resource of a request, by its path (Kubernetes API concepts)."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    verb = request.method.lower()
    if verb == "get":
        watched = request.query.get("watch") == "1"
        verb = "watch" if watched else "get" if len(parts) > 1 else "list"
    return verb, parts[0]


def _cut(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _status(code: int, reason: str, headers: Mapping[str, str]) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": "ordered by the test",
    }
    return web.json_response(body, status=code, headers=headers)


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "proxy", "cluster": {"server": url}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}],
        "current-context": "proxy",
    }


@contextlib.contextmanager
def proxy_for(plane: ControlPlane, directory: Path) -> Iterator[Proxy]:
    proxy = Proxy(plane, directory)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
