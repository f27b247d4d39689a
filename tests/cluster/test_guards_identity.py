"""A path is only a name: what is cleaned or offered is the very disk that was published."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_agent import IDENTITY, Lab
from tests.host.support_devices import (
    LoopDevice,
    bind,
    command,
    loop_device,
    mounted,
    spare_loop_name,
    unmount,
)

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

NOT_IT = "this is not the volume that was published"


def fill(device: LoopDevice, word: str) -> bytes:
    """Write something all over a device; returns what it then holds."""
    path = Path(device.path)
    size = len(path.read_bytes())
    data = (word.encode() * (size // len(word) + 1))[:size]
    path.write_bytes(data)
    return data


def test_a_link_that_leads_to_another_disk(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    path = block.path("one")
    ours, others = lab.raw_disk(), lab.raw_disk()
    lab.link(ours, path)
    lab.start()
    volume = lab.published(block, "one")
    lab.stop()
    volume = lab.released(volume)
    fill(ours, "tenant")
    precious = fill(others, "precious")
    path.unlink()
    path.symlink_to(others.path)
    lab.start()
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", NOT_IT)
    lab.stays(volume)
    assert Path(others.path).read_bytes() == precious

    path.unlink()
    path.symlink_to(ours.path)
    lab.published(block, "one", unlike=volume["metadata"]["uid"])
    assert not any(Path(ours.path).read_bytes())
    assert Path(others.path).read_bytes() == precious


@pytest.mark.parametrize("command_of_theirs", [False, True])
def test_it_leads_to_another_disk_in_the_last_moment(
    lab: Lab, before_cleaning: list[Callable[[], object]], command_of_theirs: bool
) -> None:
    keys: dict[str, Any] = {}
    if command_of_theirs:
        keys["blockCleanerCommand"] = ["/bin/sh", "-c", 'cat /dev/zero > "$LOCAL_PV_BLKDEVICE"']
    block = lab.add_class("block", volumeMode="Block", **keys)
    path = block.path("one")
    ours, others = lab.raw_disk(), lab.raw_disk()
    precious = fill(others, "precious")
    lab.link(ours, path)
    lab.start()
    volume = lab.published(block, "one")
    claim = lab.bound(volume)

    def exchange() -> None:
        path.unlink()
        path.symlink_to(others.path)

    before_cleaning.append(exchange)
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "cleaning failed")
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", NOT_IT)
    lab.settle()
    assert Path(others.path).read_bytes() == precious
    assert lab.volume(volume["metadata"]["name"]) is not None


def test_a_disk_exchanged_for_another_under_the_same_device_name(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    path = block.path("one")
    name = lab.stack.enter_context(spare_loop_name())
    ours = lab.stack.enter_context(loop_device(at=name, size=8 << 20))
    others = lab.raw_disk(8 << 20)
    precious = fill(others, "precious")
    lab.link(ours, path)
    lab.start()
    volume = lab.published(block, "one")
    lab.stop()
    volume = lab.released(volume)
    ours.detach()
    others.detach()
    others.attach(at=name)
    lab.start()
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", NOT_IT)
    lab.stays(volume)
    assert Path(name).read_bytes() == precious
    others.detach()
    ours.attach(at=name)
    lab.published(block, "one", unlike=volume["metadata"]["uid"])


def test_another_filesystem_or_another_directory_of_it_at_the_same_path(lab: Lab) -> None:
    fs = lab.add_class("fs")
    path = fs.path("one")
    path.mkdir()
    store = lab.mount(lab.disk(), lab.directory / "store")
    for name in ("ours", "others"):
        (store / name).mkdir()
    (store / "others/precious").write_text("somebody's")
    with bind(store / "ours", path):
        lab.start()
        volume = lab.published(fs, "one")
        lab.stop()
        volume = lab.released(volume)
        (path / "secret").write_text("tenant")
    name = volume["metadata"]["name"]
    with bind(store / "others", path):
        lab.start()
        lab.event(name, "VolumeFailedDelete", f"{NOT_IT}: its root was")
        lab.stays(volume)
        assert (path / "precious").exists()
    other = lab.disk()
    with mounted(other, path):
        (path / "precious").write_text("somebody's")
        lab.event(name, "VolumeFailedDelete", f"{NOT_IT}: its uuid was")
        lab.stays(volume)
        assert (path / "precious").exists()
    with bind(store / "ours", path):
        lab.published(fs, "one", unlike=volume["metadata"]["uid"])
        assert not (path / "secret").exists()
    assert (store / "others/precious").exists()


def test_a_replaced_volume_keeps_its_claim_and_loses_its_offer(lab: Lab) -> None:
    """Bound: said and left alone. Never used: offered as what it is now, at once."""
    fs = lab.add_class("fs")
    disks = {name: lab.disk() for name in ("used", "unused")}
    others = {name: lab.disk() for name in disks}
    for name, disk in disks.items():
        lab.mount(disk, fs.path(name))
    lab.start()
    used, unused = lab.published(fs, "used"), lab.published(fs, "unused")
    lab.bound(used)
    for name in disks:
        unmount(fs.path(name))
        command("mount", others[name].path, fs.path(name))
    lab.event(used["metadata"]["name"], "VolumeReplaced", "its uuid was")
    lab.until(lambda: lab.held(fs), lambda held: held == {"replaced": 1})
    assert lab.stays(used)["status"]["phase"] == "Bound"
    again = lab.published(fs, "unused", unlike=unused["metadata"]["uid"])
    assert _uuid(again) != _uuid(unused)
    # It comes back, and all is well again.
    unmount(fs.path("used"))
    command("mount", disks["used"].path, fs.path("used"))
    lab.until(lambda: lab.held(fs), lambda held: held == {})


def _uuid(volume: dict[str, dict[str, dict[str, str]]]) -> str:
    found: str = json.loads(volume["metadata"]["annotations"][IDENTITY])["uuid"]
    return found
