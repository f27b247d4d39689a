"""Objects of a control plane as a backup of its etcd has them: kept, brought back, lost."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import ControlPlane


class Backup:
    """What etcd has of some objects, byte by byte: UID and all, which no request could set."""

    def __init__(self, plane: ControlPlane, *keys: str) -> None:
        self._url = _client_url(plane.pids["etcd"])
        self._kept = {f"/registry/{key}": self._read(f"/registry/{key}") for key in keys}

    # All at once, as etcd comes back: a volume that is there before its claim is Released by
    # kube-controller-manager, and may be gone by the time the claim comes.

    def restore(self) -> None:
        """The objects are there again as they were, as if nothing had happened since."""
        self._change(
            {"requestPut": {"key": _encoded(key), "value": value}}
            for key, value in self._kept.items()
        )

    def lose(self) -> None:
        """They are not there, and nobody ever deleted them."""
        self._change({"requestDeleteRange": {"key": _encoded(key)}} for key in self._kept)

    def _change(self, changes: Iterable[dict[str, Any]]) -> None:
        self._ask("txn", {"success": list(changes)})

    def _read(self, key: str) -> str:
        (found,) = self._ask("range", {"key": _encoded(key)})["kvs"]
        return str(found["value"])

    def _ask(self, what: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{self._url}/v3/kv/{what}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _client_url(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    option = "--listen-client-urls="
    return next(word.removeprefix(option) for word in words if word.startswith(option))
