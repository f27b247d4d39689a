"""S9: a device that is smaller than it was is not cleaned: what lay at its end may come back."""

import os

import pytest

from tests.attacks.support_gate import Gate, fill
from tests.cluster.support_agent import Lab
from tests.host.support_devices import LoopDevice, command
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

SECRET = b"the former tenant's secret "
SIZE = 16 * MIB


def resize(device: LoopDevice, size: int) -> None:
    """The device alone: what lies beyond its end stays in its backing file, as on a real disk."""
    command("losetup", "--set-capacity", device.path)
    assert os.stat(device.backing).st_size == size


def cut(lab: Lab, device: LoopDevice, to: int) -> bytes:
    """Shorten the device; what is cut off."""
    data = device.backing.read_bytes()
    os.truncate(device.backing, to)
    resize(device, to)
    return data[to:]


def give_back(device: LoopDevice, rest: bytes) -> None:
    with device.backing.open("ab") as file:
        file.write(rest)
    resize(device, os.stat(device.backing).st_size)


def test_one_that_shrank_while_it_was_bound_is_not_cleaned(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device = lab.raw_disk(SIZE)
    lab.link(device, block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    fill(device.path, SECRET)
    rest = cut(lab, device, SIZE // 2)
    lab.delete_claim(claim)
    name = volume["metadata"]["name"]
    lab.event(name, "VolumeFailedDelete", "the device is smaller than it was")
    lab.stays(volume)
    give_back(device, rest)
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert SECRET not in device.backing.read_bytes()


def test_one_that_grows_while_it_is_cleaned_is_cleaned_again(lab: Lab) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device = lab.raw_disk(SIZE)
    lab.link(device, block.path("raw"))
    gate = Gate(lab)
    lab.start()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    fill(device.path, SECRET)
    lab.delete_claim(claim)
    gate.wait()
    give_back(device, (SECRET * MIB)[:MIB])
    gate.open()
    name = volume["metadata"]["name"]
    lab.event(name, "VolumeFailedDelete", "bytes when its cleaning began, and has")
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert SECRET not in device.backing.read_bytes()
