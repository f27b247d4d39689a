"""Sees every PersistentVolume from its first moment, and looks into the volume when it is offered.

A thread of its own with a plain watch, so that nothing of the project decides what it sees. What it
finds wrong is collected in `violations`.
"""

import abc
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, Self

from localvolume_lab.controlplane import ControlPlane
from tests.faults.support_tenants import Volume
from tests.suite.api import VOLUMES

_PATH = VOLUMES


class Watching(abc.ABC):
    """The thread, and what it found wrong; subclasses say what they see."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._socket: socket.socket | None = None
        self._version = ""
        self._ending = False
        self.violations: list[str] = []
        self.offers = 0
        """PersistentVolumes into whose volume it looked when they were offered."""
        self.created = 0
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def __enter__(self) -> Self:
        # All that comes from now on, however late the thread begins.
        self._version = self._plane.request("GET", _PATH)["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        if self._socket:
            # The thread waits in a read, which no close would end; it closes what it opened.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        assert not self._thread.is_alive(), "the observer does not end"

    def violation(self, text: str) -> None:
        self.violations.append(f"{time.strftime('%H:%M:%S')} {text}")

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - a blind observer must fail the test
            if not self._ending:
                self.violation(f"the observer went blind: {error!r}")

    def _watch(self) -> None:
        trust = ssl.create_default_context(cafile=str(self._plane.ca_file))
        address = self._plane.url.removeprefix("https://")
        # Connections are given an hour: the observer must not miss anything between two watches.
        connection = http.client.HTTPSConnection(address, context=trust, timeout=3600)
        path = f"{_PATH}?watch=1&timeoutSeconds=3600&resourceVersion="
        headers = {"Authorization": f"Bearer {self._plane.token}"}
        with closing(connection):
            connection.request("GET", path + self._version, headers=headers)
            self._socket = connection.sock
            with connection.getresponse() as answer:
                self._read(answer)

    def _read(self, answer: http.client.HTTPResponse) -> None:
        while not self._ending:
            line = answer.readline()
            if not line:
                raise ConnectionError("the watch ended")
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise ConnectionError(f"the watch was refused: {event['object']}")
            self._see(event["type"], event["object"])

    @abc.abstractmethod
    def _see(self, type_: str, volume: dict[str, Any]) -> None:
        """An event of the watch."""


class Observer(Watching):
    """`volumes` maps what a PersistentVolume says (class, path) to the place on this machine."""

    def __init__(self, plane: ControlPlane, volumes: Mapping[tuple[str, str], Volume]) -> None:
        super().__init__(plane)
        self._volumes = volumes
        self._order: dict[str, int] = {}
        self._alive: dict[str, tuple[str, str]] = {}
        self._looked: set[tuple[str, str]] = set()

    def _see(self, type_: str, volume: dict[str, Any]) -> None:
        meta, spec = volume["metadata"], volume["spec"]
        uid = meta["uid"]
        if type_ == "DELETED":
            self._alive.pop(uid, None)
            return
        place = (spec["storageClassName"], spec["local"]["path"])
        if uid not in self._order:
            self._order[uid] = len(self._order)
            self.created += 1
            twins = [other for other, at in self._alive.items() if at == place]
            if twins:
                self.violation(f"{place} is published twice: {uid} beside {twins}")
            if place not in self._volumes:
                self.violation(f"{place} was published, which is no volume at all")
        self._alive[uid] = place
        phase = volume.get("status", {}).get("phase", "Pending")
        if phase in ("Pending", "Available") and (uid, phase) not in self._looked:
            self._looked.add((uid, phase))
            self._look(uid, place, phase)

    def _look(self, uid: str, place: tuple[str, str], phase: str) -> None:
        there = self._volumes.get(place)
        if there is None:
            return
        with there.lock:
            if not there.there:
                return
            found = there.found()
        self.offers += phase == "Available"
        # Only those that came before: a later tenant may have written before we came to look.
        mine = self._order[uid]
        former = {other for other in found if self._order.get(other, mine) < mine}
        if former:
            self.violation(f"{place} was offered as {uid} ({phase}) with data of {former}")
