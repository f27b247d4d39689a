"""A node whose FlexVolume agent is killed: the test is its kubelet, its controller, its observer.

What every tenant was promised is kept here, and compared with what there is.
"""

import hashlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from localvolume.host.lvm.commands import LogicalVolume, Lvm
from localvolume_lab.controlplane import RequestFailed
from tests.suite.api import CLAIMS, CLASSES, MERGE, VOLUMES
from tests.suite.units import MIB
from tests.suite.until import until

from .support_flex_agents import LvmZygote
from .support_kills import Orders
from .support_looks import GROUP, bytes_of, digest, filesystem, halves, state, write_file
from .support_lvm_dynamic import SandboxPlane

T = TypeVar("T")

NODE = "guest"
DRIVER = "localvolume.dev/flexvolume"
KEPT = "pv-kept"
PATTERN = b"of the tenant before "
GRACE = 0.5
#: How often LVM is asked: the guest has one processor, and the agent needs it, too.
_LOOKS = 0.5
#: The waits of the agent that are longer than its lives. A resync asks LVM, and the guest's one
#: processor has better to do.
HURRIED = {
    "flexvolume": {"rest": 0.1, "longest_rest": 0.2, "resync": 5.0, "again": 0.2, "watched": 0.3}
}


@dataclass
class Tenant:
    """A claim, its PersistentVolume, and what it was promised. `made`: a mount has succeeded."""

    name: str
    fs: str
    size: int
    way: str = ""
    made: bool = False
    mounted: bool = False
    canary: bytes = field(default=b"", repr=False)


