"""useJobForCleaning is turned on and off, or may not be used, while volumes are cleaned."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_accounts import account, allow, may, rule
from tests.cluster.support_agent import Class, Lab, Volume
from tests.cluster.support_pods import Kubelet, job_of, jobs_of
from tests.faults.support_proxy import Order, proxy_for

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

SECRET = b"the former tenant's secret "
SIZE = 4 << 20

RIGHTS = [
    rule("persistentvolumes", "get", "list", "watch", "create", "patch", "delete"),
    rule("storageclasses", "get", "list", "watch", group="storage.k8s.io"),
    rule("nodes", "get", "list", "watch"),
    rule("events", "create", "patch"),
]
JOB_RIGHTS = [
    rule("jobs", "get", "list", "watch", "create", "patch", "delete", group="batch"),
    rule("pods", "list"),
]


class Slow:
    """A device whose cleaner counts itself, and waits half-way until it is told to go on."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.pids, self.go = lab.directory / "pids", lab.directory / "go"
        script = (
            f'echo $$ >> "{self.pids}"; while [ ! -e "{self.go}" ]; do sleep 0.05; done; '
            'dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M count=4 conv=fsync 2>/dev/null'
        )
        self.block: Class = lab.add_class(
            "block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", script]
        )
        self.device = lab.raw_disk(SIZE)
        lab.link(self.device, self.block.path("raw"))

    def release(self, **start: Any) -> Volume:
        """Its volume, once the cleaner has begun."""
        self.lab.start(**start)
        volume = self.lab.published(self.block, "raw")
        claim = self.lab.bound(volume)
        Path(self.device.path).write_bytes(SECRET * (SIZE // len(SECRET)))
        self.lab.delete_claim(claim)
        self.lab.until(lambda: self.begun, lambda begun: begun == 1)
        return volume

    @property
    def begun(self) -> int:
        return len(self.pids.read_text().split()) if self.pids.exists() else 0

    def is_dirty(self) -> bool:
        return SECRET in Path(self.device.path).read_bytes()

    def check_nothing_is_offered(self, volume: Volume) -> None:
        """While it is half cleaned: the same object, being deleted, and one cleaner."""
        for _ in range(3):
            self.lab.settle()
            (found,) = self.lab.volumes()
            assert found["metadata"]["uid"] == volume["metadata"]["uid"]
            assert "deletionTimestamp" in found["metadata"]
        assert self.begun == 1
        assert self.is_dirty()

    def finish(self, volume: Volume) -> None:
        self.go.touch()
        self.lab.published(self.block, "raw", unlike=volume["metadata"]["uid"])
        assert not self.is_dirty()
        assert self.begun == 1


@pytest.mark.parametrize("restart", [False, True])
def test_switched_off_while_a_job_runs(lab: Lab, kubelet: Kubelet, restart: bool) -> None:
    """Upstream then asks the other tracker, and offers the disk while the Job still wipes it."""
    slow = Slow(lab)
    volume = slow.release()
    if restart:
        lab.stop()
    lab.settings["useJobForCleaning"] = False
    lab.configure()
    if restart:
        lab.start()
    else:
        lab.until(lambda: sum("in force" in line for line in lab.log()), lambda n: n == 2)
    slow.check_nothing_is_offered(volume)
    slow.finish(volume)
    assert len(kubelet.began) == 1


def test_switched_on_while_the_process_cleans(lab: Lab, kubelet: Kubelet) -> None:
    lab.settings["useJobForCleaning"] = False
    slow = Slow(lab)
    volume = slow.release()
    lab.settings["useJobForCleaning"] = True
    lab.configure()
    lab.until(lambda: sum("in force" in line for line in lab.log()), lambda n: n == 2)
    slow.check_nothing_is_offered(volume)
    assert jobs_of(lab) == []
    slow.finish(volume)
    assert kubelet.began == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_another_agents_job_comes_while_the_process_cleans(
    lab: Lab, kubelet: Kubelet, tmp_path: Path, when: str
) -> None:
    """Two agents of two configurations: the object is not let go while a Job may still begin."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    kubelet.admit = lambda _: False
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    job = lab.until(lambda: job_of(lab, volume), bool)
    lab.stop()
    lab.settings["useJobForCleaning"] = False
    with proxy_for(lab.plane, tmp_path) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        # The next agent's list does not have it yet, as if it were made while that one cleans.
        proxy.orders.append(Order("hide", ("list",), "jobs"))
        if when == "after":
            absent = Order("answer", ("get",), "jobs", times=1, status=404, reason="NotFound")
            proxy.orders.append(absent)
        # The first agent says the same of a Job that waits.
        said = sum("is not finished" in line for line in lab.log())
        lab.start()
        lab.until(lambda: sum("is not finished" in line for line in lab.log()), lambda n: n > said)
        assert (where / "data").exists() == (when == "before")
        (found,) = lab.volumes()
        assert found["metadata"]["uid"] == volume["metadata"]["uid"]
        kubelet.admit = lambda _: True
        lab.published(fs, "one", unlike=volume["metadata"]["uid"])
        lab.stop()
    assert job is not None
    assert len(kubelet.began) == 1


def test_switched_off_after_a_job_has_failed(lab: Lab, kubelet: Kubelet) -> None:
    """The next attempt is the process's, and the failed Job goes with its owner."""
    kubelet.argv_of = lambda _: ["/bin/false"]
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete")
    lab.settings["useJobForCleaning"] = False
    lab.configure()
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    lab.until(lambda: jobs_of(lab), lambda jobs: jobs == [])


def test_jobs_forbidden_and_not_wanted(lab: Lab) -> None:
    """Upstream gives the Role for Jobs with the setting only; and so may an administrator."""
    lab.kubeconfig = account(lab, RIGHTS)
    lab.settings["minResyncPeriod"] = "1s"
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)
    # They are asked for again at every resync, after one to two seconds.
    refused = {"verb": "list", "resource": "jobs", "outcome": "TellTheAdministrator"}
    times = "localvolume_api_requests_total"
    lab.until(lambda: lab.metric(times, **refused) or 0, lambda count: count >= 3)
    said = [line for line in lab.log() if "the Jobs in default cannot be seen" in line]
    assert len(said) == 1
    assert said[0].startswith("INFO ")


def test_jobs_forbidden_and_wanted(lab: Lab, kubelet: Kubelet) -> None:
    """Nothing is cleaned, by nobody; the node says why; and it goes on once it may."""
    lab.kubeconfig = account(lab, RIGHTS + JOB_RIGHTS)
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.stop()
    allow(lab, RIGHTS)
    lab.until(lambda: may(lab, "list", group="batch", resource="jobs"), lambda it: not it)
    lab.start()
    lab.delete_claim(claim)
    lab.event(name, "VolumeFailedDelete", "the Jobs in default cannot be seen")
    assert lab.logged("WARNING the Jobs in default cannot be seen")
    why = "the Jobs in default cannot be seen"
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 500 and why in got[1])
    lab.stays(volume)
    assert (where / "data").exists()
    allow(lab, RIGHTS + JOB_RIGHTS)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    assert len(kubelet.began) == 1
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)


def test_an_edit_that_asks_for_jobs_without_an_image(lab: Lab) -> None:
    """No image in the environment: the last good configuration stays in force."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.settings["useJobForCleaning"] = True
    lab.configure()
    lab.event(lab.node, "ConfigurationInvalid", "JOB_CONTAINER_IMAGE")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert job_of(lab, volume) is None
