"""A controller for one test, and the Nodes, PersistentVolumes and claims that it is to judge.

The controller runs as a thread of the tests' process, with its own event loop, or as a process.
Nodes are objects without a kubelet; what kube-controller-manager does to volumes is real.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from localvolume.config.flags.listening import ListenAddress
from localvolume.controller.controller import Controller, ControllerOptions, LeaseOptions
from localvolume.controller.leading import Pace
from localvolume.controller.model import Policy
from localvolume.kube.events import QUEUE
from localvolume.volumes.marks import FLEX_DRIVER, OURS
from localvolume.volumes.periods import Clock
from localvolume_lab.controlplane import ControlPlane, RequestFailed
from localvolume_lab.controlplane.ports import free_ports
from tests.cluster.support_endpoints import http, metric, samples
from tests.cluster.support_objects import pause
from tests.cluster.support_thread import LoopThread
from tests.suite.api import CLAIMS, DRIVERS, EVENTS, MERGE, NODES, VOLUMES
from tests.suite.names import FINALIZER, HOSTNAME, NODE_LABEL, PROVISIONED_BY
from tests.suite.until import until

T = TypeVar("T")

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

LOST = "localvolume.dev/node-lost-since"

UPSTREAM = "local_volume_node_cleanup_"

#: A generous bound for what takes well below a second on a quiet machine.
SECONDS = 90.0

Volume = dict[str, Any]
Claim = dict[str, Any]


def in_(*values: str, key: str = HOSTNAME) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def term(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


class ControllerThread(LoopThread):
    """A controller in this process, in a thread and an event loop of its own."""

    def __init__(self, options: ControllerOptions) -> None:
        super().__init__("controller", lambda: Controller(options).run())


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.levelname} {record.getMessage()}")


class Ground:
    """What one test makes in the shared control plane; all of it goes in the end."""

    def __init__(self, plane: ControlPlane, unique: str) -> None:
        self.plane = plane
        self.unique = unique
        self.cls = f"{unique}-class"
        self.lease = f"{unique}-lease"
        self.controller: ControllerThread | None = None
        self.port = free_ports(1)[0]
        self._made: list[str] = []
        self._count = 0
        self._log = _Log()

    def __enter__(self) -> "Ground":
        logger = logging.getLogger("localvolume")
        self._level = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self._log)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            logger = logging.getLogger("localvolume")
            logger.removeHandler(self._log)
            logger.setLevel(self._level)
            for path in reversed(self._made):
                with contextlib.suppress(RequestFailed):
                    self.patch(path, {"metadata": {"finalizers": None}})
                with contextlib.suppress(RequestFailed):
                    self.plane.request("DELETE", path)

    # --- the controller ------------------------------------------------------------------------

    def start(
        self,
        *classes: str,
        claim_delay: float = 0.0,
        return_period: float = 3600.0,
        resync: float = 600.0,
        lost: float = 1.0,
        nowhere: float = 0.5,
        lease_seconds: float = 180.0,
        provisioners: Sequence[str] = (),
        flex_drivers: Sequence[str] = (),
        kubeconfig: Path | None = None,
        metrics_certificate: str | None = None,
        event_queue_size: int = QUEUE,
        clock: Clock | None = None,
        wait: bool = True,
    ) -> None:
        """Start it with these classes opted in for deleting; returns once it leads."""
        self.controller = ControllerThread(
            ControllerOptions(
                policy=Policy(
                    frozenset(classes),
                    claim_delay,
                    return_period,
                    OURS.union(provisioners),
                    frozenset({FLEX_DRIVER, *flex_drivers}),
                ),
                pace=Pace(lost=lost, resync=resync, nowhere=nowhere),
                lease=LeaseOptions(
                    name=self.lease, seconds=lease_seconds, renew_deadline=120, retry_seconds=0.5
                ),
                kubeconfig=str(kubeconfig or self.plane.kubeconfig),
                listen_address=ListenAddress("127.0.0.1", self.port),
                metrics_certificate=metrics_certificate,
                event_queue_size=event_queue_size,
                clock=clock or Clock(),
            )
        )
        self.adopt(f"{LEASES}/{self.lease}")
        # While one is there, the scheduler asks for published room in every test.
        for name in OURS:
            self.adopt(f"{DRIVERS}/{name}")
        if wait:
            self.until(lambda: self.metric("localvolume_leader"), lambda value: value == 1)
            self.until(lambda: self.http("/ready"), lambda got: got == (200, "ok, leading\n"))

    def stop(self) -> None:
        controller, self.controller = self.controller, None
        if controller is not None:
            controller.stop()

    def http(self, path: str) -> tuple[int, str]:
        """What the controller answers, (0, why) where it does not."""
        return http(self.port, path)

    def metric(self, name: str, **labels: str) -> float | None:
        return metric(self.port, name, **labels)

    def lost(self, cls: str = "") -> dict[str, float]:
        """How many volumes of a class are lost, by what is done about them."""
        return {
            labels["action"]: value
            for labels, value in samples(self.port, "localvolume_lost_volumes")
            if labels["storageclass"] == (cls or self.cls) and value
        }

    def until_others_are_gone(self) -> None:
        """Before requests are counted or answered for the server: what an earlier test has deleted
        goes in its own time, as its pods do, and until then a controller sees to it too.

        What waits for a program of that test, as for a snapshot-controller, would never go.
        """

        def going() -> list[str]:
            found = self.plane.request("GET", VOLUMES)["items"]
            return [_name(one) for one in found if "deletionTimestamp" in one["metadata"]]

        for name in going():
            with contextlib.suppress(RequestFailed):
                self.patch(f"{VOLUMES}/{name}", {"metadata": {"finalizers": None}})
        self.until(going, lambda left: not left)

    # --- making things -------------------------------------------------------------------------

    def adopt(self, path: str) -> None:
        """Have something taken away in the end."""
        self._made.append(path)

    def node(self, suffix: str = "node", labels: Mapping[str, str] | None = None) -> str:
        """A Node; its hostname label is its name unless `labels` say otherwise."""
        name = f"{self.unique}-{suffix}"
        self.plane.create_node(name, labels)
        self.adopt(f"{NODES}/{name}")
        return name

    def remove_node(self, name: str) -> None:
        self.plane.request("DELETE", f"{NODES}/{name}")

    def volume(
        self,
        *hostnames: str,
        cls: str = "",
        policy: str = "Delete",
        provisioner: str | None = "",
        labelled: bool = True,
        finalized: bool = True,
        terms: Sequence[dict[str, Any]] | None = None,
        source: Mapping[str, Any] | None = None,
        phase: str = "Available",
        **spec: Any,
    ) -> Volume:
        """A PersistentVolume as an agent of the first hostname makes it, once in that phase."""
        self._count += 1
        name = f"{self.unique}-pv-{self._count}"
        by = f"local-volume-provisioner-{hostnames[0] if hostnames else 'none'}"
        annotations = {} if provisioner is None else {PROVISIONED_BY: provisioner or by}
        metadata: dict[str, Any] = {"name": name, "annotations": annotations}
        if labelled:
            metadata["labels"] = {NODE_LABEL: hostnames[0]}
        if finalized:
            metadata["finalizers"] = [FINALIZER]
        terms = [term(in_(*hostnames))] if terms is None else terms
        body = {
            "metadata": metadata,
            "spec": {
                "capacity": {"storage": "10Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": policy,
                "storageClassName": cls or self.cls,
                "volumeMode": "Filesystem",
                "nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}},
                **(source or {"local": {"path": f"/mnt/{name}"}}),
                **spec,
            },
        }
        self.plane.request("POST", VOLUMES, body)
        self.adopt(f"{VOLUMES}/{name}")
        return self.in_phase(name, phase) if phase else self.get(VOLUMES, name) or {}

    def in_phase(self, name: str, phase: str) -> Volume:
        found = self.until(lambda: self.get(VOLUMES, name), lambda v: v and _phase(v) == phase)
        return found or {}

    def bound(self, volume: Volume) -> Claim:
        """Bind it to a claim of its own, which is returned."""
        self._count += 1
        name = f"{self.unique}-claim-{self._count}"
        body = {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": volume["spec"]["storageClassName"],
                "accessModes": ["ReadWriteOnce"],
                "volumeName": _name(volume),
                "resources": {"requests": {"storage": "1Ki"}},
            },
        }
        self.plane.request("POST", CLAIMS, body)
        self.adopt(f"{CLAIMS}/{name}")
        self.in_phase(_name(volume), "Bound")
        claim = self.until(
            lambda: self.get(CLAIMS, name), lambda c: c and c["status"].get("phase") == "Bound"
        )
        return claim or {}

    def released(self, volume: Volume) -> Volume:
        """Have a claim come and go."""
        claim = self.bound(volume)
        self.plane.request("DELETE", f"{CLAIMS}/{_name(claim)}")
        return self.in_phase(_name(volume), "Released")

    @contextlib.contextmanager
    def no_binder(self) -> Iterator[None]:
        """Nobody puts right what is wrong between volumes and claims."""
        pause(self.plane, "kube-controller-manager")
        try:
            yield
        finally:
            self.plane.resume("kube-controller-manager")

    def patch(self, path: str, body: Any) -> Any:
        return self.plane.request("PATCH", path, body, content_type=MERGE)

    # --- looking -------------------------------------------------------------------------------

    def get(self, collection: str, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.plane.request("GET", f"{collection}/{name}")
        except RequestFailed as error:
            if error.status == 404:
                return None
            raise
        return found

    def again(self, thing: dict[str, Any]) -> dict[str, Any] | None:
        """A volume or claim as it is now; None where it, or this very one, is gone."""
        collection = CLAIMS if thing["metadata"].get("namespace") else VOLUMES
        found = self.get(collection, _name(thing))
        same = found and found["metadata"]["uid"] == thing["metadata"]["uid"]
        return found if same else None

    def gone(self, thing: dict[str, Any]) -> None:
        self.until(lambda: self.again(thing), lambda found: found is None)

    def stays(self, *things: dict[str, Any]) -> None:
        """Once the controller has had every chance: nobody has asked for its deletion."""
        self.settle()
        self.are_kept(*things)

    def are_kept(self, *things: dict[str, Any]) -> None:
        """Right now; where the controller may do nothing, it never settles."""
        for thing in things:
            found = self.again(thing)
            assert found is not None, f"{_name(thing)} is gone"
            assert "deletionTimestamp" not in found["metadata"]

    def settle(self) -> None:
        """Until a volume that was lost later than all others has been seen to, twice over."""
        for _ in range(2):
            sample = self.volume(f"{self.unique}-nowhere", cls=f"{self.unique}-sample")
            self.marked(sample)

    def marked(self, volume: Volume) -> str:
        """Since when its node is lost, once that is written."""
        return self.until(lambda: self.mark(volume), bool) or ""

    def mark(self, volume: Volume) -> str | None:
        found = self.get(VOLUMES, _name(volume)) or {"metadata": {}}
        mark: str | None = found["metadata"].get("annotations", {}).get(LOST)
        return mark

    def events(self, thing: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """What a controller said of one thing, or of all things of this test."""
        query = f"?fieldSelector=involvedObject.name={_name(thing)}" if thing else ""
        found: list[dict[str, Any]] = self.plane.request("GET", f"{EVENTS}{query}")["items"]
        return [
            event
            for event in found
            if event["source"].get("component") == "localvolume-controller"
            and event["involvedObject"]["name"].startswith(self.unique)
        ]

    def event(self, thing: dict[str, Any], reason: str, text: str = "") -> dict[str, Any]:
        """The Event of that reason about that object, once it is there."""

        def fitting() -> list[dict[str, Any]]:
            of_it = self.events(thing)
            return [e for e in of_it if e["reason"] == reason and text in e["message"]]

        found: list[dict[str, Any]] = self.until(fitting, bool)
        return found[0]

    def until(
        self, read: Callable[[], T], wanted: Callable[[T], Any], seconds: float = SECONDS
    ) -> T:
        """What `read` returns once it is `wanted`; fails after `seconds`."""
        __tracebackhide__ = True

        def check() -> None:
            if self.controller is not None:
                self.controller.check()

        return until(
            read,
            wanted,
            seconds=seconds,
            check=check,
            said=lambda: "\n".join(["its log:", *self._log.messages[-25:]]),
        )

    def log(self) -> list[str]:
        return list(self._log.messages)

    def logged(self, text: str) -> bool:
        return any(text in line for line in self.log())


def _name(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])


def _phase(volume: Volume) -> str:
    return str(volume["status"].get("phase", ""))
