"""Limits of reading and writing in control groups of v2, which not every machine has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.dynamic.throttling.act import throttle_for
from localvolume.volumes.attributes import NONE
from tests.host.support_cgroups import Groups, written_in
from tests.host.support_images import command
from tests.host.support_mounts import mount, umount
from tests.host.test_cgroups import (
    ONE,
    SLOW,
    device,
    groups,
    kubelet,
    test_a_container_that_starts_later_is_limited_at_the_next_look,
    test_a_pod_is_limited_before_it_has_its_volume,
    test_a_pod_that_has_gone_is_no_failure,
    test_a_raw_device_is_limited_as_well,
    test_a_volume_without_a_limit_is_given_whatever_the_groups_are,
    test_limits_are_set_one_by_one_and_taken_away,
    test_pods_are_found_and_nothing_that_a_pod_makes,
    test_what_changed_is_set_in_all_pods_that_use_it,
    test_without_its_group_a_pod_gets_no_volume,
)
from tests.suite.units import MIB

from .support_lvm_store import Pool

__all__ = [
    "device",
    "groups",
    "kubelet",
    "test_a_container_that_starts_later_is_limited_at_the_next_look",
    "test_a_pod_is_limited_before_it_has_its_volume",
    "test_a_pod_that_has_gone_is_no_failure",
    "test_a_raw_device_is_limited_as_well",
    "test_a_volume_without_a_limit_is_given_whatever_the_groups_are",
    "test_limits_are_set_one_by_one_and_taken_away",
    "test_pods_are_found_and_nothing_that_a_pod_makes",
    "test_what_changed_is_set_in_all_pods_that_use_it",
    "test_without_its_group_a_pod_gets_no_volume",
]


@pytest.fixture(scope="module", autouse=True)
def unified() -> Iterator[None]:
    """Control groups of v2, where systemd has them."""
    command("/run/modprobe", "loop")
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2")
    yield
    umount("/sys/fs/cgroup")


def test_a_logical_volume_is_limited(groups: Groups, either: Pool, tmp_path: Path) -> None:
    """Its tag says so, and its device is held to it, also below a thin pool."""
    group, kubelet = groups.pod(ONE), tmp_path / "kubelet"
    offered = either.offer(mib=24)
    assert either.store.modify(offered, SLOW).attributes == SLOW
    assert either.store.look().records["pvc-1"].attributes == SLOW
    where = kubelet / "pods" / ONE / "volumes/kubernetes.io~csi/pvc-1/mount"
    where.mkdir(parents=True)
    mount(either.node("pvc-1"), str(where), "ext4")
    try:
        keeps = throttle_for(str(groups.directory), str(kubelet))
        assert keeps.unkept({"pvc-1": SLOW}) == {"pvc-1"}
        either.store.use(offered, keeps.keep)
        assert keeps.unkept({"pvc-1": SLOW}) == set()
        assert written_in(group, where / "file", 6 * MIB) > 2.0
    finally:
        umount(str(where))
    assert either.store.modify(offered, NONE).attributes == NONE
