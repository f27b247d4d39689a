"""S2, S11, S16: a cleaning that waits or is under way heeds what is said meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from tests.attacks.support_gate import Gate, fill
from tests.cluster.support_agent import Class, Lab, Volume
from tests.cluster.support_pods import Kubelet, job_of, wait_for_collector
from tests.host.support_devices import LoopDevice
from tests.suite.api import CLAIMS, PODS
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

RECORDS = b"the former tenant's records "
RETAIN = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
RUNNING = "local_volume_provisioner_proctable_running"
STOPPING = "is not to be cleaned any more: stopping"


def holds_records(path: str, where: int) -> bool:
    with Path(path).open("rb") as file:
        file.seek(where)
        return RECORDS in file.read(2 * len(RECORDS))


def used(lab: Lab, block: Class, entry: str, path: str) -> tuple[Volume, str]:
    """The entry's volume with a tenant's records all over, and the claim that holds it."""
    volume = lab.published(block, entry)
    claim = lab.bound(volume)
    fill(path, RECORDS)
    return volume, claim


def raw(lab: Lab, block: Class) -> LoopDevice:
    device = lab.raw_disk()
    lab.link(device, block.path("raw"))
    return device


def is_kept(lab: Lab, block: Class, volume: Volume) -> None:
    """The object goes without a cleaning, and what is left is nobody's to be offered."""
    name = volume["metadata"]["name"]
    lab.until(lambda: lab.volume(name), lambda found: found is None)
    lab.until(lambda: lab.held(block), lambda held: held == {"recorded": 1})
    assert not [e for e in lab.events(name) if e["reason"] == "VolumeCleaned"]


