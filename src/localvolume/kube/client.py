"""Requests to the API server: one method per verb, answers as trimmed structs, errors by name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from localvolume.kube.access.auth import Access
from localvolume.kube.errors import ApiError, TryAgainLater
from localvolume.kube.http.beforewrite import BeforeWrite
from localvolume.kube.http.serverclock import ServerClock
from localvolume.kube.http.transport import OnRequest, Transport
from localvolume.kube.http.wire import (
    BOOKMARK,
    JsonPatch,
    MergePatch,
    Page,
    WatchEvent,
    codec,
    encode,
)
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import KubeObject

__all__ = ["BeforeWrite", "Client", "JsonPatch", "MergePatch", "OnRequest", "Page", "WatchEvent"]

T = TypeVar("T", bound=KubeObject)

# Each watch asks for its own time in this range, so that a server's watches do not end together.
WATCH_SECONDS: Final = (300.0, 600.0)
# How late a server may be in closing a watch.
WATCH_GRACE_SECONDS: Final = 15.0
# Servers that send bookmarks send one a minute. Once one has come, a silence of this length means
# that the server is gone, long before the watch's own timeout.
BOOKMARK_SILENCE_SECONDS: Final = 150.0


class Client:
    """One API server. Use as `async with`; methods raise ApiError, and ValueError for misuse.

    `timeout` (seconds) covers a request and the wait for its turn; watches have their own.
    `concurrency` is how many requests may be in flight, not counting watches. `before_write` is
    called right before each create, patch and delete is sent, and stops it by raising anything.
    `watch_grace` and `bookmark_silence` (seconds) are how long a watch may stay silent: past its
    own timeout, and at any time once a bookmark has come.
    """

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        timeout: float = 30.0,
        concurrency: int = 16,
        on_request: OnRequest | None = None,
        before_write: BeforeWrite | None = None,
        watch_seconds: tuple[float, float] = WATCH_SECONDS,
        watch_grace: float = WATCH_GRACE_SECONDS,
        bookmark_silence: float = BOOKMARK_SILENCE_SECONDS,
    ) -> None:
        self.watch_seconds: Final = watch_seconds
        """The shortest and the longest timeout of an informer's watches."""
        self._watch_grace: Final = watch_grace
        self._bookmark_silence: Final = bookmark_silence
        self.access: Final = access
        self._transport: Final = Transport(
            access,
            user_agent=user_agent,
            timeout=timeout,
            concurrency=concurrency,
            on_request=on_request,
            before_write=before_write,
        )

    @property
    def on_request(self) -> OnRequest | None:
        """Called after each request with verb, kind, seconds and the error or None."""
        return self._transport.on_request

    @on_request.setter
    def on_request(self, hook: OnRequest | None) -> None:
        self._transport.on_request = hook

    @property
    def clock(self) -> ServerClock:
        """The server's clock, as its answers tell it."""
        return self._transport.clock

    async def __aenter__(self) -> Client:
        self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, ApiError):
            error.server, error.source = self.access.shown, self.access.source
        await self._transport.close()

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """Read one object, as it is in the server's store now."""
        answer = await self._transport.request("get", kind, "GET", kind.path(namespace, name))
        return codec(kind).one(answer)

    async def read(self, kind: Kind[Any], path: str) -> bytes:
        """Read a path and return the raw body: logs, versions, objects with all fields.

        `kind` is what the request is counted as. `path` is already quoted and has its query.
        """
        return await self._transport.request("get", kind, "GET", path)

    async def create(
        self, kind: Kind[T], body: Mapping[str, Any], namespace: str | None = None
    ) -> T:
        """Create an object from its manifest; apiVersion and kind are filled in.

        A namespaced object goes to `namespace`, or else to the namespace in its metadata.
        """
        namespace = namespace or body.get("metadata", {}).get("namespace")
        if kind.namespaced and not namespace:
            raise ValueError(f"a {kind.kind} needs a namespace")
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        path = kind.path(namespace)
        answer = await self._transport.request("create", kind, "POST", path, body=encode(body))
        return codec(kind).one(answer)

    async def try_to_create(self, kind: Kind[Any], body: Mapping[str, Any]) -> None:
        """Create a cluster-scoped object as a dry run. Raises what a real create would raise."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        path = f"{kind.path(None)}?dryRun=All"
        await self._transport.request("create", kind, "POST", path, body=encode(body))

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: MergePatch | JsonPatch,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> T:
        """Change exactly the fields in the patch. Returns the changed object."""
        answer = await self._transport.request(
            "patch",
            kind,
            "PATCH",
            kind.path(namespace, name, subresource),
            body=encode(patch.body),
            content_type=patch.content_type,
        )
        return codec(kind).one(answer)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str | None = None,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete the object with this UID. Raises LookAgain if another one has its name or, with
        a resourceVersion, if it changed since. `propagation`: Foreground, Background or Orphan.
        """
        if not uid or resource_version == "":
            # An empty precondition could be taken for none.
            raise ValueError(f"deleting {kind.kind} {name!r} needs its UID")
        preconditions = {"uid": uid}
        if resource_version is not None:
            preconditions["resourceVersion"] = resource_version
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
        }
        if propagation is not None:
            options["propagationPolicy"] = propagation
        path = kind.path(namespace, name)
        await self._transport.request("delete", kind, "DELETE", path, body=encode(options))

    async def list_page(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        cont: str = "",
        resource_version: str = "",
    ) -> Page[T]:
        """One page of a list; all of it with limit=0. Consistent if no resourceVersion is given."""
        query = _query(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=str(limit) if limit else "",
            # A continue token carries its own resourceVersion; servers refuse both together.
            resourceVersion="" if cont else resource_version,
            **{"continue": cont},
        )
        path = f"{kind.path(namespace)}{'?' if query else ''}{query}"
        return codec(kind).page(await self._transport.request("list", kind, "GET", path))

    async def watch(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: float = 300.0,
        on_bytes: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield what changes after `resource_version`, until the server ends the watch (no error).

        Raises ListAgain when the resourceVersion is too old, TryAgainLater when the connection is
        cut in the middle or stays silent (not even a bookmark) past the server's own timeout.
        `on_bytes` is called with the number of bytes received, and with 0 when the watch starts.
        Close the generator (contextlib.aclosing) when leaving it early.
        """
        query = _query(
            watch="1",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=str(max(1, round(timeout_seconds))),
        )
        decode = codec(kind).event
        silence = timeout_seconds + self._watch_grace
        path = f"{kind.path(namespace)}?{query}"
        async with self._transport.stream("watch", kind, path) as read_some:
            begun: list[bytes] = []
            if on_bytes is not None:
                on_bytes(0)
            while chunk := await read_some(silence):
                if on_bytes is not None:
                    on_bytes(len(chunk))
                if b"\n" not in chunk:
                    begun.append(chunk)
                    continue
                lines = (b"".join(begun) + chunk).split(b"\n")
                begun = [lines.pop()]
                for line in lines:
                    if not line:
                        continue
                    event = decode(line)
                    if event.type == BOOKMARK:
                        silence = min(silence, self._bookmark_silence)
                    yield event
            if any(begun):
                raise TryAgainLater("the watch was cut in the middle of an object", reason="Cut")


def _query(**parameters: str) -> str:
    return urlencode({key: value for key, value in parameters.items() if value})
