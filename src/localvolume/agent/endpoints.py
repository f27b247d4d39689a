"""What the node's monitoring asks: metrics, readiness, liveness, over HTTP."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from localvolume.config.environment import ListenAddress
from localvolume.kube.lean import importing_lean

with importing_lean():
    from aiohttp import web

log = logging.getLogger(__name__)

Checks = Callable[[], Mapping[str, str]]
"""What is wrong now, by name; empty where nothing is."""


class Endpoints:
    """`/metrics`, `/ready` and `/healthz`; the last two answer 200 or 500.

    Readiness says that every configured class is served; liveness that the loop turns and no look
    at the node is stuck. A loop that hangs answers nothing at all, which a probe takes for dead.
    """

    def __init__(
        self,
        address: ListenAddress,
        metrics_path: str,
        registry: CollectorRegistry,
        *,
        ready: Checks,
        healthy: Checks,
    ) -> None:
        self._address = address
        self._registry = registry
        app = web.Application()
        app.router.add_get(metrics_path, self._metrics)
        app.router.add_get("/ready", _answer(ready))
        # Upstream's check has an address of its own; so have probes that were written for it.
        app.router.add_get("/ready/DiscovererReadyzCheck", _answer(ready))
        app.router.add_get("/healthz", _answer(healthy))
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        self.port = address.port
        """The port in use, once started: what the system chose where 0 was asked for."""

    async def start(self) -> None:
        """Raises OSError where the address is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address.host, self._address.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        log.info("metrics and health are served on port %d", self.port)

    async def close(self) -> None:
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})


def _answer(checks: Checks) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(_request: web.Request) -> web.Response:
        wrong = checks()
        if not wrong:
            return web.Response(text="ok\n")
        lines = [f"{name or 'node'}: {text}\n" for name, text in sorted(wrong.items())]
        return web.Response(status=500, text="".join(lines))

    return handler