class Ground:
    """The objects, the calls, the agents and the disk. `tenants` by name."""

    def __init__(self, directory: Path, lvm: Lvm, seconds: float = 180, path: str = "") -> None:
        """`path` is the agents' PATH, where theirs is to be another than the test's."""
        self.lvm = lvm
        self.tenants: dict[str, Tenant] = {}
        self.lives = 0
        self.kind = "thick"
        """What an agent makes that is revived: thick or thin."""
        self.look_seconds = 0.1
        self.seconds = seconds
        self._count = 0
        self._kubelet = directory / "kubelet"
        self._socket = directory / "flex.sock"
        self.plane = SandboxPlane(directory)
        self.orders = Orders(directory)
        for kind in ("thick", "thin"):
            where = directory / kind
            where.mkdir()
            section = {
                "volumeGroup": GROUP,
                "socket": str(self._socket),
                "pluginDirectory": str(directory / "plugins"),
                "gracePeriod": f"{GRACE}s",
                **({"thinPool": "tp"} if kind == "thin" else {}),
            }
            (where / "flexvolume").write_text(json.dumps(section))
        self._configs = directory
        environment = {"MY_NODE_NAME": NODE, "KUBECONFIG": str(self.plane.kubeconfig)}
        if path:
            environment["PATH"] = path
        self.agents = LvmZygote(directory, [], environment, HURRIED)
        self._kept_data: dict[str, str] = {}
        self._kept_uuids: dict[str, str] = {}

    def prepare(self) -> None:
        """The Node, the class, and what others have in the group: of that nothing may change."""
        self.plane.create_node(NODE)
        body = {"metadata": {"name": "flex"}, "provisioner": DRIVER, "allowVolumeExpansion": True}
        self.plane.request("POST", CLASSES, body)
        self.lvm.create_pool(GROUP, "tp", 128 * MIB)
        self.lvm.create(GROUP, "theirs", 8 * MIB)
        self.lvm.create(GROUP, "theirs-thin", 8 * MIB, thin_pool="tp")
        for name in ("theirs", "theirs-thin"):
            Path(f"/dev/{GROUP}/{name}").write_bytes(os.urandom(MIB))
        self._note_kept()

    def keep(self) -> None:
        """A volume whose PersistentVolume goes with the policy Retain: from now on it must not."""
        self.start("thick")
        tenant = self.claim(KEPT, policy="Retain")
        self.mount(tenant)
        self.unmount(tenant)
        del self.tenants[KEPT]
        self.plane.request("DELETE", f"{CLAIMS}/{KEPT}")
        self.until(lambda: self._phase(KEPT) == "Released")
        self.plane.request("DELETE", f"{VOLUMES}/{KEPT}")
        self.until(lambda: self._phase(KEPT) == "")
        self._note_kept()

    def _note_kept(self) -> None:
        self._kept_uuids = {one.name: one.uuid for one in self.lvm.volumes(GROUP)}
        self._kept_data = {name: digest(name) for name in self._kept_uuids if name != "tp"}

    # --- agents --------------------------------------------------------------------------------

    def start(self, kind: str, wrong: str = "") -> None:
        self.lives += 1
        self.agents.start_with(
            ["--config", str(self._configs / kind), "--listen-address", "127.0.0.1:0"], wrong
        )

    def revive(self, order: Any = None) -> bool:
        """Start another agent where there is none; the order is for that one."""
        status = self.agents.died(0)
        if status is None:
            return False
        assert status == -9, f"the agent ended with {status}: {self.log()}"
        self.orders.give(order)
        self.start(self.kind)
        return True

    def log(self) -> str:
        return self.agents.log.read_text()[-5000:]

    def until(self, done: Callable[[], Any], every: float = 0.1) -> None:
        """Wait, with an agent that lives or is revived."""
        __tracebackhide__ = True
        until(
            done,
            seconds=self.seconds,
            every=every,
            check=self.revive,
            said=lambda: f"{self.faults()}\n{state()}\n{self.log()}",
        )

    def looking(self, look: Callable[[], T]) -> T:
        """What it finds, with an agent that lives or is revived.

        An agent dies with its commands, which may leave a device suspended: who reads from it then
        waits until the next agent has put that right, and nobody else begins one.
        """
        found: Future[T] = Future()

        def run() -> None:
            try:
                found.set_result(look())
            except BaseException as error:  # noqa: BLE001 - whoever waits raises it
                found.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        until(
            lambda: wait([found], 1).done,
            seconds=self.seconds,
            every=0,
            check=self.revive,
            said=lambda: f"{halves()} hold a look up\n{self.log()}",
        )
        return found.result()

    # --- the kubelet ---------------------------------------------------------------------------

    def target(self, name: str) -> Path:
        return self._kubelet / "pods" / f"pod-{name}" / "volumes" / DRIVER.replace("/", "~") / name

    def ask(self, path: str, body: Any) -> str:
        """What the daemon says: "" where it is well, "nobody" where nobody answers."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        said = b""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as talk:
                talk.settimeout(120)
                talk.connect(str(self._socket))
                talk.sendall(head.encode() + data)
                while piece := talk.recv(65536):
                    said += piece
        except (ConnectionError, FileNotFoundError):
            return "nobody"
        _, _, text = said.partition(b"\r\n\r\n")
        if not text.startswith(b"{"):
            return text.decode() or "nobody"
        reply = json.loads(text)
        return "" if reply["status"] == "Success" else str(reply["message"])

    def insist(self, path: str, body: Any) -> None:
        """Ask until it is done, as the kubelet does."""
        said = "nobody asked"

        def done() -> bool:
            nonlocal said
            said = self.ask(path, body)
            return not said

        try:
            self.until(done)
        except AssertionError as error:
            raise AssertionError(f"{path} {body}: {said}\n{error}") from None

    def mount(self, tenant: Tenant) -> None:
        self.insist("/mount", self._wanted(tenant))
        tenant.mounted = True
        if not tenant.made:
            self.looking(lambda: self._move_in(tenant))
        self.look_in_on(tenant)

    def refused(self, tenant: Tenant, text: str) -> None:
        """Ask that it is mounted until the daemon says that; that it is well fails."""

        def done() -> bool:
            said = self.ask("/mount", self._wanted(tenant))
            assert said, f"{tenant} was mounted"
            return text in said

        self.until(done)

    def abandon(self, tenant: Tenant) -> None:
        """Ask once that it is mounted; whatever comes of it, its claim goes before anybody asks
        again."""
        self.ask("/mount", self._wanted(tenant))
        self.revive()
        self.unmount(tenant)
        self.remove(tenant)

    def _wanted(self, tenant: Tenant) -> dict[str, Any]:
        target = self.target(tenant.name)
        target.mkdir(parents=True, exist_ok=True)
        options = {
            "kubernetes.io/fsType": tenant.fs,
            "kubernetes.io/readwrite": "rw",
            "kubernetes.io/pvOrVolumeName": tenant.name,
            "sizeBytes": str(tenant.size),
            "onRemoval": tenant.way,
        }
        return {"targetDir": str(target), "options": options}

    def unmount(self, tenant: Tenant) -> None:
        target = self.target(tenant.name)
        tenant.mounted = False
        self.insist("/unmount", {"targetDir": str(target)})
        assert not os.path.ismount(target), f"{tenant} is still mounted"
        target.rmdir()

    def _move_in(self, tenant: Tenant) -> None:
        target = self.target(tenant.name)
        found = sorted(one.name for one in target.iterdir() if one.name != "lost+found")
        assert not found, f"{tenant} was offered with {found} in it"
        tenant.made = True
        tenant.canary = hashlib.sha256(tenant.name.encode()).digest() * 1024
        write_file(target / "canary", tenant.canary)
        write_file(target / "pattern", (PATTERN + tenant.name.encode()) * (2 * MIB // 32))

    def look_in_on(self, tenant: Tenant) -> None:
        """Its data is there, and the room that it was promised."""
        if wrong := self.looking(lambda: self._wrong_with(tenant)):
            raise AssertionError(f"{tenant}: {wrong}\n{self.log()}")

    def _wrong_with(self, tenant: Tenant) -> str:
        target = self.target(tenant.name)
        if not os.path.ismount(target):
            return "it is not mounted"
        if (target / "canary").read_bytes() != tenant.canary:
            return "its data is gone"
        try:
            room, has = filesystem(target, f"/dev/{GROUP}/{tenant.name}", tenant.fs)
        except FileNotFoundError:
            # LVM makes the link anew when it resumes a device, and may be killed between.
            return "no path leads to its device"
        if has < tenant.size - 64 * 4096 or room < 0.6 * tenant.size:
            return f"it was promised {tenant.size}: its filesystem has {has}, {room} of it room"
        return ""

    # --- the controller ------------------------------------------------------------------------

    def claim(
        self, name: str = "", *, fs: str = "ext4", mib: int = 16, way: str = "", **more: str
    ) -> Tenant:
        """A claim and its PersistentVolume, bound."""
        self._count += 1
        tenant = Tenant(name or f"pvc-{self._count}", fs, mib * MIB, way)
        storage = {"storage": f"{mib}Mi"}
        shared: dict[str, Any] = {"storageClassName": "flex", "accessModes": ["ReadWriteOnce"]}
        options = {"sizeBytes": str(tenant.size), **({"onRemoval": way} if way else {})}
        spec = {
            **shared,
            "capacity": storage,
            "persistentVolumeReclaimPolicy": more.get("policy", "Delete"),
            "flexVolume": {"driver": DRIVER, "fsType": fs, "options": options},
            "claimRef": {"namespace": "default", "name": tenant.name},
        }
        noted = {"pv.kubernetes.io/provisioned-by": DRIVER}
        self.plane.request(
            "POST", VOLUMES, {"metadata": {"name": tenant.name, "annotations": noted}, "spec": spec}
        )
        wanted = {**shared, "volumeName": tenant.name, "resources": {"requests": storage}}
        labels = {"localvolume.dev/node": NODE}
        body = {"metadata": {"name": tenant.name, "labels": labels}, "spec": wanted}
        self.plane.request("POST", CLAIMS, body)
        self.until(lambda: self._phase(tenant.name) == "Bound")
        self.tenants[tenant.name] = tenant
        return tenant

    def grow(self, tenant: Tenant, size_bytes: int) -> None:
        """Let its claim ask for more, and wait until it is told that it has it."""
        path = f"{CLAIMS}/{tenant.name}"
        spec = {"spec": {"resources": {"requests": {"storage": str(size_bytes)}}}}
        self.plane.request("PATCH", path, spec, content_type=MERGE)

        def told() -> bool:
            found = self.plane.request("GET", path)
            return bytes_of(found["status"].get("capacity", {})) >= size_bytes

        self.until(told)
        tenant.size = size_bytes
        if tenant.mounted:
            self.look_in_on(tenant)

    def release(self, tenant: Tenant) -> None:
        """Delete the claim, then as the controller the PersistentVolume, until that is gone."""
        if tenant.mounted:
            self.unmount(tenant)
        name = tenant.name
        self.plane.request("DELETE", f"{CLAIMS}/{name}")
        self.until(lambda: self._phase(name) == "Released")
        self.plane.request("DELETE", f"{VOLUMES}/{name}")
        # Until then it may not go.
        self.until(lambda: self._phase(name) == "")
        del self.tenants[name]

    def remove(self, tenant: Tenant) -> None:
        """The same, and wait until all is gone."""
        self.release(tenant)
        self.until(lambda: self.lvm.volume(GROUP, tenant.name) is None, _LOOKS)

    def _phase(self, name: str) -> str:
        try:
            found = self.plane.request("GET", f"{VOLUMES}/{name}")
        except RequestFailed as error:
            if error.status != 404:
                raise
            return ""
        return str(found.get("status", {}).get("phase", ""))

    # --- the observer --------------------------------------------------------------------------

    def faults(self) -> list[str]:
        """What is not as it was promised; some of it may be so for a moment."""
        return self.looking(self._faults)

    def _faults(self) -> list[str]:
        wrong = [f"{name} is not live" for name in halves()]
        began = time.monotonic()
        there = {one.name: one for one in self.lvm.volumes(GROUP)}
        self.look_seconds = time.monotonic() - began
        for name, uuid in self._kept_uuids.items():
            if name not in there or there[name].uuid != uuid:
                wrong.append(f"{name} was nobody's to remove")
            elif name in self._kept_data and digest(name) != self._kept_data[name]:
                wrong.append(f"{name} has changed")
        wrong += [
            f"{name} is left, and has no PersistentVolume"
            for name in there.keys() - self._kept_uuids.keys() - self.tenants.keys()
        ]
        told = {one["metadata"]["name"]: one for one in self.plane.request("GET", VOLUMES)["items"]}
        for tenant in self.tenants.values():
            if tenant.made:
                wrong += self._faults_of(tenant, there.get(tenant.name), told[tenant.name])
        return wrong

    def _faults_of(
        self, tenant: Tenant, volume: LogicalVolume | None, told: dict[str, Any]
    ) -> Iterator[str]:
        if volume is None:
            yield f"{tenant}: removed, and its PersistentVolume exists"
            return
        if volume.size_bytes < bytes_of(told["spec"]["capacity"]):
            yield f"{tenant}: it has {volume.size_bytes} bytes, and more was told of"
        if tenant.mounted and (text := self._wrong_with(tenant)):
            yield f"{tenant}: {text}"

    def until_whole(self) -> None:
        """Wait until nothing is wrong: an agent at work passes through much."""
        __tracebackhide__ = True
        until(
            self.faults,
            lambda found: not found,
            seconds=self.seconds,
            every=_LOOKS,
            check=self.revive,
            said=self.log,
        )

    def end(self) -> None:
        """Leave nothing mounted and nobody alive."""
        if self.agents.died(0) is None and self.agents.pid:
            self.agents.kill()
        self.agents.__exit__(None, None, None)
        for name in halves():
            # What was killed with the agent has left it suspended: nobody could unmount.
            subprocess.run(["dmsetup", "resume", name], check=True, timeout=60)
        for name in [*self.tenants, KEPT]:
            while os.path.ismount(self.target(name)):
                subprocess.run(["umount", "--lazy", str(self.target(name))], check=True)
        subprocess.run(["vgchange", "--activate", "n", GROUP], capture_output=True, timeout=60)
        self.plane.stop()
