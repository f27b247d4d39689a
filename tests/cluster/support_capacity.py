"""What an agent publishes of its node's room, by itself: a thread, and the objects it makes."""

import contextlib
from asyncio import TaskGroup, get_running_loop
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localvolume.dynamic.capacityrole import CapacityRole
from localvolume.dynamic.paces import CapacityPaces
from localvolume.dynamic.plan.capacity import CapacityFacts, ClassCapacity, object_name
from localvolume.dynamic.plan.fullness import PoolSize
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import STORAGE_CAPACITIES, Kind
from localvolume.kube.objects import CSIStorageCapacity
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.marks import DYNAMIC_PROVISIONER, NODE_LABEL
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_objects import Objects
from tests.cluster.support_thread import LoopThread
from tests.suite.api import CAPACITIES, MERGE
from tests.suite.until import until

Object = dict[str, Any]


def node_facts(objects: Objects, name: str) -> NodeFacts:
    found = objects.get(f"/api/v1/nodes/{name}")
    labels = found["metadata"]["labels"]
    return NodeFacts(name, found["metadata"]["uid"], labels["kubernetes.io/hostname"], labels)


class Publisher:
    """The role of one node; `room` says what classes have from now on, in bytes."""

    def __init__(
        self,
        objects: Objects,
        node: str,
        kubeconfig: Path | None = None,
        paces: CapacityPaces | None = None,
    ) -> None:
        self.objects = objects
        self.node = node
        self.requests: list[tuple[str, str]] = []
        """Verb and outcome (the error's reason, "" for none) of each write so far."""
        self.before_write: list[Object] = []
        """Patches of our one object that somebody else makes just before our next write."""
        self._kubeconfig = kubeconfig or objects.plane.kubeconfig
        self._paces = paces
        self._rooms: dict[str, tuple[int, ...]] = {}
        self.pools: dict[str, PoolSize] = {}
        """What is said of the pools of every class, from the next look on."""
        self._facts: NodeFacts | None = None
        self.role: CapacityRole | None = None
        self._thread = LoopThread("publisher", self._main)

    async def _main(self) -> None:
        access = find_access(str(self._kubeconfig))
        async with Client(
            access, user_agent="test", on_request=self._seen, before_write=self._before
        ) as client:
            events = EventRecorder(client, "localvolume-agent", self.node)
            informer: Informer[CSIStorageCapacity] = Informer(
                client,
                STORAGE_CAPACITIES,
                namespace="default",
                label_selector=f"{NODE_LABEL}={self.node}",
                on_change=lambda *_: role.objects_changed(),
            )
            role = CapacityRole(client, informer, "default", events, self._paces)
            self._loop = get_running_loop()
            self.role = role
            async with TaskGroup() as tasks:
                for run in (informer.run, role.run, events.run):
                    tasks.create_task(run())

    def _seen(
        self, verb: str, kind: Kind[Any], seconds: float, error: ApiError | None, *_: object
    ) -> None:
        if kind is STORAGE_CAPACITIES and verb in {"create", "patch", "delete"}:
            self.requests.append((verb, "" if error is None else error.reason))

    def forget_requests(self) -> None:
        """From now on `requests` has what is written from now on: what is seen to be done may have
        its answer on its way still."""
        role = eventually_role(self)
        until(lambda: list(role._runner.busy), lambda busy: not busy)
        self.requests.clear()

    def _before(self) -> None:
        while self.before_write:
            patch, (there,) = self.before_write.pop(), self.found()
            change(self.objects, there, patch)

    def room(self, **rooms: int | tuple[int, ...]) -> None:
        """What each class (of these, and no other) has in each pool; of the Node as it is now."""
        self.update(rooms)

    def update(self, rooms: Mapping[str, int | tuple[int, ...]], fresh: bool = True) -> None:
        """The same; not `fresh`: of the Node as it was the last time."""
        self._rooms = {
            name: room if isinstance(room, tuple) else (room,) for name, room in rooms.items()
        }
        self.look(fresh)

    def look(self, fresh: bool = True) -> None:
        """Tell the role again."""
        if fresh or self._facts is None:
            self._facts = node_facts(self.objects, self.node)
        facts = CapacityFacts(
            self._facts,
            [
                ClassCapacity(name, DYNAMIC_PROVISIONER, rooms, pools=tuple(self.pools.items()))
                for name, rooms in self._rooms.items()
            ],
        )
        role = eventually_role(self)
        self._loop.call_soon_threadsafe(role.update, facts)

    def found(self) -> list[Object]:
        """All objects with the node's label, by name."""
        query = f"labelSelector={NODE_LABEL}%3D{self.node}"
        items = self.objects.get(f"{CAPACITIES}?{query}")["items"]
        return sorted(items, key=lambda there: str(there["metadata"]["name"]))

    def sizes(self) -> dict[str, tuple[str, str]]:
        """Capacity and the largest volume, by class; fails for twins."""
        found = self.found()
        sizes = {
            there["storageClassName"]: (
                there.get("capacity", ""),
                there.get("maximumVolumeSize", ""),
            )
            for there in found
        }
        assert len(sizes) == len(found), "two objects of one class"
        return sizes

    def says(self, **wanted: str | tuple[str, str]) -> None:
        """Wait until just these classes have objects that say this; one for both sizes."""
        pairs = {
            name: sizes if isinstance(sizes, tuple) else (sizes, sizes)
            for name, sizes in wanted.items()
        }
        until(self.sizes_or_twins, lambda found: found == pairs)

    def sizes_or_twins(self) -> Any:
        self._thread.check()
        try:
            return self.sizes()
        except AssertionError as error:
            return str(error)

    def object_of(self, class_name: str) -> Object:
        return self.objects.get(f"{CAPACITIES}/{object_name(self.node, class_name)}")

    def stop(self) -> None:
        self._thread.stop()


def eventually_role(publisher: Publisher) -> CapacityRole:
    until(lambda: publisher.role is not None, bool)
    assert publisher.role is not None
    return publisher.role


def change(objects: Objects, there: Object, patch: Object) -> Object:
    """Somebody else changes an object."""
    path = f"{CAPACITIES}/{there['metadata']['name']}"
    changed: Object = objects.plane.request("PATCH", path, patch, content_type=MERGE)
    return changed


def remove(objects: Objects, there: Object) -> None:
    objects.plane.request("DELETE", f"{CAPACITIES}/{there['metadata']['name']}")


def copy_of(there: Object, **metadata: Any) -> Object:
    """The same again, to be created, with other metadata."""
    kept = {key: there["metadata"][key] for key in ("name", "labels", "ownerReferences")}
    body = {key: value for key, value in there.items() if key != "metadata"}
    return {**body, "metadata": kept | metadata}


@contextlib.contextmanager
def publishing(
    objects: Objects,
    node: str,
    kubeconfig: Path | None = None,
    paces: CapacityPaces | None = None,
) -> Iterator[Publisher]:
    """A role for this node, which stops in the end and whose objects then go."""
    publisher = Publisher(objects, node, kubeconfig, paces)
    try:
        yield publisher
    finally:
        try:
            publisher.stop()
        finally:
            for there in publisher.found():
                with contextlib.suppress(RequestFailed):
                    change(objects, there, {"metadata": {"finalizers": None}})
                with contextlib.suppress(RequestFailed):
                    remove(objects, there)
