"""Limits of reading and writing in real control groups: of the pods that use a volume alone."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpclib.const import Status

from localvolume.backends.model import BackendFailed, Source
from localvolume.dynamic.throttling.act import Throttle, throttle_for
from localvolume.host.cgroups import NoGroups, hierarchy_in
from localvolume.host.syscalls import closed_after
from localvolume.volumes.attributes import Attributes
from tests.host.support_cgroups import Groups, control_groups, written_in
from tests.host.support_csi import Disks, Kubelet, kubelet_at, number_of
from tests.host.support_devices import LoopDevice, formatted
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "throttling")

ONE, TWO = "0f7c1f5e-0c3f-4d0a-9a3e-000000000001", "0f7c1f5e-0c3f-4d0a-9a3e-000000000002"
SLOW = Attributes(class_name="slow", write_bytes=2 * MIB, read_ops=500)
LINES = {"wbps": 2 * MIB, "riops": 500}


@pytest.fixture
def groups() -> Iterator[Groups]:
    with control_groups() as made:
        yield made


@pytest.fixture
def device() -> Iterator[LoopDevice]:
    with formatted("ext4") as made:
        yield made


@pytest.fixture
def kubelet(tmp_path: Path, groups: Groups, device: LoopDevice) -> Iterator[Kubelet]:
    """With a limited volume `disk` on the device."""
    disks = Disks()
    disks.add("disk", device, "ext4")
    disks.known["disk"] = dataclasses.replace(disks.known["disk"], attributes=SLOW)
    with kubelet_at(tmp_path / "kubelet", disks, throttle(groups, tmp_path)) as made:
        yield made


def throttle(groups: Groups, tmp_path: Path) -> Throttle:
    return throttle_for(str(groups.directory), str(tmp_path / "kubelet"))


def limited(kubelet: Kubelet, attributes: Attributes) -> None:
    known = kubelet.disks.known
    known["disk"] = dataclasses.replace(known["disk"], attributes=attributes)


@pytest.mark.parametrize("systemd", [False, True])
def test_pods_are_found_and_nothing_that_a_pod_makes(groups: Groups, systemd: bool) -> None:
    one = groups.pod(ONE, systemd=systemd)
    # Who owns a group may make any below it.
    os.makedirs(f"{one}/container/kubepods/pod{TWO}")
    os.makedirs(f"{groups.hierarchy.root}/user.slice/kubepods/pod{TWO}")
    os.makedirs(f"{groups.hierarchy.root}/pod{TWO}")
    below = ["", "/container", "/container/kubepods", f"/container/kubepods/pod{TWO}"]
    own = [""] if groups.hierarchy.unified else below
    assert groups.hierarchy.pods() == {ONE: [f"{one}{path}" for path in own]}


def test_limits_are_set_one_by_one_and_taken_away(groups: Groups, device: LoopDevice) -> None:
    pod, number = groups.pod(ONE), number_of(device.path)
    hierarchy = groups.hierarchy
    assert hierarchy.limits(pod, number) == dict.fromkeys(("rbps", "wbps", "riops", "wiops"), 0)
    hierarchy.limit(pod, number, {"rbps": MIB, "wiops": 7})
    hierarchy.limit(pod, number, {"wbps": 2 * MIB})
    assert groups.has(pod, number) == {"rbps": MIB, "wbps": 2 * MIB, "wiops": 7}
    hierarchy.limit(pod, number, {"rbps": 0, "wiops": 0})
    assert groups.has(pod, number) == {"wbps": 2 * MIB}


def test_a_place_without_control_groups_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoGroups, match="neither control groups of v2 nor blkio of v1"):
        hierarchy_in(str(tmp_path))
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert "have no controller io" in throttle_for(str(tmp_path), None).why_not
    assert "csi.ioLimits" in throttle_for("", None).why_not


async def test_a_pod_is_limited_before_it_has_its_volume(
    groups: Groups, kubelet: Kubelet, device: LoopDevice
) -> None:
    pod, other = groups.pod(ONE), groups.pod(TWO)
    number = number_of(device.path)
    await kubelet.stage("disk")
    target = await kubelet.publish("disk", ONE)
    assert groups.has(pod, number) == LINES
    assert groups.has(other, number) == {}
    # The kernel keeps to it: no machine writes that faster.
    assert written_in(pod, Path(target, "file"), 6 * MIB) > 2.0


async def test_a_container_that_starts_later_is_limited_at_the_next_look(
    groups: Groups, kubelet: Kubelet, tmp_path: Path
) -> None:
    pod = groups.pod(ONE)
    os.rmdir(f"{pod}/container")
    await kubelet.stage("disk")
    target = await kubelet.publish("disk", ONE)
    groups.pod(ONE)
    if not groups.hierarchy.unified:
        kubelet.disks.use_here("disk", throttle(groups, tmp_path).keep)
    assert written_in(pod, Path(target, "file"), 6 * MIB) > 2.0


async def test_without_its_group_a_pod_gets_no_volume(groups: Groups, kubelet: Kubelet) -> None:
    await kubelet.stage("disk")
    request = kubelet.publish_request("disk", ONE)
    status, text = await kubelet.refused("NodePublishVolume", **request)
    assert (status, "has no control group yet" in text) == (Status.UNAVAILABLE, True)
    assert not os.path.lexists(kubelet.target("disk", ONE))
    groups.pod(ONE)
    await kubelet.publish("disk", ONE)


async def test_a_volume_without_a_limit_is_given_whatever_the_groups_are(
    kubelet: Kubelet, groups: Groups, tmp_path: Path
) -> None:
    """A class may say `max`, or take away what another one said."""
    await kubelet.stage("disk")
    limited(kubelet, Attributes(write_bytes=0))
    await kubelet.publish("disk", ONE)
    keeps = throttle(groups, tmp_path)
    with closed_after(os.open(tmp_path, os.O_PATH)) as directory:
        keeps.keep(kubelet.disks.source("disk", directory), ONE)
        limited(kubelet, SLOW)
        with pytest.raises(BackendFailed, match="no device of its own"):
            keeps.keep(kubelet.disks.source("disk", directory), ONE)


async def test_a_volume_whose_limits_cannot_be_kept_is_given_to_nobody(
    groups: Groups, kubelet: Kubelet, tmp_path: Path
) -> None:
    groups.pod(ONE)
    await kubelet.stage("disk")
    with kubelet_at(tmp_path / "kubelet", kubelet.disks) as without:
        request = without.publish_request("disk", ONE)
        status, text = await without.refused("NodePublishVolume", **request)
        assert (status, "csi.ioLimits" in text) == (Status.UNAVAILABLE, True)
        limited(kubelet, Attributes(write_bytes=0))
        await without.publish("disk", ONE)


async def test_what_changed_is_set_in_all_pods_that_use_it(
    groups: Groups, kubelet: Kubelet, device: LoopDevice, tmp_path: Path
) -> None:
    number, keeps = number_of(device.path), throttle(groups, tmp_path)
    one, two, other = groups.pod(ONE), groups.pod(TWO, systemd=True), groups.pod("3")
    await kubelet.stage("disk")
    for uid in (ONE, TWO):
        await kubelet.publish("disk", uid)

    def keep(attributes: Attributes) -> list[dict[str, int]]:
        limited(kubelet, attributes)
        assert keeps.unkept({"disk": attributes}) == {"disk"}
        kubelet.disks.use_here("disk", keeps.keep)
        assert keeps.unkept({"disk": attributes}) == set()
        return [groups.has(pod, number) for pod in (one, two, other)]

    assert [groups.has(pod, number) for pod in (one, two, other)] == [LINES, LINES, {}]
    assert keeps.unkept({"disk": SLOW}) == set()
    # By somebody else, or by an agent that died.
    groups.hierarchy.limit(one, number, {"wbps": 0, "riops": 9})
    # Of another tool: nobody ever said anything of it.
    groups.hierarchy.limit(two, number, {"rbps": 5 * MIB})
    assert keep(SLOW) == [LINES, {**LINES, "rbps": 5 * MIB}, {}]
    assert keep(Attributes(write_bytes=0, read_ops=7)) == [
        {"riops": 7},
        {"riops": 7, "rbps": 5 * MIB},
        {},
    ]
    await kubelet.unpublish("disk", ONE)
    assert keep(Attributes(read_ops=8))[:2] == [{"riops": 7}, {"riops": 8, "rbps": 5 * MIB}]


async def test_a_raw_device_is_limited_as_well(
    groups: Groups, kubelet: Kubelet, device: LoopDevice, tmp_path: Path
) -> None:
    pod, number, keeps = groups.pod(ONE), number_of(device.path), throttle(groups, tmp_path)
    kubelet.disks.add("raw", device, "raw")
    known = kubelet.disks.known
    known["raw"] = dataclasses.replace(known["raw"], attributes=SLOW)
    await kubelet.stage("raw")
    await kubelet.publish("raw", ONE)
    assert groups.has(pod, number) == LINES
    assert keeps.unkept({"raw": SLOW}) == set()
    groups.hierarchy.limit(pod, number, {"wbps": 0})
    assert keeps.unkept({"raw": SLOW}) == {"raw"}
    kubelet.disks.use_here("raw", keeps.keep)
    assert groups.has(pod, number) == LINES


async def test_a_pod_that_has_gone_is_no_failure(
    groups: Groups, kubelet: Kubelet, tmp_path: Path
) -> None:
    pod = groups.pod(ONE)
    await kubelet.stage("disk")
    await kubelet.publish("disk", ONE)
    os.rmdir(f"{pod}/container")
    os.rmdir(pod)
    kubelet.disks.use_here("disk", throttle(groups, tmp_path).keep)


def test_a_directory_has_no_device_to_limit(groups: Groups, tmp_path: Path) -> None:
    disks = Disks()
    (tmp_path / "dir").mkdir()
    name = disks.add("dir", tmp_path / "dir")
    disks.known[name] = dataclasses.replace(disks.known[name], attributes=SLOW)

    def keep(source: Source) -> None:
        throttle(groups, tmp_path).keep(source)

    with pytest.raises(BackendFailed, match="no device of its own"):
        disks.use_here(name, keep)
