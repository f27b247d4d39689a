"""A node that stops, or is killed with the process that started it, leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from localvolume.host.loop.users import loop_status, loops_on
from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletClient, KubeletNode, NodeFailed, NodeNetwork
from localvolume_lab.controlplane.node.cgroups import PREFIX, layout
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.node.support_pods import make_local_volume, make_pod, pod_spec, pod_until
from tests.suite.api import CLAIMS, CLASSES, VOLUMES
from tests.suite.names import NATIVE, NODE_LABEL
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "loop")

SCRIPT = """
import json, os, sys
from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletNode, NodeNetwork

with (
    ControlPlane(node_controllers=True) as plane,
    NodeNetwork(plane) as network,
    KubeletNode(plane, "lost", network=network) as node,
):
    places = [str(node.directory), str(network.directory), str(plane.directory)]
    print(json.dumps([[node.holder, network.holder], places]), flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Traces:
    """What one node has on the machine, by the names that it has while it runs."""

    directory: str
    namespace: str
    link: str
    groups: str

    @classmethod
    def of(cls, holder: int, directory: str) -> "Traces":
        status = Path(f"/proc/{holder}/status").read_text()
        keeper = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid"))
        namespace = os.readlink(f"/proc/{holder}/ns/pid")
        return cls(directory, namespace, f"lvnode{holder}", f"{PREFIX}{keeper}-")

    def left(self) -> dict[str, list[str]]:
        """What there is of it, by kind; kinds without any are left out."""
        found = {
            "processes": processes_of(self.directory, self.namespace, self.groups),
            "links": [name for name in os.listdir("/sys/class/net") if name == self.link],
            "groups": [
                f"{hierarchy}/{entry}"
                for hierarchy in layout().hierarchies
                for entry in os.listdir(hierarchy)
                if entry.startswith(self.groups)
            ],
            "loops": loops_over(self.directory),
            "mounts": [line for line in mounts() if self.directory in line],
        }
        return {kind: one for kind, one in found.items() if one}


def mounts() -> list[str]:
    """What is mounted where, without the ids, which change."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(" ".join(line.split()[3:5]) for line in lines)


def machine() -> dict[str, object]:
    """What the machine has in the places and settings that any kubelet writes to."""
    settings = (
        "vm/overcommit_memory",
        "kernel/panic",
        "kernel/panic_on_oops",
        "net/ipv4/ip_forward",
    )
    places = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods")
    return {
        "settings": [Path("/proc/sys", name).read_text() for name in settings],
        "places": [os.path.exists(path) for path in places],
        "mounts": [
            line for line in mounts() if line.split()[1].startswith(("/run", "/var", "/proc"))
        ],
    }


def processes_of(directory: str, namespace: str, groups: str) -> list[str]:
    """Processes that name the directory, or are in the PID namespace (as /proc/PID/ns/pid), or in
    a control group of that name, as those of pods, which have PID namespaces of their own."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            # Whoever else runs on the machine may have words of any bytes.
            words = os.fsdecode(Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" "))
            theirs = os.readlink(f"/proc/{entry}/ns/pid")
            member = Path("/proc", entry, "cgroup").read_text()
        except OSError:
            continue
        if directory in words or theirs == namespace or groups in member:
            found.append(f"{entry} {words}")
    return found


def loops_over(part: str) -> list[str]:
    """The loop devices whose backing file has `part` in its path."""
    done = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if part in line]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    file = tmp_path / "disk"
    with open(file, "wb") as made:
        made.truncate(16 << 20)
    argv = ["losetup", "--find", "--show", str(file)]
    name = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    yield name
    subprocess.run(["losetup", "--detach", name], check=True)


