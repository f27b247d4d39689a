"""Jobs that fail, lie, hang, or are taken away: told with their last words, tried again, never
believed, never taken for running."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning.paces import JobPaces
from tests.cluster.support_agent import Class, Lab, Volume
from tests.cluster.support_pods import Kubelet, job_of, real, wait_for_collector
from tests.suite.api import JOBS, PODS

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

FAILED = "local_volume_provisioner_persistentvolume_delete_failed_total"
FILES, DEVICE = ({"mode": mode, "type": "job"} for mode in ("Filesystem", "Block"))


def released_directory(lab: Lab) -> tuple[Class, Volume, Path]:
    """A volume whose claim is just gone, with data in it."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    return fs, volume, where


def test_a_failed_job_is_told_and_tried_again(lab: Lab, kubelet: Kubelet) -> None:
    """Upstream takes it for running until an administrator removes it."""
    allowed = lab.directory / "allowed"
    script = f'echo "first line"; echo "no luck today" >&2; test -e "{allowed}"'
    block = lab.add_class(
        "block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", script]
    )
    lab.link(lab.raw_disk(4 << 20), block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
    lab.delete_claim(lab.bound(volume))
    lab.until(lambda: len(kubelet.began), lambda count: count >= 3, 180)
    message = lab.event(name, "VolumeFailedDelete", "no luck today")["message"]
    assert f"the Job default/cleanup-{uid} failed" in message
    assert "it is tried again" in message
    assert "ended with 1" in message
    assert "BackoffLimitExceeded" in message
    assert (lab.metric(FAILED, **DEVICE) or 0) >= 2
    assert lab.metric(FAILED, mode="Block", type="process") is None
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == uid
    allowed.touch()
    lab.published(block, "raw", unlike=uid)


def test_a_container_that_cannot_begin(lab: Lab, kubelet: Kubelet) -> None:
    """Such as an image without our command."""
    kubelet.argv_of = lambda _: ["/bin/sh", "-c", "exec /nowhere/localvolume clean"]
    fs, volume, where = released_directory(lab)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "/nowhere/localvolume")
    assert (where / "data").exists()
    kubelet.argv_of = real
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()


def test_a_job_that_cleans_nothing_is_not_believed(lab: Lab, kubelet: Kubelet) -> None:
    kubelet.argv_of = lambda _: [sys.executable, "-c", ""]
    fs, volume, where = released_directory(lab)
    name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
    message = lab.event(name, "VolumeFailedDelete", "ended well, but the volume is not clean")
    assert "'data' is there" in message["message"]
    lab.until(lambda: len(kubelet.began), lambda count: count >= 2, 180)
    assert (where / "data").exists()
    assert (lab.metric(FAILED, **FILES) or 0) >= 1
    kubelet.argv_of = real
    lab.published(fs, "one", unlike=uid)
    assert not (where / "data").exists()


@pytest.mark.parametrize("command", [None, ["/bin/true"]], ids=["zero", "command"])
def test_a_job_that_leaves_a_device_half_cleaned(
    lab: Lab, kubelet: Kubelet, command: list[str] | None
) -> None:
    """Killed half-way, and its exit status lost: the data, or our own note, are still there."""
    keys: dict[str, Any] = {"blockCleanerCommand": command} if command else {}
    block = lab.add_class("block", volumeMode="Block", **keys)
    device = lab.raw_disk(4 << 20)
    lab.link(device, block.path("raw"))
    note = "import sys; from localvolume.cleaning.unfinished import header;"
    write = f"{note} open({device.path!r}, 'r+b').write(header())"
    kubelet.argv_of = lambda _: [sys.executable, "-c", write]
    lab.start()
    volume = lab.published(block, "raw")
    name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
    lab.delete_claim(lab.bound(volume))
    lab.event(name, "VolumeFailedDelete", "ended well, but the volume is not clean")
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == uid
    kubelet.argv_of = real
    if command is None:
        lab.published(block, "raw", unlike=uid)
        assert not any(Path(device.path).read_bytes())


def test_a_job_whose_receipt_is_lost_counts_all_the_same(lab: Lab, kubelet: Kubelet) -> None:
    """A word of its pod's decides nothing: the volume is looked at."""

    def silent(pod: dict[str, Any]) -> list[str]:
        words = real(pod)
        words[words.index("--termination-log") + 1] = "/nowhere/at/all"
        return words

    kubelet.argv_of = silent
    fs, volume, where = released_directory(lab)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    lab.event(volume["metadata"]["name"], "VolumeCleaned", "whose receipt is lost")


def test_a_job_that_is_deleted_by_hand(lab: Lab, kubelet: Kubelet) -> None:
    kubelet.admit = lambda _: False
    fs, volume, where = released_directory(lab)
    name = volume["metadata"]["name"]
    job = lab.until(lambda: job_of(lab, volume), bool)
    assert job is not None
    lab.plane.request(
        "DELETE", f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Background"}
    )
    lab.event(name, "VolumeFailedDelete", "was deleted before its end")
    assert (where / "data").exists()
    again = lab.until(
        lambda: job_of(lab, volume),
        lambda j: j is not None and j["metadata"]["uid"] != job["metadata"]["uid"],
    )
    assert again is not None
    kubelet.admit = lambda _: True
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()


