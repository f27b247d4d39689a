"""The HTTP side: one request in, one answer out, faults where they were ordered."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from aiohttp import web

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.http import discovery, views
from localvolume_lab.sandbox.http.bodies import delete_options, object_of, parsed
from localvolume_lab.sandbox.http.events_view import to_old
from localvolume_lab.sandbox.http.faults import Fault, Faults, RequestInfo
from localvolume_lab.sandbox.http.routing import Target, flag, integer, parse_path, verb_of
from localvolume_lab.sandbox.kinds import NAMESPACES, NEW_EVENTS, Resource, stored_as
from localvolume_lab.sandbox.lists import ListRequest, list_page, version_number
from localvolume_lab.sandbox.refusals import (
    Cause,
    Refusal,
    bad_request,
    expired,
    invalid,
    method_not_allowed,
)
from localvolume_lab.sandbox.rules import patches
from localvolume_lab.sandbox.rules.deleting import DeleteOptions
from localvolume_lab.sandbox.rules.selectors import selector
from localvolume_lab.sandbox.store import Body, Version
from localvolume_lab.sandbox.watches import Event, WatchRequest, watch

_log = logging.getLogger(__name__)
_JSON = "application/json"
_PATCHES = {
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
}
#: the real server's limit, bytes
MAX_BODY = 3 * 1024 * 1024
#: what a watch lasts without timeoutSeconds; the real server draws 30 to 60 minutes
_WATCH_SECONDS = 1800.0


class Server:
    """The aiohttp handler over one Api. `requests`: the latest ones, for tests to look at."""

    def __init__(self, api: Api, faults: Faults, *, bookmark_seconds: float) -> None:
        self.api = api
        self.faults = faults
        self.requests: deque[RequestInfo] = deque(maxlen=50_000)
        self._bookmark_seconds = bookmark_seconds

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        try:
            target = parse_path(request.path)
            if target is None:
                return self._other(request)
            return await self._serve(request, target)
        except Refusal as refusal:
            return _refused(refusal)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # A body odder than the checks foresee (pods and jobs are stored nearly unchecked).
            _log.exception("%s %s", request.method, request.path)
            return _refused(Refusal(500, "InternalError", f"Internal error occurred: {error!r}"))

    def _other(self, request: web.Request) -> web.Response:
        if request.path in {"/healthz", "/readyz", "/livez"}:
            return web.Response(text="ok")
        document = discovery.document(request.path)
        if document is None:
            return web.Response(status=404, text="404 page not found\n")
        if request.method not in {"GET", "HEAD"}:
            raise method_not_allowed()
        return _answer(200, views.as_json(document))

    async def _serve(self, request: web.Request, target: Target) -> web.StreamResponse:
        verb = verb_of(request, target)
        info = RequestInfo(
            verb,
            target.resource.plural,
            target.name,
            target.namespace,
            target.subresource,
            asyncio.get_running_loop().time(),
        )
        self.requests.append(info)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise _too_large() from None
        for slow in self.faults.take_delays(info):
            await asyncio.sleep(slow.seconds)
        fault = self.faults.take(info, frozenset({"answer", "drop", "lose"}))
        if fault is not None and fault.action == "answer":
            raise fault.refusal()
        if fault is not None and fault.action == "drop":
            return _cut(request)
        view = views.choose(
            target.resource,
            request.headers.get("Accept", ""),
            request.query.get("includeObject", ""),
        )
        if verb == "watch":
            return await self._watch(request, target, view, info)
        response = self._carry_out(request, target, verb, body, view)
        return _cut(request) if fault is not None else response

    def _carry_out(
        self, request: web.Request, target: Target, verb: str, body: bytes, view: views.View
    ) -> web.Response:
        resource = stored_as(target.resource)
        if verb == "get":
            found = self.api.get(resource, target.name, target.namespace)
            return _answer(200, view.one(found))
        if verb == "list":
            return self._list(request, target, view)
        query = request.query
        dry_run = bool(query.get("dryRun"))
        strict = query.get("fieldValidation") == "Strict"
        if verb == "create":
            made = self.api.create(
                resource,
                object_of(request, target.resource, body),
                target.namespace,
                dry_run=dry_run,
                strict=strict,
            )
            return _answer(201, view.one(Version(made, 0)))
        if verb == "update":
            made, created = self.api.replace(
                resource,
                target.name,
                object_of(request, target.resource, body),
                target.namespace,
                subresource=target.subresource,
                dry_run=dry_run,
                strict=strict,
            )
            return _answer(201 if created else 200, view.one(Version(made, 0)))
        if verb == "patch":
            return self._patch(request, target, body, view, dry_run=dry_run, strict=strict)
        options = delete_options(request, body)
        if verb == "delete":
            last, gone = self.api.delete(resource, target.name, target.namespace, options)
            if gone and not resource.returns_deleted:
                return _answer(200, views.as_json(_deleted(target.resource, last)))
            return _answer(200, view.one(Version(last, 0)))
        return self._delete_collection(request, target, options, view)

    def _list_request(self, request: web.Request, target: Target) -> ListRequest:
        query = request.query
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return ListRequest(
            target.namespace,
            _matcher(target, labels, fields),
            bool(labels or fields),
            integer(query.get("limit", "0")),
            query.get("continue", ""),
            query.get("resourceVersion", ""),
            query.get("resourceVersionMatch", ""),
        )

    def _list(self, request: web.Request, target: Target, view: views.View) -> web.Response:
        page = list_page(
            self.api.store, stored_as(target.resource), self._list_request(request, target)
        )
        meta: Body = {"resourceVersion": str(page.number)}
        if page.token:
            meta["continue"] = page.token
            if page.remaining is not None:
                meta["remainingItemCount"] = page.remaining
        return _answer(200, view.many(page.versions, meta))

    def _delete_collection(
        self, request: web.Request, target: Target, options: DeleteOptions, view: views.View
    ) -> web.Response:
        resource = stored_as(target.resource)
        page = list_page(self.api.store, resource, self._list_request(request, target))
        for version in page.versions:
            meta = version.body["metadata"]
            self.api.delete(resource, meta["name"], meta.get("namespace", ""), options)
        return _answer(
            200, view.many(page.versions, {"resourceVersion": str(self.api.store.number)})
        )

    def _patch(
        self,
        request: web.Request,
        target: Target,
        body: bytes,
        view: views.View,
        *,
        dry_run: bool,
        strict: bool,
    ) -> web.Response:
        kind = request.content_type
        if kind not in _PATCHES:
            raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
        resource = stored_as(target.resource)
        new_names = target.resource is NEW_EVENTS
        if kind == "application/apply-patch+yaml":
            if not request.query.get("fieldManager"):
                why = "Required value: is required for apply patch"
                fault = Cause("fieldManager", "FieldValueRequired", why)
                raise invalid("PatchOptions", "meta.k8s.io", "", [fault])
            applied = parsed(body, is_yaml=True)
            if applied.get("kind") != resource.kind:
                version, name = applied.get("apiVersion", ""), applied.get("kind", "")
                raise bad_request(f"invalid object type: {version or '/'}, Kind={name}")
            if self.api.store.find(resource, target.name, target.namespace) is None:
                applied = {
                    **applied,
                    "metadata": {"name": target.name, **applied.get("metadata", {})},
                }
                made = self.api.create(
                    resource, applied, target.namespace, dry_run=dry_run, strict=strict
                )
                return _answer(201, view.one(Version(made, 0)))
            patch: Any = applied
        else:
            patch = parsed(body, what="error decoding patch")
            wants_list = kind == "application/json-patch+json"
            if not wants_list and not isinstance(patch, dict):
                raise bad_request(
                    "error decoding patch: json: cannot unmarshal array into Go value of type "
                    "map[string]interface {}"
                )
        if new_names and isinstance(patch, dict):
            patch = to_old(patch)

        def change(old: Body) -> Body:
            if kind == "application/merge-patch+json":
                made = patches.merge(old, patch)
            elif kind == "application/json-patch+json":
                made = patches.json_patch(old, patch)
            else:
                made = patches.strategic(old, patch)
            if not isinstance(made, dict) or not isinstance(made.get("metadata"), dict):
                raise bad_request("the patch leaves no object")
            return made

        made = self.api.modify(
            resource,
            target.name,
            change,
            target.namespace,
            subresource=target.subresource,
            dry_run=dry_run,
            strict=strict,
        )
        return _answer(200, view.one(Version(made, 0)))

    async def _watch(
        self, request: web.Request, target: Target, view: views.View, info: RequestInfo
    ) -> web.StreamResponse:
        asked = self._watch_request(request, target)
        fault = self.faults.take(info, frozenset({"close", "cut", "silence", "expire"}))
        response = web.StreamResponse(headers={"Content-Type": _JSON})
        await response.prepare(request)
        sent = 0
        stream = watch(self.api.store, stored_as(target.resource), asked)
        try:
            if fault is not None and fault.after == 0:
                return await _misbehave(request, response, fault, asked.seconds, b"")
            async for event in stream:
                line = _line(event, view)
                if fault is not None and sent >= fault.after:
                    return await _misbehave(request, response, fault, asked.seconds, line)
                await response.write(line)
                if event.type in {"ADDED", "MODIFIED", "DELETED"}:
                    sent += 1
                if fault is not None and sent >= fault.after and fault.action != "cut":
                    return await _misbehave(request, response, fault, asked.seconds, b"")
        except (ConnectionResetError, ConnectionError):
            return response  # the client went away, as watchers do
        finally:
            await stream.aclose()
        await response.write_eof()
        return response

    def _watch_request(self, request: web.Request, target: Target) -> WatchRequest:
        query = request.query
        match = _matcher(target, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        if target.name:
            by_name = _matcher(target, "", f"metadata.name={target.name}")
            wider = match
            match = lambda body: by_name(body) and wider(body)  # noqa: E731 (a def would not narrow)
        version = query.get("resourceVersion", "")
        try:
            since = version_number(version) if version else 0
        except Refusal as refusal:
            text = refusal.message.removeprefix("invalid resource version: ")
            raise Refusal(500, "", text) from None
        initial = flag(query.get("sendInitialEvents", ""))
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            why = (
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
            fault = Cause("resourceVersionMatch", "FieldValueForbidden", why)
            raise invalid("ListOptions", "meta.k8s.io", "", [fault])
        seconds = integer(query.get("timeoutSeconds", "0"))
        bookmarks = flag(query.get("allowWatchBookmarks", ""))
        return WatchRequest(
            target.resource,
            target.namespace,
            match,
            None if initial or since == 0 else since,
            float(seconds or _WATCH_SECONDS),
            bookmarks,
            initial and bookmarks,
            self._bookmark_seconds,
        )


def _too_large() -> Refusal:
    return Refusal(
        413,
        "RequestEntityTooLarge",
        f"Request entity too large: limit is {MAX_BODY}",
        details={},
    )


def _matcher(target: Target, labels: str, fields: str) -> Any:
    return selector(labels, fields, target.resource)


def _deleted(resource: Resource, last: Body) -> Body:
    details: Body = {"name": last["metadata"]["name"]}
    if resource.group:
        details["group"] = resource.group
    details |= {"kind": resource.plural, "uid": last["metadata"]["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def _line(event: Event, view: views.View) -> bytes:
    payload = view.one(event.version) if event.version else views.as_json(event.body)
    return b'{"type":"' + event.type.encode() + b'","object":' + payload + b"}\n"


def _answer(status: int, body: bytes) -> web.Response:
    return web.Response(status=status, body=body, content_type=_JSON)


def _refused(refusal: Refusal) -> web.Response:
    response = _answer(refusal.code, views.as_json(refusal.status()))
    if refusal.retry_after is not None:
        response.headers["Retry-After"] = str(refusal.retry_after)
    return response


def _cut(request: web.Request) -> web.Response:
    """Close the connection without a word."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _misbehave(
    request: web.Request, response: web.StreamResponse, fault: Fault, seconds: float, line: bytes
) -> web.StreamResponse:
    """End a watch the way a rule says; `line` is the event that would have come next."""
    if fault.action == "silence":
        await asyncio.sleep(seconds)
    elif fault.action == "expire":
        status = expired("too old resource version: ordered fault").status()
        await response.write(_line(Event("ERROR", body=status), views.View(NAMESPACES)))
    elif fault.action == "cut":
        half = line[: len(line) // 2] or b'{"type":"ADDED","object":{"kind":'
        await response.write(half)
        await asyncio.sleep(0)  # let it reach the wire before the reset does
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response
