"""S7: a copy of a filesystem has its UUID, and is another volume: it is not cleaned for it."""

import json
from pathlib import Path

import pytest

from tests.cluster.support_agent import IDENTITY, Class, Lab, Volume
from tests.host.support_devices import LoopDevice, command, mounted
from tests.suite.api import MERGE, VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


@pytest.fixture
def fs(lab: Lab) -> Class:
    return lab.add_class("fs")


def copy_of(lab: Lab, disk: LoopDevice) -> LoopDevice:
    """Another device with the same bytes, as dd makes one and a snapshot shows one."""
    data = disk.backing.read_bytes()
    copy = lab.raw_disk(len(data))
    Path(copy.path).write_bytes(data)
    return copy


def recorded(volume: Volume) -> dict[str, str]:
    found: dict[str, str] = json.loads(volume["metadata"]["annotations"][IDENTITY])
    return found


def completed(lab: Lab, volume: Volume) -> None:
    """Wait until the object says of its volume what it said when it was published."""
    name, wanted = volume["metadata"]["name"], recorded(volume)
    lab.until(lambda: lab.volume(name), lambda now: now and recorded(now) == wanted)


def test_a_copy_in_its_place_is_not_cleaned(lab: Lab, fs: Class) -> None:
    disk, path = lab.disk(), fs.path("one")
    path.mkdir()
    with mounted(disk, path):
        lab.start()
        volume = lab.published(fs, "one")
        claim = lab.bound(volume)
        (path / "precious").write_text("the tenant's")
        command("sync", "-f", path)
    name = volume["metadata"]["name"]
    with mounted(copy_of(lab, disk), path):
        lab.event(name, "VolumeReplaced", "its deviceLoopInode was")
        lab.holds(fs, {"replaced": 1})
        lab.delete_claim(claim)
        lab.event(name, "VolumeFailedDelete", "its deviceLoopInode was")
        lab.stays(volume)
        assert (path / "precious").read_text() == "the tenant's"
    with mounted(disk, path):
        lab.published(fs, "one", unlike=volume["metadata"]["uid"])
        assert not (path / "precious").exists()


def test_a_copy_of_what_nobody_has_used_is_offered_as_what_it_is(lab: Lab, fs: Class) -> None:
    disk, path = lab.disk(), fs.path("one")
    path.mkdir()
    with mounted(disk, path):
        lab.start()
        volume = lab.published(fs, "one")
    with mounted(copy_of(lab, disk), path):
        again = lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert recorded(again)["uuid"] == recorded(volume)["uuid"]
    assert recorded(again)["deviceLoopInode"] != recorded(volume)["deviceLoopInode"]


def test_what_an_older_release_has_recorded_is_completed(lab: Lab, fs: Class) -> None:
    """Bound or free: from then on a copy is told from it."""
    lab.mount(lab.disk(), fs.path("bound"))
    lab.mount(lab.disk(), fs.path("free"))
    lab.start()
    volumes = {name: lab.published(fs, name) for name in ("bound", "free")}
    lab.bound(volumes["bound"])
    lab.stop()
    for volume in volumes.values():
        known = recorded(volume)
        older = {key: value for key, value in known.items() if not key.startswith("device")}
        patch = {"metadata": {"annotations": {IDENTITY: json.dumps(older)}}}
        path = f"{VOLUMES}/{volume['metadata']['name']}"
        lab.plane.request("PATCH", path, patch, content_type=MERGE)
    lab.start()
    for volume in volumes.values():
        completed(lab, volume)
