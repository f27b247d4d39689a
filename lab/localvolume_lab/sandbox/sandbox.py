"""The sandbox as one context manager: a server on loopback, its store, its controllers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.controllers.loop import Controllers
from localvolume_lab.sandbox.http.faults import Faults, RequestInfo
from localvolume_lab.sandbox.http.server import MAX_BODY, Server
from localvolume_lab.sandbox.kinds import NAMESPACES
from localvolume_lab.sandbox.store import Store
from localvolume_lab.sandbox.watches import BOOKMARK_SECONDS

_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Sandbox:
    """`async with Sandbox() as sandbox:` then `sandbox.url`.

    `port` 0 takes a free one. `history_limit`: changes kept per kind before old versions expire.
    `bookmark_seconds`: time between bookmarks (a real server's minute). `controllers`: bind claims,
    set volume phases, take protection finalizers off, collect garbage. `pods`: schedule pods and
    play their kubelets as well (nodes.py says how far).
    """

    def __init__(
        self,
        port: int = 0,
        faults: Faults | None = None,
        *,
        history_limit: int = 10_000,
        bookmark_seconds: float = BOOKMARK_SECONDS,
        controllers: bool = True,
        pods: bool = True,
    ) -> None:
        self.faults = faults or Faults()
        self.store = Store(history_limit)
        self.api = Api(self.store)
        self._controllers = Controllers(self.api, pods=pods) if controllers else None
        self._server = Server(self.api, self.faults, bookmark_seconds=bookmark_seconds)
        self._port = port
        self._runner: web.AppRunner | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> deque[RequestInfo]:
        """The latest requests, oldest first."""
        return self._server.requests

    def compact(self) -> None:
        """Forget the history: old resourceVersions and continue tokens are answered 410."""
        self.store.compact()

    def kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig for this sandbox; returns its path."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
            "users": [{"name": "sandbox", "user": {}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
            "current-context": "sandbox",
        }
        written = Path(path)
        written.write_text(json.dumps(config, indent=1) + "\n")  # JSON is YAML
        return written

    async def __aenter__(self) -> Self:
        for name in _FIRST_NAMESPACES:
            self.api.create(NAMESPACES, {"metadata": {"name": name}})
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._server.handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        if self._controllers is not None:
            self._running = asyncio.create_task(self._controllers.run(), name="sandbox controllers")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
