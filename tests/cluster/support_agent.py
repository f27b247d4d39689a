"""A node of its own for one test: classes, discovery directories, and an agent that serves them.

The agent runs as a thread of the tests' process, with its own event loop, or (where signals or its
death are the matter) as a process. The API server is the real one, and so are the disks.
"""

import contextlib
import json
import logging
import os
import sys
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import localvolume
from localvolume.agent.agent import Agent
from localvolume.agent.deeds import Deeds
from localvolume.agent.options import AgentOptions
from localvolume.agent.paces import Paces
from localvolume.cleaning.run import clean
from localvolume.cleaning.steps import DeviceCalls
from localvolume.config.flags.listening import ListenAddress
from localvolume.host.filesystem.volumenotes import NAME as NOTE
from localvolume.host.mount.mounts import read_mount_table
from localvolume.static.paces import StaticPaces
from localvolume.volumes.periods import Clock
from localvolume_lab.controlplane import RequestFailed
from localvolume_lab.controlplane.ports import free_ports
from tests.cluster.support_endpoints import http, metric, samples
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.cluster.support_thread import LoopThread
from tests.host.support_devices import (
    LoopDevice,
    bind,
    command,
    formatted,
    loop_device,
    mounted,
)
from tests.suite.api import CLAIMS, CLASSES, EVENTS, MERGE, VOLUMES
from tests.suite.names import NODE_LABEL
from tests.suite.until import until

T = TypeVar("T")

ADMISSION = "/apis/admissionregistration.k8s.io/v1"

IDENTITY = "localvolume.dev/identity"
CLAIMED = "localvolume.dev/claimed"
GENERATION = "localvolume.dev/generation"

UPSTREAM_ANNOTATIONS = ("pv.kubernetes.io/provisioned-by",)

Volume = dict[str, Any]

#: A generous bound for what takes well below a second on a quiet machine: what waits for a try
#: again, or for a control plane whose watches an outage has cut, takes a multiple of it.
SECONDS = 90.0


@dataclass(frozen=True)
class Class:
    """A storage class of the node: its directory as the agent sees it and as the host calls it."""

    name: str
    directory: Path
    host_dir: str

    def path(self, entry: str) -> Path:
        return self.directory / entry

    def host_path(self, entry: str) -> str:
        return f"{self.host_dir}/{entry}"


class AgentThread(LoopThread):
    """An agent in this process, in a thread and an event loop of its own."""

    def __init__(self, options: AgentOptions) -> None:
        self.agent = Agent(options)
        super().__init__("agent", self.agent.run)