def test_a_stopped_node_leaves_nothing_and_starts_again(
    node_plane: ControlPlane,
    kubelet_client: KubeletClient,
    archives: list[Path],
    objects: Objects,
    device: str,
    tmp_path: Path,
    unique: str,
) -> None:
    """A second node beside whichever runs, with a pod that has a raw volume, and a mount."""
    before = machine()
    labels = {"example.com/of": unique}
    node = KubeletNode(node_plane, unique, tmp_path / "node", labels=labels, client=kubelet_client)
    node.start()
    try:
        objects.adopt(f"/api/v1/nodes/{unique}")
        traces = Traces.of(node.holder, str(node.directory))
        node.import_image(archives[0])
        make_local_volume(objects, unique, unique, device, "Block")
        spec = pod_spec(
            "sleep 600", volumeDevices=[{"name": "data", "devicePath": "/dev/raw-disk"}]
        )
        spec["nodeSelector"] = labels
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": unique}}]
        make_pod(objects, unique, spec)
        pod_until(objects, unique, "Running")
        node.run(["mount", "-t", "tmpfs", "tmpfs", "/mnt"])
        # Else the test proves nothing.
        there = traces.left()
        assert there.keys() == {"processes", "links", "groups", "loops"}
        number = os.stat(device).st_rdev
        disk = f"{os.major(number)}:{os.minor(number)}"
        assert len(loops_on(disk)) == 1
        assert any("sleep 600" in one for one in there["processes"])
    finally:
        node.stop()
    # The kernel takes a network's links away a little after its last process.
    until(traces.left, lambda left: not left)
    # By what it stands on: without the node's mounts, its path says nothing.
    until(lambda: loops_on(disk), lambda left: not left)
    assert machine() == before

    with node:
        traces = Traces.of(node.holder, str(node.directory))
        assert node.run(["findmnt", "-n", "-o", "SOURCE", "/run"]).strip() == "localvolume-node"
    until(traces.left, lambda left: not left)
    assert machine() == before


@pytest.mark.needs("coredns")
def test_a_stopped_network_of_nodes_leaves_nothing(
    node_plane: ControlPlane, tmp_path: Path
) -> None:
    before = machine()
    with NodeNetwork(node_plane, tmp_path / "network") as network:
        traces = Traces.of(network.holder, str(network.directory))
        # Of links, only nodes have one to the machine.
        assert traces.left().keys() == {"processes", "groups"}
        credentials = network.directory / "kubeconfig"
        assert credentials.stat().st_mode & 0o077 == 0
        with pytest.raises(NodeFailed, match="already running"):
            network.start()
    until(traces.left, lambda left: not left)
    assert machine() == before
    assert not credentials.exists()
    with pytest.raises(NodeFailed, match="not running"):
        network.run(["true"])


@pytest.mark.needs("coredns")
def test_a_place_that_the_network_could_not_see_is_refused(node_plane: ControlPlane) -> None:
    network = NodeNetwork(node_plane, "/run/localvolume-test/network")
    with pytest.raises(NodeFailed, match="choose another place"):
        network.start()
    assert not os.path.exists("/run/localvolume-test")


@pytest.mark.needs("coredns")
def test_nothing_is_left_behind_if_the_api_server_does_not_answer(tmp_path: Path) -> None:
    with ControlPlane(controllers=False, scheduler=False) as plane:
        pass
    with pytest.raises(ConnectionRefusedError):
        NodeNetwork(plane, tmp_path / "network").start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("coredns")
def test_a_network_without_its_name_server_says_so(
    node_plane: ControlPlane, tmp_path: Path
) -> None:
    with NodeNetwork(node_plane, tmp_path / "network") as network:
        network.check()
        network.run(["busybox", "killall", "coredns"])
        with pytest.raises(NodeFailed, match="coredns ended by itself"):
            until(network.check)


@pytest.mark.needs("coredns")
def test_a_killed_owner_takes_the_node_along() -> None:
    before = machine()
    owner = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        holders, places = json.loads(owner.stdout.readline())
        traces = [Traces.of(*one) for one in zip(holders, places[:2], strict=True)]
        assert len(traces[0].left()["processes"]) >= 4
        assert len(traces[1].left()["processes"]) >= 3
        owner.kill()
    until(lambda: [one.left() for one in traces], lambda left: left == [{}, {}])
    until(lambda: [path for path in places if os.path.exists(path)], lambda left: not left)
    assert machine() == before


