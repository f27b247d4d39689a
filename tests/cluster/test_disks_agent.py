"""Raw disks and a whole agent: said first, done once it is approved, and offered as any volume."""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.cli.main import main
from localvolume.disks.act import WITHDRAWN, Outcome, carry_out
from localvolume.disks.model import DiskPlan
from localvolume.host.process.workers import Workers
from tests.cluster.support_agent import Class, Lab
from tests.cluster.support_rights import Rights, done_with
from tests.cluster.support_seeing import Seeing
from tests.host.support_devices import LoopDevice, command, unmount
from tests.host.support_disks import odd_size, shared_directory
from tests.suite.api import CAPACITIES, MERGE, NODES, PODS
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


class Disks:
    """A class whose volumes come from loop devices of one size."""

    def __init__(self, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
        self.lab = lab
        self.size = odd_size()
        self._capsys = capsys
        # The disks go last: they are detached once nothing of them is mounted.
        self.cls: Class = lab.add_class("fast")
        self.approved: list[str] = []
        self.settings()

    def share(self) -> None:
        self.lab.stack.enter_context(shared_directory(self.cls.directory))

    def settings(self) -> None:
        match = {"minSize": str(self.size), "maxSize": str(self.size), "transport": "loop"}
        wanted = {"name": "loops", "class": self.cls.name, "match": match, "fsType": "ext4"}
        self.lab.settings["disks"] = {"filters": [wanted], "approved": self.approved}
        if self.lab.agent:
            self.lab.write_config("disks", json.dumps(self.lab.settings["disks"]))

    def approve(self, digest: str) -> None:
        self.approved.append(digest)
        self.settings()

    def add(self) -> LoopDevice:
        return self.lab.raw_disk(self.size)

    def planned(self) -> dict[str, dict[str, Any]]:
        """What `localvolume plan` says of the disks, by their node."""
        words = ["--config", self.lab.config_directory, "--node", self.lab.node, "-o", "json"]
        self._capsys.readouterr()
        argv = ["plan", *map(str, words), "--kubeconfig", str(self.lab.plane.kubeconfig)]
        assert main(argv) == 0
        return {row["path"]: row for row in json.loads(self._capsys.readouterr().out)}

    def counted(self, verdict: str) -> float:
        return self.lab.metric("localvolume_disks", verdict=verdict) or 0

    def until_said(self, reason: str, word: str = "") -> str:
        """The message of that Event on the Node, once it is there."""
        message: str = self.lab.event(self.lab.node, reason, word)["message"]
        return message


@pytest.fixture
def disks(lab: Lab, capsys: pytest.CaptureFixture[str]) -> Disks:
    return Disks(lab, capsys)


def holds_nothing(disk: LoopDevice) -> bool:
    return command("wipefs", disk.path) == ""


def test_said_then_approved_then_done_then_offered(disks: Disks, lab: Lab) -> None:
    pair = [disks.add(), disks.add()]
    used = disks.add()
    used.format("ext4", "-L", "somebody")
    disks.share()
    lab.start()
    said = disks.until_said("DisksNotApproved")
    assert all(os.path.basename(disk.path) in said for disk in pair)
    # Before anybody else looks: who looks at a disk has it to itself, and it is in use meanwhile.
    lab.until(lambda: (disks.counted("format"), disks.counted("hold")), lambda n: n == (2, 1))
    # And nor may the agent be looking: any block device of this machine that changes has it look.
    planned = lab.until(
        disks.planned,
        lambda rows: (
            rows[pair[0].path].get("plan", "?") in said
            and rows[used.path]["reason"] == "it holds ext4"
        ),
    )
    digest = planned[pair[0].path]["plan"]
    assert all(holds_nothing(disk) for disk in pair)
    # The second opt-in.
    disks.approve(digest)
    for disk in pair:
        name = os.path.basename(planned[disk.path]["volumePath"])
        volume = lab.published(disks.cls, name)
        assert volume["spec"]["local"]["path"] == planned[disk.path]["volumePath"]
        assert os.path.ismount(disks.cls.path(name))
        disks.until_said("DiskFormatted", os.path.basename(disk.path))
    lab.until(lambda: disks.counted("done"), lambda n: n == 2)
    assert "LABEL=somebody" in command("blkid", "-p", "-o", "export", used.path)
    assert disks.planned()[pair[0].path]["verdict"] == "done"
    # After a reboot nothing of it is mounted.
    lab.stop()
    places = [disks.cls.path(os.path.basename(planned[disk.path]["volumePath"])) for disk in pair]
    for place in places:
        unmount(place)
    lab.start()
    disks.until_said("DiskMounted")
    lab.until(lambda: all(os.path.ismount(place) for place in places), bool)
    # Who unmounts it now has a reason to: only another start mounts it again.
    unmount(places[0])
    # A device that comes has it look again.
    disks.add()
    lab.until(lambda: (disks.counted("mount"), disks.counted("format")), lambda n: n == (1, 1))
    assert not os.path.ismount(places[0])
    lab.stop()


def shown(seeing: Seeing, lab: Lab) -> dict[str, dict[str, Any]] | None:
    """What `status` says of the node's disks, by their device; None if no agent tells of any."""
    (node,) = seeing.ask("status", "--node", lab.node, "-o", "json").json["nodes"]
    assert node["rooms"] == []
    if node["disks"] is None:
        return None
    return {one["device"]: one for one in node["disks"]}


def test_status_shows_them_from_afar(
    disks: Disks, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is planned, that it is done, and nothing once no disks are configured any more."""
    lab.paces = replace(lab.paces, disks_told=0.0)
    seeing = Seeing(lab.plane, capsys)
    disk, used = disks.add(), disks.add()
    used.format("ext4")
    disks.share()
    lab.start()
    # Whatever looks at a disk has it to itself meanwhile, and the next look finds it blank.
    found = lab.until(
        lambda: shown(seeing, lab) or {},
        lambda found: (
            found.get(disk.path, {}).get("verdict") == "format"
            and found[used.path]["code"] == "signature"
        ),
    )
    row = found[disk.path]
    told = row["class"], row["capacityBytes"], row["approved"]
    assert told == (disks.cls.name, disks.size, False)
    assert found[used.path]["reason"] == "it holds ext4"
    table = seeing.ask("status", "--node", lab.node, "-o", "wide").out
    assert any(disk.path in line and "format" in line for line in table.splitlines())
    disks.approve(row["plan"])
    found = lab.until(
        lambda: shown(seeing, lab) or {},
        lambda found: found.get(disk.path, {}).get("verdict") == "done",
    )
    assert found[disk.path]["approved"] is True
    lab.settings.pop("disks")
    lab.configure()
    lab.until(lambda: shown(seeing, lab), lambda found: found is None)
    lab.stop()


def test_to_tell_of_them_an_agent_needs_no_more_rights_than_it_has(
    rights: Rights, request: pytest.FixtureRequest
) -> None:
    """Those of deploy/install.yaml, confined to its node."""
    done_with(rights, test_status_shows_them_from_afar, request)


def test_what_was_told_of_them_goes_with_the_agents_pod(
    disks: Disks, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the real garbage collector: an agent that does not tell may have taken its place."""
    lab.paces = replace(lab.paces, disks_told=0.0)
    seeing = Seeing(lab.plane, capsys)
    disk = disks.add()
    disks.share()
    container = {"name": "agent", "image": "x"}
    spec = {"nodeName": lab.node, "containers": [container]}
    pod = lab.objects.make(PODS, {"metadata": {"name": lab.unique}, "spec": spec})
    name = pod["metadata"]["name"]
    lab.start(pod_name=name)
    lab.until(lambda: shown(seeing, lab) or {}, lambda found: disk.path in found)
    query = f"{CAPACITIES}?labelSelector=localvolume.dev/node%3D{lab.node}"
    (told,) = lab.objects.get(query)["items"]
    assert told["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
    ]
    # Somebody deletes it: it is told again.
    lab.plane.request("DELETE", f"{CAPACITIES}/{told['metadata']['name']}")
    lab.until(
        lambda: [one["metadata"]["uid"] for one in lab.objects.get(query)["items"]],
        lambda uids: uids not in ([], [told["metadata"]["uid"]]),
    )
    lab.stop()
    assert disk.path in (shown(seeing, lab) or {})
    lab.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    lab.until(lambda: shown(seeing, lab), lambda found: found is None)


def test_what_is_known_of_pod_and_node_only_later_is_told_too(disks: Disks, lab: Lab) -> None:
    lab.paces = replace(lab.paces, disks_told=0.0)
    disks.add()
    disks.share()
    query = f"{CAPACITIES}?labelSelector=localvolume.dev/node%3D{lab.node}"

    def told() -> tuple[list[str], dict[str, Any]] | None:
        """To whom the one object belongs, and which nodes it is about."""
        found = lab.objects.get(query)["items"]
        if len(found) != 1:
            return None
        owners = found[0]["metadata"]["ownerReferences"]
        return [one["kind"] for one in owners], found[0]["nodeTopology"]["matchLabels"]

    hostname = {"kubernetes.io/hostname": lab.node}
    lab.start(pod_name=lab.unique)
    lab.until(told, lambda found: found == (["Node"], hostname))
    spec = {"nodeName": lab.node, "containers": [{"name": "agent", "image": "x"}]}
    lab.objects.make(PODS, {"metadata": {"name": lab.unique}, "spec": spec})
    lab.until(told, lambda found: found == (["Pod"], hostname))
    hostname = {"kubernetes.io/hostname": f"{lab.unique}-renamed"}
    patch = {"metadata": {"labels": hostname}}
    lab.plane.request("PATCH", f"{NODES}/{lab.node}", patch, content_type=MERGE)
    lab.until(told, lambda found: found == (["Pod"], hostname))
    lab.stop()


def test_a_disk_that_somebody_looks_at_meanwhile_is_not_forgotten(disks: Disks, lab: Lab) -> None:
    """Who looks has it to himself; nobody tells when he is through."""
    lab.paces = replace(lab.paces, disks_recheck=3.0)
    one, two = disks.add(), disks.add()
    disks.share()
    lab.configure()
    disks.approve(disks.planned()[one.path]["plan"])
    untouched: list[bool] = []

    class Looker(logging.Handler):
        """Is through once the agent has said what it makes of that, and before it looks again."""

        looks = os.open(two.path, os.O_RDONLY | os.O_EXCL)

        def emit(self, record: logging.LogRecord) -> None:
            if "DisksNotApproved" in record.getMessage() and not untouched:
                untouched.append(holds_nothing(one))
                os.close(self.looks)

    looker, logger = Looker(), logging.getLogger("localvolume.disks")
    logger.addHandler(looker)
    try:
        lab.start()
        lab.until(lambda: disks.counted("done"), lambda n: n == 2)
        lab.stop()
    finally:
        logger.removeHandler(looker)
        if not untouched:
            os.close(looker.looks)
    assert untouched == [True]


def test_a_disk_that_somebody_looks_at_just_then_is_not_forgotten(disks: Disks, lab: Lab) -> None:
    """When the plan is carried out: nothing is done, and it is tried again by itself."""
    lab.paces = replace(lab.paces, disks_recheck=3.0)
    disk = disks.add()
    disks.share()
    lab.configure()
    disks.approve(disks.planned()[disk.path]["plan"])
    begun = []

    async def while_somebody_looks(*args: Any, **kwargs: Any) -> list[Outcome]:
        begun.append(True)
        # Twice: a new plan is looked at once more in any case.
        if len(begun) > 2:
            return await carry_out(*args, **kwargs)
        looker = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
        try:
            return await carry_out(*args, **kwargs)
        finally:
            os.close(looker)

    lab.deeds = replace(lab.deeds, carry_out=while_somebody_looks)
    lab.start()
    assert "nothing was done of the plan" in disks.until_said("DiskPlanChanged")
    lab.until(lambda: disks.counted("done"), lambda n: n == 1)
    lab.stop()


def test_a_plan_that_changed_after_its_approval_is_not_carried_out(disks: Disks, lab: Lab) -> None:
    one, two = disks.add(), disks.add()
    disks.share()
    lab.configure()
    digest = disks.planned()[one.path]["plan"]
    three = disks.add()
    disks.approve(digest)
    lab.start()
    said = disks.until_said("DisksNotApproved")
    assert digest not in said
    assert all(holds_nothing(disk) for disk in (one, two, three))
    assert not list(disks.cls.directory.iterdir())
    # It is gone again: just what was approved is left.
    three.detach()
    lab.until(lambda: disks.counted("done"), lambda n: n == 2)
    four = disks.add()
    # It may have the name that the third had, and be told of in the same words but for the others.
    alone = f"these disks would be formatted, {os.path.basename(four.path)}:"
    disks.until_said("DisksNotApproved", alone)
    assert holds_nothing(four)
    lab.stop()


def test_a_filter_that_comes_later_and_goes_again(disks: Disks, lab: Lab) -> None:
    disk = disks.add()
    disks.share()
    wanted = lab.settings.pop("disks")
    lab.start()
    lab.settle()
    assert lab.metric("localvolume_disks", verdict="format") is None
    lab.write_config("disks", json.dumps(wanted))
    digest = disks.until_said("DisksNotApproved").rpartition("adding ")[2].split()[0]
    lab.write_config("disks", json.dumps({"filters": [], "approved": [digest]}))
    lab.until(lambda: disks.counted("format"), lambda n: n == 0)
    assert holds_nothing(disk)
    lab.stop()


def test_what_somebody_does_between_plan_and_deed_is_said(disks: Disks, lab: Lab) -> None:
    one, two = disks.add(), disks.add()
    disks.share()
    lab.start()
    digest = disks.until_said("DisksNotApproved").rpartition("adding ")[2].split()[0]
    # Without a word from the kernel, the agent does not know of it.
    two.format("ext4")
    disks.approve(digest)
    disks.until_said("DiskPlanChanged")
    assert holds_nothing(one)
    lab.stop()


def test_an_approval_that_is_withdrawn_at_the_last_moment(disks: Disks, lab: Lab) -> None:
    """The disks are held already: looking at them takes its time."""
    disk = disks.add()
    disks.share()

    async def late(
        plan: DiskPlan, workers: Workers, *, by_id: str, approved: Callable[[], bool]
    ) -> list[Outcome]:
        disks.approved.clear()
        disks.settings()
        await until_async(lambda: not approved())
        return await carry_out(plan, workers, by_id=by_id, approved=approved)

    lab.deeds = replace(lab.deeds, carry_out=late)
    lab.start()
    digest = disks.until_said("DisksNotApproved").rpartition("adding ")[2].split()[0]
    disks.approve(digest)
    disks.until_said("DiskPlanChanged", WITHDRAWN)
    assert holds_nothing(disk)
    lab.stop()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Any:
    yield
    # Others may have mounts whose names are no text.
    assert os.fsencode(tmp_path) not in Path("/proc/self/mountinfo").read_bytes()
