"""S1: data on a raw device that no signature tells of is somebody's, and passes for nothing."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_agent import Class, Lab
from tests.host.support_devices import LoopDevice
from tests.suite.api import VOLUMES
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

RECORDS = b"the former tenant's records"
SIZE = 16 * MIB
PLACES = {"first": 0, "last": SIZE - len(RECORDS), "middle": SIZE // 2 + 512}


def write(device: LoopDevice, at: int = 0) -> None:
    """What a database writes that has a raw device: nothing that libblkid knows."""
    fd = os.open(device.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, RECORDS, at)
        os.fsync(fd)
    finally:
        os.close(fd)


def holds_records(device: LoopDevice, at: int = 0) -> bool:
    return Path(device.path).read_bytes()[at : at + len(RECORDS)] == RECORDS


def is_blank(device: LoopDevice) -> bool:
    return not any(Path(device.path).read_bytes())


def raw(lab: Lab, block: Class) -> LoopDevice:
    device = lab.raw_disk(SIZE)
    lab.link(device, block.path("raw"))
    return device


def stays_held(lab: Lab, block: Class) -> None:
    lab.until(lambda: lab.held(block), lambda held: held == {"not-empty": 1})
    lab.until(lambda: lab.logged("data that nothing recognises"), bool)
    lab.settle()
    assert lab.volumes() == []


@pytest.mark.parametrize("place", PLACES)
def test_what_was_retained_is_not_offered_once_its_object_is_deleted(lab: Lab, place: str) -> None:
    block = lab.add_class("block", volumeMode="Block", policy="Retain")
    device = raw(lab, block)
    lab.start()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    write(device, PLACES[place])
    lab.delete_claim(claim)
    name = volume["metadata"]["name"]
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    lab.plane.request("DELETE", f"{VOLUMES}/{name}")
    lab.until(lambda: lab.volume(name), lambda found: found is None)
    lab.until(lambda: lab.held(block), lambda held: held == {"recorded": 1})
    # As an older release leaves it, which made no records: what is there must tell.
    lab.stop()
    lab.forget_record(volume)
    lab.start()
    stays_held(lab, block)
    assert holds_records(device, PLACES[place])


def test_an_object_that_is_lost_leaves_data_that_is_not_offered(lab: Lab) -> None:
    """As after a restore of etcd, or a finalizer that somebody has removed by hand."""
    block = lab.add_class("block", volumeMode="Block")
    device = raw(lab, block)
    lab.start()
    volume = lab.published(block, "raw")
    lab.bound(volume)
    write(device)
    lab.stop()
    lab.remove(volume)
    lab.forget_record(volume)
    lab.start()
    stays_held(lab, block)
    assert holds_records(device)


@pytest.mark.parametrize("mode", ["Block", "Filesystem"])
def test_a_cleaning_before_first_use_is_not_skipped(lab: Lab, mode: str) -> None:
    keys: dict[str, Any] = {"blockCleanerCommand": ["localvolume", "zero"]}
    block = lab.add_class("block", volumeMode=mode, firstUse="clean", **keys)
    device = raw(lab, block)
    write(device)
    lab.start()
    lab.published(block, "raw")
    assert is_blank(device)


@pytest.mark.parametrize("by_job", [False, True], ids=["process", "job"])
def test_offered_raw_next_it_is_cleaned_as_what_is_offered_raw(
    lab: Lab, by_job: bool, request: pytest.FixtureRequest
) -> None:
    if by_job:
        request.getfixturevalue("kubelet")
    block = lab.add_class("block")
    device = raw(lab, block)
    lab.start()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    lab.stop()
    write(device, SIZE // 2)
    lab.delete_claim(claim)
    lab.settings["storageClassMap"][block.name]["volumeMode"] = "Block"
    lab.start()
    again = lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert again["spec"]["volumeMode"] == "Block"
    assert is_blank(device)


@pytest.mark.parametrize(
    "keys",
    [
        {"volumeMode": "Block", "blockCleanerCommand": ["localvolume", "reset-signatures"]},
        {"volumeMode": "Block", "blockCleanerCommand": ["/bin/true"]},
        {"volumeMode": "Block", "firstUse": "trust"},
        {"volumeMode": "Filesystem"},
    ],
    ids=["reset-signatures", "own-command", "trust", "filesystem"],
)
def test_where_the_administrator_takes_that_for_clean_it_is_offered(
    lab: Lab, keys: dict[str, Any]
) -> None:
    """Upstream's users have such classes, whose devices never read as zeros again."""
    block = lab.add_class("block", **keys)
    device = raw(lab, block)
    write(device)
    lab.start()
    lab.published(block, "raw")
    assert holds_records(device)
