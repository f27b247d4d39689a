"""A volume that disappears: its offer ends after a while, a claim on it never does."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from localvolume.cli.main import main
from tests.cluster.support_agent import Lab
from tests.host.support_devices import command, unmount

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def held(lab: Lab) -> float:
    return lab.held(lab.classes["fs"]).get("vanished", 0)


def test_offers_claims_and_short_absences(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    fs = lab.add_class("fs")
    names = ("offered", "claimed", "used")
    disks = {name: lab.disk() for name in names}
    for name, disk in disks.items():
        lab.mount(disk, fs.path(name))
    lab.start(vanished_grace=600)
    volumes = {name: lab.published(fs, name) for name in names}
    lab.bound(volumes["claimed"])
    # A claim's data may still be in this one, though it is offered again by an administrator.
    used = volumes["used"]["metadata"]["name"]
    claim = lab.bound(volumes["used"])
    lab.stop()
    lab.delete_claim(claim)
    lab.until(lambda: lab.phase(used), lambda phase: phase == "Released")
    lab.patch(used, {"spec": {"claimRef": None}})
    lab.until(lambda: lab.phase(used), lambda phase: phase == "Available")

    lab.start(vanished_grace=600)
    for name in names:
        unmount(fs.path(name))
    lab.until(lambda: held(lab), lambda value: value == 3)
    lab.event(volumes["claimed"]["metadata"]["name"], "VolumeVanished", "not a valid mount point")
    for name in names:
        lab.stays(volumes[name])
        command("mount", disks[name].path, fs.path(name))
    lab.until(lambda: held(lab), lambda value: value == 0)
    for name in names:
        lab.stays(volumes[name])
    lab.event(volumes["claimed"]["metadata"]["name"], "VolumePutRight", "a claim holds it")
    lab.stop()
    assert main(["status", "-o", "json", "--kubeconfig", str(lab.plane.kubeconfig)]) == 0
    states = {one["name"]: one["state"] for one in json.loads(capsys.readouterr().out)["volumes"]}
    assert states[volumes["claimed"]["metadata"]["name"]] == "bound"

    lab.start(vanished_grace=0.5)
    for name in names:
        unmount(fs.path(name))
    lab.until(lambda: lab.volumes_at(fs, "offered"), lambda found: not found)
    lab.until(lambda: held(lab), lambda value: value == 2)
    for name in ("claimed", "used"):
        lab.stays(volumes[name])
    for name in names:
        command("mount", disks[name].path, fs.path(name))
    lab.published(fs, "offered", unlike=volumes["offered"]["metadata"]["uid"])
    lab.until(lambda: held(lab), lambda value: value == 0)


def test_devices_links_and_entries_that_go_and_return(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device, linked = lab.raw_disk(), lab.raw_disk()
    lab.link(device, block.path("device"))
    lab.link(linked, block.path("linked"))
    lab.start(vanished_grace=0.5)
    volumes = {name: lab.published(block, name) for name in ("device", "linked")}
    at = device.path
    device.detach()
    block.path("linked").unlink()
    lab.until(lab.volumes, lambda found: not found)
    device.attach(at=at)
    block.path("linked").symlink_to(linked.path)
    for name, volume in volumes.items():
        lab.published(block, name, unlike=volume["metadata"]["uid"])


def test_a_link_that_udev_makes_a_moment_after_its_device(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Administrators link to /dev/disk/by-id, which nothing tells us of when it comes."""
    # The later of the two looks at a device comes when the test says so: once the link is there,
    # however long that took.
    lab.hurry(udev=3601.0)
    later: list[tuple[str, Callable[[], object]]] = []
    real = asyncio.BaseEventLoop.call_later

    def call_later(
        loop: asyncio.BaseEventLoop, delay: float, call: Callable[..., Any], *args: Any, **how: Any
    ) -> asyncio.TimerHandle:
        if delay == lab.paces.static.udev:
            later.append((args[0], lambda: loop.call_soon_threadsafe(call, *args)))
        return real(loop, delay, call, *args, **how)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", call_later)
    block = lab.add_class("block", volumeMode="Block")
    by_id = lab.directory / "by-id"
    lab.unlink_later(block.path("one")).symlink_to(by_id)
    lab.start()
    device = lab.raw_disk()
    lab.until(lambda: [number for number, _ in later], lambda found: device.number in found)
    lab.settle()
    assert lab.volumes() == []
    by_id.symlink_to(device.path)
    for number, look in later:
        if number == device.number:
            look()
    lab.published(block, "one")


def test_a_removed_directory_and_class_take_nothing_with_them(lab: Lab) -> None:
    """What cannot be listed is not gone, nor is what a class offered that is configured no more."""
    fs, kept = lab.add_class("fs"), lab.add_class("kept")
    lab.mount(lab.disk(), fs.path("one"))
    lab.mount(lab.disk(), kept.path("one"))
    lab.start(vanished_grace=0)
    volume, other = lab.published(fs, "one"), lab.published(kept, "one")
    moved = lab.directory / "moved-away"
    fs.directory.rename(moved)
    try:
        lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 500 and fs.name in got[1])
        lab.stays(volume)
        # The kernel tells of no mount that is moved along with its directory. Of this one it does,
        # and what is read then has the other where it is now.
        lab.mount(lab.disk(), kept.path("two"))
        lab.published(kept, "two")
    finally:
        moved.rename(fs.directory)
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 200)
    lab.stays(volume)
    del lab.settings["storageClassMap"][kept.name]
    lab.configure()
    lab.until(lambda: lab.held(kept), lambda held: sum(held.values()) == 2)
    lab.stays(other)
