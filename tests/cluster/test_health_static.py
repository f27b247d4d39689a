"""A static volume that fails is told of on its object and its claim, and nothing else happens."""

from __future__ import annotations

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_health import QUICK, events, looked, says, times, told, written
from tests.host.support_devices import command, unmount
from tests.host.support_failing import count_an_error, repair, shut_down
from tests.suite.api import CLAIMS

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

#: Unmounted to be repaired, it is not told that the device is gone.
PATIENT = type(QUICK)(gone=600, over=0.3, again=0.1, rest=0.05, look=0.3)


def test_errors_are_told_until_they_are_repaired(lab: Lab) -> None:
    fs = lab.add_class("fs")
    disk, other = lab.disk(), lab.disk()
    where = lab.mount(disk, fs.path("one"))
    lab.mount(other, fs.path("other"))
    lab.start(patience=PATIENT)
    volume, sound = lab.published(fs, "one"), lab.published(fs, "other")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    uid = lab.plane.request("GET", f"{CLAIMS}/{claim}")["metadata"]["uid"]
    (where / "precious").write_text("data")
    looked(lab)
    assert told(lab) == []
    assert written(lab, name) == ""

    count_an_error(disk)
    text = says(lab, name, f"IOErrors: its ext4 on {disk.name} counts errors")
    assert lab.event(name, "VolumeUnhealthy")["message"] == text
    assert text in lab.event(claim, "VolumeUnhealthy")["message"]
    (about,) = events(lab, claim)
    assert about["involvedObject"]["kind"] == "PersistentVolumeClaim"
    assert about["involvedObject"]["uid"] == uid
    labels = {"persistentvolume": name, "claim": "", "storageclass": fs.name}
    lab.until(lambda: told(lab), lambda found: found == [{**labels, "reason": "IOErrors"}])
    # One more error is no news, nor is another agent.
    count_an_error(disk)
    looked(lab)
    lab.stop()
    lab.start(patience=PATIENT)
    lab.until(lambda: told(lab), bool)
    looked(lab)
    assert times(lab, name) == times(lab, claim) == 1
    assert written(lab, sound["metadata"]["name"]) == ""
    assert (where / "precious").read_text() == "data"
    lab.stays(volume)

    unmount(where)
    looked(lab)
    assert written(lab, name) == text, "not mounted it is not known to be well"
    repair(disk)
    command("mount", disk.path, where)
    says(lab, name, "")
    for about_name in (name, claim):
        lab.event(about_name, "VolumeHealthy")
        assert times(lab, about_name) == 1
    assert told(lab) == []
    assert (where / "precious").read_text() == "data"
    lab.stays(volume)
    assert times(lab, name, "VolumeHealthy") == 1


@pytest.mark.needs("xfs")
def test_filesystems_that_stop(lab: Lab) -> None:
    """An ext4 that the kernel writes no more, one that people mounted so, and an xfs."""
    fs = lab.add_class("fs")
    stops, meant, shut = lab.disk(), lab.disk(), lab.disk("xfs")
    lab.mount(stops, fs.path("stops"), options="errors=remount-ro")
    lab.mount(meant, fs.path("meant"), options="ro")
    lab.mount(shut, fs.path("shut"))
    lab.start(patience=QUICK)
    volumes = {name: lab.published(fs, name) for name in ("stops", "meant", "shut")}
    names = {key: volume["metadata"]["name"] for key, volume in volumes.items()}
    count_an_error(stops)
    shut_down(fs.path("shut"))
    says(lab, names["stops"], "ReadOnly: its ext4 takes no writes any more")
    says(lab, names["shut"], "IOErrors: ")
    looked(lab)
    assert written(lab, names["meant"]) == ""
    # Nobody has them: nobody else is to be told.
    wanted = {names["stops"]: ("", "ReadOnly"), names["shut"]: ("", "IOErrors")}
    lab.until(
        lambda: {one["persistentvolume"]: (one["claim"], one["reason"]) for one in told(lab)},
        lambda found: found == wanted,
    )
    for key in volumes:
        lab.stays(volumes[key])
    unmount(fs.path("shut"))
    command("mount", shut.path, fs.path("shut"))
    says(lab, names["shut"], "")
    lab.event(names["shut"], "VolumeHealthy")


def test_a_device_that_goes_and_returns(lab: Lab) -> None:
    """Its object has the Event that it always had; the claim learns of it, too."""
    block = lab.add_class("block", volumeMode="Block")
    device = lab.raw_disk()
    lab.link(device, block.path("one"))
    lab.start(patience=QUICK, vanished_grace=0.1)
    volume = lab.published(block, "one")
    name, at = volume["metadata"]["name"], device.path
    claim = lab.bound(volume)
    device.detach()
    text = says(lab, name, "DeviceGone: ")
    assert text in lab.event(claim, "VolumeUnhealthy")["message"]
    lab.event(name, "VolumeVanished")
    assert events(lab, name) == []
    lab.until(lambda: [one["reason"] for one in told(lab)], lambda them: them == ["DeviceGone"])
    lab.stays(volume)
    device.attach(at=at)
    says(lab, name, "")
    for about_name in (name, claim):
        lab.event(about_name, "VolumeHealthy")
    lab.stays(volume)


def test_a_device_that_nobody_has_is_withdrawn_without_a_word(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device = lab.raw_disk()
    lab.link(device, block.path("one"))
    lab.start(patience=QUICK, vanished_grace=1)
    volume = lab.published(block, "one")
    device.detach()
    lab.until(lab.volumes, lambda found: not found)
    assert events(lab, volume["metadata"]["name"]) == []


def test_what_has_failed_is_not_offered_until_it_is_repaired(lab: Lab) -> None:
    fs = lab.add_class("fs")
    disk = lab.disk()
    where = lab.mount(disk, fs.path("one"))
    count_an_error(disk)
    lab.mount(lab.disk(), fs.path("other"))
    lab.start(patience=QUICK)
    lab.published(fs, "other")
    lab.until(lambda: lab.held(fs), lambda held: held.get("unwell") == 1)
    assert lab.volumes_at(fs, "one") == []
    # It is counted before it is said.
    lab.until(lambda: lab.logged("counts errors"), bool)
    unmount(where)
    repair(disk)
    command("mount", disk.path, where)
    lab.published(fs, "one")
    assert lab.held(fs).get("unwell", 0) == 0
