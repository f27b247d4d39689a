"""Two controllers, one killed, one paused for longer than the lease and resumed: whatever is done
is done once, by one of them, and nothing is left undone.

The API server's own audit log is the witness: who wrote what, when, and with which success.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.ports import free_ports
from tests.cluster.support_controller import LEASES, LOST, Ground
from tests.cluster.support_endpoints import http, metric
from tests.suite.api import VOLUMES
from tests.suite.names import FINALIZER

pytestmark = pytest.mark.needs("controlplane")

USERS = ("first", "second")
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Request",
            "users": list(USERS),
            "verbs": ["create", "update", "patch", "delete"],
        },
        {"level": "None"},
    ],
}
# A machine that has too much to do may keep a process waiting for ten seconds: no leader is to lose
# its lease for that.
LEASE_SECONDS, RENEW_SECONDS = 15, 12
UNSURE = 504


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, audit: Path) -> Iterator[ControlPlane]:
    policy = audit.parent / "policy.json"
    policy.write_text(json.dumps(POLICY))
    with ControlPlane(
        tmp_path_factory.mktemp("audited"),
        scheduler=False,
        users={user: ["system:masters"] for user in USERS},
        extra_apiserver_args=[
            f"--audit-policy-file={policy}",
            f"--audit-log-path={audit}",
            "--audit-log-mode=blocking",
        ],
    ) as plane:
        yield plane


@pytest.fixture
def ground(audited: ControlPlane, unique: str) -> Iterator[Ground]:
    with Ground(audited, unique) as ground:
        yield ground


@dataclass(frozen=True)
class Write:
    """A write that the API server carried out: what was done to which object, by whom, when."""

    at: datetime
    user: str
    act: str
    name: str
    holder: str = ""
    surely: bool = True
    """False: whoever asked was gone before the answer, which then says nothing."""


class Controller:
    """One replica as a process, known to the API server by a name of its own."""

    def __init__(self, ground: Ground, user: str, directory: Path, *classes: str) -> None:
        self.user = user
        self.ground = ground
        self.port = free_ports(1)[0]
        self.log = directory / f"{user}.log"
        argv = [sys.executable, "-m", "localvolume", "controller"]
        argv += [f"--kubeconfig={ground.plane.kubeconfig_of(user)}"]
        argv += [f"--listen-address=127.0.0.1:{self.port}", f"--lease-name={ground.unique}"]
        argv += [f"--leader-elect-lease-duration={LEASE_SECONDS}s"]
        argv += [f"--leader-elect-renew-deadline={RENEW_SECONDS}s"]
        argv += ["--leader-elect-retry-period=300ms"]
        argv += [f"--storageclass-names={','.join(classes)}", "--worker-threads=2"]
        argv += ["--stale-pv-discovery-interval=1s", "--pvc-deletion-delay=0"]
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                argv,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def leads(self) -> bool:
        return metric(self.port, "localvolume_leader") == 1

    def ready(self) -> bool:
        return http(self.port, "/ready")[0] == 200

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def controllers(ground: Ground, tmp_path: Path) -> Iterator[tuple[Controller, Controller]]:
    """Two, of which the first leads."""
    made: list[Controller] = []
    try:
        made.append(Controller(ground, "first", tmp_path, ground.cls))
        ground.until(made[0].leads, bool)
        made.append(Controller(ground, "second", tmp_path, ground.cls))
        ground.until(made[1].ready, bool)
        yield made[0], made[1]
    finally:
        for one in made:
            one.end()
            assert "Traceback" not in one.log.read_text(), one.log.read_text()[-3000:]


def writes(audit: Path, unique: str) -> list[Write]:
    """What both did to the objects of this test, in order."""
    found = []
    # Of a line that is just being written, a part may be there.
    whole, _, _ = audit.read_text().rpartition("\n")
    for line in whole.splitlines():
        event = json.loads(line)
        name = event["objectRef"].get("name", "")
        code = event["responseStatus"]["code"]
        if (code < 300 or code == UNSURE) and name.startswith(unique):
            found.append(_write(event, name))
    return sorted(found, key=lambda write: write.at)


def _write(event: dict[str, Any], name: str) -> Write:
    body: Any = event.get("requestObject")
    what = event["objectRef"]["resource"]
    act, holder = event["verb"], ""
    if what == "leases":
        act, holder = "lease", str(body["spec"].get("holderIdentity"))
    elif what == "events":
        act = "event"
    elif act == "patch":
        text = json.dumps(body)
        act = "lost" if LOST in text else "let go" if FINALIZER in text else text
    at = datetime.fromisoformat(event["requestReceivedTimestamp"])
    surely = event["responseStatus"]["code"] != UNSURE
    return Write(at, event["user"]["username"], act, name, holder, surely)


class Scene:
    """Nodes with their volumes, some used and some not; the nodes go one after the other."""

    def __init__(self, ground: Ground, nodes: int, volumes: int) -> None:
        self.ground = ground
        self.nodes: list[str] = []
        self.volumes: list[str] = []
        self.add(nodes, volumes)

    def add(self, nodes: int, volumes: int) -> list[str]:
        """Further nodes, each with so many volumes."""
        first = len(self.nodes)
        made = [self.ground.node(f"node-{number}") for number in range(first, first + nodes)]
        self.nodes += made
        self.volumes += [self._make(node) for node in made for _ in range(volumes)]
        return made

    def _make(self, node: str) -> str:
        """Without waiting for its phase: that costs 100 ms each."""
        made: str = self.ground.volume(node, phase="")["metadata"]["name"]
        return made

    def lose(self, *nodes: str) -> None:
        for node in nodes:
            self.ground.remove_node(node)

    def left(self) -> set[str]:
        items = self.ground.plane.request("GET", VOLUMES)["items"]
        return {item["metadata"]["name"] for item in items} & set(self.volumes)

    def until_left(self, wanted: Callable[[int], bool], seconds: float = 180.0) -> int:
        return self.ground.until(lambda: len(self.left()), wanted, seconds)

    def until_fewer(self, by: int) -> None:
        wanted = max(0, len(self.left()) - by)
        self.until_left(lambda left: left <= wanted)


def complete(audit: Path, scene: Scene) -> list[Write]:
    """The same once every volume was let go: that is written down after the volume is gone."""

    def whole(found: list[Write]) -> bool:
        return {write.name for write in found if write.act == "let go"} >= set(scene.volumes)

    return scene.ground.until(lambda: writes(audit, scene.ground.unique), whole)


def once_each(found: list[Write], volumes: list[str]) -> None:
    """Every volume was marked, deleted and let go; each of that once, whoever did it."""
    deeds = [write for write in found if write.act not in ("lease", "event")]
    done = Counter((write.name, write.act) for write in deeds if write.surely)
    for write in deeds:
        if not write.surely:
            done.setdefault((write.name, write.act), 1)
    wanted = {(name, act): 1 for name in volumes for act in ("lost", "delete", "let go")}
    assert done == wanted


def intruders(found: list[Write]) -> list[Write]:
    """What somebody wrote after another had taken the Lease.

    There can be one for each pause: a process that was stopped between its look at the clock and
    its system call sends that when it is resumed, and the preconditions in it decide. If that one
    is a renewal, whoever sent it gives up before the answer: it says nothing of who holds the
    Lease, and whoever does not know that it holds the Lease writes nothing by it.
    """
    holder, wrong = "", []
    for write in found:
        if write.act == "lease":
            holder = write.user if write.surely else holder
        elif write.user != holder:
            wrong.append(write)
    return wrong


def test_a_renewal_whose_sender_gave_up_makes_nobody_an_intruder() -> None:
    """As it was once: the second had the Lease, the first awoke and gave up at once."""
    start = datetime.now(UTC)
    acts = [("second", "lease", True), ("first", "lease", False), ("second", "lost", True)]
    found = [Write(start, user, act, "a", surely=surely) for user, act, surely in acts]
    assert not intruders(found)
    found.append(Write(start, "first", "delete", "a"))
    assert intruders(found) == found[-1:]


def pause_in_the_midst(controller: Controller, scene: Scene) -> int:
    """Stop it with requests under way, for the volumes of further nodes; how many volumes are left.

    If it was through with them before it was stopped, more nodes are lost.
    """

    def paused() -> int:
        nodes = scene.add(nodes=10, volumes=8)
        before = len(scene.left())
        scene.lose(*nodes)
        scene.until_left(lambda left: left < before - 5)
        controller.signal(signal.SIGSTOP)
        if (rest := len(scene.left())) > before - 80:
            return rest
        controller.signal(signal.SIGCONT)
        return 0

    return scene.ground.until(paused, bool)


def renewed(ground: Ground) -> float:
    """When the Lease was renewed last, as whoever holds it says."""
    lease = ground.get(LEASES, ground.unique)
    assert lease is not None
    return datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp()


def told(found: list[Write]) -> str:
    """Every write with its moment, to be read after a failure."""
    return "\n".join(f"{one.at.time()} {one.user}: {one.act} {one.name}" for one in found)


def test_paused_resumed_and_killed(
    ground: Ground, audit: Path, controllers: tuple[Controller, Controller]
) -> None:
    first, second = controllers
    scene = Scene(ground, nodes=10, volumes=8)
    stopped = pause_in_the_midst(first, scene)
    ground.until(second.leads, bool)
    # The rest is plenty for one to be busy with, while the other awakes.
    scene.lose(*scene.nodes[:5])
    scene.until_left(lambda left: left < stopped - 2)
    first.signal(signal.SIGCONT)
    awake = time.time()
    # The rest may be done before the next renewal is due: the reign is to go on beyond this moment.
    ground.until(lambda: renewed(ground), lambda at: at > awake)
    scene.until_left(lambda left: left == 40)
    ground.until(first.leads, lambda leads: not leads)
    ground.until(first.ready, bool)
    assert second.leads()
    # Nobody says good-bye: the other waits for the lease to run out, and then does the rest.
    second.end()
    scene.lose(*scene.nodes[5:10])
    ground.until(first.leads, bool)
    scene.until_left(lambda left: left == 0)

    found = complete(audit, scene)
    once_each(found, scene.volumes)
    holders = {write.user: write.holder for write in found if write.act == "lease"}
    assert len(set(holders.values())) == 2
    assert len(intruders(found)) <= 1, told(found)
    taken = [w.at for w in found if w.act == "lease" and w.user == "second"]
    reign = taken[0], taken[-1]
    assert sum(w.user == "first" and w.at < reign[0] for w in found if w.act == "delete") >= 5
    assert sum(w.user == "first" and w.at > reign[1] for w in found if w.act == "delete") >= 40
    assert reign[0].timestamp() < awake < reign[1].timestamp()


def test_both_paused_in_turn(
    ground: Ground, audit: Path, controllers: tuple[Controller, Controller]
) -> None:
    """Again and again, each time in the midst of the work."""
    scene = Scene(ground, nodes=12, volumes=8)
    scene.lose(*scene.nodes)
    leader, other = controllers
    turns = []
    for _ in range(3):
        scene.until_fewer(5)
        turns.append(f"{datetime.now(UTC).time()} {leader.user} is paused")
        leader.signal(signal.SIGSTOP)
        ground.until(other.leads, bool)
        turns.append(f"{datetime.now(UTC).time()} {leader.user} is resumed")
        leader.signal(signal.SIGCONT)
        leader, other = other, leader
        ground.until(other.ready, bool)
    scene.until_left(lambda left: left == 0)
    found = complete(audit, scene)
    once_each(found, scene.volumes)
    assert len(intruders(found)) <= 3, "\n".join([*turns, told(found)])
