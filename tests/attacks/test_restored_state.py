"""S6: etcd comes back from a backup, and with it objects of tenants whose data is long gone.

Whoever holds a volume now keeps its data, and nobody gets what another has written.
"""

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from localvolume.host.filesystem.volumenotes import NAME as NOTE
from tests.attacks.support_etcd import Backup
from tests.attacks.support_gate import fill
from tests.attacks.support_records import recorded, uid_of, until_device_held, until_held
from tests.cluster.support_agent import GENERATION, Class, Lab, Volume
from tests.cluster.support_pods import Kubelet, job_of
from tests.host.support_devices import command, mounted
from tests.suite.api import CLAIMS, CLASSES

pytestmark = [
    pytest.mark.needs("root", "loop", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

PRECIOUS = b"what the present tenant has written "


@pytest.fixture
def fs(lab: Lab) -> Class:
    return lab.add_class("fs")


def key(volume: Volume) -> str:
    return f"persistentvolumes/{volume['metadata']['name']}"


def claim_key(claim: str) -> str:
    return f"persistentvolumeclaims/default/{claim}"


def generation(volume: Volume) -> str:
    return str(volume["metadata"]["annotations"][GENERATION])


def released(lab: Lab, cls: Class, entry: str) -> tuple[Volume, Backup]:
    """A volume whose tenant goes while no agent runs, and a backup of just then."""
    lab.start()
    volume = lab.published(cls, entry)
    claim = lab.bound(volume)
    lab.stop()
    lab.delete_claim(claim)
    lab.until(lambda: lab.phase(volume["metadata"]["name"]), lambda phase: phase == "Released")
    return volume, Backup(lab.plane, key(volume))


def test_what_comes_back_released_is_not_cleaned(lab: Lab, fs: Class) -> None:
    """The attack of the list: the former tenant's object comes back in the present one's place."""
    path = lab.mount(lab.disk(), fs.path("one"))
    former, backup = released(lab, fs, "one")
    lab.start()
    present = lab.published(fs, "one", unlike=former["metadata"]["uid"])
    assert generation(present) != generation(former)
    mine = lab.bound(present)
    (path / "precious").write_bytes(PRECIOUS)
    until_held(lab, path, mine)
    backup.restore()
    name = former["metadata"]["name"]
    lab.event(name, "VolumeFailedDelete", "this may be somebody else's volume now: its record says")
    lab.stays(former)
    assert (path / "precious").read_bytes() == PRECIOUS
    # An agent that knows nothing but what it finds judges alike.
    lab.stop()
    lab.start()
    lab.settle()
    lab.stays(former)
    assert (path / "precious").read_bytes() == PRECIOUS


def test_before_the_agent_has_heard_of_the_present_claim_the_offer_tells(
    lab: Lab, fs: Class
) -> None:
    path = lab.mount(lab.disk(), fs.path("one"))
    former, backup = released(lab, fs, "one")
    lab.start()
    present = lab.published(fs, "one", unlike=former["metadata"]["uid"])
    lab.stop()
    lab.claim(present)
    (path / "precious").write_bytes(PRECIOUS)
    assert recorded(path).claim == ""
    backup.restore()
    lab.start()
    lab.event(former["metadata"]["name"], "VolumeFailedDelete", "it has been offered anew since")
    lab.stays(former)
    assert (path / "precious").read_bytes() == PRECIOUS


def test_what_comes_back_available_is_offered_to_nobody(lab: Lab, fs: Class) -> None:
    """Another tenant would get what the one has written whose claim the backup does not know."""
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    backup = Backup(lab.plane, key(volume))
    claim = lab.bound(volume)
    (path / "precious").write_bytes(PRECIOUS)
    until_held(lab, path, claim)
    lost = Backup(lab.plane, claim_key(claim))
    lab.stop()
    lost.lose()
    backup.restore()
    lab.start()
    lab.until(lambda: lab.volume(volume["metadata"]["name"]), lambda found: found is None)
    lab.holds(fs, {"recorded": 1})
    assert not lab.volumes_at(fs, "one")
    assert (path / "precious").read_bytes() == PRECIOUS


@pytest.mark.parametrize("first_use", ["require-empty", "clean", "trust"])
def test_what_no_object_speaks_for_any_more_is_kept(lab: Lab, first_use: str) -> None:
    """The backup is older than the object: whatever the class says of first use, it is held."""
    fs = lab.add_class("fs", firstUse=first_use)
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (path / "precious").write_bytes(PRECIOUS)
    until_held(lab, path, claim)
    lab.stop()
    Backup(lab.plane, key(volume), claim_key(claim)).lose()
    lab.start()
    lab.holds(fs, {"recorded": 1})
    assert not lab.volumes_at(fs, "one")
    assert (path / "precious").read_bytes() == PRECIOUS
    lab.stop()
    holder = recorded(path).claim
    said = command(sys.executable, "-m", "localvolume", "forget", str(path))
    assert f"which the claim {holder} held" in said
    lab.start()
    if first_use == "require-empty":
        lab.holds(fs, {"not-empty": 1})
    else:
        lab.published(fs, "one")
    assert (path / "precious").exists() == (first_use != "clean")


def test_a_raw_device_is_kept_alike(lab: Lab) -> None:
    """Its record lies on the node, and its content may look like nothing."""
    block = lab.add_class("block", volumeMode="Block", firstUse="trust")
    device = lab.raw_disk()
    lab.link(device, block.path("raw"))
    former, backup = released(lab, block, "raw")
    lab.start()
    present = lab.published(block, "raw", unlike=former["metadata"]["uid"])
    mine = lab.bound(present)
    fill(device.path, PRECIOUS)
    until_device_held(lab, mine)
    backup.restore()
    name = former["metadata"]["name"]
    lab.event(name, "VolumeFailedDelete", "this may be somebody else's volume now: its record says")
    lab.stays(former)
    assert Path(device.path).read_bytes().startswith(PRECIOUS)
    lab.stop()
    Backup(lab.plane, key(former), claim_key(mine)).lose()
    lab.start()
    lab.holds(block, {"recorded": 1})
    assert Path(device.path).read_bytes().startswith(PRECIOUS)


def test_what_is_bound_to_another_claim_again_is_not_cleaned_for_it(lab: Lab, fs: Class) -> None:
    """The same object, and the claim that the backup has is not the one that has the data."""
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    first = lab.bound(volume)
    backup = Backup(lab.plane, key(volume), claim_key(first))
    lab.delete_claim(first)
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    lab.patch(name, {"spec": {"claimRef": None}})
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Available")
    second = lab.bound(volume)
    (path / "precious").write_bytes(PRECIOUS)
    until_held(lab, path, second)
    lab.stop()
    Backup(lab.plane, claim_key(second)).lose()
    backup.restore()
    lab.start()
    lab.event(name, "VolumeNotItsOwn", "which this object does not name")
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    lab.delete_claim(first)
    lab.event(name, "VolumeFailedDelete", "which this object does not name")
    lab.stays(volume)
    assert (path / "precious").read_bytes() == PRECIOUS


def test_a_job_that_comes_back_is_removed(lab: Lab, kubelet: Kubelet) -> None:
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    kubelet.admit = lambda _: False
    lab.start()
    former = lab.published(fs, "one")
    claim = lab.bound(former)
    lab.delete_claim(claim)
    job = lab.until(lambda: job_of(lab, former), bool)
    assert job
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    backup = Backup(lab.plane, key(former), f"jobs/{namespace}/{name}")
    kubelet.admit = lambda _: True
    present = lab.published(fs, "one", unlike=former["metadata"]["uid"])
    lab.bound(present)
    (path / "precious").write_bytes(PRECIOUS)
    kubelet.admit = lambda _: False
    backup.restore()
    lab.until(lambda: job_of(lab, former), lambda found: found is None)
    lab.event(former["metadata"]["name"], "VolumeFailedDelete", "its record says")
    assert (path / "precious").read_bytes() == PRECIOUS


def test_a_claim_that_comes_back_takes_what_nobody_holds(lab: Lab, fs: Class) -> None:
    """Its pods write to the volume: that is theirs, and is cleaned once they are gone."""
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    backup = Backup(lab.plane, key(volume), claim_key(claim))
    uid = uid_of(lab, claim)
    # Without its StorageClass nothing is offered anew, once the agent has heard of that.
    lab.plane.request("DELETE", f"{CLASSES}/{fs.name}")
    problem = "localvolume_class_problem"
    lab.until(lambda: lab.metric(problem, **{"class": fs.name}), lambda value: value == 1)
    lab.delete_claim(claim)
    lab.until(lambda: lab.volume(volume["metadata"]["name"]), lambda found: found is None)
    lab.until(lambda: recorded(path), lambda record: not record.claim)
    lab.stop()
    backup.restore()
    lab.start()
    lab.until(lambda: recorded(path), lambda record: record.claim == uid)
    (path / "its-own").write_text("written since")
    lab.delete_claim(claim)
    lab.until((path / "its-own").exists, lambda there: not there)


def test_what_is_lost_with_the_nodes_directory_is_not_guessed(lab: Lab) -> None:
    """A device's record is gone: its object is told of it, and nothing is cleaned for that."""
    block = lab.add_class("block", volumeMode="Block")
    device = lab.raw_disk()
    lab.link(device, block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    fill(device.path, PRECIOUS)
    until_device_held(lab, claim)
    lab.stop()
    lab.forget_record(volume)
    lab.start()
    name = volume["metadata"]["name"]
    lab.event(name, "VolumeNotItsOwn", "the record that was made of it is not there")
    lab.delete_claim(claim)
    lab.event(name, "VolumeFailedDelete", "the record that was made of it is not there")
    lab.stays(volume)
    assert Path(device.path).read_bytes().startswith(PRECIOUS)
    # The administrator's word: the object is taken for one of before there were records.
    lab.patch(name, {"metadata": {"annotations": {GENERATION: None}}})
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])


def test_a_record_of_a_newer_release_holds(lab: Lab, fs: Class) -> None:
    disk, path = lab.disk(), fs.path("one")
    path.mkdir()
    with mounted(disk, path):
        lab.start()
        volume = lab.published(fs, "one")
        claim = lab.bound(volume)
        lab.stop()
        os.setxattr(path, NOTE, b'{"format":3,"generation":"abc","holders":[]}')
        lab.delete_claim(claim)
        lab.start()
        name = volume["metadata"]["name"]
        lab.event(name, "VolumeFailedDelete", "a newer release wrote it, in format 3")
        lab.stays(volume)
        newer = f'{{"format":2,"generation":"{generation(volume)}","more":1}}'
        os.setxattr(path, NOTE, newer.encode())
        lab.stop()
        lab.start()
        lab.published(fs, "one", unlike=volume["metadata"]["uid"])


def test_an_object_of_an_older_release_is_completed(lab: Lab, fs: Class) -> None:
    """Bound or free; the next restore finds a record."""
    paths = {name: lab.mount(lab.disk(), fs.path(name)) for name in ("bound", "free")}
    lab.start()
    volumes = {name: lab.published(fs, name) for name in paths}
    claim = lab.bound(volumes["bound"])
    lab.stop()
    for volume in volumes.values():
        lab.forget_record(volume)
        lab.patch(volume["metadata"]["name"], {"metadata": {"annotations": {GENERATION: None}}})
    lab.start()
    for name, volume in volumes.items():
        found = lab.until(
            partial(lab.volume, volume["metadata"]["name"]),
            lambda now: now and GENERATION in now["metadata"]["annotations"],
        )
        assert found
        record = recorded(paths[name])
        assert record.generation == generation(found)
        assert record.claim == (uid_of(lab, claim) if name == "bound" else "")


def test_a_claim_that_was_freed_by_hand_keeps_its_data(lab: Lab, fs: Class) -> None:
    """Retain, an emptied claimRef and another claim: what administrators do, and it goes on."""
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    first = lab.bound(volume)
    (path / "kept").write_text("kept")
    lab.delete_claim(first)
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    lab.patch(name, {"spec": {"claimRef": None}})
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Available")
    second = lab.bound(volume)
    assert second != first
    until_held(lab, path, second)
    assert (path / "kept").exists()
    lab.until(
        lambda: lab.plane.request("GET", f"{CLAIMS}/{second}")["status"]["phase"],
        lambda phase: phase == "Bound",
    )
