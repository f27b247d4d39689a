"""Events of the sandbox's own controllers, repeated ones counted."""

from __future__ import annotations

import itertools
from typing import Any

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.clock import timestamp
from localvolume_lab.sandbox.kinds import EVENTS
from localvolume_lab.sandbox.refusals import Refusal
from localvolume_lab.sandbox.store import Body


class Recorder:
    """Writes events in the name of one component."""

    # Of all components: an event is named by its object's name and a number.
    _numbers = itertools.count(1)

    def __init__(self, api: Api, component: str) -> None:
        self._api = api
        self._component = component
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def record(self, about: Body, kind: str, reason: str, message: str) -> None:
        """Say something about an object; `kind` is Normal or Warning. Never raises Refusal."""
        meta = about["metadata"]
        namespace = meta.get("namespace", "default")
        key = (meta["uid"], reason, message)
        try:
            if key in self._known:
                self._repeat(*self._known[key])
                return
            now = timestamp()
            body: dict[str, Any] = {
                "metadata": {"name": f"{meta['name']}.{next(self._numbers):016x}"},
                "involvedObject": {
                    "kind": about["kind"],
                    "apiVersion": about["apiVersion"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "resourceVersion": meta["resourceVersion"],
                    "namespace": meta.get("namespace", ""),
                },
                "type": kind,
                "reason": reason,
                "message": message,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
            }
            made = self._api.create(EVENTS, body, namespace)
            self._known[key] = (made["metadata"]["name"], namespace)
        except Refusal:
            self._known.pop(key, None)  # the event or its namespace is gone; nothing to tell

    def record_once(self, about: Body, kind: str, reason: str, message: str) -> None:
        """Like `record`, but silent where the same has been said of the object before."""
        if (about["metadata"]["uid"], reason, message) not in self._known:
            self.record(about, kind, reason, message)

    def _repeat(self, name: str, namespace: str) -> None:
        def again(old: Body) -> Body:
            return {**old, "count": old.get("count", 1) + 1, "lastTimestamp": timestamp()}

        self._api.modify(EVENTS, name, again, namespace)