def test_what_is_retained_while_its_cleaning_waits_is_spared(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    disk = lab.raw_disk(32 * MIB)
    parts = disk.partition("8MiB", "8MiB")
    lab.stack.callback(disk.forget_partitions)
    for number, part in enumerate(parts):
        lab.unlink_later(block.path(f"part-{number}")).symlink_to(part)
    gate = Gate(lab)
    lab.start()
    first, one = used(lab, block, "part-0", parts[0])
    second, other = used(lab, block, "part-1", parts[1])
    lab.delete_claim(one)
    gate.wait()
    lab.delete_claim(other)
    name = second["metadata"]["name"]
    lab.until(lambda: lab.volume(name), lambda v: v and "deletionTimestamp" in v["metadata"])
    lab.until(lambda: lab.metric(RUNNING), lambda running: running == 2)
    lab.patch(name, RETAIN)
    gate.open()
    lab.published(block, "part-0", unlike=first["metadata"]["uid"])
    is_kept(lab, block, second)
    for where in (0, 4 * MIB, 8 * MIB - 64):
        assert holds_records(parts[1], where)


def test_what_is_retained_while_it_is_cleaned_keeps_what_is_left(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device = raw(lab, block)
    gate = Gate(lab)
    lab.start()
    volume, claim = used(lab, block, "raw", device.path)
    lab.delete_claim(claim)
    gate.wait()
    lab.patch(volume["metadata"]["name"], RETAIN)
    lab.until(lambda: lab.logged(STOPPING), bool)
    gate.open()
    is_kept(lab, block, volume)
    assert holds_records(device.path, 8 * MIB)


@pytest.mark.parametrize("runs", [False, True], ids=["pending", "running"])
def test_a_job_of_what_is_retained_is_removed(lab: Lab, kubelet: Kubelet, runs: bool) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device = raw(lab, block)
    kubelet.admit = lambda _: runs
    kubelet.argv_of = lambda _: ["sleep", "600"]
    lab.start()
    volume, claim = used(lab, block, "raw", device.path)
    lab.delete_claim(claim)
    lab.until(lambda: len(kubelet.began) if runs else job_of(lab, volume), bool)
    lab.patch(volume["metadata"]["name"], RETAIN)
    is_kept(lab, block, volume)
    assert job_of(lab, volume) is None
    assert len(kubelet.began) == runs
    assert holds_records(device.path, 0)


def bind(lab: Lab, volume: Volume) -> str:
    """Bind an object that is being deleted: by a claim that it names and that names it."""
    claim, name = f"{lab.unique}-prebound", volume["metadata"]["name"]
    reference = {"namespace": "default", "name": claim, "uid": None, "resourceVersion": None}
    lab.patch(name, {"spec": {"claimRef": reference}})
    spec = volume["spec"]
    body: dict[str, Any] = {
        "metadata": {"name": claim},
        "spec": {
            "storageClassName": spec["storageClassName"],
            "accessModes": spec["accessModes"],
            "volumeMode": spec["volumeMode"],
            "volumeName": name,
            "resources": {"requests": {"storage": "1Ki"}},
        },
    }
    lab.objects.make(CLAIMS, body)
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Bound")
    return claim


def test_what_is_bound_while_it_is_cleaned_is_left_alone(lab: Lab) -> None:
    """kube-controller-manager binds an object that is being deleted to a claim that it names."""
    block = lab.add_class("block", volumeMode="Block")
    device = raw(lab, block)
    gate = Gate(lab)
    lab.start()
    volume, claim = used(lab, block, "raw", device.path)
    lab.delete_claim(claim)
    gate.wait()
    again = bind(lab, volume)
    lab.until(lambda: lab.logged(STOPPING), bool)
    gate.open()
    lab.until(lambda: lab.metric(RUNNING), lambda running: running == 0)
    for _ in range(2):
        lab.settle()
    found = lab.volume(volume["metadata"]["name"])
    assert found
    assert found["status"]["phase"] == "Bound"
    assert found["metadata"]["finalizers"]
    assert holds_records(device.path, 8 * MIB)
    lab.delete_claim(again)
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert not any(Path(device.path).read_bytes())


def test_a_job_of_what_is_bound_again_is_removed(lab: Lab, kubelet: Kubelet) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device = raw(lab, block)
    kubelet.admit = lambda _: False
    lab.start()
    volume, claim = used(lab, block, "raw", device.path)
    lab.delete_claim(claim)
    query = f"{PODS}?labelSelector=pvuuid%3D{volume['metadata']['uid']}"
    lab.until(lambda: lab.plane.request("GET", query)["items"], bool)
    # Else the Job may go before its pod, which would be admitted below.
    wait_for_collector(lab)
    again = bind(lab, volume)
    lab.until(lambda: job_of(lab, volume), lambda job: job is None)
    kubelet.admit = lambda _: True
    lab.settle()
    assert holds_records(device.path, 0)
    lab.delete_claim(again)
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert not any(Path(device.path).read_bytes())


def test_the_object_is_kept_where_it_is_bound_at_the_last_moment(lab: Lab) -> None:
    """After the cleaning, before the finalizer has gone: the claim has a volume, so it stays."""
    block = lab.add_class("block", volumeMode="Block")
    device = raw(lab, block)
    lab.start()
    volume, claim = used(lab, block, "raw", device.path)
    name = volume["metadata"]["name"]
    finalizers = "'localvolume.dev/volume' in object.metadata.?finalizers.orValue([])"
    allowed = lab.forbid("UPDATE", finalizers)
    none = {"metadata": {"finalizers": None}}
    lab.until(lambda: lab.refuses("PATCH", f"/api/v1/persistentvolumes/{name}", none), bool)
    lab.delete_claim(claim)
    lab.until(lambda: lab.logged("is clean; its finalizer stays for now"), bool)
    again = bind(lab, volume)
    lab.plane.request("DELETE", allowed)
    lab.until(lambda: lab.logged("is held by a claim again"), bool)
    for _ in range(2):
        lab.settle()
    found = lab.volume(name)
    assert found
    assert found["status"]["phase"] == "Bound"
    assert found["metadata"]["finalizers"]
    lab.delete_claim(again)
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])


def test_what_waits_is_cleaned_as_its_class_says_by_then(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    disk = lab.raw_disk(32 * MIB)
    parts = disk.partition("8MiB", "8MiB")
    lab.stack.callback(disk.forget_partitions)
    for number, part in enumerate(parts):
        lab.unlink_later(block.path(f"part-{number}")).symlink_to(part)
    gate = Gate(lab)
    lab.start()
    _, one = used(lab, block, "part-0", parts[0])
    second, other = used(lab, block, "part-1", parts[1])
    lab.delete_claim(one)
    gate.wait()
    lab.delete_claim(other)
    lab.until(lambda: lab.metric(RUNNING), lambda running: running == 2)
    command = ["localvolume", "overwrite", "1"]
    lab.settings["storageClassMap"][block.name]["blockCleanerCommand"] = command
    lab.configure()
    in_force = "configuration in force"
    lab.until(lambda: sum(in_force in line for line in lab.log()), lambda times: times == 2)
    gate.open()
    lab.event(second["metadata"]["name"], "VolumeCleaned", "overwrite x1")