def test_a_job_that_is_just_going_is_waited_for(lab: Lab, kubelet: Kubelet) -> None:
    """It is not this one's failure, and no other is made beside it."""
    kubelet.admit = lambda _: False
    fs, volume, where = released_directory(lab)
    name = volume["metadata"]["name"]
    job = lab.until(lambda: job_of(lab, volume), bool)
    assert job is not None
    query = f"{PODS}?labelSelector=pvuuid%3D{volume['metadata']['uid']}"
    lab.until(
        lambda: [p["spec"].get("nodeName") for p in lab.plane.request("GET", query)["items"]],
        lambda nodes: nodes == [lab.node],
    )
    lab.stop()
    wait_for_collector(lab)
    kubelet.let_end = False
    lab.plane.request(
        "DELETE", f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Foreground"}
    )
    lab.start()
    for _ in range(3):
        lab.settle()
    found = job_of(lab, volume)
    assert found is not None
    assert found["metadata"]["uid"] == job["metadata"]["uid"]
    assert (where / "data").exists()
    kubelet.let_end, kubelet.admit = True, lambda _: True
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    assert [e for e in lab.events(name) if e["reason"] == "VolumeFailedDelete"] == []


def test_a_pod_that_its_job_has_left_behind_is_waited_for(lab: Lab, kubelet: Kubelet) -> None:
    """Deleted with --cascade=orphan: it would clean what is then the next tenant's."""
    kubelet.admit = lambda _: False
    fs, volume, where = released_directory(lab)
    name = volume["metadata"]["name"]
    job = lab.until(lambda: job_of(lab, volume), bool)
    assert job is not None
    query = f"{PODS}?labelSelector=pvuuid%3D{volume['metadata']['uid']}"
    (pod,) = lab.until(lambda: lab.plane.request("GET", query)["items"], bool)
    wait_for_collector(lab)
    lab.plane.request(
        "DELETE", f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Orphan"}
    )
    left = f"pods of an earlier Job have not ended: {pod['metadata']['name']}"
    lab.event(name, "VolumeFailedDelete", left)
    assert job_of(lab, volume) is None
    assert (where / "data").exists()
    kubelet.admit = lambda _: True
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    assert len(kubelet.began) == 2


def test_a_job_that_waits_says_why_once(lab: Lab, kubelet: Kubelet) -> None:
    kubelet.admit = lambda _: False
    kubelet.waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    fs, volume, _ = released_directory(lab)
    name = volume["metadata"]["name"]
    event = lab.event(name, "VolumeCleaningWaits", "ImagePullBackOff: Back-off pulling image")
    assert event["type"] == "Warning"
    time.sleep(2)  # four more looks
    # A pod that comes late is another reason, which is said as well.
    told = [e for e in lab.events(name) if "ImagePullBackOff" in e["message"]]
    assert [e.get("count", 1) for e in told] == [1]
    kubelet.admit = lambda _: True
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])


def test_a_job_that_no_node_takes_says_so(lab: Lab, kubelet: Kubelet) -> None:
    """As when jobTolerations are forgotten."""
    # Tainted from the first: the scheduler learns of nodes and of pods by watches of their own.
    lab.node = f"{lab.unique}-dedicated"
    lab.plane.create_node(
        lab.node, taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
    )
    lab.objects.adopt(f"/api/v1/nodes/{lab.node}")
    fs, volume, where = released_directory(lab)
    lab.event(volume["metadata"]["name"], "VolumeCleaningWaits", "Unschedulable")
    assert (where / "data").exists()
    # The next Job has it; this one goes.
    lab.settings["jobTolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    lab.configure()
    lab.until(lambda: sum("in force" in line for line in lab.log()), lambda n: n == 2)
    job = job_of(lab, volume)
    assert job is not None
    lab.plane.request(
        "DELETE", f"{JOBS}/{job['metadata']['name']}", {"propagationPolicy": "Background"}
    )
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert len(kubelet.began) == 1


def test_a_job_that_cannot_be_made_is_told(lab: Lab, kubelet: Kubelet) -> None:
    """Such as in a namespace that is not there: no reason to try in a hurry, or in silence."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start(namespace=f"{lab.unique}-nowhere")
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    event = lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "its Job cannot be made")
    assert f"{lab.unique}-nowhere" in event["message"]
    assert (where / "data").exists()
    assert kubelet.began == []
    assert (lab.metric(FAILED, **FILES) or 0) >= 1


def test_a_failed_job_is_not_kept_for_ever(lab: Lab, kubelet: Kubelet) -> None:
    """Not even where its object stays and nobody tries again: its time to live is over."""
    lab.hurry(first_wait=600.0, jobs=JobPaces(kept=1))
    kubelet.argv_of = lambda _: ["/bin/false"]
    _, volume, where = released_directory(lab)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete")
    lab.until(lambda: job_of(lab, volume), lambda job: job is None)
    assert lab.volume(volume["metadata"]["name"]) is not None
    assert (where / "data").exists()
    assert len(kubelet.began) == 1


def test_the_deadline_ends_a_job_that_does_not(lab: Lab, kubelet: Kubelet) -> None:
    lab.hurry(jobs=JobPaces(starting=1))
    block = lab.add_class(
        "block",
        volumeMode="Block",
        cleaningTimeout="1s",
        blockCleanerCommand=["/bin/sh", "-c", "sleep 1000"],
    )
    kubelet.admit = lambda _: False
    lab.link(lab.raw_disk(4 << 20), block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    lab.delete_claim(lab.bound(volume))
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "DeadlineExceeded")
