"""API objects by their JSON, made for one test and taken away again, and waiting for a state."""

import functools
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.suite.until import until


class Objects:
    """Makes API objects for one test and takes them away at its end, the newest first."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._made: list[str] = []

    def make(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST to a collection; the object will be deleted, by force if it is a pod."""
        made: dict[str, Any] = self.plane.request("POST", path, body)
        self._made.append(f"{path}/{made['metadata']['name']}")
        return made

    def node(self, name: str) -> None:
        self.plane.create_node(name)
        self._made.append(f"/api/v1/nodes/{name}")

    def adopt(self, path: str) -> None:
        """Have an object that something else made taken away too."""
        self._made.append(path)

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.request("GET", path)
        return found

    def clean(self) -> None:
        for path in reversed(self._made):
            try:
                self.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
            except RequestFailed as error:
                if error.status != 404:
                    raise

    def until_gone(self, collection: str) -> None:
        """Wait until what was made of a collection, and deleted, is gone.

        A claim is protected for a moment after its last pod is.
        """
        for path in self._made:
            if path.rpartition("/")[0] == collection:
                until(functools.partial(self._is_gone, path))

    def _is_gone(self, path: str) -> bool:
        try:
            self.get(path)
        except RequestFailed as error:
            if error.status == 404:
                return True
            raise
        return False


def written_by_controllers(objects: Objects, path: str) -> None:
    """Wait until kube-controller-manager has written to a new Node what it writes to each."""
    until(
        lambda: objects.get(path)["metadata"].get("annotations", {}),
        lambda notes: "node.alpha.kubernetes.io/ttl" in notes,
    )


def pause(plane: ControlPlane, name: str) -> None:
    """Freeze a component, and wait until it is: its threads stop one by one, and may answer until
    they do."""
    plane.pause(name)
    threads = Path(f"/proc/{plane.pids[name]}/task")
    until(lambda: [one.name for one in threads.iterdir() if _runs(one)], lambda left: not left)


def _runs(thread: Path) -> bool:
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "T"