class _Log(logging.Handler):
    """Every message of the agent, in order."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.levelname} {record.getMessage()}")


class Lab:
    """One node of the shared control plane, with everything of it; `start` its agent any time."""

    def __init__(self, objects: Objects, unique: str, directory: Path) -> None:
        self.objects = objects
        self.plane = objects.plane
        self.unique = unique
        self.node = f"{unique}-node"
        self.directory = directory
        self.config_directory = directory / "config"
        self.config_directory.mkdir()
        self.records = directory / "records"
        self.classes: dict[str, Class] = {}
        self.settings: dict[str, Any] = {"storageClassMap": {}}
        self.stack = contextlib.ExitStack()
        self.agent: AgentThread | Program | None = None
        self.port = free_ports(1)[0]
        self.kubeconfig: Path | None = None
        """Whose access the agent has; the administrator's where nothing is said."""
        self.job_image: str | None = None
        self.paces = Paces(static=StaticPaces(patience=30.0, entry=60.0, directory=60.0))
        """Of the agents that are started from now on in this process.

        What a slow machine needs a while to read is not dead.
        """
        self.deeds = Deeds()
        self.clock = Clock()
        """Theirs too."""
        self._log = _Log()
        self._count = 0
        self._written = 0

    def __enter__(self) -> Self:
        self._level = logging.getLogger("localvolume").level
        logging.getLogger("localvolume").setLevel(logging.DEBUG)
        logging.getLogger("localvolume").addHandler(self._log)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            logging.getLogger("localvolume").removeHandler(self._log)
            logging.getLogger("localvolume").setLevel(self._level)
            try:
                self.stack.close()
            finally:
                self._remove_objects()

    def _remove_objects(self) -> None:
        for claim in self.plane.request("GET", CLAIMS)["items"]:
            if claim["spec"].get("storageClassName") in {c.name for c in self.classes.values()}:
                self._ignore_missing("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        for volume in self.volumes():
            path = f"{VOLUMES}/{volume['metadata']['name']}"
            self._ignore_missing("PATCH", path, {"metadata": {"finalizers": None}})
            self._ignore_missing("DELETE", path)

    def _ignore_missing(self, method: str, path: str, body: Any = None) -> None:
        with contextlib.suppress(RequestFailed):
            self.plane.request(
                method, path, body, content_type=MERGE if body else "application/json"
            )

    # --- making things -------------------------------------------------------------------------

    def make_node(self, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        made = self.plane.create_node(self.node, labels)
        self.objects.adopt(f"/api/v1/nodes/{self.node}")
        return made

    def add_class(
        self,
        kind: str = "fs",
        *,
        policy: str = "Delete",
        mount_options: list[str] | None = None,
        storage_class: bool = True,
        **keys: Any,
    ) -> Class:
        """A class in the configuration (to be written by `configure`), and its StorageClass."""
        name = f"{self.unique}-{kind}"
        directory = self.directory / kind
        directory.mkdir(exist_ok=True)
        made = Class(name, Path(keys.pop("mountDir", directory)), f"/host/{self.unique}/{kind}")
        made = Class(name, made.directory, keys.pop("hostDir", made.host_dir))
        self.settings["storageClassMap"][name] = {
            "hostDir": made.host_dir,
            "mountDir": str(made.directory),
            **keys,
        }
        self.classes[kind] = made
        if storage_class:
            self.make_storage_class(name, policy, mount_options)
        return made

    def make_storage_class(
        self, name: str, policy: str = "Delete", mount_options: list[str] | None = None
    ) -> None:
        body: dict[str, Any] = {
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": policy,
            "volumeBindingMode": "Immediate",
        }
        if mount_options is not None:
            body["mountOptions"] = mount_options
        self.objects.make(CLASSES, body)

    def configure(self) -> None:
        """Write the configuration as the kubelet does: all of it is exchanged in one step.

        The agent may read it at any moment: what it finds before and after that step is either
        valid and what it was, or not valid (a link to nothing).
        """
        self._written += 1
        data = self.config_directory / f"..{self._written}"
        data.mkdir()
        for key, value in self.settings.items():
            (data / key).write_text(json.dumps(value, indent=1))
            self._link(key, f"..data/{key}")
        self._link("..data", data.name)
        for path in self.config_directory.iterdir():
            if not path.name.startswith("..") and path.name not in self.settings:
                path.unlink()

    def _link(self, name: str, target: str) -> None:
        new = self.directory / "new-link"
        new.symlink_to(target)
        new.rename(self.config_directory / name)

    def write_config(self, key: str, text: str) -> None:
        new = self.directory / f"new-{key}"
        new.write_text(text)
        new.rename(self.config_directory / key)

    def disk(self, fs_type: str = "ext4", *, size: int | None = None) -> LoopDevice:
        """A loop device with a filesystem, not mounted."""
        return self.stack.enter_context(formatted(fs_type, size=size))

    def raw_disk(self, size: int = 16 << 20) -> LoopDevice:
        """A loop device full of nothing."""
        return self.stack.enter_context(loop_device(size))

    def mount(self, device: LoopDevice, where: Path, *, options: str = "") -> Path:
        where.mkdir(exist_ok=True)
        return self.stack.enter_context(mounted(device, where, options=options))

    def unlink_later(self, path: Path) -> Path:
        """Have a node or link removed in the end, before the disk it leads to is."""
        self.stack.callback(path.unlink, missing_ok=True)
        return path

    def link(self, device: LoopDevice, where: Path) -> Path:
        """A symbolic link to a device: how an administrator offers a raw one."""
        where.symlink_to(device.path)
        return self.unlink_later(where)

    # --- the agent -----------------------------------------------------------------------------

    def hurry(self, **static: Any) -> None:
        """Give the static role of the agents that are started from now on these paces."""
        self.paces = replace(self.paces, static=replace(self.paces.static, **static))

    def ask_kernel(self, **calls: Any) -> None:
        """Have the agents that are started from now on ask it these ways about what they clean."""
        asked = partial(clean, calls=DeviceCalls(**calls))
        self.deeds = replace(self.deeds, clean=asked)

    def start(self, *, wait: bool = True, write: bool = True, **options: Any) -> AgentThread:
        """Configure and start the agent in a thread; returns once it has looked at the node."""
        if write:
            self.configure()
        self.agent = agent = AgentThread(
            AgentOptions(
                node_name=self.node,
                config_directory=str(self.config_directory),
                kubeconfig=str(self.kubeconfig or self.plane.kubeconfig),
                listen_address=ListenAddress("127.0.0.1", self.port),
                job_image=self.job_image,
                records_directory=str(self.records),
                paces=self.paces,
                deeds=self.deeds,
                clock=self.clock,
                **options,
            )
        )
        if wait:
            self.until(self.looks, lambda looks: looks > 0)
        return agent

    def start_process(
        self,
        *arguments: str,
        wait: bool = True,
        prefix: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> Program:
        """Configure and start the agent as a process; `prefix` goes before its command, `variables`
        are in its environment."""
        self.configure()
        argv = [
            *prefix,
            sys.executable,
            "-m",
            "localvolume",
            "agent",
            "--config",
            str(self.config_directory),
        ]
        argv += ["--listen-address", f"127.0.0.1:{self.port}", *arguments]
        environment = {
            "MY_NODE_NAME": self.node,
            "KUBECONFIG": str(self.kubeconfig or self.plane.kubeconfig),
            "KUBELET_DIR": "none",
            "RECORDS_DIR": str(self.records),
            **({"JOB_CONTAINER_IMAGE": self.job_image} if self.job_image else {}),
            # The package under test, wherever the tests took it from.
            "PYTHONPATH": os.path.dirname(os.path.dirname(localvolume.__file__)),
            **(variables or {}),
        }
        self.agent = process = Program(argv, environment, self.directory / "agent.log")
        if wait:
            self.until(self.looks, lambda looks: looks > 0)
        return process

    def stop(self) -> None:
        agent, self.agent = self.agent, None
        if agent is not None:
            agent.stop()

    # --- looking -------------------------------------------------------------------------------

    def http(self, path: str) -> tuple[int, str]:
        """What the agent answers, (0, why) where it does not."""
        return http(self.port, path)

    def metric(self, name: str, **labels: str) -> float | None:
        """One sample of /metrics, None where there is none."""
        return metric(self.port, name, **labels)

    def held(self, cls: Class) -> dict[str, float]:
        """How much of a class is left alone, by reason."""
        return {
            labels["reason"]: value
            for labels, value in samples(self.port, "localvolume_held_volumes")
            if labels["class"] == cls.name
        }

    def holds(self, cls: Class, wanted: dict[str, float]) -> None:
        """Wait until just so much of a class is left alone: the last look may have begun before
        what `settle` had put there was taken away."""
        self.until(lambda: self.held(cls), lambda held: held == wanted)

    def looks(self) -> float:
        return self.metric("localvolume_discovery_looks_total") or 0

    def counted(self) -> float:
        """The looks so far: an agent that does not answer now has not begun to count anew."""
        return self.until(self.looks, bool)

    def settle(self) -> None:
        """Have the node looked at again, from the beginning to the end."""
        self._count += 1
        for cls in self.classes.values():
            if cls.directory.is_dir():
                stray = cls.directory / f"look-at-me-{self._count}"
                before = self.counted()
                stray.symlink_to("/nowhere")
                self._look_again(before)
                before = self.counted()
                stray.unlink()
                self._look_again(before)
                return
        raise AssertionError("there is no directory to look at")

    def _look_again(self, before: float) -> None:
        # The next one to end may have begun before what it is to see; the one after has not.
        self.until(self.looks, lambda looks: looks >= before + 1)

    def log(self) -> list[str]:
        if isinstance(self.agent, Program):
            return self.agent.log.read_text().splitlines()
        return list(self._log.messages)

    def logged(self, text: str) -> bool:
        return any(text in line for line in self.log())

    def until(
        self, read: Callable[[], T], wanted: Callable[[T], Any], seconds: float = SECONDS
    ) -> T:
        """What `read` returns once it is `wanted`; fails after `seconds`, or with the agent."""
        __tracebackhide__ = True

        def check() -> None:
            if self.agent is not None:
                self.agent.check()

        return until(
            read,
            wanted,
            seconds=seconds,
            check=check,
            said=lambda: "\n".join(["the agent's log:", *self.log()[-25:]]),
        )

    # --- volumes and claims --------------------------------------------------------------------

    def volumes(self) -> list[Volume]:
        """The PersistentVolumes of this node's classes."""
        names = {cls.name for cls in self.classes.values()}
        found = self.plane.request("GET", VOLUMES)["items"]
        return [v for v in found if v["spec"].get("storageClassName") in names]

    def volumes_at(self, cls: Class, entry: str) -> list[Volume]:
        path = cls.host_path(entry)
        return [
            v
            for v in self.volumes()
            if v["spec"]["local"]["path"] == path and v["spec"]["storageClassName"] == cls.name
        ]

    def volume(self, name: str) -> Volume | None:
        try:
            found: Volume = self.plane.request("GET", f"{VOLUMES}/{name}")
        except RequestFailed as error:
            if error.status == 404:
                return None
            raise
        return found

    def published(
        self, cls: Class, entry: str, phase: str = "Available", unlike: str = ""
    ) -> Volume:
        """The entry's one PersistentVolume once it is in that phase, with another UID than that."""

        def is_so(found: list[Volume]) -> bool:
            return len(found) == 1 and (
                found[0]["status"].get("phase") == phase
                and found[0]["metadata"]["uid"] != unlike
                and not found[0]["metadata"].get("deletionTimestamp")
            )

        return self.until(lambda: self.volumes_at(cls, entry), is_so)[0]

    def phase(self, name: str) -> str:
        found = self.volume(name)
        return "" if found is None else str(found["status"].get("phase", ""))

    def ask(self, volume: Volume) -> dict[str, Any]:
        """A claim that asks for the volume by its name, whether or not the volume is there yet."""
        spec = volume["spec"]
        self._count += 1
        return self.objects.make(
            CLAIMS,
            {
                "metadata": {"name": f"{self.unique}-claim-{self._count}"},
                "spec": {
                    "storageClassName": spec["storageClassName"],
                    "accessModes": spec["accessModes"],
                    "volumeMode": spec["volumeMode"],
                    "volumeName": volume["metadata"]["name"],
                    "resources": {"requests": {"storage": "1Ki"}},
                },
            },
        )

    def claim(self, volume: Volume) -> str:
        """Bind the volume to a claim of its own; returns the claim's name."""
        asked = self.ask(volume)
        self.until(lambda: self.phase(volume["metadata"]["name"]), lambda p: p == "Bound")
        return str(asked["metadata"]["name"])

    def bound(self, volume: Volume) -> str:
        """The same, and wait until the agent has written down that a claim holds it."""
        name = self.claim(volume)
        self.until(
            lambda: self.volume(volume["metadata"]["name"]),
            lambda v: v and CLAIMED in v["metadata"]["annotations"],
        )
        return name

    def delete_claim(self, name: str) -> None:
        self.plane.request("DELETE", f"{CLAIMS}/{name}")

    def released(self, volume: Volume) -> Volume:
        """Have a claim come and go, so that the volume is Released. Only with no agent running."""
        claim = self.claim(volume)
        self.delete_claim(claim)
        found: Volume | None = self.until(
            lambda: self.volume(volume["metadata"]["name"]),
            lambda v: v and v["status"].get("phase") == "Released",
        )
        assert found is not None
        return found

    def stays(self, volume: Volume) -> Volume:
        """Look again: it is still this very object, and nobody has asked for its deletion."""
        self.settle()
        found = self.volume(volume["metadata"]["name"])
        assert found is not None, "the PersistentVolume is gone"
        assert found["metadata"]["uid"] == volume["metadata"]["uid"]
        assert "deletionTimestamp" not in found["metadata"]
        return found

    def remove(self, volume: Volume) -> None:
        """Take an object away, whatever it waits for. Only with no agent running."""
        name = volume["metadata"]["name"]
        # In this order: Kubernetes puts its own finalizer back on what is bound and not going.
        self._ignore_missing("DELETE", f"{VOLUMES}/{name}")
        self._ignore_missing("PATCH", f"{VOLUMES}/{name}", {"metadata": {"finalizers": None}})
        self.until(lambda: self.volume(name), lambda found: found is None)

    def remake(self, volume: Volume, **metadata: Any) -> Volume:
        """Replace the object by what upstream would have made, or another by the given metadata.

        Nothing is on record of its volume then.
        Returned once it is Available: until then kube-controller-manager has yet to write to it.
        """
        old = volume["metadata"]
        annotations = {k: v for k, v in old["annotations"].items() if k in UPSTREAM_ANNOTATIONS}
        labels = {k: v for k, v in old.get("labels", {}).items() if k != NODE_LABEL}
        fresh = {"name": old["name"], "labels": labels, "annotations": annotations, **metadata}
        spec = {k: v for k, v in volume["spec"].items() if k != "claimRef"}
        if fresh["name"] == old["name"]:
            self.remove(volume)
            self.forget_record(volume)
        made = self.objects.make(VOLUMES, {"metadata": fresh, "spec": spec})
        name = made["metadata"]["name"]
        found: Volume | None = self.until(
            lambda: self.volume(name), lambda v: v and v["status"].get("phase") == "Available"
        )
        assert found is not None
        return found

    def forget_record(self, volume: Volume) -> None:
        """As on a node that never had an agent of ours: nothing is on record of this volume."""
        generation = volume["metadata"]["annotations"].get(GENERATION)
        for record in self.records.glob("*.json"):
            if json.loads(record.read_bytes())["generation"] == generation:
                record.unlink()
        for cls in self.classes.values():
            if cls.name == volume["spec"]["storageClassName"]:
                with contextlib.suppress(OSError):
                    os.removexattr(
                        cls.path(os.path.basename(volume["spec"]["local"]["path"])), NOTE
                    )

    def patch(self, name: str, body: Any, *, status: bool = False) -> Volume:
        path = f"{VOLUMES}/{name}" + ("/status" if status else "")
        changed: Volume = self.plane.request("PATCH", path, body, content_type=MERGE)
        return changed

    def forbid(
        self, operation: str, expression: str = "false", *, resource: str = "persistentvolumes"
    ) -> str:
        """Have the API server refuse CREATE, UPDATE or DELETE of this lab's volumes (or claims),
        where they do not satisfy the expression (CEL); returns the path of what is to be deleted to
        allow it.

        Only once `refuses` says so is it in force.
        """
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
        name = f"{self.unique}-{operation.lower()}"
        which = "oldObject" if operation == "DELETE" else "object"
        ours = f"{which}.spec.storageClassName.startsWith('{self.unique}-')"
        self.objects.make(
            f"{ADMISSION}/validatingadmissionpolicies",
            {
                "metadata": {"name": name},
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {"resourceRules": [{**rule, "operations": [operation]}]},
                    "matchConditions": [{"name": "ours", "expression": ours}],
                    "validations": [{"expression": expression, "message": "not now"}],
                },
            },
        )
        binding = {"policyName": name, "validationActions": ["Deny"]}
        self.objects.make(
            f"{ADMISSION}/validatingadmissionpolicybindings",
            {"metadata": {"name": name}, "spec": binding},
        )
        return f"{ADMISSION}/validatingadmissionpolicybindings/{name}"

    def forbid_creation(self) -> str:
        """The same for CREATE, and wait until it is in force."""
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["nowhere"]}
        sample = {
            "metadata": {"name": f"{self.unique}-sample"},
            "spec": {
                "storageClassName": f"{self.unique}-sample",
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/nowhere"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        }
        policy = self.forbid("CREATE")
        self.until(lambda: self.refuses("POST", VOLUMES, sample), bool)
        return policy

    def refuses(self, method: str, path: str, body: Any = None) -> bool:
        """Whether the API server refuses a request, which is only tried."""
        try:
            kind = MERGE if method == "PATCH" else "application/json"
            self.plane.request(method, f"{path}?dryRun=All", body, content_type=kind)
        except RequestFailed as error:
            return error.status in (403, 422) and "not now" in error.body
        return False

    def events(self, name: str) -> list[dict[str, Any]]:
        """The Events about the object of that name."""
        query = urllib.parse.urlencode({"fieldSelector": f"involvedObject.name={name}"})
        found: list[dict[str, Any]] = self.plane.request("GET", f"{EVENTS}?{query}")["items"]
        return found

    def event(self, name: str, reason: str, text: str = "") -> dict[str, Any]:
        """The Event of that reason about that object, once it is there."""

        def fitting() -> list[dict[str, Any]]:
            return [e for e in self.events(name) if e["reason"] == reason and text in e["message"]]

        found: list[dict[str, Any]] = self.until(fitting, bool)
        return found[0]


@contextlib.contextmanager
def lab_for(objects: Objects, unique: str, directory: Path) -> Iterator[Lab]:
    """A lab with its node; everything of it goes in the end."""
    with hears_of_mounts(directory), Lab(objects, unique, directory) as lab:
        lab.make_node()
        yield lab


@contextlib.contextmanager
def hears_of_mounts(directory: Path) -> Iterator[None]:
    """Have what is mounted below count as the host's, also where /tmp is a private mount."""
    if read_mount_table().hears_of(os.path.realpath(directory)):
        yield
        return
    with bind(directory, directory):
        command("mount", "--make-shared", directory)
        yield