def test_what_a_killed_keeper_leaves_goes_with_the_next_start(
    node_plane: ControlPlane, objects: Objects, tmp_path: Path, unique: str
) -> None:
    node = KubeletNode(node_plane, unique, tmp_path / "node")
    node.start()
    objects.adopt(f"/api/v1/nodes/{unique}")
    traces = Traces.of(node.holder, str(node.directory))
    os.kill(int(traces.groups.split("-")[-2]), signal.SIGKILL)
    until(traces.left, lambda left: left.keys() == {"groups"})
    with pytest.raises(NodeFailed, match="-9"):
        node.stop()
    assert traces.left()

    with node:
        pass
    until(traces.left, lambda left: not left)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Path]:
    """A disk of the machine for a pool, beside the node's directory."""
    point, file = tmp_path / "pool", tmp_path / "pool.disk"
    point.mkdir()
    with open(file, "wb") as made:
        made.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(file)], check=True, stdin=subprocess.DEVNULL)
    subprocess.run(["mount", "-o", "loop", str(file), str(point)], check=True)
    yield point
    for image in point.glob(".localvolume/images/*.img"):
        of = ["losetup", "--list", "--noheadings", "--output", "NAME", "--associated", str(image)]
        for left in subprocess.run(of, check=True, capture_output=True, text=True).stdout.split():
            subprocess.run(["losetup", "--detach", left], check=True)
    subprocess.run(["umount", str(point)], check=True)


@pytest.mark.needs("ext4")
def test_images_of_a_pool_elsewhere_go_with_the_node(
    node_plane: ControlPlane, objects: Objects, pool: Path, tmp_path: Path, unique: str
) -> None:
    """Also beside a link that is older than what is attached to its loop device now."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "pools").write_text(json.dumps({"p": {"hostDir": str(pool), "backend": "image"}}))
    node = KubeletNode(node_plane, unique, tmp_path / "node")
    node.start()
    try:
        objects.adopt(f"/api/v1/nodes/{unique}")
        environment = {
            "KUBECONFIG": str(node_plane.kubeconfig),
            "MY_NODE_NAME": unique,
            "MY_NAMESPACE": "default",
        }
        agent = [sys.executable, "-m", "localvolume", "agent", "--config", str(config)]
        argv = node.enter([*agent, "--listen-address", "127.0.0.1:0"])
        program = Program(argv, environment, tmp_path / "agent.log")
        try:
            objects.make(CLASSES, {"metadata": {"name": unique}, "provisioner": NATIVE})
            made = objects.make(CLAIMS, claim_of_class(unique))
            name = f"pvc-{made['metadata']['uid']}"
            until(lambda: objects.get(f"{VOLUMES}?fieldSelector=metadata.name={name}")["items"])
            objects.adopt(f"{VOLUMES}/{name}")
            (line,) = loops_over(f"{pool}/")
            assert line.endswith(f"{name}.img")
            device = line.split()[0]
            others = loops_over(f"{pool}.disk")[0].split()[0]
            node.run(["ln", "-s", others, "/run/localvolume/older"])
        finally:
            program.stop()
        attached = loop_status(device)
        assert attached is not None, "what an agent attached outlives it"
    finally:
        node.stop()
    # By what is attached: without the node's mounts, its path is another one. It stays for as long
    # as somebody else looks at the device.
    until(lambda: loop_status(device) != attached)
    assert loops_over(f"{pool}.disk")


def claim_of_class(name: str) -> dict[str, object]:
    """A claim of the class of that name, on the node of that name."""
    return {
        "metadata": {"name": name, "labels": {NODE_LABEL: name}},
        "spec": {
            "storageClassName": name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
        },
    }


def test_a_program_in_the_node_can_be_treated_as_the_program_itself(
    kubelet_node: KubeletNode, unique: str
) -> None:
    """Asked to end it ends by that signal; killed, it does not go on in the node."""
    sleep = ["sleep", f"600.{int(unique[1:], 16)}"]
    namespace = os.readlink(f"/proc/{kubelet_node.holder}/ns/pid")

    def inside() -> list[str]:
        return [one for one in processes_of("/nowhere/", namespace, "/nowhere/") if sleep[1] in one]

    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen(kubelet_node.enter(sleep))
        # Between its fork and its exec it is not yet the program, and nothing ends it with us.
        until(inside, lambda found: [one.split()[1] for one in found] == ["sleep"])
        os.kill(process.pid, number)
        assert process.wait(timeout=90) == -number
        until(inside, lambda found: not found)
    assert subprocess.run(kubelet_node.enter(["sh", "-c", "exit 7"])).returncode == 7
